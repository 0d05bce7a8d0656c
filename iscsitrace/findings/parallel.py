"""Sessions that are used together: how evenly connections and paths to a volume are used, in which ALUA states, and the
time that writes of a mirror wait for its slowest side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from iscsitrace.findings import capture
from iscsitrace.findings.case import Case, Groups, is_worth
from iscsitrace.findings.finding import (
    DATA_AT_RISK,
    EVERY_VOLUME,
    NEXT_LOGIN,
    WHOLE_HOST,
    Advice,
    Explains,
    Found,
    Observation,
    Problem,
)
from iscsitrace.findings.hosts import INITIATOR_THINK_TIME
from iscsitrace.findings.thresholds import WORTH, WORTH_A_CHANGE
from iscsitrace.measure import connection_counts
from iscsitrace.measure.data_commands import is_whole_transfer
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.session import FRAMES, frames_in
from iscsitrace.relate.jobs.runs import BEGIN
from iscsitrace.relate.jobs.streams import Job
from iscsitrace.relate.mirrors.account import WORDS, Account
from iscsitrace.relate.paths import NON_OPTIMIZED, OPTIMIZED, PathsUse, PathUse
from iscsitrace.tables.numbers import Partition
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

UNEVEN: Final = 0.25
"""Least share of the time that parallel connections lose because one carried more than the others: 1 - mean / most. At
this value one of two carries twice as much as the other; round-robin stays far below."""


def _uneven(case: Case) -> Observation | None:
    """The worst of the jobs that the session's connections belong to."""
    jobs_of = case.groups.once(_by_connection)
    jobs = chain.from_iterable(jobs_of.get(row["connection"], ()) for row in case.subject.connections)
    worst = max(jobs, key=lambda each: (each.lost, -each.place), default=None)
    return worst.observation if worst else None


@dataclass(frozen=True)
class _Load:
    """How uneven a job is: all of its sessions have the same finding."""

    place: int
    """Its order among equal ones."""
    job: Job
    groups: Groups

    @cached_property
    def moved(self) -> dict[int, int] | None:
        """Bytes by connection, where some joined the job late: in the longest time with the same several
        connections in use. None where none joined late.

        What carried less because it came later is not uneven; those that were there together are compared.
        """
        soon_ns = self.job.first_ns + BEGIN * self.job.whole_ns
        if all(run.first_ns <= soon_ns for run in self.job.runs):
            return None
        commands = self.groups.once(_commands).rows_of_several(run.connection for run in self.job.runs)
        stages = connection_counts.stages_of(commands.select(commands.each(is_whole_transfer)))
        several = (each for each in stages if each.count > 1)
        longest = max(several, key=lambda each: each.last_ns - each.settled_ns, default=None)
        if longest is None:
            return {}
        sums = np.bincount(longest.owners, longest.sizes)
        return {number: int(sums[number]) if number < len(sums) else 0 for number in longest.connections}

    @cached_property
    def lost(self) -> float:
        """Share of the time that is lost; none where a stream only paused, and went on before the last one finished."""
        if self.moved is not None:
            return _lost_of([*self.moved.values()])
        lost = max(_lost_by(self.job))
        return 0.0 if lost >= UNEVEN and self._goes_on() else lost

    def _goes_on(self) -> bool:
        by_connection = self.groups.once(_commands)
        until_ns = self.job.first_ns + self.job.whole_ns
        for run in self.job.runs:
            starts_ns = by_connection.rows(run.connection).raw("command_first_ns")
            if ((starts_ns > run.last_ns) & (starts_ns < until_ns)).any():
                return True
        return False

    @cached_property
    def observation(self) -> Observation:
        """The facts."""
        return _observation(self.job, self.groups.cycles, self.moved)


def _loads(groups: Groups) -> list[_Load]:
    return [_Load(place, job, groups) for place, job in enumerate(groups.jobs)]


def _commands(groups: Groups) -> Partition:
    return Partition(groups.cycles, groups.cycles.raw("connection"))


def _by_connection(groups: Groups) -> dict[int, list[_Load]]:
    """The jobs of each connection."""
    found: dict[int, list[_Load]] = {}
    for load in groups.once(_loads):
        for run in load.job.runs:
            found.setdefault(run.connection, []).append(load)
    return found


