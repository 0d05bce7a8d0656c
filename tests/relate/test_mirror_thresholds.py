"""Mirrors: both sides of each threshold of their recognition, causes of a late side, and sums."""

from __future__ import annotations

from functools import partial

import pytest

from iscsitrace.diagnosis.examination import examine
from iscsitrace.events import derived
from iscsitrace.findings.finding import Finding
from iscsitrace.relate.mirrors import recognition
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.table import Table
from tests.support.mirrors_by_hand import SECOND, Hosts, Write, in_order, two
from tests.support.tables_by_hand import MS, table

KIB = 1024


def shifted(asked: list[Write], later_ms: float, length: float | None = None) -> list[Write]:
    return [(at + later_ms, lba, blocks, length or lasted) for at, lba, blocks, lasted in asked]


# --- pairs


@pytest.mark.parametrize(("later_ms", "is_found"), [(2.5, True), (2.6, False)])
def test_start_times_within_a_quarter_of_a_write_may_be_coincidence(later_ms: float, is_found: bool) -> None:
    """Both write without a pause, and so do not wait for each other; a write takes 10 ms."""
    near = in_order(40, period=10.0, length=10.0)
    assert bool(two(near, shifted(near, later_ms))) == is_found


def test_the_longer_write_of_a_pair_decides_whether_they_start_together() -> None:
    """The near side takes 5 ms, the far side 10 ms, both without a pause: 2.5 ms is a quarter of 10."""
    near, far = in_order(40, period=10.0, length=5.0), in_order(40, period=10.0, length=10.0)
    assert two(near, shifted(far, 2.5))
    assert two(near, shifted(far, 2.6)) == []


@pytest.mark.parametrize(("count", "is_found"), [(8, True), (9, False)])
def test_pauses_of_both_sides_show_that_they_wait_for_each_other(count: int, is_found: bool) -> None:
    near: list[Write] = [
        (200.0 * period + 10.0 * number, 10_000 + 256 * (period * count + number), 256, 10.0)
        for period in range(10)
        for number in range(count)
    ]
    # each begins when the other is half done
    assert bool(two(near, shifted(near, 5.0))) == is_found


@pytest.mark.parametrize(("busy_ms", "is_found"), [(18.1, True), (17.9, False)])
def test_a_side_falls_behind_only_if_its_queue_was_never_idle(busy_ms: float, is_found: bool) -> None:
    """Twenty at a time on the far side, every 20 ms: of the 19.8 ms between commands it may be idle for 1.98."""
    near: list[Write] = [(0.01 * number, 10_000 + 64 * number, 64, 2.0) for number in range(100)]
    far: list[Write] = [
        (0.1 * place + 20.0 * group, 10_000 + 64 * (20 * group + place), 64, busy_ms - 0.1 * place)
        for group in range(5)
        for place in range(20)
    ]
    assert bool(two(near, far)) == is_found


def in_pieces(blocks: int) -> list[list[Write]]:
    """Four writes on one side, and the same writes block by block on the other."""
    whole: list[Write] = [(20.0 * number, 10_000 + blocks * number, blocks, 10.0) for number in range(4)]
    return [whole, [(at, lba + place, 1, 10.0) for at, lba, _, _ in whole for place in range(blocks)]]


def test_writes_are_split_into_at_most_64_pieces() -> None:
    """4096 pieces at most, for four writes as for 64."""
    whole, cut = in_pieces(1_024)
    (found,) = two(whole, cut)
    assert found.found.side_counts.tolist() == [[1, 1_024]] * 4
    assert two(*in_pieces(1_025)) == []


@pytest.mark.parametrize(("writes", "is_found"), [(-4, False), (-3, True), (4, True), (5, False)])
def test_sides_with_different_addresses_are_up_to_four_writes_apart(writes: int, is_found: bool) -> None:
    """The distance of the addresses is the most frequent one among neighbors in time: for each write of the side with
    fewer writes, the four before it and the four from it on.
    """
    near: list[Write] = [
        (1.0 * number + 50, 10_000 + 256 * (number * 7_919 % 1_009), 256, 40.0) for number in range(60)
    ]
    far = [(at + writes, lba + 70_000, blocks, length) for at, lba, blocks, length in near]
    # equally distant lowest addresses would show it too, but not here
    found = two([*near, (80.0, 8, 8, 40.0)], far)
    assert [each.mirror.offsets for each in found] == ([(0, 70_000 * 512)] if is_found else [])


# --- data on both sides


@pytest.mark.parametrize(("blocks", "is_found"), [(568, True), (569, False)])
def test_nine_tenths_of_the_bytes_have_to_be_on_both_sides(blocks: int, is_found: bool) -> None:
    """20 writes of 256 blocks are 5120; a ninth of these is 568.9, in a single write on one side only."""
    near = in_order(20)
    assert bool(two([*near, (105.0, 900_000, blocks, 5.0)], near)) == is_found


