"""The packets of one or a few commands between initiator, taps and target, and the waits between them.

Instants are those at the taps, on the clock of the first. At hosts without a tap beside them they are earlier or later
by half of that side's least RTT; this assumes equal delays in both directions. Of a long command the first and last
bursts are shown, and the middle is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iscsitrace.analysis.curves.ladder_columns import Column, OneTap, Packets, Span, Taps, Times, kinds_of
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, seen_cycles
from iscsitrace.analysis.measures.budget import PARTS, over_time, rows_of
from iscsitrace.analysis.measures.data_commands import is_data_command
from iscsitrace.analysis.measures.waits import Waits
from iscsitrace.analysis.taps.crossings import Between
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value

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
class Stretch:
    """A stretch of time that is not transfer, and its part of the time breakdown."""

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
    columns: tuple[Column, ...]
    """From the initiator to the target."""
    data: Packets
    again: Packets
    """Retransmissions."""
    acks: Packets
    """Packets without payload."""
    pdus: tuple[Pdu, ...]
    stretches: tuple[Stretch, ...]
    """Stretches that are not transfer, in order of time; empty where the view has no time breakdown."""
    cycles: tuple[str, ...]
    """Number and operation of each command."""
    sizes: tuple[int | None, ...]
    middle: Middle | None = None
    lost: Packets = field(default_factory=Packets)
    """Packets that the network lost between two taps: when they passed one of these, and were due at the other."""
    unseen: Packets = field(default_factory=Packets)
    """Packets that one capture lacks for another reason: its time is estimated."""

    @property
    def is_of_taps(self) -> bool:
        """Whether it has the times of several taps."""
        return sum(bool(column.tap) for column in self.columns) > 1


def prepare(
    connections: Table, cycles: Table, segments: Table, pdus: Table, budget: Table, view: View,
    between: Between | None = None,
) -> Ladder:  # fmt: skip
    """The diagram of the view's connection; InputInvalid without packets, or for a single tap without RTTs.

    ``between`` has the packets of the connection at several taps, of which ``segments`` are those at the first.
    """
    row = next(each for each in connections.rows() if each["connection"] == view.connection)
    columns = Taps.of(between, row) if between else OneTap.of(row)
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
        pdus=named,
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


def _title(opcode: int) -> str:
    return _TITLES.get(opcode, f"opcode 0x{opcode:02x}")


def _stretches(budget: Table, view: View, middle: Span | None) -> tuple[tuple[Stretch, ...], dict[str, int]]:
    """The stretches shown, without transfer; and the time of each part in the middle."""
    rows = rows_of(budget, connection=view.connection)
    parts_ns: dict[str, int] = {}
    shown = [(view.start_ns, view.end_ns)]
    if middle is not None:
        sums = over_time(rows, np.array(middle))[:, 0]
        parts_ns = {PARTS[place]: int(sums[place]) for place in np.argsort(-sums, kind="stable") if sums[place]}
        shown = [(view.start_ns, middle[0]), (middle[1], view.end_ns)]
    others = rows.select(rows.raw("part") != PARTS.index("transfer"))
    found = [
        Stretch(max(int(start), low), min(int(end), high), str(part))
        for low, high in shown
        for start, end, part in zip(
            others.raw("time_first_ns"), others.raw("time_last_ns"), others["part"], strict=True
        )
        if start < high and end > low
    ]
    return tuple(found), parts_ns


def slowest(cycles: Table, waited: Waits, view: View) -> int:
    """The number of the slowest command, which may have no status: a data command if there is one; InputInvalid without
    any. ``waited`` are the waits of all cycles.
    """
    is_seen = seen_cycles(cycles, view, waited.ends_ns(cycles))
    seen, waited = cycles.select(is_seen), waited.select(is_seen)
    ranked = waited.slowest_first()
    if not len(ranked):
        raise InputInvalid("nothing to draw: the latency of no SCSI command of the view is known")
    is_data = is_data_command(seen)[ranked]
    return int(seen.raw("cycle")[ranked[is_data] if is_data.any() else ranked][0])
