"""The finding connection_lost: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.findings.examination import Diagnosis, examine
from iscsitrace.analysis.findings.finding import Finding
from tests.support.histories import SECOND, Told, at

VECTORS = Path(__file__).parents[2] / "vectors" / "guests"


def found(diagnosis: Diagnosis) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == "connection_lost"]
    return findings[0] if findings else None


def lost(*, in_flight: int = 1, how: Mapping[str, Any] | None = None) -> Told:
    """Reads for 100 ms, a loss at 0.5 s, a new login at 4.01 s, and I/O from 4.2 s on."""
    told = Told()
    told.session(0, 0.5, end="reinstated", **({"rst_to_initiator_ns": 0.5} if how is None else how))
    told.reads(0, 0.0, 20)
    for _ in range(in_flight):
        told.read(0, 0.3, None)
    told.session(4.0, 20, replaces=0)
    told.read(1, 4.1, 4.2)
    told.reads(1, 4.2, 20)
    return told


def test_a_reset_has_its_side_its_commands_and_the_time_to_the_next_io() -> None:
    finding = found(lost(in_flight=3).diagnosis())
    assert finding
    assert finding.cause == (
        "Sessions 0 and 1 lost their connection. The target reset the connection at 0.50 s. 3 commands had no status. "
        "The initiator logged in again 3.5 s later, and I/O resumed after 3.7 s."
    )
    assert (finding.cost_ns, finding.spans) == (3.7 * SECOND, ((at(0.5), at(4.2)),))
    assert (finding.severity, finding.sessions) == ("error", (0, 1))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"rst_to_initiator_ns": 0.5}, "The target reset"),
        ({"rst_to_target_ns": 0.5}, "The initiator reset"),
        ({"fin_to_initiator_ns": 0.5}, "The target closed"),
        ({"fin_to_target_ns": 0.5}, "The initiator closed"),
        # who was first
        ({"fin_to_target_ns": 0.5, "rst_to_initiator_ns": 0.6}, "The initiator closed"),
        ({"fin_to_target_ns": 0.5, "rst_to_initiator_ns": 0.4}, "The target reset"),
        ({}, "The connection fell silent"),
        # the old connection is closed long after the new login: that was not the loss
        ({"rst_to_target_ns": 9.0}, "The connection fell silent"),
    ],
)
def test_who_ended_it(how: dict[str, float], sentence: str) -> None:
    finding = found(lost(how=how).diagnosis())
    assert finding
    assert sentence in finding.cause


def test_a_nop_without_an_answer_is_why() -> None:
    told = lost(how={"fin_to_target_ns": 0.5})
    told.add("nops", connection=0, request_ns=0.2, request_frame=5, is_ping=True, is_from_initiator=True)
    finding = found(told.diagnosis())
    assert finding
    assert "The initiator closed the connection at 0.50 s, 300.0 ms after a NOP without an answer." in finding.cause


def test_a_session_that_is_never_back_ended_in_an_error() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.read(0, 0.3, None)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.is_final, finding.cost_ns) == (True, None)
    assert finding.cause.endswith("No login followed in the capture.")
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"


def test_a_program_that_ends_without_a_logout_is_a_note() -> None:
    told = Told()
    told.session(0, 0.5, end="closed", fin_to_target_ns=0.5)
    told.reads(0, 0.0, 20)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert (finding.severity, finding.leads) == ("info", False)
    assert diagnosis.headline
    assert diagnosis.headline.name != "connection_lost"


@pytest.mark.parametrize("columns", [{"end": "logout"}, {"end": "open"}, {"session_type": "discovery", "end": "reset"}])
def test_no_loss(columns: dict[str, Any]) -> None:
    told = Told()
    told.session(0, 0.5, fin_to_target_ns=0.5, **columns)
    told.reads(0, 0.0, 20)
    assert found(told.diagnosis()) is None


def test_a_refused_login_between_is_of_the_same_story() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.session(1.0, 1.1, end="refused", replaces=0, login_status=0x0203)
    told.session(4.0, 20, replaces=1)
    told.reads(2, 4.2, 20)
    diagnosis = told.diagnosis()
    (story,) = diagnosis.stories
    assert story.story.numbers == (0, 1, 2)
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(0.5), at(4.205)),)


RECORDED = [
    # from the scenario: who ended it, and how long the target accepted no login at least
    ("rst-target-tgt", "The target reset the connection", 0),
    ("target-restart-lio", "The target closed the connection", 4),
]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "sentence", "least_s"), RECORDED)
def test_recordings_of_kernels(name: str, sentence: str, least_s: float, tap: str) -> None:
    trace = iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    finding = found(diagnosis)
    assert finding
    assert sentence in finding.cause
    assert finding.cost_ns
    assert least_s * SECOND <= finding.cost_ns <= (least_s + 5) * SECOND
    assert diagnosis.headline
    assert diagnosis.headline.name == "connection_lost"
