"""Commands that the target did not run, or that failed: CHECK CONDITION, a reservation, a full queue, a block that had
changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings import statuses
from iscsitrace.findings.finding import LEAST_COST_NS, LEAST_SHARE, NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.statuses import RETRY_NS, Array, Outcome, Statuses, StatusGroup, outcome
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import status_classes as classes
from iscsitrace.wording.command_status import CommandStatus
from iscsitrace.wording.scsi_names import CHECK_CONDITION
from iscsitrace.wording.sentences import capital
from iscsitrace.wording.status_classes import StatusClass

_OWN_FINDINGS: Final = (classes.RESERVATION_CONFLICT, classes.BUSY, classes.TASK_SET_FULL, classes.MISCOMPARE)
"""Classes that other findings report."""

_NAMED: Final = 3
"""Combinations of status, LUN and operation that the text names."""


def _is_error(each: CommandStatus) -> bool:
    return each.severity != classes.INFO and each.status_class not in _OWN_FINDINGS


def _is_probe(each: CommandStatus) -> bool:
    return each.severity == classes.INFO and each.status_class in (classes.UNSUPPORTED, classes.UNIT_ATTENTION)


def _errors(history: History) -> Observation | None:
    found = statuses.of(history)
    rows, others = found.where(_is_error), found.groups(found.where(_is_error, is_work=False))
    if not len(rows):
        return _of_others(history, others)
    groups = found.groups(rows)
    outcome = statuses.outcome(found, rows)
    is_lost = (_is_severe(found, rows) | _is_settled(found, rows)) & ~outcome.is_recovered
    first = groups[0]
    blocks = first.blocks()
    # of one kind there is one number to name
    had = "" if len(groups) == 1 else f" had {wording.count(len(rows), 'command error')}"
    text = f"{history.label}{had}: {first.words()} ended in {first.status.text}, {first.when()}"
    text += f", at {blocks}" if blocks else ""
    facts = [f"{capital(text)}."]
    facts += [f"Other errors: {_listed(groups[1:])}."] if groups[1:] else []
    if is_lost.any() or known(found.cycles, "lba")[rows].any():
        facts.append(_retried(outcome, is_final=bool(is_lost.any())))
    else:
        facts.append("The capture does not show the address, nor whether the command was retried.")
    facts += [f"Commands that move no data failed, too: {_listed(others)}."] if others else []
    return Observation(
        " ".join((*facts, *_noise(found))),
        _frames(groups),
        float(outcome.cost_ns),
        severity=_severity(found, rows, is_lost, outcome),
        spans=outcome.spans,
        luns=_luns(groups),
        is_final=bool(is_lost.any()),
        advice=_advice(groups),
        points_to=_side(history, first),
    )


def _side(history: History, group: StatusGroup) -> str | None:
    """Whose side it points to. Blocks out of range are the target's matter where it had reported them."""
    status_class = group.status.status_class
    if status_class is not classes.OUT_OF_RANGE:
        return status_class.points_to
    sizes = history.source.once(_block_counts)
    counts = [count for number in history.sessions for count in sizes.get((number, group.lun), ())]
    cycles = group.cycles
    ends = cycles.raw("lba").astype(np.int64) + cycles.raw("block_count").astype(np.int64)
    is_known = known(cycles, "lba") & known(cycles, "block_count")
    if not is_known.all() or not counts or None in counts:
        return status_class.points_to
    if ends.max() <= min(counts):
        return "the target, which reported a capacity that includes these blocks"
    return "the initiator, which addressed blocks beyond the end" if ends.min() > max(counts) else None


def _block_counts(trace: Surroundings) -> dict[tuple[int, int | None], list[Any]]:
    """The sizes that were reported of each logical unit, by its session and LUN; None where one is unknown."""
    found: dict[tuple[int, int | None], list[Any]] = {}
    for row in trace("logical_units").rows(("session", "lun", "block_count")):
        found.setdefault((row["session"], row["lun"]), []).append(row["block_count"])
    return found


def _of_others(history: History, groups: Sequence[StatusGroup]) -> Observation | None:
    """Errors of commands that move no data: worth a note."""
    if not groups:
        return None
    return Observation(
        f"{history.label} had errors of commands that move no data: {_listed(groups)}",
        _frames(groups),
        severity="info",
        luns=_luns(groups),
        advice=_advice(groups),
    )


