"""Violations of RFC 7143 as text and as a JSON document; and the page of a rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iscsitrace.measure import violations
from iscsitrace.measure.path import SIDES
from iscsitrace.measure.selection import frames_filter
from iscsitrace.measure.violations import Unjudged, Violated
from iscsitrace.show import inputs
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.wording import amounts, cells
from iscsitrace.wording.rule_notes import GUARDS, NOTES
from iscsitrace.wording.rules import SEVERITIES, Rule, rules
from iscsitrace.wording.sentences import capital

if TYPE_CHECKING:
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import TraceTables

_NUMBERS_SHOWN = 20
"""Sessions, streams or frames in a line."""


@dataclass(frozen=True)
class FoundViolations:
    """The violations that were asked for, the worst first."""

    rules: tuple[Rule, ...]
    """The rules that were looked for."""
    sides: tuple[str, ...]
    """The sides whose violations were."""
    rows: Table
    """Each violation by itself, in order of time."""
    every: Sequence[Violated]
    unjudged: Sequence[Unjudged]

    def reaching(self, severity: str) -> list[str]:
        """The rules of this severity, or a worse one, that were broken."""
        least = SEVERITIES.index(severity)
        return list(dict.fromkeys(e.rule.name for e in self.every if SEVERITIES.index(e.rule.severity) >= least))


def found(trace: TraceTables, names: Collection[str] = (), side: str | None = None) -> FoundViolations:
    """The violations of these rules, or of all, by this side, or by both."""
    sought = tuple(
        rule for rule in rules().values() if (not names or rule.name in names) and (side is None or side in rule.sides)
    )
    sessions = {row["connection"]: row["session"] for row in trace.connections.rows(("connection", "session"))}
    every = trace.table("violations")
    asked = {rule.name for rule in sought}
    is_asked = [row["rule"] in asked and side in (None, row["side"]) for row in every.rows(("rule", "side"))]
    rows = every.select(np.flatnonzero(is_asked))
    sides = SIDES if side is None else (side,)
    return FoundViolations(
        sought, sides, rows, violations.violated(rows, sessions), tuple(violations.unjudged(trace.table))
    )


def as_dict(trace: TraceTables, found: FoundViolations) -> dict[str, Any]:
    """What ``conformance --json`` prints, but for the severity to fail on."""
    return trace.provenance | {
        "rules": [rule.name for rule in found.rules],
        "violations": [
            {
                "rule": each.rule.name,
                "side": each.side,
                "severity": each.rule.severity,
                "sessions": [] if each.session is None else [each.session],
                "connection": each.connection,
                "count": each.count,
                "time_ns": each.time_ns,
                "frames": list(each.frames),
                "initiator_task_tag": each.initiator_task_tag,
                "expected": each.expected,
                "seen": each.seen,
                "section": each.rule.sections,
                "text": f"{each.what}.",
                "display_filter": frames_filter(each.frames) if each.frames else None,
            }
            for each in found.every
        ],
        "not_judged": [
            {"reason": each.reason, "count": each.count, "rules": list(_off(each)), "text": _why(each)}
            for each in found.unjudged
        ],
    }


def sections(trace: TraceTables, found: FoundViolations, *, is_verbose: bool = False) -> Iterator[Section]:
    """By side and rule, the worst first; where ``is_verbose`` each violation; then what could not be judged."""
    yield inputs.of_trace(trace)
    if not trace.connections.raw("is_iscsi").any():
        yield Section("", ("no iSCSI session was found",))
        return
    if not found.every:
        yield Section("", ("", f"No violation of {_looked_for(found.rules)} was seen."))
    start_ns = trace.start_ns
    groups = violations.by_rule(found.every)
    guilty = list(dict.fromkeys(group[0].side for group in groups))
    for side in guilty:
        lines = [line for group in groups if group[0].side == side for line in _lines(group, start_ns)]
        yield Section(f"The {side} breaks RFC 7143", tuple(lines))
    for side in found.sides:
        of_side = [rule for rule in found.rules if side in rule.sides]
        if guilty and side not in guilty and of_side:
            yield Section("", (f"No violation of {_looked_for(of_side)} by the {side} was seen.",))
    if is_verbose and len(found.rows):
        yield Section("Each violation", (inputs.zero_of_times(trace), _each(found.rows, start_ns)))
    if found.unjudged:
        yield Section("Not judged", tuple(f"  {_why(each)}" for each in found.unjudged))


def _each(rows: Table, start_ns: int) -> Grid:
    """A row for each violation, in order of time."""
    columns = ("time", "rule", "severity", "side", "stream", "initiator task tag", "frame", "count", "what was done")
    lines = [
        (
            cells.NOTHING if row["time_ns"] is None else cells.seconds(row["time_ns"] - start_ns),
            row["rule"],
            rules()[row["rule"]].severity,
            row["side"],
            row["connection"],
            None if row["initiator_task_tag"] is None else f"{row['initiator_task_tag']:#010x}",
            row["frame"],
            row["count"],
            f"{rules()[row['rule']].did(row['side'], row['seen'], row['expected'])}.",
        )
        for row in rows.rows()
    ]
    return table(columns, lines)


def _looked_for(looked_for: Sequence[Rule]) -> str:
    """``60 rules``, or the name of one."""
    return looked_for[0].name if len(looked_for) == 1 else f"{len(looked_for)} rules"


def _lines(group: Sequence[Violated], start_ns: int) -> Iterator[str]:
    """One rule that one side broke, on all connections."""
    first = min(group, key=lambda each: (each.time_ns is None, each.time_ns or 0))
    rule, count = first.rule, sum(each.count for each in group)
    at = "" if first.time_ns is None else f"{cells.seconds(first.time_ns - start_ns)} s"
    yield f"  {rule.name} ({rule.severity}, {_sections(rule)}), {rule.often(count, at)}: {first.what}."
    places = []
    sessions = sorted({each.session for each in group if each.session is not None})
    if sessions:
        word = "session" if len(sessions) == 1 else "sessions"
        places.append(f"{word} {cells.numbers(sessions, _NUMBERS_SHOWN)}")
    streams = sorted({each.connection for each in group})
    places.append(f"stream {cells.numbers(streams, _NUMBERS_SHOWN)}")
    if first.initiator_task_tag is not None:
        which = "first " if count > 1 else ""
        places.append(f"{which}Initiator Task Tag {first.initiator_task_tag:#010x}")
    frames = sorted({frame for each in group for frame in each.frames})
    if frames:
        # the last one tells until when
        shown = frames if len(frames) <= _NUMBERS_SHOWN else [*frames[: _NUMBERS_SHOWN - 1], frames[-1]]
        between = len(frames) - len(shown) + sum(each.unlisted for each in group)
        more = f" ({between:,} more)" if between else ""
        word = "frame" if len(frames) == 1 else "frames"
        yield f"      {'; '.join(places)}; {word} {' '.join(map(str, shown))}{more}"
        yield f"      {frames_filter(shown)}"
    else:
        yield f"      {'; '.join(places)}"


def _sections(rule: Rule) -> str:
    """``RFC 7143 sections 11.7.6 and 11.8.3``."""
    word = "sections" if "," in rule.sections else "section"
    return f"RFC 7143 {word} {' and '.join(rule.sections.split(', '))}"


_NEEDED_BY = {"login_not_captured": "bw", "several_connections": "m"}
"""The guards (``rule_notes.GUARDS``) of the rules that a reason turns off."""


def _off(unjudged: Unjudged) -> tuple[str, ...]:
    """The rules that are off."""
    guards = _NEEDED_BY.get(unjudged.reason, "")
    return tuple(name for name, note in NOTES.items() if name in rules() and any(g in note.guards for g in guards))


def _why(unjudged: Unjudged) -> str:
    """What was not judged, and why, as a sentence or two."""
    count, of = unjudged.count, unjudged.of
    match unjudged.reason:
        case "login_not_captured":
            which = f"{count} of {amounts.count(of, 'connection')}" if of > 1 else "the connection"
            return f"The capture lacks the login of {which}. Rules that need it are off there: {_listed(unjudged)}."
        case "capture_holes":
            which = f"{count} of {amounts.count(of, 'connection')}" if of > 1 else "the connection"
            return f"The capture lacks bytes of {which}. Judging begins anew behind each hole."
        case "several_connections":
            which = f"{count} of {amounts.count(of, 'session')}" if of > 1 else "the session"
            verb = "have" if count > 1 else "has"
            return f"{capital(which)} {verb} several connections. These rules are off there: {_listed(unjudged)}."
        case _:
            return f"{amounts.count(count, 'violation')} more on further connections: they have no row of their own."


def _listed(unjudged: Unjudged) -> str:
    return ", ".join(_off(unjudged))


def rule_facts(rule: Rule) -> Iterator[tuple[str, str]]:
    """What is to know of a rule beside its sentence."""
    yield "Section", _sections(rule)
    yield "Broken by", " or ".join(f"the {side}" for side in rule.sides)
    yield "Severity", rule.severity
    note = NOTES[rule.name]
    yield "Leads to", note.leads_to
    yield "Example", note.example
    yield "Legal neighbour", note.legal
    yield "Judged", " ".join(("The boundaries of the PDUs must be certain.", *(GUARDS[g] for g in note.guards.split())))


def rule_page(rule: Rule) -> Iterator[Section]:
    """The page of a rule as text."""
    lines = (f"{name}: {text}" for name, text in rule_facts(rule))
    yield Section(rule.name, (rule.sentence, "", *lines))
