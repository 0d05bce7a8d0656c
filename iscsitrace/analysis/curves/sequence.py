"""One direction of a connection as tcptrace draws it: segments, ACKs and window over time; with PDUs and commands.

Stream offsets are in bytes, 0 is the first one after the SYN. All times are those at the tap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iscsitrace.analysis.curves import tasks
from iscsitrace.analysis.curves.decimation import BarsMaker, Detail, LineMaker, chunks
from iscsitrace.analysis.curves.marks import Array, Bars, Line, Note
from iscsitrace.analysis.curves.view import View
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value

SEGMENT_CLASSES = ("new", "retransmission", "reordered", "probe")
"""The classes drawn; copies come from the capture, and empty packets have no bytes to draw."""
PDU_LIMIT = 400
"""PDUs in a view beyond which none is marked: the marks would hide the curves."""
NOTE_LIMIT = 24
_FIN, _SYN, _RST = 1, 2, 4
_FLAGS = {_SYN: "SYN", _FIN: "FIN", _RST: "RST"}
_NO_ACK = null_value("int64")
_PDU_KINDS = {0x01: "command", 0x05: "data", 0x21: "response", 0x25: "data", 0x31: "R2T"}


@dataclass(frozen=True)
class Sequence:
    """The curves of one direction."""

    view: View
    packet_count: int
    """Packets of both directions in the view."""
    is_decimated: bool
    segments: dict[str, Bars]
    """By class: from the first byte to the byte after the last."""
    acks: Line
    """Highest offset acknowledged."""
    duplicate_acks: Line
    """ACKs without data that acknowledge nothing new and do not change the window."""
    window: Line
    """Offset up to which the receiver allows data: acknowledged offset plus advertised window."""
    zero_windows: Line
    sacks: Bars
    duplicate_sacks: Bars
    notes: tuple[Note, ...] = ()
    """Packets with SYN, FIN or RST."""
    pdus: dict[str, Line] = field(default_factory=dict)
    """Starts of PDUs by kind: command, data, R2T, response, other."""
    pdu_count: int | None = None
    """PDUs in the view, drawn or not; None where they were not read."""
    tasks: tasks.Tasks = field(default_factory=tasks.Tasks)


def prepare(
    segments: Table, sacks: Table, pdus: Table | None, cycles: Table, view: View, detail: Detail | None = None
) -> Sequence:
    """The curves of the view's connection and direction; InputInvalid without packets."""
    detail = detail or Detail()
    count = _count(segments, view)
    if not count:
        raise InputInvalid(f"nothing to draw: connection {view.connection} has no packets in the view")
    edges = detail.edges(count, view.start_ns, view.end_ns)
    making = _Making(view, edges)
    for rows in chunks(len(segments)):
        making.add(segments, rows)
    selective = _sacks(sacks, view, edges)
    marks, pdu_count = ({}, None) if pdus is None else _pdus(pdus, view)
    return Sequence(
        view=view,
        packet_count=count,
        is_decimated=edges is not None,
        segments={name: maker.bars() for name, maker in making.segments.items()},
        acks=making.acks.line(),
        duplicate_acks=making.duplicates.points(),
        window=making.window.line(),
        zero_windows=making.zero_windows.points(),
        sacks=selective[False],
        duplicate_sacks=selective[True],
        notes=tuple(making.notes[:NOTE_LIMIT]),
        pdus=marks,
        pdu_count=pdu_count,
        tasks=tasks.of_view(cycles, view),
    )


def _count(segments: Table, view: View) -> int:
    times, connections = segments.raw("time_ns"), segments.raw("connection")
    return sum(
        int(((connections[rows] == view.connection) & view.covers(times[rows])).sum()) for rows in chunks(len(segments))
    )


