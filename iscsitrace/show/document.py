"""A result as sections of blocks: sentences, tables, key figures, findings, plots, before anything is written.

A content is made in one place. The terminal, Markdown, pages and notebooks write the same blocks; a writer leaves out
what it cannot show. Every text may come from a capture: a writer escapes it. All are named tuples: as many dataclasses
would take 10 ms of each start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from iscsitrace.wording import amounts, cells
from iscsitrace.wording.sentences import capital

_SPELLED: Final = {"io": "I/O", "r2t": "R2T", "nop": "NOP", "mtu": "MTU", "lun": "LUN", "ack": "ACK", "ats": "ATS"}


class Heading(NamedTuple):
    """A title within a section."""

    text: str


class Grid(NamedTuple):
    """A table of text."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """What the table omits, or how to read it."""
    is_long: bool = False
    """Whether a page lets the reader sort and filter it."""

    @property
    def is_number(self) -> tuple[bool, ...]:
        """For each column: whether every cell is a number or ``-``. Number columns are right-aligned."""
        return tuple(
            all(_is_number(row[place]) for row in self.rows) and bool(self.rows) for place in range(len(self.columns))
        )


def table(
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    caption: str = "",
    *,
    limit: int | None = None,
    count: int = 0,
    notes: Iterable[str] = (),
) -> Grid:
    """A table of values of any type: the first ``limit`` rows, with a note on those omitted, of all or of ``count``."""
    every = [tuple(map(cells.text, row)) for row in rows]
    shown = tuple(every[:limit])
    return Grid(caption, tuple(columns), shown, (*more_rows(max(count, len(every)) - len(shown)), *notes))


def more_rows(count: int) -> tuple[str, ...]:
    """The note on so many rows that a table omits; none where it has all."""
    return (f"{count:,} more {'row is' if count == 1 else 'rows are'} not shown.",) if count > 0 else ()


def _is_number(cell: str) -> bool:
    """A plain number, a bound (``>5``), a percentage, or a size (``64K``)."""
    digits = (
        cell.removeprefix(">").removesuffix("%").strip().rstrip("KMG").lstrip("-+").replace(",", "").replace(".", "", 1)
    )
    return cell == "-" or digits.isdecimal()


class Fact(NamedTuple):
    """A key figure."""

    name: str
    value: str
    meaning: str = ""


class KeyFigures(NamedTuple):
    """Key figures."""

    every: tuple[Fact, ...]


class TimeShare(NamedTuple):
    """One part of a time."""

    name: str
    meaning: str
    share: float
    ms: str
    color: str
    is_limiter: bool = False

    @property
    def percent(self) -> str:
        """The share as text."""
        return amounts.percent(self.share)


class Breakdown(NamedTuple):
    """A time in parts: a bar on a page, else a table."""

    caption: str
    parts: tuple[TimeShare, ...]
    of: str = "I/O time"
    """What the shares are of."""

    @property
    def short(self) -> Grid:
        """The table without the meanings, for little room."""
        return Grid(
            "", ("part", "ms", "%"), tuple((each.name, each.ms, cells.percent(each.share)) for each in self.parts)
        )

    @property
    def grid(self) -> Grid:
        """The table."""
        rows = tuple((each.name, each.meaning, each.ms, cells.percent(each.share)) for each in self.parts)
        return Grid(self.caption, ("part", "meaning", "ms", f"% of {self.of}"), rows)


class Step(NamedTuple):
    """One change to make."""

    advice: str
    notes: str = ""
    """What it touches, and the gain that the model predicts; empty where nothing is known."""


class FoundProblem(NamedTuple):
    """A finding as text, with its advice."""

    name: str
    severity: str
    cost: str
    """Such as ``41 %``, ``14.1 s lost``; empty where it is unknown."""
    text: str
    steps: tuple[Step, ...] = ()
    display_filter: str = ""
    of: str = ""
    """What its share is of."""

    @property
    def title(self) -> str:
        """The name as words: ``Queue depth low``, ``I/O outage``."""
        return capital(" ".join(_SPELLED.get(word, word) for word in self.name.split("_")))

    @property
    def whole_cost(self) -> str:
        """The cost, and what a share is of."""
        return f"{self.cost} {self.of}".strip()


NO_FINDINGS: Final = "No findings."


class Findings(NamedTuple):
    """Findings in their order."""

    every: tuple[FoundProblem, ...]


class SvgPlot(NamedTuple):
    """A plot."""

    name: str
    """A short name for its tab."""
    title: str
    how_to_read: str
    notes: tuple[str, ...]
    svg: str
    axes: list[dict[str, Any]]


class Plots(NamedTuple):
    """Plots below each other, or one at a time; text has none."""

    pictures: tuple[SvgPlot, ...]
    left_out: tuple[str, ...] = ()
    """Why others are missing."""
    has_tabs: bool = True


class HeatCell(NamedTuple):
    """A row of a heat map in a bin of time."""

    kind: str
    """Class of its color: ``h1`` and so on by latency, ``out``, or empty where there is nothing."""
    text: str


class HeatRow(NamedTuple):
    """A volume."""

    label: str
    host: str
    """The initiator."""
    outage: str
    """Seconds."""
    cells: tuple[HeatCell, ...]


class HeatMap(NamedTuple):
    """Volumes over time, the worst first; text has none."""

    times: tuple[str, str, str]
    """When it begins, its middle and its end, since the start of the capture."""
    width: str
    """Of a bin."""
    legend: tuple[tuple[str, str], ...]
    """Class and meaning of each color."""
    rows: tuple[HeatRow, ...]
    notes: tuple[str, ...] = ()


Block: TypeAlias = str | Heading | Grid | KeyFigures | Breakdown | Findings | Plots | HeatMap
"""A text is a line of sentences."""


class Section(NamedTuple):
    """A title, then blocks."""

    title: str
    blocks: tuple[Block, ...] = ()
    identity: str = ""
    """The anchor for links within a page."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Its texts."""
        return tuple(each for each in self.blocks if isinstance(each, str))

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Its tables."""
        return tuple(each for each in self.blocks if isinstance(each, Grid))

    @property
    def findings(self) -> tuple[FoundProblem, ...]:
        """Its findings."""
        return tuple(found for each in self.blocks if isinstance(each, Findings) for found in each.every)

    @property
    def pictures(self) -> tuple[SvgPlot, ...]:
        """Its plots."""
        return tuple(picture for each in self.blocks if isinstance(each, Plots) for picture in each.pictures)


class Opening(NamedTuple):
    """What a report says first."""

    question: str
    """What it answers."""
    headline: str
    notes: str = ""
    """Caveats of an experiment."""
    facts: tuple[Fact, ...] = ()
    label: str = ""
    """The session or story that it is about; empty where it is about something else."""
    peers: str = ""
    """Names and addresses of initiator and target."""
    breakdowns: tuple[Breakdown, ...] = ()
    """Of its time, that by cause the last."""
    findings: tuple[FoundProblem, ...] = ()
    """What has to be done something about."""
    failure: tuple[Fact, ...] = ()
    """When it broke, what that cost and hit, whose side it points to; empty where nothing broke."""
    timeline: tuple[SvgPlot, ...] = ()
    """What happened, where something broke: for a wide page, and for a narrow one."""

    @property
    def lines(self) -> tuple[str, str]:
        """The first sentence of the headline, and the others."""
        first, stop, rest = self.headline.partition(". ")
        return first + stop.strip(), rest


class Document(NamedTuple):
    """A whole report, in order."""

    title: str
    subtitle: str
    opening: Opening
    sections: tuple[Section, ...]
    style_sheet: str = ""
    """The styles of the pictures."""

    def section(self, identity: str) -> Section | None:
        """The section with this anchor."""
        return next((each for each in self.sections if each.identity == identity), None)
