"""The pictures of an experiment, drawn from its results and from the captures that were kept for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import iscsitrace
from iscsitrace.analysis.curves import ladder as ladder_curves
from iscsitrace.analysis.curves import subject, view
from iscsitrace.analysis.curves.decimation import Detail
from iscsitrace.experiments import comparison, course_figures
from iscsitrace.experiments.comparison import Row
from iscsitrace.experiments.definition import ARM, CAPTURED, QUANTITIES, Definition, Figure
from iscsitrace.experiments.points import Point
from iscsitrace.experiments.results import FigureFile, PointResult
from iscsitrace.experiments.runner import POINTS
from iscsitrace.outputs.drawings import KINDS
from iscsitrace.outputs.files import written_aside
from iscsitrace.plots import budget_bars, courses, experiment, footer, ladder, style
from iscsitrace.plots.budget_bars import Bars
from iscsitrace.plots.experiment import Chart, Line

FORMAT: Final = "svg"
_Y_LABELS: Final = {
    "throughput": "throughput after the warm-up",
    "idle_fraction": "idle fraction",
    "model_error": "error of the model",
    "period": "time from call to call",
    "k": "one-way delays of a cycle",
    "connections": "number found",
    "converge": "time until it was found",
    "goodput_lost": "throughput lost by the search",
    "latency_cv": "scatter of latencies, of their mean",
    "connection_spread": "scatter of throughput over connections, of its mean",
    "cwnd_spread": "scatter of congestion windows over connections, of their mean",
    "efficiency": "efficiency: share of the line's rate",
    "cpu": "processor time of the initiator",
    "target_cpu": "processor time of the target",
    "host_share": "time of a call that is the hosts'",
    "jain": "Jain's index of the streams' throughputs",
    "spread": "from the first stream's end to the last one's",
    "spread_ratio": "time of the last stream / time of the first",
    "retransmission_rate": "segments sent again / packets sent",
    "utilisation": "share of the time in which the shared line was busy",
    "timeouts": "retransmission timeouts of all streams",
    "slow_start_rank": "rank correlation of ends with the windows that slow start left",
    "scatter": "standard deviation of the throughput over repeats / mean",
}
_OWN_WORDS: Final = {"target.count": "targets"}
_LADDER_TABLES: Final = ("segments", "pdus", "budget")
_READ_LINES: Final = "Marks were measured, lines are the model's, stars were published."
_READ_BUDGET: Final = "Each bar is the time of a call, from one to the next, cut into what it was spent on."
_READ_PACKETS: Final = (
    "Time runs downwards; packets cross from one host to the other. Shaded spans are idle at the tap, the column on "
    "the right says on what they were spent."
)
_READ_FINISHES: Final = (
    "Marks are means over repeats, bars their standard deviations; streams in the order of their ends."
)
_READ_STREAMS: Final = (
    "On the left how far each stream got over time, on the right what each had outstanding: a loss halves it, a "
    "timeout takes it to nothing."
)


def needed(definition: Definition, points: Sequence[Point]) -> set[str]:
    """Names of the points whose captures a figure is drawn from."""
    return {point.name for figure in definition.figures if (point := _only(figure, points)) is not None}


@dataclass(frozen=True)
class Picture:
    """A figure of which there is something to show."""

    name: str
    title: str
    how_to_read: str
    draw: Callable[[Any], None]
    """Onto an empty figure of matplotlib's."""
    lines: tuple[str, ...]
    """What stands below it."""


