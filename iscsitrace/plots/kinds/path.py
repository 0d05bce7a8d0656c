"""Several taps: one-way delays of both directions over time, and where packets were lost."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from iscsitrace.analysis.curves import path as curves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.path import PathCurves
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.taps.reading import tapped
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind
from iscsitrace.plots.scales import TimeAxis, duration
from iscsitrace.tables.trace import Trace


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
    return curves.prepare(taps.between(0, -1), (taps.tap_list[0].name, taps.tap_list[-1].name), view, detail)


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
