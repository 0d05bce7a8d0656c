"""Which commands make up a cycle of the model: one at a time, together, or in a queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.measure.spans import Commands, CycleSpans
from tests.support.tables_by_hand import table


def command(
    number: int, start: int | None, status: int | None, size: int | None = 512, **columns: Any
) -> dict[str, Any]:
    row = {"cycle": number, "operation": "read", "bytes": size, "command_first_ns": start, "status_ns": status}
    return row | columns


def commands(*rows: tuple[int | None, ...], answer_ns: float = 0) -> Commands:
    return Commands(table("cycles", *(command(number, *row) for number, row in enumerate(rows))), answer_ns)


def spans(found: Commands) -> list[CycleSpans]:
    return list(found.spans())


def lasted(span: CycleSpans) -> list[tuple[int, int]]:
    ends = np.where(span.has_end, span.ends, -1)
    return list(zip(span.starts.tolist(), ends.tolist(), strict=True))


def test_a_command_is_in_flight_until_its_status_is_there() -> None:
    assert commands((0, 10), (5, 20), (10, 30), (20, 25), (40, 50)).depth.tolist() == [1, 2, 2, 2, 1]
    # a status that was never captured does not count
    assert commands((0, None), (5, 8), (9, None), (10, 12)).depth.tolist() == [1, 1, 1, 1]


def test_commands_issued_before_the_next_one_ends_are_in_flight_with_it() -> None:
    # a queue of three whose commands end together: each refill is in flight in full before one of it ends
    refills = (0, 10), (1, 10), (2, 10), (12, 30), (13, 30), (14, 30)
    assert commands(*refills).depth.tolist() == [1, 2, 3, 1, 2, 3]
    assert commands(*refills).depth_in_full.tolist() == [3] * 6
    # one that is issued when another ends takes its place
    assert commands((0, 10), (5, 20), (10, 30), (20, 25), (40, 50)).depth_in_full.tolist() == [2, 2, 2, 2, 1]
    # a status that was never captured does not count
    assert commands((0, None), (5, 8), (9, None), (10, 12)).depth_in_full.tolist() == [1, 1, 1, 1]
    # nor does a command that is issued while the status is on its way, as soon as it can have come
    assert commands((0, 10), (25, 30), answer_ns=20).depth_in_full.tolist() == [1, 1]
    assert commands().depth_in_full.tolist() == []


def test_a_status_is_with_the_initiator_after_three_quarters_of_its_rtt() -> None:
    assert commands((0, 10), (24, 30), answer_ns=20).depth.tolist() == [1, 2]
    assert commands((0, 10), (25, 30), answer_ns=20).depth.tolist() == [1, 1]


def test_a_status_in_data_is_there_when_the_data_is_acknowledged() -> None:
    def depth(acked: int | None, **columns: Any) -> list[int]:
        rows = command(0, 0, 10, data_acked_ns=acked, **columns), command(1, 15, 20)
        found: list[int] = Commands(table("cycles", *rows)).depth.tolist()
        return found

    assert depth(16, is_status_in_data=True) == [1, 2]
    assert depth(15, is_status_in_data=True) == [1, 1]
    assert depth(16) == [1, 1]
    assert depth(None, is_status_in_data=True) == [1, 1]
    # an ACK before the status is not later than it
    assert depth(5, is_status_in_data=True) == [1, 1]


def test_commands_are_in_order_of_time_and_move_data() -> None:
    rows = [
        command(0, 30, 40),
        command(1, 10, 20, operation="inquiry"),
        command(2, 20, 25, operation="write"),
        command(3, 50, 60, 0),
        command(4, 60, 70, bytes=None),
    ]
    found = Commands(table("cycles", *rows))
    assert found.table.raw("cycle").tolist() == [1, 2, 0, 3, 4]
    assert found.is_of("read").tolist() == [False, False, True, False, False]
    assert found.is_of("write").tolist() == [False, True, False, False, False]
    assert (len(found), found.bytes.tolist()) == (5, [512, 512, 512, 0, 0])
    assert found.operation.tolist() == [-1, 1, 0, -1, -1]


def test_a_command_alone_lasts_until_the_next_one() -> None:
    found = spans(commands((0, 5), (10, 15), (30, 35, 1_024), (50, 55)))
    assert [(each.block_bytes, each.together, each.queue_depth, lasted(each)) for each in found] == [
        (512, 1, 1, [(0, 10), (10, 30), (50, -1)]),
        (1_024, 1, 1, [(30, 50)]),
    ]
    assert spans(commands()) == []


def calls(count: int) -> list[tuple[int, int]]:
    """Two pieces of each system call, issued together; a call begins every 100 ns."""
    return [(100 * number + piece, 100 * number + 50) for number in range(count) for piece in range(2)]


def test_three_groups_alike_are_cycles_of_commands_issued_together() -> None:
    (found,) = spans(commands(*calls(3)))
    assert (found.block_bytes, found.together, found.queue_depth, found.tasks_in_each) == (1_024, 2, 1, 2)
    assert lasted(found) == [(0, 100), (100, 200), (200, -1)]
    assert (found.first.tolist(), found.last.tolist()) == ([0, 2, 4], [2, 4, 6])
    assert all(each.together == 1 for each in spans(commands(*calls(2))))


@pytest.mark.parametrize("size", [256, 768])
def test_a_group_of_another_size_is_no_cycle_of_the_pattern(size: int) -> None:
    found = [each for each in spans(commands(*calls(3), (400, 450, size), (401, 450, size))) if each.together == 2]
    assert [(each.block_bytes, lasted(each)) for each in found] == [(1_024, [(0, 100), (100, 200), (200, 400)])]


@pytest.mark.parametrize(("size", "is_cycle"), [(768, True), (769, False)])
def test_groups_alike_need_half_of_the_bytes(size: int, is_cycle: bool) -> None:
    """Three calls move 3072 bytes; one group of three and one of two, of other patterns, move as many or two more."""
    others = [*((1_000 + piece, 1_050) for piece in range(3)), (2_000, 2_050, size), (2_001, 2_050, size)]
    assert any(each.together == 2 for each in spans(commands(*calls(3), *others))) is is_cycle


def test_commands_that_overlap_in_pairs_are_no_cycles() -> None:
    """Two programs that think between their reads: each read begins its own time after an answer."""
    pairs = [(57 * number + start, 57 * number + end) for number in range(6) for start, end in ((0, 17), (7, 24))]
    assert spans(commands(*pairs)) == []


def test_pairs_apart_count_against_groups_at_once() -> None:
    apart = [(1_000 + 57 * number + start, 1_050 + 57 * number) for number in range(3) for start in (0, 7)]
    assert any(each.together == 2 for each in spans(commands(*calls(3), *apart)))
    apart += [(2_000, 2_050), (2_007, 2_050)]
    assert all(each.together == 1 for each in spans(commands(*calls(3), *apart)))


def test_a_queue_is_as_deep_as_nine_tenths_of_its_commands() -> None:
    # one begins every 10 ns and takes 30
    rows = [(10 * number, 10 * number + 30) for number in range(12)]
    (found,) = spans(commands(*rows))
    # depth 1, 2, then 3: a span lasts until the third command after
    assert (found.together, found.queue_depth, found.tasks_in_each) == (1, 3, 3)
    assert lasted(found) == [(0, 30), (30, 60), (60, 90)]


def test_a_queue_of_two_sizes_has_spans_only_where_one_size_follows_itself() -> None:
    rows = [(10 * number, 10 * number + 20, 1_024 if number in {4, 5} else 512) for number in range(12)]
    found = {each.block_bytes: lasted(each) for each in spans(commands(*rows))}
    # rows 0 to 3 and 6 to 11, two at a time, each followed by one of its kind
    assert found == {512: [(0, 20), (60, 80), (80, 100)]}


def test_a_command_of_another_size_ends_a_run() -> None:
    rows = [(10 * number, 10 * number + 20, 1_024 if number == 4 else 512) for number in range(9)]
    found = {each.block_bytes: lasted(each) for each in spans(commands(*rows))}
    assert found == {512: [(0, 20), (50, 70)]}


def test_a_pause_ends_a_run() -> None:
    busy = [(10 * number, 10 * number + 20) for number in range(4)]
    rows = busy + [(start + 1_000, end + 1_000) for start, end in busy[:3]]
    (found,) = spans(commands(*rows))
    assert (found.queue_depth, lasted(found)) == (2, [(0, 20), (1_000, 1_020)])


def test_where_the_clock_stood_still_a_cycle_has_no_period() -> None:
    (span,) = spans(commands((0, 10), (20, 20), (20, 20), (30, 35)))
    assert [pair for pair in lasted(span) if pair[1] != -1] == [(0, 20), (20, 30)]
