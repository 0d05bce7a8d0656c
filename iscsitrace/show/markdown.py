"""A document as Markdown, for a ticket or a mail, without plots. Every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from iscsitrace.show.document import (
    NO_FINDINGS,
    Block,
    Breakdown,
    Document,
    Fact,
    Findings,
    FoundProblem,
    Grid,
    Heading,
    HeatMap,
    KeyFigures,
    Opening,
    Plots,
    Section,
)
from iscsitrace.wording.cells import printable
from iscsitrace.wording.sentences import sentence

_SPECIAL: Final = re.compile(r"([\\`*\[\]<|~&]|(?<!\w)_|_(?!\w))")
"""Characters that Markdown takes for markup; an underscore within a word is not one."""


def render(document: Document) -> str:
    """The Markdown text."""
    head = (f"# {_text(document.title)}", _text(document.subtitle))
    paragraphs = chain(head, _opening(document.opening), chain.from_iterable(map(_section, document.sections)))
    return "\n\n".join(each for each in paragraphs if each) + "\n"


def _opening(opening: Opening) -> Iterator[str]:
    yield f"## {_text(opening.question)}"
    yield f"**{_text(opening.headline)}**"
    yield _text(opening.notes)
    yield _text(opening.peers)
    yield _facts(opening.failure + opening.facts)
    yield from (_grid(each.grid) for each in opening.breakdowns)


def _section(section: Section) -> Iterator[str]:
    yield f"## {_text(section.title)}"
    for block in section.blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    match block:
        case str():
            yield _text(block)
        case Heading():
            yield f"### {_text(block.text)}"
        case Grid():
            yield _grid(block)
        case Breakdown():
            yield _grid(block.grid)
        case KeyFigures():
            yield _facts(block.every)
        case Findings():
            yield from chain.from_iterable(map(_finding, block.every)) if block.every else (NO_FINDINGS,)
        case Plots() | HeatMap():
            pass


def _facts(facts: Iterable[Fact]) -> str:
    return "\n".join(
        f"- {_text(fact.name)}: {_text(fact.value)}" + (f" ({_text(fact.meaning)})" if fact.meaning else "")
        for fact in facts
    )


def _finding(found: FoundProblem) -> Iterator[str]:
    tag = ", ".join(filter(None, (found.severity, found.whole_cost)))
    yield f"**{_text(found.title)}** ({_text(tag)}): {prose(sentence(found.text))}"
    yield "\n".join(
        f"{number}. {prose(step.advice)}" + (f" ({_text(step.notes)})" if step.notes else "")
        for number, step in enumerate(found.steps, 1)
    )
    if found.display_filter:
        yield f"Frames: {code(found.display_filter)}"


def _grid(grid: Grid) -> str:
    lines = [
        _row(map(_text, grid.columns)),
        "|" + "".join("---:|" if is_number else "---|" for is_number in grid.is_number),
        *(
            _row(
                (code if name == "display filter" else _text)(cell)
                for name, cell in zip(grid.columns, row, strict=True)
            )
            for row in grid.rows
        ),
    ]
    caption = f"**{_text(grid.caption)}**\n\n" if grid.caption else ""
    notes = "".join(f"\n{_text(note)}" for note in grid.notes)
    return caption + "\n".join(lines) + (f"\n{notes}" if notes else "")


def _row(cells: Iterable[str]) -> str:
    return "|" + "".join(f" {cell} |" for cell in cells)


def code(value: str) -> str:
    """Text as code, with a fence longer than any in it."""
    value = printable(value)
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    # a bar would end a table cell, even within code
    return f"{fence}{pad}{value.replace('|', chr(92) + '|')}{pad}{fence}"


def prose(text: str) -> str:
    """A sentence; words between backticks become code."""
    return "".join(code(piece) if place % 2 else _text(piece) for place, piece in enumerate(text.split("`")))


def _text(value: str) -> str:
    """Text as it is."""
    # keep blanks at the ends: they separate code or a bracket from the next word
    return _SPECIAL.sub(r"\\\1", printable(re.sub(r"\s+", " ", value)))
