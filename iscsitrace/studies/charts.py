"""The arrays of figures that are drawn from results alone, their numbers as rows of a CSV file, and their captions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from iscsitrace.plots.experiment import BudgetBars, Chart, CourseLine, Graph
from iscsitrace.studies import repeats
from iscsitrace.studies.definition import ARM, BudgetFigure, Definition, Figure, FinishFigure, LineFigure
from iscsitrace.studies.quantities import QUANTITIES, PointResult
from iscsitrace.studies.repeats import Row

_MS_NS: Final = 1_000_000
_SETTING_WORDS: Final = {
    "target.count": "number of targets",
    "workload.connections": "number of connections",
    "workload.start-connections": "number of connections",
    "workload.measure-time": "measuring time T_m",
    "tcp.window": "TCP window",
    "link.one-way-delay": "one-way delay",
    "link.target-delays": "one-way delay to each target",
    "link.access-queue-packets": "packets in the queue:",
    "workload.block-size": "I/O size",
}
_RTT_WORDS: Final = {"link.target-delays": "RTT to each target"}
_UNITS: Final = {"K": "KiB", "M": "MiB", "G": "GiB"}
"""Of sizes, as definitions write them."""
_PUBLISHED: Final = (False, True, None)
"""Whether a value is computed; None where its place is not printed: stars, pentagons, and levels."""
_AMOUNT: Final = re.compile(r"(-?[\d.]+) ?([A-Za-z%]+)")


def of_lines(figure: LineFigure, definition: Definition, rows: Sequence[Row]) -> Chart:
    """A quantity over a setting: measured, predicted and published."""
    shown = _shown(figure, figure.x, rows)
    texts, x_label = _axis(figure, definition, shown)
    places = sorted({_key(value): value for row in shown for value in [_x(figure, row)]}.values(), key=_order)
    # most settings are doubled from value to value, so even spacing reads best
    at = {_key(value): float(number) for number, value in enumerate(places)}
    if figure.to_scale and all(isinstance(value, int | float) for value in places):
        at = {_key(value): float(value) for value in places}
    names = list(dict.fromkeys(_line_name(figure.lines, definition, row) for row in shown))
    published = [
        {
            id(row): value * each.scale if each.read_as else value
            for each in definition.published
            if each.quantity == figure.y and (each.is_computed if each.is_placed else None) == kind
            for row, _, _, value in repeats.places(each, shown, definition)
            if row is not None
        }
        for kind in _PUBLISHED
    ]
    return Chart(
        title=figure.title,
        x_label=x_label,
        y_label=QUANTITIES[figure.y].axis,
        ticks=tuple((at[_key(value)], texts[_key(value)]) for value in places),
        lines=tuple(
            _line(
                name,
                [row for row in shown if _line_name(figure.lines, definition, row) == name],
                figure,
                at,
                published,
            )
            for name in names
        ),
        notes=source_lines(definition),
        printed_range=figure.printed_range,
    )


def of_budgets(figure: BudgetFigure, definition: Definition, rows: Sequence[Row]) -> BudgetBars:
    """The time breakdown of a call over a setting."""
    shown = [row for row in _shown(figure, figure.x, rows) if row.shares]
    texts = _texts(definition, figure.x)
    ordered = sorted(shown, key=lambda row: _order(row.values[figure.x]))
    return BudgetBars(
        title=figure.title,
        x_label=setting_words(figure.x),
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
        notes=source_lines(definition),
    )


def of_finishes(figure: FinishFigure, definition: Definition, results: Sequence[PointResult]) -> Chart:
    """The finish times of the streams of each point, first to last."""
    groups: dict[str, list[list[float]]] = {}
    for result in results:
        if result.streams and _is_shown(figure, result):
            ends = sorted(stream.ended_s for stream in result.streams)
            groups.setdefault(_line_name(figure.lines, definition, result), []).append(ends)
    most = max((len(ends) for group in groups.values() for ends in group), default=0)
    return Chart(
        title=figure.title,
        x_label="stream, by the time at which it finished",
        y_label="time from the first command to the stream's last status, s",
        ticks=tuple((float(place), str(place + 1)) for place in range(most)),
        lines=tuple(_line_of_ends(name, group) for name, group in groups.items()),
        notes=source_lines(definition),
    )


def _axis(figure: LineFigure, definition: Definition, rows: Sequence[Row]) -> tuple[dict[str, str], str]:
    """The texts of the values along x, and the label of the axis; a unit that all have is part of the label."""
    written = _texts(definition, figure.x)
    values = {_key(_x(figure, row)): _x(figure, row) for row in rows}
    if figure.is_rtt:
        texts = {key: ", ".join(f"{2 * each / _MS_NS:g}" for each in _list(value)) for key, value in values.items()}
        words = f"RTT to target {figure.of_target}" if figure.of_target else _RTT_WORDS.get(figure.x, "RTT")
        return texts, f"{words}, ms"
    texts = {key: written.get(key, str(value)) for key, value in values.items()}
    amounts = {key: [_AMOUNT.fullmatch(each) for each in text.split(", ")] for key, text in texts.items()}
    units = {each and each[2] for found in amounts.values() for each in found}
    if len(units) != 1 or None in units:
        return texts, setting_words(figure.x)
    bare = {key: ", ".join(each[1] for each in found if each) for key, found in amounts.items()}
    unit = str(units.pop())
    return bare, f"{setting_words(figure.x)}, {_UNITS.get(unit, unit)}"


def _x(figure: LineFigure, row: Row) -> Any:
    """Where a row is along x."""
    value = row.values[figure.x]
    return value[figure.of_target - 1] if figure.of_target else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def source_lines(definition: Definition) -> tuple[str, ...]:
    """The text below each figure."""
    return (f"{definition.title}: {definition.source}",)


def setting_words(name: str) -> str:
    """The name of a setting on a figure."""
    return _SETTING_WORDS.get(name) or name.rpartition(".")[2].replace("-", " ")


def _shown(figure: Figure, x: str, rows: Sequence[Row]) -> list[Row]:
    """The rows of a figure over a setting."""
    return [row for row in rows if x in row.values and _is_shown(figure, row)]


def _is_shown(figure: Figure, made: Row | PointResult) -> bool:
    return figure.shows(made.arm, made.values)


def _line(
    name: str, rows: Iterable[Row], figure: LineFigure, at: dict[str, float], published: Sequence[dict[int, float]]
) -> Graph:
    """A line with what is published, of each of _PUBLISHED, by the identity of its rows."""
    ordered = sorted(rows, key=lambda row: at[_key(_x(figure, row))])
    found = [row.estimates.get(figure.y) for row in ordered]
    return Graph(
        name=name,
        places=tuple(at[_key(_x(figure, row))] for row in ordered),
        measured=tuple(each.value if each else None for each in found),
        intervals=tuple(each.interval if each else None for each in found),
        counts=tuple(each.count if each else 0 for each in found),
        model=tuple(row.model.get(figure.y) for row in ordered),
        printed=tuple(published[0].get(id(row)) for row in ordered),
        computed=tuple(published[1].get(id(row)) for row in ordered),
        levels=tuple(sorted({published[2][id(row)] for row in ordered if id(row) in published[2]})),
    )


def _line_name(lines: str, definition: Definition, made: Row | PointResult) -> str:
    if lines == ARM:
        return made.arm
    value = made.values.get(lines)
    return f"{setting_words(lines)} {_texts(definition, lines).get(_key(value), str(value))}"


def _line_of_ends(name: str, runs: Sequence[Sequence[float]]) -> Graph:
    """The repeats of one point, which have the same number of streams."""
    count = min(map(len, runs))
    ends = [repeats.mean([each[place] for each in runs]) for place in range(count)]
    nothing = (None,) * count
    return Graph(
        name=name,
        places=tuple(map(float, range(count))),
        measured=tuple(each.value for each in ends),
        intervals=tuple(each.interval for each in ends),
        counts=tuple(each.count for each in ends),
        model=nothing,
        printed=nothing,
        computed=nothing,
    )


def _texts(definition: Definition, name: str) -> dict[str, str]:
    """The values of a setting as the definition writes them."""
    tables = [definition, definition.real, *definition.arms]
    written = [table.settings[name] for table in tables if name in table.settings]
    written += [each for table in tables for each in table.axes.get(name, ())]
    return {_key(each.value): each.text for each in written}


def _key(value: Any) -> str:
    return repr(value)


def _order(value: Any) -> tuple[int, tuple[float, ...], str]:
    """Numbers and lists of numbers by size, then words."""
    numbers = value if isinstance(value, list) else [value]
    if all(isinstance(each, int | float) for each in numbers):
        return 0, tuple(map(float, numbers)), ""
    return 1, (), str(value)


Rows = tuple[tuple[Any, ...], ...]
"""The header, then the rows; None where a number is unknown."""


def of_chart(chart: Chart) -> Rows:
    """A row for each place of each line."""
    labels = dict(chart.ticks)
    header = ("line", chart.x_label, chart.y_label, "95 % low", "95 % high", "runs", "model", "printed", "computed")
    return (header, *(row for line in chart.lines for row in _places(line, labels)))


def _places(line: Graph, labels: dict[float, str]) -> Iterator[tuple[Any, ...]]:
    for place, measured, interval, *others in zip(
        *(line.places, line.measured, line.intervals, line.counts, line.model, line.printed, line.computed), strict=True
    ):
        yield (line.name, labels[place], measured, *(interval or (None, None)), *others)


def of_bars(bars: BudgetBars) -> Rows:
    """A row for each bar of each panel, a column for each part of the time breakdown, in %."""
    parts = list(dict.fromkeys(part for _, places in bars.panels for _, shares in places for part in shares))
    rows = ((name, text, *map(shares.get, parts)) for name, places in bars.panels for text, shares in places)
    return (("arm", bars.x_label, *(f"{part} %" for part in parts)), *rows)


def of_courses(lines: Sequence[CourseLine], label: str) -> Rows:
    """A row for each time of each line."""
    rows = (
        (line.name, time_s, value) for line in lines for time_s, value in zip(line.times_s, line.values, strict=True)
    )
    return (("line", "time since the first command, s", label), *rows)


def csv_text(rows: Rows) -> str:
    """The rows as CSV; empty where a number is unknown."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def caption(chart: Chart) -> str:
    """What is drawn, of what a chart can have."""
    runs = {count for line in chart.lines for count in line.counts if count}
    counts = sorted(runs - {1})
    repeats = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else "".join(map(str, counts))
    marks = "one run each" if not counts else "means over repeats, or one run" if 1 in runs else "means over repeats"
    levels = [f"{level:.4g}" for level in sorted({level for line in chart.lines for level in line.levels})]
    parts = [
        (chart.has("measured"), f"Marks: measured, {marks}."),
        (chart.has("intervals"), f"Error bars: 95 % confidence intervals of {repeats} repeats."),
        (chart.has("model"), "Lines: model at the places of the marks, joined."),
        (chart.has("printed"), "Stars: printed in the study."),
        (chart.has("computed"), "Pentagons: computed from what the study prints."),
        (bool(levels), f"Dashed: printed in the study, without a place: {', '.join(levels)}."),
        (
            chart.printed_range is not None,
            "Band: printed in the study, {:g} to {:g}.".format(*chart.printed_range or (0, 0)),
        ),
    ]
    return " ".join(words for is_drawn, words in parts if is_drawn)
