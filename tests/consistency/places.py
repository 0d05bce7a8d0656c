"""What each output says of one capture, number by number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from iscsitrace import Trace
from iscsitrace.compare import differences, sides
from iscsitrace.compare.sides import match
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.errors import InputInvalid
from iscsitrace.fit.points import of_operation
from iscsitrace.fit.regression import fit
from iscsitrace.fit.steady import survey
from iscsitrace.fleet import top
from iscsitrace.measure.budget import PARTS
from iscsitrace.plots.kinds import time_breakdown
from iscsitrace.plots.view import View
from iscsitrace.relate.loads import Loads
from iscsitrace.report import captures
from iscsitrace.show import diagnose, diff, summary
from iscsitrace.show.document import Breakdown, Fact, Findings, FoundProblem, Grid, Heading, Section
from iscsitrace.show.shown import ShowOptions
from tests.consistency.said import Said, exact, in_words, printed
from tests.consistency.sentences import OF_A_PIECE, numbers
from tests.support.printed import label

Documents = Mapping[str, Any]
PART_OF = {label(part): part for part in PARTS}
"""Parts of the time breakdown by the words that outputs have for them."""
_WAYS = {"read": "read", "written": "write"}
_SUBJECT = r"sessions? \d[\d, andto]*|connection \d+"
"""A session, the sessions of a story, or a connection, as outputs label them."""


def subject_of(label: str) -> str:
    """The same for one session; for those of a story the first."""
    return f"story of session {re.findall(r'[0-9]+', label)[0]}" if label.startswith("sessions") else label


def diagnosed(trace: Trace) -> tuple[Diagnosis, Documents]:
    """The diagnosis, and what ``diagnose --json`` prints."""
    diagnosis = examine(trace.table, tap_of=trace.tap_of)
    return diagnosis, diagnose.as_dict(trace, diagnosis)


def everything(trace: Trace, diagnosis: Diagnosis, document: Documents) -> Iterator[Said]:
    """All numbers of all outputs."""
    yield from of_json(document)
    for is_verbose in (False, True):
        choice = ShowOptions(len(diagnosis.sessions) or 1, is_verbose=is_verbose)
        yield from of_terminal(
            diagnose.sections(trace, diagnosis, choice), f"session {next(iter(diagnosis.sessions), 0)}"
        )
    yield from of_summary(summary.as_dict(trace))
    yield from of_report(trace)
    yield from of_diff(trace)
    yield from of_fit(trace, document)
    yield from of_plot(trace)


# --- diagnose


def of_json(document: Documents) -> Iterator[Said]:
    """``diagnose --json``."""
    for row in document["sessions"]:
        subject, place = f"session {row['session']}", "diagnose --json"
        if row.get("jobs_ns"):
            yield from exact("busy time", subject, row["jobs_ns"], place, "ns")
            for part in PARTS:
                yield from exact(f"time: {part}", subject, row["busy_budget"][part], place, "ns")
                yield from exact(f"share: {part}", subject, row["shares"][part], place)
                yield from exact(f"share: {part}", subject, row["busy_budget"][part] / row["jobs_ns"], f"{place}, ns")
            for use, amount in row["excluded_ns"].items():
                yield from exact(f"excluded: {use}", subject, amount, place, "ns")
            yield from exact("idle fraction", subject, row["idle_fraction"], place)
        explained = Counter(_part_of(finding) for finding in row["findings"])
        for finding in row["findings"]:
            yield from _of_finding(finding, subject, explained)
        if row.get("headline"):
            yield from numbers("", row["headline"]["text"], subject, "headline in JSON")
            yield from numbers(row["headline"]["name"], row["headline"]["text"], subject, "headline in JSON")
    for row in document["stories"]:
        if len(row["sessions"]) > 1 and row["jobs_ns"]:
            subject, place = f"story of session {row['sessions'][0]}", "stories in JSON"
            yield from exact("busy time", subject, row["jobs_ns"], place, "ns")
            for part in PARTS:
                yield from exact(f"share: {part}", subject, row["shares"][part], place)
            for finding in row["findings"]:
                yield from exact(f"share lost: {finding['name']}", subject, finding["share"], place)


def _part_of(finding: Documents) -> str | None:
    problem = PROBLEMS[finding["name"]]
    return problem.explains.part if problem.explains else None


def _of_finding(finding: Documents, subject: str, explained: Mapping[str | None, int]) -> Iterator[Said]:
    name, place = finding["name"], f"finding {finding['name']} in JSON"
    part = _part_of(finding)
    # with ack_loss, loss_recovery has two causes
    is_whole = name not in OF_A_PIECE and not (part == "loss_recovery" and explained[part] > 1)
    if part and is_whole and finding["cost_ns"] is not None:
        yield from exact(f"time: {part}", subject, finding["cost_ns"], place, "ns")
        yield from exact(f"share: {part}", subject, finding["share"], place)
    yield from numbers(name, finding["text"], subject, place)
    for gain in finding["gains"]:
        for end in ("throughput_factor", "low", "high"):
            yield from exact(f"gain, {end}: {gain['change']}", subject, gain[end], place)


def of_terminal(sections: Iterable[Section], only: str) -> Iterator[Said]:
    """``diagnose``, with or without ``-v``; ``only`` is the session of a line that names none."""
    for section in sections:
        for line in section.lines if not section.title else ():
            if found := re.fullmatch(rf"(?:({_SUBJECT}): )?I/O time ([\d.]+) s: (.*)", line):
                subject = subject_of(found.group(1) or only)
                yield printed("busy time", subject, found.group(2), "s", "diagnose")
                for part, share in re.findall(r"([A-Za-z ]+?) ([\d.]+) %", found.group(3)):
                    yield printed(f"share: {PART_OF[part.strip()]}", subject, share, "%", "diagnose")
        if found := re.match(rf"Time breakdown of ({_SUBJECT}): ([\d.]+) s of I/O time", section.title):
            subject, digits = subject_of(found.group(1)), found.group(2)
            yield printed("busy time", subject, digits, "s", "diagnose -v")
            yield from _of_breakdown(_breakdown(section), subject, "diagnose -v")
            words = {"idle gaps between bursts of I/O": "idle", "the device scan and its pauses": "scan"}
            words["SYNCHRONIZE CACHE"] = "flush"
            for use, amount in re.findall(
                r"([A-Za-z/ ]+) ([\d.]+) s", "".join(section.lines).removeprefix("excluded:")
            ):
                yield printed(f"excluded: {words[use.strip()]}", subject, amount, "s", "diagnose -v")
        elif found := re.match(r"Findings of (session \d+)", section.title):
            yield from _of_findings(section.findings, found.group(1), "diagnose -v")


def _breakdown(section: Section) -> Breakdown:
    return next(each for each in section.blocks if isinstance(each, Breakdown))


def _of_breakdown(found: Breakdown, subject: str, place: str) -> Iterator[Said]:
    for part, (_, amount, share) in zip(found.parts, found.short.rows, strict=True):
        yield in_words(f"share: {PART_OF[part.name]}", subject, part.percent, place)
        yield printed(f"time: {PART_OF[part.name]}", subject, amount, "ms", place)
        yield printed(f"share: {PART_OF[part.name]}", subject, share, "%", place)


def _of_findings(found: Iterable[FoundProblem], subject: str, place: str) -> Iterator[Said]:
    for each in found:
        yield from numbers(each.name, each.text, subject, place)


# --- summary


def of_summary(document: Documents, place: str = "summary --json") -> Iterator[Said]:
    """``summary --json``, and the totals of ``watch --json``."""
    for row in document["volumes"][:-1]:
        for way in ("read", "write"):
            yield from exact(f"throughput, {way}", f"session {row['session']}", row[f"{way}_bytes_per_s"], place)


def of_loads(trace: Trace, name: str) -> Iterator[Said]:
    """``summary --by NAME --json``."""
    for row in (each.as_dict() for each in Loads(trace.table).by(name)):
        counts = {"commands": row["command_count"], "bytes": row["bytes"], "errors": row["error_count"]}
        yield from _of_load(f"{name} {row['label']}", counts, row["busy_ns"], row["latency_ns"], "summary --by")


def of_fleet(dataset: Path, name: str) -> Iterator[Said]:
    """``fleet top --by NAME --json``."""
    for row in top.top(dataset, name, "latency", limit=1_000)[0]:
        counts = {"commands": row.command_count, "bytes": row.bytes, "errors": row.error_count}
        yield from _of_load(f"{name} {row.label}", counts, row.busy_ns, row.percentiles, "fleet top")


def _of_load(
    subject: str, counts: Mapping[str, int], busy_ns: int, latency_ns: Mapping[str, int | None], place: str
) -> Iterator[Said]:
    for name, count in counts.items():
        yield from exact(name, subject, count, place)
    yield from exact("time with commands in flight", subject, busy_ns, place, "ns")
    for name in ("p50", "p95", "p99", "max"):
        # no value is a value, too
        found = latency_ns[name]
        yield from exact(f"latency, {name}", subject, -1 if found is None else found, place, "ns")
    yield from exact("latency, n", subject, latency_ns["n"], place)
    yield from exact("latency, without a status", subject, latency_ns.get("open_count") or 0, place)


# --- report


def of_report(trace: Trace) -> Iterator[Said]:
    """``report``, without its pictures."""
    told = captures.describe(trace, session=None, has_pictures=False)
    opening, subject = told.opening, subject_of(told.opening.label)
    yield from _of_facts(opening.facts, subject)
    yield from numbers("", opening.headline, subject, "report")
    if opening.breakdowns and re.search(r"session \d+", subject):
        yield from _of_breakdown(opening.breakdowns[-1], subject, "report")
    if found := told.section("findings"):
        yield from _of_all_findings(found)
    if model := told.section("model"):
        for gains in (grid for grid in model.grids if grid.caption == "Predicted gains of one change"):
            if named := re.search(r"session \d+", f"{model.lines[0]} {subject}".lower()):
                yield from _of_gains(gains, named.group())


def _of_all_findings(section: Section) -> Iterator[Said]:
    """Below the heading of each session: its headline, time breakdown and findings."""
    subject = ""
    for block in section.blocks:
        if isinstance(block, Heading):
            subject = block.text.lower()
        elif re.fullmatch(r"session \d+", subject):
            match block:
                case str():
                    yield from numbers("", block, subject, "report")
                case Breakdown():
                    yield from _of_breakdown(block, subject, "report")
                case Findings():
                    yield from _of_findings(block.every, subject, "report")


def _of_facts(facts: Iterable[Fact], subject: str) -> Iterator[Said]:
    place = "report"
    if not re.search(r"session \d+", subject):
        return
    for fact in facts:
        match fact.name:
            case "Time lost" if subject.startswith("story") and fact.meaning:
                yield in_words("share: outage", subject, fact.meaning.removesuffix(" of the I/O time"), place)
            case "Throughput":
                for amount in fact.value.split(", "):
                    digits, unit, way = amount.split()
                    yield printed(f"throughput, {_WAYS[way]}", subject, digits, unit, place)
                if fact.meaning.startswith("line rate "):
                    yield in_words("rate of the line", subject, fact.meaning.removeprefix("line rate "), place)
            case "Line idle":
                yield in_words("idle fraction", subject, fact.value, place)
                yield in_words("busy time", subject, " ".join(fact.meaning.split()[1:3]), place)
            case "RTT":
                yield in_words("RTT of the path", subject, fact.value, place)
            case "Workload":
                yield printed("queue depth", subject, fact.meaning.split()[2].rstrip(","), "", place)
                yield in_words("I/O size", subject, " ".join(fact.value.split()[:2]), place)


def _of_gains(grid: Grid, subject: str) -> Iterator[Said]:
    for change, *ends in grid.rows:
        words = change.replace("I/O size ", "") + " I/O" if change.startswith("I/O size ") else change
        for end, digits in zip(("throughput_factor", "low", "high"), ends, strict=True):
            yield printed(f"gain, {end}: {words}", subject, digits, "", "report, gains")


# --- diff, model fit, plots


def of_diff(trace: Trace) -> Iterator[Said]:
    """``diff`` of a capture with itself."""
    for number, side in sides.sides_of(trace.table).items():
        a, b = match({number: side}, {number: side}, None, None)
        explanation = differences.explain(a.measured, b.measured) if a.measured and b.measured else None
        shown = {
            row[0]: row[1]
            for section in diff.sections((trace, trace), (None, None), a, b, explanation, None)
            for grid in section.grids
            if grid.columns == ("", "A", "B")
            for row in grid.rows
        }
        subject = f"session {number}"
        if side.pace_bytes_per_s:
            yield in_words("pace", subject, shown["pace (bytes / I/O time)"], "diff")
        yield from exact("pace", subject, side.pace_bytes_per_s, "diff --json")
        if shown["RTT"] != "-":
            yield in_words("RTT of the path", subject, shown["RTT"], "diff")
        if shown["line rate"] != "-":
            yield in_words("rate of the line", subject, shown["line rate"], "diff")
        if side.operation == "block" or side.jobs_ns == 0:
            continue
        is_all = _is_of_one_kind(trace, number)
        own = subject if is_all else f"{subject}, its {side.operation}s"
        yield from exact("busy time", own, side.jobs_ns, "diff --json", "ns")
        for part in PARTS:
            yield from exact(f"time: {part}", own, side.parts_ns[part], "diff --json", "ns")


def _is_of_one_kind(trace: Trace, session: int) -> bool:
    cycles = trace.cycles
    own = cycles.select((cycles.raw("session") == session) & (cycles.raw("data_bytes") > 0))
    return not {"read", "write"} <= set(own["operation"].tolist())


def of_fit(trace: Trace, document: Documents) -> Iterator[Said]:
    """``model fit``: the delay is half the RTT."""
    for row in document["sessions"]:
        if own := of_operation(survey(trace.table, "", row["session"]).points):
            rtt_ns = round(2 * fit(own).d_ns.value)
            yield from exact("RTT of the path", f"session {row['session']}", rtt_ns, "model fit", "ns")


def of_plot(trace: Trace) -> Iterator[Said]:
    """``plot time_breakdown`` of all time."""
    shown = tuple(row["connection"] for row in trace.connections.rows() if row["is_iscsi"])
    rows = trace.budget
    if not len(rows):
        return
    first, last = int(rows.raw("time_first_ns").min()), int(rows.raw("time_last_ns").max())
    with suppress(InputInvalid):
        view = View(first, first, last, shown)
        curves = time_breakdown.compute(rows, trace.cycles, np.array([first, last]), view, top=len(shown) + 1)
        for name, totals in curves.totals_ns.items():
            for part, amount in zip(PARTS, totals.tolist(), strict=True):
                yield from exact(f"time: {part}", name, amount, "plot time_breakdown", "ns")
