"""Outages of volumes: over paths, beside other logical units, and equal to those of sessions where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.measure.budget import PARTS
from iscsitrace.relate import volumes
from iscsitrace.relate.outages import outages_of_volumes
from tests.relate.test_volumes import NAA, OTHER_NAA, Host
from tests.support.histories import at
from tests.support.recordings import recorded_captures

VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "guests").glob("*/*.pcapng.gz"))

Seconds = dict[int, list[tuple[float, float]]]


def found(host: Host) -> Seconds:
    """The outages of each volume, in seconds since the start."""
    source = host.source()
    outages = outages_of_volumes(source, volumes.find(source))
    return {
        number: [((first - at(0)) / 1e9, (last - at(0)) / 1e9) for first, last in spans]
        for number, spans in outages.items()
    }


def one_session(luns: int = 2) -> Host:
    host = Host()
    host.session(0, 30)
    for lun in range(luns):
        host.unit(0, lun, designator=(NAA, OTHER_NAA)[lun])
    return host


def busy(host: Host, lun: int, first: float, last: float, session: int = 0) -> None:
    """Reads of 100 ms, one after another."""
    for start in np.arange(first, last - 0.05, 0.1).tolist():
        host.read(session, start, start + 0.1, lun=lun)


def test_one_logical_unit_hangs_while_another_works() -> None:
    host = one_session()
    busy(host, 0, 0.0, 10.0)
    busy(host, 1, 0.0, 2.0)
    host.read(0, 2.0, 7.5, lun=1)
    host.read(0, 3.0, 7.6, lun=1)
    assert found(host) == {1: [(2.0, 7.5)]}


def test_a_command_that_never_ends_waits_as_long_as_its_session() -> None:
    host = one_session()
    busy(host, 0, 0.0, 10.0)
    busy(host, 1, 0.0, 2.0)
    row = host.rows["cycles"][host.read(0, 2.0, None, lun=1)]
    row |= {"end_ns": at(20.0), "ended_by": "connection_end", "is_lost": True}
    assert found(host) == {1: [(2.0, 30.0)]}
    # until it was aborted
    row |= {"end_ns": at(14.0), "ended_by": "abort"}
    assert found(host) == {1: [(2.0, 14.0)]}
    # a status that the capture missed says nothing
    host.rows["cycles"][-1]["has_capture_gap"] = True
    assert found(host) == {}


def test_progress_of_the_same_volume_ends_it_and_of_another_does_not() -> None:
    host = one_session()
    busy(host, 0, 0.0, 10.0)
    host.read(0, 2.0, 9.0, lun=1)
    for start in (3.5, 3.9, 5.5):
        host.read(0, start, start + 0.1, lun=1)
    # no time of a second between 3.6 and 4.0
    assert found(host) == {1: [(2.0, 3.6), (4.0, 5.6), (5.6, 9.0)]}


def test_a_transfer_is_progress() -> None:
    host = one_session()
    busy(host, 0, 0.0, 10.0)
    busy(host, 1, 0.0, 1.0)
    row = host.rows["cycles"][host.read(0, 2.0, 9.0, lun=1)]
    row |= {"data_first_ns": at(3.2), "data_last_ns": at(8.5)}
    assert found(host) == {1: [(2.0, 3.2)]}


def test_a_slow_flush_is_no_outage_and_a_failed_one_is() -> None:
    for status, expected in ((0, {}), (2, {1: [(2.0, 9.0)]})):
        host = one_session()
        busy(host, 0, 0.0, 10.0)
        busy(host, 1, 0.0, 1.0)
        flush = {"operation": "synchronize_cache", "is_read": False, "bytes": 0, "data_bytes": 0}
        host.rows["cycles"][host.read(0, 2.0, 9.0, lun=1, **flush)]["status"] = status
        assert found(host) == expected


def test_a_logical_unit_that_is_always_slow_is_not_out() -> None:
    host = one_session()
    busy(host, 0, 0.0, 10.0)
    for start in range(0, 16, 2):
        host.read(0, start, start + 2.0, lun=1)
    assert found(host) == {}


def two_paths() -> Host:
    host = Host()
    for isid in ("80", "81"):
        host.session(0, 30, isid=isid)
    return host.unit(0, designator=NAA).unit(1, designator=NAA)


def test_a_path_that_works_keeps_the_volume_in_service() -> None:
    host = two_paths()
    busy(host, 0, 0.0, 2.0)
    host.read(0, 2.0, 12.0)
    host.time(0, 2.0, 12.0, "outage")
    busy(host, 0, 0.0, 14.0, session=1)
    assert found(host) == {}


def test_a_volume_is_out_until_another_path_takes_over() -> None:
    host = two_paths()
    busy(host, 0, 0.0, 2.0)
    host.read(0, 2.0, None)
    host.time(0, 2.0, 12.0, "outage")
    # the first read of the other path is issued at 6.0
    busy(host, 0, 6.0, 14.0, session=1)
    assert found(host) == {0: [(2.0, 6.1)]}


def test_an_idle_volume_is_in_service_while_one_path_is_left() -> None:
    host = two_paths()
    busy(host, 0, 0.0, 2.0)
    host.rows["sessions"][0]["time_last_ns"] = at(2.5)
    host.session(9.0, 30, replaces=0)
    busy(host, 0, 10.0, 12.0, session=2)
    host.time(0, 2.5, 10.0, "outage")
    assert found(host) == {}
    # and out once none is
    host.rows["sessions"][1] |= {"time_last_ns": at(4.0), "end": "closed"}
    assert found(host) == {0: [(4.0, 10.0)]}


def test_a_session_that_is_rebuilt_takes_all_its_volumes_out() -> None:
    host = one_session()
    host.rows["sessions"][0]["time_last_ns"] = at(2.5)
    busy(host, 0, 0.0, 2.0)
    busy(host, 1, 0.0, 1.0)
    row = host.rows["cycles"][host.read(0, 2.0, None)]
    row |= {"end_ns": at(2.5), "ended_by": "connection_end", "is_lost": True}
    host.session(9.0, 30, replaces=0)
    host.time(0, 2.0, 10.0, "outage")
    busy(host, 0, 10.0, 12.0, session=1)
    busy(host, 1, 10.0, 12.0, session=1)
    # the volume without a command in flight is out from the loss on
    assert found(host) == {0: [(2.0, 10.0)], 1: [(2.5, 10.0)]}


@pytest.mark.parametrize("file", [*VECTORS, *recorded_captures()], ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_only_volume_of_a_session_is_out_when_its_session_is(file: Path) -> None:
    trace = iscsitrace.read(file, tables=("budget",))
    found_volumes = volumes.find(trace.table)
    if len(found_volumes.all) != 1 or len(found_volumes.all[0].paths) != 1:
        pytest.skip("several volumes or paths")
    outages = outages_of_volumes(trace.table, found_volumes).get(0, ())
    rows = trace.table("budget")
    is_out = rows.raw("part") == PARTS.index("outage")
    of_sessions = sorted(zip(rows.raw("time_first_ns")[is_out], rows.raw("time_last_ns")[is_out], strict=True))
    # outages that touch are one
    total = sum(last - first for first, last in of_sessions)
    assert abs(sum(last - first for first, last in outages) - total) <= 1_000_000 * len(of_sessions)
    assert (len(outages) > 0) == (total > 0)
