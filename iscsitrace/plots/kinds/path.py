"""Several taps: one-way delays of both directions over time, and where packets were lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import style
from iscsitrace.plots.decimation import Detail, extremes
from iscsitrace.plots.kind import Kind
from iscsitrace.plots.marks import Array, Line
from iscsitrace.plots.scales import TimeAxis, duration
from iscsitrace.plots.view import View
from iscsitrace.tables.trace import Trace
from iscsitrace.taps.network import Delays, Network
from iscsitrace.taps.reading import tapped


@dataclass(frozen=True)
class PathCurves:
    """Delays between two neighbouring taps; ns."""

    view: View
    names: tuple[str, str]
    to_target: Line
    to_initiator: Line
    unsure_ns: int
    """Half of what the bounds of the clocks leave open: one direction gains what the other loses."""
    lost_to_target_ns: Array
    """When lost packets passed the sender's tap."""
    lost_to_initiator_ns: Array


def compute(network: Network, names: tuple[str, str], view: View, detail: Detail) -> PathCurves:
    """The delays of a view; InputInvalid where there are none."""
    out, back = (_line(each, view, detail) for each in (network.to_target, network.to_initiator))
    if not len(out) and not len(back):
        raise InputInvalid("nothing to draw: no packet of the view passed both taps")
    unsure_ns = (network.clock.high_ns - network.clock.low_ns) // 2
    lost_out, lost_back = (_lost(network, view, to_target=way) for way in (True, False))
    return PathCurves(view, names, out, back, unsure_ns, lost_out, lost_back)


def _line(delays: Delays, view: View, detail: Detail) -> Line:
    inside = (delays.time_ns >= view.start_ns) & (delays.time_ns <= view.end_ns)
    times, values = delays.time_ns[inside], delays.delay_ns[inside]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    edges = detail.edges(len(times), view.start_ns, view.end_ns)
    kept = slice(None) if edges is None else extremes(times, values, edges)
    return Line(times[kept], values[kept])


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
    for axes, (name, delays, lost, color) in zip(panels, directions, strict=True):
        axes.plot(
            time.of(delays.times_ns), delays.values, linestyle="none", marker=".", markersize=2, color=color,
            label=f"one-way delay {name}",
        )  # fmt: skip
        if len(lost):
            axes.plot(
                time.of(lost), [0.02] * len(lost), linestyle="none", marker="X", color=style.VERMILLION, markersize=6,
                markeredgecolor="white", markeredgewidth=0.5, transform=axes.get_xaxis_transform(), clip_on=False,
                label="lost between the taps",
            )  # fmt: skip
        axes.set_ylabel(name)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    panels[0].set_ylim(bottom=0)
    time.apply(panels[1])
    style.legend(panels[0], *panels, columns=3)


def notes(path: PathCurves) -> list[str]:
    """What the bounds of the clocks leave open."""
    if not path.unsure_ns:
        return []
    return [f"by the clocks' bounds one direction may be slower by up to {duration(path.unsure_ns)}, the other faster"]


def title(path: PathCurves) -> str:
    """Names what the panels show."""
    return f"One-way delays between {path.names[0]} and {path.names[1]}"


def prepare(trace: Trace, view: View, detail: Detail) -> PathCurves:
    """The delays of a view, between the first tap and the last."""
    taps = tapped(trace)
    return compute(taps.between(0, -1), (taps.tap_list[0].name, taps.tap_list[-1].name), view, detail)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="A delay that rises and falls is a queue. A red cross is a packet that the network lost.",
    has_timeline=False,
    is_of_taps=True,
    place=9,
)