def _carry_unequal(facts: Facts) -> Found:
    """The worst of the jobs of each session, where their bytes are known."""
    lost, is_certain = np.zeros(len(facts)), np.zeros(len(facts), dtype=bool)
    for load in facts.given(Groups).once(_loads):
        own = np.array([run.session for run in load.job.runs if run.session is not None], dtype=np.intp)
        worse = own[load.lost > lost[own]]
        lost[worse], is_certain[worse] = load.lost, load.job.is_certain
    is_found = (lost >= UNEVEN) & (capture.decoded_shares(facts) >= capture.COVERAGE)
    # without names, that they belong together is inferred
    return Found(is_found, share=lost, ranks={"note": ~is_certain})


def _lost_by(job: Job) -> tuple[float, float]:
    """Share of the time that is lost, by bytes and by busy time.

    Bytes stand for time where all are busy. Beside a fast target nothing is in flight for most of the time.
    """
    by_bytes, by_time = [run.bytes for run in job.runs], [run.busy_ns for run in job.runs]
    lost_time = max(by_time) - sum(by_time) / len(by_time)
    return _lost_of(by_bytes), lost_time / max(*by_time, job.whole_ns, 1)


def _lost_of(amounts: Sequence[int]) -> float:
    """1 - mean / most."""
    return 1 - sum(amounts) / len(amounts) / max(amounts) if any(amounts) else 0.0


def _observation(job: Job, cycles: Table, moved: Mapping[int, int] | None) -> Observation:
    lost_bytes, lost_time = _lost_by(job)
    if not moved and lost_time >= lost_bytes:
        most, least = (pick(job.runs, key=lambda run: run.busy_ns) for pick in (max, min))
        text = f"was busy for {wording.time(most.busy_ns)}, {least.label} for {wording.time(least.busy_ns)}"
    else:
        carried = moved or {run.connection: run.bytes for run in job.runs}
        runs = [run for run in job.runs if run.connection in carried]
        most, least = (pick(runs, key=lambda run: carried[run.connection]) for pick in (max, min))
        amounts = [f"{carried[run.connection] / 1e6:.1f} MB" for run in (most, least)]
        text = f"carried {amounts[0]}, {least.label} {amounts[1]} at the same time"
    frames = frames_in(cycles, [most.last_row, least.last_row], *FRAMES)
    slowest = job.slowest
    if slowest.cause:
        frames = [slowest.cause.frame, *frames]
    return Observation(
        f"{most.label} {text}. {_together(job)}",
        frames,
    )


def _together(job: Job) -> str:
    """The evenness of the job, and why its slowest stream is slow."""
    slowest = job.slowest
    said = (
        f"{len(job.streams):,} connections worked in parallel (Jain's fairness index {job.jain:.2f}): the last one "
        f"finished {wording.time(job.first_to_last_ns)} after the first and ran alone for "
        f"{wording.percent(job.alone_share)} of the time"
    )
    if not slowest.cause:
        return said
    rate = wording.percent(slowest.evidence.retransmission_rate)
    return f"{said}. {capital(slowest.run.label)} is slowest because {slowest.cause.words} ({rate} retransmissions)"


UNEVEN_CONNECTIONS: Final = Problem(
    name="uneven_connections",
    meaning="Connections or sessions that are used in parallel carry unequal load: all wait for the one with the most "
    "load or the worst path.",
    condition=f"The others lose at least {wording.percent(UNEVEN)} of the time because the busiest carried more than "
    "the mean (1 - mean / most). The connections ran at the same time and moved data. They belong to one session, "
    "connect the same two nodes, or (`info`) started together with the same kind of commands. Where some joined late, "
    "those are compared that were in use together, in the longest such time.",
    evidence="The loss that made the slowest slow, where there is one; command and status of the last command of the "
    "most and of the least used connection. The share is the most that even load could save.",
    example="Connection 0 carried 2.6 MB, connection 1 0.3 MB at the same time. 2 connections worked in parallel "
    "(Jain's fairness index 0.63): the last one finished 967 µs after the first and ran alone for 4 % of the time.",
    scope="session",
    advice=(
        Advice(
            'Balance by load instead of round-robin: `path_selector "service-time 0"` in multipath.conf.',
            touches=EVERY_VOLUME,
        ),
        Advice(
            "Check whether one path is longer or loses packets: `iscsitrace summary` shows RTT and retransmissions of "
            "each connection, `iscsitrace plot streams` shows the connections together."
        ),
        Advice(
            "After a loss in slow start the congestion window stays small for long: net.ipv4.tcp_congestion_control = "
            "bbr recovers faster. Let each connection take the next block instead of a fixed part, so that the last "
            "one does not delay the job.",
            touches=WHOLE_HOST,
        ),
        Advice(
            "Keep more commands in flight than there are connections: node.session.queue_depth.", touches=NEXT_LOGIN
        ),
    ),
    severity="warning",
    where=_carry_unequal,
    tell=_uneven,
)


