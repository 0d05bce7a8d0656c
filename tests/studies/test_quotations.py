"""Every quotation and every caption of a figure that a definition prints, against the texts of the papers.

The texts are not part of the project; without them these tests are skipped. Blanks and line breaks do not count, nor
does what only marks up a text: the signs of LaTeX, and bold type that was written four times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from iscsitrace.studies import definition
from iscsitrace.studies.definition import Definition
from tests.support import recordings

_TEXTS: Final = {
    "read-study": "000-read.txt",
    "mirror-study": "001-mirror-and-write.txt",
    "design-study": "002-design.txt",
    "stream-study": "003-stream.txt",
    "connection-study": "004-connection.txt",
}
_LABELS: Final = {"figure": "図", "table": "表"}
CUT: Final = "…"
"""Stands for words that are left out; the parts around it are in this order in the text."""


def text_of(study: str) -> str:
    """The text without blanks and marks; its line breaks are left, since a caption ends with a line."""
    file = recordings.captures_folder().parent / "studies" / _TEXTS[study]
    if not file.is_file():
        pytest.skip("needs the texts of the papers beside the recorded captures: ISCSITRACE_CAPTURES")
    text = re.sub(r"[^\S\n]|[${}]|\\text", "", file.read_text(encoding="utf-8"))
    return re.sub(r"(.{1,80}?)\1\1\1", r"\1", text) if study == "read-study" else text


def after(text: str, quotation: str) -> str | None:
    """What follows the quotation in a text; None when it is not there."""
    for part in quotation.split(CUT):
        found = re.search(r"\n*".join(map(re.escape, "".join(part.split()))), text)
        if found is None:
            return None
        text = text[found.end() :]
    return text


def quotations(found: Definition) -> Iterator[str]:
    yield from (each.quotation for each in found.published if each.quotation)
    yield from (each.quotation for each in found.claims if each.quotation)


@pytest.mark.parametrize("name", [name for name in definition.names() if name != "connection-lab"])
def test_quotations_are_in_the_text(name: str) -> None:
    found = definition.load(name)
    text = text_of(found.part_of or name)
    assert [each for each in quotations(found) if after(text, each) is None] == []


@pytest.mark.parametrize("name", sorted(_TEXTS))
def test_captions_are_those_of_the_text_and_say_where_they_are_cut(name: str) -> None:
    text, wrong = text_of(name), []
    for each in definition.load(name).exhibits:
        kind, _, number = each.name.partition(" ")
        rest = after(text, f"{_LABELS[kind]}{number}{each.caption}")
        if rest is None:
            rest = after(text, f"{_LABELS[kind]}{number}:{each.caption}")
        if each.caption and (rest is None or bool(rest[:1].strip()) != each.caption.endswith(CUT)):
            wrong.append(each.name)
    assert wrong == []


def test_a_wrong_word_a_wrong_order_and_joined_labels_are_found() -> None:
    text = "図1:読み出し\nの時間1Cycle91Packets;終わり"
    assert after(text, "読み出し の時間") == "1Cycle91Packets;終わり"
    assert after(text, "1 Cycle … 91 Packets") == ";終わり"
    assert after(text, "1 Cycle, 91 Packets") is None
    assert after(text, "91 Packets … 1 Cycle") is None
    assert after(text, "書き込みの時間") is None
