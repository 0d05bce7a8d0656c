"""The requests of each side: which commands, extents and times, against plain loops and hand-made tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.events import derived
from iscsitrace.relate.mirrors import sides
from iscsitrace.relate.mirrors.sides import MirrorSide, Requests
from tests.support.mirrors_by_hand import SECOND, Hosts, in_order
from tests.support.tables_by_hand import MS, table


def sides_of(hosts: Hosts) -> list[MirrorSide]:
    return sides.of_trace(hosts.source())


def two_targets(**columns: Any) -> Hosts:
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        hosts.ask(hosts.session(target), in_order(3), **columns)
    return hosts


@pytest.mark.parametrize("seed", range(6))
def test_requests_in_flight_against_a_loop(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    begins = np.sort(drawn.integers(0, 30, 10))
    ends = begins + drawn.integers(1, 12, 10)
    requests = Requests(np.arange(10), begins, ends, begins, ends)
    expected = [sum(ends[other] > begins[one] for other in range(one + 1)) for one in range(10)]
    assert requests.depths.tolist() == expected


def test_a_side_has_the_extents_and_times_of_its_commands() -> None:
    hosts = two_targets()
    hosts.ask(0, [(7.0, 500, 16, 2.0)], "read").ask(0, [(8.0, 600, 16, 2.0)], "read", block_count=None)
    hosts.cycles[1]["status_ns"] = None
    hosts.cycles[2]["status_ns"] = SECOND
    near, far = sides_of(hosts)
    assert (near.host, near.target, near.lun, near.sessions, near.block_bytes) == ("iqn.host", "iqn.a", 0, (0,), 512)
    assert (far.target, far.sessions, far.writes.rows.tolist()) == ("iqn.b", (1,), [1, 5, 7])
    writes = near.writes
    assert writes.firsts.tolist() == [(10_000 + 256 * number) * 512 for number in range(3)]
    assert writes.lengths.tolist() == [256 * 512] * 3
    assert writes.begins.tolist() == [SECOND + 20 * number * MS for number in range(3)]
    # without a status, or with one before it, a command ends when it begins
    assert (writes.ends - writes.begins).tolist() == [5 * MS, 0, 0]
    assert (near.reads.firsts.tolist(), near.reads.lasts.tolist()) == ([500 * 512], [516 * 512])
    assert len(far.reads) == 0


@pytest.mark.parametrize("name", ["session", "lun", "lba", "block_count"])
def test_commands_without_an_extent_or_a_session_are_none(name: str) -> None:
    hosts = two_targets()
    hosts.cycles[0][name] = None
    near, _ = sides_of(hosts)
    assert len(near.writes) == 2
    hosts = two_targets()
    hosts.cycles[0]["block_count"] = 0
    assert len(sides_of(hosts)[0].writes) == 2
    hosts.cycles[0]["block_count"] = 1
    assert sides_of(hosts)[0].writes.lengths[0] == 512


def test_two_paths_to_one_lun_are_one_side_and_two_luns_are_two() -> None:
    hosts = Hosts()
    for target, lun in (("iqn.a", 0), ("iqn.a", 0), ("iqn.a", 1)):
        hosts.ask(hosts.session(target), in_order(2), lun=lun)
    assert [(side.sessions, side.lun, len(side.writes)) for side in sides_of(hosts)] == [((0, 1), 0, 4), ((2,), 1, 2)]
    one = Hosts()
    one.ask(one.session("iqn.a"), in_order(2)).ask(one.session("iqn.a"), in_order(2))
    assert sides_of(one) == []
    # a session without a connection is on no side
    hosts.connections.pop()
    assert sides_of(hosts) == []


def test_a_single_write_on_each_side_is_enough_for_two_sides() -> None:
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        hosts.ask(hosts.session(target), in_order(1))
    assert [len(side.writes) for side in sides_of(hosts)] == [1, 1]
    assert sides_of(Hosts()) == []


def test_sides_that_can_have_no_copy_are_left_out() -> None:
    hosts = Hosts()
    for host, target, count in (
        *(("iqn.one", "iqn.a", 4), ("iqn.one", "iqn.b", 3), ("iqn.one", "iqn.c", 5)),
        *(("iqn.two", "iqn.d", 9), ("iqn.two", "iqn.e", 3), ("iqn.three", "iqn.f", 9)),
    ):
        hosts.ask(hosts.session(target, host), in_order(count))
    source = hosts.source()
    targets = {least: [side.target for side in sides.of_trace(source, None, least)] for least in (1, 4, 6)}
    assert targets == {1: [f"iqn.{name}" for name in "abcde"], 4: ["iqn.a", "iqn.c"], 6: []}


def test_sides_without_a_login_have_addresses() -> None:
    hosts = two_targets()
    hosts.sessions[0] |= {"target_name": None}
    hosts.sessions.pop()
    assert [(side.host, side.target) for side in sides_of(hosts)] == [
        # the only initiator that logged in from that address
        ("iqn.host", "10.0.1.0"), ("iqn.host", "10.0.1.1"),
    ]  # fmt: skip
    hosts.sessions.clear()
    assert [side.host for side in sides_of(hosts)] == ["10.0.0.1", "10.0.0.1"]


@pytest.mark.parametrize(
    ("sizes", "block_bytes"),
    [
        ([(4_096, 8), (4_096, 8), (4_096, 1)], 512),
        ([(4_096, 1), (8_192, 2), (4_096, 8)], 4_096),
        # of as many of both the smaller one; bytes of nothing and fewer bytes than blocks show none
        ([(4_096, 1), (512, 1)], 512),
        ([(0, 1), (None, 1), (520, 1)], 520),
        ([(0, 1), (None, 1)], 512),
        ([(7, 8)], 512),
        ([(8, 8)], 1),
    ],
)
def test_the_block_length_is_that_of_most_requests(sizes: list[tuple[int | None, int]], block_bytes: int) -> None:
    others = [(2_048, 1)] * 9
    cycles = table("cycles", *({"bytes": size, "block_count": blocks} for size, blocks in [*sizes, *others]))
    rows = np.arange(len(cycles))
    place = np.where(rows < len(sizes), 1, 0)
    assert sides._block_bytes(cycles, rows, place, 3).tolist() == [2_048, block_bytes, 512]


def test_an_unknown_derived_table_is_an_error() -> None:
    with pytest.raises(KeyError, match="no derived table mirrors"):
        derived.make("mirrors", Hosts().source())
    for name in ("mirrored_writes", "mirror_legs"):
        assert len(derived.make(name, Hosts().source())) == 0


def test_two_sessions_of_one_volume_are_one_side_whatever_their_targets_are_called() -> None:
    hosts = two_targets()
    disk = {"lun": 0, "peripheral_qualifier": 0, "designator": "naa.60014050000000000000000000000001"}
    hosts.units = [{"session": session} | disk for session in (0, 1)]
    hosts.ask(hosts.session("iqn.c"), in_order(3))
    assert [side.sessions for side in sides_of(hosts)] == [(0, 1), (2,)]


def test_a_name_that_other_targets_can_have_joins_no_targets() -> None:
    hosts = two_targets()
    disk = {"lun": 0, "peripheral_qualifier": 0, "designator": "naa.60000000000000000e00000000010001"}
    hosts.units = [{"session": session} | disk for session in (0, 1)]
    assert [side.sessions for side in sides_of(hosts)] == [(0,), (1,)]
