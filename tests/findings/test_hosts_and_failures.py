"""Slow hosts, failures, and connections used together, on synthetic sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings.finding import Finding
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
        "The initiator waited 200.0 ms for the target in total, at most 20.0 ms at a time. The target typically takes "
        "20.0 ms per read."
    )
    assert found.share == pytest.approx(20 / 37)
    transfer, wait = near(0.04)
    assert names(Story().tasks(10, ("target_service", wait), transfer)) == set()


def served(story: Story, first_ns: int | None, status_ns: int, **columns: Any) -> None:
    """Eight commands of 2 ms: first data or R2T after the one time, status the other time after the data."""
    for _ in range(8):
        last_ns = story.now + 2 * MS - status_ns
        seen: dict[str, int] = {"data_first_ns": last_ns, "data_last_ns": last_ns}
        if first_ns is None:
            seen = {"data_pdu_count": 0}
        elif columns.get("operation") == "write":
            seen |= {"r2t_count": 1, "r2t_first_ns": story.now + first_ns}
        else:
            seen["data_first_ns"] = story.now + first_ns
        story.task(("target_service", 2 * MS), **seen, **columns)


@pytest.mark.parametrize(
    ("rtt_ns", "first_ns", "status_ns", "operation", "median"),
    [
        # 200 ns beyond the RTT; for a write its status is an RTT later too
        (800, 1_000, 0, "read", "200 ns"),
        (800, 1_000, 100, "read", "300 ns"),
        (800, 1_000, 900, "write", "300 ns"),
        (800, 1_000, 800, "write", "200 ns"),
        # an answer before the least RTT is no wait
        (800, 700, 0, "read", "0 ns"),
        (800, 700, 700, "write", "0 ns"),
        # without data the whole latency is a wait for the target
        (2 * MS - 3, None, 0, "read", "3 ns"),
        # an unknown RTT explains nothing
        (None, 900, 0, "read", "900 ns"),
    ],
)
def test_service_time_is_what_the_rtt_does_not_explain(
    rtt_ns: int | None, first_ns: int | None, status_ns: int, operation: str, median: str
) -> None:
    story = Story(rtt_to_target_ns=rtt_ns)
    served(story, first_ns, status_ns, operation=operation)
    found = story.found("slow_target")
    assert found
    assert found.text.endswith(f" The target typically takes {median} per {operation}.")


def test_reads_and_writes_have_medians_of_their_own() -> None:
    story = Story(rtt_to_target_ns=0)
    served(story, 500, 0)
    served(story, 600, 7, operation="write")
    found = story.found("slow_target")
    assert found
    assert found.text.endswith(" The target typically takes 500 ns per read and 607 ns per write.")


def test_commands_in_flight_together_have_no_median_service_time() -> None:
    found = Story().tasks(10, ("target_service", 20 * MS), queue_depth=2).found("slow_target")
    assert found
    assert found.text == "The initiator waited 200.0 ms for the target in total, at most 20.0 ms at a time."


@pytest.mark.parametrize(
    ("stalls_ms", "severity"),
    [
        # the service time of healthy storage, and one that is not
        ([9.9] * 20, "info"),
        ([10.0] * 20, "warning"),
        # half of the time in long stalls, or less
        ([5.0] * 15 + [10.0] * 8, "warning"),
        ([5.0] * 18 + [10.0] * 8, "info"),
        # seven are too few to be sure, unless they take a second
        ([2.0] * 20 + [70.0] * 7, "info"),
        ([2.0] * 20 + [150.0] * 7, "warning"),
    ],
)
def test_a_target_is_slow_from_ten_milliseconds_on(stalls_ms: list[float], severity: str) -> None:
    story = Story(rtt_to_target_ns=MS)
    for stall in stalls_ms:
        served_ns = MS + round(stall * MS)
        columns = {"data_first_ns": story.now + served_ns, "data_last_ns": story.now + served_ns}
        story.task(("propagation", MS), ("target_service", round(stall * MS)), **columns)
    found = story.found("slow_target")
    assert found
    # it is only as severe as its share of the time
    assert found.severity == severity
    assert found.share == pytest.approx(sum(stalls_ms) / (sum(stalls_ms) + len(stalls_ms)))
    assert story.opinion().headline.kind == {"info": "healthy", "warning": "problem"}[severity]


@pytest.mark.parametrize(
    ("each_ms", "depth", "severity"),
    [
        # four reads at a time that take 26 ms each, and 9.6 ms
        (6.5, 4, "warning"),
        (2.4, 4, "info"),
        (2.5, 4, "warning"),
        # a target that serves more than a thousand a second has a queue, and is healthy
        (0.9, 32, "info"),
        (1.0, 32, "warning"),
    ],
)
def test_commands_in_flight_together_take_what_they_wait_in_turn(each_ms: float, depth: int, severity: str) -> None:
    """The target is never silent for 10 ms: each read adds its part to the wait of those behind it."""
    found = Story().tasks(64, ("target_service", round(each_ms * MS)), queue_depth=depth).found("slow_target")
    assert found
    assert found.severity == severity


def test_slow_writes_are_named_where_reads_are_not_slow() -> None:
    def story(write_ns: int, reads: int = 10) -> Story:
        made = Story(rtt_to_target_ns=0)
        for number in range(reads + 10):
            is_write = number >= reads
            took_ns = write_ns if is_write else 2 * MS
            last_ns = made.now + took_ns
            columns: dict[str, Any] = {"data_first_ns": last_ns, "data_last_ns": last_ns}
            if is_write:
                columns = {"operation": "write", "r2t_count": 1, "r2t_first_ns": last_ns, **columns}
            made.task(("target_service", took_ns), **columns)
        return made

    found = story(200 * MS).found("slow_target")
    assert found
    assert found.text.endswith(" Writes are slow, reads are not: typically 200.0 ms against 2.0 ms.")
    for other in (story(9 * MS), story(200 * MS, reads=7)):
        near_miss = other.found("slow_target")
        assert near_miss
        assert "are slow" not in near_miss.text


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


def test_an_idle_period_of_100_ms_is_think_time_and_the_longest_are_shown() -> None:
    story = Story()
    for length_ms in (1, 100, 1, 60, 70, 101, *[1] * 18):
        story.task(("transfer", MS)).pause(length_ms * MS)
    found = story.task(("transfer", MS)).found("initiator_think_time")
    assert found
    # 250 ms of these and of 25 commands of 1 ms: that of 101 ms is an idle gap
    assert found.share == pytest.approx(250 / 275)
    assert found.text.startswith("The initiator paused 23 times between I/Os, typically for 1.0 ms.")
    commands = [row["command_frame"] for row in story.rows["cycles"]]
    assert found.frames == (commands[2], commands[4], commands[5])


def test_the_three_latest_answers_to_r2ts_are_shown() -> None:
    story = Story().tasks(10, ("initiator_service", MS), operation="write")
    for number, late_ms in enumerate((1, 5, 4, None, 3)):
        r2t_ns = story.now + 10 * number * MS
        row = {"cycle": number, "r2t_ns": r2t_ns, "r2t_frame": 100 + number, "data_first_frame": 200 + number}
        story.rows["rounds"].append(row | ({} if late_ms is None else {"data_first_ns": r2t_ns + late_ms * MS}))
    found = story.found("slow_initiator")
    assert found
    assert found.frames == (101, 102, 104, 201, 202, 204)
    # of 1, 3, 4 and 5 ms
    assert found.text == "The initiator answered R2Ts late: typically 3.5 ms from R2T to first Data-Out (4 R2Ts)."


@pytest.mark.parametrize(
    ("to_target", "buffer_ms", "is_found"), [(True, 2, False), (True, 0.5, True), (False, 2, True)]
)
def test_an_initiator_behind_its_send_buffer_is_not_slow(to_target: bool, buffer_ms: float, is_found: bool) -> None:
    """It is the target's buffer that holds reads."""
    story = Story().tasks(10, ("send_buffer", round(buffer_ms * MS)), operation="write" if to_target else "read")
    story.tasks(10, ("initiator_service", MS), operation="write")
    story.add("senders", to_target=to_target, sndbuf_limited_ns=20 * MS)
    assert ("slow_initiator" in names(story)) == is_found


