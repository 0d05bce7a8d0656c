"""The model against arithmetic by hand: published figures, identities, and what can only go one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.analysis.model.legs import legs
from iscsitrace.analysis.model.prediction import changed, predict
from iscsitrace.analysis.model.setting import Setting, Solicitation
from iscsitrace.errors import InputInvalid

MS, MIB = 1_000_000, 1 << 20
READ = Setting("read", 128 << 10, 4 * MS, 40e6)
WRITE = replace(READ, operation="write")
SOLICITED = Solicitation(
    is_initial_r2t=True, is_immediate_data=False, first_burst_bytes=65_536, max_burst_bytes=262_144
)


def test_the_solicited_write_of_the_field_takes_106_ms() -> None:
    # 2 MB at 1 Gbit/s are 16 ms; 8 R2Ts of 256 KiB and the command itself: 9 round trips of 10 ms
    found = predict(Setting("write", 2_000_000, 5 * MS, 125e6, solicitation=SOLICITED))
    assert found.period_ns == pytest.approx(106 * MS)
    assert (found.k, found.transfer_ns, found.stall_ns) == (18, pytest.approx(16 * MS), 0)


@pytest.mark.parametrize(
    ("delay_ms", "mib_per_s", "idle_percent"), [(1, 40, 57), (2, 40, 73), (4, 40, 84), (8, 28, 88), (16, 19.5, 91)]
)
def test_the_idle_fractions_of_the_read_study(delay_ms: int, mib_per_s: float, idle_percent: int) -> None:
    found = predict(Setting("read", 125 << 10, delay_ms * MS, mib_per_s * MIB, is_status_held=True))
    assert [leg.name for leg in found.legs] == ["command", "data", "ack", "status"]
    assert 100 * found.idle_fraction == pytest.approx(idle_percent, abs=0.7)


@pytest.mark.parametrize(
    ("keys", "rounds"),
    [
        # 1 MiB, bursts of 256 KiB
        ({}, 4),
        ({"is_immediate_data": True}, 4),
        ({"is_immediate_data": True, "max_recv_data_segment_bytes": 65_536, "first_burst_bytes": 65_536}, 4),
        ({"is_initial_r2t": False}, 4),
        ({"is_initial_r2t": False, "first_burst_bytes": 262_144}, 3),
        ({"is_initial_r2t": False, "first_burst_bytes": MIB, "max_burst_bytes": MIB}, 0),
        ({"is_immediate_data": True, "max_recv_data_segment_bytes": MIB, "first_burst_bytes": MIB}, 0),
        ({"max_burst_bytes": MIB}, 1),
        ({"max_burst_bytes": MIB - 1}, 2),
    ],
)
def test_a_write_pays_two_ways_and_two_for_each_r2t(keys: dict[str, Any], rounds: int) -> None:
    setting = changed(replace(WRITE, block_bytes=MIB, solicitation=SOLICITED), keys)
    assert sum(leg.delays for leg in legs(setting)) == 2 + 2 * rounds
    assert predict(setting).period_ns == pytest.approx(8 * MS * (1 + rounds) + MIB / 40e6 * 1e9)


def test_a_setting_that_makes_no_sense_is_named() -> None:
    for values in (
        {"operation": "verify"}, {"block_bytes": 0}, {"delay_ns": -1}, {"c_bytes_per_s": 0.0}, {"loss": 1.0},
        {"congestion_control": "bbr"}, {"max_burst_bytes": 0}, {"target_delays_ns": (1.0,)}, {"queue_depth": 0},
    ):  # fmt: skip
        with pytest.raises(InputInvalid, match=next(iter(values))):
            predict(changed(READ, values))
    with pytest.raises(InputInvalid, match="takes no time"):
        predict(Setting("read", 4096, 0.0))
