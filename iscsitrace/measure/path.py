"""The network path of a session: its RTT, by its busiest connection, how sure that is, where on it the tap is, and
whether a device on it sent a RST.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.by_subject import first_of_each
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.table import Table

SIDES: Final = ("target", "initiator")
"""The tap divides the path: the RTT of the whole path is the sum of the least RTTs to both sides."""

BYTES: Final = ("stream_bytes_to_target", "stream_bytes_to_initiator")


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


@dataclass(frozen=True)
class Paths:
    """The connection that stands for the path of each subject, such as a session: the busiest of those that show both
    sides, or as many as any does.

    Both RTTs are of one connection, because two connections may take two paths.
    """

    connection: NDArray[np.int64]
    """Its number; -1 where there is none."""
    rtts_ns: NDArray[np.int64]
    """The least RTT to each of SIDES, shape (2, subjects); -1 where none is known."""

    @property
    def whole_ns(self) -> NDArray[np.int64]:
        """The RTT of the whole path; -1 where a side of it is unknown."""
        return np.where((self.rtts_ns >= 0).all(axis=0), self.rtts_ns.sum(axis=0), -1)


def of_each(connections: Table, senders: Table, place: NDArray[Any], count: int) -> Paths:
    """The paths of that many subjects; ``place`` is the subject of each row of ``connections``, -1 for none."""
    rtts = least_rtts(connections, senders)
    moved = np.sum([connections.raw(name).astype(np.int64) for name in BYTES], axis=0)
    busiest = first_of_each(place, count, -(rtts >= 0).sum(axis=0), -moved)
    # -1 is the last
    numbers = np.append(connections.raw("connection").astype(np.int64), -1)
    return Paths(numbers[busiest], np.pad(rtts, ((0, 0), (0, 1)), constant_values=-1)[:, busiest])


def of_one(connections: Table, senders: Table, numbers: Iterable[int]) -> Paths:
    """The path of these connections together, as that of one subject."""
    is_own = np.isin(connections.raw("connection"), list(numbers))
    return of_each(connections, senders, np.where(is_own, 0, -1), 1)


def measure(rtts_ns: Sequence[int | None], senders: Iterable[dict[str, Any]]) -> Path | None:
    """The path with these RTTs to each of SIDES, whose connection has these rows of ``senders``; None where an RTT is
    unknown, or both are zero.
    """
    if why_unknown(rtts_ns):
        return None
    of_side = {each["to_target"]: each for each in senders}
    whole, low = 0, 0.0
    for side, side_ns in zip(SIDES, rtts_ns, strict=True):
        sender = of_side.get(side == "target", {})
        median_ns, least_ns = sender.get("rtt_median_ns"), side_ns or 0
        whole += least_ns
        low += low_ns(least_ns, max(least_ns, median_ns), sender.get("rtt_count") or 1) if median_ns else least_ns
    return Path(whole, low)


def why_unknown(rtts_ns: Sequence[int | None]) -> str:
    """Why `measure` finds no path, in words; empty where it does."""
    unseen = next((side for side, rtt_ns in zip(SIDES, rtts_ns, strict=True) if rtt_ns is None), None)
    if unseen:
        return f"no RTT to the {unseen} was measured"
    return "" if any(rtts_ns) else "the measured RTT is 0"


def low_ns(least_ns: float, median_ns: float, count: int) -> float:
    """How low the RTT of the path may be when this is the least of so many samples.

    Assumes that what samples take beyond the path is exponentially distributed with this median. Then the least of n
    samples exceeds the path, at 95 % confidence, by at most ln 20 / n times the mean.
    """
    mean_ns = (median_ns - least_ns) / np.log(2)
    return max(0.0, float(least_ns - np.log(20) / max(count, 1) * mean_ns))


NEAR_SHARE = 0.2
"""A tap is near a side whose RTT is less than this share of the RTT of the whole path."""


def initiator_share(rtt_to_initiator_ns: int | None, rtt_to_target_ns: int | None) -> float | None:
    """Share of the path on the initiator's side of the tap, 0 to 1; None where an RTT is unknown."""
    if rtt_to_initiator_ns is None or rtt_to_target_ns is None:
        return None
    whole = rtt_to_initiator_ns + rtt_to_target_ns
    return rtt_to_initiator_ns / whole if whole > 0 else None


def tap_position(rtt_to_initiator_ns: int | None, rtt_to_target_ns: int | None) -> str | None:
    """``initiator``, ``target`` or ``between``; None where an RTT is unknown."""
    share = initiator_share(rtt_to_initiator_ns, rtt_to_target_ns)
    if share is None:
        return None
    if share < NEAR_SHARE:
        return "initiator"
    return "target" if share > 1 - NEAR_SHARE else "between"


def is_reset_of_a_device(own: Any, others: Any, last_ns: Any, rst_ns: Any) -> Any:
    """Whether a device sent a RST in the name of a host: numbers, or an array of each.

    ``own`` is its TTL and ``others`` that of the host's packets, the last of which was at ``last_ns``: a device is
    nearer or farther, and the host knows nothing of the reset and goes on sending.
    """
    return (own != others) & (last_ns > rst_ns)
