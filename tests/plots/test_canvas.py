"""Plots of every sample are drawn: no text is cut or stands on other text, no legend hides the data, and where every
kind is drawn, legends have the colours that can be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.errors import InputInvalid
from iscsitrace.plots import kinds, picture, style
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.picture import PictureSize
from iscsitrace.plots.view import Zoom
from iscsitrace.report import figures
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.reading import TappedTables
from tests.support.canvas import problems
from tests.support.legends import wrong_colors

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir())
NARROW = PictureSize(width_in=8)
NARROWED = "task-abort-storage-hang"
"""The sample that is drawn narrow, too, with long legends and notes; and so are both ends together."""
OF_TAPS = "loss-1-percent"
"""The sample with both ends."""
OF_EVERY_KIND = (
    *("loss-1-percent", "mid-session", "task-abort-storage-hang"),
    *("two-connections-one-session", "write-r2t-rounds"),
)
"""Samples in which no kind of plot lacks what it draws: their legends are checked."""
OF_EACH = ("events", "ladder", "time_breakdown")
"""The kinds that write what is particular in a capture, and are drawn of the other samples."""


def traces(name: str) -> Iterator[TraceTables]:
    """The capture of a sample; and both ends together, if it has both."""
    every = [kinds.load(kind) for kind in kinds.NAMES]
    tables = tuple(dict.fromkeys(table for kind in every for table in (*kind.tables, *kind.zoomed_tables)))
    (capture,) = (SAMPLES / name).glob("capture.*")
    yield iscsitrace.read(capture, tables=tables)
    for other in (SAMPLES / name).glob("target.*"):
        yield iscsitrace.read_taps({"host": capture, "disk": other}, tables=tables)


def sizes(name: str, kind: str, trace: TraceTables) -> tuple[PictureSize, ...]:
    """The sizes of a picture; of both ends a kind that one end has, too, is drawn narrow only."""
    if isinstance(trace, TappedTables) and not kinds.load(kind).is_of_taps:
        return (NARROW,)
    return (PictureSize(), NARROW) if name == NARROWED or isinstance(trace, TappedTables) else (PictureSize(),)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_cut_or_hidden_and_legends_have_the_colors(name: str) -> None:
    drawn: set[str] = set()
    has_every_kind = name in OF_EVERY_KIND
    for trace in traces(name):
        for kind in kinds.NAMES if has_every_kind else OF_EACH:
            try:
                drawing = kinds.load(kind).drawing(trace, Zoom(), trace.start_ns, Detail())
            except InputInvalid:
                continue
            about = picture.subject_of(trace, drawing.view)
            for size in sizes(name, kind, trace):
                figure = picture.figure_of(drawing, about, size)
                with style.applied():
                    assert problems(figure) == [], (kind, size)
                if has_every_kind:
                    assert wrong_colors(kind, figure) == [], (kind, size)
            drawn.add(kind)
    assert drawn
    if has_every_kind:
        of_taps = {kind for kind in kinds.NAMES if kinds.load(kind).is_of_taps}
        assert drawn >= {*kinds.NAMES} - (of_taps if name != OF_TAPS else set())


@pytest.mark.parametrize("width_in", [figures._WIDE_IN, figures._NARROW_IN])
@pytest.mark.parametrize("name", ["black-out-and-relogin", "task-abort-storage-hang"])
def test_the_time_line_of_a_report_is_whole(name: str, width_in: float) -> None:
    trace = next(traces(name))
    drawing = kinds.load("events").drawing(trace, Zoom(), trace.start_ns, Detail())
    with style.applied():
        figure = style.new_figure(drawing.height_in, width_in)
        drawing.draw(figure)
        assert problems(figure) == []


def test_what_is_wrong_is_found() -> None:
    """The check itself."""
    with style.applied():
        figure = style.new_figure(3, 4)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], label="a curve whose name is long and hides it\n\n\n\n\n\n\n")
        axes.legend(loc="center")
        axes.text(0.8, 0.5, "beyond the right edge of the canvas")
        other = axes.twinx()
        other.plot([0, 1], [1, 0], label="an entry that has no room")
        # else the layout would make room
        other.legend(loc="lower left", bbox_to_anchor=(0.9, 1.0)).set_in_layout(False)
        figure.text(0.1, 0.5, "first")
        figure.text(0.1, 0.51, "second")
        found = problems(figure)
    assert {each.partition(" reaches")[0] for each in found if "beyond the canvas" in each} == {
        "mark 'beyond the right edge of the canvas'",
        "legend 'an entry that has no room'",
    }
    assert "text 'first' overlaps text 'second'" in found
    assert any(each.startswith("a legend covers") for each in found)


def test_a_healthy_figure_has_no_faults() -> None:
    with style.applied():
        figure = style.new_figure(3, 4)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], label="a curve")
        axes.set_xlabel("time, s")
        style.legend(axes)
        assert problems(figure) == []


def test_a_legend_has_as_many_columns_as_have_room() -> None:
    def columns(width_in: float) -> int:
        with style.applied():
            figure = style.new_figure(3, width_in)
            axes = figure.subplots()
            for number in range(6):
                axes.plot([0, 1], [0, number], label=f"a curve with a name of number {number}")
            style.legend(axes, columns=6)
            figure.draw_without_rendering()
            found = axes.get_legend()
        assert found is not None
        return len({round(text.get_window_extent().x0) for text in found.get_texts()})

    assert [columns(width_in) for width_in in (3, 6, 30)] == [1, 2, 6]
