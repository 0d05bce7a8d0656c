"""What sessions of one story have in common is written once in JSON, however many they are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bench.growth.hosts import FAMILIES
from iscsitrace.cli import main
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings.finding import LISTED_MAX, Finding
from iscsitrace.measure.intervals import Span


def document_of(folder: Path, count: int) -> dict[str, Any]:
    """The diagnosis of sessions that a reset ended each, with a command in flight."""
    capture = FAMILIES["lost_sessions"].write(folder / f"{count}.pcap", count)
    document: dict[str, Any] = json.loads(CliRunner().invoke(main, ["diagnose", "--json", str(capture)]).stdout)
    return document


def test_each_session_of_many_lists_its_own_part_and_the_story_all(tmp_path: Path) -> None:
    document = document_of(tmp_path, 40)
    (story,) = document["stories"]
    (lost,) = [each for each in story["findings"] if each["name"] == "io_outage"]
    assert lost["sessions"] == list(range(40))
    assert len(lost["spans"]) == 40
    listed: list[list[int]] = []
    for row in document["sessions"]:
        (own,) = [each for each in row["findings"] if each["name"] == "io_outage"]
        assert row["story"] == 0
        assert own["sessions"] == row["headline"]["sessions"] == [row["session"]]
        # all else is that of the story
        lists = ("spans", "sessions")
        assert [own[name] for name in own if name not in lists] == [lost[name] for name in lost if name not in lists]
        assert row["headline"]["cost_ns"] == lost["cost_ns"]
        for first, last in own["spans"]:
            assert first <= row["time_last_ns"]
            assert last >= row["time_first_ns"]
        listed += own["spans"]
    assert {tuple(span) for span in listed} == {tuple(span) for span in lost["spans"]}
    assert len(listed) <= 2 * len(lost["spans"])


def test_each_session_of_a_few_lists_all(tmp_path: Path) -> None:
    document = document_of(tmp_path, LISTED_MAX)
    for row in document["sessions"]:
        assert row["findings"][0]["sessions"] == row["headline"]["sessions"] == list(range(LISTED_MAX))
        assert row["findings"][0] == document["stories"][0]["findings"][0]


def part(sessions: tuple[int, ...], spans: tuple[Span, ...], luns: tuple[int, ...]) -> Any:
    """What a session shows of its own."""
    return SimpleNamespace(sessions=sessions, spans=spans, luns=luns)


@pytest.mark.parametrize("name", ["io_outage", "loss"])
def test_only_what_is_of_a_story_is_shortened_and_not_in_its_only_session(name: str) -> None:
    spans = tuple((10 * number, 10 * number + 9) for number in range(1000))
    luns = tuple(range(100))
    found = Finding(PROBLEMS[name], "error", 0.5, "", (), 5.0, spans=spans, sessions=(3,), luns=luns)
    assert found.in_part(part((3,), ((0, 10_000),), (2,))) is found
    other = found.in_part(part((4,), ((95, 120), (5000, 9000)), (2, 200)))
    if name == "loss":
        assert other is found
        return
    assert other.spans[:4] == ((90, 99), (100, 109), (110, 119), (120, 129))
    assert len(other.spans) == LISTED_MAX
    assert (other.sessions, other.luns) == ((), (2,))
