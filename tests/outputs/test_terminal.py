"""Tables on terminals of any width: drawn where they fit, with sentences folded."""

from __future__ import annotations

import sys

import click
import pytest

from iscsitrace.outputs.terminal import show_line, show_table

SENTENCE = "the initiator closed the connection after the login"
NAME = "0123456789"


@pytest.mark.parametrize(
    ("columns", "is_drawn"),
    [
        (200, True),
        # the name, 24 columns of the sentence, and a blank on each side of both
        (10 + 24 + 4, True),
        (10 + 24 + 3, False),
    ],
)
def test_a_table_is_drawn_where_it_fits(
    columns: int, is_drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_table(("name", "event"), [(NAME, SENTENCE)])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert any("\u2500" in line for line in lines) == is_drawn
    if is_drawn:
        assert max(map(len, lines)) <= columns
        assert " ".join(" ".join(lines[3:]).split()) == f"{NAME} {SENTENCE}"
    else:
        # the terminal folds whole lines
        assert lines[-1] == f"{NAME}  {SENTENCE}"


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
