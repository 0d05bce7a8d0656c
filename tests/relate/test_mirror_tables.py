"""The tables of mirrored writes and their sides: frames, nulls, numbers, order; on hosts written by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from iscsitrace.events import derived
from iscsitrace.relate.mirrors import recognition
from iscsitrace.relate.mirrors.pairing import Pairing
from iscsitrace.relate.mirrors.sides import Requests
from iscsitrace.relate.mirrors.writes import largest_skews, mirror_legs, mirrored_writes, sides_of
from iscsitrace.tables.table import Table
from tests.support.mirrors_by_hand import SECOND, Hosts, in_order, two
from tests.support.tables_by_hand import MS, table


def near_and_far(*far_ms: float) -> Hosts:
    """A near side of 5 ms for each write, and a far side of these times, 1 ms later."""
    hosts = Hosts()
    near = in_order(len(far_ms))
    hosts.ask(hosts.session("iqn.a"), near)
    far = [(at + 1, lba, blocks, length) for (at, lba, blocks, _), length in zip(near, far_ms, strict=True)]
    return hosts.ask(hosts.session("iqn.b"), far)


def without_a_status() -> Hosts:
    """Skews of 5, 2, unknown, 3 and 2 ms; the third status of the far side was not captured."""
    hosts = near_and_far(9, 6, 8, 7, 6)
    hosts.cycles[7]["status_ns"] = None
    return hosts


def skews(mirrored: Table) -> list[int | None]:
    return [row["skew_ns"] and row["skew_ns"] // MS for row in mirrored.rows()]


def test_the_largest_skews() -> None:
    made = derived.make("mirrored_writes", without_a_status().source())
    assert skews(largest_skews(made, slower_ns=None, top=None)) == [5, 2, None, 3, 2]
    assert skews(largest_skews(made, slower_ns=2 * MS, top=None)) == [5, 3]
    assert skews(largest_skews(made, slower_ns=0, top=None)) == [5, 2, 3, 2]
    top = largest_skews(made, slower_ns=None, top=4)
    assert (skews(top), top.raw("mirrored_write").tolist()) == ([5, 3, 2, 2], [0, 3, 1, 4])
    assert skews(largest_skews(made, slower_ns=2 * MS - 1, top=2)) == [5, 3]


def test_the_sides_of_one_write() -> None:
    sides = derived.make("mirror_legs", near_and_far(9, 6, 8, 7).source())
    for number in range(4):
        found = sides_of(sides, number)
        assert [(row["mirrored_write"], row["leg"], row["cycle"]) for row in found] == [
            (number, 0, 2 * number), (number, 1, 2 * number + 1),
        ]  # fmt: skip
        # the frames of a command are 2 n + 1 and 2 n + 2
        assert [(row["command_frame"], row["status_frame"]) for row in found] == [
            (4 * number + 1, 4 * number + 2), (4 * number + 3, 4 * number + 4),
        ]  # fmt: skip


def test_what_a_missing_status_leaves_unknown() -> None:
    source = without_a_status().source()
    rows = list(derived.make("mirrored_writes", source).rows())
    unknown = ("end_ns", "skew_ns", "first_session", "last_session", "cause", "cause_ns")
    assert [rows[2][name] for name in unknown] == [None] * 6
    assert None not in [row[name] for row in rows[:2] + rows[3:] for name in unknown[:4]]
    sides = list(derived.make("mirror_legs", source).rows())[4:6]
    assert [(row["end_ns"], row["wait_ns"], row["status_frame"]) for row in sides] == [
        (SECOND + 45 * MS, None, 10), (None, None, None),
    ]  # fmt: skip
    assert [(row["command_frame"], row["session"]) for row in sides] == [(9, 0), (11, 1)]
    (account,) = without_a_status().found()
    assert account.found.skews.tolist() == [5 * MS, 2 * MS, 0, 3 * MS, 2 * MS]
    assert account.found.ends.tolist()[2] == np.iinfo(np.int64).min
    assert account.known_count == 4


def test_a_write_of_two_commands_of_which_one_has_no_status_has_no_end() -> None:
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), in_order(4))
    far = hosts.session("iqn.b")
    for half in (0, 128):
        hosts.ask(far, [(at + half / 128, lba + half, 128, 9.0) for at, lba, _, _ in in_order(4)])
    hosts.cycles[4]["status_ns"] = None
    (account,) = hosts.found()
    assert account.found.is_known.tolist() == [False, True, True, True]
    # the later command of the far side is its last
    assert account.found.side_last_rows.tolist()[1:] == [[3, 5], [6, 8], [9, 11]]
    assert account.found.side_rows.tolist()[1:] == [[3, 4], [6, 7], [9, 10]]


def test_a_mirror_without_writes_takes_no_numbers() -> None:
    hosts = near_and_far(9, 6, 8, 7)
    (account,) = hosts.found()
    arrays = [each.name for each in fields(account.found) if each.name != "mirror"]
    empty = replace(account.found, **{name: getattr(account.found, name)[:0] for name in arrays})
    found, source = [empty, account.found, empty, account.found], hosts.source()
    written, sides = mirrored_writes(found, source), mirror_legs(found, source)
    assert written["mirrored_write"].tolist() == list(range(8))
    assert written["mirror"].tolist() == [1] * 4 + [3] * 4
    assert sides["mirrored_write"].tolist() == [number for number in range(8) for _ in range(2)]
    assert len(mirrored_writes([], source)) == len(mirror_legs([empty], source)) == 0


def test_a_side_is_alone_only_while_no_other_write_is_in_flight() -> None:
    """Each 10 ms a write: 5 ms on the near side, 12 on the far one, which is alone from 5 to 10, at last to 12."""
    (account,) = two(in_order(10, period=10.0), in_order(10, period=10.0, length=12.0))
    assert [side.alone_ns for side in account.sides] == [0, (9 * 5 + 7) * MS]
    assert account.farthest.place == 1


def test_of_three_sides_only_the_last_one_is_alone() -> None:
    """The third finishes 2 ms after the second, while the first has begun its next write 1 ms before that."""
    hosts = Hosts()
    for number, length in enumerate((4.0, 9.0, 11.0)):
        hosts.ask(hosts.session(f"iqn.{number}"), in_order(6, period=10.0, length=length))
    (account,) = hosts.found()
    assert [side.alone_ns for side in account.sides] == [0, 0, (5 * 1 + 2) * MS]
    assert [side.last_count for side in account.sides] == [0, 0, 6]


# --- the data


def compared(*data: tuple[int, int], captured: tuple[int, int] = (64, 64)) -> bool | None:
    """Whether writes are the same, of which these are the checksums on both sides, in the opposite order there."""
    count = len(data)
    places = np.arange(count)
    firsts, times = places * 4_096, np.zeros(count, dtype=np.int64)
    one = Requests(2 * places, firsts, firsts + 4_096, times, times + 5)
    other = Requests(2 * places + 1, firsts[::-1], firsts[::-1] + 4_096, times, times + 5)
    checksums = np.zeros(2 * count, dtype=np.int64)
    checksums[one.rows], checksums[other.rows[::-1]] = np.array(data).T
    sizes = np.tile(captured, count)
    pairing = Pairing(places, places[::-1], np.full(count, 4_096))
    return recognition._compare(one, other, pairing, (sizes, checksums))


def test_a_checksum_that_is_more_than_a_pair_proves_nothing() -> None:
    assert compared((1, 1)) is True
    assert compared((1, 1), (1, 1)) is None
    assert compared((1, 1), (1, 1), (2, 2)) is True


def test_more_writes_have_to_be_equal_than_differ() -> None:
    zeros = [(0, 0)] * 16
    assert compared(*zeros, (1, 9), (2, 8), (3, 3), (4, 4), (5, 5), (6, 6)) is True
    assert compared(*zeros, (1, 9), (2, 8), (3, 3), (4, 4)) is None
    assert compared(*zeros, (0, 0), (1, 9), (2, 8)) is False
    assert compared(*zeros, (0, 0), (0, 0), (1, 9), (2, 8)) is None


@pytest.mark.parametrize(
    ("captured", "verdict"), [((64, 64), True), ((63, 63), None), ((0, 0), None), ((64, 65), None), ((65, 64), None)]
)
def test_only_equally_long_beginnings_are_compared(captured: tuple[int, int], verdict: bool | None) -> None:
    assert compared((1, 1), (2, 2), captured=captured) is verdict
    # of one byte each a difference shows
    assert compared((1, 2), captured=(1, 1)) is False


def test_writes_that_begin_at_different_addresses_are_not_compared() -> None:
    rows = np.arange(2)
    times = np.zeros(1, dtype=np.int64)
    one, other = (
        Requests(rows[n : n + 1], np.array([first]), np.array([8_192]), times, times + 5)
        for n, first in enumerate((0, 4_096))
    )
    pairing = Pairing(rows[:1], rows[:1], np.array([4_096]))
    assert recognition._compare(one, other, pairing, (np.array([64, 64]), np.array([1, 2]))) is None
    assert recognition._compare(one, one, pairing, None) is None


def test_the_largest_chunk_divides_every_extent() -> None:
    """Of 24 and 16 KiB at 40 KiB and 96 KiB the largest power of two is 8 KiB."""
    kib = 1_024
    writes = Requests(np.arange(3), np.array([40, 96, 1]) * kib, np.array([64, 112, 3]) * kib, *np.zeros((2, 3)))
    pairing = Pairing(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([1, 1, 1]))
    assert recognition._chunk(writes, pairing) == (8 * kib, 0)
    odd = Pairing(np.array([0, 2]), np.array([0, 1]), np.array([1, 1]))
    assert recognition._chunk(writes, odd) == (kib, 1)


def test_checksums_of_commands_that_send_no_data_are_unknown() -> None:
    starts = table("write_starts", {"cycle": 2, "bytes": 64, "crc32c": 7}, {"cycle": 0, "bytes": 9, "crc32c": 5})
    captured, checksums = recognition._by_cycle(starts, 4)
    assert (captured.tolist(), checksums.tolist()) == ([9, 0, 64, 0], [5, 0, 7, 0])
