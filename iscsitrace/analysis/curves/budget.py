"""The busy time of a view: shares of its parts over time, and totals by session and connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iscsitrace.analysis.curves import steps
from iscsitrace.analysis.curves.decimation import TOP
from iscsitrace.analysis.curves.marks import Array
from iscsitrace.analysis.curves.view import View
from iscsitrace.analysis.measures import busy
from iscsitrace.analysis.measures.budget import PARTS, over_time, rows_of
from iscsitrace.analysis.taps.places import Verdict
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table


@dataclass(frozen=True)
class BudgetCurves:
    """Curves in the order of ``iscsitrace.analysis.measures.budget.PARTS``."""

    view: View
    edges_ns: Array
    shares: Array
    """Shares of the busy time of each bin, (parts, bins), from 0 to 1; 0 where there is none."""
    totals_ns: dict[str, Array]
    """Busy time in each part in the view, by scope: sessions, then connections; of many the worst first."""
    scope_count: int
    """Number of scopes, drawn or not."""
    added: str
    """The scopes that ``shares`` adds up; empty where there is only one."""
    places: tuple[Verdict, ...] = ()
    """The time of reads and writes by place, of sessions of the view; none without several taps."""


def prepare(
    budget: Table, cycles: Table, edges_ns: Array, view: View, verdicts: Sequence[Verdict] = (), top: int = TOP
) -> BudgetCurves:
    """The busy time of a view; InputInvalid where there is none: nothing was read or written.

    ``verdicts`` are those of the view's time, with several taps.
    """
    lasted = lasted_ns(budget, cycles, edges_ns, view)
    if not lasted.any():
        raise InputInvalid("nothing to draw: the view has no busy time, because nothing was read or written")
    whole = lasted.sum(axis=0)
    ends = np.array([view.start_ns, view.end_ns])
    scopes = {name: over_time(rows, ends)[:, 0] for name, rows in _scopes(budget, view).items()}
    measured = {name: totals for name, totals in scopes.items() if totals.any()}
    return BudgetCurves(
        view=view,
        edges_ns=edges_ns,
        shares=np.divide(lasted, whole, out=np.zeros(lasted.shape), where=whole > 0),
        totals_ns=_worst(measured, top),
        scope_count=len(measured),
        added="" if len(view.connections) == 1 else _added(_sessions(budget, view)),
        places=tuple(each for each in verdicts if each.session in _sessions(budget, view))[:top],
    )


def lasted_ns(budget: Table, cycles: Table, edges_ns: Array, view: View) -> Array:
    """Busy time in each part in each step, (parts, steps): of the view's only connection, else of its sessions."""
    if len(view.connections) == 1:
        rows = rows_of(budget, connection=view.connection)
        return _spread(rows, cycles.select(cycles.raw("connection") == view.connection), edges_ns)
    total = np.zeros((len(PARTS), len(edges_ns) - 1))
    # a look at the whole table for each of thousands of sessions would take minutes
    stretches = steps.grouped(budget.raw("session"))
    commands, none = steps.grouped(cycles.raw("session")), np.empty(0, dtype=np.intp)
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


def _scopes(budget: Table, view: View) -> dict[str, Table]:
    """The sessions of several connections, whose time is counted separately, and the connections."""
    found, none = {}, np.empty(0, dtype=np.intp)
    if len(view.connections) > 1:
        of_session = steps.grouped(budget.raw("session"))
        for number in _sessions(budget, view):
            rows = rows_of(budget.select(of_session[number]), session=number)
            if np.ma.getmaskarray(np.ma.asarray(rows["connection"])).any():
                found[f"session {number}"] = busy.rows_of(rows)
    of_connection = steps.grouped(budget.raw("connection"))
    for number in view.connections:
        own = budget.select(of_connection.get(number, none))
        found[f"connection {number}"] = busy.rows_of(rows_of(own, connection=number))
    return found
