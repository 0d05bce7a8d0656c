"""Loads by LUN, operation, initiator, target, I/O size and volume: by hand, and against a plain loop over rows."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.relate import volumes
from iscsitrace.relate.loads import NAMES, NEEDED, Loads
from tests.relate.test_volumes import NAA, Host
from tests.support.histories import SECOND
from tests.support.tables_by_hand import MS

SAMPLES = Path(__file__).parents[2] / "samples"


def two_luns() -> Host:
    host = Host()
    host.session(0, 30)
    host.unit(0, 0, designator=NAA).unit(0, 1)
    # LUN 0: 40 reads of 5 ms, one after another; LUN 1: one read of 3 s
    host.reads(0, 1.0, 40)
    host.read(0, 2.0, 5.0, lun=1, bytes=4096, data_bytes=4096)
    return host


def test_the_figures_of_a_load() -> None:
    slow, fast = Loads(two_luns().source()).by("lun")
    assert (slow.label, fast.label) == ("LUN 1 of iqn.t", "LUN 0 of iqn.t")
    assert (fast.command_count, fast.bytes, fast.busy_ns) == (40, 40 * 16_384, 200 * MS)
    assert (fast.iops, fast.bytes_per_s) == (200.0, 40 * 16_384 / 0.2)
    # a p99 takes a hundred values
    assert fast.latency_ns == {"n": 40, "p50": 5 * MS, "p95": 5 * MS, "p99": None, "max": 5 * MS}
    assert (slow.busy_ns, slow.latency_ns["max"], slow.latency_ns["p95"]) == (3 * SECOND, 3 * SECOND, None)
    assert (slow.waiting_count, slow.error_count, slow.is_hung) == (0, 0, False)


def test_a_command_without_a_status_comes_first() -> None:
    host = two_luns()
    host.read(0, 29.0, None)
    first, second = Loads(host.source()).by("lun")
    # the read that never ended waited for a second: longer than any of its LUN, though less than those of the other
    assert (first.label, first.is_hung, first.waiting_count, first.waiting_ns) == ("LUN 0 of iqn.t", True, 1, SECOND)
    assert first.busy_ns == 200 * MS + SECOND
    assert (first.latency_ns["n"], first.latency_ns["max"], first.latency_ns["open_count"]) == (41, SECOND, 1)
    assert second.label == "LUN 1 of iqn.t"


def test_one_that_had_just_begun_when_the_capture_ended_does_not() -> None:
    host = two_luns()
    host.read(0, 29.999, None)
    slow, fast = Loads(host.source()).by("lun")
    assert (slow.label, fast.is_hung, fast.waiting_count, fast.waiting_ns) == ("LUN 1 of iqn.t", False, 1, MS)


def test_a_status_that_the_capture_missed_is_no_wait() -> None:
    host = two_luns()
    host.read(0, 10.0, None, has_capture_gap=True)
    fast = Loads(host.source()).by("lun")[1]
    assert (fast.command_count, fast.waiting_count, fast.waiting_ns, fast.busy_ns) == (41, 0, 0, 200 * MS)


def test_errors_are_statuses_that_a_healthy_device_does_not_have() -> None:
    host = two_luns()
    sense = {"status": 2, "sense_key": None, "asc": None, "ascq": None}
    for columns in (
        # medium error; UNIT ATTENTION, power on or reset; BUSY
        sense | {"sense_key": 3, "asc": 0x11, "ascq": 0},
        sense | {"sense_key": 6, "asc": 0x29, "ascq": 0},
        {"status": 8},
    ):
        host.rows["cycles"][host.read(0, 6.0, 6.1)] |= columns
    assert {load.label: load.error_count for load in Loads(host.source()).by("lun")}["LUN 0 of iqn.t"] == 2


def test_non_io_commands_count_by_operation_alone() -> None:
    host = two_luns()
    host.read(0, 8.0, 9.0, operation="inquiry", bytes=96, data_bytes=96)
    loads = Loads(host.source())
    assert [(load.label, load.command_count) for load in loads.by("operation")] == [("read", 41), ("inquiry", 1)]
    assert sum(load.command_count for load in loads.by("lun")) == 41
    assert [(load.label, load.command_count) for load in loads.by("size")] == [("4K", 1), ("16K", 40)]


def test_by_initiator_target_and_volume() -> None:
    host = two_luns()
    host.session(0, 30, initiator_name="iqn.j", target_name="iqn.u")
    host.unit(1, 7, designator=NAA).read(1, 20.0, 21.0, lun=7)
    loads = Loads(host.source())
    assert [(load.label, load.command_count) for load in loads.by("initiator")] == [("iqn.i", 41), ("iqn.j", 1)]
    assert [(load.label, load.command_count) for load in loads.by("target")] == [("iqn.t", 41), ("iqn.u", 1)]
    by_volume = loads.by("volume")
    assert [load.label for load in by_volume] == ["LUN 1 of iqn.t", "LUN 7 of iqn.u", "LUN 0 of iqn.t"]
    document = by_volume[1].as_dict()
    assert {name: document[name] for name in ("known_by", "identity", "initiator", "targets", "luns")} == {
        "known_by": "designator", "identity": NAA, "initiator": "iqn.j", "targets": ["iqn.u"], "luns": [7],
    }  # fmt: skip
    assert (document["outage_ns"], document["outage_spans"]) == (0, [])


def test_a_volume_has_its_outage_and_its_spans() -> None:
    host = two_luns()
    host.read(0, 6.0, 16.0)
    host.time(0, 6.0, 16.0, "outage")
    # LUN 1 works all along, so that only LUN 0 is out
    for place in range(100):
        host.read(0, 6.0 + place / 10, 6.1 + place / 10, lun=1)
    documents = {load.label: load.as_dict() for load in Loads(host.source()).by("volume")}
    assert documents["LUN 0 of iqn.t"]["outage_ns"] == 10 * SECOND
    assert documents["LUN 1 of iqn.t"]["outage_ns"] == 3 * SECOND
    assert len(documents["LUN 0 of iqn.t"]["outage_spans"]) == 1


def test_nothing_has_no_loads() -> None:
    loads = Loads(Host().source())
    assert {name: loads.by(name) for name in NAMES} == {name: [] for name in NAMES}


@pytest.mark.parametrize("name", ["task-abort-storage-hang", "two-connections-one-session"])
@pytest.mark.parametrize("by", ["operation", "size", "lun", "volume"])
def test_against_a_loop_over_the_rows(name: str, by: str) -> None:
    (file,) = (SAMPLES / name).glob("capture.*")
    trace = iscsitrace.read(file, tables=NEEDED)
    volume_of = {(each.session, each.lun): one.number for one in volumes.find(trace.table).all for each in one.members}
    purposes = {"read", "write", "unmap", "write_same", "compare_and_write", "verify"}
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in trace.cycles.rows():
        if by != "operation" and row["operation"] not in purposes:
            continue
        key = {
            "operation": row["operation"],
            "size": row["bytes"],
            "lun": row["lun"],
            "volume": volume_of.get((row["session"], row["lun"])),
        }
        groups.setdefault(key[by], []).append(row)
    expected = set()
    for rows in groups.values():
        # in the sample no command was cut off by the end of the capture: those without a status never got one
        without = sum(row["status_ns"] is None and not row["has_capture_gap"] for row in rows)
        latencies = sorted(row["latency_ns"] for row in rows if row["latency_ns"] is not None) + [None] * without
        median = latencies[ceil(len(latencies) / 2) - 1] if latencies else None
        expected.add((len(rows), sum(row["data_bytes"] for row in rows), len(latencies), median))
    loads = Loads(trace.table).by(by)
    assert expected == {
        (load.command_count, load.bytes, load.latency_ns["n"], load.latency_ns["p50"]) for load in loads
    }
    assert len(loads) == len(groups)
