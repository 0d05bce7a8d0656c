"""Packets of one or a few commands between initiator, tap and target, with idle spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from iscsitrace.measure import waits
from iscsitrace.plots import ladder_columns, style
from iscsitrace.plots.kind import Examples, Kind, view_of_commands, view_of_connection
from iscsitrace.plots.ladder_columns import NO_TIME, Ladder, LadderPackets, Middle, Pdu
from iscsitrace.plots.marks import Array, Detail
from iscsitrace.plots.style import TimeAxis, duration
from iscsitrace.plots.view import View, Zoom, picked_cycles
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import crossings
from iscsitrace.taps.reading import TappedTables
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import size
from iscsitrace.wording.parts import BY_NAME

_LABEL_GAP = 0.026
"""Smallest distance between two labels, as a share of the height."""
_LABELLED_SHARE = 0.03
"""Smallest span, as a share of the height, that has room for its name."""
_MIDDLE_SHARE = 0.12
"""Height of the middle that is left out, as a share of the rest."""
_COLUMN = (1.42, 0.05)
"""Position and width of the column of the time breakdown."""


def draw(figure: Figure, ladder: Ladder) -> None:
    """Draws the diagram, and the time breakdown beside it."""
    axes = figure.subplots()
    time = _LadderTime(ladder)
    axes.set_ylim(time.at(ladder.view.end_ns), time.at(ladder.view.start_ns))
    axes.set_xlim(-0.42, 2.0 if ladder.stretches else 1.5)
    axes.set_ylabel(time.label)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    _draw_uprights(axes, ladder, time)
    _draw_stretches(axes, ladder, time)
    _draw_packets(axes, ladder, ladder.acks, time, style.GREEN, 0.6, "packet without data (ACK)", "dashed")
    _draw_packets(axes, ladder, ladder.data, time, style.BLUE, 0.5, "packet with data")
    _draw_packets(axes, ladder, ladder.again, time, style.VERMILLION, 1.2, "retransmission")
    _draw_packets(axes, ladder, ladder.unseen, time, style.GREY, 0.6, "only one capture has it", "dotted")
    _draw_lost(axes, ladder, time)
    _draw_pdus(axes, ladder, time)
    if ladder.middle is not None:
        time.mark(axes)
        _draw_middle(axes, ladder.middle, time)
    style.legend(axes, axes, columns=6, lift=0.035)


def notes(ladder: Ladder) -> list[str]:
    """Lists what the diagram assumes and omits."""
    if ladder.is_of_taps:
        taps = [f"tap {column.tap} at the {column.host}" for column in ladder.columns if column.tap and column.host]
        found = ["; ".join(["times are those at each tap, on the clock of the first", *taps])]
        hosts = [column.host for column in ladder.columns if not column.tap]
        if hosts:
            found.append(f"times at the {' and the '.join(hosts)} are estimated from half the minimum RTT to it")
    else:
        found = ["times are measured at the tap; times at the hosts are estimated from half of each side's minimum RTT"]
    if ladder.middle is not None:
        found.append("the middle is left out: only the first and the last bursts are drawn; --cycle with --from and "
                     "--to shows a part of it")  # fmt: skip
    if not ladder.stretches:
        found.append("no time breakdown for this view: idle spans are not shaded")
    return found


def title(ladder: Ladder) -> str:
    """Names what the diagram shows."""
    named = [
        f"{name} {size(amount)}" if amount else name for name, amount in zip(ladder.cycles, ladder.sizes, strict=True)
    ]
    if not named:
        return "Packets between initiator and target, no command"
    if len(named) > 3:
        return f"Packets between initiator and target, commands {named[0]} to {named[-1]}"
    return f"Packets between initiator and target, command {', '.join(named)}"


class _LadderTime(TimeAxis):
    """The time axis, with the middle of a long command shortened to a share of the height."""

    def __init__(self, ladder: Ladder) -> None:
        super().__init__(ladder.view)
        view, middle = ladder.view, ladder.middle
        self._ends = (view.end_ns, view.end_ns) if middle is None else (middle.start_ns, middle.end_ns)
        self._parts = [(view.start_ns, self._ends[0]), (self._ends[1], view.end_ns)]
        shown = sum(super(_LadderTime, self).at(high) - super(_LadderTime, self).at(low) for low, high in self._parts)
        low, high = (super(_LadderTime, self).at(each) for each in self._ends)
        self._cut = 0.0 if middle is None else max(0.0, high - low - _MIDDLE_SHARE * shown)
        self._low, self._length = low, high - low

    def of(self, times_ns: Array) -> Array:
        """Times on this axis."""
        return self._placed(super().of(times_ns))

    def at(self, time_ns: int) -> float:
        """One time on this axis."""
        return float(self._placed(np.array(super().at(time_ns))))

    def _placed(self, values: Array) -> Array:
        share = np.clip((values - self._low) / self._length, 0, 1) if self._length else 0.0
        return np.asarray(values - share * self._cut)

    def is_middle(self, place: float) -> bool:
        """Whether a place on the axis is in the middle that is left out."""
        return self._low < place < self._low + self._length - self._cut

    def mark(self, axes: Axes) -> None:
        """Sets ticks at round times outside the middle."""
        places, texts = [], []
        for low, high in self._parts:
            first, last = (super(_LadderTime, self).at(each) for each in (low, high))
            for value in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(first, last):
                if first <= value <= last:
                    places.append(float(self._placed(np.array(value))))
                    texts.append(f"{value:g}")
        axes.set_yticks(places, texts)


def _draw_middle(axes: Axes, middle: Middle, time: _LadderTime) -> None:
    """Draws a band over all columns that names what it leaves out."""
    low, high = time.at(middle.start_ns), time.at(middle.end_ns)
    axes.axhspan(low, high, facecolor="white", edgecolor=style.BLACK, linestyle="dotted", linewidth=0.8, zorder=6)
    counts = [f"{number:,} {title}" for title, number in middle.pdus.items()]
    if middle.data_count:
        counts.append(count(middle.data_count, "packet with data", "packets with data"))
    if middle.again_count:
        counts.append(count(middle.again_count, "retransmission"))
    if middle.ack_count:
        counts.append(count(middle.ack_count, "ACK"))
    dots, took = "\N{HORIZONTAL ELLIPSIS}", duration(middle.end_ns - middle.start_ns)
    text = f"{dots} {', '.join(counts)} in {took} {dots}"
    parts = ", ".join(f"{duration(ns)} {BY_NAME[part].label}" for part, ns in list(middle.parts_ns.items())[:3])
    axes.text(
        0.5, (low + high) / 2, f"{text}\n{parts}" if parts else text, ha="center", va="center", fontsize=8.5, zorder=7
    )


def _draw_uprights(axes: Axes, ladder: Ladder, time: TimeAxis) -> None:
    low, high = time.at(ladder.view.end_ns), time.at(ladder.view.start_ns)
    for column in ladder.columns:
        place, is_host = column.place, bool(column.host)
        dashes, width = ("solid", 1.2) if is_host else ("dashed", 0.9)
        axes.plot([place, place], [low, high], color=style.BLACK, linewidth=width, linestyle=dashes)
        if is_host:
            side = "right" if place < 0.5 else "left"
            text = f"{column.host} " if side == "right" else f" {column.host}"
            axes.text(place, high, text, ha=side, va="bottom", fontweight="bold")
        else:
            # a tap at a host: keep clear of the host's name
            shift = 0.06 if place < 0.5 else -0.06
            at = place + (shift if place < 0.2 or place > 0.8 else 0)
            axes.text(at, high, column.tap or "tap", ha="center", va="bottom", fontsize=8)


def _ways(ladder: Ladder, packets: LadderPackets, time: TimeAxis) -> list[list[tuple[float, float]]]:
    """Points of each packet in the plot, from the initiator to the target."""
    if not len(packets):
        return []
    is_shown = packets.times_ns != NO_TIME
    # a time that is not shown has any place
    times = np.where(is_shown, packets.times_ns, packets.times_ns.max())
    places = [column.place for column in ladder.columns]
    rows = np.stack([time.of(column) for column in times.T], axis=1).tolist()
    return [
        [(place, at) for place, at, is_there in zip(places, row, there, strict=True) if is_there]
        for row, there in zip(rows, is_shown.tolist(), strict=True)
    ]


def _draw_lost(axes: Axes, ladder: Ladder, time: TimeAxis) -> None:
    """Draws packets that were lost, to the middle between the taps, or between an only tap and the receiver."""
    ways, ends = [], []
    for points, to_target in zip(_ways(ladder, ladder.lost, time), ladder.lost.to_target.tolist(), strict=True):
        # from the sender's tap, and from its host where that is estimated
        *way, (x, y), (due_x, due_y) = points if to_target else reversed(points)
        ends.append(((x + due_x) / 2, (y + due_y) / 2))
        ways.append([*way, (x, y), ends[-1]])
    if ways:
        axes.add_collection(LineCollection(ways, colors=style.VERMILLION, linewidths=0.9, zorder=3))
        axes.plot(
            *zip(*ends, strict=True), linestyle="none", marker="X", markersize=8, color=style.VERMILLION,
            markeredgecolor="white", markeredgewidth=0.6, zorder=5,
            label="lost between the taps" if ladder.is_of_taps else "lost beyond the tap, retransmitted later",
        )  # fmt: skip


def _draw_packets(
    axes: Axes,
    ladder: Ladder,
    packets: LadderPackets,
    time: TimeAxis,
    color: str,
    width: float,
    label: str,
    dashes: str = "solid",
) -> None:
    if not len(packets):
        return
    ways = _ways(ladder, packets, time)
    axes.add_collection(LineCollection(ways, colors=color, linewidths=width, linestyles=dashes, label=label, zorder=3))
    # an arrow head at the receiver
    arrived = [(way[-1] if out else way[0]) for way, out in zip(ways, packets.to_target.tolist(), strict=True)]
    for out, marker in ((True, 5), (False, 4)):
        points = [
            point for point, to_target in zip(arrived, packets.to_target.tolist(), strict=True) if to_target == out
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, linestyle="none", marker=marker, markersize=3.5, color=color, markeredgewidth=0)


def _draw_pdus(axes: Axes, ladder: Ladder, time: _LadderTime) -> None:
    """Draws data PDUs as bands from first to last byte, and their names beside the hosts without overlap."""
    bands = []
    names: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
    for pdu in ladder.pdus:
        rows = [[NO_TIME if each is None else each for each in times] for times in (pdu.first_ns, pdu.last_ns)]
        ends = _ways(ladder, LadderPackets(np.array(rows), np.array([pdu.to_target] * 2)), time)
        if rows[1] != rows[0] and pdu.data_bytes and len(ends[0]) > 1:
            bands.append([*ends[0], *reversed(ends[1])])
        if pdu.has_status:
            names[True].append((ends[1][0][1], "status complete"))
    near_ns = int((ladder.view.end_ns - ladder.view.start_ns) * _LABEL_GAP)
    for to_target, labels in names.items():
        labels += [(time.at(sent_ns), text) for text, sent_ns in _names(ladder, to_target, near_ns)]
    if bands:
        color = style.SKY
        axes.add_collection(
            PolyCollection(bands, facecolors=color, alpha=0.25, label="Data-In or Data-Out PDU", zorder=2)
        )
    low, high = axes.get_ylim()
    gap = abs(low - high) * _LABEL_GAP
    for is_initiator, labels in names.items():
        shown = [(at, text) for at, text in sorted(labels) if high <= at <= low and not time.is_middle(at)]
        for (at, text), place in zip(shown, _apart([at for at, _ in shown], gap, high, low), strict=True):
            axes.annotate(
                text, (0.0 if is_initiator else 1.0, at), xytext=(-0.02 if is_initiator else 1.02, place),
                ha="right" if is_initiator else "left", va="center", fontsize=8, zorder=8,
                arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": style.GREY},
            )  # fmt: skip


def _apart(places: list[float], gap: float, start: float, end: float) -> list[float]:
    """Places in order, moved on until they are a gap apart, and back where they would be beyond the end."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap if found else start + gap / 2))
    for number in reversed(range(len(found))):
        found[number] = min(found[number], end)
        end = found[number] - gap
    return found