def _listed(groups: Sequence[StatusGroup]) -> str:
    """``3 of 9 WRITE commands to LUN 0 in MEDIUM ERROR, ...; 5 more``."""
    words = [f"{each.words()} ended in {each.status.text}" for each in groups[:_NAMED]]
    more = sum(len(each.rows) for each in groups[_NAMED:])
    return "; ".join([*words, f"{more} more"] if more else words)


def _luns(groups: Sequence[StatusGroup]) -> tuple[int, ...]:
    return tuple(sorted({each.lun for each in groups if each.lun is not None}))


def _frames(groups: Sequence[StatusGroup]) -> list[int | None]:
    return [frame for each in groups[:_NAMED] for frame in each.frames()]


def _is_severe(found: Statuses, rows: Array) -> Array:
    is_severe = np.array([each.severity == classes.ERROR for each in found.found], dtype=bool)
    return np.asarray(is_severe[found.places[rows]])


def _is_settled(found: Statuses, rows: Array) -> Array:
    """Which commands ended without sense data in the capture, and were not retried within a second.

    A short snaplen cuts the sense data. It could be a UNIT ATTENTION, but then the initiator retries at once. Where it
    cuts off addresses, too, no retry can be seen; but few commands in a row have a UNIT ATTENTION.
    """
    is_cut = ~known(found.cycles, "sense_key")[rows] & (found.cycles.raw("status")[rows] == CHECK_CONDITION)
    is_cut &= found.history.source.end_ns() - found.cycles.raw("status_ns")[rows] >= LEAST_COST_NS
    has_address = known(found.cycles, "lba")[rows]
    return np.asarray(is_cut & (has_address | (int((~has_address).sum()) > statuses.RETRIES)))


def _severity(found: Statuses, rows: Array, is_lost: Array, outcome: Outcome) -> str:
    """An I/O error; a nuisance that retries hid; or a note."""
    if is_lost.any():
        return "error"
    return "warning" if _is_severe(found, rows).any() or outcome.cost_ns >= LEAST_COST_NS else "info"


def _retried(outcome: Outcome, *, is_final: bool) -> str:
    """What became of the commands."""
    count, recovered = len(outcome.is_recovered), int(outcome.is_recovered.sum())
    over = f" over another path ({outcome.other_path})" if outcome.other_path else ""
    if recovered == count:
        return f"{'The retry' if count == 1 else 'Each retry'} succeeded{over}."
    if not is_final:
        return f"{f'{recovered:,}' if recovered else 'None'} of {count:,} succeeded on retry in this capture{over}."
    if not recovered:
        return f"No retry succeeded: {'this is an I/O error' if count == 1 else 'these are I/O errors'}."
    return f"{recovered:,} of {count:,} succeeded on retry{over}. The others are I/O errors."


def _noise(found: Statuses) -> list[str]:
    """CHECK CONDITIONs that every scan meets."""
    count = sum(len(found.where(_is_probe, is_work=is_work)) for is_work in (True, False))
    if not count:
        return []
    if count == 1:
        return ["1 more CHECK CONDITION is normal: it refused an optional command or reported an event."]
    return [f"{count:,} more CHECK CONDITIONs are normal: they refused optional commands or reported events."]


def _advice(groups: Sequence[StatusGroup]) -> tuple[Advice, ...]:
    """That of the classes, the most frequent first."""
    named = dict.fromkeys(each.status.status_class for each in groups[:_NAMED])
    return tuple(Advice(text) for each in named for text in each.advice)


