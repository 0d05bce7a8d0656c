"""Sessions without I/O: nothing but discovery, or no command that reads or writes. Notes, with what ended them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings.finding import Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings, listed
from iscsitrace.findings.login_attempts import attempts, end_of
from iscsitrace.findings.statuses import spoken
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.data_commands import LONG_NS, is_data_command, is_long_work
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.session import Session
from iscsitrace.relate import portals
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

_SCANNING: Final = {"inquiry", "report_luns"}
"""Operations with which an initiator looks for logical units."""
_NAMED: Final = 2
"""Operations named in a sentence."""
_TARGETS: Final = 3
"""Targets named in a sentence."""

# --- discovery_only


def _is_discovery(sessions: Table) -> Array:
    return np.asarray(sessions["session_type"] == "discovery")


def _discovery(history: History) -> Observation | None:
    if not history.story.is_discovery or any(each.has_failed for each in attempts(history)):
        return None
    addresses = {row["initiator_address"] for row in history.story.connections}
    if addresses & history.source.once(_with_sessions):
        return None
    texts = list(history.rows("texts").rows(("request_text", "response_text", "response_frame")))
    said = [row for row in texts if "SendTargets=" in row["request_text"] or "TargetName=" in row["response_text"]]
    text = f"{history.label}: discovery only, {_listing(said)}. {_end(history)}"
    return Observation(capital(text), [row["response_frame"] for row in said])


def _with_sessions(trace: Surroundings) -> set[str]:
    """The addresses of initiators that have sessions of another type."""
    sessions = trace("sessions").rows(("session", "session_type"))
    others = {row["session"] for row in sessions if row["session_type"] != "discovery"}
    connections = trace("connections").rows(("session", "initiator_address"))
    return {row["initiator_address"] for row in connections if row["session"] in others}


def _listing(texts: Sequence[dict[str, Any]]) -> str:
    """``SendTargets listed 1 target with 2 portals (iqn.t)``."""
    if not texts:
        return "the capture has no SendTargets"
    answers = [row["response_text"] for row in texts if row["response_frame"] is not None]
    if not answers:
        return "SendTargets had no answer"
    targets = [target for text in answers for target in portals.targets(text)]
    names = dict.fromkeys(name for name, _ in targets if name)
    if not names:
        return "SendTargets listed no target (none allows this initiator, or none is enabled)"
    places = {portals.portal(address) for _, addresses in targets for address in addresses} - {None}
    shown = ", ".join(list(names)[:_TARGETS]) + (", ..." if len(names) > _TARGETS else "")
    with_portals = f" with {wording.count(len(places), 'portal')}" if places else ""
    return f"SendTargets listed {wording.count(len(names), 'target')}{with_portals} ({shown})"


DISCOVERY_ONLY: Final = Problem(
    name="discovery_only",
    scope="story",
    meaning="An initiator asked for targets and portals, and logged in to none in this capture.",
    condition="A discovery session, and no other session of the same address.",
    evidence="The Text Responses of SendTargets. No cost.",
    example="Session 0: discovery only, the capture has no SendTargets. The initiator logged out at 0.00 s.",
    severity="info",
    rank="note",
    advice=(
        Advice("To see I/O, capture while the initiator is logged in: `iscsiadm -m node --login`."),
        Advice(
            "If a target is missing from the list: check the ACL of this InitiatorName, and that the target and its "
            "portals are enabled."
        ),
    ),
    where=lambda facts: facts.count("sessions", _is_discovery) > 0,
    tell=_discovery,
)

# --- no_io


def _may_be_idle(facts: Facts) -> Array:
    """Which stories have a session without commands that read, write or erase data."""
    cycles = facts.table("cycles")
    with_data = np.unique(cycles.raw("session")[cycles.each(is_data_command)])
    return facts.count("sessions", lambda table: ~np.isin(table.raw("session"), with_data)) > 0


def _without_io(history: History) -> Observation | None:
    tried = attempts(history)
    failed = {each.session["session"] for each in tried if each.has_failed or each.outcome == "redirected"}
    members = [member for number, member in history.members.items() if number not in failed]
    if history.story.is_discovery or not members or any(member.is_data.any() for member in members):
        return None
    if any(may_lack_pdus(row.__getitem__) for row in history.story.connections):
        return None
    if any(member.fact(works_long) for member in members):
        return None
    unclear = next((each.reason for each in tried if each.outcome == "unknown" and each.reason), "")
    if unclear and not any(len(member.cycles) for member in members):
        text = (
            f"{capital(history.label)}: no SCSI commands. The capture does not show whether it was logged in: "
            f"{unclear}."
        )
    elif len(members) == 1:
        text = nothing_done(members[0])
    else:
        numbers = listed(member.number for member in members)
        count = sum(len(member.cycles) for member in members)
        text = f"Sessions {numbers}: no reads or writes, only {wording.count(count, 'command')} that move no data."
    frames = [int(member.cycles.raw("command_frame")[0]) for member in members if len(member.cycles)]
    text = f"{text} {_end(history)}".rstrip()
    return Observation(text, frames)


def nothing_done(subject: Session) -> str:
    """What a session did that read and wrote nothing."""
    name = capital(subject.label)
    if not len(subject.cycles):
        return f"{name}: no SCSI commands."
    counts, flushes = other_operations(subject), int(subject.is_flush.sum())
    of = "of a device scan" if is_scan(counts) else "that move no data"
    commands = f"{wording.count(counts.total(), 'command')} {of} ({operations_in_words(counts)})" if counts else ""
    found = " and ".join(filter(None, (commands, f"{flushes} SYNCHRONIZE CACHE" if flushes else "")))
    return f"{name}: no reads or writes, only {found}."


def works_long(facts: Facts) -> Array:
    """Where commands that move no data are the work, or a part of it: a robot, a motor or a tape moves."""
    return facts.count("cycles", is_long_work) > 0


def long_work(subject: Session) -> str:
    """``14 MOVE MEDIUM commands took 12.0 s to 30.0 s (268.0 s in all)``; empty where nothing took long."""
    cycles = subject.cycles.select(subject.cycles.each(is_long_work))
    operations = cycles["operation"].astype(str)
    took = cycles.raw("status_ns") - cycles.raw("command_first_ns")
    sums = {name: int(took[operations == name].sum()) for name in dict.fromkeys(operations.tolist())}
    said = []
    for name in sorted(sums, key=lambda each: -sums[each])[:_NAMED]:
        own = took[operations == name]
        least, most = wording.time(int(own.min())), wording.time(int(own.max()))
        range_ = least if least == most else f"{least} to {most}"
        whole = f" ({wording.time(sums[name])} in all)" if len(own) > 1 else ""
        said.append(f"{wording.count(len(own), f'{spoken(name)} command')} took {range_}{whole}")
    more = int(sum(sums.values()) - sum(sorted(sums.values())[-_NAMED:]))
    return ", ".join([*said, *([f"others {wording.time(more)}"] if more else [])])


def is_scan(counts: Counter[str]) -> bool:
    """Whether these operations are those of a device scan."""
    return bool(counts.keys() & _SCANNING)


def other_operations(subject: Session) -> Counter[str]:
    """The non-I/O commands by operation."""
    return Counter(str(name) for name in subject.cycles["operation"][~subject.is_data & ~subject.is_flush].tolist())


def operations_in_words(counts: Counter[str]) -> str:
    """``INQUIRY, MODE SENSE, ...``: the most frequent operations."""
    names = [spoken(name) for name, _ in counts.most_common()]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _end(history: History) -> str:
    """What ended the last session of the story, as a sentence."""
    row = history.story.sessions[-1]
    own = history.connections_of[row["session"]]
    if row["end"] == "open":
        return "It was open at the end of the capture."
    if row["end"] == "logout":
        logouts = history.rows("logouts")
        times = logouts.raw("request_ns")[known(logouts, "request_ns")]
        when = f" at {history.since_start(int(max(times)))}" if len(times) else ""
        return f"The initiator logged out{when}."
    ends = [end for each in own if (end := end_of(each)) is not None]
    if not ends:
        return ""
    end = max(ends, key=lambda each: each.at_ns)
    # the logout may be among the PDUs that the capture lacks
    how = "" if any(may_lack_pdus(each.__getitem__) for each in own) else ", without a logout"
    return f"The {end.by} {end.verb} the connection at {history.since_start(end.at_ns)}{how}."


NO_IO: Final = Problem(
    name="no_io",
    scope="story",
    meaning="A session was logged in, and nothing was read or written in it.",
    condition="A session, with those that it replaced, without a command that reads, writes or erases data, without "
    f"another one that took {wording.time(LONG_NS)} or more (MOVE MEDIUM, REWIND: the work of a tape library), and "
    "without PDUs missing from the capture.",
    evidence="The first command of each session. No cost.",
    example="Session 0: no reads or writes, only 1 command of a device scan (INQUIRY). The initiator logged out at "
    "0.00 s.",
    severity="info",
    rank="note",
    advice=(
        Advice(
            "Capture while a program reads or writes; the capture shows an idle session, or the scan after a login."
        ),
        Advice(
            "If I/O was expected: check that the initiator found the logical unit (`lsscsi`, `iscsiadm -m session "
            "-P 3`), and that programs or multipath use this path."
        ),
    ),
    where=_may_be_idle,
    tell=_without_io,
)