def test_without_r2ts_the_waits_themselves_are_shown() -> None:
    story = Story().tasks(10, ("initiator_service", MS), operation="write")
    found = story.found("slow_initiator")
    assert found
    assert found.text == "The initiator answered R2Ts late."
    ends = [row["frame"] for row in story.rows["budget"] if row["connection"] == 3]
    assert found.frames == tuple(ends[:3])


def test_a_slow_initiator() -> None:
    story = writes(10, 1, immediate=1)
    for row in story.rows["rounds"]:
        row["data_first_ns"] += 3 * MS
    transfer, wait = near(0.1)
    story.tasks(20, transfer, ("initiator_service", wait), operation="write")
    found = story.found("slow_initiator")
    assert found
    assert "answered R2Ts late: typically 3.0 ms from R2T to first Data-Out" in found.text
    assert {1_000, 2_000} <= set(found.frames)
    transfer, wait = near(0.04)
    assert "slow_initiator" not in names(Story().tasks(20, transfer, ("initiator_service", wait)))


# --- failures


def test_one_digest_error_is_reported() -> None:
    counters = {"name": "data_digest_error", "severity": "warning", "count": 1, "first_frame": 77}
    found = Story().task(("transfer", MS)).add("counters", **counters).found("digest_errors")
    assert found
    assert (found.severity, found.share, found.frames) == ("error", None, (77,))
    assert found.text == "1 data digest error."
    assert names(Story().task(("transfer", MS)).add("counters", **counters | {"name": "digest_inferred"})) == set()
    # of another connection
    assert names(Story().task(("transfer", MS)).add("counters", **counters | {"connection": 4})) == set()


