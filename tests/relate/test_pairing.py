"""Pairing of requests, offsets of addresses, and copies: against plain loops over a few requests."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest

from iscsitrace.relate.mirrors import pairing, recognition
from iscsitrace.relate.mirrors.sides import Requests

Request = tuple[int, int, int, int]
"""First byte, byte after the last, start and end in time."""


def requests(*rows: Request) -> Requests:
    firsts, lasts, begins, ends = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Requests(np.arange(len(rows)), firsts, lasts, begins, ends)


def pairs(one: Requests, other: Requests) -> list[tuple[int, int, int]]:
    found = pairing.pair(one, other)
    return sorted(zip(found.one.tolist(), found.other.tolist(), found.lengths.tolist(), strict=True))


def test_pieces_have_the_bytes_that_both_requests_cover() -> None:
    one = requests((0, 30, 0, 10), (30, 40, 20, 30))
    other = requests((0, 10, 0, 10), (10, 40, 0, 30))
    assert pairs(one, other) == [(0, 0, 10), (0, 1, 20), (1, 1, 10)]
    found = pairing.pair(one, other)
    assert found.matched_bytes(3).tolist() == [30, 10, 0]
    assert found.matched_bytes(2, of_other=True).tolist() == [10, 30]


def test_a_piece_on_one_side_only_has_no_pair() -> None:
    assert pairs(requests((0, 10, 0, 10)), requests((20, 30, 0, 10))) == []
    assert pairs(requests((0, 10, 0, 10)), requests()) == pairs(requests(), requests((0, 10, 0, 10))) == []
    # the last piece is written twice on one side, and not at all on the other
    assert pairs(requests((0, 10, 0, 9), (10, 20, 0, 9), (10, 20, 20, 29)), requests((0, 10, 0, 9))) == [(0, 0, 10)]


def test_requests_in_more_than_4096_pieces_have_no_pairs() -> None:
    for count, matched in ((4_096, 4_096), (4_097, 0)):
        whole = requests((0, count, 0, 10))
        blocks = requests(*((place, place + 1, 0, 10) for place in range(count)))
        for one, other in ((whole, blocks), (blocks, whole)):
            found = pairing.pair(one, other)
            assert (len(found.one), len(found.other), found.lengths.sum()) == (matched, matched, matched)


def test_requests_that_only_touch_in_time_do_not_overlap() -> None:
    """Each side pauses after each request; the other's begins with the end of the first, or just before it."""
    for begin, is_paired in ((10, False), (9, True)):
        one = requests(*((100 * n, 100 * n + 9, 1_000 * n, 1_000 * n + 10) for n in range(4)))
        other = requests(*((100 * n, 100 * n + 9, 1_000 * n + begin, 1_000 * n + begin + 10) for n in range(4)))
        assert bool(pairs(one, other)) is is_paired
        assert bool(pairs(other, one)) is is_paired


@pytest.mark.parametrize(("count", "length", "is_paired"), [(9, 14, True), (9, 15, False), (8, 15, True)])
def test_both_sides_pause_if_the_next_command_is_not_before_the_last_status(
    count: int, length: int, is_paired: bool
) -> None:
    """Each 20 ns a request of 10 ns, and 6 ns later the other side's, which ends at the next one or just after it."""
    one = requests(*((100 * n, 100 * n + 9, 20 * n, 20 * n + 10) for n in range(count)))
    other = requests(*((100 * n, 100 * n + 9, 20 * n + 6, 20 * n + 6 + length) for n in range(count)))
    assert len(pairs(one, other)) == count * is_paired


def queued(count: int, *, order: tuple[int, ...] = ()) -> tuple[Requests, Requests]:
    """All at once on one side; on the other two in flight, one after the other, and in another order."""
    places = order or tuple(range(count))
    near = requests(*((100 * n, 100 * n + 9, n, n + 10) for n in range(count)))
    times = {n: 100 * place for place, n in enumerate(places)}
    far = sorted(((100 * n, 100 * n + 9, at + n, at + 200) for n, at in times.items()), key=lambda row: row[2])
    return near, requests(*far)


def test_a_full_queue_delays_either_side() -> None:
    near, far = queued(12)
    assert [pair[:2] for pair in pairs(near, far)] == [(n, n) for n in range(12)]
    assert [pair[:2] for pair in pairs(far, near)] == [(n, n) for n in range(12)]


def test_a_queue_keeps_the_order_of_nine_tenths() -> None:
    """Of the ten steps between eleven delayed requests one may go back, not two."""
    for order, is_paired in (((0, 2, 1, *range(3, 12)), True), ((0, 2, 1, 4, 3, *range(5, 12)), False)):
        near, far = queued(12, order=order)
        assert (len(pairs(near, far)) == 12) is is_paired


def test_a_single_delayed_request_shows_no_queue() -> None:
    near = requests((0, 9, 0, 10), (100, 109, 100, 110))
    far = requests((0, 9, 0, 300), (100, 109, 120, 300))
    assert [pair[:2] for pair in pairing_of_queue(near, far, [1])] == []
    assert [pair[:2] for pair in pairing_of_queue(near, far, [0, 1])] == []


def pairing_of_queue(one: Requests, other: Requests, rows: list[int]) -> list[tuple[int, int]]:
    """The pairs of equal rows that a full queue explains."""
    places = np.array(rows)
    found = pairing._is_queued(one, places, other, places)
    return [(row, row) for row, is_found in zip(rows, found.tolist(), strict=True) if is_found]


# --- offsets


