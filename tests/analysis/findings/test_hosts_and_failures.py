"""Slow hosts, failures, and connections used together, on synthetic sessions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iscsitrace.analysis.findings.examination import examine
from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.registry import PROBLEMS
from tests.support.story import SECOND, Story, names, near, writes
from tests.support.tables_by_hand import MS

# --- hosts


def test_a_slow_target() -> None:
    story = Story()
    for _ in range(10):
        columns = {"data_first_ns": story.now + 36 * MS, "data_last_ns": story.now + 37 * MS}
        story.task(("propagation", 16 * MS), ("target_service", 20 * MS), ("transfer", 1 * MS), **columns)
    found = story.found("slow_target")
    assert found
    assert found.text == (
        "service time 200.0 ms with every command in flight stalled, at most 20.0 ms at a time; "
        "median 20.0 ms (10 reads)"
    )
    assert found.share == pytest.approx(20 / 37)
    transfer, wait = near(0.04)
    assert names(Story().tasks(10, ("target_service", wait), transfer)) == set()


def test_think_time_is_no_idle_gap() -> None:
    def story(pauses: int, length_ns: int) -> Story:
        made = Story()
        for _ in range(pauses):
            made.task(("transfer", 10 * MS)).pause(length_ns)
        return made.task(("transfer", 10 * MS))

    found = story(8, 99 * MS).found("initiator_think_time")
    assert found
    assert found.share == pytest.approx(8 * 99 / (8 * 99 + 90))
    assert names(story(7, 99 * MS)) == set()
    assert names(story(40, 500_000)) == set()
    # among many that are short, long ones are idle gaps between bursts of I/O
    mixed = story(40, 500_000)
    for _ in range(8):
        mixed.pause(101 * MS).task(("transfer", 10 * MS))
    assert names(mixed) == set()


def test_a_slow_initiator() -> None:
    story = writes(10, 1, immediate=1)
    for row in story.rows["rounds"]:
        row["data_first_ns"] += 3 * MS
    transfer, wait = near(0.1)
    story.tasks(20, transfer, ("initiator_service", wait), operation="write")
    found = story.found("slow_initiator")
    assert found
    assert "answered R2Ts late: median 3.0 ms from R2T to first Data-Out" in found.text
    assert {1_000, 2_000} <= set(found.frames)
    transfer, wait = near(0.04)
    assert "slow_initiator" not in names(Story().tasks(20, transfer, ("initiator_service", wait)))


# --- failures


def test_one_digest_error_is_reported() -> None:
    counters = {"name": "data_digest_error", "severity": "warning", "count": 1, "first_frame": 77}
    found = Story().task(("transfer", MS)).add("counters", **counters).found("digest_errors")
    assert found
    assert (found.severity, found.share, found.frames) == ("error", None, (77,))
    assert found.text == "1 data digest error"
    assert names(Story().task(("transfer", MS)).add("counters", **counters | {"name": "digest_inferred"})) == set()
    # of another connection
    assert names(Story().task(("transfer", MS)).add("counters", **counters | {"connection": 4})) == set()


@pytest.mark.parametrize(
    ("asked_ns", "answered_ns", "is_found"),
    [
        (1_000 * SECOND, 1_004_999 * MS, False),
        (1_000 * SECOND, 1_005_000 * MS, True),
        # the connection's last packet is at 1010 s
        (1_004_999 * MS, None, True),
        (1_005_001 * MS, None, False),
    ],
)
def test_nops_without_an_answer(asked_ns: int, answered_ns: int | None, is_found: bool) -> None:
    nop = {"is_ping": True, "is_from_initiator": True, "request_ns": asked_ns, "response_ns": answered_ns}
    story = Story().task(("transfer", MS)).add("nops", **nop, request_frame=5, response_frame=answered_ns and 6)
    found = story.found("nop_timeout")
    assert bool(found) == is_found
    if found:
        assert found.frames == ((5, 6) if answered_ns else (5,))
        assert found.text == "1 NOP-Out without an answer for 5.0 s" + ("" if answered_ns else ", 1 without any")
    # what is missing from the capture may be the answer
    story.connection["gap_bytes_to_initiator"] = 1
    assert (story.found("nop_timeout") is not None) == (is_found and answered_ns is not None)
    assert names(Story().task(("transfer", MS)).add("nops", **nop | {"is_ping": False})) == set()


@pytest.mark.parametrize(
    ("from_initiator", "text"),
    [((True, True), "2 NOP-Outs without"), ((False, False), "2 NOP-Ins without"), ((True, False), "2 NOPs without")],
)
def test_the_finding_says_who_sent_the_nop(from_initiator: tuple[bool, bool], text: str) -> None:
    story = Story().task(("transfer", MS))
    for is_from_initiator in from_initiator:
        story.add("nops", is_ping=True, is_from_initiator=is_from_initiator, request_ns=1_000 * SECOND, request_frame=5)
    found = story.found("nop_timeout")
    assert found
    assert found.text.startswith(text)


def test_aborts_with_function_and_lun() -> None:
    abort = {
        "function": 1,
        "function_text": "ABORT TASK",
        "request_frame": 50,
        "response_frame": 51,
        "referenced_cycle": 0,
    }
    found = Story().task(("transfer", MS)).add("task_management", **abort).found("task_aborts")
    assert found
    assert (found.severity, found.frames, found.text) == (
        "error",
        (11, 50, 51),
        "the initiator aborted commands: ABORT TASK (1)",
    )
    # CLEAR ACA, TASK REASSIGN: nothing is given up
    for function in (3, 8):
        assert names(Story().task(("transfer", MS)).add("task_management", **abort | {"function": function})) == set()


def commands_in_a_window(window: int, queue_depth: int, *, delay_ns: int = 0) -> Story:
    """Forty commands, each answered after 8 ms; window and queue limit those in flight; a status allows one more."""
    story = Story(rtt_to_target_ns=8 * MS)
    outstanding, first_cmd_sn, start = min(window, queue_depth), 0xFFFF_FFF0, story.now
    sent: list[int] = []
    for number in range(40):
        at = start + number * 1_000 if number < outstanding else sent[number - outstanding] + 8 * MS + 10_000 + delay_ns
        sent.append(at)
        story.rows["cycles"].append(
            {"cycle": number, "session": 0, "connection": 3, "operation": "read", "queue_depth": outstanding}
            | {"command_first_ns": at, "status_ns": at + 8 * MS}
            | {"command_frame": 100 + number, "status_frame": 200 + number}
            | {"cmd_sn": (first_cmd_sn + number) % 2**32, "max_cmd_sn": (first_cmd_sn + number + window) % 2**32}
        )
    return story


def test_a_closed_command_window() -> None:
    found = commands_in_a_window(8, 32).found("command_window_closed")
    assert found
    assert (found.severity, found.share) == ("warning", None)
    # of the limit of the first eight, and of the eight that follow them, only the login spoke; one has CmdSN 2^32 - 1
    assert found.text == (
        "24 of 39 commands waited for the command window to open (MaxCmdSN), with at most 8 commands in flight"
    )
    assert {116, 208} <= set(found.frames)
    # one more than the queue needs
    assert commands_in_a_window(9, 8).found("command_window_closed") is None
    # room was made long before the initiator used it
    assert commands_in_a_window(8, 32, delay_ns=5 * MS).found("command_window_closed") is None


# --- used together


def two_connections(first: tuple[int, int], second: tuple[int, int], apart_ns: int = 0) -> set[str]:
    """The findings of a session; of each connection (commands, nanoseconds per command)."""
    story = Story()
    story.rows["connections"].append(story.connection | {"connection": 4})
    start = story.now
    for connection, (tasks, length_ns) in ((3, first), (4, second)):
        for number in range(tasks):
            at = start + number * length_ns + (apart_ns if connection == 4 else 0)
            story.rows["cycles"].append(
                {"cycle": len(story.rows["cycles"]), "session": 0, "connection": connection, "operation": "read"}
                | {"is_read": True, "bytes": 65_536, "data_bytes": 65_536, "queue_depth": 2, "is_complete": True}
                | {"command_first_ns": at, "status_ns": at + length_ns, "command_frame": 1, "status_frame": 2}
            )
    diagnosis = examine(story.source())
    assert all("uneven_connections" not in [f.name for f in each.findings] for each in diagnosis.connections.values())
    return {finding.name for finding in diagnosis.sessions[0].findings}


def test_uneven_connections() -> None:
    assert two_connections((20, 10 * MS), (20, 10 * MS)) == set()
    # three times the data in the same time
    assert two_connections((30, 10 * MS), (10, 30 * MS)) == {"uneven_connections"}
    assert two_connections((20, 10 * MS), (11, 18 * MS)) == set()
    assert two_connections((20, 10 * MS), (10, 20 * MS)) == {"uneven_connections"}
    # the same data, one takes twice as long
    assert two_connections((20, 20 * MS), (20, 9 * MS)) == {"uneven_connections"}
    # one after the other is no use together
    assert two_connections((30, 10 * MS), (10, 10 * MS), apart_ns=SECOND) == set()


def test_sessions_are_used_together_by_name_or_by_similarity() -> None:
    def found(target_name: str, later_ns: int = 0) -> list[dict[str, str]]:
        story = Story()
        names = {"initiator_name": "iqn.host", "target_name": "iqn.disk"}
        story.rows["sessions"] = [{"session": 0} | names, {"session": 1} | names | {"target_name": target_name}]
        story.rows["connections"].append(story.connection | {"connection": 4, "session": 1})
        for session, length_ns in ((0, 10 * MS), (1, 30 * MS)):
            for number in range(20):
                at = story.now + number * length_ns + session * later_ns
                story.rows["cycles"].append(
                    {"cycle": len(story.rows["cycles"]), "session": session, "connection": 3 + session}
                    | {"operation": "read", "is_read": True, "bytes": 65_536, "data_bytes": 65_536, "is_complete": True}
                    | {"command_first_ns": at, "status_ns": at + length_ns, "queue_depth": 1}
                )
        opinions = examine(story.source()).sessions.values()
        return [{each.name: each.severity for each in opinion.findings} for opinion in opinions]

    assert found("iqn.disk", 50 * MS) == [{"uneven_connections": "warning"}] * 2
    # of other targets it is inferred, from a common beginning: within a tenth of 600 ms
    assert found("iqn.other", 50 * MS) == [{"uneven_connections": "info"}] * 2
    assert found("iqn.other", 61 * MS) == [{}, {}]


def test_waiting_for_a_mirror_side_explains_think_time() -> None:
    """tests/analysis/groups/test_mirrors.py tests the finding itself."""
    think = Finding(PROBLEMS["initiator_think_time"], "warning", 0.6, "", ())
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "warning", 0.3, "", ())
    assert think.is_explained_by(waits)
    assert not think.is_explained_by(replace(waits, share=0.29))
    assert not think.is_explained_by(think)
    # it is no other problem's cause
    assert not replace(think, problem=PROBLEMS["slow_target"]).is_explained_by(waits)
