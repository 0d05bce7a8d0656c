"""The diagnosis on tables made by hand: every threshold from both sides, evidence, verdicts, system calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.findings.examination import examine
from iscsitrace.analysis.findings.finding import Finding, by_weight, shown
from iscsitrace.analysis.findings.registry import PROBLEMS
from iscsitrace.analysis.session import system_calls
from iscsitrace.analysis.session.grouping import TABLES
from iscsitrace.analysis.session.session import WAITS, Session
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from tests.support.story import SECOND, Story
from tests.support.tables_by_hand import MS, table


def names(story: Story) -> set[str]:
    return {finding.name for finding in story.opinion().findings}


def near(share: float) -> tuple[tuple[str, int], int]:
    """A transfer, and a wait that is that share of both together."""
    total = 100 * MS
    return ("transfer", total - round(share * total)), round(share * total)


# --- latency


def test_queue_depth_1_over_distance() -> None:
    story = Story().tasks(8, ("propagation", 16 * MS), ("transfer", 4 * MS))
    found = story.found("queue_depth_low")
    assert found
    assert (found.severity, found.share) == ("warning", pytest.approx(0.8))
    assert found.text == ("the initiator issues one 128 KiB read at a time (queue depth 1); RTT 16.0 ms")
    # the first three tasks, each with its command and its status
    assert found.frames == (11, 13, 14, 16, 17, 19)
    assert found.display_filter == "frame.number in {11, 13, 14, 16, 17, 19}"
    assert "node.session.queue_depth" in " ".join(found.advice)


@pytest.mark.parametrize(("share", "severity"), [(0.049, None), (0.05, "info"), (0.19, "info"), (0.2, "warning")])
def test_a_cost_below_the_threshold_is_no_finding(share: float, severity: str | None) -> None:
    transfer, wait = near(share)
    found = Story().tasks(10, ("propagation", wait), transfer).found("queue_depth_low")
    assert (found.severity if found else None) == severity


def test_seven_tasks_are_no_habit() -> None:
    assert Story().tasks(7, ("propagation", 16 * MS)).found("queue_depth_low") is None
    assert Story().tasks(8, ("propagation", 16 * MS)).found("queue_depth_low")


def test_waits_of_tasks_that_move_no_blocks_are_not_the_queues() -> None:
    """A device is looked at by dozens of inquiries, one at a time: no queue depth changes that."""
    story = Story().tasks(8, ("propagation", 1 * MS), ("transfer", 30 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    assert story.found("queue_depth_low") is None
    story = Story().tasks(8, ("propagation", 16 * MS), ("transfer", 30 * MS))
    found = story.tasks(4, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36).found(
        "queue_depth_low"
    )
    assert found
    assert found.share == pytest.approx(8 * 16 / (8 * 46 + 4 * 16))


def test_a_pause_does_not_hide_what_is_wrong_with_the_work() -> None:
    story = Story()
    for _ in range(10):
        story.task(("propagation", 16 * MS)).pause(MS)
    story.pause(60 * SECOND).tasks(5, ("propagation", 16 * MS))
    found = story.found("queue_depth_low")
    assert found
    assert (found.severity, found.share) == ("warning", pytest.approx(240 / 250))
    assert story.opinion().jobs_ns == 250 * MS


def test_the_turnaround_before_a_read_counts_and_that_before_an_inquiry_does_not() -> None:
    """At a tap near the target the path lies between a status and the next command."""
    reads = Story(rtt_to_target_ns=0, rtt_to_initiator_ns=16 * MS)
    inquiries = Story(rtt_to_target_ns=0, rtt_to_initiator_ns=16 * MS)
    for _ in range(10):
        reads.pause(16 * MS, "propagation").task(("transfer", 16 * MS))
        inquiries.task(("transfer", 16 * MS)).pause(16 * MS, "propagation").task(
            ("transfer", 1 * MS), operation="inquiry"
        )
    assert reads.found("queue_depth_low")
    assert inquiries.found("queue_depth_low") is None


def test_small_blocks_are_those_that_pass_faster_than_the_path() -> None:
    sender = {"to_target": False, "line_bytes_per_s": 131_072 * 1_000 // 16}

    def found(**columns: Any) -> bool:
        story = Story().tasks(16, ("propagation", 16 * MS), ("transfer", 1 * MS), **columns)
        return "block_size_small" in names(story.add("senders", **sender))

    # 128 KiB take 16 ms on this line: as long as the path
    assert not found(bytes=131_072)
    assert found(bytes=130_560)
    assert not found(bytes=130_560, queue_depth=2)


def test_blocks_anywhere_on_the_disk_are_not_called_small() -> None:
    story = Story()
    for number in range(16):
        story.task(("propagation", 16 * MS), bytes=4_096, lba=(number * 7919) % 1_000 * 64)
    assert names(story) == {"queue_depth_low"}
    assert names(Story().tasks(16, ("propagation", 16 * MS), bytes=4_096)) == {"queue_depth_low", "block_size_small"}


# --- system calls


def reads_of(sizes: Sequence[int], depths: Sequence[int] | None = None, lba: int = 0) -> Table:
    rows = []
    for place, size in enumerate(sizes):
        depth = depths[place] if depths else 1
        rows.append(
            {"cycle": place, "operation": "read", "lba": lba, "block_count": size // 512, "bytes": size}
            | {"data_bytes": size, "queue_depth": depth, "session": 0, "lun": 0}
        )
        lba += size // 512
    return table("cycles", *rows)


KB = 1024
CUT = (130_560, 130_560, 130_560, 120_320)


def test_the_500_kb_calls_of_the_study() -> None:
    call = system_calls.infer(reads_of(CUT * 5))
    assert call
    assert (call.bytes, call.pieces, call.count, call.is_at_once) == (500 * KB, CUT, 5, False)
    assert call.rows == (0, 1, 2, 3)


def test_three_calls_are_not_enough() -> None:
    assert system_calls.infer(reads_of(CUT * 3)) is None
    assert system_calls.infer(reads_of(CUT * 4))


def test_a_last_call_that_is_shorter_changes_nothing() -> None:
    call = system_calls.infer(reads_of((*CUT * 5, 130_560, 4_096)))
    assert call
    assert (call.bytes, call.count) == (500 * KB, 5)


def test_calls_of_changing_size_are_not_named() -> None:
    sizes = [size for rest in range(1, 12) for size in (130_560, 130_560, rest * 512)]
    assert system_calls.infer(reads_of(sizes)) is None


def test_whole_blocks_in_order_say_nothing_of_calls() -> None:
    assert system_calls.infer(reads_of([131_072] * 64)) is None


def test_full_pieces_sent_at_once() -> None:
    call = system_calls.infer(reads_of([131_072] * 32, [1, 2, 3, 4] * 8))
    assert call
    assert (call.bytes, call.pieces, call.count, call.is_at_once) == (512 * KB, (131_072,) * 4, 8, True)
    # a queue that is kept full has no calls in it
    assert system_calls.infer(reads_of([131_072] * 32, [1, 2, 3, *[4] * 29])) is None


def test_pieces_far_apart_are_no_call() -> None:
    apart = [reads_of(CUT, lba=place * 10_000_019) for place in range(5)]
    joined = [row for part in apart for row in part.rows([column.name for column in part.columns[:40]])]
    scattered = [row | {"lba": (place * 7919) % 100_003, "operation": "read"} for place, row in enumerate(joined)]
    kept = ("operation", "lba", "block_count", "bytes", "data_bytes", "queue_depth", "session", "lun")
    assert system_calls.infer(table("cycles", *({name: row[name] for name in kept} for row in scattered))) is None


def test_a_finding_names_the_system_call_and_shows_one() -> None:
    story = Story()
    for size in CUT * 4:
        story.task(("propagation", 16 * MS), bytes=size)
    found = story.found("block_size_small")
    assert found
    assert (
        "system calls of 500 KiB, each split into 4 commands (127.5 KiB + 127.5 KiB + 127.5 KiB + 117.5 KiB)"
        in found.text
    )
    # the first three of its tasks
    assert found.frames == (11, 12, 13, 14, 15, 16)
    assert "max_sectors_kb" in " ".join(found.advice)


# --- writes that wait for R2Ts


def write_in_rounds(
    story: Story, count: int, *, lateness_ns: int = 0, immediate: int = 0, path: str = "propagation"
) -> None:
    """A write of `count` R2Ts over 16 ms to the target and back, each burst 4 ms long."""
    number, start = len(story.rows["cycles"]), story.now
    parts: list[tuple[str, int]] = []
    moment = start
    for r2t_sn in range(count):
        granted = moment + 16 * MS + lateness_ns
        story.rows["rounds"].append(
            {"cycle": number, "r2t_sn": r2t_sn, "desired_data_transfer_length": 65_536, "bytes": 65_536}
            | {"r2t_ns": granted, "data_first_ns": granted, "data_last_ns": granted + 4 * MS}
            | {"r2t_frame": 1_000 + r2t_sn, "data_first_frame": 2_000 + r2t_sn, "data_last_frame": 3_000 + r2t_sn}
        )
        parts += [(path, 16 * MS), ("target_service", lateness_ns), ("transfer", 4 * MS)]
        moment = granted + 4 * MS
    columns = {"r2t_first_ns": start + 16 * MS + lateness_ns, "r2t_count": count, "immediate_bytes": immediate}
    story.task(*parts, (path, 16 * MS), operation="write", bytes=65_536 * count, **columns)


def writes(tasks: int, rounds: int, **options: Any) -> Story:
    story = Story()
    for _ in range(tasks):
        write_in_rounds(story, rounds, **options)
    return story


def test_rounds_of_r2ts() -> None:
    story = writes(4, 4, immediate=1)
    story.add("parameters", session=0, key="MaxBurstLength", effective_target="65536", source="negotiated")
    found = story.found("r2t_rounds")
    assert found
    # three further R2Ts of 16 ms in each write of 5 * 16 + 4 * 4 ms
    assert found.share == pytest.approx(3 * 16 / 96)
    assert found.text == (
        "a 256 KiB write needs 4 R2Ts, one after another, for bursts of 64 KiB (MaxBurstLength=65536)"
    )
    assert found.frames == (1_000, 1_001, 1_002, 1_003, 3_000, 3_001, 3_002, 3_003)
    assert "MaxBurstLength" in " ".join(found.advice)


def test_one_r2t_a_write_is_no_round_and_seven_are_no_habit() -> None:
    assert writes(20, 1, immediate=1).found("r2t_rounds") is None
    # 7 further R2Ts, then 8
    assert writes(7, 2, immediate=1).found("r2t_rounds") is None
    assert writes(8, 2, immediate=1).found("r2t_rounds")


def test_r2ts_that_come_together_cost_nothing() -> None:
    story = writes(8, 4, immediate=1)
    for row in story.rows["rounds"]:
        row["r2t_ns"] -= 20 * MS * row["r2t_sn"]
    assert story.found("r2t_rounds") is None


def test_r2t_late_is_what_the_path_does_not_explain() -> None:
    assert writes(10, 1, lateness_ns=1 * MS, immediate=1).found("r2t_late") is None
    found = writes(10, 1, lateness_ns=4 * MS, immediate=1).found("r2t_late")
    assert found
    assert found.share == pytest.approx(4 / 40)
    assert "10 of 10 R2Ts were late: median 4.0 ms beyond the RTT, at most 4.0 ms" in found.text
    assert 1_000 in found.frames
    assert writes(7, 1, lateness_ns=4 * MS).found("r2t_late") is None


def test_data_that_could_have_gone_unasked() -> None:
    found = writes(10, 1).found("unsolicited_data_unused")
    assert found
    assert found.share == pytest.approx(16 / 36)
    assert found.text == "10 of 10 writes sent no data before the first R2T"
    assert {11, 1_000, 2_000} <= set(found.frames)
    assert writes(10, 1, immediate=8_192).found("unsolicited_data_unused") is None
    # most writes send data at once
    story = writes(9, 1)
    for _ in range(11):
        write_in_rounds(story, 1, immediate=8_192)
    assert story.found("unsolicited_data_unused") is None


def test_r2ts_that_cost_no_idle_time_are_no_problem() -> None:
    """With other tasks at work the line is not idle meanwhile: the budget has transfers there."""
    assert names(writes(10, 4, path="transfer")) == set()


# --- held back


@pytest.mark.parametrize(
    ("apart", "text"), [(True, "the status of 10 reads waited"), (False, "10 commands waited while TCP held data back")]
)
def test_what_waits_for_an_ack(apart: bool, text: str) -> None:
    name = "held_for_ack"
    transfer, wait = near(0.06)
    columns = {"is_status_in_data": not apart, "data_last_frame": 7}
    story = Story(rtt_to_target_ns=0).tasks(10, transfer, ("ack_wait", wait), **columns)
    assert names(story) == {name}
    found = story.found(name)
    assert found
    assert found.share == pytest.approx(0.06)
    assert found.text.startswith(text)
    assert (7 in found.frames) == apart
    transfer, wait = near(0.04)
    assert names(Story().tasks(10, transfer, ("ack_wait", wait), **columns)) == set()
    transfer, wait = near(0.4)
    assert names(Story().tasks(7, transfer, ("ack_wait", wait), **columns)) == set()


# --- TCP

SENDER = {
    "to_target": False,
    "rwnd_min_bytes": 65_536,
    "rwnd_max_bytes": 65_536,
    "window_full_ns": 500 * MS,
    "segment_bytes": 1_448,
    "line_bytes_per_s": 40_000_000,
}


def held(part: str, share: float = 0.3) -> Story:
    transfer, wait = near(share)
    return Story().tasks(10, transfer, (part, wait))


def test_a_receive_window_smaller_than_the_path() -> None:
    found = held("receive_window").add("senders", **SENDER).found("receive_window_small")
    assert found
    assert found.share == pytest.approx(0.3)
    assert "the initiator's receive window" in found.text
    assert "at most 64 KiB; the bandwidth-delay product is 625 KiB (40.0 MB/s x 16.0 ms)" in found.text
    assert names(held("receive_window", 0.04).add("senders", **SENDER)) == set()


def test_a_window_that_closes_is_another_problem() -> None:
    assert names(held("receive_window").add("senders", **SENDER | {"rwnd_min_bytes": 1_447})) == {"receiver_stalled"}
    assert names(held("receive_window").add("senders", **SENDER | {"rwnd_min_bytes": 1_448})) == {
        "receive_window_small"
    }
    # without the scale nobody knows how large it was
    unscaled = SENDER | {"rwnd_min_bytes": 501, "is_window_scale_inferred": True}
    found = held("receive_window").add("senders", **unscaled).found("receive_window_small")
    assert found
    assert "the window scale was not captured, so it may be larger" in found.text


def test_the_window_is_that_of_the_data_that_waited() -> None:
    other = SENDER | {"to_target": True, "rwnd_min_bytes": 0, "rwnd_max_bytes": 1_000, "window_full_ns": SECOND}
    assert names(held("receive_window").add("senders", **other).add("senders", **SENDER)) == {"receive_window_small"}
    transfer, wait = near(0.3)
    story = Story().tasks(10, transfer, ("receive_window", wait), operation="write")
    assert names(story.add("senders", **other).add("senders", **SENDER)) == {"receiver_stalled"}


def test_a_congestion_window_that_is_small_or_made_small_by_pauses() -> None:
    story = held("congestion_window").add("senders", **SENDER, restart_after_idle_count=3)
    assert names(story) == {"congestion_window_small"}
    story = held("congestion_window").add("senders", **SENDER, restart_after_idle_count=4)
    assert names(story) == {"restart_after_idle"}
    found = story.found("restart_after_idle")
    assert found
    assert found.text == "the target's TCP went back to slow start 4 times after idle periods"
    assert "net.ipv4.tcp_slow_start_after_idle" in " ".join(found.advice)
    assert names(held("congestion_window", 0.04).add("senders", **SENDER, restart_after_idle_count=9)) == set()


def test_losses_and_how_long_they_took() -> None:
    def story(share: float) -> Story:
        made = held("loss_recovery", share)
        for number, cause in enumerate(("fast", "timeout", "fast")):
            start = 1_000 * SECOND + number * 100 * MS
            repair = {"time_first_ns": start, "time_last_ns": start + (number + 1) * 10 * MS}
            frames = {"frame_first": 100 + number, "frame_last": 200 + number}
            made.add("recoveries", to_target=False, cause=cause, retransmitted_packets=2, **repair, **frames)
        return made

    found = story(0.012).found("loss")
    assert found
    assert "3 losses (6 retransmissions, 0.6 % of all packets)" in found.text
    assert "at most 30.0 ms at a time; 1 retransmission timeout" in found.text
    assert found.frames == (100, 101, 102, 200, 201, 202)
    assert names(story(0.009)) == set()


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


def test_think_time_is_no_pause_of_the_job() -> None:
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


def test_one_digest_error_is_enough() -> None:
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


def test_aborts_and_what_they_were_about() -> None:
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
    """Forty commands, as many outstanding as both let, each answered after 8 ms; a status makes room for one more."""
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


def test_a_command_window_that_is_closed() -> None:
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
    """The findings of a session whose connections each move (tasks, nanoseconds of a task)."""
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


def test_sessions_are_used_together_by_their_names_or_because_they_are_alike() -> None:
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


def test_waiting_for_a_mirror_explains_think_time_that_is_mostly_that() -> None:
    """tests/analysis/test_mirrors.py has what leads to the finding itself."""
    think = Finding(PROBLEMS["initiator_think_time"], "warning", 0.6, "", ())
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "warning", 0.3, "", ())
    assert think.is_explained_by(waits)
    assert not think.is_explained_by(replace(waits, share=0.29))
    assert not think.is_explained_by(think)
    # it is no other problem's cause
    assert not replace(think, problem=PROBLEMS["slow_target"]).is_explained_by(waits)


# --- captures that do not tell


def test_a_poor_capture() -> None:
    transfer, wait = near(0.05)
    assert names(Story().tasks(10, transfer, ("unknown", wait))) == {"capture_poor"}
    transfer, wait = near(0.049)
    assert names(Story().tasks(10, transfer, ("unknown", wait))) == set()
    for column, poor in (("explained_bytes_to_initiator", 979_999), ("missing_pdu_count_to_initiator", 21)):
        story = Story().tasks(10, transfer)
        story.connection[column] = poor
        assert names(story) == {"capture_poor"}
        story.connection[column] = 980_000 if poor > 100 else 20
        assert names(story) == set()
    assert names(Story(rtt_to_initiator_ns=None).tasks(10, transfer)) == {"capture_poor"}


def test_a_poor_capture_gets_no_verdict_where_it_matters() -> None:
    story = Story().tasks(10, ("propagation", 16 * MS), ("unknown", 17 * MS))
    assert story.opinion().verdict == (
        "Session 0: limiter unknown, the capture is too poor: 52 % of the time cannot be attributed."
    )
    story = Story().tasks(10, ("propagation", 17 * MS), ("unknown", 16 * MS))
    assert story.opinion().verdict.startswith("Session 0 is latency-bound: 52 % of the time is network RTT (16.0 ms).")
    story = Story(rtt_to_target_ns=None).tasks(10, ("target_service", 17 * MS))
    assert story.opinion().verdict == (
        "Session 0: limiter unknown, the capture is too poor: the RTT to one side or both was not measured."
    )


# --- verdicts


def test_the_sentence_of_the_classic() -> None:
    opinion = Story().tasks(10, ("propagation", 16 * MS), ("transfer", 4_500_000)).opinion()
    assert opinion.verdict == (
        "Session 0 is latency-bound: 78 % of the time is network RTT (16.0 ms). "
        "It issues one 128 KiB read at a time (queue depth 1)."
    )
    assert (opinion.limiter, opinion.idle_fraction) == ("propagation", pytest.approx(160 / 205))
    assert opinion.budget == dict.fromkeys(opinion.budget or {}, 0) | {
        "transfer": 45 * MS,
        "propagation": 160 * MS,
    }


LIMITERS = [
    ("target_service", "target-bound", "target service time. Every command in flight was stalled for 600.0 ms"),
    ("initiator_service", "initiator-bound", "initiator service time, from R2T to first Data-Out. The initiator"),
    ("ack_wait", "ACK-limited", "data that TCP holds back until an ACK arrives. 10 commands waited"),
    ("receive_window", "receive-window-limited", "waiting for the receive window to open. The initiator's receive"),
    (
        "congestion_window",
        "cwnd-limited",
        "waiting for the congestion window to open. The sender is the target, with 0 losses",
    ),
    ("loss_recovery", "loss-limited", "recovery from packet loss. 0 losses"),
]


@pytest.mark.parametrize(("part", "limited", "words"), LIMITERS)
def test_every_limiter_has_its_sentence(part: str, limited: str, words: str) -> None:
    verdict = Story().tasks(10, (part, 60 * MS), ("transfer", 40 * MS)).add("senders", **SENDER).opinion().verdict
    assert verdict.startswith(f"Session 0 is {limited}: 60 % of the time is {words}")


def test_an_idle_initiator_has_its_sentence() -> None:
    story = Story()
    for _ in range(10):
        story.task(("transfer", 40 * MS)).pause(60 * MS)
    story.task(("transfer", MS))
    assert story.opinion().verdict == (
        "Session 0 is initiator-bound: 60 % of the time is initiator think time, with no commands in flight. "
        "The initiator was idle 10 times within its I/O (no commands in flight), median 60.0 ms."
    )


def test_commands_that_move_no_data_are_named_as_the_cause() -> None:
    story = Story().tasks(8, ("transfer", 1 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    assert story.opinion().verdict == (
        "Session 0 is latency-bound: 99 % of the time is network RTT (16.0 ms). "
        "Most of it is 40 non-I/O commands (INQUIRY, TEST UNIT READY, ...)."
    )


def test_every_wait_has_its_sentence_here() -> None:
    tested = {part for part, _, _ in LIMITERS} | {"propagation", "initiator_think"}
    # with time that is unknown a capture is too poor for a headline
    assert tested == set(WAITS) - {"unknown"}


def test_rounds_are_named_rather_than_the_queue() -> None:
    assert "A 256 KiB write needs 4 R2Ts, one after another" in writes(10, 4, immediate=1).opinion().verdict


def test_pauses_between_jobs_are_left_out_and_said() -> None:
    story = Story()
    for pause_ns in (5 * MS, 5 * MS, 10 * SECOND, 5 * MS, 5 * MS, 0):
        story.tasks(2, ("propagation", 15 * MS), ("transfer", 5 * MS)).pause(pause_ns)
    opinion = story.opinion()
    assert opinion.verdict == (
        "Session 0 is latency-bound: 69 % of the time is network RTT (16.0 ms). It issues one 128 KiB read at a time "
        "(queue depth 1). Idle gaps between bursts of I/O (10.0 s in all) are excluded."
    )
    assert opinion.limiter == "propagation"


def test_a_line_that_is_full() -> None:
    story = Story().tasks(10, ("transfer", 95 * MS), ("propagation", 5 * MS)).add("senders", **SENDER)
    assert story.opinion().verdict == (
        "Session 0 is line-bound: 95 % of the time is data transfer (line rate 40.0 MB/s)."
    )
    story = Story().tasks(10, ("transfer", 60 * MS), ("propagation", 40 * MS))
    assert story.opinion().verdict.endswith(
        "It is also latency-bound: 40 % of the time is network RTT (16.0 ms). "
        "It issues one 128 KiB read at a time (queue depth 1)."
    )


def test_few_tasks_are_said_to_be_few() -> None:
    verdict = Story().tasks(3, ("propagation", 16 * MS)).opinion().verdict
    assert verdict == (
        "Session 0 is latency-bound: 100 % of the time is network RTT (16.0 ms). "
        "Only 3 commands moved data: too few to be sure."
    )


def test_a_session_without_tasks() -> None:
    opinion = Story().opinion()
    assert opinion.verdict == "Session 0 carried no SCSI commands: there is no time to break down."
    assert (opinion.budget, opinion.idle_fraction, opinion.limiter, opinion.findings) == (None, None, None, [])
    story = Story()
    story.rows["cycles"].append({"cycle": 0, "session": 0, "connection": 3})
    assert story.opinion().verdict == "Session 0 has no command with a status: there is no time to break down."


# --- the parts


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12),
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from(("transfer", "propagation", "ack_wait"))), min_size=1, max_size=12
    ),
)
def test_claimed_time_is_what_counting_nanoseconds_gives(
    intervals: list[tuple[int, int]], stretches: list[tuple[int, str]]
) -> None:
    rows, moment, owners = [], 0, []
    for length, part in stretches:
        rows.append({"connection": 0, "time_first_ns": moment, "time_last_ns": moment + length, "part": part})
        owners += [part] * length
        moment += length
    subject = Session(0, [], {"budget": table("budget", *rows)}, None, is_session=False)
    starts, ends = (np.array([each[side] for each in intervals], dtype=np.int64) for side in (0, 1))
    expected = sum(
        owner != "transfer" and any(first <= moment < last for first, last in intervals)
        for moment, owner in enumerate(owners)
    )
    assert subject.claimed_ns(starts, ends, "propagation", "ack_wait") == expected


def test_failures_come_first_then_what_costs_most() -> None:
    found = [Finding(PROBLEMS["loss"], "info", 0.1, "", ()), Finding(PROBLEMS["slow_target"], "info", 0.4, "", ())]
    found.append(Finding(PROBLEMS["task_aborts"], "error", None, "", ()))
    assert [each.name for each in by_weight(found)] == ["task_aborts", "slow_target", "loss"]
    assert shown([5, None, 3, 5, *range(20, 40)]) == (3, 5, *range(20, 29))


def test_amounts_in_words() -> None:
    assert [wording.size(each) for each in (512, 130_560, 131_072, 500_000, 1 << 20)] == [
        *("512 bytes", "127.5 KiB", "128 KiB", "500000 bytes", "1 MiB"),
    ]
    assert [wording.time(each) for each in (999, 1_500, 8 * MS, 2_100 * MS)] == ["999 ns", "2 µs", "8.0 ms", "2.1 s"]
    assert [wording.percent(each) for each in (0.784, 0.0042, 1.0)] == ["78 %", "0.42 %", "100 %"]


def test_every_problem_has_all_that_a_person_needs() -> None:
    assert len(PROBLEMS) == 21
    for name, problem in PROBLEMS.items():
        assert problem.name == name
        assert re.fullmatch(r"[a-z0-9_]+", name)
        advice = [each.text for each in problem.advice]
        for text in (problem.meaning, problem.condition, problem.evidence, *advice):
            assert re.fullmatch(r"([A-Z0-9`/]|node\.).*\.", text), text
        assert len(advice) >= 2
    assert set(NEEDED) < {*TABLES, "write_starts", "retransmissions"}


def test_every_problem_is_tested_here() -> None:
    source = Path(__file__).read_text()
    assert [name for name in PROBLEMS if f'"{name}"' not in source] == []


def test_a_finding_as_json() -> None:
    found = Story().tasks(8, ("propagation", 16 * MS)).found("queue_depth_low")
    assert found
    document = json.loads(json.dumps(found.as_dict()))
    assert list(document) == [
        "name",
        "severity",
        "share",
        "text",
        "frames",
        "display_filter",
        "advice",
        "gain",
        "gains",
    ]
    assert document["gain"] == document["gains"][0]
    # the path is all that a task waits for: eight at once carry eight times as much
    assert (document["gain"]["change"], document["gain"]["throughput_factor"]) == ("queue depth 8", 8)
    assert document["advice"] == " ".join(advice.text for advice in PROBLEMS["queue_depth_low"].advice)


def test_sessions_do_not_see_each_others_rows() -> None:
    first, second = Story().tasks(8, ("propagation", 16 * MS)), Story().tasks(8, ("transfer", 16 * MS))
    rows = first.rows
    for name, others in second.rows.items():
        for other in others:
            moved = other | {key: 1 for key in ("session",) if key in other}
            moved |= (
                {"connection": 5 if other["connection"] == 3 else other["connection"]} if "connection" in other else {}
            )
            moved |= {"cycle": other["cycle"] + 8} if other.get("cycle") is not None else {}
            rows[name].append(moved)
    rows["cycles"].sort(key=lambda row: row["cycle"])
    diagnosis = examine(first.source())
    assert [finding.name for finding in diagnosis.sessions[0].findings] == ["queue_depth_low", "block_size_small"]
    assert diagnosis.sessions[1].findings == []
    assert set(diagnosis.connections) == {3, 5}
    assert diagnosis.budget["transfer"] == diagnosis.budget["propagation"] == 128 * MS
    assert diagnosis.found == {"queue_depth_low", "block_size_small"}