COMMAND_ERRORS: Final = Problem(
    name="command_errors",
    scope="story",
    meaning="The target ended reads, writes or other data commands with an error: CHECK CONDITION with sense data, or "
    "another status.",
    condition="At least one such command; a note where only commands that move no data failed. UNIT ATTENTION (which "
    "reports an event) and the refusal of an optional command are normal. RESERVATION CONFLICT, BUSY, TASK SET FULL "
    "and MISCOMPARE have findings of their own. It is an I/O error unless a retry of the same blocks succeeded within "
    f"{wording.time(statuses.RETRY_NS)} and after at most {statuses.RETRIES} failures.",
    evidence="Command and status of the first ones of each kind. The cost is the time in which no command of the same "
    "operation on the same LUN succeeded, or until a retry did.",
    example="Session 0: 951 of 1621 READ commands to LUN 0 ended in MEDIUM ERROR, unrecovered read error (3/11/00), "
    "from 1.02 s to 3.01 s, at LBA 3584 to 34015. No retry succeeded: these are I/O errors.",
    # a read, or what a target need not support
    shown_by=f"read {LAN} --fault storage-errors,for=2s",
    near_miss=f"read {LAN} --fault check-condition,operation=other,nth=3,sense=5/20/00 --seconds 3",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Read the target's log at that time: the status came from there, and the path worked. The sense data shows "
            "whether the cause is the medium, the space, the access state or the command."
        ),
        Advice(
            "Then the initiator's: Linux logs the sense data and the sector of each failed request (dmesg), ESXi in "
            "vmkernel.log, Windows as event 7, 11, 51 or 153 of the source disk."
        ),
    ),
    where=statuses.has_status,
    tell=_errors,
)


def _refused(groups: Sequence[StatusGroup]) -> str:
    """``40 of 60 WRITE commands to LUN 0, from 5.62 s to 9.25 s, and 3 of 4 ...``."""
    first = groups[0]
    others = [each.words() for each in groups[1:_NAMED]]
    more = sum(len(each.rows) for each in groups[_NAMED:])
    others += [f"{more} others"] if more else []
    return f"{first.words()}, {first.when()}" + (f", and {'; '.join(others)}" if others else "")


def _advice_of_classes(*of: StatusClass) -> tuple[Advice, ...]:
    # a node record is read at the login
    return tuple(Advice(text, touches=NEXT_LOGIN if "node." in text else "") for each in of for text in each.advice)


# --- reservation_conflict

_RESERVING: Final = (1, 4, 5)
"""Service actions of PERSISTENT RESERVE OUT that make an initiator the holder: RESERVE, PREEMPT, PREEMPT AND ABORT."""


def _conflicts(history: History) -> Observation | None:
    found = statuses.of(history)
    rows = found.where(lambda each: each.status_class is classes.RESERVATION_CONFLICT)
    others = found.where(lambda each: each.status_class is classes.RESERVATION_CONFLICT, is_work=False)
    groups = found.groups(rows if len(rows) else others)
    if not groups:
        return None
    result = outcome(found, rows if len(rows) else others)
    first = groups[0]
    text = f"{history.label}: {_refused(groups)}, ended in RESERVATION CONFLICT"
    holder, side = _holder(history, first)
    facts = [f"{capital(text)}.", *_served(found, groups), holder]
    return Observation(
        " ".join(facts),
        _frames(groups),
        float(result.cost_ns),
        # what cannot be read or written is an I/O error: initiators do not retry it
        severity="error" if len(rows) else "info",
        spans=result.spans,
        luns=_luns(groups),
        is_final=bool(len(rows)),
        points_to=side,
    )


def _served(found: Statuses, groups: Sequence[StatusGroup]) -> list[str]:
    """What the target did run on the same LUN in the meantime."""
    first = groups[0]
    times = first.cycles.raw("status_ns")
    cycles = found.cycles
    is_within = (cycles.raw("command_first_ns") >= times.min()) & (cycles.raw("status_ns") <= times.max())
    is_good = is_within & (cycles.raw("status") == 0) & known(cycles, "status_ns") & found.is_work
    is_good &= cycles.raw("lun") == first.cycles.raw("lun")[0]
    if not is_good.any():
        return []
    return [f"Meanwhile the target served {statuses.in_words(cycles.select(is_good))} on this LUN."]


def _holder(history: History, refused: StatusGroup) -> tuple[str, str | None]:
    """Who reserved the LUN, as far as the capture shows it: as a sentence, and as a side."""
    lun, last_ns = refused.lun, int(refused.cycles.raw("status_ns").max())
    takers = history.source.once(_takers)
    targets = {row["target_name"] for row in history.story.sessions}
    last = [_last_of_others(takers.get((target, lun), ()), last_ns, history.sessions) for target in targets]
    if not any(last):
        return "The capture does not show who holds the reservation.", classes.RESERVATION_CONFLICT.points_to
    taker = max(filter(None, last), key=_status_ns)
    name = taker["initiator_name"]
    return (
        f"Session {taker['session']}{f' ({name})' if name else ''} took the reservation at "
        f"{history.since_start(taker['status_ns'])} (frame {taker['command_frame']}).",
        f"the initiator {name}" if name else f"the initiator of session {taker['session']}",
    )


