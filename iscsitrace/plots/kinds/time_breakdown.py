"""The time breakdown: its parts over time, and in total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import busy, waits
from iscsitrace.measure.budget import PARTS, of_cycles, over_time, rows_of
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import merged
from iscsitrace.plots import kind, steps, style
from iscsitrace.plots.kind import GROUP_TITLES, CommandGroups, Kind, whole_session, with_events
from iscsitrace.plots.marks import TOP, Array, Detail
from iscsitrace.plots.steps import edges
from iscsitrace.plots.style import TimeAxis, duration, step_note
from iscsitrace.plots.view import View, picked_cycles
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import places
from iscsitrace.taps.places import Place, TimePlaces
from iscsitrace.taps.reading import TappedTables
from iscsitrace.wording.amounts import percent
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.parts import PARTS as DRAWN_PARTS


@dataclass(frozen=True)
class BudgetCurves:
    """Curves in the order of ``iscsitrace.measure.budget.PARTS``."""

    view: View
    edges_ns: Array
    shares: Array
    """Shares of the I/O time of each bin, (parts, bins), from 0 to 1; 0 where there is none."""
    totals_ns: dict[str, Array]
    """Busy time in each part in the view, by scope: sessions, then connections; of many the worst first."""
    scope_count: int
    """Number of scopes, drawn or not."""
    added: str
    """The scopes that ``shares`` adds up; empty where there is only one."""
    places: tuple[TimePlaces, ...] = ()
    """The time of reads and writes by place, of sessions of the view; none without several taps."""
    by: str | None = None
    """What the commands of a scope are told apart by; None for sessions and connections, with all of their time."""


def compute(
    budget: Table,
    cycles: Table,
    edges_ns: Array,
    view: View,
    verdicts: Sequence[TimePlaces] = (),
    top: int = TOP,
    told: tuple[CommandGroups, Array] | None = None,
) -> BudgetCurves:
    """The busy time of a view; InputInvalid where there is none: nothing was read or written.

    ``verdicts`` are those of the view's time, with several taps. ``told`` are groups of all cycles, and when each was
    last in flight: the totals are then of the time with commands of each group in flight.
    """
    lasted = lasted_ns(budget, cycles, edges_ns, view)
    if not lasted.any():
        raise InputInvalid("nothing to draw: the view has no I/O time, because nothing was read or written")
    whole = lasted.sum(axis=0)
    ends = np.array([view.start_ns, view.end_ns])
    if told is None:
        scopes = {name: over_time(rows, ends)[:, 0] for name, rows in _scopes(budget, view).items()}
    else:
        scopes = _of_groups(budget, cycles, *told, view)
    measured = {name: totals for name, totals in scopes.items() if totals.any()}
    return BudgetCurves(
        view=view,
        edges_ns=edges_ns,
        shares=np.divide(lasted, whole, out=np.zeros(lasted.shape), where=whole > 0),
        totals_ns=_worst(measured, top),
        scope_count=len(measured),
        added="" if len(view.connections) == 1 else _added(_sessions(budget, view)),
        places=tuple(each for each in verdicts if each.session in _sessions(budget, view))[:top]
        if told is None
        else (),
        by=None if told is None else told[0].by,
    )


def lasted_ns(budget: Table, cycles: Table, edges_ns: Array, view: View) -> Array:
    """Busy time in each part in each step, (parts, steps): of the view's only connection, else of its sessions."""
    if len(view.connections) == 1:
        rows = rows_of(budget, connection=view.connection)
        return _spread(rows, cycles.select(cycles.raw("connection") == view.connection), edges_ns)
    total = np.zeros((len(PARTS), len(edges_ns) - 1))
    # a look at the whole table for each of thousands of sessions would take minutes
    stretches = grouped(budget.raw("session"))
    commands, none = grouped(cycles.raw("session")), np.empty(0, dtype=np.intp)
    for session in _sessions(budget, view):
        rows = rows_of(budget.select(stretches[session]), session=session)
        total += _spread(rows, cycles.select(commands.get(session, none)), edges_ns)
    return total


def _spread(rows: Table, cycles: Table, edges_ns: Array) -> Array:
    boundaries = steps.of_cycles(cycles, rows, edges_ns)
    return steps.spread(over_time(busy.rows_of(rows), boundaries), boundaries, edges_ns)


