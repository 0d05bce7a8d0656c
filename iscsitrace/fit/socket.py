"""The throughput of a plain TCP transfer over a path, from a capture of one: the C of the model.

Only the time after slow start and before the end counts, of the busiest connection. So a command reads the capture
twice, once for that time alone; this module takes both as tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import Point
from iscsitrace.measure import path
from iscsitrace.tables.table import Table

BEGUN: Final = 0.4
"""Share of the connection's time after which the window counts as grown."""
DONE: Final = 0.95
"""Share of the connection's time after which the rest, with the last ACKs, is left out."""

_DIRECTIONS: Final = ("to_target", "to_initiator")


@dataclass(frozen=True)
class Socket:
    """A bulk transfer."""

    bytes_per_s: float
    """Payload."""
    delay_ns: float | None
    """Half of the RTT; None where no RTT was measured."""


def steady_times_ns(capture: str, connections: Table) -> tuple[int, int]:
    """Start and end of the steady time of the busiest connection. InputInvalid where none carries data."""
    row = _busiest(capture, connections)
    first_ns, span_ns = row["time_first_ns"], row["time_last_ns"] - row["time_first_ns"]
    return first_ns + int(BEGUN * span_ns), first_ns + int(DONE * span_ns)


def measure(capture: str, connections: Table, senders: Table, steady: Table) -> Socket:
    """The busiest connection: ``connections`` and ``senders`` of the whole capture, and ``steady``, the table
    ``connections`` of its steady time.

    InputInvalid where it is too short to have one; ``capture`` is its name in messages.
    """
    whole = _busiest(capture, connections)
    # without its handshake either side may be the initiator of the steady part
    row = max(steady.rows(), key=_carried, default=None)
    lasted_ns = row["time_last_ns"] - row["time_first_ns"] if row else 0
    if row is None or lasted_ns <= 0:
        raise InputInvalid(f"{capture}: the busiest TCP connection is too short for a steady throughput")
    path_ns = int(path.of_one(connections, senders, [whole["connection"]]).whole_ns[0])
    return Socket(_carried(row) / lasted_ns * 1e9, None if path_ns < 0 else path_ns / 2)


def of_points(points: Sequence[Point], sockets: Mapping[str, Socket]) -> float | list[float]:
    """C of all points, from one capture; from several, by capture name, that of the nearest delay for each point.

    InputInvalid where the delay of one of several is unknown.
    """
    if len(sockets) == 1:
        return next(iter(sockets.values())).bytes_per_s
    delays: list[tuple[float, Socket]] = []
    for capture, socket in sockets.items():
        if socket.delay_ns is None:
            raise InputInvalid(f"{capture}: no RTT was measured, so its points are unknown")
        delays.append((socket.delay_ns, socket))
    return [min(delays, key=lambda each: abs(each[0] - point.delay_ns.value))[1].bytes_per_s for point in points]


def _busiest(capture: str, connections: Table) -> dict[str, Any]:
    found = max(connections.rows(), key=_carried, default=None)
    if found is None or not _carried(found):
        raise InputInvalid(f"{capture}: no TCP connection carries data")
    return found


def _carried(row: dict[str, Any]) -> int:
    return max(int(row[f"stream_bytes_{direction}"]) for direction in _DIRECTIONS)
