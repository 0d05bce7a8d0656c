"""Our initiator and target break every rule on demand: the run has it, the wire shows it, the near miss does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.faults.settings import BREACHES
from tests.conformance.conversations import CONVERSATIONS, Conversation
from tests.support import tshark


def test_every_rule_that_a_side_can_break_has_a_conversation() -> None:
    told = [(each.rule, each.side) for each in CONVERSATIONS]
    assert sorted(told) == sorted((rule, side) for rule, sides in BREACHES.items() for side in sides)


def test_a_run_breaks_its_rule(run: tuple[Conversation, Path]) -> None:
    conversation, folder = run
    truth = json.loads((folder / "breaking" / "truth.json").read_text())
    (fault,) = [each for each in truth["faults"] if each["name"] == conversation.rule]
    assert fault["host"] == conversation.side
    # a reject is a fault of single commands, which the truth counts, too
    assert fault["count"] >= 1, conversation
    assert fault["from_ns"] >= truth["started_ns"]


def test_the_wire_shows_it_and_the_near_miss_does_not(run: tuple[Conversation, Path]) -> None:
    conversation, folder = run
    if not conversation.seen:
        pytest.skip("no display filter can tell it")
    found = {
        name: tshark.frame_numbers(folder / name / "initiator.pcapng", conversation.seen)
        for name in ("breaking", "legal")
    }
    assert found["breaking"]
    assert not found["legal"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("target", "--fault", "S1"), "S1: not in target; it can be made in simulated, namespaces, initiator"),
        (("initiator", "read", "iscsi://127.0.0.1/x/0", "--fault", "D18"), "D18: not in initiator"),
        (("initiator", "read", "iscsi://127.0.0.1/x/0", "--fault", "busy"), "faults of single commands are those of"),
        (
            ("simulate", "read", "-o", "x", "--fault", "S1,on=target"),
            "S1: the target cannot break it; on=initiator can",
        ),
        (("simulate", "read", "-o", "x", "--fault", "D18,nth=x"), "D18: nth=x is not"),
    ],
    ids=str,
)
def test_a_rule_that_the_side_cannot_break_is_a_usage_error(words: tuple[str, ...], line: str) -> None:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 2
    assert line in " ".join(result.output.split())


@pytest.mark.parametrize(("command", "side"), [("target", "target"), ("initiator", "initiator")])
def test_the_list_has_the_rules_of_the_side(command: str, side: str) -> None:
    words = [command, "--list-faults"] if command == "target" else [command, "read", "--list-faults"]
    listed = CliRunner().invoke(main, words).output
    for rule, sides in BREACHES.items():
        assert (f"{rule},on=" in listed) == (side in sides), rule
    assert catalogue.KINDS["D18"].meaning in listed or command == "initiator"
