"""Tables on terminals of any width: drawn where they fit, with sentences folded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import pytest

from iscsitrace.show import document
from iscsitrace.show.terminal import show_line, show_table

SENTENCE = "the initiator closed the connection after the login"
NAME = "0123456789"


@pytest.mark.parametrize(
    ("columns", "is_drawn"),
    [
        (200, True),
        # the name, 24 columns of the sentence, and two blanks between them
        (10 + 24 + 2, True),
        (10 + 24 + 1, False),
    ],
)
def test_a_table_is_drawn_where_it_fits(
    columns: int, is_drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_table(("name", "event"), [(NAME, SENTENCE)])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    if is_drawn:
        assert max(map(len, lines)) <= columns
        assert " ".join(" ".join(lines[1:]).split()) == f"{NAME} {SENTENCE}"
    else:
        # the terminal folds whole lines
        assert lines[-1] == f"{NAME}  {SENTENCE}"


def shown(
    columns: int,
    headings: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """The lines of a table on a terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_table(headings, rows)
    return click.unstyle(capsys.readouterr().out).splitlines()


def test_each_cell_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    looked_at: list[str] = []

    def is_number(cell: str) -> bool:
        looked_at.append(cell)
        return True

    monkeypatch.setattr(document, "_is_number", is_number)
    rows = [(number, number) for number in range(300)]
    show_table(("one", "other"), rows)
    assert len(capsys.readouterr().out.splitlines()) == 301
    assert len(looked_at) <= 2 * len(rows)


def test_headings_are_folded_where_they_make_a_table_too_wide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headings = ("retransmissions to the target", "RTT ms")
    lines = shown(15 + 3 + 2, headings, [("7", "1.5")], monkeypatch, capsys)
    assert max(map(len, lines)) <= 15 + 3 + 2
    assert [line.split() for line in lines] == [
        ["retransmissions", "RTT"],
        ["to", "the", "target", "ms"],
        ["7", "1.5"],
    ]
    whole = shown(29 + 6 + 2, headings, [("7", "1.5")], monkeypatch, capsys)
    assert whole[0].split() == " ".join(headings).split()


def test_a_column_may_have_no_heading(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(80, ("", "truth"), [("reads", "256")], monkeypatch, capsys)
    assert [line.split() for line in lines] == [["truth"], ["reads", "256"]]


def test_few_rows_that_are_too_wide_are_turned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headings = ("session", "initiator", "target", "TSIH", "end")
    rows = [("0", NAME, NAME, "1", "logout"), ("1", NAME, NAME, "-", "open")]
    beside = [
        "session    0           1",
        f"initiator  {NAME}  {NAME}",
        f"target     {NAME}  {NAME}",
        "TSIH       1           -",
        "end        logout      open",
    ]
    width = len(beside[1])
    assert shown(width, headings, rows, monkeypatch, capsys) == ["", *beside]
    below = [[f"{name:11}{value}" for name, value in zip(headings, row, strict=True)] for row in rows]
    assert shown(width - 1, headings, rows, monkeypatch, capsys) == ["", *below[0], "", *below[1]]
    # many rows, or few columns, are no easier to read so
    assert len(shown(30, headings, rows[:1] * 9, monkeypatch, capsys)) == 10
    assert len(shown(30, ("a", "b", "c"), [(NAME, NAME, NAME)], monkeypatch, capsys)) == 2


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_gets_the_first_rows_and_the_number_of_the_others(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show_table(("row",), [(str(number),) for number in range(1_734)])
    lines = [line.strip() for line in click.unstyle(capsys.readouterr().out).splitlines()]
    rows = [line for line in lines if line.isdecimal()]
    assert rows == [str(number) for number in range(500 if is_terminal else 1_734)]
    assert any(line.startswith("1,234 more rows are not shown.") for line in lines) == is_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one two three four", ["one two", "three four"]),
        ("    - one two three", ["    - one", "      two", "      three"]),
        # words are never cut, and what is to be copied stays one line
        ("0123456789abc de", ["0123456789abc", "de"]),
        ("    frame.number in {1, 2, 3}", ["    frame.number in {1, 2, 3}"]),
        ("short", ["short"]),
    ],
)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_line_is_folded_between_words_on_a_terminal(
    text: str, shown: list[str], is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show_line(text)
    assert capsys.readouterr().out.splitlines() == (shown if is_terminal else [text])
