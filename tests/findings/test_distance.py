"""Latency on stories: too few commands in flight, small I/O, and system calls that are split."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.findings import distance
from iscsitrace.measure import system_calls
from iscsitrace.tables.table import Table
from tests.support.story import SECOND, Story, names, near
from tests.support.tables_by_hand import MS, table

# --- latency


def test_queue_depth_1_over_distance() -> None:
    story = Story().tasks(8, ("propagation", 16 * MS), ("transfer", 4 * MS))
    found = story.found("queue_depth_low")
    assert found
    assert (found.rank, found.severity, found.share) == ("limit", "info", pytest.approx(0.8))
    assert found.text == (
        "The initiator issues one 128 KiB read at a time, and waits for the network. A round trip takes at "
        "least 16.0 ms."
    )
    # the first three tasks, each with its command and its status
    assert found.frames == (11, 13, 14, 16, 17, 19)
    assert found.display_filter == "frame.number in {11, 13, 14, 16, 17, 19}"
    assert "node.session.queue_depth" in " ".join(found.advice)


@pytest.mark.parametrize(("share", "leads"), [(0.049, None), (0.05, False), (0.33, False), (0.34, True)])
def test_a_cost_below_the_threshold_is_no_finding(share: float, leads: bool | None) -> None:
    transfer, wait = near(share)
    found = Story().tasks(10, ("propagation", wait), transfer).found("queue_depth_low")
    assert (found.leads if found else None) == leads


def test_seven_commands_are_too_few() -> None:
    assert Story().tasks(7, ("propagation", 16 * MS)).found("queue_depth_low") is None
    assert Story().tasks(8, ("propagation", 16 * MS)).found("queue_depth_low")


def test_waits_of_non_io_commands_are_not_due_to_the_queue_depth() -> None:
    """A device scan issues dozens of INQUIRYs, one at a time: it is no busy time, and no queue depth changes it."""
    story = Story().tasks(8, ("propagation", 1 * MS), ("transfer", 30 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    assert story.found("queue_depth_low") is None
    story = Story().tasks(8, ("propagation", 16 * MS), ("transfer", 30 * MS))
    found = story.tasks(4, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36).found(
        "queue_depth_low"
    )
    assert found
    assert found.share == pytest.approx(8 * 16 / (8 * 46))


def test_a_pause_does_not_hide_a_problem() -> None:
    story = Story()
    for _ in range(10):
        story.task(("propagation", 16 * MS)).pause(MS)
    story.pause(60 * SECOND).tasks(5, ("propagation", 16 * MS))
    found = story.found("queue_depth_low")
    assert found
    # the tenth pause is part of the long one
    assert (found.leads, found.share) == (True, pytest.approx(240 / 249))
    assert story.opinion().jobs_ns == 249 * MS


def test_the_turnaround_counts_before_a_read_but_not_before_an_inquiry() -> None:
    """At a tap near the target the RTT lies between a status and the next command."""
    reads = Story(rtt_to_target_ns=0, rtt_to_initiator_ns=16 * MS)
    inquiries = Story(rtt_to_target_ns=0, rtt_to_initiator_ns=16 * MS)
    for _ in range(10):
        reads.pause(16 * MS, "propagation").task(("transfer", 16 * MS))
        inquiries.task(("transfer", 16 * MS)).pause(16 * MS, "propagation").task(
            ("transfer", 1 * MS), operation="inquiry"
        )
    assert reads.found("queue_depth_low")
    assert inquiries.found("queue_depth_low") is None


def test_small_blocks_take_less_time_on_the_line_than_the_rtt() -> None:
    sender = {"to_target": False, "line_bytes_per_s": 131_072 * 1_000 // 16}

    def found(**columns: Any) -> bool:
        story = Story().tasks(16, ("propagation", 16 * MS), ("transfer", 1 * MS), **columns)
        return "block_size_small" in names(story.add("senders", **sender))

    # 128 KiB take 16 ms on this line: equal to the RTT
    assert not found(bytes=131_072)
    assert found(bytes=130_560)
    assert not found(bytes=130_560, queue_depth=2)


def test_random_blocks_are_not_called_small() -> None:
    story = Story()
    for number in range(16):
        story.task(("propagation", 16 * MS), bytes=4_096, lba=(number * 7919) % 1_000 * 64)
    assert names(story) == {"queue_depth_low"}
    assert names(Story().tasks(16, ("propagation", 16 * MS), bytes=4_096)) == {"queue_depth_low", "block_size_small"}


def test_several_commands_in_flight_are_described_as_such() -> None:
    story = Story().tasks(16, ("propagation", 16 * MS), operation="write", queue_depth=4)
    found = story.found("queue_depth_low")
    assert found
    assert found.text == (
        "The initiator keeps 4 writes of 128 KiB in flight, and waits for the network. A round trip takes at "
        "least 16.0 ms."
    )


def test_a_finding_on_small_blocks_has_their_time_on_the_line_and_the_rtt() -> None:
    # 64 KiB take 1.6384 ms at 40 MB/s
    story = Story().tasks(12, ("propagation", 16 * MS), bytes=65_536).tasks(4, ("transfer", MS), bytes=65_536, lba=0)
    found = story.add("senders", to_target=False, line_bytes_per_s=40_000_000).found("block_size_small")
    assert found
    # of 16 eleven follow another, and each of the last four begins where none ended
    assert found.text == (
        "The I/O size of 64 KiB is small for this path: 1.6 ms of data, then a round trip of 16.0 ms. 69 % of the "
        "commands are sequential."
    )


@pytest.mark.parametrize(
    ("lbas", "shown"),
    [
        # three in a row, of which none but the first begins elsewhere
        ([900, 0, 8, 500, 100, 108, 116, 124], [4, 5, 6]),
        ([0, 8, 16, 900], [0, 1, 2]),
        ([0, 8, 900, 300, 308], [0, 1, 2]),
        ([0, 8], [0, 1]),
        ([0], [0]),
    ],
)
def test_three_commands_in_a_row_show_sequential_work(lbas: list[int], shown: list[int]) -> None:
    rows = [
        {"cycle": place, "lba": lba, "block_count": 8, "bytes": 4_096, "operation": "read", "is_read": True}
        for place, lba in enumerate(lbas)
    ]
    subject: Any = SimpleNamespace(transfers=table("cycles", *rows))
    assert distance._one_after_another(subject) == shown


def test_whole_system_calls_come_before_larger_blocks_in_the_gains() -> None:
    story = Story()
    for size in CUT * 5:
        story.task(("propagation", 16 * MS), bytes=size, data_bytes=size)
    found = story.found("block_size_small")
    assert found
    assert [gain.change for gain in found.gains] == ["500 KiB I/O", "256 KiB I/O", "1 MiB I/O"]


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


def test_a_shorter_last_call_changes_nothing() -> None:
    call = system_calls.infer(reads_of((*CUT * 5, 130_560, 4_096)))
    assert call
    assert (call.bytes, call.count) == (500 * KB, 5)


def test_calls_of_varying_size_are_not_reported() -> None:
    sizes = [size for rest in range(1, 12) for size in (130_560, 130_560, rest * 512)]
    assert system_calls.infer(reads_of(sizes)) is None


def test_sequential_whole_blocks_show_no_calls() -> None:
    assert system_calls.infer(reads_of([131_072] * 64)) is None


def test_full_pieces_sent_at_once() -> None:
    call = system_calls.infer(reads_of([131_072] * 32, [1, 2, 3, 4] * 8))
    assert call
    assert (call.bytes, call.pieces, call.count, call.is_at_once) == (512 * KB, (131_072,) * 4, 8, True)
    # a queue that is kept full has no calls in it
    assert system_calls.infer(reads_of([131_072] * 32, [1, 2, 3, *[4] * 29])) is None


def test_pieces_far_apart_are_not_one_call() -> None:
    apart = [reads_of(CUT, lba=place * 10_000_019) for place in range(5)]
    joined = [row for part in apart for row in part.rows([column.name for column in part.columns[:40]])]
    scattered = [row | {"lba": (place * 7919) % 100_003, "operation": "read"} for place, row in enumerate(joined)]
    kept = ("operation", "lba", "block_count", "bytes", "data_bytes", "queue_depth", "session", "lun")
    assert system_calls.infer(table("cycles", *({name: row[name] for name in kept} for row in scattered))) is None


def test_a_finding_reports_the_system_call_and_shows_one() -> None:
    story = Story()
    for size in CUT * 4:
        story.task(("propagation", 16 * MS), bytes=size)
    found = story.found("block_size_small")
    assert found
    assert (
        "The kernel seems to split system calls of 500 KiB into 4 commands (127.5 KiB + 127.5 KiB + 127.5 KiB + "
        "117.5 KiB), issued one after another." in found.text
    )
    # the first three of its tasks
    assert found.frames == (11, 12, 13, 14, 15, 16)
    assert "max_sectors_kb" in " ".join(found.advice)


def test_the_system_call_is_in_the_document_of_a_session() -> None:
    story = Story()
    for size in CUT * 5:
        story.task(("propagation", 16 * MS), bytes=size)
    call = {"bytes": 500 * KB, "pieces": list(CUT), "count": 5, "is_at_once": False}
    assert story.opinion().as_dict()["system_call"] == call
    assert Story().tasks(8, ("propagation", 16 * MS)).opinion().as_dict()["system_call"] is None


def test_the_kernel_is_not_blamed_where_it_splits_nothing() -> None:
    found = Story().tasks(16, ("propagation", 16 * MS)).found("block_size_small")
    assert found
    assert "max_sectors_kb" not in " ".join(found.advice)


@pytest.mark.parametrize(("rtt_ms", "rank", "kind"), [(4.999, "note", "healthy"), (5.0, "limit", "limited")])
def test_one_command_at_a_time_is_no_limit_on_a_short_path(rtt_ms: float, rank: str, kind: str) -> None:
    rtt_ns = round(rtt_ms * MS)
    story = Story(rtt_to_target_ns=rtt_ns).tasks(10, ("propagation", rtt_ns), ("transfer", MS))
    found = story.found("queue_depth_low")
    assert found
    assert (found.severity, found.rank) == ("info", rank)
    assert story.opinion().headline.kind == kind


@pytest.mark.parametrize(
    ("optimal", "maximum", "said"),
    [
        (1, None, "The target asks for it: its optimal transfer length is 1 block of 512 bytes (VPD page 0xb0)."),
        (8, 65_535, "its optimal transfer length is 8 blocks of 512 bytes"),
        (None, 8, "its maximum transfer length is 8 blocks of 512 bytes"),
        # it asks for more, or for nothing
        (2048, 65_535, None),
        (None, None, None),
    ],
)
def test_small_io_that_the_target_asks_for(optimal: int | None, maximum: int | None, said: str | None) -> None:
    story = Story().tasks(16, ("propagation", 16 * MS), bytes=4_096)
    limits = {"optimal_transfer_blocks": optimal, "maximum_transfer_blocks": maximum}
    story.rows["logical_units"].append({"session": 0, "lun": 0, "block_bytes": 512} | limits)
    found = story.found("block_size_small")
    assert found
    assert (said in found.text) if said else ("VPD page 0xb0" not in found.text)
    assert found.advice[0].startswith("Correct the block limits page") == bool(said)
