"""The finding task_timeout: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from iscsitrace.findings.history import listed
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"

ABORT_TASK = {"function": 1, "function_text": "ABORT TASK"}
LUN_RESET = {"function": 5, "function_text": "LOGICAL UNIT RESET"}
COMPLETE = {"response": 0, "response_text": "function complete"}


def found(diagnosis: Diagnosis, name: str = "task_timeout") -> Finding | None:
    lists = [opinion.findings for opinion in diagnosis.stories] + [
        each.findings for each in diagnosis.sessions.values()
    ]
    findings = [each for listed in lists for each in listed if each.name == name]
    return findings[0] if findings else None


def request(told: Told, seconds: float, response: float | None, **columns: Any) -> None:
    row = {"connection": 0, "request_ns": seconds, "response_ns": response, "lun": 0}
    row |= {"request_frame": told._next_frame()}
    told.add("task_management", **row | columns | ({} if response is None else COMPLETE))


def stuck(*, first: float = 0.1, until: float = 6.0) -> Told:
    """A read that is stuck, aborted 5 s later, and tried again; nothing else progresses."""
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    number = told.read(0, first, None)
    request(told, first + 5, first + 5.2, referenced_cycle=number, **ABORT_TASK)
    told.time(0, first, until, "outage")
    told.read(0, first + 5.3, until)
    told.reads(0, until, 20)
    return told


def test_the_command_its_abort_and_the_end_are_one_story() -> None:
    diagnosis = stuck().diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "Session 0: 1 READ command to LUN 0 had no answer for 5.2 s, from 0.10 s on. TCP "
        "retransmitted too little for a path fault: this points to the target, or the storage behind LUN 0. "
        "The initiator sent ABORT TASK at 5.10 s (function complete, 200.0 ms later). I/O resumed at 6.00 s."
    )
    assert finding.spans == ((at(0.1), at(6.0)),)
    assert finding.cost_ns == 5.9 * SECOND
    assert (finding.severity, finding.is_final, finding.luns) == ("error", False, (0,))
    # the outage and the abort are told with it
    assert [found(diagnosis, name) for name in ("io_outage", "task_aborts")] == [None, None]
    assert diagnosis.headline
    assert diagnosis.headline.name == "task_timeout"


@pytest.mark.parametrize(
    ("function", "missing", "is_found"), [(LUN_RESET, 1, False), (LUN_RESET, 0, True), (ABORT_TASK, 1, True)]
)
def test_a_command_whose_status_the_capture_may_have_missed(
    function: dict[str, Any], missing: int, is_found: bool
) -> None:
    """A reset says nothing of it; an ABORT TASK says that the status did not come."""
    told = Told()
    told.session(0, 20, missing_pdu_count_to_initiator=missing)
    told.reads(0, 0.0, 20)
    number = told.read(0, 0.1, None)
    request(told, 15.0, 15.1, **function | ({"referenced_cycle": number} if function is ABORT_TASK else {}))
    told.reads(0, 16.0, 20)
    assert (found(told.diagnosis()) is not None) == is_found


def test_an_outage_at_another_time_is_told_apart() -> None:
    told = stuck()
    told.read(0, 10.0, 14.0)
    told.time(0, 10.0, 14.0, "outage")
    diagnosis = told.diagnosis()
    assert found(diagnosis)
    assert found(diagnosis, "io_outage")


def test_every_step_is_named_and_a_new_login_belongs_to_it() -> None:
    told = Told()
    told.session(0, 12.1, end="closed", fin_to_target_ns=12.1)
    told.reads(0, 0.0, 20)
    number = told.read(0, 0.1, None)
    request(told, 5.1, None, referenced_cycle=number, **ABORT_TASK)
    request(told, 8.1, None, **LUN_RESET)
    told.time(0, 0.1, 15.0, "outage")
    told.session(14.0, 20, replaces=0)
    told.read(1, 15.0, 15.2)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "Sessions 0 and 1: 1 READ command to LUN 0 had no answer for 12.0 s, from 0.10 s on. TCP "
        "retransmitted too little for a path fault: this points to the target, or the storage behind LUN 0. The "
        "initiator sent ABORT TASK at 5.10 s (no response), then LOGICAL UNIT RESET at 8.10 s (no response). The "
        "initiator closed the connection at 12.10 s. It logged in again at 14.01 s. I/O resumed at 15.20 s."
    )
    assert finding.cost_ns == pytest.approx(15.1 * SECOND)
    assert [found(diagnosis, name) for name in ("io_outage", "connection_lost", "task_aborts")] == [None, None, None]


def test_a_volume_on_which_others_progress_is_not_out() -> None:
    """The cost is the time of the stuck command; the answers in the meantime point to its LUN."""
    told = Told()
    told.session(0, 20)
    for number in range(60):
        told.read(0, number * 0.1, (number + 1) * 0.1, lun=1)
    number = told.read(0, 0.1, None)
    told.add("nops", connection=0, is_ping=True, is_from_initiator=True, request_ns=2.0, response_ns=2.01)
    request(told, 5.1, 5.2, referenced_cycle=number, **ABORT_TASK)
    finding = found(told.diagnosis())
    assert finding
    assert finding.cost_ns == pytest.approx(5.1 * SECOND)
    # reads that ended after 1.1 s, a second after the stuck one was sent, and before 5.2 s: at 1.2, 1.3, ... 5.1 s
    assert (
        "Meanwhile the target answered 1 NOP-Out and 40 commands to other LUNs: this points to the storage "
        "behind LUN 0."
    ) in finding.text


@pytest.mark.parametrize(("waited_s", "is_stuck"), [(0.999, False), (1.0, True)])
def test_a_reset_by_an_administrator_finds_nothing_stuck(waited_s: float, is_stuck: bool) -> None:
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    told.read(0, 0.1, 0.1 + waited_s + 0.01)
    request(told, 0.1 + waited_s, 0.2 + waited_s, **LUN_RESET)
    told.reads(0, 0.2 + waited_s, 20)
    diagnosis = told.diagnosis()
    assert (found(diagnosis) is not None) == is_stuck
    assert (found(diagnosis, "task_aborts") is None) == is_stuck
    assert diagnosis.headline
    assert diagnosis.headline.name == ("task_timeout" if is_stuck else "task_aborts")


def test_a_reset_of_another_lun_or_connection_is_not_about_it() -> None:
    for columns in ({"lun": 1}, {"connection": 1}):
        told = Told()
        told.session(0, 20)
        told.connection(0, 20, session=0, is_iscsi=True)
        told.reads(0, 0.0, 20)
        told.read(0, 0.1, 9.0)
        request(told, 5.0, 5.1, **LUN_RESET | columns)
        assert found(told.diagnosis()) is None


def retransmitted(told: Told, *seconds: float) -> Told:
    for each in seconds:
        told.add("retransmissions", connection=0, to_target=True, time_ns=each, frame=told._next_frame())
    return told


def test_an_abort_while_the_path_is_out_is_the_paths() -> None:
    # until shortly before the response: the path worked again
    assert found(retransmitted(stuck(), 0.3, 0.7, 1.5, 3.1, 5.25).diagnosis()) is None
    told = stuck(until=14.0)
    told.rows["task_management"][0]["response_ns"] = None
    told.rows["task_management"][0]["response"] = None
    diagnosis = retransmitted(told, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7).diagnosis()
    assert found(diagnosis) is None
    assert diagnosis.headline
    assert diagnosis.headline.name == "io_outage"


def test_a_loss_or_two_at_the_start_are_not_the_path() -> None:
    assert found(retransmitted(stuck(), 0.3, 0.7).diagnosis())
    assert found(retransmitted(stuck(), 4.0).diagnosis())


def test_what_never_resumes_is_final() -> None:
    told = Told()
    told.session(0, 20)
    told.reads(0, 0.0, 20)
    number = told.read(0, 0.1, None)
    request(told, 5.1, None, referenced_cycle=number, **ABORT_TASK)
    told.time(0, 0.1, 20.0, "outage")
    finding = found(told.diagnosis())
    assert finding
    assert finding.is_final
    assert "had no answer for 19.9 s, from 0.10 s on, and I/O did not resume in the capture. " in finding.text


def test_a_headline_has_three_sentences_however_often_it_was_aborted() -> None:
    told = Told()
    told.session(0, 40)
    told.reads(0, 0.0, 20)
    number = told.read(0, 0.1, None)
    for second in range(2, 32, 2):
        request(told, second, None, referenced_cycle=number, **ABORT_TASK)
    told.time(0, 0.1, 40.0, "outage")
    diagnosis = told.diagnosis()
    finding, first = found(diagnosis), diagnosis.headline
    assert finding
    assert first
    assert "The initiator sent ABORT TASK 15 times from 2.00 s to 30.00 s (no response)." in finding.text
    assert first.text.count(". ") == 2
    assert first.text.endswith(".")


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "lun", "least_s"), [("stuck-command-lio", 0, 13), ("stuck-command-tgt", 1, 13)])
def test_recordings_of_kernels(name: str, lun: int, least_s: float, tap: str) -> None:
    """The disk answers nothing for 15 s; the command times out."""
    diagnosis = examine(iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED).table)
    finding = found(diagnosis)
    assert finding
    assert finding.cost_ns
    assert least_s * SECOND <= finding.cost_ns <= (least_s + 5) * SECOND
    assert "ABORT TASK" in finding.text
    assert f"the target answered 2 NOP-Outs: this points to the storage behind LUN {lun}. " in finding.text
    assert [found(diagnosis, name) for name in ("io_outage", "task_aborts", "connection_lost")] == [None] * 3
    assert diagnosis.headline
    assert diagnosis.headline.name == "task_timeout"


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_recorded_reset_by_an_administrator(tap: str) -> None:
    diagnosis = examine(iscsitrace.read(VECTORS / "lun-reset-lio" / f"{tap}.pcapng.gz", tables=NEEDED).table)
    assert found(diagnosis) is None
    assert diagnosis.headline
    assert diagnosis.headline.name == "task_aborts"


def test_a_recorded_hang_with_an_abort() -> None:
    """Its README: the read sent at 5.271 s is aborted, and read again at 12.868 s."""
    file = captures_folder() / "14_tmf_abort_storage-hang.pcapng.gz"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    trace = iscsitrace.read(file, tables=NEEDED)
    finding = found(examine(trace.table))
    assert finding
    start = int(trace.connections.raw("time_first_ns").min())
    ((first, last),) = finding.spans
    assert [round((each - start) / 1e9, 1) for each in (first, last)] == [5.3, 12.9]


def test_a_sentence_names_no_more_numbers_than_one_can_read() -> None:
    assert listed(range(2)) == "0 and 1"
    assert listed(range(8)) == "0, 1, 2, 3, 4, 5, 6 and 7"
    assert listed(range(1000)) == "0, 1, 2, 3, 4, 5, 6, 7 and 992 more"


def test_a_session_that_one_command_held_up_lost_all_that_time() -> None:
    """A single read completed after each of the 15 requests to abort the one that hung."""
    file = captures_folder() / "protocol" / "r22_same_abort_every_2_s.pcapng"
    ((first_s, last_s),) = json.loads(file.with_suffix(".json").read_text())["spans_s"]
    diagnosis = examine(iscsitrace.read(file, tables=NEEDED).table)
    finding = found(diagnosis)
    assert finding
    assert finding.cost_ns == pytest.approx((last_s - first_s) * SECOND, rel=0.01)
    # the time breakdown has the same
    assert finding.cost_ns == diagnosis.budget["outage"]
    assert diagnosis.headline
    assert diagnosis.headline.cost_ns == finding.cost_ns
