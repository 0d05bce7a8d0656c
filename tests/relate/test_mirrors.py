"""Mirrors, on tables made by hand, and near misses: alternating paths, stripes, other orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from iscsitrace.relate.mirrors import recognition
from iscsitrace.relate.mirrors.account import Account
from iscsitrace.relate.mirrors.writes import mirror_legs, mirrored_writes
from tests.support.mirrors_by_hand import SECOND, Hosts, Write, in_order, two
from tests.support.tables_by_hand import MS, table

KIB = 1024


# --- tables by hand


def test_the_same_writes_are_a_mirror() -> None:
    near = in_order(20)
    far = [(at + 1, lba, blocks, 15.0) for at, lba, blocks, _ in near]
    (found,) = two(near, far)
    assert found.name == "sessions 0 and 1 are a mirror"
    assert len(found.found) == 20
    # done after 5 ms, and after 1 + 15
    assert found.skews == {"n": 20, "p50": 11 * MS, "p95": 11 * MS, "p99": None, "max": 11 * MS}
    assert [side.last_count for side in found.sides] == [0, 20]
    assert found.farthest.alone_ns == 20 * 11 * MS
    # another host, or the other path to the same logical unit, is no mirror side
    assert two(near, far, host="iqn.other") == []
    hosts = Hosts()
    for asked in (near, far):
        hosts.ask(hosts.session("iqn.a"), asked)
    assert hosts.found() == []


def test_three_writes_are_no_mirror() -> None:
    assert two(in_order(3), in_order(3)) == []
    assert len(two(in_order(4), in_order(4))) == 1


def test_mirror_members_written_one_after_another_first() -> None:
    """As mdadm does before and after it creates the array."""
    prepared = [(10.0 * number, 8 + 8 * number, 8, 5.0) for number in range(10)]
    work = [(at + 300, lba, blocks, length) for at, lba, blocks, length in in_order(12)]
    wiped = [(at + 1_000, lba, blocks, length) for at, lba, blocks, length in prepared]

    def later(asked: list[Write]) -> list[Write]:
        return [(at + 110, lba, blocks, length) for at, lba, blocks, length in asked]

    (found,) = two([*prepared, *work, *wiped], [*later(prepared), *work, *later(wiped)])
    assert len(found.found) == 12


def test_a_slow_host_starts_one_side_after_the_other() -> None:
    """With one CPU, which sends the first burst of one side before the command of the other."""
    near = in_order(12, period=30.0, length=10.0)
    (found,) = two(near, [(at + 6, lba, blocks, 12.0) for at, lba, blocks, _ in near])
    assert len(found.found) == 12


def test_two_programs_in_step_do_not_wait_for_each_other() -> None:
    near = in_order(40, period=10.0, length=9.9)
    assert two(near, [(at + 5, lba, blocks, length) for at, lba, blocks, length in near]) == []


def test_sides_may_split_a_write_differently() -> None:
    near, far = [], []
    for at, lba, _, _ in in_order(12, blocks=1024):
        near += [(at, lba, 512, 3.0), (at + 0.1, lba + 512, 512, 4.0)]
        # edges that the other side has not, and one long piece
        far += [(at, lba, 300, 9.0), (at + 0.1, lba + 300, 724, 10.0)] if at % 40 else [(at, lba, 1024, 10.0)]
    (found,) = two(near, far)
    assert len(found.found) == 12
    assert found.found.lengths.tolist() == [1024 * 512] * 12
    assert found.found.side_counts.tolist() == [[2, 1], [2, 2]] * 6
    # 10 ms, or 0.1 + 10, less 0.1 + 4
    assert sorted(set(found.found.skews.tolist())) == [round(5.9 * MS), 6 * MS]


def test_sides_may_start_at_different_blocks() -> None:
    near = in_order(20)
    far = [(at, lba + 262_144 - 2_048, blocks, 8.0) for at, lba, blocks, _ in near]
    (found,) = two(near, far)
    assert found.mirror.offsets == (0, (262_144 - 2_048) * 512)
    assert found.found.firsts.tolist() == [lba * 512 for _, lba, _, _ in near]
    assert found.found.lengths.tolist() == [256 * 512] * 20
    # a distance that changes is none
    apart = [
        (at, lba + (2_048 if number % 2 else 4_096), blocks, 8.0) for number, (at, lba, blocks, _) in enumerate(near)
    ]
    assert two(near, apart) == []


def test_one_block_written_repeatedly() -> None:
    """A journal, or a superblock: the first write matches the first; writes before the capture match none."""
    near = [(20.0 * number, 8, 8, 2.0) for number in range(30)]
    far = [(20.0 * number + 0.5, 8, 8, 12.0) for number in range(30)]
    assert len(two(near, far)[0].found) == 30
    (found,) = two(near, far[1:])
    assert len(found.found) == 29
    assert found.skews["max"] == round(10.5 * MS)


def test_three_sides_of_which_two_are_far() -> None:
    hosts = Hosts()
    for length in (4.0, 9.0, 15.0):
        hosts.ask(hosts.session(f"iqn.{length}"), in_order(10, length=length))
    (found,) = hosts.found()
    assert found.name == "sessions 0, 1 and 2 are a mirror"
    assert set(found.found.skews.tolist()) == {11 * MS}
    # the third is alone once the second is done
    assert [side.alone_ns for side in found.sides] == [0, 0, 10 * 6 * MS]


def test_two_mirrors_are_numbered_through() -> None:
    hosts = Hosts()
    for host, count in (("iqn.one", 5), ("iqn.two", 7)):
        for target in ("a", "b"):
            hosts.ask(hosts.session(f"{host}.{target}", host), in_order(count))
    found = [each.found for each in hosts.found()]
    source = hosts.source()
    written, sides = mirrored_writes(found, source), mirror_legs(found, source)
    assert written["mirror"].tolist() == [0] * 5 + [1] * 7
    assert written["mirrored_write"].tolist() == list(range(12))
    assert sides["mirrored_write"].tolist() == [number for number in range(12) for _ in range(2)]
    assert sides["session"].tolist() == [0, 1] * 5 + [2, 3] * 7


def test_a_side_with_a_full_queue_starts_later() -> None:
    """Four at a time: the near side takes 2 ms for each, the far side 20 ms, so that it falls behind more and more."""
    count = 60
    near = [(0.5 * number, 10_000 + 64 * number, 64, 2.0) for number in range(count)]
    far = [(0.5 * (number % 4) + 20.0 * (number // 4), 10_000 + 64 * number, 64, 20.0) for number in range(count)]
    (found,) = two(near, far)
    assert len(found.found) == count
    assert found.skews["max"] == round((0.5 * 3 + 20.0 * 14 + 20 - 0.5 * 59 - 2) * MS)
    # the same distances of a side that has time between its tasks are another program's
    alone = [(20.0 * number, 10_000 + 64 * number, 64, 5.0) for number in range(count)]
    assert two(near, alone) == []


def test_a_resync_during_the_writes() -> None:
    near, far = in_order(20), in_order(20, length=9.0)
    copied = [(20.0 * number + 12, 1_000_000 + 256 * number, 256, 2.0) for number in range(20)]
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), near).ask(hosts.session("iqn.b"), far)
    hosts.ask(0, copied, "read")
    # read in one piece, written in two; and the other way round
    hosts.ask(1, [(at + 3, lba + more, 128, 3.0) for at, lba, _, _ in copied[:10] for more in (0, 128)])
    hosts.ask(1, [(at + 23, lba, 512, 3.0) for at, lba, _, _ in copied[10::2]])
    (found,) = hosts.found()
    assert len(found.found) == 20
    # without the reads they are writes of one side alone
    hosts.cycles = [row for row in hosts.cycles if row["operation"] == "write"]
    assert hosts.found() == []


@pytest.mark.parametrize(("alone", "is_found"), [(2, True), (3, False)])
def test_nearly_all_writes_have_to_be_on_both_sides(alone: int, is_found: bool) -> None:
    near = in_order(20)
    other = [(5.0 + 100.0 * number, 900_000 + 512 * number, 256, 5.0) for number in range(alone)]
    assert bool(two([*near, *other], near)) == is_found


def test_writes_while_only_one_side_is_active_do_not_count() -> None:
    near = in_order(60)
    (found,) = two(near, near[20:35])
    assert len(found.found) == 15


def test_alternating_paths_are_no_mirror() -> None:
    asked = in_order(40)
    assert two(asked[::2], asked[1::2]) == []


def test_a_mirror_whose_members_have_two_paths_each() -> None:
    hosts = Hosts()
    for target, length in (("iqn.a", 5.0), ("iqn.b", 9.0)):
        asked = in_order(40, length=length)
        for path in (0, 1):
            hosts.ask(hosts.session(target), asked[path::2])
    (found,) = hosts.found()
    assert [side.sessions for side in found.sides] == [(0, 1), (2, 3)]
    assert len(found.found) == 40
    assert found.farthest.label == "sessions 2 and 3"


def test_the_same_writes_at_other_times_are_no_mirror() -> None:
    near = in_order(40)
    assert two(near, [(at + 10, lba, blocks, length) for at, lba, blocks, length in near]) == []
    assert two(near, [(at + 1_000, lba, blocks, length) for at, lba, blocks, length in near]) == []


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(24)).filter(lambda order: sum(place != each for place, each in enumerate(order)) > 4))
def test_the_same_writes_in_another_order_are_no_mirror(order: list[int]) -> None:
    near = in_order(24)
    far = [(near[place][0], *near[number][1:]) for place, number in enumerate(order)]
    assert two(near, far) == []


@settings(deadline=None, max_examples=20, phases=(Phase.explicit, Phase.generate))
@given(st.data())
def test_a_mirror_is_found_however_its_sides_are_split(data: st.DataObject) -> None:
    sides: list[list[Write]] = [[], []]
    ends = []
    for at, lba, blocks, _ in in_order(10, blocks=64, period=40.0):
        done = []
        for odd, side in enumerate(sides):
            # no inner edge that both have: there one write would end and another begin
            inner = data.draw(st.lists(st.integers(1, blocks // 2 - 2), max_size=3))
            edges = sorted({0, blocks, *(2 * edge + odd for edge in inner)})
            length = data.draw(st.integers(8, 20))
            side += [
                (at + 0.1 * place, lba + low, high - low, float(length))
                for place, (low, high) in enumerate(pairwise(edges))
            ]
            done.append(round(at * MS) + round(0.1 * (len(edges) - 2) * MS) + length * MS)
        ends.append(done)
    (found,) = two(*sides)
    assert found.found.lengths.tolist() == [64 * 512] * 10
    assert found.found.skews.tolist() == pytest.approx([abs(one - other) for one, other in ends], abs=2)


# --- the cause


def with_budget(near: list[tuple[str, float]], far: list[tuple[str, float]], r2ts: int = 0) -> Account:
    """Ten writes that begin together; the session of each side has this time breakdown (ms), the rest is idle."""
    hosts = Hosts()
    for parts, target, rounds in ((near, "iqn.a", 0), (far, "iqn.b", r2ts)):
        session = hosts.session(target, rtt_ms=4)
        length = sum(each for _, each in parts)
        hosts.ask(session, in_order(10, period=100.0, length=length), r2t_count=rounds)
        for number in range(10):
            at = SECOND + 100 * MS * number
            for part, lasted in [*parts, ("initiator_think", 100 - length)]:
                end = at + round(lasted * MS)
                row = {"session": session, "connection": session, "part": part}
                hosts.budget.append(row | {"time_first_ns": at, "time_last_ns": end})
                at = end
    (found,) = hosts.found()
    return found


@pytest.mark.parametrize(
    ("far", "r2ts", "cause", "cost_ms"),
    [
        ([("propagation", 24.0), ("transfer", 4.0)], 0, "round_trip", 20),
        # three rounds of 4 ms each are rounds, the other 8 ms the way
        ([("propagation", 24.0), ("transfer", 4.0)], 3, "r2t_rounds", 12),
        ([("propagation", 4.0), ("transfer", 4.0), ("target_service", 9.0)], 0, "target_service", 9),
        ([("propagation", 4.0), ("transfer", 12.0)], 0, "line", 8),
        ([("propagation", 4.0), ("loss_recovery", 6.0), ("transfer", 4.0)], 0, "loss", 6),
        # the first write came before any loss
        ([("propagation", 4.0), ("transfer", 4.0), ("receive_window", 6.0)], 0, "receive_window", 6),
        ([("propagation", 4.0), ("transfer", 4.0), ("ack_wait", 6.0)], 0, "ack_wait", 6),
    ],
)
def test_the_cause_is_the_part_with_the_largest_difference(
    far: list[tuple[str, float]], r2ts: int, cause: str, cost_ms: int
) -> None:
    found = with_budget([("propagation", 4.0), ("transfer", 4.0)], far, r2ts)
    assert found.farthest.causes == {cause: 10 * cost_ms * MS}


def test_waits_while_the_other_side_uses_the_line_are_transfer() -> None:
    near = [("propagation", 4.0), ("transfer", 20.0)]
    found = with_budget(near, [("propagation", 4.0), ("target_service", 20.0), ("transfer", 20.0)])
    assert found.farthest.causes == {"line": 10 * 20 * MS}


def test_only_the_wait_while_the_other_side_uses_the_line_is_transfer() -> None:
    """Of 20 ms at the far target, 5 ms are those of the near side's data: 15 remain."""
    far = [("propagation", 4.0), ("target_service", 20.0), ("transfer", 5.0)]
    found = with_budget([("propagation", 4.0), ("transfer", 5.0)], far)
    assert found.farthest.causes == {"target_service": 10 * 15 * MS}


