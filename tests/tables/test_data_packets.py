"""The packets with data of each command, against those of tshark: of each byte, the first packet with it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from tests.support import tshark
from tests.support.runs import Runs

SAMPLES = Path(__file__).parents[2] / "samples"
FIELDS = ("frame.number", "tcp.stream", "tcp.srcport", "tcp.seq", "tcp.len")
COMMAND, DATA_OUT, DATA_IN = 0x01, 0x05, 0x25
CAPTURES = {
    "reads one by one": "read --bytes 2M --block-size 128K --one-way-delay 1ms",
    "held statuses": "read --bytes 1M --block-size 127.5K --one-way-delay 1ms --set status=apart-held",
    "small reads at once": "read --bytes 1M --block-size 4K --queue-depth 16 --one-way-delay 1ms",
    "small Data-In": "read --bytes 1M --block-size 64K --queue-depth 8 --key MaxRecvDataSegmentLength=1024",
    "writes with R2T": "write --bytes 2M --block-size 256K --queue-depth 4 --one-way-delay 1ms",
    "losses": "mixed --bytes 4M --block-size 64K --queue-depth 8 --one-way-delay 2ms --loss 3% --seed 5",
    "no SACK": "write --bytes 4M --block-size 64K --queue-depth 8 --one-way-delay 2ms --loss 3% --seed 5 --set sack=no",
    "reordering": "read --bytes 4M --block-size 64K --queue-depth 8 --one-way-delay 2ms --set reorder=5%,2ms",
    "connections": "mixed --bytes 4M --block-size 16K --queue-depth 8 --connections 2 --one-way-delay 1ms",
}


def owners(capture: Path) -> dict[tuple[int, int], Any]:
    """The frame that brought each byte first, by connection and port of the sender; 0 for none."""
    options = [word for name in FIELDS for word in ("-e", name)]
    printed = tshark.run(capture, "-Y", "tcp", "-T", "fields", *options, "-o", "tcp.desegment_tcp_streams:FALSE")
    packets = [tuple(int(each) for each in line.split("\t")) for line in printed.splitlines()]
    ends: dict[tuple[int, int], int] = {}
    for _, stream, port, seq, length in packets:
        ends[stream, port] = max(seq - 1 + length, ends.get((stream, port), 0))
    found = {sender: np.zeros(end, dtype=np.int64) for sender, end in ends.items()}
    for frame, stream, port, seq, length in packets:
        if length:
            own = found[stream, port][seq - 1 : seq - 1 + length]
            own[own == 0] = frame
    return found


def different(numbers: Any) -> set[int]:
    """The numbers that occur: of successive bytes most have the same."""
    return {*numbers[np.diff(numbers, prepend=-1) != 0].tolist()}


def by_tshark(trace: iscsitrace.Trace, capture: Path) -> dict[int, int]:
    """The packets of each command: those that brought a byte of its data segments first."""
    ports = {row["connection"]: (row["target_port"], row["initiator_port"]) for row in trace.connections.rows()}
    streams = owners(capture)
    frames: dict[int, set[int]] = {row: set() for row in range(len(trace.cycles))}
    for pdu in trace.pdus.rows():
        if pdu["cycle"] is None or pdu["opcode"] not in (COMMAND, DATA_OUT, DATA_IN):
            continue
        start = pdu["stream_offset_bytes"] + 48
        stream = streams[pdu["connection"], ports[pdu["connection"]][pdu["to_target"]]]
        frames[pdu["cycle"]] |= different(stream[start : start + pdu["data_segment_length"]]) - {0}
    return {row: len(found) for row, found in frames.items()}


def counted(trace: iscsitrace.Trace) -> dict[int, int]:
    return dict(enumerate(trace.cycles["data_packet_count"].tolist()))


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("options", CAPTURES.values(), ids=CAPTURES)
def test_simulated(runs: Runs, options: str, tap: str) -> None:
    capture = runs(options).capture(tap)
    trace = iscsitrace.read(capture)
    found = by_tshark(trace, capture)
    assert counted(trace) == found
    assert sum(found.values()) > len(found)


@pytest.mark.parametrize(
    "name",
    [
        "any-device", "black-out-and-relogin", "loss-1-percent", "reordering", "sequential-read-4ms",
        "two-connections-one-session", "write-r2t-rounds",
    ],
)  # fmt: skip
def test_samples(name: str) -> None:
    (capture,) = (SAMPLES / name).glob("capture.*")
    trace = iscsitrace.read(capture)
    assert counted(trace) == by_tshark(trace, capture)


def test_a_snaplen_that_cut_headers_away_hides_no_packet() -> None:
    """The reads of 512 KiB come in two Data-In; the header of the second one is cut away, and it has no row in pdus."""
    (capture,) = (SAMPLES / "snaplen-128").glob("capture.*")
    trace = iscsitrace.read(capture)
    streams = owners(capture)
    (target_port,) = trace.connections["target_port"].tolist()
    found = by_tshark(trace, capture)
    for pdu in trace.pdus.rows():
        if pdu["opcode"] == DATA_IN and trace.cycles["bytes"][pdu["cycle"]] == 2 * pdu["data_segment_length"] > 1 << 18:
            start = pdu["stream_offset_bytes"] + 48
            length = pdu["data_segment_length"]
            both = np.concatenate([streams[0, target_port][at : at + length] for at in (start, start + length + 48)])
            found[pdu["cycle"]] = len(set(both.tolist()))
    assert sum(count > 300 for count in found.values()) == 4
    assert counted(trace) == found


def test_a_read_of_the_read_study(runs: Runs) -> None:
    """127.5 KiB and a header in segments of 1448 bytes: 91 packets; its command and its Response are two more."""
    cycles = iscsitrace.read(runs(CAPTURES["held statuses"]).capture()).cycles
    reads = cycles[cycles["operation"] == "read"]
    whole = reads[reads["bytes"] == 130_560]
    assert len(whole) > 3
    assert set(whole["data_packet_count"].tolist()) == {-(-(130_560 + 48) // 1448)}
    others = cycles[cycles["operation"] == "test_unit_ready"]
    assert set(others["data_packet_count"].tolist()) <= {0}


def test_packets_of_two_commands_count_for_both(runs: Runs) -> None:
    cycles = iscsitrace.read(runs(CAPTURES["small reads at once"]).capture()).cycles
    reads = cycles[cycles["operation"] == "read"]
    # alone 4144 bytes take three packets; behind others they may begin in one of theirs
    assert {*reads["data_packet_count"].tolist()} > {3}