def _takers(trace: Surroundings) -> dict[tuple[str | None, int | None], list[dict[str, Any]]]:
    """The commands that may have taken a reservation, by target and LUN, in order of their statuses."""
    cycles = trace("cycles")
    is_taken = is_operation(cycles, "persistent_reserve_out", "reserve") & (cycles.raw("status") == 0)
    rows = list(cycles.select(is_taken & known(cycles, "session") & known(cycles, "status_ns")).rows())
    names = {row["session"]: row for row in trace("sessions").rows(("session", "initiator_name", "target_name"))}
    found: dict[tuple[str | None, int | None], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=_status_ns):
        if _takes(row) and row["session"] in names:
            named = row | names[row["session"]]
            found.setdefault((named["target_name"], row["lun"]), []).append(named)
    return found


def _last_of_others(rows: Sequence[dict[str, Any]], until_ns: int, sessions: Collection[int]) -> dict[str, Any] | None:
    """The last of these rows until then that is of none of these sessions."""
    places = range(bisect_right(rows, until_ns, key=_status_ns) - 1, -1, -1)
    return next((rows[place] for place in places if rows[place]["session"] not in sessions), None)


def _status_ns(row: dict[str, Any]) -> int:
    return int(row["status_ns"])


def _takes(row: dict[str, Any]) -> bool:
    """Whether the command made its initiator the holder; where the service action is not known, it may have."""
    action = row.get("service_action")
    return row["operation"] == "reserve" or action is None or action in _RESERVING


RESERVATION_CONFLICT: Final = Problem(
    name="reservation_conflict",
    scope="story",
    meaning="The target refused commands with RESERVATION CONFLICT: another initiator holds a reservation of the "
    "logical unit.",
    condition="At least one read, write or other data command with status 18h; a note where only other commands were "
    "refused: that is how clusters decide who may use a disk.",
    evidence="Command and status of the first ones. The cost is the time in which no command of the same operation on "
    "the same LUN succeeded.",
    example="Session 1: 1 of 62 READ commands to LUN 0, at 25.06 s, ended in RESERVATION CONFLICT. Session 2 "
    "(iqn.2025-01.org.iscsitrace:other) took the reservation at 25.01 s (frame 1694).",
    severity="error",
    rank="failure",
    advice=_advice_of_classes(classes.RESERVATION_CONFLICT),
    where=statuses.has_status,
    tell=_conflicts,
)


# --- target_busy

_OFTEN: Final = LEAST_SHARE
"""Share of the commands from which on refusals are no longer how an initiator finds the right queue depth."""


def _busy(history: History) -> Observation | None:
    found = statuses.of(history)
    rows = found.where(lambda each: each.status_class in (classes.BUSY, classes.TASK_SET_FULL))
    groups = found.groups(rows)
    if not groups:
        return None
    first, result = groups[0], outcome(found, rows)
    depths = found.cycles.raw("queue_depth")[rows]
    names = " and ".join(dict.fromkeys(each.status.text for each in groups))
    text = f"{history.label}: {_refused(groups)}, ended in {names}"
    depth = f"{depths.min()}" if depths.min() == depths.max() else f"{depths.min()} to {depths.max()}"
    recovered = int(result.is_recovered.sum())
    retried = "All" if recovered == len(rows) else f"{recovered} of {len(rows)}"
    facts = [
        f"{capital(text)}.",
        f"The queue depth was {depth}.",
        f"{retried} succeeded on retry." if recovered else "No retry succeeded in the capture.",
    ]
    is_often = any(len(each.rows) >= _OFTEN * len(each.same) for each in groups[:_NAMED])
    return Observation(
        " ".join(facts),
        _frames(groups),
        float(result.cost_ns),
        severity="warning" if is_often else "info",
        spans=result.spans,
        luns=_luns(groups),
        is_final=is_often,
        advice=_advice_of_classes(*dict.fromkeys(each.status.status_class for each in groups)),
        points_to=first.status.status_class.points_to,
    )


