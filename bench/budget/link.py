"""Busy and idle time of the line as a tap sees it, from the link's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.budget.cases import HEADERS_BYTES
from bench.budget.spans import Spans, attributed, union

NEAR = {"to_target": "initiator", "to_initiator": "target"}
"""The tap in front of the line of a direction; packets reach the other tap after the delay."""
_PURE_ACK_BYTES = HEADERS_BYTES + 36
"""A frame without payload is at most this long: the headers, and four SACK blocks."""


@dataclass(frozen=True)
class Idle:
    """Shares of a span in which the line was idle."""

    of_payload: float
    """Neither line carries a frame with payload: the definition of the idle fraction."""
    of_line: float
    """Neither line carries any frame."""


def payload_times(truth: Mapping[str, Any], direction: str, tap: str) -> Spans:
    """Times at which frames with payload on the line of a direction pass a tap."""
    settings = truth["settings"]["world"]["paths"][0][direction]
    packets = [packet for packet in truth["paths"][0][direction]["packets"] if packet["bytes"] > _PURE_ACK_BYTES]
    on_line = [packet for packet in packets if packet["fate"] not in {"queue_full", "under_way"}]
    took_ns = np.array([packet["bytes"] * 8e9 / settings["rate_bps"] for packet in on_line])
    # packets are lost after the line and before the delay
    left_ns = np.array(
        [packet["time_out_ns"] - (packet["fate"] == "delivered") * settings["delay_ns"] for packet in on_line], np.int64
    )
    starts = left_ns - np.round(took_ns).astype(np.int64) if on_line else left_ns
    return union(np.column_stack([starts, left_ns]) + _shift_ns(settings, direction, tap))


def busy_times(truth: Mapping[str, Any], direction: str, tap: str) -> Spans:
    """Times at which any frame on the line of a direction passes a tap."""
    times = truth["paths"][0][direction]["line"]["busy_times"]
    settings = truth["settings"]["world"]["paths"][0][direction]
    intervals = np.column_stack([np.asarray(times["from_ns"], np.int64), np.asarray(times["to_ns"], np.int64)])
    return union(intervals.reshape(-1, 2) + _shift_ns(settings, direction, tap))


def _shift_ns(settings: Mapping[str, Any], direction: str, tap: str) -> int:
    return 0 if NEAR[direction] == tap else int(settings["delay_ns"])


def idle(truth: Mapping[str, Any], tap: str, span: tuple[int, int]) -> Idle:
    """The idle shares of both lines together, within the span."""
    shares = []
    for times in (payload_times, busy_times):
        claim = union(*(times(truth, direction, tap) for direction in NEAR))
        shares.append(attributed(span, {"busy": claim}, "idle")["idle"] / (span[1] - span[0]))
    return Idle(*shares)


def lost_count(truth: Mapping[str, Any], direction: str) -> int:
    """Packets that the link took and did not deliver."""
    counters = truth["paths"][0][direction]["counters"]
    return sum(counters[fate]["count"] for fate in ("queue_full", "lost", "lost_in_burst"))


def unfinished_count(truth: Mapping[str, Any], direction: str) -> int:
    """Packets that were on the way when the run ended."""
    counters = truth["paths"][0][direction]["counters"]
    ended = counters["delivered"]["count"] + lost_count(truth, direction)
    return int(counters["arrived"]["count"] - ended)
