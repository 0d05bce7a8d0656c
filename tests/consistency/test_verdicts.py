"""The verdicts over every sample and recorded capture: what stands beside a headline, what is advised, its length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.diagnosis.headline import Headline
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from iscsitrace.show import diagnose
from iscsitrace.show.shown import ShowOptions
from iscsitrace.show.terminal import show
from tests.consistency.test_consistency import FILES, SAMPLES


@cache
def told(file: Path) -> tuple[Diagnosis, str]:
    """The diagnosis of a capture, and what ``diagnose`` prints."""
    trace = iscsitrace.read(file, tables=NEEDED)
    diagnosis = examine(trace.table, tap_of=trace.tap_of)
    printed = StringIO()
    with redirect_stdout(printed):
        show(diagnose.sections(trace, diagnosis, ShowOptions(10)))
    return diagnosis, printed.getvalue()


def headlines(diagnosis: Diagnosis) -> Iterator[tuple[Headline, list[Finding]]]:
    """Each headline of a session, connection or story, with the findings beside it."""
    for opinion in (*diagnosis.sessions.values(), *diagnosis.separate.values()):
        yield opinion.headline, opinion.findings
    for story in diagnosis.stories:
        own = [each for number in story.story.numbers for each in diagnosis.sessions[number].findings]
        yield story.headline, [*story.findings, *own]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_verdict_fits_the_findings_beside_it(file: Path) -> None:
    diagnosis, printed = told(file)
    for headline, findings in headlines(diagnosis):
        wrong = {each.name for each in findings if each.rank == "slowness" and each.severity != "info"}
        limits = [each for each in findings if each.rank == "limit"]
        assert all(each.severity == "info" for each in limits)
        if wrong:
            # a capture that is too poor forbids a verdict
            assert headline.kind == "problem" or headline.name == "capture_poor", wrong
        if headline.kind == "limited":
            assert headline.name in {each.name for each in limits}
        if headline.kind in ("healthy", "unknown"):
            assert headline.first_step == ""
        if headline.kind == "healthy":
            assert headline.name == "none"
    steps = [line for line in printed.splitlines() if re.match(r"  \d\. ", line)]
    assert len(steps) <= 3
    if not any(headline.kind in ("problem", "limited") for headline, _ in headlines(diagnosis)):
        assert steps == []


def test_a_diagnosis_is_short() -> None:
    counts = [len(told(file)[1].split()) for file in FILES]
    assert len(counts) >= 16
    assert median(counts) <= 150


@pytest.mark.parametrize("folder", sorted(SAMPLES.iterdir()), ids=lambda folder: folder.name)
def test_any_fails_exactly_where_the_verdict_is_problem(folder: Path) -> None:
    (capture,) = folder.glob("capture.*")
    result = CliRunner().invoke(main, ["diagnose", "--json", "--fail-on", "any", str(capture)], catch_exceptions=False)
    document = json.loads(result.stdout)
    verdicts = {
        row["headline"]["verdict"]
        for row in (*document["sessions"], *document["connections"], *document["stories"])
        if row.get("headline")
    }
    assert verdicts <= {"healthy", "limited", "problem", "unknown"}
    assert (result.exit_code, bool(document["failed"])) == (("problem" in verdicts), "problem" in verdicts)
    if document["headline"]["verdict"] == "problem":
        assert document["headline"]["name"] in document["failed"]
