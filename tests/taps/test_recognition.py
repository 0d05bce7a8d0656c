"""Taps of the same traffic are recognised, and nothing else is: by captures whose origin is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps.recognition import Recognition, Relation, recognise
from tests.support.capture_file import read_records, write_pcap, write_pcapng
from tests.support.recordings import description_of, recorded_captures
from tests.support.runs import Runs
from tests.support.tap_captures import Fault, with_fault

READS = "read --one-way-delay 4ms --block-size 64K --bytes 4M --service-delay exp:2ms --seed 5"
LARGE_PACKETS = (
    "read --one-way-delay 10ms --block-size 64K --queue-depth 2 --bytes 8M --set mss=8948 --set receive-buffer=64K"
)
WRITES = "write --one-way-delay 2ms --block-size 128K --bytes 4M --service-delay 1ms --seed 5"
RECORDED = recorded_captures()


def compared(first: Path, second: Path) -> Recognition:
    traces = [iscsitrace.read(each, tables=()) for each in (first, second)]
    return recognise(traces[0].table, traces[1].table)


# --- what is the same traffic


@pytest.mark.parametrize("line", [READS, WRITES])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(),
        Fault(shift_ns=86_400 * 10**9),
        Fault(is_translated=True, shift_ns=10**9),
        Fault(first=0.4),
        Fault(last=0.5),
        Fault(dropped=0.05),
        Fault(snaplen=128),
        Fault(snaplen=96, shift_ns=10**9),
        Fault(is_doubled=True),
        Fault(is_merged=True),
        Fault(is_translated=True, sequence_shift=99, is_recut=True),
        Fault(drift_ppm=200.0),
        Fault(step_ns=-40_000_000),
    ],
)
def test_both_ends_are_taps_in_either_order(runs: Runs, tmp_path: Path, line: str, fault: Fault) -> None:
    run = runs(line)
    far = with_fault(run.capture("target"), tmp_path / "far.pcapng", fault)
    for first, second, is_first_nearer in ((run.capture(), far, True), (far, run.capture(), False)):
        found = compared(first, second)
        assert found.relation is Relation.TAPS
        assert found.is_first_nearer == is_first_nearer
        assert found.is_translated == fault.is_translated


def test_the_nearer_tap_is_that_of_commands_that_are_whole(runs: Runs, tmp_path: Path) -> None:
    """Where large packets are cut, most statuses are those of later commands with the same tag."""
    run = runs(LARGE_PACKETS)
    near, far = (
        with_fault(run.capture(tap), tmp_path / f"{tap}.pcapng", Fault(snaplen=96)) for tap in ("initiator", "target")
    )
    for first, second, is_first_nearer in ((near, far, True), (far, near, False)):
        found = compared(first, second)
        assert found.relation is Relation.TAPS
        assert found.is_first_nearer == is_first_nearer


CUT = "read --one-way-delay 4ms --block-size 64K --queue-depth 4 --bytes 4M --set receive-buffer=24K --seed 5"


def test_taps_of_which_few_statuses_are_left(runs: Runs, tmp_path: Path) -> None:
    """A small window moves most headers within their segments, beyond the snaplen: the commands alone, all of one
    direction, look like the same packets at both taps.
    """
    run = runs(CUT)
    sides = [
        with_fault(run.capture(tap), tmp_path / f"{tap}.pcapng", Fault(snaplen=96)) for tap in ("initiator", "target")
    ]
    assert compared(*sides).relation is Relation.TAPS
    assert compared(sides[0], sides[0]).relation is Relation.COPY


def test_taps_where_every_command_has_a_retransmission(runs: Runs, tmp_path: Path) -> None:
    """Jitter that reorders makes TCP retransmit in every write of 64 KiB; the captures begin after the login."""
    run = runs(
        "write --one-way-delay 20ms --rate 2Gbit --set jitter=5ms --set jitter-reorders=yes --block-size 64K --seed 5"
    )
    near, far = (
        with_fault(run.capture(tap), tmp_path / f"{tap}.pcapng", Fault(first=0.2)) for tap in ("initiator", "target")
    )
    assert iscsitrace.read(far, tables=()).cycles.raw("has_retransmission").all()
    assert compared(near, far).relation is Relation.TAPS


def test_sessions_with_the_same_first_commands_are_all_compared(runs: Runs) -> None:
    """Twenty logins, each followed by the same commands: more than say which connection is which."""
    run = runs("read --one-way-delay 1ms --block-size 4K --bytes 2M --sessions 20 --seed 4")
    found = compared(run.capture(), run.capture("target"))
    assert found.relation is Relation.TAPS
    assert [(pair.at_a, pair.at_b) for pair in found.matched.connections] == [(number, number) for number in range(20)]
    assert len(found.matched) == len(iscsitrace.read(run.capture(), tables=()).cycles)


def test_taps_that_overlap_in_part(runs: Runs, tmp_path: Path) -> None:
    run = runs(READS)
    near = with_fault(run.capture(), tmp_path / "near.pcapng", Fault(last=0.7))
    far = with_fault(run.capture("target"), tmp_path / "far.pcapng", Fault(first=0.3))
    assert compared(near, far).relation is Relation.TAPS


@pytest.mark.skipif(not RECORDED, reason="no recorded captures")
def test_of_all_recorded_captures_only_those_of_both_ends_are_taps() -> None:
    """More than a thousand pairs, most of the same two hosts, with the same first commands after every login."""
    traces: dict[Path, TraceTables] = {file: iscsitrace.read(file, tables=()) for file in RECORDED}
    found, true = set(), set()
    for first, second in itertools.combinations(RECORDED, 2):
        recognition = recognise(traces[first].table, traces[second].table)
        if recognition.relation is not Relation.OTHER:
            found.add((first.name, second.name, recognition.relation, recognition.is_first_nearer))
        if description_of(first) == description_of(second):
            true.add((first.name, second.name, Relation.TAPS, ".initiator." in first.name))
    assert len(true) >= 10
    assert found == true


# --- what is not


def part(source: Path, file: Path, first: float, last: float) -> Path:
    return with_fault(source, file, Fault(first=first, last=last))


@pytest.mark.parametrize("line", [READS, WRITES])
@pytest.mark.parametrize("cuts", [(0.0, 0.5, 1.0), (0.0, 0.2, 1.0), (0.0, 0.3, 0.6)])
def test_parts_of_a_ring_are_not_taps(runs: Runs, tmp_path: Path, line: str, cuts: tuple[float, float, float]) -> None:
    whole = runs(line).capture()
    first, second = part(whole, tmp_path / "1", *cuts[:2]), part(whole, tmp_path / "2", *cuts[1:])
    assert compared(first, second).relation is Relation.OTHER


@pytest.mark.parametrize(
    "line",
    [
        READS.replace("4ms", "8ms"),
        READS.replace("4ms", "4.01ms"),
        READS.replace("exp:2ms", "exp:2.2ms"),
        READS.replace("exp:2ms", "0s"),
        READS + " --set initiator-host-delay=0.1ms",
        READS + " --set target-host-delay=0.1ms",
        READS + " --rate 1Gbit",
        READS + " --set jitter=1ms",
        READS + " --loss 1%",
        READS + " --think-time 1ms",
        READS.replace("--seed 5", "--seed 6"),
        READS.replace("64K", "32K"),
        READS + " --random",
        READS.replace("read ", "write "),
        READS + " --queue-depth 2",
    ],
)
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_runs_with_the_same_tags_and_addresses_at_other_times_are_not_taps(runs: Runs, line: str, tap: str) -> None:
    """The simulation repeats ports, ISNs, tags, CmdSN, ISID and TSIH: only the times differ."""
    assert compared(runs(READS).capture(), runs(line).capture(tap)).relation is Relation.OTHER


@pytest.mark.parametrize(
    "line",
    [READS.replace("4ms", "8ms"), READS.replace("--seed 5", "--seed 6"), READS + " --loss 1%"],
)
def test_runs_whose_snaplen_cuts_the_cdbs_are_not_taps(runs: Runs, tmp_path: Path, line: str) -> None:
    """Without CDBs the commands of all these runs are alike."""
    other = with_fault(runs(line).capture("target"), tmp_path / "cut.pcapng", Fault(snaplen=96))
    assert compared(runs(READS).capture(), other).relation is Relation.OTHER


@pytest.mark.parametrize("snaplen", [66, 78, 86, 90])
def test_headers_cut_within_their_numbers_are_no_error(runs: Runs, tmp_path: Path, snaplen: int) -> None:
    """Task tags may be left where no CmdSN is: nothing then tells whose answer a response is."""
    sides = [
        with_fault(runs(READS).capture(side), tmp_path / f"{side}.pcapng", Fault(snaplen=snaplen))
        for side in ("initiator", "target")
    ]
    assert compared(*sides).relation is not Relation.TAPS


def shifted(source: Path, file: Path) -> Path:
    return with_fault(source, file, Fault(shift_ns=-7_200 * 10**9))


def in_microseconds(source: Path, file: Path) -> Path:
    records, link_type = read_records(source)
    return write_pcap(file, records, link_type, is_nanoseconds=False)


def cut(source: Path, file: Path) -> Path:
    return with_fault(source, file, Fault(snaplen=128))


def thinned(source: Path, file: Path) -> Path:
    return with_fault(source, file, Fault(dropped=0.02))


@pytest.mark.parametrize("change", [lambda source, _: source, shifted, in_microseconds, cut, thinned])
@pytest.mark.parametrize("line", [READS, WRITES])
def test_the_same_packets_twice_are_no_second_tap(
    runs: Runs, tmp_path: Path, line: str, change: Callable[[Path, Path], Path]
) -> None:
    source = runs(line).capture()
    assert compared(source, change(source, tmp_path / "copy.pcap")).relation is Relation.COPY


def test_a_later_login_of_the_same_host_is_not_the_first(tmp_path: Path, runs: Runs) -> None:
    """The same run an hour later, from the next port: the next TSIH is all that a login changes besides."""
    run = runs(READS)
    records, link_type = read_records(run.capture("target"))
    # the TSIH of every Login Response with one: bytes 14 and 15 of the basic header segment, behind 66 bytes of headers
    renumbered = [
        replace(each, data=each.data[:80] + b"\x00\x77" + each.data[82:])
        if len(each.data) > 114 and each.data[66] & 0x3F == 0x23
        else each
        for each in records
    ]
    other = write_pcapng(tmp_path / "other.pcapng", renumbered, link_type)
    assert compared(run.capture(), other).relation is Relation.OTHER


def test_captures_without_commands_in_common_are_other_traffic(runs: Runs) -> None:
    assert compared(runs(READS).capture(), runs(WRITES).capture("target")).relation is Relation.OTHER
