"""Reads files in the xplot format, from its README and its demo.0; independent of the writer under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

COLORS = {"white", "green", "red", "blue", "yellow", "purple", "orange", "magenta", "pink"}
POINTS = {
    "x", "dot", ".", "plus", "+", "box", "diamond", "utick", "ltick", "dtick", "rtick", "htick", "vtick", "uarrow",
    "darrow", "larrow", "rarrow", "invisible",
}  # fmt: skip
TEXTS = {"ctext", "rtext", "ltext", "atext", "btext"}
NAMED = {"title", "xlabel", "ylabel", "xunits", "yunits"}


@dataclass
class XplotFile:
    """The drawing commands of a file: (command, coordinates, colour, text)."""

    types: tuple[str, str]
    names: dict[str, str] = field(default_factory=dict)
    marks: list[tuple[str, tuple[Decimal, ...], str, str]] = field(default_factory=list)

    def of(self, command: str, color: str | None = None, text: str | None = None) -> list[tuple[Decimal, ...]]:
        """The coordinates of those marks, in order."""
        return sorted(
            at for each, at, its, words in self.marks
            if each == command and color in (None, its) and text in (None, words)
        )  # fmt: skip


def parse(text: str) -> XplotFile:
    """Parses a file; AssertionError for invalid xplot."""
    lines = iter(text.splitlines())
    x_type, y_type = next(lines).split()
    assert {x_type, y_type} <= {"double", "signed", "unsigned", "timeval"}
    found = XplotFile((x_type, y_type))
    current = "white"
    for line in lines:
        command, *rest = line.split()
        if command == "go":
            assert next(lines, None) is None
            break
        if command in NAMED:
            found.names[command] = next(lines)
            continue
        if command in COLORS:
            assert not rest
            current = command
            continue
        assert command in {*POINTS, *TEXTS, "line", "dline"}, line
        count = 4 if command in {"line", "dline"} else 2
        color = rest[count] if len(rest) > count else current
        assert len(rest) <= count + 1, line
        assert color in COLORS, line
        words = next(lines) if command in TEXTS else ""
        found.marks.append((command, tuple(Decimal(each) for each in rest[:count]), color, words))
    return found
