"""Packets of a run with what the link did to each: its time in the queue, its time on the line, and its fate.

The link logs packets in the order in which they passed the tap beside their sender, so its log and that capture are one
list. The times on the line follow from the log: a line is first in, first out. No result of the analysis is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.budget.packets import Packet, lost, packets, repairs, resent, timer_waits
from bench.budget.spans import Spans, union
from bench.unseen.runs import OWN_PORT, Made, is_own
from tests.support.capture_file import read_records

NEAR: Final = {"to_target": "initiator", "to_initiator": "target"}
"""The tap beside the sender of each direction."""
_TARGET_PORT: Final = 3260
_SOURCE_AT: Final = 26
_DATA_BYTES: Final = 110
"""A frame without data is at most this long: headers, timestamps and SACK blocks."""
FRAME_HEADERS_BYTES: Final = 66
"""Of Ethernet, IPv4 and TCP with timestamps."""
_LARGE_BYTES: Final = 1_000
_NOT_ON_LINE: Final = ("queue_full", "interrupted")

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Way:
    """The packets of one direction, a row for each, in the order in which they came to the link."""

    in_ns: Numbers
    """When it passed the tap of its sender."""
    start_ns: Numbers
    """When the line began to send it."""
    end_ns: Numbers
    """When the line had sent it; equal to the start without a rate, and for one that never came to the line."""
    bytes: Numbers
    """Of its frame."""
    fate: NDArray[Any]
    is_own: NDArray[np.bool_]
    """Whether it belongs to the session that is judged."""

    @property
    def is_carried(self) -> NDArray[np.bool_]:
        """Whether it came to the line."""
        return ~np.isin(self.fate, _NOT_ON_LINE)

    @property
    def has_data(self) -> NDArray[np.bool_]:
        """Whether it has data of a stream."""
        return self.bytes > _DATA_BYTES

    @cached_property
    def busy(self) -> Spans:
        """When the line carried data, of any session."""
        return _spans(self.start_ns, self.end_ns, self.is_carried & self.has_data)

    @cached_property
    def own_queue(self) -> Spans:
        """When data of the judged session were on the line, or waited behind other data of that session alone."""
        foreign = _spans(self.start_ns, self.end_ns, self.is_carried & ~self.is_own)
        waits = _spans(self.in_ns, self.end_ns, self.is_carried & self.is_own & self.has_data)
        own = _spans(self.start_ns, self.end_ns, self.is_carried & self.is_own & self.has_data)
        return union(own, waits) if not len(foreign) else own

    @cached_property
    def foreign_queue(self) -> Spans:
        """When a packet of the judged session waited for the line, in a run with foreign sessions."""
        if self.is_own.all():
            return union()
        return _spans(self.in_ns, self.start_ns, self.is_carried & self.is_own)

    @cached_property
    def queue_ns(self) -> Numbers:
        """How long each large packet of the judged session waited in the queue."""
        chosen = self.is_carried & self.is_own & (self.bytes >= _LARGE_BYTES)
        return (self.start_ns - self.in_ns)[chosen]


def _spans(starts: Numbers, ends: Numbers, chosen: NDArray[np.bool_]) -> Spans:
    return union(np.column_stack([starts, ends])[chosen])


def ways(made: Made) -> dict[str, Way]:
    """Both directions."""
    return {name: _way(made, name) for name in NEAR}


def _way(made: Made, name: str) -> Way:
    records, _ = read_records(made.whole[NEAR[name]])
    own_address = _source(records[0].data)
    # the first packet of all is the initiator's SYN
    sent = [each for each in records if (_source(each.data) == own_address) is (name == "to_target")]
    log = made.truth["paths"][0][name]["packets"]
    if [each.time_ns for each in sent] != [each["time_in_ns"] for each in log]:
        raise RuntimeError(f"the log of the link and the capture beside it differ: {len(log)} and {len(sent)} packets")
    return of_log(made.truth, name, np.array([is_own(each) for each in sent], bool))


def of_log(truth: Mapping[str, Any], name: str, is_own: NDArray[np.bool_] | None = None) -> Way:
    """A direction by the log of its link; without a word about them, all packets are of the judged session."""
    log = truth["paths"][0][name]["packets"]
    in_ns = np.array([each["time_in_ns"] for each in log], np.int64)
    size = np.array([each["bytes"] for each in log], np.int64)
    fate = np.array([each["fate"] for each in log])
    rate_bps = truth["settings"]["world"]["paths"][0][name].get("rate_bps")
    start_ns, end_ns = on_line(in_ns, size, np.isin(fate, _NOT_ON_LINE), rate_bps)
    return Way(in_ns, start_ns, end_ns, size, fate, np.ones(len(log), bool) if is_own is None else is_own)


def on_line(
    in_ns: Numbers, size: Numbers, is_dropped: NDArray[np.bool_], rate_bps: int | None
) -> tuple[Numbers, Numbers]:
    """When the line begins to send each packet, and when it has sent it: first in, first out."""
    starts, ends, free_ns = in_ns.copy(), in_ns.copy(), 0
    if rate_bps is None:
        return starts, ends
    for place, (came_ns, count, is_gone) in enumerate(
        zip(in_ns.tolist(), size.tolist(), is_dropped.tolist(), strict=True)
    ):
        if is_gone:
            continue
        starts[place] = max(came_ns, free_ns)
        free_ns = int(starts[place]) + count * 8_000_000_000 // rate_bps
        ends[place] = free_ns
    return starts, ends


def _source(frame: bytes) -> bytes:
    return frame[_SOURCE_AT : _SOURCE_AT + 4]


@dataclass(frozen=True)
class Losses:
    """What losses of the judged session cost, as times at its senders."""

    data: Spans
    """From when a lost packet with data would have arrived to the arrival of its copy."""
    timers: Spans
    """Waits of a sender for its timer, also where only ACKs were lost."""
    interrupted: Spans
    """Those of both that a black-out caused."""
    data_count: int
    first_ns: int | None
    """The first loss, or the first retransmission of what was not lost: the sender took it for one."""
    has_any: bool
    """Whether the link lost a packet of the session."""

    @cached_property
    def all(self) -> Spans:
        """All of them."""
        return union(self.data, self.timers)


def losses(made: Made, found: Mapping[str, Way]) -> Losses:
    """Losses and retransmission timers of both senders of a simulated run."""
    seen = {tap: packets(file, _TARGET_PORT, OWN_PORT) for tap, file in made.whole.items()}
    has_lost = {
        name: bool((way.is_own & ~np.isin(way.fate, ("delivered", "under_way"))).any()) for name, way in found.items()
    }
    logged = {name: made.truth["paths"][0][name]["packets"] for name in NEAR}
    came = {name: {each["time_in_ns"]: each["time_out_ns"] for each in log} for name, log in logged.items()}
    return losses_of(seen, made.truth, has_lost, came)


def losses_of(
    seen: Mapping[str, list[Packet]],
    truth: Mapping[str, Any],
    has_lost: Mapping[str, bool],
    came: Mapping[str, Mapping[int, int | None]],
) -> Losses:
    """Losses and timers by the packets of the judged session at both taps, on one clock.

    ``came`` has when a packet that left at a time arrived, where that is logged.
    """
    data: list[tuple[int, int]] = []
    timers: list[tuple[int, int]] = []
    interrupted: list[tuple[int, int]] = []
    first: list[int] = []
    for name, near in NEAR.items():
        is_to_target, delay_ns = name == "to_target", truth["settings"]["world"]["paths"][0][name].get("delay_ns", 0)

        def at_receiver(waits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
            return [(sent + delay_ns, came[name].get(again) or again + delay_ns) for sent, again in waits]  # noqa: B023

        waits = timer_waits(seen[near], to_target=is_to_target)
        timers += waits
        interrupted += _interrupted(truth, waits)
        first += [each.time_ns for each in resent(seen[near]) if each.to_target is is_to_target]
        if has_lost[name]:
            far = seen[_other(near)]
            first += [each.time_ns for each in lost(seen[near], far, to_target=is_to_target)]
            mended = [(each.first_ns, each.last_ns) for each in repairs(seen[near], far, to_target=is_to_target)]
            data += at_receiver(mended)
            interrupted += at_receiver(_interrupted(truth, mended))
    has_any = any(has_lost.values())
    return Losses(union(data), union(timers), union(interrupted), len(data), min(first, default=None), has_any)


def segment_offsets(capture: Path, *, to_target: bool) -> Numbers:
    """Where the segments of the judged session begin in the stream of a direction, ascending."""
    sent = [each for each in packets(capture, _TARGET_PORT, OWN_PORT) if each.to_target is to_target]
    # the SYN has the number before the first byte
    return np.unique(np.array([each.sequence - 1 for each in sent if each.payload_bytes], np.int64))


def _interrupted(truth: Mapping[str, Any], waits: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The waits that begin in a black-out."""
    # guests count no hits
    faults = [each for each in truth["faults"] if each["name"] == "black-out" and each.get("count", 1)]
    return [
        (first, last)
        for first, last in waits
        if any(_is_within(each, first) or _is_within(each, last) for each in faults)
    ]


def _is_within(fault: Mapping[str, Any], time_ns: int) -> bool:
    return bool(fault["began_ns"] <= time_ns <= (fault["ended_ns"] or time_ns))


def _other(tap: str) -> str:
    return "target" if tap == "initiator" else "initiator"
