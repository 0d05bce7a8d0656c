"""The methods of a trace that need what stands above the tables: diagnosis, plots, fit; and what it shows of itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from iscsitrace.analysis.findings import NEEDED as DIAGNOSIS_NEEDED
from iscsitrace.errors import InputInvalid
from iscsitrace.notebook import html
from iscsitrace.notebook.results import Diagnosed, Fitted, Picture
from iscsitrace.outputs import inputs
from iscsitrace.outputs.document import Section, table
from iscsitrace.tables.preview import ROWS
from iscsitrace.tables.schema import DERIVED_TABLES, TABLES
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count, percent, time

_TOP = 20
"""Sessions that a diagnosis shows in full, as `iscsitrace diagnose` does."""


def diagnose(trace: Trace, sessions: Sequence[int] = ()) -> Diagnosed:
    """See Trace.diagnose."""
    from iscsitrace.analysis.diagnosis.examination import examine
    from iscsitrace.outputs import diagnose as reporter
    from iscsitrace.outputs.shown import Choice

    whole = trace.with_tables(DIAGNOSIS_NEEDED)
    diagnosis = examine(whole.table, tap_of=whole.tap_of)
    sections = reporter.sections(whole, diagnosis, Choice(_TOP, sessions, is_verbose=False))
    return Diagnosed(sections, reporter.as_dict(whole, diagnosis), diagnosis)


def plot(trace: Trace, kind: str, **zoom: Any) -> Picture:
    """See Trace.plot."""
    from iscsitrace.plots import kinds, subject
    from iscsitrace.plots.decimation import Detail
    from iscsitrace.plots.view import Zoom

    if kind not in kinds.NAMES:
        raise InputInvalid(f"unknown plot {kind}; there are {', '.join(kinds.NAMES)}")
    found = kinds.load(kind)
    asked = Zoom(**zoom)
    whole = trace.with_tables((*found.tables, *(found.zoomed_tables if asked.has_times else ())))
    drawing = found.drawing(whole, asked, subject.origin_ns(whole), Detail())
    return Picture(drawing, subject.of_trace(whole, drawing.view))


def fit(trace: Trace, operation: str | None = None) -> Fitted:
    """See Trace.fit."""
    from iscsitrace.analysis.fit import regression, rivalry, steady
    from iscsitrace.analysis.fit.points import of_operation
    from iscsitrace.outputs import model_fit

    whole = trace.with_tables(steady.NEEDED)
    found = steady.survey(whole.table, _name(whole))
    points = of_operation(found.points, operation)
    missing = [str(each) for each in found.missing]
    if not points:
        raise InputInvalid(f"nothing to fit: {'; '.join(missing) or f'no steady {operation}'}")
    result, compared = regression.fit(points, None), rivalry.compare(points)
    document = whole.provenance | result.as_dict() | {"under_losses": compared and compared.as_dict()}
    sections = model_fit.sections(whole.inputs, result, missing, None, compared)
    return Fitted(sections, document | {"missing": missing}, result)


def text(trace: Trace) -> str:
    """One line: captures, packets, time, sessions, commands, coverage."""
    known = [each for each in trace.inputs if each["time_first_ns"] is not None]
    first = min((each["time_first_ns"] for each in known), default=0)
    last = max((each["time_last_ns"] for each in known), default=0)
    parts = [
        count(trace.packet_count, "packet"),
        time(last - first),
        count(len(trace.sessions), "session"),
        count(len(trace.connections.select(trace.connections.raw("is_iscsi"))), "iSCSI connection"),
        count(len(trace.cycles), "command"),
    ]
    decoded = trace.coverage[-1].as_dict()["explained_bytes_share"]
    if decoded is not None:
        parts.append(f"{percent(decoded)} decoded")
    return f"<Trace {_name(trace)}: {', '.join(parts)}>"


def page(trace: Trace) -> str:
    """What a notebook shows of a trace: one line, sessions, problems of the capture, tables."""
    return html.of_sections(_overview(trace))


def _overview(trace: Trace) -> Iterator[Section]:
    yield Section("", (text(trace).strip("<>"),))
    yield inputs.section(trace.inputs)
    columns = ("session", "initiator_name", "target_name", "connection_count", "task_count")
    sessions = trace.sessions.rows([name for name in columns if name in trace.sessions])
    shown = [tuple(row.values()) for row in sessions]
    if shown:
        named = tuple(name for name in columns if name in trace.sessions)
        yield Section("Sessions", grids=(table(named, shown[:ROWS]),))
    counted = [row for row in trace.counters.rows() if row["count"]]
    if counted:
        rows = [(row["severity"], row["name"], row["count"], row["meaning"]) for row in counted]
        yield Section("Capture health", grids=(table(("severity", "counter", "count", "meaning"), rows),))
    filled = [name for name in TABLES if name not in trace.lacking((name,))]
    rows_of = [(name, trace.row_count(name), TABLES[name].row) for name in filled]
    lacking = [name for name in (*TABLES, *DERIVED_TABLES) if name not in filled]
    notes = f"On request, read(..., tables=[...]): {', '.join(lacking)}"
    yield Section("Tables", (notes,), (table(("table", "rows", "a row is"), rows_of),))


def _name(trace: Trace) -> str:
    return ", ".join(cells.text(each["name"]) for each in trace.inputs)