COMMANDS_MIN: Final = 100
"""Fewer commands are no workload that an initiator spreads: it may just have begun."""

_SHOWN: Final = 8
"""Paths that a sentence names: each session to the volume has it."""

# as initiators spell them, where that is not the word of the table
_STATES: Final = {
    OPTIMIZED: "active/optimized",
    NON_OPTIMIZED: "active/non-optimized",
    "lba_dependent": "LBA dependent",
}

_OUT_OF_USE: Final = ("unavailable", "offline")

_ROUND_ROBIN: Final = Advice(
    'Use all paths of a group: `path_grouping_policy group_by_prio` and `path_selector "service-time 0"` in '
    "multipath.conf; ESXi: `esxcli storage nmp device set --psp VMW_PSP_RR`, then `esxcli storage nmp psp roundrobin "
    "deviceconfig set --type iops --iops 1`; Windows MPIO: `mpclaim -l -m 2` (Round Robin).",
    touches=EVERY_VOLUME,
)
_ALUA: Final = Advice(
    "Let the initiator use the optimized paths first: `detect_prio yes` (or `prio alua`), `path_grouping_policy "
    "group_by_prio` and `failback immediate` in multipath.conf; ESXi: SATP VMW_SATP_ALUA (`esxcli storage nmp device "
    "list`); Windows MPIO: Round Robin with Subset (`mpclaim -l -m 3`).",
    touches=EVERY_VOLUME,
)
_SLOWEST: Final = Advice(
    "Check whether one path is longer or loses packets: `iscsitrace summary` shows RTT and retransmissions of each "
    "connection."
)
_FAILOVER: Final = Advice(
    "No action if one path is meant to be spare (active/passive, `path_grouping_policy failover`)."
)
_TARGET: Final = Advice(
    "Find out why the target took the path out of use: LIO: `alua_access_state` of the group in targetcli "
    "/backstores/TYPE/NAME/alua. Until then the volume has less redundancy than it seems."
)


def _imbalance(case: Case) -> Observation | None:
    """The worst of the volumes that the session has."""
    seen = case.groups.once(_by_session)
    found = [each for number in case.sessions for each in seen.get(number, ())]
    return max(found, key=lambda each: (each.severity != "info", each.share or 0.0), default=None)


def _by_session(groups: Groups) -> dict[int, list[Observation]]:
    """What is seen of the volumes to which each session is a path."""
    found: dict[int, list[Observation]] = {}
    for use in groups.paths:
        seen = list(_of_volume(use, groups))
        for number in dict.fromkeys(number for path in use.paths for number in path.sessions) if seen else ():
            found.setdefault(number, []).extend(seen)
    return found


