"""Which plots a page gets, and why others are missing: with kinds of plots made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import inline, kinds
from iscsitrace.plots.marks import Detail
from iscsitrace.report import figures


def drawing(trace: Any, zoom: str, origin_ns: int, detail: Detail) -> Any:
    # a page has few points of each plot, a file has more
    assert (origin_ns, detail) == (0, Detail(limit=4_000, columns=1_000))
    return SimpleNamespace(draw=lambda figure: None, title="title", notes=["note"], height_in=6.2)


def refused(*arguments: Any) -> Any:
    raise InputInvalid("no such commands")


def kind(place: int, tables: tuple[str, ...], zoomed: tuple[str, ...], drawing: Any) -> Any:
    name = f"plot {place}"
    return SimpleNamespace(
        place=place, tables=tables, zoomed_tables=zoomed, drawing=drawing, how_to_read="read",
        pictures=lambda found: [(name, f"zoom of {found}")],
    )  # fmt: skip


@pytest.fixture
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "c": kind(1, ("cycles",), (), refused),
        "b": kind(2, ("pdus", "window"), ("segments",), drawing),
        "a": kind(3, ("cycles",), ("sacks",), drawing),
    }
    monkeypatch.setattr(kinds, "NAMES", tuple(sorted(known)))
    monkeypatch.setattr(kinds, "load", known.__getitem__)
    monkeypatch.setattr("iscsitrace.measure.waits.of_trace", lambda source: None)
    monkeypatch.setattr(
        "iscsitrace.plots.kind.examples_of",
        lambda cycles, waited, session, count, jobs, story: f"{session}, {count}",
    )
    monkeypatch.setattr(inline, "draw", lambda figure, prefix, looks: SimpleNamespace(svg=prefix, axes=[]))


def trace(*tables: str) -> Any:
    rows = [{"session": 7}, {"session": 7}, {"session": 8}]
    connections = SimpleNamespace(rows=lambda: rows)
    return SimpleNamespace(start_ns=0, connections=connections, cycles=None, table=None, options={"tables": tables})


@pytest.mark.usefixtures("_by_hand")
def test_plots_stand_in_the_order_of_their_places() -> None:
    assert list(figures.wanted(trace(), 7, ())) == [
        ("plot 1", "c", "zoom of 7, 2"), ("plot 2", "b", "zoom of 7, 2"), ("plot 3", "a", "zoom of 7, 2"),
    ]  # fmt: skip


@pytest.mark.usefixtures("_by_hand")
def test_one_plot_that_is_missing_leaves_the_others() -> None:
    pictures, missing = figures.draw(trace("cycles", "pdus", "window"), 7, (), inline.Looks())
    assert [(each.name, each.title, each.how_to_read, each.notes, each.svg) for each in pictures] == [
        ("plot 2", "title", "read", ("note",), "b0-"), ("plot 3", "title", "read", ("note",), "a1-"),
    ]  # fmt: skip
    assert missing == ("plot 1: no such commands",)
    # of what a plot needs all tables must be there
    pictures, missing = figures.draw(trace("cycles", "pdus"), 7, (), inline.Looks())
    assert [each.svg for each in pictures] == ["a0-"]
    assert missing[1] == "plot 2: the input is too large; `iscsitrace plot b` draws a part of it"


@pytest.mark.usefixtures("_by_hand")
def test_a_large_input_is_read_without_pdus_and_without_what_is_zoomed() -> None:
    assert figures.needed(is_large=False) == ("cycles", "sacks", "pdus", "window", "segments")
    assert figures.needed(is_large=True) == ("cycles", "window")
