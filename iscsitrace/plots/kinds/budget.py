"""The time breakdown: its parts over time, and in total."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.analysis.curves import budget as curves
from iscsitrace.analysis.curves.budget import BudgetCurves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.steps import edges
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.taps import places
from iscsitrace.analysis.taps.places import Place, Verdict
from iscsitrace.analysis.taps.reading import TappedTrace
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.scales import TimeAxis, duration, step_note
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import percent
from iscsitrace.wording.parts import BY_NAME, PARTS

_NAMED_SHARE = 0.06
"""Smallest share that has room for its percentage."""
_TWO_LINES = 5
"""Most bars whose names have room for two lines."""
_PLACES: Final[dict[Place, tuple[str, str]]] = {
    "network": ("network", BY_NAME["propagation"].color),
    "target": ("target", BY_NAME["target_service"].color),
    "initiator": ("initiator's host", BY_NAME["initiator_service"].color),
}


def draw(figure: Figure, budget: BudgetCurves) -> None:
    """Draws both panels."""
    count = len(budget.totals_ns) + len(budget.places)
    over_time, totals = figure.subplots(2, 1, height_ratios=(5, 1 + 0.35 * count))
    time = TimeAxis(budget.view)
    edges = time.of(budget.edges_ns)
    below = np.zeros(len(edges) - 1)
    left = dict.fromkeys(budget.totals_ns, 0.0)
    for number, part in enumerate(PARTS):
        shares = budget.shares[number] * 100
        sums = {scope: float(spent[number] / spent.sum() * 100) for scope, spent in budget.totals_ns.items()}
        if not shares.any() and not any(sums.values()):
            continue
        over_time.stairs(
            below + shares, edges, baseline=below, fill=True, color=part.color, hatch=part.hatch, edgecolor="white",
            linewidth=0, label=part.label,
        )  # fmt: skip
        below = below + shares
        for place, (scope, share) in enumerate(sums.items()):
            totals.barh(
                place, share, left=left[scope], height=0.75, color=part.color, hatch=part.hatch, edgecolor="white",
                linewidth=0.4,
            )  # fmt: skip
            if share >= _NAMED_SHARE * 100:
                _name(totals, left[scope] + share / 2, place, percent(share / 100))
            left[scope] += share
    for place, verdict in enumerate(budget.places, start=len(budget.totals_ns)):
        _draw_places(totals, verdict, place)
    time.apply(over_time)
    over_time.set_ylim(0, 100)
    over_time.set_ylabel("% of busy time")
    totals.set_xlim(0, 100)
    totals.set_ylim(count - 0.4, -0.6)
    between = "\n" if count <= _TWO_LINES else ", "
    names = [f"{scope}{between}{duration(float(parts.sum()))}" for scope, parts in budget.totals_ns.items()]
    names += [f"session {verdict.session}\nby place" for verdict in budget.places]
    totals.set_yticks(range(count), names)
    totals.set_xlabel("% of the busy time: reads and writes, and think time between them")
    totals.grid(visible=False, axis="y")
    style.legend(over_time, over_time, columns=4)


def _draw_places(totals: Axes, verdict: Verdict, place: int) -> None:
    """Draws the shares of each place, with its name: there is no time over which all of them add up."""
    left = 0.0
    for name, share in verdict.shares.items():
        text, color = _PLACES[name]
        totals.barh(place, share * 100, left=left, height=0.75, color=color, edgecolor="white", linewidth=0.4)
        if share >= 2 * _NAMED_SHARE:
            _name(totals, left + share * 50, place, f"{text} {percent(share)}")
        left += share * 100


def _name(totals: Axes, x: float, place: int, text: str) -> None:
    totals.text(
        x, place, text, ha="center", va="center", fontsize=8,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )  # fmt: skip


def notes(budget: BudgetCurves) -> list[str]:
    """Lists what the panels omit."""
    found = []
    for verdict in budget.places:
        shares = ", ".join(f"{_PLACES[name][0]} {percent(share)}" for name, share in verdict.shares.items())
        found.append(
            f"session {verdict.session} by place: {shares} of the time of the reads and writes that began in the view, "
            "from command to status"
        )
    if len(budget.totals_ns) < budget.scope_count:
        count = f"{len(budget.totals_ns)} of {budget.scope_count:,}"
        found.append(f"totals of {count} sessions and connections, those with the longest waits")
    found.append(step_note(budget.edges_ns))
    return found


def title(budget: BudgetCurves) -> str:
    """Names what the panels show."""
    return f"Time breakdown of {budget.added or next(iter(budget.totals_ns))}"


def prepare(trace: Trace, view: View, detail: Detail) -> BudgetCurves:
    """The shares of a view; of ``detail`` only the number of sessions and connections has an effect."""
    by_place = places.verdicts(trace, (view.start_ns, view.end_ns)) if isinstance(trace, TappedTrace) else ()
    return curves.prepare(trace.budget, trace.cycles, edges(view), view, by_place, detail.top)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="The time breakdown: each colour is one part, over time above, in total below.",
    tables=with_events("budget"),
    pictures=whole_session("Time breakdown"),
    has_top=True,
    place=2,
)
