"""The packets of one connection at neighbouring taps: by equal bytes, the core's join, and packets made by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iscsitrace.plots import ladder_columns as ladder
from iscsitrace.plots.ladder_columns import NO_TIME, LadderColumn, Taps
from iscsitrace.plots.view import View
from iscsitrace.tables.schema import CATEGORIES, TAP_TABLES
from iscsitrace.tables.table import Table
from iscsitrace.taps import crossings
from iscsitrace.taps.crossings import NOT_SEEN, Between, Crossings, PdusSeen
from iscsitrace.taps.reading import TappedTables, read_taps
from tests.support.capture_file import read_records, write_pcapng
from tests.support.recordings import captures_folder
from tests.support.runs import Runs
from tests.support.tables_by_hand import table
from tests.support.tap_captures import Fault, with_fault

MS = 1_000_000
NEAR = sorted(captures_folder().glob("*.initiator.pcap*"))
LOSSY = "mixed --one-way-delay 5ms --rate 200Mbit --block-size 64K --bytes 4M --queue-depth 3 --loss 0.5% --seed 5"
REORDERED = "read --one-way-delay 5ms --block-size 64K --bytes 4M --queue-depth 3 --set reorder=2%,3ms --seed 5"


def tapped(files: dict[str, Path], **options: Any) -> TappedTables:
    return read_taps(files, tables=("segments", "pdus", "budget"), **options)


def only(trace: TappedTables, connection: int = 0) -> Crossings:
    between = crossings.of_connection(trace, connection)
    assert between is not None
    (found,) = between.crossings
    return found


def pairs(found: Crossings) -> list[tuple[int, int]]:
    is_both = (found.near_ns != NOT_SEEN) & (found.far_ns != NOT_SEEN)
    return list(zip(found.near_ns[is_both].tolist(), found.far_ns[is_both].tolist(), strict=True))


@pytest.mark.parametrize("line", [LOSSY, REORDERED])
def test_counterparts_are_packets_of_equal_bytes(runs: Runs, line: str) -> None:
    """The simulated link changes no byte, so each packet is the same at both taps."""
    run = runs(line)
    files = {"near": run.capture(), "far": run.capture("target")}
    passed: dict[str, dict[bytes, list[int]]] = {}
    for name, file in files.items():
        for record in read_records(file)[0]:
            passed.setdefault(name, {}).setdefault(record.data, []).append(record.time_ns)
    expected: list[tuple[int, int]] = []
    lost = 0
    for data in passed["near"].keys() | passed["far"].keys():
        near, far = (passed[name].get(data, []) for name in files)
        assert 1 in {len(near), len(far)}
        expected += zip(near, far, strict=False)
        lost += abs(len(near) - len(far))
    trace = tapped(files)
    clock, found = trace.between(0, -1).clock, only(trace)
    both = [(near, int(clock.on_a(np.array([far]))[0])) for near, far in expected]
    # which of two ACKs that are alike came first nothing shows that is drawn
    own = pairs(found)
    assert [sorted(each) for each in zip(*own, strict=True)] == [sorted(each) for each in zip(*both, strict=True)]
    is_both = (found.near_ns != NOT_SEEN) & (found.far_ns != NOT_SEEN)
    of_data = [pair for pair, has_payload in zip(own, found.has_payload[is_both].tolist(), strict=True) if has_payload]
    assert not Counter(of_data) - Counter(both)
    packets = trace.networks[0].packets
    assert packets is not None
    assert int(found.is_lost.sum()) == packets.count("lost")
    # an ACK that nobody acknowledges may be missing from the capture
    assert int((~is_both).sum()) == lost == packets.count("lost") + packets.count("cannot_tell")


@pytest.mark.parametrize(
    "fault",
    [Fault(shift_ns=3_600_000 * MS, drift_ppm=120), Fault(is_translated=True), Fault(first=0.3)],
    ids=["clock", "NAT", "begins later"],
)
def test_clocks_addresses_and_first_bytes_may_differ(runs: Runs, tmp_path: Path, fault: Fault) -> None:
    run = runs(LOSSY)
    # both begin in the middle: neither has the handshake, and each counts from its first byte
    near = with_fault(run.capture(), tmp_path / "near.pcapng", Fault(first=0.1 if fault.first else 0.0))
    trace = tapped({"near": near, "far": with_fault(run.capture("target"), tmp_path / "far.pcapng", fault)})
    found, paths = only(trace), trace.networks[0].packets
    assert paths is not None
    assert len(pairs(found)) == paths.count("matched")
    assert int(found.is_lost.sum()) == paths.count("lost") > 5


def test_each_packet_passes_a_tap_in_the_middle(runs: Runs, tmp_path: Path) -> None:
    """It has the initiator's packets 1 ms later than the first tap, and the target's 1 ms earlier."""
    run = runs("read --one-way-delay 4ms --block-size 64K --bytes 1M --seed 5")
    records, link_type = read_records(run.capture())
    initiator = bytes((198, 18, 0, 10))
    moved = [replace(each, time_ns=each.time_ns + (MS if each.data[30:34] == initiator else -MS)) for each in records]
    middle = write_pcapng(tmp_path / "middle.pcapng", sorted(moved, key=lambda each: each.time_ns), link_type)
    trace = tapped({"last": run.capture("target"), "middle": middle, "first": run.capture()})
    between = crossings.of_connection(trace, 0)
    assert between is not None
    assert between.names == ("first", "middle", "last")
    for found, delay_ns in zip(between.crossings, (MS, 3 * MS), strict=True):
        delays = np.where(found.to_target, 1, -1) * (found.far_ns - found.near_ns)
        assert len(delays) == len(records)
        assert (np.abs(delays - delay_ns) < MS // 10).all()


@pytest.mark.skipif(not NEAR, reason="no recorded captures")
@pytest.mark.parametrize("near", NEAR, ids=lambda near: near.name.partition(".")[0])
def test_recorded_packets_are_those_that_the_core_joined(near: Path) -> None:
    trace = tapped({"near": near, "far": near.with_name(near.name.replace(".initiator.", ".target."))})
    packets = trace.networks[0].packets
    assert packets is not None
    for row in packets.paths.rows():
        found = only(trace, row["connection_a"])
        is_way = found.to_target == row["to_target"]
        is_both = is_way & (found.near_ns != NOT_SEEN) & (found.far_ns != NOT_SEEN)
        assert (int(is_both.sum()), int((is_way & found.is_lost).sum())) == (row["matched"], row["lost"])
        # the greatest and the least transit, on the clock of b
        apart = trace.between(0, -1).clock.offset_at(found.near_ns[is_both]) + found.far_ns[is_both]
        transits = apart - found.near_ns[is_both]
        # the drift of a delay
        assert abs(int(transits.min()) - row["least_ns"]) <= 1_000
        assert abs(int(transits.max()) - row["greatest_ns"]) <= 1_000


def segment(time_ns: int, offset: int, length: int, **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "to_target": True, "frame": time_ns, "time_ns": time_ns, "segment_class": "new"}
    return row | {"stream_offset_bytes": offset, "payload_bytes": length, "ack_offset_bytes": 7, "flags": 16} | columns


def between_by_hand(
    near: list[dict[str, Any]], far: list[dict[str, Any]], alone: tuple[dict[str, Any], ...] = ()
) -> Crossings:
    near_side, far_side = (crossings._Side.of(table("segments", *rows), 0, crossings._Scale()) for rows in (near, far))
    return crossings._both(near_side, far_side, path_losses(*alone), {True: 0, False: 0})


def path_losses(*rows: dict[str, Any]) -> Table:
    words = CATEGORIES["path_verdict"]
    columns = {
        column.name: np.array(
            [words.index(row["verdict"]) if column.name == "verdict" else row.get(column.name, 0) for row in rows],
            dtype="uint8" if column.dtype.startswith("category") else column.dtype,
        )
        for column in TAP_TABLES["path_losses"].columns
    }
    return Table(TAP_TABLES["path_losses"], columns, None, CATEGORIES)


def alone(frame: int, first: int, last: int, verdict: str = "lost_in_network", **columns: Any) -> dict[str, Any]:
    row = {"to_target": True, "is_seen_at_a": True, "frame": frame, "verdict": verdict}
    return row | {"first_offset_bytes": first, "last_offset_bytes": last} | columns


def test_offload_cuts_segments_anew() -> None:
    """One packet of 300 bytes at the sender is three at the receiver, and three of them may be merged there."""
    found = between_by_hand(
        [segment(10, 0, 300), segment(20, 300, 100), segment(21, 400, 100), segment(22, 500, 100)],
        [segment(15, 0, 100), segment(16, 100, 100), segment(17, 200, 100), segment(30, 300, 300)],
    )
    assert pairs(found) == [(10, 15), (10, 16), (10, 17), (20, 30), (21, 30), (22, 30)]


def test_the_copy_that_was_lost_has_no_counterpart() -> None:
    sent = [segment(10, 0, 100), segment(40, 0, 100, segment_class="retransmission")]
    found = between_by_hand(sent, [segment(45, 0, 100)], (alone(10, 0, 100),))
    assert pairs(found) == [(40, 45)]
    assert found.near_ns[found.is_lost].tolist() == [10]
    assert found.is_again.tolist() == [False, True]
    # without a verdict the first copy is the one that arrived
    assert pairs(between_by_hand(sent, [segment(15, 0, 100)])) == [(10, 15)]


def test_a_part_of_a_packet_may_be_lost() -> None:
    found = between_by_hand(
        [segment(10, 0, 300), segment(40, 100, 100)],
        [segment(15, 0, 100), segment(17, 200, 100), segment(45, 100, 100)],
        (alone(10, 100, 200),),
    )
    assert pairs(found) == [(10, 15), (10, 17), (40, 45)]


def test_what_a_capture_lacks_is_not_lost() -> None:
    found = between_by_hand([segment(10, 0, 100)], [], (alone(10, 0, 100, "missing_at_b"),))
    assert found.is_lost.tolist() == [False]
    assert (found.near_ns.tolist(), found.far_ns.tolist()) == ([10], [NOT_SEEN])
    found = between_by_hand([], [segment(15, 0, 100)], (alone(15, 0, 100, "missing_at_a", is_seen_at_a=False),))
    assert (found.near_ns.tolist(), found.far_ns.tolist()) == ([NOT_SEEN], [15])


def test_acks_are_known_by_what_they_acknowledge() -> None:
    sent = [segment(time, 0, 0, ack_offset_bytes=ack) for time, ack in ((10, 100), (11, 100), (12, 200), (13, 200))]
    arrived = [segment(time, 0, 0, ack_offset_bytes=ack) for time, ack in ((20, 100), (22, 200), (23, 200))]
    found = between_by_hand(sent, arrived, (alone(10, 0, 0),))
    assert pairs(found) == [(11, 20), (12, 22), (13, 23)]
    assert not found.has_payload.any()
    assert found.near_ns[found.is_lost].tolist() == [10]


# --- the columns of a ladder


def crossing(
    near: int, far: int, *, to_target: bool = True, is_lost: bool = False, has_payload: bool = True
) -> Crossings:
    marks = (np.array([each]) for each in (to_target, has_payload, False, is_lost))
    return Crossings(np.array([near]), np.array([far]), *marks)


def joined(*parts: Crossings) -> Crossings:
    names = Crossings.__dataclass_fields__
    return Crossings(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def pdus(*rows: tuple[bool, int, int, int]) -> PdusSeen:
    columns = [np.array(each) for each in zip(*rows, strict=True)]
    return PdusSeen(*columns)


BESIDE = (5_000, 80_000), (80_000, 5_000)
AWAY = (40_000, 60_000), (30_000, 70_000)


def taps(*between: Crossings, rtts: tuple[tuple[int, int], tuple[int, int]] = BESIDE) -> Taps:
    names = tuple("abc"[: len(between) + 1])
    seen = pdus((True, 0, 5, 6), (False, 48, 7, 9))
    row = dict(zip(("rtt_to_initiator_min_ns", "rtt_to_target_min_ns"), rtts[0], strict=True))
    return Taps.of(Between(names, between, tuple(seen for _ in between), rtts[1]), row)


VIEW = View(0, 0, 1_000_000)


def test_two_taps_beside_the_hosts_are_the_hosts_columns() -> None:
    found = taps(joined(crossing(10, 30), crossing(80, 60, to_target=False)))
    assert found.columns == (LadderColumn(0, "initiator", "a"), LadderColumn(1, "target", "b"))
    assert found.round_trip_ns == 40
    drawn = found.packets(table("segments"), VIEW, None)
    assert drawn["data"].times_ns.tolist() == [[10, 30], [80, 60]]
    assert found.pdu(3, 0, to_target=True, offset_bytes=0) == (3, 5)
    assert found.pdu(4, 1, to_target=True, offset_bytes=0) == (4, 6)
    assert found.pdu(4, 1, to_target=True, offset_bytes=999) == (4, None)


def test_three_taps_away_from_the_hosts() -> None:
    found = taps(crossing(100, 300), joined(crossing(300, 400), crossing(900, 700, to_target=False)), rtts=AWAY)
    assert [(column.host, column.tap) for column in found.columns] == [
        ("initiator", ""), ("", "a"), ("", "b"), ("", "c"), ("target", ""),
    ]  # fmt: skip
    assert [column.place for column in found.columns] == [0, 0.25, 0.5, 0.75, 1]
    drawn = found.packets(table("segments"), VIEW, None)["data"]
    none = NO_TIME
    # half of 40 us to the initiator, half of 70 us to the target
    assert drawn.times_ns.tolist() == [
        [100 - 20_000, 100, 300, none, none],
        [none, none, 300, 400, 400 + 35_000],
        [none, none, 900, 700, 700 - 35_000],
    ]


def test_a_lost_packet_ends_where_it_was_due() -> None:
    """The others of its direction took 20."""
    found = taps(joined(crossing(10, 30), crossing(15, NOT_SEEN, is_lost=True), crossing(16, NOT_SEEN)), rtts=AWAY)
    drawn = found.packets(table("segments"), VIEW, None)
    assert drawn["lost"].times_ns[:, 1:].tolist() == [[15, 35, NO_TIME]]
    assert drawn["unseen"].times_ns[:, 1:3].tolist() == [[16, 36]]
    assert len(drawn["data"]) == 1


def test_the_middle_and_what_is_outside_of_the_view_are_not_drawn() -> None:
    every = joined(*(crossing(time, time + 20) for time in (10, 50, 90, 2_000_000)))
    drawn = taps(every).packets(table("segments"), VIEW, (40, 60))
    assert drawn["data"].times_ns.tolist() == [[10, 30], [90, 110]]


def test_a_ladder_of_several_taps_needs_no_rtts() -> None:
    between = Between(("a", "b"), (crossing(10, 30),), (pdus((True, 0, 1, 2)),), (None, None))
    connection, packets = table("connections", {"connection": 0}), table("segments", segment(10, 0, 100))
    view, cycles = View(0, 0, 100, (0,)), table("cycles")
    found = ladder.compute(connection, cycles, packets, table("pdus"), table("budget"), view, between)
    assert found.is_of_taps
    assert found.data.times_ns.tolist() == [[10, 30]]
