"""Several taps: one-way delays of both directions over time, and where packets were lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind
from iscsitrace.plots.marks import Array, Detail, Series, even_edges, extremes
from iscsitrace.plots.style import TimeAxis, duration
from iscsitrace.plots.view import View
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.network import Delays, Network
from iscsitrace.taps.reading import tapped

_STEPS = 300
"""Steps of the bands."""


@dataclass(frozen=True)
class Band:
    """The least and the greatest value of each step of time; NaN where it has none."""

    edges_ns: Array
    lows: Array
    highs: Array


@dataclass(frozen=True)
class PathCurves:
    """Delays between two neighbouring taps; ns."""

    view: View
    names: tuple[str, str]
    to_target: Series
    """By the estimated offset of the clocks, as the medians of the table ``taps``."""
    to_initiator: Series
    unsure_ns: int
    """So much longer every delay of one direction may be, or shorter: what the bounds of the clocks leave open. The
    other direction is shorter by as much, or longer: only the sum of both is measured.
    """
    round_trip_ns: int | None
    """The least delay of both directions together, which no clock has a part in; None where one has no packets."""
    bands: tuple[Band, Band]
    """Where the delays may be, to the target and to the initiator."""
    lost_to_target_ns: Array
    """When lost packets passed the sender's tap."""
    lost_to_initiator_ns: Array


def compute(network: Network, names: tuple[str, str], view: View, detail: Detail) -> PathCurves:
    """The delays of a view; InputInvalid where there are none."""
    clock = network.clock
    out, back = (_of_view(each, view) for each in (network.to_target, network.to_initiator))
    if not len(out) and not len(back):
        raise InputInvalid("nothing to draw: no packet of the view passed both taps")
    # B's clock may be as far ahead as high_ns: then what reaches B was as much faster
    ahead_ns, behind_ns = clock.high_ns - clock.offset_ns, clock.offset_ns - clock.low_ns
    lost_out, lost_back = (_lost(network, view, to_target=way) for way in (True, False))
    return PathCurves(
        view=view,
        names=names,
        to_target=_thinned(out, view, detail),
        to_initiator=_thinned(back, view, detail),
        unsure_ns=max(ahead_ns, behind_ns),
        round_trip_ns=int(out.values.min() + back.values.min()) if len(out) and len(back) else None,
        bands=(_band(out, ahead_ns, behind_ns, view), _band(back, behind_ns, ahead_ns, view)),
        lost_to_target_ns=lost_out,
        lost_to_initiator_ns=lost_back,
    )


def _of_view(delays: Delays, view: View) -> Series:
    inside = (delays.time_ns >= view.start_ns) & (delays.time_ns <= view.end_ns)
    times, values = delays.time_ns[inside], delays.delay_ns[inside]
    order = np.argsort(times, kind="stable")
    return Series(times[order], values[order])


def _thinned(line: Series, view: View, detail: Detail) -> Series:
    edges = detail.edges(len(line), view.start_ns, view.end_ns)
    kept = slice(None) if edges is None else extremes(line.times_ns, line.values, edges)
    return Series(line.times_ns[kept], line.values[kept])


def _band(delays: Series, shorter_ns: int, longer_ns: int, view: View) -> Band:
    """From the least that the delays of each step may be to the greatest."""
    edges = even_edges(view.start_ns, view.end_ns + 1, _STEPS)
    place = np.searchsorted(edges, delays.times_ns, side="right") - 1
    lows, highs = np.full(len(edges) - 1, np.inf), np.full(len(edges) - 1, -np.inf)
    np.minimum.at(lows, place, np.maximum(delays.values - shorter_ns, 0))
    np.maximum.at(highs, place, delays.values + longer_ns)
    is_empty = lows > highs
    lows[is_empty] = highs[is_empty] = np.nan
    return Band(edges, lows, highs)


def _lost(network: Network, view: View, *, to_target: bool) -> Array:
    """On the clock of the first tap."""
    if network.packets is None:
        return np.empty(0, dtype=np.int64)
    losses = network.packets.losses
    which = (losses["verdict"] == "lost_in_network") & (losses.raw("to_target") == to_target)
    times = losses.raw("time_ns")[which]
    if not to_target:
        times = network.clock.to_a(times, times - network.clock.offset_ns)
    return np.sort(times[(times >= view.start_ns) & (times <= view.end_ns)])


# --- drawing


def draw(figure: Figure, path: PathCurves) -> None:
    """Draws a panel for each direction."""
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    time = TimeAxis(path.view)
    directions = (
        ("to the target", path.to_target, path.lost_to_target_ns, style.SKY),
        ("to the initiator", path.to_initiator, path.lost_to_initiator_ns, style.BLUE),
    )
    for axes, (name, delays, lost, color), band in zip(panels, directions, path.bands, strict=True):
        if path.unsure_ns:
            axes.stairs(
                band.highs, time.of(band.edges_ns), baseline=band.lows, fill=True, color=style.GREY, alpha=0.22,
                linewidth=0,
                label=f"up to {duration(path.unsure_ns)} more or less: the offset of the clocks is estimated",
            )  # fmt: skip
        axes.plot(
            time.of(delays.times_ns), delays.values, linestyle="none", marker=".", markersize=2, color=color,
            label=f"delay {name}",
        )  # fmt: skip
        if len(lost):
            axes.plot(
                time.of(lost), [0.02] * len(lost), linestyle="none", marker="X", color=style.VERMILLION, markersize=6,
                markeredgecolor="white", markeredgewidth=0.5, transform=axes.get_xaxis_transform(), clip_on=False,
                label="lost between the taps",
            )  # fmt: skip
        axes.set_ylabel(name)
        style.show_durations(axes)
    panels[0].set_ylim(bottom=0)
    time.apply(panels[1])
    style.legend(panels[0], *panels, columns=4)


def notes(path: PathCurves) -> list[str]:
    """What is measured, and what the bounds of the clocks leave open."""
    found = []
    if path.round_trip_ns is not None:
        found.append(f"both directions together take {duration(path.round_trip_ns)} or more: measured")
    if path.unsure_ns:
        found.append(
            "the split between the directions is estimated: where one is longer by up to "
            f"{duration(path.unsure_ns)}, the other is shorter by as much; how a delay varies is measured"
        )
    return found


def title(path: PathCurves) -> str:
    """Names what the panels show."""
    return f"One-way delays between {path.names[0]} and {path.names[1]}"


def prepare(trace: TraceTables, view: View, detail: Detail) -> PathCurves:
    """The delays of a view, between the first tap and the last."""
    taps = tapped(trace)
    return compute(taps.between(0, -1), (taps.tap_list[0].name, taps.tap_list[-1].name), view, detail)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="A delay that rises and falls is a queue. The band is what the clocks leave open. A red cross is a "
    "packet that the network lost.",
    has_timeline=False,
    is_of_taps=True,
    place=9,
)
