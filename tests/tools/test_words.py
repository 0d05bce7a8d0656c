"""The check of words: phrases found, also over the end of a line."""

from __future__ import annotations

import pytest

from tools import words
from tools.words import found_in


@pytest.mark.parametrize(
    ("text", "line", "phrase"),
    [
        ("on a path of 8.9 ms there", 1, "path of 8.9 ms"),
        ("first\nthe packets sent again", 2, "packets sent again"),
        ("# what took the time was sent\n# again and again", 1, "was sent again"),
        ('text = (\n    f"the initiator gave tasks "\n    f"up"\n)', 2, "gave tasks up"),
        ("Keys In Force", 1, "Keys In Force"),
        ("clock: 0.2 ms, known to +- 8 ms", 1, "known to +-"),
        ("2 connects were refused", 1, "2 connects"),
    ],
)
def test_a_phrase_is_found(text: str, line: int, phrase: str) -> None:
    assert [(number, found) for number, found, _ in found_in(text)] == [(line, phrase)]


def test_other_words_are_not_reported() -> None:
    assert not list(found_in("RTT 8.9 ms, 12 retransmissions, negotiated parameters\nmonkeys in forced marches"))


def test_pages_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    counted = words.pages()
    assert {name for name, (_, is_generated) in counted.items() if is_generated} >= {
        "cli.md",
        "reproduction.md",
        "faults.md",
    }
    assert not counted["method.md"][1]
    assert words.main(["--pages"]) == 0
    written = sum(count for count, is_generated in counted.values() if not is_generated)
    assert capsys.readouterr().out.endswith(f"{written:7,} written by hand, of {words.MOST_WORDS:,}\n")
