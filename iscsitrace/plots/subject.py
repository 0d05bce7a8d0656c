"""The facts in the footer of a plot, so that it can be read without the command that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from iscsitrace.measure.path import tap_position
from iscsitrace.plots.view import View
from iscsitrace.tables.coverage import Coverage
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables


@dataclass(frozen=True)
class PlotSubject:
    """Captures, connections and tap of a plot."""

    captures: tuple[str, ...]
    """Names of the files, each with its folder."""
    origin_ns: int
    """Absolute time of the zero of its time axis."""
    connections: tuple[str, ...]
    """``number: initiator - target`` of each connection shown."""
    rtt_to_initiator_ns: int | None
    rtt_to_target_ns: int | None
    tap_position: str | None
    explained_bytes_share: float | None
    pdu_share: float | None


def of_trace(trace: TraceTables, view: View) -> PlotSubject:
    """The facts of a view of a trace, with the captures of all its taps."""
    taps = trace.provenance.get("taps", [{"input": trace.inputs}])
    names = [each["name"] for one in taps for each in one["input"]]
    return describe(names, trace.connections, trace.coverage, view)


def describe(captures: Sequence[str], connections: Table, coverage: Sequence[Coverage], view: View) -> PlotSubject:
    """The facts of a view; RTTs only where it has one connection."""
    shown = frozenset(view.connections)
    rows = [row for row in connections.rows() if row["connection"] in shown]
    parts = [part for part in coverage if part.connection in shown]
    positions = {tap_position(row["rtt_to_initiator_min_ns"], row["rtt_to_target_min_ns"]) for row in rows}
    # an attempt that was refused tells nothing
    positions.discard(None)
    only = rows[0] if len(rows) == 1 else None
    return PlotSubject(
        captures=tuple("/".join(PurePath(name).parts[-2:]) for name in captures),
        origin_ns=view.origin_ns,
        connections=tuple(_connection(row) for row in rows),
        rtt_to_initiator_ns=only["rtt_to_initiator_min_ns"] if only else None,
        rtt_to_target_ns=only["rtt_to_target_min_ns"] if only else None,
        tap_position=positions.pop() if len(positions) == 1 else None,
        explained_bytes_share=_share(sum(p.explained_bytes for p in parts), sum(p.stream_bytes for p in parts)),
        pdu_share=_share(sum(p.pdu_count for p in parts), sum(p.pdu_count + p.missing_pdu_count for p in parts)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _connection(row: dict[str, object]) -> str:
    ends = (f"{_host(str(row[f'{side}_address']))}:{row[f'{side}_port']}" for side in ("initiator", "target"))
    return f"{row['connection']}: {' - '.join(ends)}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