class _Making:
    """Makes the curves from rows of ``segments`` that come in chunks."""

    def __init__(self, view: View, edges_ns: Array | None) -> None:
        self._view = view
        self.segments = {name: BarsMaker(edges_ns) for name in SEGMENT_CLASSES}
        self.acks, self.duplicates, self.window, self.zero_windows = (
            LineMaker(view.start_ns, view.end_ns, edges_ns) for _ in range(4)
        )
        self.notes: list[Note] = []
        # no ACK has this offset
        self._last_ack = _NO_ACK, 0

    def add(self, segments: Table, rows: slice) -> None:
        view = self._view
        is_here = segments.raw("connection")[rows] == view.connection
        # a copy in the capture has no information beyond that of the packet
        is_here &= segments.raw("segment_class")[rows] != CATEGORIES["segment_class"].index("copy")
        is_sent = segments.raw("to_target")[rows] == view.to_target
        self._add_sent(segments, rows, is_here & is_sent)
        self._add_acks(segments, rows, is_here & ~is_sent)

    def _add_sent(self, segments: Table, rows: slice, is_wanted: Array) -> None:
        times = segments.raw("time_ns")[rows]
        is_wanted = is_wanted & self._view.covers(times)
        offsets, lengths = segments.raw("stream_offset_bytes")[rows], segments.raw("payload_bytes")[rows]
        codes, flags = segments.raw("segment_class")[rows], segments.raw("flags")[rows]
        for name, maker in self.segments.items():
            chosen = is_wanted & (lengths > 0) & (codes == CATEGORIES["segment_class"].index(name))
            if chosen.any():
                low = offsets[chosen]
                maker.add(times[chosen], low, low + lengths[chosen])
        for place in np.flatnonzero(is_wanted & (flags & (_SYN | _FIN | _RST) != 0))[:NOTE_LIMIT].tolist():
            words = [word for flag, word in _FLAGS.items() if flags[place] & flag]
            # the SYN takes the number before the first byte
            self.notes.append(Note(int(times[place]), max(0, int(offsets[place])), " ".join(words)))

    def _add_acks(self, segments: Table, rows: slice, is_wanted: Array) -> None:
        acks = segments.raw("ack_offset_bytes")[rows]
        chosen = is_wanted & (acks != _NO_ACK)
        if not chosen.any():
            return
        acks, times = acks[chosen], segments.raw("time_ns")[rows][chosen]
        windows = segments.raw("window_bytes")[rows][chosen].astype(np.int64)
        previous = np.concatenate([[self._last_ack[0]], acks[:-1]])
        previous_window = np.concatenate([[self._last_ack[1]], windows[:-1]])
        self._last_ack = int(acks[-1]), int(windows[-1])
        is_bare = (segments.raw("payload_bytes")[rows][chosen] == 0) & (
            segments.raw("flags")[rows][chosen] & (_SYN | _FIN | _RST) == 0
        )
        is_duplicate = is_bare & (acks == previous) & (windows == previous_window)
        self.acks.add(times, acks)
        self.window.add(times, acks + windows)
        self.duplicates.add(times[is_duplicate], acks[is_duplicate])
        self.zero_windows.add(times[windows == 0], acks[windows == 0])


def _sacks(sacks: Table, view: View, edges_ns: Array | None) -> dict[bool, Bars]:
    times = sacks.raw("time_ns")
    is_here = view.is_of(sacks) & view.covers(times)
    made = {}
    for is_duplicate in (False, True):
        chosen = is_here & (sacks.raw("is_duplicate") == is_duplicate)
        maker = BarsMaker(edges_ns)
        maker.add(times[chosen], sacks.raw("left_offset_bytes")[chosen], sacks.raw("right_offset_bytes")[chosen])
        made[is_duplicate] = maker.bars()
    return made


def _pdus(pdus: Table, view: View) -> tuple[dict[str, Line], int]:
    times = pdus.raw("time_first_ns")
    is_here = view.is_of(pdus) & view.covers(times)
    count = int(is_here.sum())
    if count > PDU_LIMIT:
        return {}, count
    places = np.flatnonzero(is_here)
    kinds = np.array([_PDU_KINDS.get(opcode, "other") for opcode in pdus.raw("opcode")[places].tolist()])
    offsets = pdus.raw("stream_offset_bytes")
    found = {}
    for kind in dict.fromkeys([*_PDU_KINDS.values(), "other"]):
        chosen = places[kinds == kind]
        if len(chosen):
            found[kind] = Line(times[chosen], offsets[chosen])
    return found, count