def plain_offsets(one: list[Request], other: list[Request]) -> list[int]:
    """The commonest distance to the four neighbors before and from each write on, and that of the lowest addresses."""
    since, until = max(one[0][2], other[0][2]), min(max(row[3] for row in one), max(row[3] for row in other))
    one, other = ([row for row in rows if row[3] >= since and row[2] <= until] for rows in (one, other))
    if min(len(one), len(other)) < 4:
        return []
    is_less = len(one) <= len(other)
    fewer, more = (one, other) if is_less else (other, one)
    fewer = [fewer[int(place)] for place in np.linspace(0, len(fewer) - 1, min(len(fewer), 512))]
    votes: Counter[int] = Counter()
    for row in fewer:
        place = sum(each[2] < row[2] for each in more)
        votes.update(each[0] - row[0] for each in more[max(0, place - 4) : place + 4])
    most = max(votes.values(), default=0)
    sign = 1 if is_less else -1
    likely = [0, *(sign * min(apart for apart, count in votes.items() if count == most) for _ in range(bool(votes)))]
    likely.append(min(row[0] for row in other) - min(row[0] for row in one))
    written = set(chain.from_iterable(range(row[0], row[1]) for row in more))
    return [
        offset
        for offset in dict.fromkeys(likely)
        if sum(row[0] + sign * offset in written for row in fewer) >= 0.45 * len(fewer)
    ]


def offsets_of(one: list[Request], other: list[Request]) -> list[int]:
    return pairing.possible_offsets([(requests(*one), requests(*other))])[0]


def drawn_sides(seed: int, counts: tuple[int, int] = (4, 12), wide: int = 8) -> tuple[list[Request], list[Request]]:
    """Two sides with so many writes, of addresses and times that are equal now and then."""
    drawn = np.random.default_rng(seed)
    sides: list[list[Request]] = []
    for later in (0, int(drawn.integers(-6, 7))):
        count = int(drawn.integers(*counts))
        begins = np.sort(drawn.choice(2 * counts[1], count, replace=False)) * 10 + later
        firsts = drawn.integers(0, wide, count) * 4 + later
        sides.append([(int(a), int(a) + 3, int(t), int(t) + 9) for a, t in zip(firsts, begins, strict=True)])
    return sides[0], sides[1]


@pytest.mark.parametrize("seed", range(40))
def test_offsets_against_counting_neighbors(seed: int) -> None:
    one, other = drawn_sides(seed)
    assert offsets_of(one, other) == plain_offsets(one, other)


@pytest.mark.parametrize("seed", range(4))
def test_offsets_of_long_sides_come_from_a_sample(seed: int) -> None:
    one, other = drawn_sides(seed, (600, 900), 40)
    assert offsets_of(one, other) == plain_offsets(one, other)


@pytest.mark.parametrize("at_once", [1, 50, 1 << 16])
def test_offsets_of_many_pairs_are_those_of_each(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_AT_ONCE", at_once)
    every = [drawn_sides(seed, (1, 9)) for seed in range(200)]
    found = pairing.possible_offsets([(requests(*one), requests(*other)) for one, other in every])
    assert found == [plain_offsets(*pair) for pair in every]
    assert {len(each) for each in found} == {0, 1, 2, 3}
    assert pairing.possible_offsets([]) == []


def test_an_offset_has_45_per_cent_of_the_writes_on_the_other_side() -> None:
    """Twenty writes at the same addresses, of which nine or eight were written on the other side as well."""
    for same, is_likely in ((9, True), (8, False)):
        one = [(100 * n, 100 * n + 10, 10 * n, 10 * n + 5) for n in range(20)]
        apart = [0 if n < same else 50_000 + n for n in range(20)]
        other = [(row[0] + by, row[1] + by, row[2], row[3]) for row, by in zip(one, apart, strict=True)]
        assert (0 in offsets_of(one, other)) is is_likely


# --- copies


@pytest.mark.parametrize("seed", range(20))
def test_copies_against_plain_loops(seed: int) -> None:
    """Reads that do not overlap; a write is a copy if its first and last byte were read in the second before it."""
    drawn = np.random.default_rng(seed)
    second = 1_000_000_000
    places = np.sort(drawn.choice(12, 4, replace=False)) * 10
    reads = [(int(a), int(a) + int(drawn.integers(1, 11)), 0, int(drawn.integers(0, 3)) * second) for a in places]
    writes = []
    for _ in range(12):
        first, begin = int(drawn.integers(0, 125)), int(drawn.integers(0, 4)) * second + int(drawn.integers(-1, 2))
        writes.append((first, first + int(drawn.integers(1, 15)), begin, begin + 5))

    def was_read(byte: int, at: int) -> bool:
        return any(row[0] <= byte < row[1] and 0 <= at - row[3] <= second for row in reads)

    expected = [was_read(row[0], row[2]) and was_read(row[1] - 1, row[2]) for row in writes]
    found = recognition._is_copy(requests(*writes), requests(*reversed(reads)))
    assert found.tolist() == expected
    assert not recognition._is_copy(requests(*writes), requests()).any()
    assert len(recognition._is_copy(requests(), requests(*reads))) == 0


def test_of_two_reads_of_an_extent_the_later_one_counts() -> None:
    second = 1_000_000_000
    reads = requests((0, 10, 0, 5 * second), (0, 10, 0, second))
    assert recognition._is_copy(requests((0, 10, 6 * second, 7 * second)), reads).tolist() == [True]
    assert recognition._is_copy(requests((0, 10, 2 * second, 3 * second)), reads).tolist() == [False]