def test_transfer_takes_at_most_the_difference_of_the_waits() -> None:
    """The far target takes 6 ms while the near side's data is on the line, the near target 5 ms after that: 1 more."""
    near = [("propagation", 4.0), ("transfer", 20.0), ("target_service", 5.0)]
    far = [("propagation", 4.0), ("target_service", 6.0), ("transfer", 20.0), ("propagation", 4.0)]
    assert with_budget(near, far).farthest.causes == {"round_trip": 10 * 4 * MS}


def slower_by_turns(part: str, lasted_ms: int, r2t_count: int = 0) -> Hosts:
    """Ten writes of 8 ms; this part is longer on the far side for the even ones, on the near side for the others."""
    hosts = Hosts()
    for turn, target in ((1, "iqn.a"), (0, "iqn.b")):
        session = hosts.session(target, rtt_ms=4)
        for number, write in enumerate(in_order(10, period=100.0)):
            parts = [("propagation", 4), ("transfer", 4), (part, lasted_ms * (number % 2 == turn))]
            length = sum(lasted for _, lasted in parts)
            hosts.ask(session, [(*write[:3], float(length))], r2t_count=r2t_count * (length > 8))
            at = SECOND + 100 * MS * number
            for name, lasted in [*parts, ("initiator_think", 100 - length)]:
                row = {"session": session, "connection": session, "part": name, "time_first_ns": at}
                at += lasted * MS
                hosts.budget += [row | {"time_last_ns": at}] if lasted else []
    return hosts


