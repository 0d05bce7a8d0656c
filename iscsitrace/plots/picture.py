"""A plot as a picture: drawn, with its title and footer, in a file or a window of the desktop.

The footer has the facts of the subject, so that a plot can be read without the command that made it: the source of its
numbers, and what it omits.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO

from matplotlib.figure import Figure

from iscsitrace.measure.path import tap_position
from iscsitrace.plots import style
from iscsitrace.plots.kind import Drawing
from iscsitrace.plots.style import duration
from iscsitrace.plots.view import View
from iscsitrace.tables.coverage import Coverage
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import percent


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


def subject_of(trace: TraceTables, view: View) -> PlotSubject:
    """The facts of a view of a trace, with the captures of all its taps."""
    taps = trace.provenance.get("taps", [{"input": trace.inputs}])
    names = [each["name"] for one in taps for each in one["input"]]
    return subject_of_view(names, trace.connections, trace.coverage, view)


def subject_of_view(
    captures: Sequence[str], connections: Table, coverage: Sequence[Coverage], view: View
) -> PlotSubject:
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


_NAME_LIMIT = 100
_PER_INCH = 15.0
"""Characters of the footer in an inch: a line of many wide ones is shorter than the picture, too."""
_TITLE_PER_INCH = 9.0
"""The same of the title."""
_SHOWN = 3


def write_around(figure: Figure, title: str, subject: PlotSubject, notes: Iterable[str] = ()) -> None:
    """Writes the title above the axes, the notes and the facts of the subject below."""
    write_lines(figure, title, [f"Note: {note}" for note in notes] + list(facts(subject)))


def write_lines(figure: Figure, title: str, lines: Iterable[str]) -> None:
    """Writes the title above the axes, and lines below; both are wrapped to the width."""
    width_in = figure.get_figwidth()
    title = "\n".join(textwrap.wrap(title, int(_TITLE_PER_INCH * width_in)))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", parse_math=False)
    parts = [part for line in lines for part in textwrap.wrap(line, int(_PER_INCH * width_in))]
    figure.supxlabel("\n".join(parts), x=0.01, ha="left", fontsize=7.5, color=style.GREY, parse_math=False)


def facts(subject: PlotSubject) -> Iterable[str]:
    """Lines on the captures, connections, tap and coverage."""
    yield f"{_some(subject.captures, 'captures')}; first packet {cells.date(subject.origin_ns)}"
    parts = [f"connection {subject.connections[0]}"] if len(subject.connections) == 1 else []
    if len(subject.connections) > 1:
        parts = [f"connections {_some(subject.connections, 'connections')}"]
    parts.append(_tap(subject))
    coverage = _coverage(subject)
    if coverage:
        parts.append(coverage)
    yield "; ".join(parts)


def _some(names: tuple[str, ...], noun: str) -> str:
    shown = [_printable(name) for name in names[:_SHOWN]]
    more = f" and {len(names) - _SHOWN} more {noun}" if len(names) > _SHOWN else ""
    return ", ".join(shown) + more


def _printable(name: str) -> str:
    safe = cells.text(name)
    return safe if len(safe) <= _NAME_LIMIT else f"...{safe[-_NAME_LIMIT:]}"


def _tap(subject: PlotSubject) -> str:
    if subject.tap_position is None:
        return "tap position unknown"
    where = {"initiator": "tap near the initiator", "target": "tap near the target"}.get(
        subject.tap_position, "tap between initiator and target"
    )
    if subject.rtt_to_initiator_ns is None or subject.rtt_to_target_ns is None:
        return where
    return (
        f"{where} (minimum RTT: to the initiator {duration(subject.rtt_to_initiator_ns)}, "
        f"to the target {duration(subject.rtt_to_target_ns)})"
    )


def _coverage(subject: PlotSubject) -> str | None:
    """The coverage, if it is below 100 %."""
    shares = (("bytes", subject.explained_bytes_share), ("PDUs", subject.pdu_share))
    missing = [f"{percent(share)} of {noun}" for noun, share in shares if share is not None and share < 1]
    return f"decoded {', '.join(missing)}" if missing else None


@dataclass(frozen=True)
class PictureSize:
    """The size of a picture; what is None is left to the plot."""

    width_in: float | None = None
    height_in: float | None = None
    dots_per_inch: float | None = None
    """Pixels of a PNG per inch."""

    def of(self, drawing: Drawing) -> tuple[float, float]:
        """Width and height in inches."""
        return self.width_in or style.WIDTH_IN, self.height_in or drawing.height_in


_USUAL = PictureSize()


def draw(figure: Figure, drawing: Drawing, about: PlotSubject) -> None:
    """Draws it, with all that is written around it."""
    drawing.draw(figure)
    write_around(figure, drawing.title, about, drawing.notes)


def figure_of(drawing: Drawing, about: PlotSubject, size: PictureSize = _USUAL) -> Figure:
    """The whole picture."""
    width_in, height_in = size.of(drawing)
    with style.applied():
        figure = style.new_figure(height_in, width_in)
        draw(figure, drawing, about)
    return figure


def write(stream: IO[bytes], ending: str, drawing: Drawing, about: PlotSubject, size: PictureSize = _USUAL) -> None:
    """Writes it as ``png``, ``svg`` or ``pdf``."""
    style.write(figure_of(drawing, about, size), stream, ending, size.dots_per_inch)


def open_figure(width_in: float, height_in: float) -> Figure | None:
    """A figure in a window; None if no window can be opened."""
    from matplotlib import pyplot
    from matplotlib.backends.registry import BackendFilter, backend_registry

    able = backend_registry.list_builtin(BackendFilter.INTERACTIVE)  # type: ignore[no-untyped-call]
    if pyplot.get_backend().lower() not in able:
        return None
    return pyplot.figure(figsize=(width_in, height_in), layout="constrained")


def show_windows() -> None:
    """Shows the windows until they are closed."""
    from matplotlib import pyplot

    pyplot.show()
