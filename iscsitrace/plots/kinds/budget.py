"""The time breakdown: its parts over time, and in total."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from iscsitrace.analysis.curves import budget as curves
from iscsitrace.analysis.curves.budget import BudgetCurves
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.analysis.curves.steps import edges
from iscsitrace.analysis.curves.view import View
from iscsitrace.plots import style
from iscsitrace.plots.kind import Kind, whole_session, with_events
from iscsitrace.plots.scales import TimeAxis, duration, step_note
from iscsitrace.tables.trace import Trace
from iscsitrace.wording.amounts import percent
from iscsitrace.wording.parts import PARTS

_NAMED_SHARE = 0.06
"""Smallest share that has room for its percentage."""


def draw(figure: Figure, budget: BudgetCurves) -> None:
    """Draws both panels."""
    count = len(budget.totals_ns)
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
                totals.text(
                    left[scope] + share / 2, place, percent(share / 100), ha="center", va="center", fontsize=8,
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
                )  # fmt: skip
            left[scope] += share
    time.apply(over_time)
    over_time.set_ylim(0, 100)
    over_time.set_ylabel("% of busy time")
    totals.set_xlim(0, 100)
    totals.set_ylim(count - 0.4, -0.6)
    names = [f"{scope}\n{duration(float(parts.sum()))}" for scope, parts in budget.totals_ns.items()]
    totals.set_yticks(range(count), names)
    totals.set_xlabel("% of the busy time: reads and writes, and think time between them")
    totals.grid(visible=False, axis="y")
    style.legend(over_time, over_time, columns=4)


def notes(budget: BudgetCurves) -> list[str]:
    """Lists what the panels omit."""
    found = []
    if len(budget.totals_ns) < budget.scope_count:
        found.append(f"totals of {len(budget.totals_ns)} of {budget.scope_count} sessions and connections are shown")
    found.append(step_note(budget.edges_ns))
    return found


def title(budget: BudgetCurves) -> str:
    """Names what the panels show."""
    return f"Time breakdown of {budget.added or next(iter(budget.totals_ns))}"


def prepare(trace: Trace, view: View, detail: Detail) -> BudgetCurves:
    """The shares of a view; ``detail`` has no effect."""
    return curves.prepare(trace.budget, trace.cycles, edges(view), view)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="The time breakdown: each colour is one part, over time above, in total below.",
    tables=with_events("budget"),
    pictures=whole_session("Time breakdown"),
    place=2,
)