def test_each_side_has_the_causes_of_the_writes_that_it_finished_last() -> None:
    (found,) = slower_by_turns("target_service", 6).found()
    assert [(side.last_count, side.causes) for side in found.sides] == [(5, {"target_service": 5 * 6 * MS})] * 2


def test_r2t_rounds_over_an_unknown_rtt_are_not_told_from_the_path() -> None:
    hosts = slower_by_turns("propagation", 6, r2t_count=2)
    (found,) = hosts.found()
    # 6 ms more, at an RTT of 4 ms: two rounds take all of it
    assert [side.causes for side in found.sides] == [{"r2t_rounds": 5 * 6 * MS}] * 2
    hosts.connections[1]["rtt_to_target_min_ns"] = None
    (found,) = hosts.found()
    assert [side.causes for side in found.sides] == [{"r2t_rounds": 5 * 6 * MS}, {"round_trip": 5 * 6 * MS}]


def test_a_command_sent_later() -> None:
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), in_order(10, period=100.0, length=20.0))
    hosts.ask(
        hosts.session("iqn.b"),
        [(at + 4, lba, blocks, length) for at, lba, blocks, length in in_order(10, period=100.0, length=20.0)],
    )
    for number in range(10):
        for session, wait in ((0, 0), (1, 4)):
            at = SECOND + (100 * number + wait) * MS
            row = {"session": session, "connection": session}
            end = at + (100 if session == 0 or number < 9 else 20) * MS
            hosts.budget += [
                row | {"part": "propagation", "time_first_ns": at, "time_last_ns": at + 20 * MS},
                row | {"part": "initiator_think", "time_first_ns": at + 20 * MS, "time_last_ns": end},
            ]
    (found,) = hosts.found()
    assert found.farthest.sessions == (1,)
    assert found.farthest.causes == {"sent_later": 10 * 4 * MS}


