"""The methods of a trace that need what stands above the tables: diagnosis, plots, fit; and what it shows of itself."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iscsitrace.errors import InputInvalid
from iscsitrace.findings import NEEDED as DIAGNOSIS_NEEDED
from iscsitrace.measure import capture_health
from iscsitrace.show import files, inputs, summary
from iscsitrace.show.document import Section, table
from iscsitrace.show.terminal import show
from iscsitrace.tables.schema import DERIVED_TABLES, TABLES
from iscsitrace.tables.table import ROWS
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count, percent, time

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.fit.points import Fit
    from iscsitrace.plots.kind import Drawing
    from iscsitrace.plots.picture import PlotSubject

ENDINGS = ("png", "svg", "pdf")


class Answer:
    """The result of a command: shown as its text, or as HTML; ``as_dict()`` is its JSON document."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any]) -> None:
        self._sections = tuple(sections)
        self._document = dict(document)

    def as_dict(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        return self._document

    @cached_property
    def _text(self) -> str:
        with redirect_stdout(io.StringIO()) as text:
            show(self._sections)
        return text.getvalue().strip("\n")

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        from iscsitrace.show import page

        return page.fragment(self._sections)


class Diagnosed(Answer):
    """The result of ``Trace.diagnose``."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any], diagnosis: Diagnosis) -> None:
        super().__init__(sections, document)
        self.diagnosis = diagnosis
        """Opinions by session and by connection, as Python objects."""

    @property
    def found(self) -> frozenset[str]:
        """The names of all findings."""
        return frozenset(self.diagnosis.found)


class Fitted(Answer):
    """The result of ``Trace.fit``."""

    def __init__(self, sections: Iterable[Section], document: Mapping[str, Any], result: Fit) -> None:
        super().__init__(sections, document)
        self.result = result
        """k, d, s and C with confidence intervals, and the points."""


class Picture:
    """The result of ``Trace.plot``; the same bytes as `iscsitrace plot` writes."""

    def __init__(self, drawing: Drawing, about: PlotSubject) -> None:
        self._drawing = drawing
        self._about = about

    @property
    def title(self) -> str:
        """What it shows."""
        return self._drawing.title

    def __repr__(self) -> str:
        return f"<Picture {self.title}>"

    def save(
        self,
        path: str | PathLike[str],
        *,
        is_forced: bool = False,
        width_in: float | None = None,
        height_in: float | None = None,
        dots_per_inch: float | None = None,
    ) -> None:
        """Writes NAME.png, NAME.svg or NAME.pdf; OutputExists if there is such a file and not ``is_forced``.

        ``width_in`` and ``height_in`` are inches, ``dots_per_inch`` the pixels of a PNG; None leaves them to the plot.
        """
        target = Path(path)
        ending = target.suffix.removeprefix(".")
        if ending not in ENDINGS:
            raise InputInvalid(f"{target} has no known format: end it with {', '.join(f'.{each}' for each in ENDINGS)}")
        files.check(target, is_forced=is_forced, inputs=())
        content = self._bytes(ending, width_in, height_in, dots_per_inch)
        with files.written_aside(target) as partial:
            partial.write_bytes(content)

    def _repr_png_(self) -> bytes:
        return self._bytes("png")

    def _bytes(self, ending: str, *size: float | None) -> bytes:
        from iscsitrace.plots import picture

        stream = io.BytesIO()
        picture.write(stream, ending, self._drawing, self._about, picture.PictureSize(*size))
        return stream.getvalue()


_TOP = 20
"""Sessions that a diagnosis shows in full, as `iscsitrace diagnose` does."""


def diagnose(trace: TraceTables, sessions: Sequence[int] = ()) -> Diagnosed:
    """See Trace.diagnose."""
    from iscsitrace.diagnosis.examination import examine_trace
    from iscsitrace.show import diagnose as reporter
    from iscsitrace.show.shown import ShowOptions

    whole = trace.with_tables(DIAGNOSIS_NEEDED)
    diagnosis = examine_trace(whole)
    sections = reporter.sections(whole, diagnosis, ShowOptions(_TOP, sessions, is_verbose=False))
    return Diagnosed(sections, reporter.as_dict(whole, diagnosis), diagnosis)


def plot(trace: TraceTables, kind: str, by: str | None, **zoom: Any) -> Picture:
    """See Trace.plot."""
    from iscsitrace.plots import kinds, picture
    from iscsitrace.plots.kind import GROUP_TITLES
    from iscsitrace.plots.marks import Detail
    from iscsitrace.plots.view import Zoom

    if kind not in kinds.NAMES:
        raise InputInvalid(f"unknown plot {kind}; there are {', '.join(kinds.NAMES)}")
    found = kinds.load(kind)
    if by is not None and not (found.is_told_apart and by in GROUP_TITLES):
        raise InputInvalid(
            f"{kind} cannot group commands by {by}; latency and time_breakdown can, by {', '.join(GROUP_TITLES)}"
        )
    asked = Zoom(**zoom)
    whole = trace.with_tables((*found.tables, *(found.zoomed_tables if asked.has_times else ())))
    drawing = found.drawing(whole, asked, whole.start_ns, Detail(by=by))
    return Picture(drawing, picture.subject_of(whole, drawing.view))


def fit(trace: TraceTables, operation: str | None = None) -> Fitted:
    """See Trace.fit."""
    from iscsitrace.fit import regression, rivalry, steady
    from iscsitrace.fit.points import of_operation
    from iscsitrace.show import model_fit

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


def text(trace: TraceTables) -> str:
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


def page(trace: TraceTables) -> str:
    """What a notebook shows of a trace: one line, sessions, problems of the capture, tables."""
    from iscsitrace.show import page as pages

    return pages.fragment(_overview(trace))


def _overview(trace: TraceTables) -> Iterator[Section]:
    yield Section("", (text(trace).strip("<>"),))
    yield inputs.of_trace(trace)
    yield Section("", (summary.sessions_grid(list(trace.sessions.rows())[:ROWS]),))
    if counted := capture_health.by_name(trace.counters):
        yield Section("", (inputs.counters(counted),))
    filled = [name for name in TABLES if name not in trace.lacking((name,))]
    rows_of = [(name, trace.row_count(name), TABLES[name].row) for name in filled]
    lacking = [name for name in (*TABLES, *DERIVED_TABLES) if name not in filled]
    notes = f"On request, read(..., tables=[...]): {', '.join(lacking)}"
    yield Section("Tables", (notes, table(("table", "rows", "a row is"), rows_of)))


def _name(trace: TraceTables) -> str:
    return ", ".join(cells.text(each["name"]) for each in trace.inputs)
