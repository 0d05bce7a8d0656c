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

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import path
from iscsitrace.measure.budget import PARTS, over_time, rows_of
from iscsitrace.measure.waits import Waits
from iscsitrace.plots.marks import Array
from iscsitrace.plots.view import View, seen_cycles, slowest_first
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value
from iscsitrace.taps.crossings import NOT_SEEN, Between, Crossings

Span = tuple[int, int]
Times = tuple[int | None, ...]
"""By column; None where it is not known."""
NO_TIME: Final = NOT_SEEN
_AGAIN: Final = CATEGORIES["segment_class"].index("retransmission")


@dataclass(frozen=True)
class LadderColumn:
    """A place that packets pass."""

    place: float
    """0 at the initiator, 1 at the target."""
    host: str = ""
    """The host that is here, or whose tap is here; "" between the hosts."""
    tap: str = ""
    """The name of the tap that is here; "" where times are estimated, and of an only tap."""


@dataclass(frozen=True)
class LadderPackets:
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


def lost_beyond(segments: Table, resent: Table) -> Array:
    """Which packets of a connection were retransmitted later, and not without need: their first copies did not arrive.

    ``resent`` are its rows of ``retransmissions``.
    """
    needed = resent.select(~resent.raw("is_spurious"))
    originals = needed.raw("original_frame")[known(needed, "original_frame")]
    last: dict[tuple[bool, int], int] = {}
    names = ("to_target", "stream_offset_bytes", "frame")
    for to_target, offset, frame in zip(*(needed.raw(name).tolist() for name in names), strict=True):
        last[to_target, offset] = max(frame, last.get((to_target, offset), 0))
    rows = zip(*(segments.raw(name).tolist() for name in names), strict=True)
    is_repeated = [frame < last.get((to_target, offset), 0) for to_target, offset, frame in rows]
    is_payload = segments.raw("payload_bytes") > 0
    return np.asarray(is_payload & (np.isin(segments.raw("frame"), originals) | np.array(is_repeated, dtype=bool)))


