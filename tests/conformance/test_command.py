"""``iscsitrace conformance`` and ``explain RULE``: text, JSON, choices, exit codes."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace._core import conformance_rules
from iscsitrace.cli import main
from iscsitrace.measure import violations
from iscsitrace.wording.rule_notes import GUARDS, NOTES
from iscsitrace.wording.rules import SEVERITIES, Rule, rules
from tests.support.breaches import BYTES, immediate_data
from tests.support.capture_file import write_pcapng
from tests.support.tables_by_hand import table
from tools import docs


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    return result.exit_code, result.output


def document(*arguments: object) -> dict[str, Any]:
    code, text = run("conformance", "--json", *arguments)
    assert code == 0
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def breach(tmp_path: Path) -> Path:
    return immediate_data(tmp_path, is_agreed=False)


def test_a_breach_has_its_rule_section_sentence_places_and_filter(breach: Path) -> None:
    code, text = run("conformance", breach)
    assert code == 0
    assert "\nThe initiator breaks RFC 7143\n" in text
    assert "The target breaks" not in text
    assert re.search(r"\nNo violation of \d+ rules by the target was seen\.\n", text)
    # of a side that nobody asked for nothing is known
    assert "by the target was seen" not in run("conformance", "--side", "initiator", breach)[1]
    line = re.search(r"  D1 \(warning, RFC 7143 section 13\.11\), 3 times, first at 0\.\d{6} s: (.*)\n", text)
    assert line
    assert line[1] == f"The initiator sent {BYTES} bytes of immediate data although ImmediateData=No was agreed."
    (frames,) = (each["frames"] for each in document(breach)["violations"])
    assert len(frames) == 3
    assert f"session 0; stream 0; first Initiator Task Tag 0x00000001; frames {' '.join(map(str, frames))}\n" in text
    assert f"frame.number in {{{', '.join(map(str, frames))}}}\n" in text
    assert "Not judged" not in text


def test_each_violation_is_a_line_or_a_row(breach: Path) -> None:
    frames = [str(each) for each in document(breach)["violations"][0]["frames"]]
    text = run("conformance", "-v", breach)[1]
    lines = text[text.index("Each violation") :].splitlines()[3:]
    assert [line.split()[6] for line in lines] == frames
    assert all(f"sent {BYTES} bytes of immediate data" in line for line in lines)
    rows = list(csv.DictReader(io.StringIO(run("conformance", "--csv", breach)[1])))
    assert [(row["rule"], row["side"], row["frame"]) for row in rows] == [("D1", "initiator", each) for each in frames]
    assert len(run("conformance", "--csv", "--side", "target", breach)[1].splitlines()) == 1


def test_json_has_what_programs_need(breach: Path) -> None:
    found = document(breach)
    assert {"schema", "tool", "input", "options"} <= set(found)
    (violation,) = found["violations"]
    names = ("rule", "side", "severity", "sessions", "connection", "count", "section", "expected", "seen")
    assert [violation[name] for name in names] == ["D1", "initiator", "warning", [0], 0, 3, "13.11", None, BYTES]
    assert violation["text"].startswith("The initiator sent ")
    assert violation["display_filter"] == f"frame.number in {{{', '.join(map(str, violation['frames']))}}}"
    assert violation["time_ns"] > 1_700_000_000_000_000_000
    assert found["not_judged"] == []
    assert found["rules"] == [row["rule"] for row in conformance_rules()]


def test_the_same_without_a_breach_names_how_many_rules_were_looked_for(tmp_path: Path) -> None:
    code, text = run("conformance", immediate_data(tmp_path, is_agreed=True))
    assert code == 0
    assert f"No violation of {len(conformance_rules())} rules was seen." in text
    assert "breaks" not in text


def test_choices_of_rule_and_side(breach: Path) -> None:
    assert [each["rule"] for each in document("--rule", "d1", "--rule", "D5", breach)["violations"]] == ["D1"]
    assert document("--rule", "D5", breach)["violations"] == []
    assert document("--side", "target", breach)["violations"] == []
    assert len(document("--side", "initiator", breach)["violations"]) == 1
    assert "No violation of D5 was seen." in run("conformance", "--rule", "D5", breach)[1]
    of_target = sum("target" in row["sides"] for row in conformance_rules())
    assert f"No violation of {of_target} rules was seen." in run("conformance", "--side", "target", breach)[1]


@pytest.mark.parametrize(("severity", "code"), [("info", 1), ("warning", 1), ("error", 0)])
def test_fail_on_a_severity_or_a_worse_one(breach: Path, severity: str, code: int) -> None:
    found, text = run("conformance", "--json", "--fail-on", severity, breach)
    assert found == code
    assert json.loads(text)["failed"] == (["D1"] if code else [])
    # what is not shown does not fail
    assert run("conformance", "--fail-on", severity, "--side", "target", breach)[0] == 0


def test_an_unknown_rule_is_refused(breach: Path) -> None:
    code, text = run("conformance", "--rule", "D99", breach)
    assert code == 2
    assert "'D99' is not a rule; names like it: D9, D19; `iscsitrace docs conformance` lists all" in text


def test_a_missing_login_turns_the_rules_off_that_need_it_and_says_so(tmp_path: Path) -> None:
    capture = immediate_data(tmp_path, is_agreed=False, has_login=False)
    _, text = run("conformance", capture)
    assert "rules was seen." in text
    assert "The capture lacks the login of the connection. Rules that need it are off there: " in text
    (off,) = document(capture)["not_judged"]
    assert (off["reason"], off["count"]) == ("login_not_captured", 1)
    assert {"D1", "D3", "D5"} <= set(off["rules"])
    assert not {"S9", "D18"} & set(off["rules"])


def test_several_connections_are_said(tmp_path: Path) -> None:
    (off,) = document(immediate_data(tmp_path, is_agreed=True, connections=2))["not_judged"]
    assert (off["reason"], off["count"]) == ("several_connections", 1)
    assert "S3" in off["rules"]


def test_a_capture_without_iscsi(tmp_path: Path) -> None:
    assert "no iSCSI session was found" in run("conformance", write_pcapng(tmp_path / "empty.pcapng", [], 1))[1]


def rows(*each: dict[str, Any]) -> list[violations.Violated]:
    return violations.violated(table("violations", *each), {0: 0, 1: 1})


def test_lost_data_comes_first_then_severity_then_count() -> None:
    row = {"side": "target", "connection": 0, "frame": 1, "last_frame": 1, "count": 1}
    found = rows(
        row | {"rule": "S17", "count": 1_000},
        row | {"rule": "D5", "count": 2},
        row | {"rule": "S9", "count": 3},
        row | {"rule": "D17", "count": 900},
        row | {"rule": "D18"},
    )
    assert [each.rule.name for each in found] == ["D18", "D17", "S9", "D5", "S17"]


def test_equal_violations_are_one_with_the_first_frames_the_last_and_the_count() -> None:
    row = {"rule": "D5", "side": "target", "connection": 1, "seen": 28_672, "expected": 16_384, "count": 1}
    (found,) = rows(
        *(row | {"frame": frame, "last_frame": frame} for frame in (5, 9)),
        row | {"frame": 12, "last_frame": 99, "count": 40},
    )
    assert (found.count, found.frames, found.unlisted, found.session) == (42, (5, 9, 12, 99), 38, 1)
    assert found.what == "The target asked for 28672 bytes in an R2T; MaxBurstLength is 16384"


def test_tags_are_hexadecimal_and_a_number_that_is_not_there_is_said() -> None:
    assert rules()["T2"].did("target", 0x33000000, None) == (
        "The target answered tag 0x33000000, which no open command has"
    )
    assert "ExpStatSN (unknown), where 7 was due" in rules()["S12"].did("initiator", None, 7)
    assert "sent CHECK CONDITION in a Data-In" in rules()["D15"].did("target", 0x02, None)
    assert "sent status 0x03 in a Data-In" in rules()["D15"].did("target", 0x03, None)


@pytest.mark.parametrize("rule", rules().values(), ids=rules())
def test_every_rule_has_a_note_and_the_page_of_the_docs(rule: Rule) -> None:
    note = NOTES[rule.name]
    assert set(note.guards.split()) <= set(GUARDS)
    assert all(text.endswith(".") for text in (note.leads_to, note.example, note.legal))
    assert rule.severity in SEVERITIES
    # every placeholder has a value
    assert "{" not in rule.did(rule.sides[0], 1, 2)
    code, text = run("explain", rule.name.lower())
    assert code == 0
    page = (docs.ROOT / "docs" / "conformance.md").read_text().split(f"\n## {rule.name}\n\n")[1].partition("\n## ")[0]
    for line in filter(None, page.splitlines()):
        assert line.removeprefix("- ").replace("**", "") in text


def test_there_is_no_note_without_a_rule() -> None:
    assert list(NOTES) == list(rules())