TARGET_BUSY: Final = Problem(
    name="target_busy",
    scope="story",
    meaning="The target refused commands with BUSY or TASK SET FULL: it cannot take more of them now.",
    condition="At least one read, write or other data command with such a status. It matters from "
    f"{wording.percent(_OFTEN)} of the commands of an operation on a LUN on: single ones are how an initiator finds "
    "the queue depth that a target takes.",
    evidence="Command and status of the first ones. The cost is the time in which no command of the same operation on "
    "the same LUN succeeded, or until a retry did.",
    example="Session 0: 646 of 1316 READ commands to LUN 0, from 1.02 s to 3.01 s, ended in BUSY. The queue depth "
    "was 1. No retry succeeded in the capture.",
    shown_by=f"read {LAN} --fault busy,for=2s",
    near_miss=f"read {LAN} --fault busy,nth=20,operation=read --seconds 5",
    rank="failure",
    advice=_advice_of_classes(classes.BUSY, classes.TASK_SET_FULL),
    where=statuses.has_status,
    tell=_busy,
)


# --- ats_miscompare


def _miscompares(history: History) -> Observation | None:
    found = statuses.of(history)
    rows = found.where(lambda each: each.status_class is classes.MISCOMPARE)
    groups = found.groups(rows)
    if not groups:
        return None
    result = outcome(found, rows)
    unanswered = _unanswered_before(found, rows)
    lost = int((~result.is_recovered).sum())
    first = groups[0]
    text = f"{history.label}: {_refused(groups)}, at {first.blocks()}, ended in MISCOMPARE"
    facts = [f"{capital(text)}."]
    if unanswered:
        facts.append(
            f"Before {'it' if len(rows) == 1 else f'{unanswered} of them'}, a command to the same block had no status "
            "in the capture. The target may have run it, so the retry found the new data."
        )
    if lost:
        retry = "No retry" if lost == len(rows) else f"For {lost} of them no retry"
        facts.append(f"{retry} succeeded within {wording.time(RETRY_NS)}.")
    else:
        facts.append("Each succeeded on retry: hosts contend for a lock.")
    return Observation(
        " ".join(facts),
        _frames(groups),
        None if lost else float(result.cost_ns),
        severity="warning" if lost or unanswered else "info",
        spans=result.spans,
        luns=_luns(groups),
        is_final=bool(lost or unanswered),
        points_to="the retry of a command whose status was lost" if unanswered else first.status.status_class.points_to,
    )


def _unanswered_before(found: Statuses, rows: Any) -> int:
    """How many of these commands came after one of the same operation and block that has no status."""
    cycles = found.cycles
    is_open = ~known(cycles, "status_ns") & np.isin(cycles.raw("lba"), cycles.raw("lba")[rows])
    names = ("operation", "lun", "lba")
    asked = {tuple(row[name] for name in names): row["command_first_ns"] for row in cycles.select(is_open).rows()}
    own = cycles.select(rows).rows()
    return sum(asked.get(tuple(row[name] for name in names), row["status_ns"]) < row["command_first_ns"] for row in own)


ATS_MISCOMPARE: Final = Problem(
    name="ats_miscompare",
    scope="story",
    meaning="COMPARE AND WRITE (ATS) or VERIFY ended in MISCOMPARE: the block had other data than the initiator "
    "expected.",
    condition=f"At least one. A note where each succeeded on retry within {wording.time(RETRY_NS)}: then hosts contend "
    "for a lock.",
    evidence="Command and status of the first ones. The cost is unknown, unless each succeeded on retry.",
    example="Session 0: 1 of 5 READ commands to LUN 0, at 0.05 s, at LBA 128 to 159, ended in MISCOMPARE. No retry "
    "succeeded within 5.0 s.",
    shown_by=f"read {LAN} --fault check-condition,operation=read,nth=5,sense=e/1d/00 --seconds 3",
    near_miss=f"read {LAN} --fault check-condition,operation=read,nth=5,sense=6/29/00 --seconds 3",
    rank="failure",
    advice=_advice_of_classes(classes.MISCOMPARE),
    where=statuses.has_status,
    tell=_miscompares,
)
