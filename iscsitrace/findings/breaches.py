"""Violations of RFC 7143 as causes: which of them ended a connection, a command or a login.

Every finding that says so asks here. The violations themselves are the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import Advice
from iscsitrace.findings.history import History
from iscsitrace.measure.violations import DATA_LOSS, Violated, violated
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording

STOPS: Final = ("S1", "S4", "S8")
"""Rules whose violation stops all later commands of a session."""
_UNNAMED: Final = ("S2", "S3", "T2", "M4")
"""Rules whose violation leaves a command without an answer that it may not name."""
WINDOW: Final = ("S8", "S7", "S6")
"""Rules whose violation closes the command window."""
_AWAITED: Final = ("M1", "M2", "M5", "M6")
"""Rules whose violation makes the peer wait for what does not come, and then close the connection."""
_AWAITED_NS: Final = 60_000_000_000
"""It waits no longer: time-outs of NOPs and logouts are 5 to 30 s."""
_LOGIN: Final = ("L1", "L2", "L3", "L4", "L6", "L7", "M7")
"""Rules whose violation ends a login."""

_SOFTWARE: Final = {"initiator": "driver or software", "target": "firmware or software"}


def advice(each: Violated) -> Advice:
    """What to do about the side that did this."""
    return Advice(
        f"Correct the {each.side}: it breaks RFC 7143. Update its {_SOFTWARE[each.side]}, or report this to its "
        f"maintainers with these frames. `iscsitrace explain {each.rule.name}` describes the rule, `iscsitrace "
        "conformance` lists all rules that it breaks."
    )


def of_story(history: History) -> Sequence[Violated]:
    """What the sides of a story did against RFC 7143, the worst first."""
    return history.once(_of_story)


def _of_story(history: History) -> Sequence[Violated]:
    sessions = {row["connection"]: row["session"] for row in history.story.connections}
    return violated(history.rows("violations"), sessions)


def of_case(case: Case, *names: str) -> list[Violated]:
    """What the sides of a session or connection did against these rules, the worst first."""
    sessions = {row["connection"]: row["session"] for row in case.subject.connections}
    return [each for each in violated(case.subject.tables["violations"], sessions) if each.rule.name in names]


def of_loss(history: History, connections: Iterable[int], lost_ns: int) -> Violated | None:
    """The violation upon which a connection was closed: no command that was sent after it had a status."""
    numbers = {*connections}
    found = [each for each in _grave(history) if each.connection in numbers and _is_before(each, lost_ns)]
    if not found:
        return None
    last_ns = _last_sent_ns(history, numbers, lost_ns)
    return next((each for each in found if _is_cause(each, last_ns, lost_ns)), None)


def _is_cause(each: Violated, last_ns: int, lost_ns: int) -> bool:
    """Whether no command had a status that was sent after it; its peer waits for an answer while others come."""
    if each.time_ns is None:
        return False
    return each.time_ns > last_ns or (each.rule.name in _AWAITED and lost_ns - each.time_ns <= _AWAITED_NS)


def _last_sent_ns(history: History, connections: Iterable[int], until_ns: int) -> int:
    """When the last command was sent that had a status until then; the least int64 of none."""
    cycles = history.cycles
    ended = cycles.select(np.isin(cycles.raw("connection"), [*connections]) & known(cycles, "status_ns"))
    ended = ended.select(ended.raw("status_ns") <= until_ns)
    return int(ended.raw("command_first_ns").max(initial=np.iinfo(np.int64).min))


def of_commands(
    history: History, cycles: Sequence[int], connections: Iterable[int], from_ns: int, until_ns: int
) -> Violated | None:
    """The violation that left these commands without an answer: one of them has it, or it stopped others too."""
    numbers = {*connections}
    own = {*cycles}
    for each in _grave(history):
        if own.intersection(each.cycles):
            return each
        if each.connection not in numbers or each.time_ns is None or each.time_ns > until_ns:
            continue
        if each.rule.name in _UNNAMED and each.time_ns >= from_ns:
            return each
        if each.rule.name in STOPS and each.time_ns > _last_sent_ns(history, numbers, until_ns):
            return each
    return None


def of_login(history: History, connections: Iterable[int], until_ns: int) -> Violated | None:
    """The violation that ended a login."""
    numbers = {*connections}
    found = (each for each in _grave(history) if each.connection in numbers and each.rule.name in _LOGIN)
    return next((each for each in found if _is_before(each, until_ns)), None)


def _grave(history: History) -> list[Violated]:
    """Those that a peer may fail upon."""
    return [each for each in of_story(history) if each.rule.severity != "info"]


def _is_before(each: Violated, time_ns: int) -> bool:
    return each.time_ns is not None and each.time_ns <= time_ns


def sentence_of(each: Violated, start_ns: int) -> str:
    """``The target asked for 28672 bytes in an R2T; MaxBurstLength is 16384 (rule D5, 3 times, first at 0.04 s)``: a
    sentence with its full stop. ``start_ns`` is the start of the capture.
    """
    first = "" if each.time_ns is None else wording.seconds(each.time_ns - start_ns)
    return f"{each.what} (rule {each.rule.name}, {wording.times_since(each.count, first)})."


def loses_data(found: Sequence[Violated]) -> bool:
    """Whether data that were reported as written are lost."""
    return any(each.rule.name == DATA_LOSS for each in found)
