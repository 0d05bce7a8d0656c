"""ACKs that a capture has before the packets they acknowledge change no command, and miss no byte.

So queues of a network card are written: each in order, none in step with the others.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.tables.trace import TraceTables
from tests.support.capture_file import Record, read_records, write_pcapng

ROOT = Path(__file__).parents[2]
CAPTURES = sorted(
    file
    for folder in ("samples", "tests/vectors/guests")
    for file in (ROOT / folder).glob("*/*.pcap*")
    # several interfaces, and samples of TCP_INFO
    if file.parent.name not in ("any-device", "black-out-and-relogin")
)
PORTALS = [port.to_bytes(2) for port in (860, 3260, 3261)]
SKEWS_NS = (50_000, 200_000, 1_000_000)
COLUMNS = (
    *("connection", "initiator_task_tag", "cmd_sn", "lun", "operation", "lba", "block_count", "bytes", "data_bytes"),
    *("status", "is_complete", "r2t_count"),
)


def sender(frame: bytes) -> bytes:
    """The address and port that a segment over IPv4 on Ethernet comes from."""
    port = 14 + (frame[14] & 15) * 4
    return frame[26:30] + frame[port : port + 2]


def ahead(records: Sequence[Record], senders: Set[bytes], skew_ns: int) -> list[Record]:
    """The records with those of these senders so much earlier; the times stay in order."""
    order = sorted(
        range(len(records)),
        key=lambda place: records[place].time_ns - skew_ns * (sender(records[place].data) in senders),
    )
    return [replace(records[old], time_ns=records[new].time_ns) for new, old in enumerate(order)]


def commands(trace: TraceTables) -> list[tuple[object, ...]]:
    """What is known of each command but for its times and frames, in an order of its own."""
    found = [tuple(row[name] for name in COLUMNS) for row in trace.cycles.rows()]
    return sorted(found, key=str)


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: f"{file.parent.name}-{file.name.split('.')[0]}")
def test_acks_before_their_data_change_no_command(tmp_path: Path, file: Path) -> None:
    records, link_type = read_records(file)
    whole = iscsitrace.read(file)
    expected = commands(whole)
    senders = {sender(record.data) for record in records}
    targets = {each for each in senders if each[-2:] in PORTALS}
    for first in (targets, senders - targets):
        for skew_ns in SKEWS_NS:
            moved = iscsitrace.read(write_pcapng(tmp_path / "ahead.pcapng", ahead(records, first, skew_ns), link_type))
            case = (first == targets, skew_ns)
            assert commands(moved) == expected, case
            assert moved.coverage[-1].gap_bytes == whole.coverage[-1].gap_bytes, case
            assert moved.coverage[-1].explained_bytes_share == whole.coverage[-1].explained_bytes_share, case
