"""The columns of a ladder, and when packets and PDUs passed them: of one tap between two hosts, or of several taps.

With one tap the times at the hosts are estimated. With several they are those of the taps; a host has a column of its
own only where no tap is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.measures import tap_position
from iscsitrace.analysis.taps.crossings import NOT_SEEN, Between, Crossings
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table

Span = tuple[int, int]
Times = tuple[int | None, ...]
"""By column; None where it is not known."""
NO_TIME: Final = NOT_SEEN
_AGAIN: Final = CATEGORIES["segment_class"].index("retransmission")


@dataclass(frozen=True)
class Column:
    """A place that packets pass."""

    place: float
    """0 at the initiator, 1 at the target."""
    host: str = ""
    """The host that is here, or whose tap is here; "" between the hosts."""
    tap: str = ""
    """The name of the tap that is here; "" where times are estimated, and of an only tap."""


@dataclass(frozen=True)
class Packets:
    """Packets of one kind: when they passed each column, and their direction."""

    times_ns: Array = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    """Shape (packets, columns), int64; NO_TIME where a packet did not pass, or is drawn as another one."""
    to_target: Array = field(default_factory=lambda: np.empty(0, dtype=bool))

    def __len__(self) -> int:
        return len(self.to_target)


def kinds_of(segments: Table) -> dict[str, Array]:
    """Which packets are drawn as data, as retransmissions and as ACKs."""
    is_payload = segments.raw("payload_bytes") > 0
    is_again = is_payload & (segments.raw("segment_class") == _AGAIN)
    return {"data": is_payload & ~is_again, "again": is_again, "acks": ~is_payload}


@dataclass(frozen=True)
class OneTap:
    """A tap between two hosts, whose times are estimated by half of the least RTTs."""

    share: float
    """Of the RTT of the path, that on the initiator's side."""
    to_initiator_ns: int
    to_target_ns: int

    @staticmethod
    def of(connection: Mapping[str, Any]) -> OneTap | None:
        """Of a row of ``connections``; None where an RTT is not known."""
        both = connection["rtt_to_initiator_min_ns"], connection["rtt_to_target_min_ns"]
        share = tap_position.initiator_share(*both)
        return None if share is None else OneTap(share, both[0] // 2, both[1] // 2)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Initiator, tap and target."""
        return Column(0.0, "initiator"), Column(self.share), Column(1.0, "target")

    @property
    def round_trip_ns(self) -> int:
        """The least RTT of the path."""
        return 2 * (self.to_initiator_ns + self.to_target_ns)

    def packets(self, segments: Table, view: View, middle: Span | None) -> dict[str, Packets]:
        """By kind, without those of the middle."""
        times, to_target = segments.raw("time_ns"), segments.raw("to_target")
        is_shown = view.covers(times) & _outside(times, middle)
        passed = np.stack(self._passed(times, np.where(to_target, 1, -1)), axis=1)
        return {
            kind: Packets(passed[which & is_shown], to_target[which & is_shown])
            for kind, which in kinds_of(segments).items()
        }

    def pdu(self, time_ns: int, place: int, *, to_target: bool, offset_bytes: int) -> Times:
        """When the first byte (``place`` 0) or the last one (1) of a PDU passed each column."""
        return self._passed(time_ns, 1 if to_target else -1)

    def _passed(self, time_ns: Any, sign: Any) -> tuple[Any, ...]:
        return time_ns - sign * self.to_initiator_ns, time_ns, time_ns + sign * self.to_target_ns


@dataclass(frozen=True)
class Taps:
    """Several taps, the first at the initiator's end."""

    between: Between
    hosts_ns: tuple[int | None, int | None]
    """From the first tap to the initiator, and from the last to the target; None where a tap is beside its host."""

    @staticmethod
    def of(between: Between, connection: Mapping[str, Any]) -> Taps:
        """``connection`` is the row of the first tap."""
        first = connection["rtt_to_initiator_min_ns"], connection["rtt_to_target_min_ns"]
        is_beside = tap_position.position(*first) in ("initiator", None)
        last = between.last_rtts_ns
        is_last_beside = tap_position.position(*last) in ("target", None)
        return Taps(between, (None if is_beside else first[0] // 2, None if is_last_beside else (last[1] or 0) // 2))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The taps, and the hosts without one."""
        names = [("", name) for name in self.between.names]
        ends = (0, "initiator"), (-1, "target")
        for (place, host), away_ns in zip(ends, self.hosts_ns, strict=True):
            if away_ns is None:
                names[place] = host, names[place][1]
        names = [*([("initiator", "")] if self._before else []), *names, *([("target", "")] if self._after else [])]
        places = np.linspace(0, 1, len(names)).tolist()
        return tuple(Column(place, *name) for place, name in zip(places, names, strict=True))

    @property
    def _before(self) -> int:
        return int(self.hosts_ns[0] is not None)

    @property
    def _after(self) -> int:
        return int(self.hosts_ns[1] is not None)

    @property
    def round_trip_ns(self) -> int:
        """The least RTT between the taps, and to the hosts beyond them."""
        delays = [_delays(each, to_target=way) for each in self.between.crossings for way in (True, False)]
        least_ns = sum(int(each.min()) for each in delays if len(each))
        return max(0, least_ns) + 2 * sum(each or 0 for each in self.hosts_ns)

    def packets(self, segments: Table, view: View, middle: Span | None) -> dict[str, Packets]:
        """By kind: each packet once for each two taps that it passed, without those of the middle."""
        found: dict[str, list[Packets]] = {}
        for place, each in enumerate(self.between.crossings):
            for kind, packets in self._of_pair(place, each, view, middle).items():
                found.setdefault(kind, []).append(packets)
        return {
            kind: Packets(
                np.concatenate([each.times_ns for each in those]), np.concatenate([each.to_target for each in those])
            )
            for kind, those in found.items()
        }

    def _of_pair(self, place: int, each: Crossings, view: View, middle: Span | None) -> dict[str, Packets]:
        near, far = each.near_ns, each.far_ns
        is_near, is_far = near != NOT_SEEN, far != NOT_SEEN
        seen = np.where(is_near, near, far)
        is_shown = view.covers(seen) & _outside(seen, middle)
        # where a tap did not see it: when it was due there, or was sent
        delays = [_delays(each, to_target=way) for way in (True, False)]
        typical = [int(np.median(those)) if len(those) else 0 for those in delays]
        due = np.where(each.to_target, typical[0], -typical[1])
        both = np.stack([np.where(is_near, near, far - due), np.where(is_far, far, near + due)], axis=1)
        times = np.full((len(seen), len(self.columns)), NO_TIME, dtype=np.int64)
        times[:, self._before + place : self._before + place + 2] = both
        sign = np.where(each.to_target, 1, -1)
        # what was lost between the taps reached no host beyond
        if self.hosts_ns[0] is not None and place == 0:
            times[:, 0] = np.where(each.is_lost & ~each.to_target, NO_TIME, both[:, 0] - sign * self.hosts_ns[0])
        if self.hosts_ns[1] is not None and place == len(self.between.crossings) - 1:
            times[:, -1] = np.where(each.is_lost & each.to_target, NO_TIME, both[:, 1] + sign * self.hosts_ns[1])
        is_whole = is_near & is_far
        kinds = {
            "data": is_whole & each.has_payload & ~each.is_again,
            "again": is_whole & each.has_payload & each.is_again,
            "acks": is_whole & ~each.has_payload,
            "lost": each.is_lost,
            "unseen": ~is_whole & ~each.is_lost,
        }
        return {
            kind: Packets(times[which & is_shown], each.to_target[which & is_shown]) for kind, which in kinds.items()
        }

    def pdu(self, time_ns: int, place: int, *, to_target: bool, offset_bytes: int) -> Times:
        """When the first byte (``place`` 0) or the last one (1) of a PDU of the first tap passed each column."""
        taps: list[int | None] = [time_ns]
        for seen in self._pdus:
            both = seen.get((to_target, offset_bytes))
            taps.append(both[place] if both else None)
        sign = 1 if to_target else -1
        before = [] if self.hosts_ns[0] is None else [time_ns - sign * self.hosts_ns[0]]
        last = taps[-1]
        after = [] if self.hosts_ns[1] is None else [None if last is None else last + sign * self.hosts_ns[1]]
        return (*before, *taps, *after)

    @cached_property
    def _pdus(self) -> list[dict[tuple[bool, int], Span]]:
        return [
            dict(
                zip(
                    zip(each.to_target.tolist(), each.offset_bytes.tolist(), strict=True),
                    zip(each.first_ns.tolist(), each.last_ns.tolist(), strict=True),
                    strict=True,
                )
            )
            for each in self.between.pdus
        ]


def _delays(each: Crossings, *, to_target: bool) -> Array:
    """Of the packets of one direction that both taps saw, int64."""
    which = (each.near_ns != NOT_SEEN) & (each.far_ns != NOT_SEEN) & (each.to_target == to_target)
    apart = each.far_ns[which] - each.near_ns[which]
    return np.asarray(apart if to_target else -apart)


def _outside(times_ns: Array, middle: Span | None) -> Array:
    """Which instants are not in the middle."""
    return np.ones(len(times_ns), dtype=bool) if middle is None else (times_ns < middle[0]) | (times_ns > middle[1])