def test_a_ninth_of_the_writes_may_be_on_one_side_only() -> None:
    """Small writes: nine tenths of the number of writes have to be on both sides, too."""
    near = in_order(18)
    alone: list[Write] = [(105.0 + 20 * number, 900_000 + 8 * number, 1, 5.0) for number in range(3)]
    assert two([*near, *alone[:2]], near)
    assert two([*near, *alone], near) == []


@pytest.mark.parametrize(("after_ms", "is_found"), [(999.0, True), (1_001.0, False)])
def test_a_copy_is_written_within_a_second_after_its_read(after_ms: float, is_found: bool) -> None:
    near = in_order(100)
    copied: list[Write] = [(20.0 * number + 12, 1_000_000 + 256 * number, 256, 2.0) for number in range(20)]
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), near).ask(hosts.session("iqn.b"), near)
    hosts.ask(0, copied, "read")
    # read until 14 ms
    hosts.ask(1, shifted(copied, 2 + after_ms))
    assert bool(hosts.found()) == is_found


def test_a_read_after_the_write_is_no_copy() -> None:
    near = in_order(100)
    alone: list[Write] = [(20.0 * number + 12, 1_000_000 + 256 * number, 256, 2.0) for number in range(20)]
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), near).ask(hosts.session("iqn.b"), near)
    hosts.ask(1, alone).ask(0, shifted(alone, 3), "read")
    assert hosts.found() == []


def test_the_default_block_length_is_512() -> None:
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        hosts.ask(hosts.session(target), in_order(10, blocks=8), bytes=None)
    (found,) = hosts.found()
    assert found.as_dict(0)["bytes"] == 10 * 8 * 512


def test_the_block_length_of_4096_comes_from_most_requests() -> None:
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        session = hosts.session(target)
        hosts.ask(session, in_order(7, blocks=8), bytes=8 * 4_096)
        hosts.ask(session, [(at + 140, lba + 56, blocks, 5.0) for at, lba, blocks, _ in in_order(3, blocks=8)])
    (found,) = hosts.found()
    # of the three others the sizes are those of blocks of 512 bytes
    assert found.as_dict(0)["bytes"] == 10 * 8 * 4_096
    assert found.mirror.sides[0].block_bytes == 4_096


# --- stripe or mirror


def sure(asked: list[Write]) -> bool:
    (found,) = two(asked, asked)
    return found.mirror.is_sure


def test_eight_writes_of_no_whole_pages_are_no_stripe() -> None:
    odd = [(at, lba + 1, 3, length) for at, lba, _, length in in_order(8)]
    assert sure(odd)
    assert not sure(odd[:7])
    # beside seven such any number of whole pages proves nothing; one that ends amid a page does
    pages: list[Write] = [(200.0 + 20 * number, 80_000 + 8 * number, 8, 5.0) for number in range(30)]
    assert not sure([*odd[:7], *pages])
    assert sure([*odd[:7], *pages, (900.0, 90_000, 4, 5.0)])


