"""Segments, ACKs, window, retransmissions and SACKs of one direction over time (tcptrace's key)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style, timeline, xplot
from iscsitrace.plots.kind import Examples, Kind, at_sender, view_of_connection, with_events
from iscsitrace.plots.marks import Array, Bars, BarsMaker, Detail, Label, Series, SeriesMaker, chunks
from iscsitrace.plots.style import ByteAxis, TimeAxis
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Table, null_value
from iscsitrace.tables.trace import TraceTables

SEGMENT_CLASSES = ("new", "retransmission", "reordered", "probe")
"""The classes drawn; copies come from the capture, and empty packets have no bytes to draw."""
PDU_LIMIT = 400
"""PDUs in a view beyond which none is marked: the marks would hide the curves."""
NOTE_LIMIT = 24
_NOTE_NEAR = 0.03
"""Notes whose texts would overlap are no further apart, as a share of the width and of the height."""
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
    acks: Series
    """Highest offset acknowledged."""
    duplicate_acks: Series
    """ACKs without data that acknowledge nothing new and do not change the window."""
    window: Series
    """Offset up to which the receiver allows data: acknowledged offset plus advertised window."""
    zero_windows: Series
    sacks: Bars
    duplicate_sacks: Bars
    notes: tuple[Label, ...] = ()
    """Packets with SYN, FIN or RST."""
    pdus: dict[str, Series] = field(default_factory=dict)
    """Starts of PDUs by kind: command, data, R2T, response, other."""
    pdu_count: int | None = None
    """PDUs in the view, drawn or not; None where they were not read."""
    tasks: timeline.Tasks = field(default_factory=timeline.Tasks)


def compute(
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
        tasks=timeline.tasks_of_view(cycles, view),
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
            SeriesMaker(view.start_ns, view.end_ns, edges_ns) for _ in range(4)
        )
        self.notes: list[Label] = []
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
            self.notes.append(Label(int(times[place]), max(0, int(offsets[place])), " ".join(words)))

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


def _pdus(pdus: Table, view: View) -> tuple[dict[str, Series], int]:
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
            found[kind] = Series(times[chosen], offsets[chosen])
    return found, count


# --- drawing


_SEGMENTS = {
    # class: colour, letter above, label
    "new": (style.BLACK, None, "segment"),
    "retransmission": (style.VERMILLION, "$R$", "retransmission (R)"),
    "reordered": (style.SKY, "$O$", "out of order (O)"),
    "probe": (style.GREY, "$P$", "keep-alive or window probe (P)"),
}
_PDUS = {
    "command": (">", "SCSI Command"),
    "data": ("s", "Data-In, Data-Out"),
    "R2T": ("D", "R2T"),
    "response": ("p", "SCSI Response"),
    "other": ("x", "other PDU"),
}
_CAPPED = 200
"""With more segments than this, they have no marks at their ends (tcptrace has them)."""
_LETTERS = 100
"""With more bars than this, not every bar has its letter."""
_SACK_LETTERS = 30
_LETTER_LIFT_IN = 0.08


def draw(figure: Figure, sequence: Sequence) -> None:
    """Draws the commands above and the graph below, on one time axis."""
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 16))
    time = TimeAxis(sequence.view)
    values = [bars.highs for bars in sequence.segments.values()] + [sequence.acks.values]
    most = max((float(each.max()) for each in values if len(each)), default=0.0)
    places = ByteAxis(most)
    _draw_lines(axes, sequence, time, places)
    for bars, label, letter in (
        (sequence.sacks, "SACK (S)", "$S$"),
        (sequence.duplicate_sacks, "D-SACK (D)", "$D$"),
    ):
        # behind the segments: a tap near the receiver sees both at the same time
        _draw_bars(axes, bars, time, places, style.PURPLE, label, letter, width=2.4, height=2, letters=_SACK_LETTERS)
    for name, (color, letter_of_class, label) in _SEGMENTS.items():
        _draw_bars(axes, sequence.segments.get(name, Bars()), time, places, color, label, letter_of_class)
    for kind, marks in sequence.pdus.items():
        marker, label = _PDUS[kind]
        axes.plot(
            time.of(marks.times_ns), places.of(marks.values), linestyle="none", marker=marker, markersize=4.5,
            color=style.BLUE, markerfacecolor="white", markeredgewidth=1.0, label=f"PDU start: {label}", zorder=4,
        )  # fmt: skip
    for note in joined(sequence.notes, sequence.view, most):
        is_late = note.time_ns > (sequence.view.start_ns + sequence.view.end_ns) // 2
        axes.annotate(
            note.text, (time.at(note.time_ns), places.at(note.value)), xytext=(-3 if is_late else 3, 5),
            textcoords="offset points", ha="right" if is_late else "left", fontsize=7, annotation_clip=True,
        )  # fmt: skip
    time.apply(axes)
    axes.set_ylabel(f"sequence offset of data to the {_receiver(sequence)}, {places.unit}")
    _limit(axes, sequence, places)
    timeline.draw_tasks(strip, sequence.tasks, time)
    style.legend(strip, axes, strip)


def joined(notes: Iterable[Label], view: View, most_bytes: float) -> list[Label]:
    """The notes in order of time, with one text for those whose texts would overlap: ``FIN, RST``."""
    near_ns, near_bytes = _NOTE_NEAR * (view.end_ns - view.start_ns), _NOTE_NEAR * most_bytes
    found: list[Label] = []
    for note in sorted(notes, key=lambda each: each.time_ns):
        last = found[-1] if found else None
        if last is None or note.time_ns - last.time_ns > near_ns or abs(note.value - last.value) > near_bytes:
            found.append(note)
        elif note.text not in last.text.split(", "):
            found[-1] = Label(last.time_ns, last.value, f"{last.text}, {note.text}")
    return found


def notes(sequence: Sequence) -> list[str]:
    """Lists what the graph omits."""
    found = []
    if sequence.is_decimated:
        found.append(
            f"{sequence.packet_count:,} packets; each pixel column keeps its extremes; zoom to see every packet"
        )
    if sequence.pdu_count is None:
        found.append("the capture is large: PDUs are marked only when zoomed in")
    elif sequence.pdu_count and not sequence.pdus:
        found.append(f"{sequence.pdu_count:,} PDUs are too many to mark; zoom in to see them")
    return found


def title(sequence: Sequence) -> str:
    """Names what the graph shows."""
    return f"Time sequence, data to the {_receiver(sequence)}"


def _receiver(sequence: Sequence) -> str:
    return "target" if sequence.view.to_target else "initiator"


def _draw_bars(
    axes: Axes, bars: Bars, time: TimeAxis, places: ByteAxis, color: str, label: str, letter: str | None,
    width: float = 1.2, height: float = 3, letters: int = _LETTERS,
) -> None:  # fmt: skip
    if not len(bars):
        return
    x, low, high = time.of(bars.times_ns), places.of(bars.lows), places.of(bars.highs)
    lines = [((at, start), (at, end)) for at, start, end in zip(x, low, high, strict=True)]
    axes.add_collection(
        LineCollection(lines, colors=color, linewidths=width, label=None if letter else label, zorder=height)
    )
    if letter:
        # above the bar, so that it stays visible
        inches = axes.figure.dpi_scale_trans
        above = axes.transData + ScaledTranslation(0, _LETTER_LIFT_IN, inches)
        axes.plot(
            x, high, linestyle="none", marker=letter, markersize=6, color=color, markeredgewidth=0.4, label=label,
            markevery=-(-len(bars) // letters), transform=above, zorder=height + 2,
        )  # fmt: skip
    elif len(bars) <= _CAPPED:
        axes.plot(x, high, linestyle="none", marker="_", markersize=4, color=color, markeredgewidth=0.8)
        axes.plot(x, low, linestyle="none", marker="_", markersize=4, color=color, markeredgewidth=0.8)


def _draw_lines(axes: Axes, sequence: Sequence, time: TimeAxis, places: ByteAxis) -> None:
    steps = (
        (sequence.window, style.ORANGE, "dashed", "window line: ACK + receive window"),
        (sequence.acks, style.GREEN, "solid", "ACK line"),
    )
    for line, color, dashes, label in steps:
        if len(line):
            x, y = time.of(line.times_ns), places.of(line.values)
            axes.plot(x, y, drawstyle="steps-post", color=color, linestyle=dashes, label=label)
    points = (
        (sequence.duplicate_acks, style.GREEN, 3, "duplicate ACK"),
        (sequence.zero_windows, style.VERMILLION, "$Z$", "zero window (Z)"),
    )
    for marks, color, marker, label in points:
        _draw_points(axes, marks, time, places, color, marker, label)


def _draw_points(
    axes: Axes, marks: Series, time: TimeAxis, places: ByteAxis, color: str, marker: str | int, label: str
) -> None:
    if len(marks):
        x, y = time.of(marks.times_ns), places.of(marks.values)
        axes.plot(x, y, linestyle="none", marker=marker, markersize=5, color=color, label=label)


def _limit(axes: Axes, sequence: Sequence, places: ByteAxis) -> None:
    """Sets limits around segments and ACKs: the window line may be far above them."""
    lows = [bars.lows.min() for bars in sequence.segments.values() if len(bars)]
    highs = [bars.highs.max() for bars in sequence.segments.values() if len(bars)]
    if len(sequence.acks):
        lows.append(sequence.acks.values.min())
        highs.append(sequence.acks.values.max())
    low, high = (places.at(float(each)) for each in (min(lows, default=0), max(highs, default=1)))
    room = max((high - low) * 0.08, places.at(1000 if high > places.at(1000) else 100))
    top = high + room
    if len(sequence.window):
        # the window line is shown as long as the segments keep a third of the height
        reached = places.at(float(sequence.window.values.max()))
        top = min(max(top, reached + room / 2), high + 2 * max(high - low, room))
    axes.set_ylim(low - room, top)


_XPLOT_SEGMENTS = {
    "new": ("white", ""),
    "retransmission": ("red", "R"),
    "reordered": ("pink", "O"),
    "probe": ("blue", "P"),
}
_XPLOT_PDUS = {"command": "rtick", "data": "box", "R2T": "diamond", "response": "plus", "other": "x"}


def in_xplot(sequence: Sequence, title: str) -> Iterator[str]:
    """The lines of a time-sequence graph."""
    yield from xplot.head(title, "sequence number")
    yield from xplot.steps(sequence.acks, "green")
    yield from xplot.points(sequence.duplicate_acks, "dtick", "green")
    yield from xplot.steps(sequence.window, "yellow")
    for time_ns, value in xplot.pairs(sequence.zero_windows):
        yield from (f"atext {xplot.time(time_ns)} {value} red", "Z")
    for name, (color, letter) in _XPLOT_SEGMENTS.items():
        for time_ns, low, high in xplot.triples(sequence.segments.get(name, Bars())):
            at = xplot.time(time_ns)
            yield from (
                f"darrow {at} {low} {color}",
                f"uarrow {at} {high} {color}",
                f"line {at} {low} {at} {high} {color}",
            )
            if letter:
                yield from (f"atext {at} {high} {color}", letter)
    for bars, letter in ((sequence.sacks, "S"), (sequence.duplicate_sacks, "D")):
        for time_ns, low, high in xplot.triples(bars):
            at = xplot.time(time_ns)
            yield from (f"line {at} {low} {at} {high} purple", f"htick {at} {low} purple", f"htick {at} {high} purple")
            yield from (f"rtext {at} {high} purple", letter)
    for kind, marks in sequence.pdus.items():
        yield from xplot.points(marks, _XPLOT_PDUS[kind], "magenta")
    for note in sequence.notes:
        yield from (f"atext {xplot.time(note.time_ns)} {note.value} orange", note.text)
    yield "go"


def prepare(trace: TraceTables, view: View, detail: Detail) -> Sequence:
    """The curves of a view."""
    _, table = at_sender(trace, view)
    pdus = table("pdus") if "pdus" in trace.options["tables"] else None
    return compute(table("segments"), table("sacks"), pdus, trace.cycles, view, detail)


def _pictures(examples: Examples) -> Iterator[tuple[str, Zoom]]:
    if examples.around_slowest is not None:
        yield "Packets around the slowest", examples.around_slowest


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="A bar is a segment. The green line shows what the receiver has acknowledged, the dashed line its "
    "receive window. The slope is the throughput; a flat stretch is a pause. R marks a retransmission.",
    tables=with_events("segments", "sacks"),
    zoomed_tables=("pdus",),
    view=view_of_connection,
    is_at_sender=True,
    xplot=in_xplot,
    pictures=_pictures,
    place=4,
)
