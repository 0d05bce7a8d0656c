"""Plans: by hand where the formula can be turned round, and against the simulated world: a part of `bench.plan`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from bench import plan as bench
from iscsitrace.errors import InputInvalid
from iscsitrace.model.prediction import changed, predict
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.what_if import (
    COUNT_MOST,
    DELAY_MOST_NS,
    Plan,
    at_distance,
    burst_packets,
    greatest_delay_ns,
    least,
    plans,
    without_delay,
)

MS, KIB, MIB = 1e6, 1 << 10, 1 << 20
READ = Setting("read", 64 * KIB, 8 * MS, 40e6)


def planned(setting: Setting, wanted: float) -> dict[str, Plan]:
    return {each.name: each for each in plans(setting, wanted)}


# --- the search


@pytest.mark.parametrize(
    ("enough", "found"),
    [(1, 1), (2, 2), (3, 3), (17, 17), (31, 31), (33, 34), (99, 100), (1_000, 1_024), (1_024, 1_024), (1_025, None)],
)
def test_the_least_count_is_found_to_a_sixteenth(enough: int, found: int | None) -> None:
    assert least(float, enough, 1, 1_024) == found


def test_the_least_count_is_above_the_first() -> None:
    assert least(float, 3, 5, 64) == 5
    assert least(float, 6, 5, 64) == 6


def test_sizes_are_multiples_of_the_grain() -> None:
    assert least(float, 70_000, 4_096, 1 << 24, 4_096) == 73_728
    assert least(float, 1, 4_096, 1 << 24, 4_096) == 4_096


def test_the_greatest_delay_is_told_in_microseconds() -> None:
    assert greatest_delay_ns(lambda delay_ns: 1e9 / delay_ns if delay_ns else 1e9, 1e9 / 7_654_321) == 7_654_000
    assert greatest_delay_ns(lambda _: 5.0, 5) == DELAY_MOST_NS
    assert greatest_delay_ns(lambda _: 5.0, 6) is None


# --- by hand


def test_what_hides_the_delay_of_a_read() -> None:
    """B / C is nine times the RTT of 16 ms in a block that leaves the line idle for a tenth of the time."""
    near = without_delay(READ)
    assert near.throughput_bytes_per_s == pytest.approx(40e6)
    found = planned(READ, 0.9 * near.throughput_bytes_per_s)
    assert set(found) == {"block_bytes", "queue_depth", "connections", "delay_ns"}
    exact = 9 * 16e-3 * 40e6
    assert exact <= found["block_bytes"].values["block_bytes"] < exact * 17 / 16
    # a read takes 16 ms and 1.6384 ms on the line: ten carry 37 MB/s, nine 33
    assert found["queue_depth"].values == {"queue_depth": 10}
    assert found["connections"].values == {"connections": 10}
    # 0.9 of the time on the line: 2 d = 1.6384 / 9
    assert found["delay_ns"].values["delay_ns"] == pytest.approx(1.6384 / 18 * MS, abs=1_000)


def test_a_window_that_is_in_the_way_is_widened() -> None:
    narrow = replace(READ, window_bytes=64 * KIB)
    found = planned(narrow, 20e6)
    assert found["queue_depth"].values.keys() == {"queue_depth", "window_bytes"}
    # 20 MB/s for 16 ms are 320 KB
    assert found["queue_depth"].values["window_bytes"] == pytest.approx(20e6 * 16e-3, rel=0.1)
    assert not found["window_bytes"].is_enough
    # one command at a time never fills a wider one
    assert found["window_bytes"].prediction.bound == "cycle"
    assert found["connections"].values.keys() == {"connections"}


def test_writes_need_no_r2ts() -> None:
    """A write of 1 MiB in R2Ts of 256 KiB pays five RTTs, without R2Ts one."""
    write = Setting("write", MIB, 8 * MS, 40e6, solicitation=Solicitation(is_immediate_data=False))
    found = planned(write, 0.9 * MIB / (16e-3 + MIB / 40e6))
    assert found["keys"].values == {"is_initial_r2t": False, "first_burst_bytes": MIB, "max_burst_bytes": MIB}
    assert found["keys"].prediction.k == 2
    # larger blocks have more R2Ts: they are enough only without them
    assert found["block_bytes"].values["is_initial_r2t"] is False


def test_a_mirror_is_as_far_as_its_farthest_target() -> None:
    mirror = Setting("write", 64 * KIB, 25 * MS, 100e6, target_delays_ns=(4 * MS, 25 * MS))
    near = changed(mirror, {"is_initial_r2t": False})
    wanted = 64 * KIB / 20e-3
    found = planned(near, wanted)["delay_ns"]
    (first, far) = found.values["target_delays_ns"]
    # 20 ms for a write: an RTT, its own copy and that of the nearer target
    assert (first, far) == (4 * MS, pytest.approx((20 - 2 * 0.65536) / 2 * MS, rel=0.05))
    assert predict(at_distance(near, far)).throughput_bytes_per_s == pytest.approx(wanted, rel=0.001)
    assert at_distance(near, 1 * MS).target_delays_ns == (1 * MS, 1 * MS)


def test_more_than_the_line_carries_is_not_planned() -> None:
    found = planned(replace(READ, window_bytes=64 * KIB), 41e6)
    assert not any(each.is_enough for each in found.values())
    assert found["queue_depth"].prediction.throughput_bytes_per_s == pytest.approx(40e6)
    assert found["queue_depth"].prediction.setting.queue_depth == COUNT_MOST


def test_what_is_enough_already_says_how_little_would_do() -> None:
    found = planned(replace(READ, queue_depth=8), 3e6)
    assert found["queue_depth"].values == {"queue_depth": 1}
    assert found["delay_ns"].values["delay_ns"] > 8 * MS


def test_a_load_that_nothing_limits_has_no_rate_without_delay() -> None:
    with pytest.raises(InputInvalid, match="set a rate or a service time"):
        without_delay(replace(READ, c_bytes_per_s=None))


def test_under_losses_a_plan_has_a_margin() -> None:
    lossy = replace(READ, loss=1e-3, queue_depth=4)
    found = planned(lossy, 5e6)["connections"]
    assert found.prediction.throughput_bytes_per_s >= 5e6 * 1.1


def test_a_burst_is_what_commands_or_windows_allow() -> None:
    keys = Solicitation(max_outstanding_r2t=2, is_immediate_data=False)
    write = Setting("write", MIB, 8 * MS, 40e6, queue_depth=3, solicitation=keys)
    # two R2Ts of 256 KiB for each of three commands
    assert burst_packets(write) == -(-3 * 2 * 256 * KIB // 1_448) + 6
    assert burst_packets(replace(write, window_bytes=64 * KIB)) == 46 + 6
    assert burst_packets(replace(write, target_delays_ns=(1 * MS, 8 * MS), connections=2)) == 4 * burst_packets(write)
    # the end of each of 64 data PDUs is a short packet
    assert burst_packets(replace(write, data_pdu_bytes=8_192, window_bytes=64 * KIB)) == 46 + 3 * 64 + 3


# --- against the simulated world

_BYTES_MOST = 8 << 20
SEED = 5
"""A part of the draw of one seed: the quick settings without losses."""
DRAWN = [
    (are_mirrors, one)
    for are_mirrors, count in ((False, 8), (True, 4))
    for one in islice(
        (
            each
            for each in bench.drawn(SEED, 200, are_mirrors=are_mirrors)
            if not each.setting.loss and each.rate_bps <= 200e6
        ),
        count,
    )
]


@pytest.mark.parametrize(
    ("are_mirrors", "one"), DRAWN, ids=[f"{'mirror' if mirror else 'one'} {n}" for n, (mirror, _) in enumerate(DRAWN)]
)
def test_planned_settings_reach_what_was_wanted(
    are_mirrors: bool, one: bench.Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_RUN_MOST_BYTES", _BYTES_MOST)
    for each in bench.tried(one):
        assert each.is_true, (are_mirrors, each)
        assert each.drop_count == 0, each