# --- stripe or mirror


def with_starts(starts: Sequence[Sequence[int]], captured: tuple[int, int] = (64, 64)) -> list[bool]:
    """Whether the mirrors found are certain, for two sides whose data begin with checksums over these byte counts."""
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        hosts.ask(hosts.session(target), in_order(len(starts[0])))
    source = hosts.source()
    # the cycles of the two take turns
    rows = [
        {"cycle": cycle, "bytes": captured[session], "crc32c": starts[session][cycle // 2]}
        for cycle, session in enumerate(source("cycles")["session"].tolist())
    ]
    made = table("write_starts", *rows)
    return [
        mirror.is_sure for mirror in recognition.find(lambda name: made if name == "write_starts" else source(name))
    ]


def test_data_distinguish_stripes_from_mirrors() -> None:
    count = 20
    own = list(range(100, 100 + count))
    assert with_starts([own, own]) == [True]
    assert with_starts([own, [each + 1_000 for each in own]]) == []
    # a tenth may have changed between the two copies, not more
    assert with_starts([own, [0, 1, *own[2:]]]) == [True]
    assert with_starts([own, [0, 1, 2, *own[3:]]]) == []
    # checksums of beginnings of different lengths cannot be compared
    for captured in ((64, 65), (65, 64), (0, 64)):
        assert with_starts([own, [each + 1_000 for each in own]], captured) == [False]
    # zeros everywhere prove nothing; one superblock among them does
    assert with_starts([[7] * count, [7] * count]) == [False]
    assert with_starts([[7] * (count - 1) + [8], [7] * (count - 1) + [8]]) == [True]
    # fewer equal bytes prove nothing, but different ones prove a difference
    assert with_starts([own, own], captured=(14, 14)) == [False]
    assert with_starts([own, [each + 1_000 for each in own]], captured=(14, 14)) == []


def test_extents_that_exclude_a_stripe() -> None:
    odd = [(at, lba + 1, 3, length) for at, lba, _, length in in_order(10)]
    assert [each.mirror.is_sure for each in two(odd, odd)] == [True]
    (page,) = two(in_order(10, blocks=8), in_order(10, blocks=8))
    assert not page.mirror.is_sure
    # blocks 10,000 and on in steps of 8
    assert page.mirror.chunk_bytes == 4 * KIB
    assert "chunks of 4 KiB or less" in page.doubt
    (sure,) = two(odd, odd)
    assert [(each.kind, bool(each.doubt)) for each in (sure, page)] == [("mirror", False), ("mirror_or_stripe", True)]
    assert [each.as_dict(0)["largest_stripe_chunk_bytes"] for each in (sure, page)] == [None, 4 * KIB]
