"""Segments, ACKs, window, retransmissions and SACKs of one direction over time (tcptrace's key)."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from iscsitrace.analysis.curves import sequence as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.examples import Examples
from iscsitrace.analysis.curves.marks import Bars, Line
from iscsitrace.analysis.curves.sequence import Sequence
from iscsitrace.analysis.curves.view import View, Zoom
from iscsitrace.plots import command_strip, style, xplot
from iscsitrace.plots.kind import Kind, at_sender, view_of_connection, with_events
from iscsitrace.plots.scales import ByteAxis, TimeAxis
from iscsitrace.tables.trace import Trace

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
    places = ByteAxis(max((float(each.max()) for each in values if len(each)), default=0.0))
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
    for note in sequence.notes:
        is_late = note.time_ns > (sequence.view.start_ns + sequence.view.end_ns) // 2
        axes.annotate(
            note.text, (time.at(note.time_ns), places.at(note.value)), xytext=(-3 if is_late else 3, 5),
            textcoords="offset points", ha="right" if is_late else "left", fontsize=7, annotation_clip=True,
        )  # fmt: skip
    time.apply(axes)
    axes.set_ylabel(f"sequence offset of data to the {_receiver(sequence)}, {places.unit}")
    _limit(axes, sequence, places)
    command_strip.draw(strip, sequence.tasks, time)
    style.legend(strip, axes, strip)


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
    axes: Axes, marks: Line, time: TimeAxis, places: ByteAxis, color: str, marker: str | int, label: str
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
    room = max((high - low) * 0.08, places.at(1000))
    top = high + room
    if len(sequence.window):
        # the window line is shown as long as the segments keep a third of the height
        reached = places.at(float(sequence.window.values.max()))
        top = min(max(top, reached + room / 2), high + 2 * max(high - low, room))
    axes.set_ylim(low - room, top)


def prepare(trace: Trace, view: View, detail: Detail) -> Sequence:
    """The curves of a view."""
    _, table = at_sender(trace, view)
    pdus = table("pdus") if "pdus" in trace.options["tables"] else None
    return curves.prepare(table("segments"), table("sacks"), pdus, trace.cycles, view, detail)


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
    xplot=xplot.of_sequence,
    pictures=_pictures,
    place=4,
)
