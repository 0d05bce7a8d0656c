"""The numbers of a figure as rows of a CSV file, and the caption that names what is drawn."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from iscsitrace.plots.budget_bars import Bars
from iscsitrace.plots.courses import CourseLine
from iscsitrace.plots.experiment import Chart, Line

Rows = tuple[tuple[Any, ...], ...]
"""The header, then the rows; None where a number is unknown."""


def of_chart(chart: Chart) -> Rows:
    """A row for each place of each line."""
    labels = dict(chart.ticks)
    header = ("line", chart.x_label, chart.y_label, "95 % low", "95 % high", "runs", "model", "printed", "computed")
    return (header, *(row for line in chart.lines for row in _places(line, labels)))


def _places(line: Line, labels: dict[float, str]) -> Iterator[tuple[Any, ...]]:
    for place, measured, interval, *others in zip(
        *(line.places, line.measured, line.intervals, line.counts, line.model, line.printed, line.computed), strict=True
    ):
        yield (line.name, labels[place], measured, *(interval or (None, None)), *others)


def of_bars(bars: Bars) -> Rows:
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


def text(rows: Rows) -> str:
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
    parts = [
        (chart.has("measured"), f"Marks: measured, {marks}."),
        (chart.has("intervals"), f"Error bars: 95 % confidence intervals of {repeats} repeats."),
        (chart.has("model"), "Lines: model at the places of the marks, joined."),
        (chart.has("printed"), "Stars: printed in the study."),
        (chart.has("computed"), "Pentagons: computed from what the study prints."),
        (
            chart.printed_range is not None,
            "Band: printed in the study, {:g} to {:g}.".format(*chart.printed_range or (0, 0)),
        ),
    ]
    return " ".join(words for is_drawn, words in parts if is_drawn)