def pictures(
    definition: Definition, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> Iterator[Picture]:
    """The figures that there are results for, ready to be drawn."""
    rows = comparison.rows(results)
    for figure in definition.figures:
        if figure.kind == "packets":
            found = _packets(figure, points, results, directory)
        elif figure.kind == "budget":
            found = _budget(figure, definition, rows)
        elif figure.kind == "streams":
            found = _streams(figure, points, results, directory)
        elif figure.kind == "finishes":
            found = _finishes(figure, definition, results)
        elif figure.kind == "courses":
            found = _courses(figure, definition, points, results)
        else:
            found = _lines(figure, definition, rows)
        if found is not None:
            yield found


def draw(
    definition: Definition, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> list[FigureFile]:
    """Draws what there are results for; the files. InputInvalid when one cannot be written."""
    files = []
    for picture in pictures(definition, points, results, directory):
        path = directory / f"{picture.name}.{FORMAT}"
        with style.applied():
            drawn = style.new_figure()
            picture.draw(drawn)
            footer.write_lines(drawn, picture.title, picture.lines)
            _save(path, drawn)
        files.append(FigureFile(picture.name, picture.title, path.name))
    return files


def _lines(figure: Figure, definition: Definition, rows: Sequence[Row]) -> Picture | None:
    chart = chart_of(figure, definition, rows)
    if not any(value is not None for line in chart.lines for value in line.measured):
        return None
    return Picture(
        figure.name, chart.title, _READ_LINES, lambda drawn: experiment.draw(drawn, chart), tuple(chart.notes)
    )


def _budget(figure: Figure, definition: Definition, rows: Sequence[Row]) -> Picture | None:
    bars = bars_of(figure, definition, rows)
    if not bars.panels:
        return None
    return Picture(figure.name, bars.title, _READ_BUDGET, lambda drawn: budget_bars.draw(drawn, bars), bars.notes)


def bars_of(figure: Figure, definition: Definition, rows: Sequence[Row]) -> Bars:
    """The arrays of a figure of budgets."""
    shown = [row for row in _shown(figure, rows) if row.shares]
    texts = _texts(definition, figure.x)
    ordered = sorted(shown, key=lambda row: _order(row.values[figure.x]))
    return Bars(
        title=figure.title,
        x_label=_words(figure.x),
        panels=tuple(
            (
                arm,
                tuple(
                    (texts.get(_key(row.values[figure.x]), str(row.values[figure.x])), row.shares)
                    for row in ordered
                    if row.arm == arm
                ),
            )
            for arm in dict.fromkeys(row.arm for row in shown)
        ),
        notes=(f"{definition.title}: {definition.source}",),
    )


def _shown(figure: Figure, rows: Sequence[Row]) -> list[Row]:
    """The rows of a figure over a setting."""
    wanted = {name: each.value for name, each in figure.where.items()}
    return [
        row
        for row in rows
        if (not figure.arms or row.arm in figure.arms)
        and figure.x in row.values
        and all(row.values.get(name) == value for name, value in wanted.items())
    ]


def chart_of(figure: Figure, definition: Definition, rows: Sequence[Row]) -> Chart:
    """The arrays of a figure over a setting."""
    shown = _shown(figure, rows)
    texts = _texts(definition, figure.x)
    places = sorted({_key(value): value for row in shown for value in [row.values[figure.x]]}.values(), key=_order)
    # values lie evenly: they double, mostly
    at = {_key(value): float(number) for number, value in enumerate(places)}
    if figure.is_to_scale and all(isinstance(value, int | float) for value in places):
        at = {_key(value): float(value) for value in places}
    names = list(dict.fromkeys(_line_name(figure, definition, row) for row in shown))
    published = _published(figure, definition)
    return Chart(
        title=figure.title,
        x_label=_words(figure.x),
        y_label=f"{_Y_LABELS[figure.y]}, {QUANTITIES[figure.y]}",
        ticks=tuple((at[_key(value)], texts.get(_key(value), str(value))) for value in places),
        lines=tuple(
            _line(name, [row for row in shown if _line_name(figure, definition, row) == name], figure, at, published)
            for name in names
        ),
        notes=(f"{definition.title}: {definition.source}",),
    )


def _line(
    name: str, rows: Iterable[Row], figure: Figure, at: dict[str, float], published: dict[tuple[str, str], float]
) -> Line:
    ordered = sorted(rows, key=lambda row: at[_key(row.values[figure.x])])
    return Line(
        name=name,
        places=tuple(at[_key(row.values[figure.x])] for row in ordered),
        measured=tuple(row.means.get(figure.y) for row in ordered),
        spreads=tuple(row.spreads.get(figure.y) for row in ordered),
        model=tuple(row.model.get(figure.y) for row in ordered),
        published=tuple(published.get((row.arm, _key(row.values[figure.x]))) for row in ordered),
    )


def _published(figure: Figure, definition: Definition) -> dict[tuple[str, str], float]:
    """By arm and place along x, what was published of just this."""
    found: dict[tuple[str, str], float] = {}
    wanted = {name: each.value for name, each in figure.where.items()}
    for published in definition.published:
        where = {name: each.value for name, each in published.where.items()}
        if published.quantity != figure.y or published.x != figure.x or where != wanted:
            continue
        for arm in published.arms or [arm.name for arm in definition.arms]:
            found |= {(arm, _key(written.value)): value for written, value in published.values}
    return found


def _line_name(figure: Figure, definition: Definition, row: Row | PointResult) -> str:
    if figure.lines == ARM:
        return row.arm
    value = row.values.get(figure.lines)
    return f"{_words(figure.lines)} {_texts(definition, figure.lines).get(_key(value), str(value))}"


def _words(name: str) -> str:
    """What a setting is called on a picture."""
    return _OWN_WORDS.get(name) or name.rpartition(".")[2].replace("-", " ")


def _texts(definition: Definition, name: str) -> dict[str, str]:
    """Values of a setting as they are written."""
    written = [definition.settings.get(name), *(arm.settings.get(name) for arm in definition.arms)]
    written += [
        each for grid in (definition.grid, *(arm.grid for arm in definition.arms)) for each in grid.get(name, ())
    ]
    written += [*definition.real.grid.get(name, ()), definition.real.settings.get(name)]
    return {_key(each.value): each.text for each in written if each is not None}


def _key(value: Any) -> str:
    return repr(value)


def _order(value: Any) -> tuple[int, tuple[float, ...], str]:
    """Numbers and lists of numbers by size, words after them."""
    numbers = value if isinstance(value, list) else [value]
    if all(isinstance(each, int | float) for each in numbers):
        return 0, tuple(map(float, numbers)), ""
    return 1, (), str(value)


def _only(figure: Figure, points: Sequence[Point]) -> Point | None:
    """The first point of a figure that is drawn from its capture, of those that have one."""
    if figure.kind not in CAPTURED:
        return None
    arms = figure.arms
    having = [point for point in points if "initiator" in point.capture_at]
    return next((point for point in having if (not arms or point.arm in arms) and point.is_at(figure.where)), None)


def _capture(figure: Figure, points: Sequence[Point], results: Sequence[PointResult], directory: Path) -> Path | None:
    """That of the figure's point, beside the initiator; None when it was not kept."""
    point = _only(figure, points)
    result = next((each for each in results if point and each.name == point.name), None)
    if result is None or not result.captures:
        return None
    return directory / POINTS / result.name / result.captures[0]


def _streams(
    figure: Figure, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> Picture | None:
    """The streams of the figure's point, as `plot streams` draws them."""
    capture = _capture(figure, points, results, directory)
    if capture is None:
        return None
    kind = KINDS["streams"]
    trace = iscsitrace.read(capture, tables=kind.tables)
    drawing = kind.prepare(trace, view.Zoom(), trace.inputs[0]["time_first_ns"], Detail())
    about = subject.describe([str(capture)], trace.connections, trace.coverage, drawing.view)
    return Picture(
        figure.name,
        figure.title,
        _READ_STREAMS,
        drawing.draw,
        (*(f"Note: {note}" for note in drawing.notes), *footer.facts(about)),
    )


def _finishes(figure: Figure, definition: Definition, results: Sequence[PointResult]) -> Picture | None:
    chart = finishes_of(figure, definition, results)
    if not chart.lines:
        return None
    return Picture(
        figure.name, chart.title, _READ_FINISHES, lambda drawn: experiment.draw(drawn, chart), tuple(chart.notes)
    )


def finishes_of(figure: Figure, definition: Definition, results: Sequence[PointResult]) -> Chart:
    """The arrays of a figure of finish times: of every point its streams, the first to be done first."""
    wanted = {name: each.value for name, each in figure.where.items()}
    groups: dict[str, list[list[float]]] = {}
    for result in results:
        is_shown = (not figure.arms or result.arm in figure.arms) and all(
            name in result.values and result.values[name] == value for name, value in wanted.items()
        )
        if is_shown and result.streams:
            ends = sorted(stream.ended_s for stream in result.streams)
            groups.setdefault(_line_name(figure, definition, result), []).append(ends)
    most = max((len(ends) for group in groups.values() for ends in group), default=0)
    return Chart(
        title=figure.title,
        x_label="stream, in the order of their ends",
        y_label="time from the first command to the stream's last status, s",
        ticks=tuple((float(place), str(place + 1)) for place in range(most)),
        lines=tuple(_line_of_ends(name, group) for name, group in groups.items()),
        notes=(f"{definition.title}: {definition.source}",),
    )


def _line_of_ends(name: str, repeats: Sequence[Sequence[float]]) -> Line:
    """Repeats of one point, which has as many streams in each."""
    count = min(map(len, repeats))
    ends = np.array([each[:count] for each in repeats])
    spreads = ends.std(axis=0, ddof=1) if len(repeats) > 1 else [None] * count
    nothing = (None,) * count
    return Line(
        name=name,
        places=tuple(map(float, range(count))),
        measured=tuple(map(float, ends.mean(axis=0))),
        spreads=tuple(None if each is None else float(each) for each in spreads),
        model=nothing,
        published=nothing,
    )


def _courses(
    figure: Figure, definition: Definition, points: Sequence[Point], results: Sequence[PointResult]
) -> Picture | None:
    def name_of(point: Point) -> str:
        if figure.lines == ARM or figure.lines not in point.place:
            return point.arm
        return f"{_words(figure.lines)} {point.place[figure.lines].text}"

    lines = course_figures.lines_of(figure, points, results, name_of)
    if not lines:
        return None
    label = course_figures.y_label(figure, results)
    return Picture(
        figure.name,
        figure.title,
        course_figures.HOW_TO_READ,
        lambda drawn: courses.draw(drawn, lines, label),
        (f"{definition.title}: {definition.source}",),
    )


def _packets(
    figure: Figure, points: Sequence[Point], results: Sequence[PointResult], directory: Path
) -> Picture | None:
    """Of the figure's point those of its last cycles but one, which are steady; None without its capture."""
    capture = _capture(figure, points, results, directory)
    if capture is None:
        return None
    trace = iscsitrace.read(capture, tables=_LADDER_TABLES)
    reads = [row["cycle"] for row in trace.cycles.rows() if row["operation"] in {"read", "write"}]
    if len(reads) <= figure.cycles:
        return None
    last = reads[-1]
    zoom = view.Zoom(cycles=range(last - figure.cycles, last))
    origin_ns = trace.inputs[0]["time_first_ns"]
    seen = view.of_connection(trace.connections, trace.cycles, zoom, origin_ns)
    found = ladder_curves.prepare(trace.connections, trace.cycles, trace.segments, trace.pdus, trace.budget, seen)
    about = subject.describe([str(capture)], trace.connections, trace.coverage, seen)
    return Picture(
        figure.name,
        figure.title,
        _READ_PACKETS,
        lambda drawn: ladder.draw(drawn, found),
        (*(f"Note: {note}" for note in ladder.notes(found)), *footer.facts(about)),
    )


def _save(path: Path, drawn: Any) -> None:
    with written_aside(path) as partial, partial.open("wb") as stream:
        style.write(drawn, stream, FORMAT)