@dataclass(frozen=True)
class OneTap:
    """A tap between two hosts, whose times are estimated by half of the least RTTs."""

    share: float
    """Of the RTT of the path, that on the initiator's side."""
    to_initiator_ns: int
    to_target_ns: int
    resent: Table | None = None
    """The rows of ``retransmissions`` of the connection."""

    @staticmethod
    def of(connection: Mapping[str, Any], resent: Table | None) -> OneTap | None:
        """Of a row of ``connections``; None where an RTT is not known."""
        both = connection["rtt_to_initiator_min_ns"], connection["rtt_to_target_min_ns"]
        share = path.initiator_share(*both)
        return None if share is None else OneTap(share, both[0] // 2, both[1] // 2, resent)

    @property
    def columns(self) -> tuple[LadderColumn, ...]:
        """Initiator, tap and target."""
        return LadderColumn(0.0, "initiator"), LadderColumn(self.share), LadderColumn(1.0, "target")

    @property
    def round_trip_ns(self) -> int:
        """The least RTT of the path."""
        return 2 * (self.to_initiator_ns + self.to_target_ns)

    def packets(self, segments: Table, view: View, middle: Span | None) -> dict[str, LadderPackets]:
        """By kind, without those of the middle."""
        times, to_target = segments.raw("time_ns"), segments.raw("to_target")
        is_shown = view.covers(times) & _outside(times, middle)
        passed = np.stack(self._passed(times, np.where(to_target, 1, -1)), axis=1)
        is_lost = np.zeros(len(times), dtype=bool) if self.resent is None else lost_beyond(segments, self.resent)
        kinds = {kind: which & ~is_lost for kind, which in kinds_of(segments).items()} | {"lost": is_lost}
        return {
            kind: LadderPackets(passed[which & is_shown], to_target[which & is_shown]) for kind, which in kinds.items()
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
        is_beside = path.tap_position(*first) in ("initiator", None)
        last = between.last_rtts_ns
        is_last_beside = path.tap_position(*last) in ("target", None)
        return Taps(between, (None if is_beside else first[0] // 2, None if is_last_beside else (last[1] or 0) // 2))

    @cached_property
    def columns(self) -> tuple[LadderColumn, ...]:
        """The taps, and the hosts without one."""
        names = [("", name) for name in self.between.names]
        ends = (0, "initiator"), (-1, "target")
        for (place, host), away_ns in zip(ends, self.hosts_ns, strict=True):
            if away_ns is None:
                names[place] = host, names[place][1]
        names = [*([("initiator", "")] if self._before else []), *names, *([("target", "")] if self._after else [])]
        places = np.linspace(0, 1, len(names)).tolist()
        return tuple(LadderColumn(place, *name) for place, name in zip(places, names, strict=True))

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

    def packets(self, segments: Table, view: View, middle: Span | None) -> dict[str, LadderPackets]:
        """By kind: each packet once for each two taps that it passed, without those of the middle."""
        found: dict[str, list[LadderPackets]] = {}
        for place, each in enumerate(self.between.crossings):
            for kind, packets in self._of_pair(place, each, view, middle).items():
                found.setdefault(kind, []).append(packets)
        return {
            kind: LadderPackets(
                np.concatenate([each.times_ns for each in those]), np.concatenate([each.to_target for each in those])
            )
            for kind, those in found.items()
        }

    def _of_pair(self, place: int, each: Crossings, view: View, middle: Span | None) -> dict[str, LadderPackets]:
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
            kind: LadderPackets(times[which & is_shown], each.to_target[which & is_shown])
            for kind, which in kinds.items()
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


PACKET_LIMIT, BURST_LIMIT = 400, 16
"""Packets, and bursts of packets, up to which all are shown."""
END_PACKETS, END_BURSTS = 90, 5
"""Packets, and bursts, that are shown at most at either end of more than these."""
LABEL_LIMIT = 60
_NO_TIME = null_value("int64")
_TITLES = {
    0x00: "NOP-Out", 0x01: "Command", 0x02: "Task Management", 0x03: "Login Request", 0x04: "Text Request",
    0x05: "Data-Out", 0x06: "Logout Request", 0x10: "SNACK", 0x20: "NOP-In", 0x21: "Response",
    0x22: "Task Management Response", 0x23: "Login Response", 0x24: "Text Response", 0x25: "Data-In",
    0x26: "Logout Response", 0x31: "R2T", 0x32: "Asynchronous Message", 0x3F: "Reject",
}  # fmt: skip
_WITH_AMOUNT = {0x05, 0x25}
_FLAGS = {0x02: "SYN", 0x01: "FIN", 0x04: "RST"}


@dataclass(frozen=True)
class Pdu:
    """One PDU: when its first and last byte passed each column, its type and its bytes of data."""

    first_ns: Times
    last_ns: Times
    to_target: bool
    title: str
    data_bytes: int
    has_status: bool

    @property
    def sent_ns(self) -> int:
        """When its first byte passed the column nearest to its sender that shows it."""
        shown = [time_ns for time_ns in self.first_ns if time_ns is not None]
        return shown[0 if self.to_target else -1]


@dataclass(frozen=True)
class LadderStretch:
    """A stretch of time, and its part of the time breakdown."""

    start_ns: int
    end_ns: int
    part: str


@dataclass(frozen=True)
class Middle:
    """The middle of a long command, which is not shown: packets that passed the tap from its start to its end."""

    start_ns: int
    end_ns: int
    data_count: int
    again_count: int
    ack_count: int
    pdus: dict[str, int]
    """PDUs that began in it, by type."""
    parts_ns: dict[str, int]
    """Its time breakdown, the longest part first."""


@dataclass(frozen=True)
class Ladder:
    """The diagram of a view."""

    view: View
    columns: tuple[LadderColumn, ...]
    """From the initiator to the target."""
    data: LadderPackets
    again: LadderPackets
    """Retransmissions."""
    acks: LadderPackets
    """Packets without payload."""
    pdus: tuple[Pdu, ...]
    stretches: tuple[LadderStretch, ...]
    """In order of time; empty where the view has no time breakdown."""
    cycles: tuple[str, ...]
    """Number and operation of each command."""
    sizes: tuple[int | None, ...]
    middle: Middle | None = None
    lost: LadderPackets = field(default_factory=LadderPackets)
    """Packets that were lost between two taps, or beyond a single tap: when they passed it, and were due beyond it."""
    unseen: LadderPackets = field(default_factory=LadderPackets)
    """Packets that one capture lacks for another reason: its time is estimated."""

    @property
    def is_of_taps(self) -> bool:
        """Whether it has the times of several taps."""
        return sum(bool(column.tap) for column in self.columns) > 1


def compute(
    connections: Table, cycles: Table, segments: Table, pdus: Table, budget: Table, view: View,
    between: Between | None = None, resent: Table | None = None,
) -> Ladder:  # fmt: skip
    """The diagram of the view's connection; InputInvalid without packets, or for a single tap without RTTs.

    ``between`` has the packets of the connection at several taps, of which ``segments`` are those at the first. With
    ``resent``, the table of retransmissions, a single tap tells which packets were lost beyond it.
    """
    row = next(each for each in connections.rows() if each["connection"] == view.connection)
    own = None if resent is None else resent.select(resent.raw("connection") == view.connection)
    columns = Taps.of(between, row) if between else OneTap.of(row, own)
    if columns is None:
        raise InputInvalid(
            f"nothing to draw: the RTTs of connection {view.connection} are unknown, so the tap position is too"
        )
    is_here = (segments.raw("connection") == view.connection) & view.covers(segments.raw("time_ns"))
    here = segments.select(is_here & (segments.raw("segment_class") != CATEGORIES["segment_class"].index("copy")))
    if not len(here):
        raise InputInvalid(f"nothing to draw: connection {view.connection} has no packets in the view")
    seen = cycles.select(seen_cycles(cycles, view))
    times = here.raw("time_ns")
    ends = _ends(times, columns.round_trip_ns // 4)
    is_middle = np.zeros(len(here), dtype=bool) if ends is None else (times >= ends[0]) & (times <= ends[1])
    kinds = kinds_of(here)
    named, counted = _pdus(pdus, view, ends, columns)
    stretches, parts_ns = _stretches(budget, view, ends)
    middle = None
    if ends is not None:
        data_count, again_count, ack_count = (int((each & is_middle).sum()) for each in kinds.values())
        middle = Middle(*ends, data_count, again_count, ack_count, counted, parts_ns)
    return Ladder(
        view=view,
        columns=columns.columns,
        **columns.packets(here, view, ends),
        pdus=(*named, *_flags(here, columns)),
        stretches=stretches,
        cycles=tuple(f"{cycle} {word}" for cycle, word in zip(seen.raw("cycle"), seen["operation"], strict=True)),
        sizes=tuple(np.ma.asarray(seen["bytes"]).tolist()),
        middle=middle,
    )


def _ends(times_ns: Array, pause_ns: int) -> tuple[int, int] | None:
    """The first and the last instant of the middle; None where all packets are shown.

    A silence of ``pause_ns`` ends a burst. Where it can be, the middle begins and ends with a burst.
    """
    ordered = np.sort(times_ns)
    first_of_bursts = np.flatnonzero(np.diff(ordered) > pause_ns) + 1
    if len(ordered) <= PACKET_LIMIT and len(first_of_bursts) < BURST_LIMIT:
        return None
    before = first_of_bursts[first_of_bursts <= END_PACKETS][:END_BURSTS]
    after = first_of_bursts[first_of_bursts >= len(ordered) - END_PACKETS][-END_BURSTS:]
    low = int(before[-1]) if len(before) else END_PACKETS
    high = int(after[0]) if len(after) else len(ordered) - END_PACKETS
    if low >= high:
        return None
    return int(ordered[low]), int(ordered[high - 1])


def _pdus(
    pdus: Table, view: View, middle: Span | None, columns: OneTap | Taps
) -> tuple[tuple[Pdu, ...], dict[str, int]]:
    """The PDUs that are named, the first and the last of many; and the number that began in the middle, by type."""
    last = pdus.raw("time_last_ns")
    first = pdus.raw("time_first_ns")
    # a PDU whose end was not captured is drawn up to its start
    last = np.where(last == _NO_TIME, first, last)
    is_here = (pdus.raw("connection") == view.connection) & (first <= view.end_ns) & (last >= view.start_ns)
    counted: dict[str, int] = {}
    if middle is not None:
        begins = is_here & (first >= middle[0]) & (first <= middle[1])
        for opcode, count in zip(*np.unique(pdus.raw("opcode")[begins], return_counts=True), strict=True):
            counted[_title(int(opcode))] = int(count)
        is_here &= ~(begins & (last <= middle[1]))
    places = np.flatnonzero(is_here)
    if len(places) > LABEL_LIMIT:
        places = np.concatenate([places[: LABEL_LIMIT // 2], places[-(LABEL_LIMIT // 2) :]])
    found = []
    for row in pdus.select(places).rows():
        end = row["time_first_ns"] if row["time_last_ns"] is None else row["time_last_ns"]
        if row["opcode"] == 0x31:
            amount = row["expected_data_transfer_length"] or 0
        else:
            amount = row["data_segment_length"] if row["opcode"] in _WITH_AMOUNT else 0
        to_target, title = bool(row["to_target"]), _title(row["opcode"])
        first_ns, last_ns = (
            columns.pdu(time_ns, place, to_target=to_target, offset_bytes=row["stream_offset_bytes"])
            for place, time_ns in enumerate((row["time_first_ns"], end))
        )
        found.append(Pdu(first_ns, last_ns, to_target, title, amount, bool(row["has_status"])))
    return tuple(found), counted


def _flags(segments: Table, columns: OneTap | Taps) -> tuple[Pdu, ...]:
    """Packets that open or end a connection, as what is named beside the PDUs."""
    found = []
    for row in segments.select(np.flatnonzero(segments.raw("flags") & sum(_FLAGS) != 0)[:LABEL_LIMIT]).rows():
        to_target, offset = bool(row["to_target"]), row["stream_offset_bytes"]
        times = columns.pdu(row["time_ns"], 0, to_target=to_target, offset_bytes=offset)
        title = ", ".join(name for flag, name in _FLAGS.items() if row["flags"] & flag)
        found.append(Pdu(times, times, to_target, title, 0, False))
    return tuple(found)


def _title(opcode: int) -> str:
    return _TITLES.get(opcode, f"opcode 0x{opcode:02x}")


def _stretches(budget: Table, view: View, middle: Span | None) -> tuple[tuple[LadderStretch, ...], dict[str, int]]:
    """The stretches shown; and the time of each part in the middle."""
    rows = rows_of(budget, connection=view.connection)
    parts_ns: dict[str, int] = {}
    shown = [(view.start_ns, view.end_ns)]
    if middle is not None:
        sums = over_time(rows, np.array(middle))[:, 0]
        parts_ns = {PARTS[place]: int(sums[place]) for place in np.argsort(-sums, kind="stable") if sums[place]}
        shown = [(view.start_ns, middle[0]), (middle[1], view.end_ns)]
    found = [
        LadderStretch(max(int(start), low), min(int(end), high), str(part))
        for low, high in shown
        for start, end, part in zip(rows.raw("time_first_ns"), rows.raw("time_last_ns"), rows["part"], strict=True)
        if start < high and end > low
    ]
    return tuple(found), parts_ns


def slowest(cycles: Table, waited: Waits, view: View) -> int:
    """The number of the slowest command, which may have no status: a data command if there is one; InputInvalid without
    any. ``waited`` are the waits of all cycles.
    """
    ranked = slowest_first(cycles, waited, seen_cycles(cycles, view, waited.ends_ns(cycles)))
    if not len(ranked):
        raise InputInvalid("nothing to draw: no SCSI command of the view has a known latency")
    return int(cycles.raw("cycle")[ranked[0]])
