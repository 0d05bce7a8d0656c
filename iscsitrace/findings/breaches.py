"""Violations of RFC 7143 as causes, and as a finding: which rule, which side, how often, and what followed.

Every finding that says which of them ended a connection, a command or a login asks here. The violations themselves are
the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings import statuses
from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import Advice, Observation, Problem
from iscsitrace.findings.history import History, listed
from iscsitrace.findings.session_loss import SessionLoss, losses
from iscsitrace.measure.violations import DATA_LOSS, NEVER_SENT, Violated, by_rule, violated
from iscsitrace.relate.outages import Outage, frozen
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import serial_distances
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


def sentence_of(each: Violated, start_ns: int, what: str = "") -> str:
    """``The target asked for 28672 bytes in an R2T; MaxBurstLength is 16384 (rule D5, 3 times, first at 0.04 s)``: a
    sentence with its full stop. ``start_ns`` is the start of the capture, and ``what`` says more of what was done.
    """
    first = "" if each.time_ns is None else wording.seconds(each.time_ns - start_ns)
    return f"{what or each.what} (rule {each.rule.name}, {each.rule.often(each.count, first)})."


def told(history: History, each: Violated) -> str:
    """The same; and whose tag an answer with an unknown one has with its bytes in reverse (rule T2), if that is of a
    command without a status.
    """
    if each.rule.name != "T2" or each.seen is None:
        return sentence_of(each, history.start_ns)
    tag, cycles = int.from_bytes(each.seen.to_bytes(4, "little")), history.cycles
    which = (cycles.raw("connection") == each.connection) & (cycles.raw("initiator_task_tag") == tag)
    which &= ~known(cycles, "status_ns") & (tag != each.seen)
    if not which.any():
        return sentence_of(each, history.start_ns)
    commands = statuses.in_words(cycles.select(which))
    whose = f"in reverse its bytes are {tag:#010x}, the tag of {commands} without a status"
    return sentence_of(each, history.start_ns, f"{each.what}; {whose}")


def loses_data(found: Sequence[Violated]) -> bool:
    """Whether data that were reported as written are lost."""
    return any(each.rule.name == DATA_LOSS for each in found)


_NAMED: Final = 3
"""Further rules that are named for a side."""


def _violations(history: History) -> Observation | None:
    every = [each for each in of_story(history) if each.rule.severity != "info"]
    if not every:
        return None
    worst = every[0]
    loss = _loss(history, every)
    answer = _answer_before(history, worst)
    stop = _frozen(history, worst)
    is_failure = worst.rule.severity == "error" or loss is not None or stop is not None
    window = WINDOW if stop else ()
    own = (each for each in every[1:] if (each.side, each.connection) == (worst.side, worst.connection))
    numbers = [each for each in own if each.rule.name in window]
    limit = _limit_frame(history, worst)
    sentences = [_sentence(history, worst, answer, limit), *_followed(history, worst, loss, stop)]
    sentences += [_of_numbers(history, each) for each in numbers]
    worst_of: dict[str, Violated] = {}
    for each in every:
        worst_of.setdefault(each.side, each)
    sentences += [text for side in worst_of if (text := _others(side, every, (worst, *numbers)))]
    start_ns = worst.time_ns or history.start_ns
    before = answer["response_frame"] if answer else limit
    return Observation(
        " ".join(sentences),
        (
            *([before] if before is not None else []),
            *worst.frames,
            *(each.frames[0] for each in numbers if each.frames),
        ),
        float(stop.length_ns) if stop else None,
        severity="error" if is_failure else "warning",
        rank="failure" if is_failure else "slowness",
        spans=((stop.from_ns, stop.to_ns),) if stop else ((start_ns, max(worst.until_ns or 0, start_ns)),),
        sessions=tuple(sorted({each.session for each in every if each.session is not None})),
        is_final=is_failure,
        loses_data=loses_data(every),
        advice=tuple(map(advice, worst_of.values())),
        points_to=f"the {worst.side}",
    )


def _loss(history: History, every: Sequence[Violated]) -> SessionLoss | None:
    """The loss of a session that followed upon a violation."""
    grave = {(each.rule.name, each.side, each.connection) for each in every}
    for loss in losses(history):
        own = [row["connection"] for row in history.connections_of[loss.session]]
        cause = of_loss(history, own, loss.lost_ns)
        if cause and (cause.rule.name, cause.side, cause.connection) in grave:
            return loss
    return None


def _frozen(history: History, worst: Violated) -> Outage | None:
    """When the session sent no command upon numbers like these for an outage or more."""
    rows = history.story.connections
    last_ns = next((row["time_last_ns"] for row in rows if row["connection"] == worst.connection), None)
    return None if last_ns is None else frozen(worst, history.cycles, last_ns)


def _answer_before(history: History, worst: Violated) -> dict[str, Any] | None:
    """The answer to a task management function behind which the target went on with tasks (rule M3)."""
    if worst.rule.name != "M3" or worst.time_ns is None:
        return None
    table = history.rows("task_management")
    is_before = known(table, "response_ns") & (table.raw("response_ns") <= worst.time_ns)
    is_before &= table.raw("connection") == worst.connection
    rows = table.select(is_before)
    return max(rows.rows(), key=lambda row: row["response_ns"], default=None)


def _sentence(history: History, worst: Violated, answer: dict[str, Any] | None, limit: int | None) -> str:
    commands = history.cycles.select(np.isin(history.cycles.raw("cycle"), worst.cycles))
    if limit:
        return sentence_of(worst, history.start_ns, f"{worst.what} of frame {limit}")
    if answer is None or worst.time_ns is None or not len(commands):
        return told(history, worst)
    what = (
        f"The target went on with {statuses.in_words(commands)} {wording.time(worst.time_ns - answer['response_ns'])} "
        f"after it had answered the {answer['function_text']} that ended {'it' if len(commands) == 1 else 'them'}"
    )
    return sentence_of(worst, history.start_ns, what)


def _followed(history: History, worst: Violated, loss: SessionLoss | None, stop: Outage | None) -> Iterator[str]:
    """What came of it, as sentences."""
    if loses_data([worst]):
        yield "The application was told that this data is written."
    if worst.rule.name in NEVER_SENT:
        yield "No byte of the stream is missing there."
    if stop:
        again = "" if stop.is_over else ", until the capture ended"
        nops = history.rows("nops")
        is_own = (nops.raw("connection") == worst.connection) & nops.raw("is_from_initiator")
        is_own &= known(nops, "response_ns") & (nops.raw("request_ns") >= stop.from_ns)
        pings = int((is_own & (nops.raw("response_ns") <= stop.to_ns)).sum())
        alive = f"; {wording.count(pings, 'ping')} had an answer" if pings else ""
        yield (
            f"The initiator sent no command for {wording.time(stop.length_ns)} from "
            f"{history.since_start(stop.from_ns)} on{again}{_in_vain(history, worst)}{alive}."
        )
    if loss:
        yield loss.how(history)
        if loss.in_flight:
            yield f"{wording.count(loss.in_flight, 'command')} had no status."


def _limit_frame(history: History, worst: Violated) -> int | None:
    """The last status with the MaxCmdSN that an initiator goes by (rule S8), where later ones have to be ignored."""
    if worst.rule.name != "S8" or worst.time_ns is None:
        return None
    cycles = history.cycles
    has = (cycles.raw("connection") == worst.connection) & known(cycles, "max_cmd_sn") & known(cycles, "status_frame")
    has &= (cycles.raw("max_cmd_sn") == worst.expected) & (cycles.raw("status_ns") < worst.time_ns)
    return int(cycles.raw("status_frame")[has].max(initial=0)) or None


def _in_vain(history: History, worst: Violated) -> str:
    """Why a MaxCmdSN that allows the next command, and came later, did not open the window: half of all numbers are not
    above the one that closed it. Empty where none came.
    """
    if worst.time_ns is None or worst.seen is None or worst.expected is None:
        return ""
    cycles = history.cycles
    is_later = (cycles.raw("connection") == worst.connection) & known(cycles, "max_cmd_sn") & known(cycles, "status_ns")
    is_later &= cycles.raw("status_ns") > worst.time_ns
    allowed = cycles.raw("max_cmd_sn")[is_later]
    in_vain = (serial_distances(allowed, worst.seen) >= 0) & (serial_distances(allowed, worst.expected) < 0)
    if not in_vain.any():
        return ""
    return (
        f": MaxCmdSN {allowed[in_vain][0]}, which a later PDU said, is not above {worst.expected} in the order of "
        "serial numbers (RFC 1982)"
    )


def _of_numbers(history: History, each: Violated) -> str:
    """What the numbers of the command window were; of R2Ts, where each of them has such numbers, and nothing else."""
    cycles = history.cycles.raw("cycle")[history.cycles.raw("connection") == each.connection]
    rounds = history.source("rounds")
    frames = rounds.raw("r2t_frame")[np.isin(rounds.raw("cycle"), cycles) & known(rounds, "r2t_frame")]
    text = sentence_of(each, history.start_ns)
    if each.count == len(frames) > 1 and np.isin(each.frames, frames).all():
        return text.replace(f"The {each.side} said", f"Each R2T of the {each.side} has such numbers: the first said", 1)
    return text


def _others(side: str, every: Sequence[Violated], told: Sequence[Violated]) -> str:
    """``The target also broke S10 (3 times).``; empty where there is no more."""
    worst, known_already = told[0], {(each.side, each.rule.name) for each in told}
    groups = by_rule(each for each in every if each.side == side)
    rest = [group for group in groups if (group[0].side, group[0].rule.name) not in known_already]
    if not rest:
        return ""
    named = []
    for group in rest[:_NAMED]:
        rule = group[0].rule
        named.append(f"rule {rule.name} ({rule.often(sum(each.count for each in group))})")
    if len(rest) > _NAMED:
        named.append(f"{len(rest) - _NAMED} more")
    return f"The {side} {'also broke' if side == worst.side else 'broke'} {listed(named)}."


PROTOCOL_VIOLATION: Final = Problem(
    name="protocol_violation",
    scope="story",
    meaning="A side breaks RFC 7143. iscsitrace docs conformance has every rule, iscsitrace conformance "
    "shows every violation.",
    condition="A violation of severity `warning` or `error`. It is a failure where the rule's severity is `error`, or "
    "where a connection was closed upon it. A write that ended GOOD without its data (rule D18) comes before all else.",
    evidence="The first frames that show the worst rule, and the last. The cost is the time in which the session could "
    "send no command, where the target's numbers closed its window (rule S8).",
    example="The initiator sent 4096 bytes of immediate data although ImmediateData=No was agreed (rule D1, 3 times, "
    "first at 0.00 s).",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Correct the side that breaks the rule: update its software or firmware, or report this to its maintainers "
            "with these frames."
        ),
    ),
    where=lambda columns: columns.count("violations") > 0,
    tell=_violations,
)