@pytest.mark.parametrize(
    ("wrong", "text", "side"),
    [
        (
            {"to_target": 2},
            " in PDUs from the initiator",
            "the initiator, or the path between it and the capture point",
        ),
        ({"to_initiator": 1}, " in PDUs from the target", "the target, or the path between it and the capture point"),
        ({"to_target": 1, "to_initiator": 1}, " in PDUs from the initiator and the target", None),
        ({}, "", None),
    ],
)
def test_digest_errors_point_to_the_side_before_the_tap(wrong: dict[str, int], text: str, side: str | None) -> None:
    story = Story().task(("transfer", MS))
    story.connection |= {f"digest_errors_{direction}": count for direction, count in wrong.items()}
    story.add("counters", name="data_digest_error", severity="warning", count=2, first_frame=77)
    found = story.found("digest_errors")
    assert found
    assert (found.text, found.points_to) == (f"2 data digest errors{text}.", side)


def test_header_and_data_digest_errors_are_counted_apart() -> None:
    story = Story().task(("transfer", MS))
    for name, count, frame in (("header", 1, 70), ("data", 2, 60), ("data", 0, 50), ("data", 3, 80)):
        story.add("counters", name=f"{name}_digest_error", severity="warning", count=count, first_frame=frame)
    found = story.found("digest_errors")
    assert found
    assert found.text == "1 header digest error and 5 data digest errors."
    assert found.frames == (60, 70, 80)
    none = Story().task(("transfer", MS)).add("counters", name="data_digest_error", severity="warning", count=0)
    assert none.found("digest_errors") is None


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
        assert found.text == "1 NOP-Out had no answer for 5.0 s" + ("." if answered_ns else ", 1 never had one.")
    # the initiator waits no longer than until it closes
    for name, waited_ms, is_late in (("fin", 4_999, False), ("rst", 5_000, True)):
        story.connection |= {"fin_to_target_ns": None, f"{name}_to_target_ns": asked_ns + waited_ms * MS}
        assert (story.found("nop_timeout") is not None) == (is_found and (is_late or answered_ns is not None))
    # what is missing from the capture may be the answer
    for direction in ("to_initiator", "to_target"):
        story.connection |= {"gap_bytes_to_initiator": 0, "gap_bytes_to_target": 0, f"gap_bytes_{direction}": 1}
        assert (story.found("nop_timeout") is not None) == (is_found and answered_ns is not None)
    assert names(Story().task(("transfer", MS)).add("nops", **nop | {"is_ping": False})) == set()


@pytest.mark.parametrize(
    ("from_initiator", "text"),
    [((True, True), "2 NOP-Outs had no"), ((False, False), "2 NOP-Ins had no"), ((True, False), "2 NOPs had no")],
)
def test_the_finding_says_who_sent_the_nop(from_initiator: tuple[bool, bool], text: str) -> None:
    story = Story().task(("transfer", MS))
    for is_from_initiator in from_initiator:
        story.add("nops", is_ping=True, is_from_initiator=is_from_initiator, request_ns=1_000 * SECOND, request_frame=5)
    found = story.found("nop_timeout")
    assert found
    assert found.text.startswith(text)


def test_only_late_nops_are_counted_and_shown() -> None:
    story = Story().task(("transfer", MS))
    for number, after_s in enumerate((9, None, 1, 7)):
        answer = {} if after_s is None else {"response_ns": (1_000 + after_s) * SECOND, "response_frame": 60 + number}
        row = {"is_ping": True, "is_from_initiator": True, "request_ns": 1_000 * SECOND, "request_frame": 50 + number}
        story.add("nops", **row | answer)
    # an answer whose request was not captured
    story.add("nops", is_ping=True, is_from_initiator=False, response_ns=1_009 * SECOND, response_frame=99)
    found = story.found("nop_timeout")
    assert found
    assert found.text == "3 NOP-Outs had no answer for 5.0 s, 1 never had one."
    assert found.frames == (50, 51, 53, 60, 63)


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
        "The initiator aborted commands: 1 ABORT TASK.",
    )
    # CLEAR ACA, TASK REASSIGN: nothing is given up
    for function in (3, 8):
        assert names(Story().task(("transfer", MS)).add("task_management", **abort | {"function": function})) == set()