def _of_volume(use: PathsUse, groups: Groups) -> Iterator[Observation]:
    command_count = sum(path.command_count for path in use.paths)
    if command_count < COMMANDS_MIN:
        return
    sessions = tuple(sorted(number for path in use.paths for number in path.sessions))
    frames = frames_in(groups.cycles, use.misplaced_rows or use.first_rows, *FRAMES)
    luns = use.volume.luns
    states = "; ".join(_figures(path) for path in use.paths[:_SHOWN])
    if len(use.paths) > _SHOWN:
        states += f"; and {wording.count(len(use.paths) - _SHOWN, 'more path')}"
    share = use.misplaced_bytes / use.bytes if use.bytes else 0.0
    if share >= WORTH_A_CHANGE:
        text = (
            f"{wording.percent(share)} of the bytes of {use.volume.label} ({use.misplaced_bytes / 1e6:.1f} MB) went "
            f"over a non-optimized path while an optimized path was in service: {states}"
        )
        yield Observation(text, frames, share=share, sessions=sessions, luns=luns, advice=(_ALUA,))
        return
    gone = [path for path in use.paths if path.state in _OUT_OF_USE]
    if gone:
        text = f"{_listed(gone)} cannot reach {use.volume.label}: {states}"
        yield Observation(
            text, frames, share=0.0, severity="info", sessions=sessions, luns=luns, advice=(_TARGET, _FAILOVER)
        )
        return
    alike = _alike(use)
    if len(alike) < 2:
        return
    lost = _lost_of([path.bytes for path in alike])
    if lost < UNEVEN:
        return
    unused = [path for path in alike if not path.command_count]
    if unused:
        text = f"{_listed(unused)} carried no I/O of {use.volume.label}, like a spare path: {states}"
        yield Observation(
            text, frames, share=lost, severity="info", sessions=sessions, luns=luns, advice=(_FAILOVER, _ROUND_ROBIN)
        )
        return
    counts = [path.command_count for path in alike]
    is_in_turns = use.turn_count <= len(alike) or max(counts) - min(counts) <= use.longest_turn
    if is_in_turns:
        return
    text = f"the initiator uses the paths to {use.volume.label} unequally: {states}"
    yield Observation(text, frames, share=lost, sessions=sessions, luns=luns, advice=(_ROUND_ROBIN, _SLOWEST))


def _alike(use: PathsUse) -> list[PathUse]:
    """The paths that an initiator should use alike: the optimized ones, if the target reports states."""
    optimized = [path for path in use.paths if path.state == OPTIMIZED]
    if optimized:
        return optimized
    active = [path for path in use.paths if path.state in (None, NON_OPTIMIZED)]
    return active if len({path.state for path in active}) == 1 else []


