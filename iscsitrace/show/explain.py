"""What a name means that iscsitrace prints: a finding, a rule, a counter, a table, a column or its heading, a plot, a
part of the time breakdown, a kind of event, a login key, a term, a short cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.events.selection import HEADINGS
from iscsitrace.findings.thresholds import WARNING
from iscsitrace.measure.selection import CYCLE_HEADINGS
from iscsitrace.plots import kinds
from iscsitrace.show import conformance, pages
from iscsitrace.show.document import Section
from iscsitrace.show.places import HEADINGS as ROWS_OF_TAPS
from iscsitrace.tables.schema import (
    CATEGORIES,
    DATASET_TABLES,
    DERIVED_CYCLE_COLUMNS,
    DERIVED_TABLES,
    TABLES,
    TAP_TABLES,
    TAPPED_TABLES,
    Column,
)
from iscsitrace.taps import places
from iscsitrace.wording import amounts
from iscsitrace.wording.event_kinds import EVENT_KINDS
from iscsitrace.wording.headings import HEADINGS as OTHER_HEADINGS
from iscsitrace.wording.headings import WORDS, known_as
from iscsitrace.wording.parts import PARTS, named
from iscsitrace.wording.rules import counters, login_keys, rules
from iscsitrace.wording.sentences import like

if TYPE_CHECKING:
    from iscsitrace.findings.finding import Problem

_HEADINGS: Final = {"cycles": CYCLE_HEADINGS, "events": HEADINGS, "taps": ROWS_OF_TAPS}
RANKS: Final = {
    "failure": "something broke",
    "slowness": "a problem",
    "limit": "a limit of the path or the load, never a warning",
    "note": "a note",
}
"""In the order of pages."""
_BY_SHARE: Final = (
    f" from {amounts.percent(WARNING)} of the I/O time on, unless the condition says otherwise; below that a note"
)


def facts(problem: Problem) -> Iterator[tuple[str, str]]:
    """What is to know of it beside its meaning and its advice."""
    # a severity of its own is a warning whatever the share
    decides_share = problem.rank == "slowness" and problem.severity is None
    yield "Rank", RANKS[problem.rank] + (_BY_SHARE if decides_share else "")
    yield "Condition", problem.condition
    yield "Evidence", problem.evidence
    yield "Example", problem.example
    if problem.shown_by:
        yield "See it", f"`iscsitrace simulate {problem.shown_by} -o DIR`"
    if problem.explains:
        yield "Explains", f"`{problem.explains.part}`"
    if problem.scope == "session":
        yield "Scope", "sessions only"


def advice(problem: Problem) -> Iterator[str]:
    """Its advice, each with what it touches."""
    for each in problem.advice:
        yield each.text + (f" ({each.touches})" if each.touches else "")


def page(name: str, problems: Mapping[str, Problem]) -> list[Section]:
    """What a name means, once for each thing that has it: a finding and a plot are both called ``loss``.

    ``problems`` are the findings by name. A column is named alone or behind its table: ``status_ns``,
    ``cycles.status_ns``. InputInvalid, with names like it, for one that nothing has.
    """
    kind, _, rest = name.replace("login key ", "login_key ", 1).partition(" ")
    # as the help and sentences name it: ``rule D9``
    own = _OF_KIND.get(kind.casefold(), ()) if rest else ()
    if found := list(chain.from_iterable(each(rest, problems) for each in own)):
        return found
    for known in known_as(name):
        if found := list(chain.from_iterable(each(known, problems) for each in _KINDS)):
            return found
    near = like(name, names(problems))
    raise InputInvalid(
        f"nothing is called {name!r}" + (f"; names like it: {', '.join(near)}" if near else ""),
    )


def names(problems: Mapping[str, Problem]) -> list[str]:
    """All names that have a page, each once."""
    columns = (f"{table}.{column}" for table, each in _columns().items() for column in each)
    parts = (each for part in PARTS for each in (part.label, part.name))
    events = (kind.name for kind in EVENT_KINDS)
    headings = chain.from_iterable(_HEADINGS.values())
    words = (pages.terms(), WORDS, OTHER_HEADINGS, (key["name"] for key in login_keys()))
    every = (problems, places.FINDINGS, rules(), counters(), _rows(), columns, headings, kinds.NAMES, parts, events)
    return list(dict.fromkeys(chain.from_iterable((*every, *words))))


def _of_finding(name: str, problems: Mapping[str, Problem]) -> Iterator[Section]:
    if name in problems:
        yield from sections(problems[name])
    if name in places.FINDINGS:
        yield Section(name, (places.FINDINGS[name], "", "Found by captures of several taps: iscsitrace docs two-taps"))


def _of_rule(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    if name.upper() in rules():
        yield from conformance.rule_page(rules()[name.upper()])


def _of_counter(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    if counter := counters().get(name):
        severity = CATEGORIES["severity"][counter.severity]
        yield Section(
            name, (f"Counter of severity {severity}: {counter.meaning}.", "", f"What to do: {counter.advice}")
        )


def _of_table(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    if name in _rows():
        yield Section(name, (f"Table: {_rows()[name]}", "", f"Columns: {', '.join(_columns()[name])}"))


def _of_column(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    for table, columns in _columns().items():
        for column in columns.values():
            if name in (column.name, f"{table}.{column.name}"):
                yield Section(f"{table}.{column.name}", (f"Column: {column.meaning}", "", *_facts_of_column(column)))


def _of_heading(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    for table, headings in _HEADINGS.items():
        for heading, column in headings.items():
            if name.casefold() == heading.casefold() and name != column:
                found = _columns()[table][column]
                lines = (f"Heading of {table}, column {column}: {found.meaning}", "", *_facts_of_column(found))
                yield Section(heading, lines)


def _of_plot(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    if name in kinds.NAMES:
        yield Section(f"plot {name}", (f"Plot: {kinds.summaries()[name]}",))


def _of_part(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    if part := named(name):
        yield Section(part.label, (f"Part of the time breakdown ({part.name} in tables and JSON): {part.meaning}.",))


def _of_event(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    for kind in EVENT_KINDS:
        if name == kind.name:
            differs = (f"Of another severity: {kind.may_differ}.",) if kind.may_differ else ()
            yield Section(name, (f"Event of severity {kind.severity}: {kind.meaning}.", *differs))


def _of_login_key(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    for key in login_keys():
        if name.casefold() == key["name"].casefold():
            bounds = key["bounds"]
            lines = (
                f"Login key of RFC 7143, section {key['section']}." if key["section"] else "Login key of RFC 7143.",
                *([f"Value: {bounds[0]} to {bounds[1]}"] if bounds else []),
                *([f"Without a negotiation: {key['default']}"] if key["default"] else []),
            )
            yield Section(key["name"], lines)


def _of_term(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    for term, meaning in (pages.terms() | WORDS).items():
        if name.lower() == term.lower():
            yield Section(term, (f"Term: {meaning}.",))


def _of_other_heading(name: str, _problems: Mapping[str, Problem]) -> Iterator[Section]:
    exact = name in OTHER_HEADINGS
    for heading, meaning in OTHER_HEADINGS.items():
        if heading == name or (not exact and heading.casefold() == name.casefold()):
            yield Section(heading, (f"Heading: {meaning}.",))


_KINDS: Final = (
    *(_of_finding, _of_rule, _of_counter, _of_table, _of_column, _of_heading, _of_plot),
    *(_of_part, _of_event, _of_login_key, _of_term, _of_other_heading),
)
"""In the order of a page."""
_OF_KIND: Final = {
    **{each.__name__.removeprefix("_of_"): (each,) for each in _KINDS},
    "heading": (_of_heading, _of_other_heading),
}
"""By the word for it."""


def _declared() -> Iterator[tuple[str, str, tuple[Column, ...]]]:
    for tables in (TABLES, DERIVED_TABLES, TAP_TABLES, TAPPED_TABLES, DATASET_TABLES):
        for name, table in tables.items():
            yield name, table.row, (*table.columns, *(DERIVED_CYCLE_COLUMNS if name == "cycles" else ()))


def _rows() -> dict[str, str]:
    """What a row is, by the name of the table."""
    return {name: row for name, row, _ in _declared()}


def _columns() -> dict[str, dict[str, Column]]:
    """The columns of each table, by name."""
    return {name: {column.name: column for column in columns} for name, _, columns in _declared()}


def _facts_of_column(column: Column) -> Iterator[str]:
    kind, _, category = column.dtype.partition(":")
    if kind == "category":
        words = CATEGORIES.get(category, ())
        yield f"Type: {', '.join(words)}" if words else "Type: text"
    else:
        yield f"Type: {column.dtype}" + (f", in {column.unit}" if column.unit else "")
    if column.nullable:
        yield "It is null where the value is unknown or does not exist."
    if column.source:
        yield f"Defined in: {column.source.replace('method', 'iscsitrace docs method')}"


def sections(problem: Problem) -> Iterator[Section]:
    """The page of a finding as text."""
    lines = (f"{name}: {text}".replace("`", "") for name, text in facts(problem))
    yield Section(problem.name, (problem.meaning, "", *lines))
    steps = tuple(f"  {number}. {step}".replace("`", "") for number, step in enumerate(advice(problem), start=1))
    if steps:
        yield Section("What to do", steps)