@pytest.mark.parametrize(("function", "is_found"), [(number, number in (1, 2, 4, 5, 6, 7)) for number in range(10)])
def test_aborts_clears_and_resets_abort_commands(function: int, is_found: bool) -> None:
    """RFC 7143, section 11.5.1: 3 is CLEAR ACA, 8 is TASK REASSIGN."""
    story = Story().task(("transfer", MS)).add("task_management", function=function, function_text="RESET")
    assert (story.found("task_aborts") is not None) == is_found


def test_each_function_is_counted() -> None:
    story = Story().task(("transfer", MS))
    for function, text in ((1, "ABORT TASK"), (5, "LOGICAL UNIT RESET"), (1, "ABORT TASK")):
        story.add("task_management", function=function, function_text=text)
    found = story.found("task_aborts")
    assert found
    assert found.text == "The initiator aborted commands: 2 ABORT TASK, 1 LOGICAL UNIT RESET."


def test_an_abort_has_its_time() -> None:
    story = Story().task(("transfer", MS))
    for count, words in ((1, "1 ABORT TASK at 1.00 s."), (2, "2 ABORT TASK, first at 1.00 s.")):
        story.add("task_management", function=1, function_text="ABORT TASK", request_ns=(999 + count) * SECOND)
        found = story.found("task_aborts")
        assert found
        assert found.text == f"The initiator aborted commands: {words}"


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
        "24 of 39 commands waited until the target accepted more (MaxCmdSN). At most 8 were in flight."
    )
    # the first three that waited, each for the status that allows its number: that of the command eight before it
    assert found.frames == (116, 117, 118, 208, 209, 210)
    # one more than the queue needs
    assert commands_in_a_window(9, 8).found("command_window_closed") is None
    # room was made long before the initiator used it
    assert commands_in_a_window(8, 32, delay_ns=5 * MS).found("command_window_closed") is None


def test_commands_beyond_the_last_known_window_waited_for_the_last_status() -> None:
    story = commands_in_a_window(8, 32)
    for row in story.rows["cycles"][2:]:
        # as after the status of the second command: nine commands are allowed
        row["max_cmd_sn"] = story.rows["cycles"][1]["max_cmd_sn"]
    found = story.found("command_window_closed")
    assert found
    assert found.text.startswith("24 of 39 commands waited")
    assert 239 in found.frames


@pytest.mark.parametrize("column", ["cmd_sn", "max_cmd_sn"])
def test_a_command_window_needs_numbers_of_commands_and_of_statuses(column: str) -> None:
    story = commands_in_a_window(8, 32)
    for row in story.rows["cycles"]:
        row[column] = None
    assert story.found("command_window_closed") is None


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


def two_sessions(target_name: str, later_ns: int) -> Story:
    """Sessions to iqn.disk and to this target: the second begins that much later and takes three times as long."""
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
    return story


def test_sessions_are_used_together_by_name_or_by_similarity() -> None:
    def found(target_name: str, later_ns: int = 0) -> list[dict[str, str]]:
        opinions = examine(two_sessions(target_name, later_ns).source()).sessions.values()
        return [{each.name: each.severity for each in opinion.findings} for opinion in opinions]

    assert found("iqn.disk", 50 * MS) == [{"uneven_connections": "warning"}] * 2
    # of other targets it is inferred, from a common beginning: within a tenth of 600 ms
    assert found("iqn.other", 50 * MS) == [{"uneven_connections": "info"}] * 2
    assert found("iqn.other", 61 * MS) == [{}, {}]


@pytest.mark.parametrize(("target_name", "count"), [("iqn.disk", 1), ("iqn.other", 0)])
def test_without_mirrors_only_sessions_of_one_target_are_used_together(target_name: str, count: int) -> None:
    source = two_sessions(target_name, 0).source()
    assert len(examine(source).jobs) == 1
    alone = examine(source, has_mirrors=False)
    assert (len(alone.jobs), alone.mirrors) == (count, ())


def test_waiting_for_a_mirror_side_explains_think_time() -> None:
    """tests/relate/test_mirrors.py tests the finding itself."""
    think = Finding(PROBLEMS["initiator_think_time"], "warning", 0.6, "", ())
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "warning", 0.3, "", ())
    assert think.is_explained_by(waits)
    assert not think.is_explained_by(replace(waits, share=0.29))
    assert not think.is_explained_by(think)
    # it is no other problem's cause
    assert not replace(think, problem=PROBLEMS["slow_target"]).is_explained_by(waits)