def _names(ladder: Ladder, to_target: bool, near_ns: int) -> list[tuple[str, int]]:
    """Name and time at the sender of the PDUs of one direction; consecutive PDUs of one name and size are merged."""
    runs: list[list[Pdu]] = []
    for pdu in ladder.pdus:
        if pdu.to_target != to_target:
            continue
        last = runs[-1][-1] if runs else None
        is_same = last is not None and (last.title, last.data_bytes) == (pdu.title, pdu.data_bytes)
        if last is not None and is_same and pdu.sent_ns - last.sent_ns < near_ns:
            runs[-1].append(pdu)
        else:
            runs.append([pdu])
    found = []
    for run in runs:
        name = f"{run[0].title} {size(run[0].data_bytes)}" if run[0].data_bytes else run[0].title
        found.append((f"{len(run)} x {name}" if len(run) > 1 else name, _shown_ns(ladder.view, run[0])))
    return found


def _shown_ns(view: View, pdu: Pdu) -> int:
    """When a PDU was sent; if only its sender is before the start of the view, that."""
    is_within = any(time_ns is not None and time_ns >= view.start_ns for time_ns in pdu.first_ns)
    return max(pdu.sent_ns, view.start_ns) if is_within else pdu.sent_ns


def _draw_stretches(axes: Axes, ladder: Ladder, time: TimeAxis) -> None:
    if not ladder.stretches:
        return
    view = ladder.view
    place, width = _COLUMN
    axes.text(place, time.at(view.start_ns), "time breakdown", ha="left", va="bottom", fontsize=8)
    named = set[str]()
    for stretch in ladder.stretches:
        start, end = time.at(stretch.start_ns), time.at(stretch.end_ns)
        part = BY_NAME[stretch.part]
        if part.name != "transfer":
            label = None if named - {"transfer"} else "idle span at the tap"
            axes.fill_between([0, 1], start, end, color="#efefef", linewidth=0, label=label, zorder=0)
        axes.barh(
            (start + end) / 2,
            width,
            left=place,
            height=end - start,
            color=part.color,
            hatch=part.hatch,
            edgecolor="white" if part.hatch else "none",
            linewidth=0.2,
            label=None if part.name in named else part.label,
        )
        named.add(part.name)
        if end - start > _LABELLED_SHARE * (time.at(view.end_ns) - time.at(view.start_ns)):
            axes.text(
                place + width + 0.02, (start + end) / 2, f"{duration(stretch.end_ns - stretch.start_ns)} {part.label}",
                va="center", fontsize=7.5,
            )  # fmt: skip


