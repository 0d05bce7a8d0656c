"""What a plain TCP transfer carries over a path: the C of the model, from a capture of one.

Of the busiest connection the time after slow start and before the end is taken: the capture is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.trace import Trace, read

BEGUN: Final = 0.4
"""Share of the connection's time after which a window is taken to have grown."""
DONE: Final = 0.95
"""Share of it after which the end, with its last ACKs, is left out."""

_DIRECTIONS: Final = ("to_target", "to_initiator")


@dataclass(frozen=True)
class Socket:
    """A bulk transfer."""

    bytes_per_s: float
    """Payload."""
    delay_ns: float | None
    """One way; None where a round trip was never seen."""


def measure(capture: str) -> Socket:
    """The busiest connection of a capture file. InputInvalid where none carries enough to have a steady part."""
    whole = max(_rows(read(capture, tables=())), key=_carried, default=None)
    if whole is None or not _carried(whole):
        raise InputInvalid(f"{capture}: no TCP connection carries data")
    direction = max(_DIRECTIONS, key=lambda each: whole[f"stream_bytes_{each}"])
    first_ns, span_ns = whole["time_first_ns"], whole["time_last_ns"] - whole["time_first_ns"]
    part = read(
        capture, tables=(), time_from_ns=first_ns + int(BEGUN * span_ns), time_to_ns=first_ns + int(DONE * span_ns)
    )
    steady = max(_rows(part), key=lambda row: int(row[f"captured_bytes_{direction}"]), default=None)
    lasted_ns = steady["time_last_ns"] - steady["time_first_ns"] if steady else 0
    if steady is None or lasted_ns <= 0:
        raise InputInvalid(f"{capture}: its busiest TCP connection is too short to have a steady throughput")
    round_trips = [whole["rtt_to_target_min_ns"], whole["rtt_to_initiator_min_ns"]]
    delay_ns = None if None in round_trips else sum(round_trips) / 2
    return Socket(steady[f"stream_bytes_{direction}"] / lasted_ns * 1e9, delay_ns)


def _rows(trace: Trace) -> list[dict[str, Any]]:
    return list(trace.connections.rows())


def _carried(row: dict[str, Any]) -> int:
    return max(int(row[f"stream_bytes_{direction}"]) for direction in _DIRECTIONS)