def _listed(paths: list[PathUse]) -> str:
    names = [f"session {path.sessions[-1]}" for path in paths[:_SHOWN]]
    return " and ".join([*names, f"{len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else names)


def _figures(path: PathUse) -> str:
    state = "" if path.state is None else f" ({_STATES.get(path.state, path.state)})"
    return f"session {path.sessions[-1]}{state} {path.bytes / 1e6:.1f} MB"


PATH_IMBALANCE: Final = Problem(
    name="path_imbalance",
    meaning="Several paths lead to one logical unit (iscsitrace docs method 13), and the initiator does not use them "
    "as the target offers them: I/O goes over a non-optimized path, or one path carries most of it.",
    condition=f"At least {COMMANDS_MIN} commands while the paths were in service together, and one of these: at least "
    f"{wording.percent(WORTH_A_CHANGE)} of the bytes went over a path in ALUA state active/non-optimized while an "
    "optimized one had been in service for 20 s, or from the start; paths in the same state lose at least "
    f"{wording.percent(UNEVEN)} because one carried more than the mean (1 - mean / most), where the initiator changes "
    "between them and the difference is more than its longest turn on one path; a path that carries nothing, or is "
    "unavailable, is a note. Failover after a loss, and standby or non-optimized paths without I/O, do not count.",
    evidence="The first commands on the non-optimized path, else the first command of each path. The share is that of "
    "the bytes, or the most that even load could save.",
    example="100 % of the bytes of LUN 0 of iqn.2024-01.example.target:0 (13.1 MB) went over a non-optimized path "
    "while an optimized path was in service: session 0 (active/optimized) 0.0 MB; session 1 "
    "(active/non-optimized) 13.1 MB.",
    scope="session",
    accounts_for=(UNEVEN_CONNECTIONS,),
    advice=(_ALUA, _ROUND_ROBIN, _SLOWEST, _FAILOVER, _TARGET),
    where=lambda facts: facts.only(facts.given(Groups).once(_by_session)),
    tell=_imbalance,
)


_WRITES_SHOWN = 3


def _farthest(case: Case) -> Observation | None:
    """Reported for every session of a mirror, since all wait; for several mirrors, the worst."""
    subject = case.subject
    session = subject.connections[0]["session"] if subject.connections else None
    own = [each for each in case.groups.mirrors if session in each.mirror.sessions and each.known_count]
    if not own:
        return None
    account = max(own, key=lambda each: each.farthest.alone_ns)
    # the near side is idle for so long that this can be no busy time
    lost_ns = min(account.farthest.alone_ns, subject.jobs_ns)
    if not is_worth(subject, lost_ns):
        return None
    return Observation(
        _mirror_in_words(account),
        _frames_of_mirror(account, case.groups.cycles),
        lost_ns,
        rank=None if account.mirror.is_sure else "note",
    )


def _mirror_in_words(account: Account) -> str:
    far = account.farthest
    cause = f", mostly because {WORDS[far.cause]}" if far.cause else ""
    doubt = "" if account.mirror.is_sure else f" It is a mirror, {account.doubt}."
    writes = wording.count(account.known_count, "write")
    return (
        f"{capital(account.name)} whose writes wait for {far.label}: for {wording.time(far.alone_ns)} it alone had "
        f"writes in flight{cause}. It acknowledged {far.last_count:,} of {writes} last, typically "
        f"{wording.time(account.skews['p50'] or 0)} after the first side, at most "
        f"{wording.time(account.skews['max'] or 0)}.{doubt}"
    )


def _frames_of_mirror(account: Account, cycles: Table) -> list[int | None]:
    """Command and status, on every side, of the writes that waited longest."""
    rows = account.worst[:_WRITES_SHOWN]
    found: list[int | None] = []
    for row in rows.tolist():
        for place in range(len(account.mirror.sides)):
            ends = [account.found.side_rows[row, place], account.found.side_last_rows[row, place]]
            frames = frames_in(cycles, np.array(ends), "command_frame", "status_frame")
            found += [frames[0], frames[3]]
    return found


MIRROR_WAITS_FOR_FARTHEST: Final = Problem(
    name="mirror_waits_for_farthest",
    meaning="Sessions carry the same writes to several targets, as a software RAID1 does. A write completes when the "
    "slowest side acknowledges, so the farthest target limits all sides.",
    condition=f"Only the slowest side of a mirror has writes in flight for {WORTH}. Mirrors are recognised by their "
    "extents (iscsitrace docs method 9).",
    evidence="Command and status, on every side, of the three writes that waited longest. The share is the time in "
    "which only the slowest side had writes in flight.",
    example="Sessions 0 and 1 are a mirror whose writes wait for session 1: for 2.5 s it alone had writes in flight, "
    "mostly because its path is longer. It acknowledged 64 of 64 writes last, typically 38.1 ms after the first side, "
    "at most 38.4 ms.",
    # one side 20 ms away, or as near as the other
    shown_by="write --set mirror=yes --target-delay 1ms --target-delay 20ms --rate 320Mbit --bytes 4M --block-size 64K",
    near_miss="write --set mirror=yes --target-delay 1ms --target-delay 1ms --rate 320Mbit --bytes 4M --block-size 64K",
    rank="limit",
    limited_by="the farthest target of its mirror",
    # the near side is idle while it waits for the far one
    explains=Explains("initiator_think", 1),
    accounts_for=(INITIATOR_THINK_TIME,),
    scope="session",
    advice=(
        Advice(
            "Let the far member lag behind: mark it write-mostly (`mdadm /dev/mdN --add --write-mostly DEVICE`, or "
            "`echo writemostly > /sys/block/mdN/md/dev-DEVICE/state`) and create a bitmap with write-behind: "
            "`mdadm --grow /dev/mdN --bitmap=none`, then `mdadm --grow /dev/mdN --bitmap=internal "
            "--write-behind=256`. A write then completes when the other members acknowledge.",
            touches=f"{DATA_AT_RISK}: writes in flight to the far member are lost if the host or its disk fails",
        ),
        Advice("Move the far member closer, or use a faster line to it."),
        Advice(
            "Tune the slowest side alone, by the findings of its session: mostly R2Ts (node.session.iscsi.InitialR2T "
            "= No, node.session.iscsi.FirstBurstLength) and TCP windows.",
            touches=NEXT_LOGIN,
        ),
    ),
    where=lambda facts: facts.only(number for each in facts.given(Groups).mirrors for number in each.mirror.sessions),
    tell=_farthest,
)
