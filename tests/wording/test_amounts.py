"""Amounts in words: one rule for every percentage, and the labels of the parts of the time breakdown."""

from __future__ import annotations

import math

import pytest

from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.parts import PARTS


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0"),
        (1.0, "100"),
        (0.01, "1"),
        (0.014, "1"),
        (0.816, "82"),
        (0.99, "99"),
        # nothing rounds to 0 or 100 that is not
        (0.000001, "0.01"),
        (0.0004, "0.04"),
        (0.00404, "0.41"),
        (0.005, "0.5"),
        (0.99004, "99"),
        (0.995, "99.5"),
        (0.99996, "99.99"),
        (math.nextafter(1.0, 0.0), "99.99"),
        # a factor, as of residuals, is no share: it is rounded to whole numbers
        (-0.25, "-25"),
        (3.456, "346"),
    ],
)
def test_one_rule_for_percentages(share: float, text: str) -> None:
    assert amounts.percentage(share) == text
    assert amounts.percent(share) == f"{text} %"
    assert cells.percent(share) == text


def test_the_parts_are_those_of_the_tables_and_differ_in_name_letter_and_look() -> None:
    assert tuple(part.name for part in PARTS) == CATEGORIES["budget_part"]
    for seen in ({part.label for part in PARTS}, {part.letter for part in PARTS}, {part.color for part in PARTS}):
        assert len(seen) == len(PARTS)


def test_counts_in_sentences_have_their_thousands_apart() -> None:
    assert amounts.count(1, "row") == "1 row"
    assert amounts.count(4686, "packet") == "4,686 packets"
    assert amounts.size(500_000) == "500,000 bytes"


def test_text_from_a_capture_cannot_control_a_terminal_or_fill_a_page() -> None:
    assert cells.text("a\x1b[31mb\u202ec") == "a\\x1b[31mb\\u202ec"
    assert cells.short("x" * 161) == "x" * 157 + "..."
    assert cells.short("x" * 160) == "x" * 160
    words = "kept for " * 30
    assert cells.short(words) == "kept for " * 17 + "..."
    assert len(cells.short(words)) <= cells.TEXT_LIMIT
    # a long name behind a word is cut as such
    assert cells.short("the " + "x" * 200) == "the " + "x" * 153 + "..."
    assert (cells.text(None), cells.text(True), cells.text(False)) == ("-", "yes", "no")


@pytest.mark.parametrize(
    ("amount", "first", "text"),
    [
        (1, "0.05 s", "once at 0.05 s"),
        (3, "0.05 s", "3 times, first at 0.05 s"),
        (1, "", "once"),
        (1234, "", "1,234 times"),
    ],
)
def test_how_often_and_since_when(amount: int, first: str, text: str) -> None:
    assert amounts.times_since(amount, first) == text
