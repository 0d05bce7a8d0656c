"""Both sides of the thresholds of the diagnosis, with the numbers of docs/diagnosis.md.

This file has the thresholds that the test files of the families do not test on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest

from iscsitrace.findings.concurrency import deeper
from iscsitrace.fit import gain
from iscsitrace.measure import system_calls
from iscsitrace.measure.grouping import Grouping
from iscsitrace.measure.system_calls import SystemCall
from tests.support.story import SECOND, Story
from tests.support.tables_by_hand import MS, table

BLOCK = 131_072
KIB = 1024


def has(story: Story, name: str) -> bool:
    return story.found(name) is not None


# --- costs


def test_losses_are_reported_from_one_percent_of_the_time_on() -> None:
    def story(repair_ns: int) -> Story:
        return Story().tasks(10, ("transfer", 100 * MS - repair_ns), ("loss_recovery", repair_ns))

    assert not has(story(MS - 1), "loss")
    assert has(story(MS), "loss")


@pytest.mark.parametrize(("wait_ms", "kind"), [(19.9, "healthy"), (20, "problem")])
def test_beside_transfer_a_fifth_of_the_time_is_a_problem(wait_ms: float, kind: str) -> None:
    wait_ns = round(wait_ms * MS)
    opinion = Story().tasks(10, ("transfer", 100 * MS - wait_ns), ("target_service", wait_ns)).opinion()
    assert opinion.limiter == "transfer"
    assert opinion.headline.kind == kind


@pytest.mark.parametrize(("transfer_ms", "is_limited"), [(50, True), (50.1, False)])
def test_transfer_is_the_largest_part_from_half_of_the_busy_time_on(transfer_ms: float, is_limited: bool) -> None:
    """An idle gap of ten seconds is not part of the busy time."""
    transfer_ns = round(transfer_ms * MS)
    parts = (("transfer", transfer_ns), ("propagation", 100 * MS - transfer_ns))
    verdict = Story().tasks(10, *parts).pause(10 * SECOND).tasks(10, *parts).opinion().headline.text
    assert verdict.startswith("Session 0 is limited by network latency. ") == is_limited
    healthy = "Session 0 is healthy. The largest part of the I/O time is data transfer (50 %)."
    assert (verdict == healthy) != is_limited


# --- eight commands are enough


def late_r2ts(tasks: int, late_ns: int) -> Story:
    """Writes with one R2T each at an RTT of 2 ms; the R2T is late by this time."""
    story = Story(rtt_to_target_ns=2 * MS)
    for number in range(tasks):
        granted = story.now + 2 * MS + late_ns
        data = {"data_first_ns": granted, "data_last_ns": granted + MS}
        story.rows["rounds"].append({"cycle": number, "r2t_sn": 0, "r2t_ns": granted} | data)
        parts = (("propagation", 2 * MS), ("target_service", late_ns), ("transfer", MS))
        story.task(*parts, operation="write", r2t_first_ns=granted, immediate_bytes=1)
    return story


def writes_that_wait_for_r2ts(tasks: int, others: int = 0) -> Story:
    """Writes that send no data before their R2T, and others that send all data with the command."""
    story = Story()
    for number in range(tasks):
        granted = story.now + 16 * MS
        data = {"data_first_ns": granted, "data_last_ns": granted + 4 * MS}
        story.rows["rounds"].append({"cycle": number, "r2t_sn": 0, "r2t_ns": granted} | data)
        story.task(("propagation", 16 * MS), ("transfer", 4 * MS), operation="write", r2t_first_ns=granted)
    return story.tasks(others, ("transfer", 4 * MS), operation="write", immediate_bytes=BLOCK)


def think(pauses: int) -> Story:
    story = Story()
    for _ in range(pauses):
        story.task(("transfer", 10 * MS)).pause(90 * MS)
    return story.task(("transfer", 10 * MS))


HABITS: dict[str, Callable[[int], Story]] = {
    "queue_depth_low": lambda count: Story().tasks(count, ("propagation", 16 * MS)),
    "held_for_ack": lambda count: Story().tasks(count, ("transfer", MS), ("ack_wait", MS)),
    "slow_target": lambda count: Story().tasks(count, ("transfer", MS), ("target_service", MS)),
    "initiator_think_time": think,
    "r2t_late": lambda count: late_r2ts(count, 2 * MS),
    "unsolicited_data_unused": writes_that_wait_for_r2ts,
}


@pytest.mark.parametrize("name", HABITS)
def test_eight_commands_are_enough_and_seven_are_not(name: str) -> None:
    assert not has(HABITS[name](7), name)
    assert has(HABITS[name](8), name)


def test_commands_that_do_not_wait_do_not_count() -> None:
    for name, part in (("held_for_ack", "ack_wait"), ("slow_target", "target_service")):
        story = Story().tasks(7, ("transfer", MS), (part, MS)).tasks(20, ("transfer", MS))
        assert not has(story, name)


def test_a_headline_on_seven_commands_is_marked_uncertain() -> None:
    few = Story().tasks(7, ("propagation", 16 * MS)).opinion().headline.text
    assert few.startswith("Session 0: only 7 commands moved data, too few for a verdict. ")
    assert "too few" not in Story().tasks(8, ("propagation", 16 * MS)).opinion().headline.text


# --- blocks


def scattered(count: int, continued: int) -> Story:
    """Reads of 128 KiB, of which this many begin where the previous one ended."""
    story = Story()
    for number in range(count):
        away = {} if 0 < number <= continued else {"lba": 10_000_000 + number * 7_919}
        story.task(("propagation", 16 * MS), ("transfer", MS), **away)
    return story


def test_blocks_are_small_if_half_of_them_are_sequential() -> None:
    assert has(scattered(16, 8), "block_size_small")
    assert not has(scattered(16, 7), "block_size_small")


def test_a_mebibyte_is_no_small_block() -> None:
    def story(size: int) -> Story:
        return Story().tasks(16, ("propagation", 16 * MS), ("transfer", MS), bytes=size)

    assert not has(story(KIB * KIB), "block_size_small")
    assert has(story(KIB * KIB - 512), "block_size_small")


# --- system calls


def call_of(sizes: Sequence[int], *, apart: Sequence[int] = (), depths: Sequence[int] = ()) -> SystemCall | None:
    """The system call inferred from sequential commands; those with an index in ``apart`` begin elsewhere."""
    rows, lba = [], 0
    for place, size in enumerate(sizes):
        lba += 1_000_000 if place in apart else 0
        depth = depths[place] if depths else 1
        row = {"cycle": place, "operation": "read", "lba": lba, "block_count": size // 512, "bytes": size}
        rows.append(row | {"data_bytes": size, "queue_depth": depth, "session": 0, "lun": 0})
        lba += size // 512
    return system_calls.infer(table("cycles", *rows))


FULL, REST = 64 * KIB, 16 * KIB


def test_four_calls_of_one_size_are_enough_and_three_are_not() -> None:
    # eight tasks both times: four calls of two, or three and two tasks on their own
    found = call_of([FULL, REST] * 4)
    assert found
    assert (found.bytes, found.pieces, found.count) == (80 * KIB, (FULL, REST), 4)
    assert call_of([FULL, REST] * 3) is None
    assert call_of([FULL, REST] * 3 + [REST, REST]) is None


def test_four_of_five_calls_have_to_be_of_one_size() -> None:
    one, others = [FULL, FULL, REST], [FULL, FULL, 2 * REST, FULL, FULL, 3 * REST]
    found = call_of(one * 8 + others)
    assert found
    assert (found.bytes, found.count) == (144 * KIB, 8)
    # seven of nine
    assert call_of(one * 7 + others) is None


def test_a_quarter_of_the_commands_have_to_be_full_pieces() -> None:
    """Eight of 32, beside larger commands of another program; a smaller size is no size that a kernel splits to."""

    def beside(larger: int) -> SystemCall | None:
        return call_of([FULL, REST] * 8 + [2 * FULL + 512 * place for place in range(larger)], apart=[16])

    found = beside(16)
    assert found
    assert (found.bytes, found.count) == (80 * KIB, 8)
    assert beside(17) is None


def test_a_system_call_has_64_mib_at_most() -> None:
    piece = 1 << 20
    found = call_of([piece] * 64 * 4, depths=[*range(1, 65)] * 4)
    assert found
    assert (found.bytes, found.is_at_once) == (64 << 20, True)
    longer = [*[piece] * 64, 512]
    assert call_of(longer * 4, depths=[*range(1, 66)] * 4) is None


# --- writes


def test_an_r2t_is_late_from_one_millisecond_beyond_the_rtt_on() -> None:
    assert not has(late_r2ts(10, MS), "r2t_late")
    assert has(late_r2ts(10, MS + 1), "r2t_late")


def test_half_of_the_writes_have_to_wait_for_r2ts() -> None:
    assert has(writes_that_wait_for_r2ts(10, 10), "unsolicited_data_unused")
    assert not has(writes_that_wait_for_r2ts(10, 11), "unsolicited_data_unused")


# --- the command window


def commands(count: int, waiting: int, *, opened_before_ns: int = 10_000) -> Story:
    """One command at a time, 8 ms each. This many had a closed window until this long before them; then it is open."""
    story = Story(rtt_to_target_ns=8 * MS)
    at = story.now
    for number in range(count):
        # the command window of the login, for the first two commands, is not in the tables
        room = number + 1 if number < waiting else number + 101
        story.rows["cycles"].append(
            {"cycle": number, "session": 0, "connection": 3, "operation": "read", "queue_depth": 1}
            | {"command_first_ns": at, "status_ns": at + 8 * MS, "cmd_sn": 7 + number, "max_cmd_sn": 7 + room}
        )
        at += 8 * MS + opened_before_ns
    return story


def waits(story: Story) -> str:
    found = story.found("command_window_closed")
    return found.text.partition(" commands")[0] if found else ""


def test_one_command_in_ten_and_eight_at_least_wait_for_the_window() -> None:
    assert waits(commands(120, 12)) == "12 of 120"
    assert waits(commands(120, 11)) == ""
    assert waits(commands(40, 8)) == "8 of 40"
    assert waits(commands(40, 7)) == ""


def test_a_command_waited_if_the_window_opened_less_than_a_millisecond_before() -> None:
    assert waits(commands(40, 20, opened_before_ns=MS - 1)) == "20 of 40"
    assert waits(commands(40, 20, opened_before_ns=MS)) == ""


# --- the model


@pytest.mark.parametrize("way", ["slower", "faster"])
def test_a_model_that_is_a_quarter_off_predicts_no_gain(way: str) -> None:
    """The RTT is 16 ms; the time that a read really takes is not known to the model."""

    def gains(period_ns: int) -> int:
        found = Story().tasks(20, ("propagation", period_ns)).found("block_size_small")
        assert found
        return len(found.gains)

    # 16 * 1.25 = 20, and 16 / 1.25 = 12.8
    near, far = {"slower": (19_900_000, 20_100_000), "faster": (12_900_000, 12_700_000)}[way]
    assert gains(near)
    assert not gains(far)


def test_a_shorter_real_rtt_increases_the_gain() -> None:
    found = Story().tasks(20, ("propagation", 14 * MS), ("target_service", 14 * MS)).found("slow_target")
    assert found
    gain = {each.change: each for each in found.gains}["zero target service time"]
    # by the model 16 ms are left of 30; in fact at most 14 of 28
    assert gain.throughput_factor == gain.low == pytest.approx(30 / 16)
    assert 30 / 16 < gain.high <= 28 / 14


def on_a_line(transfer_ms: float) -> Story:
    """Two reads at a time at an RTT of 16 ms, each this long on the line."""
    story, transfer_ns = Story(), round(transfer_ms * MS)
    # a block goes in one PDU, with a header
    line = {"to_target": False, "line_bytes_per_s": round((BLOCK + 48) * 1e9 / transfer_ns), "segment_bytes": 1_448}
    story.add("senders", rwnd_min_bytes=1 << 24, rwnd_max_bytes=1 << 24, **line)
    parts = (("propagation", (16 * MS - transfer_ns) // 2), ("transfer", transfer_ns))
    return story.kept_filled(200, 2, *parts, data_pdu_bytes_max=BLOCK)


@pytest.mark.parametrize(("more", "depths"), [(1.03, [8, 32]), (1.01, [8])])
def test_a_further_step_is_shown_if_it_gains_two_percent(more: float, depths: list[int]) -> None:
    """The line can carry `more` times the throughput of eight commands in flight: 16 + t = 8 * more * t."""
    asked = gain.of_session(Grouping(on_a_line(16 / (8 * more - 1)).source()).sessions[0])
    assert asked is not None
    steps = islice(deeper(asked.measured.situation), 2)
    assert [each.change for each in asked.gains(steps)] == [f"queue depth {depth}" for depth in depths]


def test_the_line_rate_is_known_within_two_percent() -> None:
    """Eight at once fill a line of 4 ms per block; of two there is one each 10 ms."""
    found = on_a_line(4).found("queue_depth_low")
    assert found
    first = found.gains[0]
    assert first.throughput_factor == pytest.approx(10 / 4, rel=1e-6)
    # of 20 ms 16 are no transfer, which a slower line does not make longer
    assert first.low == pytest.approx(1 / 2 + 2 * 0.98, rel=0.006)
    # a faster line takes nothing away but the time in which nothing was on it
    assert first.high == pytest.approx(10 / 4, rel=0.006)


def test_a_session_that_reads_and_writes_has_no_gains() -> None:
    story = Story().tasks(10, ("propagation", 16 * MS))
    found = story.tasks(10, ("propagation", 16 * MS), operation="write").found("block_size_small")
    assert found
    assert found.gains == ()


@pytest.mark.parametrize(
    ("reads", "writes", "word"), [(18, 2, "read"), (17, 3, "command"), (3, 17, "command"), (2, 19, "write")]
)
def test_a_session_reads_or_writes_if_nine_tenths_of_the_bytes_do(reads: int, writes: int, word: str) -> None:
    wait = ("propagation", 16 * MS)
    found = Story().tasks(reads, wait).tasks(writes, wait, operation="write").found("queue_depth_low")
    assert found
    assert found.text.startswith(f"The initiator issues one 128 KiB {word} at a time")


# --- frames


def test_a_finding_shows_three_commands_with_four_frames_each() -> None:
    story = Story()
    for number in range(10):
        frames: dict[str, Any] = {"data_first_frame": 1_000 + number, "data_last_frame": 2_000 + number}
        story.task(("propagation", (20 - number) * MS), ("transfer", MS), **frames)
    found = story.found("queue_depth_low")
    assert found
    assert len(found.frames) == 12
    assert {1_000, 1_001, 1_002, 2_000, 2_001, 2_002} < set(found.frames)
