"""Refusals: commands that the target did not run, for a reservation, a full queue, or a block that had changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings import statuses
from iscsitrace.findings.finding import LEAST_SHARE, NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.statuses import RETRY_NS, Statuses, StatusGroup, outcome
from iscsitrace.findings.surroundings import Surroundings
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import status_classes as classes
from iscsitrace.wording.sentences import capital
from iscsitrace.wording.status_classes import StatusClass

_NAMED: Final = 3
"""Combinations of LUN and operation that a text names."""


def _refused(groups: Sequence[StatusGroup]) -> str:
    """``40 of 60 WRITE commands to LUN 0, from 5.62 s to 9.25 s, and 3 of 4 ...``."""
    first = groups[0]
    others = [each.words() for each in groups[1:_NAMED]]
    more = sum(len(each.rows) for each in groups[_NAMED:])
    others += [f"{more} others"] if more else []
    return f"{first.words()}, {first.when()}" + (f", and {'; '.join(others)}" if others else "")


def _luns(groups: Sequence[StatusGroup]) -> tuple[int, ...]:
    return tuple(sorted({each.lun for each in groups if each.lun is not None}))


def _frames(groups: Sequence[StatusGroup]) -> list[int | None]:
    return [frame for each in groups[:_NAMED] for frame in each.frames()]


def _advice(*of: StatusClass) -> tuple[Advice, ...]:
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
    advice=_advice(classes.RESERVATION_CONFLICT),
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
        advice=_advice(*dict.fromkeys(each.status.status_class for each in groups)),
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
    advice=_advice(classes.BUSY, classes.TASK_SET_FULL),
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
    advice=_advice(classes.MISCOMPARE),
    where=statuses.has_status,
    tell=_miscompares,
)
