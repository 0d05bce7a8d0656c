"""Volumes over time: the order, the bins, the latencies and the outages, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.relate import volumes
from iscsitrace.relate.outages import outages_of_volumes
from iscsitrace.report import heat as volume_heat
from iscsitrace.report.heat import Heat
from tests.relate.test_volumes import Host
from tests.support.histories import SECOND, at
from tests.support.tables_by_hand import MS


def heat(host: Host, limit: int = 9, bin_count: int = 10) -> Heat | None:
    source = host.source()
    outages = outages_of_volumes(source, volumes.find(source))
    return volume_heat.find(source, outages, limit=limit, bin_count=bin_count)


def three_luns() -> Host:
    """LUN 0: 1 ms from 0 to 10 s; LUN 1: 100 ms from 5 s on; LUN 2: out from 6 s to 8 s."""
    host = Host()
    host.session(0, 10)
    for tenth in range(100):
        host.read(0, tenth / 10, tenth / 10 + 0.001, lun=0)
    for half in range(10, 19):
        host.read(0, half / 2, half / 2 + 0.1, lun=1)
    host.read(0, 6.0, 8.0, lun=2)
    host.read(0, 9.5, 10.0, lun=2)
    host.time(0, 6.0, 8.0, "outage")
    return host


def test_the_volume_that_was_out_is_the_first_then_that_with_the_most_time() -> None:
    found = heat(three_luns())
    assert found is not None
    assert [each.luns for each in found.volumes] == [(2,), (1,), (0,)]
    assert found.more_count == 0
    assert np.array_equal(found.edges_ns, at(0) + SECOND * np.arange(11))


def test_the_figures_of_each_bin() -> None:
    found = heat(three_luns())
    assert found is not None
    out, slow, fast = range(3)
    assert found.counts[fast].tolist() == [10] * 10
    assert found.latency_ns[fast].tolist() == pytest.approx([MS] * 10)
    assert found.counts[slow].tolist() == [0, 0, 0, 0, 0, 2, 2, 2, 2, 1]
    assert np.isnan(found.latency_ns[slow][:5]).all()
    assert found.latency_ns[slow][5:].tolist() == pytest.approx([100 * MS] * 5)
    assert found.outage_ns[out].tolist() == [0, 0, 0, 0, 0, 0, SECOND, SECOND, 0, 0]
    assert not found.outage_ns[fast].any()
    assert found.latency_ns[out][6] == 2 * SECOND


def test_what_is_beyond_the_limit_is_counted() -> None:
    found = heat(three_luns(), limit=1)
    assert found is not None
    assert ([each.luns for each in found.volumes], found.more_count) == ([(2,)], 2)
    assert found.counts.shape == found.latency_ns.shape == found.outage_ns.shape == (1, 10)


def test_a_command_without_a_status_counts_by_its_wait() -> None:
    host = Host()
    host.session(0, 20)
    host.read(0, 0.0, 0.001)
    host.read(0, 1.0, None)
    found = heat(host, bin_count=20)
    assert found is not None
    assert found.latency_ns[0][1] == 19 * SECOND


def test_the_last_instant_is_in_the_last_bin() -> None:
    host = Host()
    host.session(0, 20)
    host.read(0, 0.0, 0.0)
    found = heat(host)
    assert found is not None
    assert found.counts.sum() == 1
    assert found.counts[0][0] == 1


def test_nothing_has_no_heat() -> None:
    host = Host()
    host.session(0, 20)
    assert heat(host) is None
