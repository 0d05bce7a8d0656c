"""Events of progress: outages, and TCP's recoveries from losses that took long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from iscsitrace.events.capture import Batch, EventSource, texts
from iscsitrace.measure.budget import PARTS, is_of_session
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.violations import violated
from iscsitrace.relate import outages, stories
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, null_value
from iscsitrace.wording import amounts

LONG_RECOVERY_NS: Final = 200_000_000
"""A recovery as long as the least retransmission timeout of Linux and Windows."""
_TIMEOUT: Final = CATEGORIES["retransmission_cause"].index("timeout")


def events(capture: EventSource) -> Iterator[Batch]:
    """All of them."""
    yield _outages(capture)
    yield _recoveries(capture)


def of_stories(capture: EventSource) -> list[outages.Outage]:
    """The outages of every story."""
    budget = capture.table("budget")
    rows = budget.select((budget.raw("part") == PARTS.index("outage")) & is_of_session(budget))
    if not len(rows):
        return []
    numbers = capture.table("sessions").raw("session")
    story_of = np.full(int(numbers.max(initial=0)) + 2, -1, dtype=np.int64)
    found = stories.find(capture.table)
    for place, story in enumerate(found):
        story_of[list(story.numbers)] = place
    stretches: dict[int, list[tuple[int, int, int]]] = {}
    columns = ("time_first_ns", "time_last_ns", "session")
    for each in zip(*(rows.raw(name).tolist() for name in columns), strict=True):
        stretches.setdefault(int(story_of[each[2]]), []).append(each)
    instants, sessions, story_of_instant = _progress(capture, story_of)
    result: list[outages.Outage] = []
    for place, own in stretches.items():
        begin, end = np.searchsorted(story_of_instant, (place, place + 1))
        result += outages.until_progress(own, instants[begin:end], sessions[begin:end])
    return result


def _progress(capture: EventSource, story_of: Array) -> tuple[Array, Array, Array]:
    """The instants of progress in order of story and time, and the session and story of each."""
    cycles = capture.table("cycles")
    cycles = cycles.select(cycles.each(is_data_command) & known(cycles, "session"))
    instants, rows = outages.progress(cycles)
    sessions = cycles.raw("session")[rows]
    own = story_of[np.minimum(sessions, len(story_of) - 1)]
    order = np.lexsort((instants, own))
    return instants[order], sessions[order], own[order]


def _frozen(capture: EventSource) -> list[outages.Outage]:
    """The stops of sessions whose target's numbers closed the command window."""
    rows = list(capture.connections.rows(("connection", "session", "time_last_ns")))
    last_ns = {row["connection"]: row["time_last_ns"] for row in rows if row["session"] is not None}
    broken = violated(capture.table("violations"), {row["connection"]: row["session"] for row in rows})
    cycles = capture.table("cycles")
    found = (outages.frozen(each, cycles, last_ns[each.connection]) for each in broken if each.connection in last_ns)
    return [each for each in found if each]


def _outages(capture: EventSource) -> Batch:
    told = [(each, "no I/O completes") for each in of_stories(capture)]
    told += [(each, "the command window is closed (rule S8), no command is sent") for each in _frozen(capture)]
    found = [each for each, _ in told]
    null_ns = null_value("int64")
    return Batch(
        "outage",
        np.array([each.from_ns for each in found], dtype=np.int64),
        np.array([_outage(*each) for each in told], dtype=object),
        end_ns=np.array([each.to_ns if each.is_over else null_ns for each in found], dtype=np.int64),
        session=np.array([each.sessions[0] for each in found], dtype=np.uint32),
    )


def _outage(outage: outages.Outage, what: str) -> str:
    if not outage.is_over:
        return f"outage: {what} for {amounts.time(outage.length_ns)} and up to the end of the capture"
    others = [str(number) for number in outage.sessions[1:]]
    noun = "session" if len(others) == 1 else "sessions"
    return f"outage: {what}" + (f", also in {noun} {' and '.join(others)}" if others else "")


def _recoveries(capture: EventSource) -> Batch:
    rows = capture.table("recoveries")
    has_end = known(rows, "time_last_ns")
    ends = np.where(has_end, rows.raw("time_last_ns"), rows.raw("time_first_ns"))
    is_timeout = rows.raw("cause") == _TIMEOUT
    rows = rows.select(is_timeout | (ends - rows.raw("time_first_ns") >= LONG_RECOVERY_NS))
    has_lost_acks = known(rows, "ack_loss")
    is_spurious = (rows.raw("spurious_packets") >= rows.raw("retransmitted_packets")) & ~has_lost_acks

    def word(cause: int, to_target: bool, packets: int, was_nothing: bool, for_acks: bool, has_end: bool) -> str:
        long, what = ("long recovery", "spurious ") if was_nothing else ("long recovery from a loss", "")
        how = "retransmission timeout" if cause == _TIMEOUT else long
        sent = amounts.count(packets, f"{what}retransmission")
        text = f"{how}: {sent} to the {'target' if to_target else 'initiator'}"
        text += "" if has_end else ", never acknowledged"
        return f"{text}, because ACKs were lost" if for_acks else text

    columns = [rows.raw(name) for name in ("cause", "to_target", "retransmitted_packets")]
    connections = rows.raw("connection")
    return Batch(
        "recovery",
        rows.raw("time_first_ns"),
        texts(word, *columns, is_spurious, has_lost_acks, known(rows, "time_last_ns")),
        frame=rows.raw("frame_first"),
        end_ns=rows.raw("time_last_ns"),
        session=capture.session_of(connections),
        connection=connections,
        severity=np.where(is_spurious, "info", "warning"),
    )
