"""When the line carried what, as a tap sees it, by the link's own log; and from when to when that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.budget.cases import HEADERS_BYTES
from bench.budget.spans import Spans, owners, union

NEAR = {"to_target": "initiator", "to_initiator": "target"}
"""The tap in front of the line of a direction; to the other one every packet takes the delay."""
_PURE_ACK_BYTES = HEADERS_BYTES + 36
"""A frame without payload is no longer: the headers, and four blocks of SACK at most."""


@dataclass(frozen=True)
class Idle:
    """Shares of a span in which the line was idle."""

    of_payload: float
    """Of either line, but for ACKs without payload: the definition."""
    of_line: float
    """Of either line, by all that it carried."""


def payload_times(truth: Mapping[str, Any], direction: str, tap: str) -> Spans:
    """When the line of a direction carried frames with payload, as they pass a tap."""
    settings = truth["settings"]["world"]["paths"][0][direction]
    packets = [packet for packet in truth["paths"][0][direction]["packets"] if packet["bytes"] > _PURE_ACK_BYTES]
    on_line = [packet for packet in packets if packet["fate"] not in {"queue_full", "under_way"}]
    took_ns = np.array([packet["bytes"] * 8e9 / settings["rate_bps"] for packet in on_line])
    # what is lost is lost behind the line, before the delay
    left_ns = np.array(
        [packet["time_out_ns"] - (packet["fate"] == "delivered") * settings["delay_ns"] for packet in on_line], np.int64
    )
    starts = left_ns - np.round(took_ns).astype(np.int64) if on_line else left_ns
    return union(np.column_stack([starts, left_ns]) + _shift_ns(settings, direction, tap))


def busy_times(truth: Mapping[str, Any], direction: str, tap: str) -> Spans:
    """When the line of a direction carried anything, as it passes a tap."""
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
        shares.append(owners(span, {"busy": claim}, "idle")["idle"] / (span[1] - span[0]))
    return Idle(*shares)


def lost_count(truth: Mapping[str, Any], direction: str) -> int:
    """Packets that the link took and did not bring."""
    counters = truth["paths"][0][direction]["counters"]
    return sum(counters[fate]["count"] for fate in ("queue_full", "lost", "lost_in_burst"))


def unfinished_count(truth: Mapping[str, Any], direction: str) -> int:
    """Packets that were on their way when the run ended."""
    counters = truth["paths"][0][direction]["counters"]
    ended = counters["delivered"]["count"] + lost_count(truth, direction)
    return int(counters["arrived"]["count"] - ended)
