"""Paths to one logical unit: how evenly they are used, and in which ALUA states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import EVERY_VOLUME, Advice, Observation, Problem
from iscsitrace.findings.parallel import UNEVEN, UNEVEN_CONNECTIONS
from iscsitrace.findings.thresholds import WORTH_A_CHANGE
from iscsitrace.measure.session import FRAMES, frames_in
from iscsitrace.relate.paths import NON_OPTIMIZED, OPTIMIZED, PathsUse, PathUse
from iscsitrace.wording import amounts as wording

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
        seen = list(_observations(use, groups))
        for number in dict.fromkeys(number for path in use.paths for number in path.sessions) if seen else ():
            found.setdefault(number, []).extend(seen)
    return found


def _observations(use: PathsUse, groups: Groups) -> Iterator[Observation]:
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
    carried = [path.bytes for path in alike]
    lost = 1 - sum(carried) / len(carried) / max(carried) if max(carried) else 0.0
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
