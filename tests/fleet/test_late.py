"""A ring that grows from run to run, with first packets that are not in the order of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.fleet import history
from iscsitrace.fleet.history import TapHistory
from tests.support import rings
from tests.support.capture_file import write_pcapng
from tests.support.transport import Packet

NAMES = tuple(f"eth0_{number:05}_20231114235959.pcapng" for number in (1, 2, 3, 5))
"""The ring has dropped its fourth file."""


def pieces() -> list[list[Packet]]:
    """Four files; the third begins with a packet from before the first one of the second."""
    packets = rings.traffic(11)
    return [
        packets[:40],
        [packets[41], packets[42]],
        [packets[40], *packets[44:70], packets[71]],
        [packets[43], packets[70], *packets[72:]],
    ]


def write(ring: Path, names: tuple[str, ...] = NAMES) -> list[Path]:
    """The files, beside the folder of the ring."""
    ring.mkdir()
    return [write_pcapng(ring.parent / name, each, rings.LINK_TYPE) for name, each in zip(names, pieces(), strict=True)]


def stream(count: int) -> list[Packet]:
    """The packets of the first files, one after another."""
    return [packet for piece in pieces()[:count] for packet in piece]


@pytest.mark.parametrize("runs", [(4,), (1, 2, 3, 4), (2, 4), (3, 4), (1, 4)])
def test_files_that_come_later_are_one_stream_with_those_before(tmp_path: Path, runs: tuple[int, ...]) -> None:
    times = [piece[0].time_ns for piece in pieces()]
    assert times[0] < times[2] < times[1] < times[3]
    files = write(tmp_path / "ring")
    done = 0
    for count in runs:
        for path in files[done:count]:
            path.rename(tmp_path / "ring" / path.name)
        (outcome,) = rings.read_ring(tmp_path / "data", tmp_path / "ring", f"run{count}")
        assert outcome.statuses == {history.READ: count - done}
        rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path / "one", stream(count)))
        done = count


@pytest.mark.parametrize(
    ("names", "late"),
    [
        # the third is there first: the second is before it by its number, though it begins later
        (NAMES, 1),
        # names without numbers: the third is before the second by its time
        (("a.pcapng", "b.pcapng", "c.pcapng", "d.pcapng"), 2),
        # another ring has no numbers in common
        ((*NAMES[:2], "eth1_00003_20231114235959.pcapng", NAMES[3]), 2),
    ],
)
def test_a_file_before_those_that_were_read_is_late(tmp_path: Path, names: tuple[str, ...], late: int) -> None:
    files = write(tmp_path / "ring", names)
    for place in (0, 3 - late):
        files[place].rename(tmp_path / "ring" / names[place])
    rings.read_ring(tmp_path / "data", tmp_path / "ring", "first")
    files[late].rename(tmp_path / "ring" / names[late])
    (outcome,) = rings.read_ring(tmp_path / "data", tmp_path / "ring", "second")
    assert outcome.statuses == {history.LATE: 1}
    files[3].rename(tmp_path / "ring" / names[3])
    (outcome,) = rings.read_ring(tmp_path / "data", tmp_path / "ring", "third")
    assert outcome.statuses == {history.READ: 1}
    read = [packet for place in (0, 3 - late, 3) for packet in pieces()[place]]
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path / "one", read))
    assert TapHistory(tmp_path / "data", "a").entries[names[late]].status == history.LATE
