"""The packets of one or a few commands between initiator, tap and target, and the waits between them.

Instants are those at the tap; at the hosts they are earlier or later by half of that side's least RTT. This assumes
equal delays in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View, seen_cycles
from iscsitrace.analysis.measures import tap_position as tap
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value

PACKET_LIMIT = 600
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
class Packets:
    """Packets of one kind: when they passed the tap, and their direction."""

    times_ns: Array
    to_target: Array


@dataclass(frozen=True)
class Pdu:
    """One PDU: when its first and last byte passed the tap, its type and its bytes of data."""

    first_ns: int
    last_ns: int
    to_target: bool
    title: str
    data_bytes: int
    has_status: bool


@dataclass(frozen=True)
class Stretch:
    """A stretch of time that is not transfer, and its part of the time breakdown."""

    start_ns: int
    end_ns: int
    part: str


@dataclass(frozen=True)
class Ladder:
    """The diagram of a view."""

    view: View
    tap_place: float
    """0 at the initiator, 1 at the target."""
    to_initiator_ns: int
    """Half of the least RTT between tap and initiator."""
    to_target_ns: int
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
    packet_count: int


def prepare(
    connections: Table, cycles: Table, segments: Table, pdus: Table, budget: Table, view: View
) -> Ladder:  # fmt: skip
    """The diagram of the view's connection; InputInvalid without packets or RTTs."""
    row = next(each for each in connections.rows() if each["connection"] == view.connection)
    round_trips = row["rtt_to_initiator_min_ns"], row["rtt_to_target_min_ns"]
    place = tap.initiator_share(*round_trips)
    if place is None:
        raise InputInvalid(
            f"nothing to draw: the RTTs of connection {view.connection} are unknown, so the tap position is too"
        )
    is_here = (segments.raw("connection") == view.connection) & view.covers(segments.raw("time_ns"))
    here = segments.select(is_here & (segments.raw("segment_class") != CATEGORIES["segment_class"].index("copy")))
    if not len(here):
        raise InputInvalid(f"nothing to draw: connection {view.connection} has no packets in the view")
    is_payload = here.raw("payload_bytes") > 0
    is_again = is_payload & (here.raw("segment_class") == CATEGORIES["segment_class"].index("retransmission"))
    seen = seen_cycles(cycles, view)
    return Ladder(
        view=view,
        tap_place=place,
        to_initiator_ns=round_trips[0] // 2,
        to_target_ns=round_trips[1] // 2,
        data=_packets(here, is_payload & ~is_again),
        again=_packets(here, is_again),
        acks=_packets(here, ~is_payload),
        pdus=_pdus(pdus, view),
        stretches=_stretches(budget, view),
        cycles=tuple(f"{cycle} {word}" for cycle, word in zip(seen.raw("cycle"), seen["operation"], strict=True)),
        sizes=tuple(np.ma.asarray(seen["bytes"]).tolist()),
        packet_count=len(here),
    )


def _packets(segments: Table, which: Array) -> Packets:
    """Packets of one kind; beyond PACKET_LIMIT an even sample, with the first and the last."""
    places = np.flatnonzero(which)
    if len(places) > PACKET_LIMIT:
        places = places[np.linspace(0, len(places) - 1, PACKET_LIMIT).astype(np.intp)]
    return Packets(segments.raw("time_ns")[places], segments.raw("to_target")[places])


def _pdus(pdus: Table, view: View) -> tuple[Pdu, ...]:
    last = pdus.raw("time_last_ns")
    first = pdus.raw("time_first_ns")
    # a PDU whose end was not captured is drawn up to its start
    last = np.where(last == _NO_TIME, first, last)
    is_here = (pdus.raw("connection") == view.connection) & (first <= view.end_ns) & (last >= view.start_ns)
    found = []
    for row in pdus.select(np.flatnonzero(is_here)[:LABEL_LIMIT]).rows():
        end = row["time_first_ns"] if row["time_last_ns"] is None else row["time_last_ns"]
        name = _TITLES.get(row["opcode"], f"opcode 0x{row['opcode']:02x}")
        if row["opcode"] == 0x31:
            amount = row["expected_data_transfer_length"] or 0
        else:
            amount = row["data_segment_length"] if row["opcode"] in _WITH_AMOUNT else 0
        found.append(Pdu(row["time_first_ns"], end, bool(row["to_target"]), name, amount, bool(row["has_status"])))
    return tuple(found)


def _stretches(budget: Table, view: View) -> tuple[Stretch, ...]:
    is_here = np.ma.filled(np.ma.asarray(budget["connection"]) == view.connection, False)
    starts, ends = budget.raw("time_first_ns"), budget.raw("time_last_ns")
    is_here &= (starts < view.end_ns) & (ends > view.start_ns)
    is_here &= budget.raw("part") != CATEGORIES["budget_part"].index("transfer")
    return tuple(
        Stretch(max(int(start), view.start_ns), min(int(end), view.end_ns), str(part))
        for start, end, part in zip(starts[is_here], ends[is_here], budget["part"][is_here], strict=True)
    )


def slowest(cycles: Table, view: View) -> int:
    """The number of the slowest command of the view that has a status; InputInvalid where there is none."""
    seen = seen_cycles(cycles, view)
    latency = np.ma.filled(np.ma.asarray(seen["latency_ns"]), -1)
    if not len(latency) or latency.max() < 0:
        raise InputInvalid("nothing to draw: no SCSI command of the view has a status")
    return int(seen.raw("cycle")[latency.argmax()])