def mirrors_of(checksums: list[int], captured: int) -> list[Mirror]:
    """Mirrors found, for two sides whose writes begin with these checksums over this many bytes."""
    hosts = Hosts()
    for target in ("iqn.a", "iqn.b"):
        hosts.ask(hosts.session(target), in_order(len(checksums)))
    source = hosts.source()
    rows = [{"cycle": cycle, "bytes": captured, "crc32c": each // 2} for cycle, each in enumerate(range(40))]
    made = table("write_starts", *rows)
    return recognition.find(lambda name: made if name == "write_starts" else source(name))


@pytest.mark.parametrize(("captured", "is_sure"), [(64, True), (63, False)])
def test_equal_checksums_of_64_bytes_prove_equal_data(captured: int, is_sure: bool) -> None:
    assert [mirror.is_sure for mirror in mirrors_of(list(range(20)), captured)] == [is_sure]


# --- the slower side, and the cause


def test_writes_that_end_together_have_no_slower_side() -> None:
    near = in_order(10)
    # four end at the same time, four later on the far side, two on the near one
    far = [
        (at, lba, blocks, {0: 5.0, 1: 9.0, 2: 3.0}[(number >= 4) + (number >= 8)])
        for number, (at, lba, blocks, _) in enumerate(near)
    ]
    (found,) = two(near, far)
    assert [side.last_count for side in found.sides] == [2, 4]
    assert [side.alone_ns for side in found.sides] == [2 * 2 * MS, 4 * 4 * MS]
    # 0 of four, 2 of two, 4 of four: the fifth is 2, the tenth 4
    assert found.skews == {"n": 10, "p50": 2 * MS, "p95": None, "p99": None, "max": 4 * MS}
    assert found.worst[:4].tolist() == [4, 5, 6, 7]
    document = found.as_dict(3)
    assert document["mirror"] == 3
    assert [side["last_count"] for side in document["legs"]] == [2, 4]


def test_a_write_without_a_captured_status_does_not_count_as_done() -> None:
    hosts = Hosts()
    for target, length in (("iqn.a", 5.0), ("iqn.b", 9.0)):
        hosts.ask(hosts.session(target), in_order(10, length=length))
    hosts.cycles[3]["status_ns"] = None
    (found,) = hosts.found()
    assert (len(found.found), found.known_count) == (10, 9)
    assert found.farthest.last_count == 9
    assert found.farthest.alone_ns == 9 * 4 * MS


def waits_for_the_window(loss_before: int | None) -> dict[str, int]:
    """The cause of a side whose ten writes all wait 6 ms longer for the congestion window, with a recovery of 1 ms in
    the pause before one of them.
    """
    hosts = Hosts()
    for target, window_ms in (("iqn.a", 0), ("iqn.b", 6)):
        session = hosts.session(target, rtt_ms=4)
        hosts.ask(session, in_order(10, period=100.0, length=8.0 + window_ms))
        for number in range(10):
            repair_ms = 1 if window_ms and loss_before == number + 1 else 0
            at = SECOND + 100 * MS * number
            for part, lasted_ms in (
                ("propagation", 4),
                ("transfer", 4),
                ("congestion_window", window_ms),
                ("loss_recovery", repair_ms),
                ("initiator_think", 92 - window_ms - repair_ms),
            ):
                row = {"session": session, "connection": session, "part": part, "time_first_ns": at}
                at += lasted_ms * MS
                if lasted_ms:
                    hosts.budget.append(row | {"time_last_ns": at})
    (found,) = hosts.found()
    return found.farthest.causes


def test_cwnd_waits_are_attributed_to_a_loss_only_after_it() -> None:
    assert waits_for_the_window(None) == {"congestion_window": 10 * 6 * MS}
    assert waits_for_the_window(3) == {"loss": 7 * 6 * MS, "congestion_window": 3 * 6 * MS}
    # the costliest are reported first
    assert next(iter(waits_for_the_window(8))) == "congestion_window"


def test_the_needs_of_a_side_are_those_of_its_busier_path() -> None:
    """R2Ts cost RTTs of the session that needs them."""
    hosts = Hosts()
    for target, parts, rounds in (
        ("iqn.a", (("propagation", 4), ("transfer", 4)), 1),
        ("iqn.b", (("propagation", 16), ("transfer", 4)), 3),
    ):
        session = hosts.session(target, rtt_ms=4)
        length = sum(lasted for _, lasted in parts)
        hosts.ask(session, in_order(10, period=100.0, length=float(length)), r2t_count=rounds)
        for number in range(10):
            at = SECOND + 100 * MS * number
            for part, lasted in (*parts, ("initiator_think", 100 - length)):
                row = {"session": session, "connection": session, "part": part, "time_first_ns": at}
                at += lasted * MS
                hosts.budget.append(row | {"time_last_ns": at})
    # another connection of the far session, with a longer RTT and fewer bytes
    hosts.connections[1] |= {"stream_bytes_to_target": 1_000}
    hosts.connections.append(
        hosts.connections[1] | {"connection": 2, "rtt_to_target_min_ns": 5 * MS, "stream_bytes_to_target": 999}
    )
    (found,) = hosts.found()
    # 12 ms more of RTTs, of which 8 ms are two R2T rounds that the near side did not need
    assert found.farthest.causes == {"r2t_rounds": 10 * 8 * MS}


def test_the_tables_show_which_side_was_slower() -> None:
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), in_order(5, length=5.0))
    hosts.ask(hosts.session("iqn.b"), shifted(in_order(5), 1, 9.0))
    source = hosts.source()
    rows = list(derived.make("mirrored_writes", source).rows())
    assert [row["skew_ns"] for row in rows] == [5 * MS] * 5
    assert [row["end_ns"] - row["begin_ns"] for row in rows] == [10 * MS] * 5
    assert [(row["first_session"], row["last_session"]) for row in rows] == [(0, 1)] * 5
    assert [(row["lba"], row["block_count"], row["bytes"]) for row in rows] == [
        (10_000 + 256 * number, 256, 256 * 512) for number in range(5)
    ]
    sides = list(derived.make("mirror_legs", source).rows())
    assert [(row["leg"], row["session"], row["wait_ns"]) for row in sides[:2]] == [(0, 0, 5 * MS), (1, 1, 0)]
    assert [row["end_ns"] - row["begin_ns"] for row in sides[:2]] == [5 * MS, 9 * MS]