def idle_share(budget: Table, cycles: Table, edges_ns: Array, view: View) -> Array | None:
    """Share of each step's busy time that is not transfer; NaN without busy time, None without a breakdown."""
    lasted = lasted_ns(budget, cycles, edges_ns, view)
    if not lasted.any():
        return None
    whole = lasted.sum(axis=0)
    transfer = lasted[PARTS.index("transfer")]
    idle: Array = np.divide(whole - transfer, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return idle


def _sessions(budget: Table, view: View) -> list[int]:
    """The sessions of the view's connections that have a time breakdown."""
    is_known = ~np.ma.getmaskarray(np.ma.asarray(budget["session"]))
    is_member = np.isin(np.ma.getdata(budget["connection"]), view.connections) & is_known
    return [int(number) for number in np.unique(budget.raw("session")[is_member])]


def _added(sessions: list[int]) -> str:
    return f"session {sessions[0]}" if len(sessions) == 1 else f"{len(sessions)} sessions, added up"


def _worst(totals_ns: dict[str, Array], top: int) -> dict[str, Array]:
    """All in their order; of more than ``top`` those whose busy time has most that is not transfer."""
    if len(totals_ns) <= top:
        return totals_ns
    transfer = PARTS.index("transfer")
    ordered = sorted(totals_ns, key=lambda name: totals_ns[name].sum() - totals_ns[name][transfer], reverse=True)
    return {name: totals_ns[name] for name in ordered[:top]}


def _of_groups(budget: Table, cycles: Table, told: CommandGroups, ends_ns: Array, view: View) -> dict[str, Array]:
    """Busy time in each part with data commands of each group in flight: of each session, added up."""
    is_wanted = picked_cycles(cycles, view) & is_data_command(cycles) & (told.places >= 0)
    starts, ends = (
        cycles.raw("command_first_ns").clip(view.start_ns, view.end_ns),
        ends_ns.clip(view.start_ns, view.end_ns),
    )
    stretches, commands = grouped(budget.raw("session")), grouped(cycles.raw("session"))
    found: dict[str, Array] = {}
    for session in _sessions(budget, view):
        rows = busy.rows_of(rows_of(budget.select(stretches[session]), session=session))
        own = commands.get(session, np.empty(0, dtype=np.intp))
        own = own[is_wanted[own]]
        for place in np.unique(told.places[own]).tolist():
            chosen = own[told.places[own] == place]
            lasted = of_cycles(rows, *merged(starts[chosen], ends[chosen])).sum(axis=0)
            found[told.labels[place]] = found.get(told.labels[place], 0) + lasted
    return found


def _scopes(budget: Table, view: View) -> dict[str, Table]:
    """The sessions of several connections, whose time is counted separately, and the connections."""
    found, none = {}, np.empty(0, dtype=np.intp)
    if len(view.connections) > 1:
        of_session = grouped(budget.raw("session"))
        for number in _sessions(budget, view):
            rows = rows_of(budget.select(of_session[number]), session=number)
            if np.ma.getmaskarray(np.ma.asarray(rows["connection"])).any():
                found[f"session {number}"] = busy.rows_of(rows)
    of_connection = grouped(budget.raw("connection"))
    for number in view.connections:
        own = budget.select(of_connection.get(number, none))
        found[f"connection {number}"] = busy.rows_of(rows_of(own, connection=number))
    return found


# --- drawing


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
    for number, part in enumerate(DRAWN_PARTS):
        shares = budget.shares[number] * 100
        sums = {scope: float(spent[number] / spent.sum() * 100) for scope, spent in budget.totals_ns.items()}
        if not shares.any() and not any(sums.values()):
            continue
        below = style.stack(over_time, below, shares, edges, part.color, part.hatch, part.label)
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
    over_time.set_ylabel("% of I/O time")
    totals.set_xlim(0, 100)
    totals.set_ylim(count - 0.4, -0.6)
    between = "\n" if count <= _TWO_LINES else ", "
    names = [f"{scope}{between}{duration(float(parts.sum()))}" for scope, parts in budget.totals_ns.items()]
    names += [f"session {verdict.session}\nby place" for verdict in budget.places]
    totals.set_yticks(range(count), names)
    totals.set_xlabel(
        "% of the I/O time: reads and writes, and think time between them"
        if budget.by is None
        else f"% of the time with reads or writes of the {GROUP_TITLES[budget.by]} in flight"
    )
    totals.grid(visible=False, axis="y")
    style.legend(over_time, over_time, columns=4)


def _draw_places(totals: Axes, verdict: TimePlaces, place: int) -> None:
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
    if budget.by is not None:
        word = GROUP_TITLES[budget.by]
        if budget.scope_count > 1 and budget.by != "session":
            found.append(
                f"time with commands of more than one {word} in flight counts for each of them: "
                f"iscsitrace plot latency --by {budget.by} shows which one is slow"
            )
        if len(budget.totals_ns) < budget.scope_count:
            found.append(f"{len(budget.totals_ns)} of {budget.scope_count:,} {word}s: those with the longest waits")
    elif len(budget.totals_ns) < budget.scope_count:
        count = f"{len(budget.totals_ns)} of {budget.scope_count:,}"
        found.append(f"totals of {count} sessions and connections, those with the longest waits")
    found.append(step_note(budget.edges_ns))
    return found


def title(budget: BudgetCurves) -> str:
    """Names what the panels show."""
    by = "" if budget.by is None else f", by {GROUP_TITLES[budget.by]}"
    return f"Time breakdown of {budget.added or f'connection {budget.view.connection}'}{by}"


def prepare(trace: TraceTables, view: View, detail: Detail) -> BudgetCurves:
    """The shares of a view; of ``detail`` only the number of sessions and connections has an effect."""
    by_place = places.verdicts(trace, (view.start_ns, view.end_ns)) if isinstance(trace, TappedTables) else ()
    told = None
    if detail.by is not None:
        told = kind.groups_of(trace, detail.by), waits.of_trace(trace.table).ends_ns(trace.cycles)
    return compute(trace.budget, trace.cycles, edges(view), view, by_place, detail.top, told)


KIND = Kind(
    prepare=prepare,
    draw=draw,
    title=title,
    notes=notes,
    how_to_read="The time breakdown: each colour is one part, over time above, in total below.",
    tables=with_events("budget"),
    pictures=whole_session("Time breakdown"),
    has_top=True,
    is_told_apart=True,
    place=2,
)
