"""The network path of a session: its RTT, by its busiest connection, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.nulls import numbers_of
from iscsitrace.tables.table import Table

SIDES: Final = ("target", "initiator")
"""The tap divides the path: the RTT of the whole path is the sum of the least RTTs to both sides."""

BYTES: Final = ("stream_bytes_to_target", "stream_bytes_to_initiator")
COLUMNS: Final = (*(f"rtt_to_{side}_min_ns" for side in SIDES), *BYTES)
"""Columns of ``connections`` that a row has to have here."""


@dataclass(frozen=True)
class Path:
    """A path whose RTT was measured."""

    round_trip_ns: int
    round_trip_low_ns: float
    """At 95 % confidence: see `low_ns`."""

    @property
    def delay_ns(self) -> float:
        """Half of the RTT: the delay of each direction where both are alike, else their mean."""
        return self.round_trip_ns / 2

    @property
    def delay_low_ns(self) -> float:
        """Half of the lower bound of the RTT."""
        return self.round_trip_low_ns / 2


def least_rtts(connections: Table, senders: Table) -> NDArray[np.int64]:
    """The least RTT between the tap and each of SIDES, for each row of ``connections``; -1 for none.

    That of the path where it is known: packets that overtook others do not set it.
    """
    numbers = connections.raw("connection").astype(np.int64)
    row_of = np.full(numbers.max(initial=-1) + 2, -1, dtype=np.intp)
    row_of[numbers] = np.arange(len(numbers))
    of_path, rows = numbers_of(senders, "rtt_path_ns"), row_of[senders.raw("connection").clip(max=len(row_of) - 1)]
    found = np.stack([numbers_of(connections, f"rtt_to_{side}_min_ns") for side in SIDES])
    for side, values in zip(SIDES, found, strict=True):
        which = np.flatnonzero((of_path >= 0) & (rows >= 0) & (senders.raw("to_target") == (side == "target")))
        values[rows[which]] = of_path[which]
    return found


def busiest(connections: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The connection that stands for the path: the busiest of those that show both sides, or as many as any does.

    Both RTTs are of one connection, because two connections may take two paths. None for no connections.
    """
    return max(
        connections,
        key=lambda row: (sum(least_ns(row, side) is not None for side in SIDES), sum(row[name] for name in BYTES)),
        default=None,
    )


def least_ns(connection: dict[str, Any], side: str) -> int | None:
    """The least RTT between the tap and one side; None where none was seen."""
    found: int | None = connection[f"rtt_to_{side}_min_ns"]
    return found


def round_trip_ns(connection: dict[str, Any] | None) -> int | None:
    """The RTT of the whole path of a connection; None where one side of it was never seen."""
    found = [least_ns(connection, side) for side in SIDES] if connection else [None]
    return None if None in found else sum(each for each in found if each is not None)


def measure(connections: Sequence[dict[str, Any]], senders: Iterable[dict[str, Any]]) -> Path | None:
    """The path of these connections; None where no RTT is known, or where it is zero."""
    row = busiest(connections)
    whole_ns = round_trip_ns(row)
    if row is None or whole_ns is None or whole_ns <= 0:
        return None
    of_side = {each["to_target"]: each for each in senders if each["connection"] == row["connection"]}
    low = 0.0
    for side in SIDES:
        side_ns, sender = least_ns(row, side) or 0, of_side.get(side == "target", {})
        median_ns = sender.get("rtt_median_ns")
        low += low_ns(side_ns, max(side_ns, median_ns), sender.get("rtt_count") or 1) if median_ns else side_ns
    return Path(whole_ns, low)


def why_unknown(connections: Sequence[dict[str, Any]]) -> str:
    """Why `measure` finds no path, in words."""
    row = busiest(connections)
    unseen = next((side for side in SIDES if row is None or least_ns(row, side) is None), None)
    return f"no RTT to the {unseen} was measured" if unseen else "the measured RTT is 0"


def low_ns(least_ns: float, median_ns: float, count: int) -> float:
    """How low the RTT of the path may be when this is the least of so many samples.

    Assumes that what samples take beyond the path is exponentially distributed with this median. Then the least of n
    samples exceeds the path, at 95 % confidence, by at most ln 20 / n times the mean.
    """
    mean_ns = (median_ns - least_ns) / np.log(2)
    return max(0.0, float(least_ns - np.log(20) / max(count, 1) * mean_ns))