def test_r2t_rounds_of_a_split_write_are_those_of_its_largest_piece() -> None:
    """Pieces are in flight together, and so are their R2Ts."""
    hosts = Hosts()
    hosts.ask(hosts.session("iqn.a"), in_order(5, blocks=256), r2t_count=1)
    far = hosts.session("iqn.b")
    for half, rounds in ((0, 2), (128, 3)):
        hosts.ask(far, [(at, lba + half, 128, 9.0) for at, lba, _, _ in in_order(5)], r2t_count=rounds)
    sides = list(derived.make("mirror_legs", hosts.source()).rows())
    assert [(row["cycle_count"], row["r2t_count"]) for row in sides] == [(1, 1), (2, 3)] * 5


# --- the finding


def finding_of(hosts: Hosts) -> Finding:
    """The finding of the first session."""
    made = hosts.source()

    def source(name: str) -> Table:
        return made(name) if name in ("sessions", "connections", "cycles", "budget") else table(name)

    findings = examine(source).sessions[0].findings
    return next(finding for finding in findings if finding.name == "mirror_waits_for_farthest")


def near_and_far(hosts: Hosts, session: int, gaps_ms: list[int], *, lun: int = 0) -> list[Write]:
    """The near side: writes of 5 ms followed by these gaps, and its budget. The arguments describe the far side."""
    at, far = 0, []
    for number, gap in enumerate(gaps_ms):
        lba = 10_000 + 256 * number
        hosts.ask(session, [(at, lba, 256, 5.0)], lun=lun)
        far.append((float(at), lba, 256, 5.0 + gap))
        for part, length in (("target_service", 5), ("initiator_think", gap)):
            times = {"time_first_ns": SECOND + at * MS, "time_last_ns": SECOND + (at + length) * MS}
            if part == "target_service" or number < len(gaps_ms) - 1:
                hosts.budget.append({"session": session, "connection": session, "part": part} | times)
            at += length
    return far


def test_a_side_that_mostly_waits_has_a_share_of_at_most_all_its_time() -> None:
    """155 ms of waiting in 34 ms of busy time: one wait of 150 ms counts as an idle gap between bursts."""
    hosts = Hosts()
    near, far = hosts.session("iqn.a"), hosts.session("iqn.b")
    hosts.ask(far, near_and_far(hosts, near, [1, 1, 1, 1, 150, 1]))
    finding = finding_of(hosts)
    assert finding.share == 1
    assert "155.0 ms" in finding.text
    # of half of the writes the far side's status came within 1 ms, of the slowest after 150
    assert "typically 1.0 ms after the first side, at most 150.0 ms." in finding.text


def test_the_costlier_of_two_mirrors_is_reported() -> None:
    """Two logical units of one session, each mirrored to a separate target."""
    for order in ((2, 6), (6, 2)):
        hosts = Hosts()
        near = hosts.session("iqn.a")
        for lun, gap in enumerate(order):
            far = hosts.session(f"iqn.{lun}")
            asked = near_and_far(hosts, near, [gap] * 10, lun=lun)
            hosts.ask(far, asked, lun=lun)
            if lun:
                del hosts.budget[-19:]
        # ten writes on either, of which the farther one takes 6 ms longer
        assert "60.0 ms" in finding_of(hosts).text


def test_beginnings_of_which_more_was_captured_on_one_side_are_not_compared() -> None:
    """Their checksums differ though the data may not: that is no sign of a stripe."""
    for near, far in ((10, 20), (20, 10)):
        hosts = Hosts()
        for target in ("iqn.a", "iqn.b"):
            hosts.ask(hosts.session(target), in_order(20))
        source = hosts.source()
        rows = [{"cycle": cycle, "bytes": (near, far)[cycle % 2], "crc32c": cycle} for cycle in range(40)]
        made = table("write_starts", *rows)
        found = recognition.find(
            partial(lambda made, source, name: made if name == "write_starts" else source(name), made, source)
        )
        assert [mirror.is_sure for mirror in found] == [False]


def test_writes_of_several_mirrors_have_consecutive_numbers() -> None:
    hosts = Hosts()
    for lun, asked in ((0, in_order(5)), (1, in_order(4, blocks=64, period=33.0))):
        for target in (f"iqn.a{lun}", f"iqn.b{lun}"):
            hosts.ask(hosts.session(target), asked, lun=lun)
    source = hosts.source()
    rows = list(derived.make("mirrored_writes", source).rows())
    assert sorted(row["mirror"] for row in rows) in ([0] * 5 + [1] * 4, [0] * 4 + [1] * 5)
    assert [row["mirrored_write"] for row in rows] == list(range(9))
    sides = derived.make("mirror_legs", source)
    assert sides.raw("mirrored_write").tolist() == [number for number in range(9) for _ in range(2)]