def prepare(trace: TraceTables, view: View, detail: Detail) -> Ladder:
    """The packets of a view; ``detail`` has no effect."""
    between = crossings.of_connection(trace, view.connection) if isinstance(trace, TappedTables) else None
    return ladder_columns.compute(
        trace.connections, trace.cycles, trace.segments, trace.pdus, trace.budget, view, between, trace.retransmissions
    )  # fmt: skip


def _view(trace: TraceTables, zoom: Zoom, origin_ns: int) -> View:
    """One connection during the requested commands or times, else during the slowest command."""
    has_times = zoom.time_from_ns is not None or zoom.time_to_ns is not None
    if zoom.cycles is None and not has_times:
        among = view_of_commands(trace, zoom, origin_ns)
        number = ladder_columns.slowest(trace.cycles, waits.of_trace(trace.table), among)
        zoom = replace(zoom, cycles=range(number, number + 1))
    seen = view_of_connection(trace, zoom, origin_ns)
    return seen if has_times else _close(trace, seen)


def _close(trace: TraceTables, seen: View) -> View:
    """With margins of a round trip at most: in those of a command that took many, other commands may pass."""
    row = next(each for each in trace.connections.rows() if each["connection"] == seen.connection)
    both = row["rtt_to_initiator_min_ns"], row["rtt_to_target_min_ns"]
    commands = trace.cycles.select(picked_cycles(trace.cycles, seen)).raw("command_first_ns")
    if None in both or not len(commands):
        return seen
    beyond_ns = int(commands.min()) - seen.start_ns - sum(both)
    return seen if beyond_ns <= 0 else replace(seen, start_ns=seen.start_ns + beyond_ns, end_ns=seen.end_ns - beyond_ns)


def _pictures(examples: Examples) -> Iterator[tuple[str, Zoom]]:
    if examples.typical is not None:
        yield "A typical command", examples.command(examples.typical)
    if examples.slowest is not None and examples.slowest != examples.typical:
        yield "The slowest command", examples.command(examples.slowest)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="Time runs downwards; packets cross from one host to the other. Shaded spans are idle at the tap; the "
    "column on the right shows the time breakdown.",
    tables=("segments", "pdus", "budget", "retransmissions"),
    has_timeline=False,
    view=_view,
    pictures=_pictures,
    place=3,
)
