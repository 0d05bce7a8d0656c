"""The order of captures, the taps of what is named, and the place of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet.captures import Capture, Tap, taps_of
from iscsitrace.fleet.rows import DECLARED, columns_of
from iscsitrace.fleet.task import Destination, plan
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support import rings


@pytest.mark.parametrize("name", DECLARED)
def test_every_table_has_a_first_frame_and_a_first_time_or_none(name: str) -> None:
    frames, times = columns_of(name)
    columns = [column.name for column in DECLARED[name].columns]
    if not frames:
        assert not any("frame" in each for each in columns) or name == "senders"
    if not times:
        assert name in ("parameters", "write_starts", "senders", "counters")


def test_captures_are_in_order_of_their_first_packets_whatever_their_names(tmp_path: Path) -> None:
    packets = rings.traffic(9)
    files = rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 3, 9))
    # the host's clock time was set back at the end of summer time, and the ring's numbers began again
    names = ["eth0_00007_20231029025959.pcapng", "eth0_00001_20231029020001.pcapng", "eth0_00002_20231029020002.pcapng"]
    for path, name in zip(files, names, strict=True):
        path.rename(path.with_name(name))
    (work,) = plan(Destination(tmp_path / "data", "x", DEFAULT_TABLES, "1"), Tap("a", (str(tmp_path / "ring"),))).works
    assert [each.name for each in work.captures] == names
    assert Capture("a_9.pcap", "", 0, 5).order < Capture("a_10.pcap", "", 0, 5).order


def test_files_whose_packets_are_out_of_order_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Packets of two capture queues: the first of a file can be earlier than the first of the file before."""
    packets = rings.traffic(9)
    swapped = [*packets[:100], packets[101], packets[100], *packets[102:]]
    files = rings.cut(tmp_path / "ring", swapped, [50, 100, 101])
    (work,) = plan(Destination(tmp_path / "data", "x", DEFAULT_TABLES, "1"), Tap("a", (str(tmp_path / "ring"),))).works
    assert work.captures[2].order > work.captures[3].order
    assert [each.name for each in work.captures] == [path.name for path in files]


def test_the_rings_of_what_is_named_are_taps(tmp_path: Path) -> None:
    one, two = tmp_path / "host1", tmp_path / "two"
    for folder, names in (
        (one, ("eth0_00001_20231029025959.pcapng", "eth0_00002_20231029025959.pcapng.gz", "notes.txt")),
        (two, ("eth0_00001_20231029025959.pcapng", "eth[1]_00001_20231029025959.pcapng", "x.pcap", "x.pcap1")),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    assert taps_of([str(one)]) == [Tap("host1", (str(one),))]
    found = {tap.name: tap for tap in taps_of([str(two)])}
    assert sorted(found) == ["eth-1-", "eth0", "x"]
    plans = {name: plan(Destination(tmp_path / "d", "r", DEFAULT_TABLES, "1"), tap) for name, tap in found.items()}
    listed = {name: sorted(each.name for work in of.works for each in work.captures) for name, of in plans.items()}
    assert listed == {
        "eth0": ["eth0_00001_20231029025959.pcapng"],
        "eth-1-": ["eth[1]_00001_20231029025959.pcapng"],
        "x": ["x.pcap", "x.pcap1"],
    }
    files = [str(path) for path in sorted(one.glob("eth0_*"))]
    assert taps_of(files) == [Tap("eth0", tuple(files))]
    assert taps_of([f"a={one}", f"a={two}"]) == [Tap("a", (str(one), str(two)))]
    with pytest.raises(InputInvalid, match="two sources have the name eth0"):
        taps_of([str(one / "eth0_00001_20231029025959.pcapng"), str(two / "eth0_00001_20231029025959.pcapng")])
    with pytest.raises(InputInvalid, match="No such file"):
        taps_of([str(tmp_path / "missing")])


def test_a_fleet_file_names_taps_and_sources_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(
        '[[tap]]\nname = "host1"\nsources = ["ring", "sftp://host/captures"]\n'
        '[[tap]]\nname = "host2"\nsources = ["/abs"]\n'
    )
    assert taps_of([str(file)]) == [
        Tap("host1", (str(tmp_path / "ring"), "sftp://host/captures")),
        Tap("host2", ("/abs",)),
    ]
    for text in ("x = 1", '[[tap]]\nname = "1"\nsources = ["a"]', '[[tap]]\nname = "a"', "no toml"):
        file.write_text(text)
        with pytest.raises(InputInvalid, match=r"fleet\.toml"):
            taps_of([str(file)])
