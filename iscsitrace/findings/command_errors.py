"""Command errors: reads, writes and other data commands that ended in CHECK CONDITION or another error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.findings import statuses
from iscsitrace.findings.finding import LEAST_COST_NS, Advice, Observation, Problem
from iscsitrace.findings.history import History
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.statuses import Array, Outcome, Statuses, StatusGroup
from iscsitrace.findings.surroundings import Surroundings
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording import status_classes as classes
from iscsitrace.wording.command_status import CommandStatus
from iscsitrace.wording.scsi_names import CHECK_CONDITION
from iscsitrace.wording.sentences import capital

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
        [frame for each in groups[:_NAMED] for frame in each.frames()],
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
        [frame for each in groups[:_NAMED] for frame in each.frames()],
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
