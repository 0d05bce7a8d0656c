"""Packets that a router between two hosts of one subnet sends on: each passes the tap twice, with another TTL and other
MAC addresses. They are no retransmissions, and times are those of the first copy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.conformance.conversations import made
from tests.support.capture_file import Record, read_records, write_pcapng
from tests.support.transport import ETHERNET

LOAD = "read --block-size 32K --one-way-delay 1ms --rate 200Mbit --bytes 4M"
ROUTER_NS = 30_000
_TTL, _SOURCE = 22, slice(26, 30)
INITIATOR = bytes([198, 18, 0, 1])


def routed(record: Record) -> Record:
    """The packet behind the router."""
    frame = bytearray(record.data)
    frame[:12] = bytes([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8])
    frame[_TTL] -= 1
    return Record(record.time_ns + ROUTER_NS, bytes(frame), record.original_length)


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("is_one_way", [False, True])
def test_a_router_beside_the_hosts_changes_no_measure(tap: str, is_one_way: bool, tmp_path: Path) -> None:
    folder = made(LOAD, tmp_path / "run")
    records, _ = read_records(folder / f"{tap}.pcapng")
    again = [routed(each) for each in records if not is_one_way or each.data[_SOURCE] == INITIATOR]
    both = sorted([*records, *again], key=lambda record: record.time_ns)
    plain = iscsitrace.read(folder / f"{tap}.pcapng", tables=NEEDED)
    twice = iscsitrace.read(write_pcapng(tmp_path / "twice.pcapng", both, ETHERNET), tables=NEEDED)
    (found,), (expected,) = list(twice.connections.rows()), list(plain.connections.rows())
    assert found["copied_packets_to_target"] + found["copied_packets_to_initiator"] == len(again)
    same = [
        f"{name}_{direction}{unit}"
        for direction in ("to_target", "to_initiator")
        for name, unit in (
            ("packets", ""),
            ("retransmitted_packets", ""),
            ("reordered_packets", ""),
            ("rtt", "_min_ns"),
        )
    ]
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}
    assert len(twice.violations) == 0
    headlines = [examine(trace.table).headline for trace in (twice, plain)]
    assert headlines[0] == headlines[1]
