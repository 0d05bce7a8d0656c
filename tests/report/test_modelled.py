"""The model's tables in a report, from a fit made by hand: 2 x 4 ms, 1 ms of service and 1 ms on the line are 10 ms."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.analysis.fit.points import Fit, Point, Seen
from iscsitrace.analysis.model.estimate import Estimate
from iscsitrace.analysis.model.setting import Leg, Prediction, Setting
from iscsitrace.errors import InputInvalid
from iscsitrace.report.modelled import _changes, _model, of_session

MS = 1_000_000
exact = Estimate.exact
SETTING = Setting("read", 65_536, 4.0 * MS, 65_536_000, service_ns=1.0 * MS)
TEN_MS = Prediction(SETTING, 10.0 * MS, 6_553_600, "cycle", (), 1.0 * MS, 0.0, 0.9)


def fit(setting: Setting = SETTING, **values: Any) -> Fit:
    c = None if setting.c_bytes_per_s is None else exact(setting.c_bytes_per_s, "packets")
    known: dict[str, Any] = {
        "k": exact(2.0, "fit"), "d_ns": exact(setting.delay_ns, "packets"), "s_ns": exact(setting.service_ns, "fit"),
        "c_bytes_per_s": c, "k_of_legs": 2.0, "legs": (Leg("data", 1.25, "meaning"),), "setting": setting,
        "stall_share": exact(1.0, "assumed"), "correlations": {}, "scatter": 0.0,
        "points": (), "models": (), "residuals": (), "cycles_used": 1_234, "cycles_left_out": {}, "undetermined": (),
    }  # fmt: skip
    return Fit(**known | values)


def changes(setting: Setting = SETTING, **values: Any) -> dict[str, tuple[str, ...]]:
    grid = _model(fit(setting, **values)).what_if
    assert grid is not None
    return {row[0]: row[1:] for row in grid.rows}


def test_the_sentence_has_the_terms_that_there_are() -> None:
    start = "One read takes k·d + s + B/C = 2.00 x 4.0 ms"
    assert _model(fit()).sentence == f"{start} + 1.0 ms service + 1.0 ms for 64 KiB on the line."
    assert _model(fit(replace(SETTING, service_ns=0.0, c_bytes_per_s=None))).sentence == f"{start}."


def test_parameters_have_the_ends_of_their_intervals_and_their_source() -> None:
    found = _model(fit(k=Estimate(2.0, 1.9, 2.126, "fit"), d_ns=Estimate(4.0 * MS, 3.0 * MS, 5_000_400, "given")))
    assert found.parameters.rows == (
        ("k", "one-way delays per command", "2.00", "1.90", "2.13", "", "fit over points"),
        ("d", "one-way delay", "4.000", "3.000", "5.000", "ms", "given"),
        ("s", "service time of target and hosts", "1.000", "1.000", "1.000", "ms", "fit over points"),
        ("C", "TCP throughput of the line", "65.5", "65.5", "65.5", "MB/s", "packets of the commands"),
    )
    # units are exact: ms and MB/s
    large = fit(d_ns=exact(1_234_567_890.0), s_ns=exact(1_234_567_890.0), c_bytes_per_s=exact(99_999_960_000.0))
    assert [row[2] for row in _model(large).parameters.rows] == ["2.00", "1,234.568", "1,234.568", "100,000.0"]
    without = _model(fit(replace(SETTING, c_bytes_per_s=None))).parameters
    assert [row[0] for row in without.rows] == ["k", "d", "s"]
    assert found.legs is not None
    assert found.legs.rows == (("data", "1.25", "meaning"),)


def test_each_point_stands_beside_the_model() -> None:
    seen = Seen("cycle", None, None, exact(1.0), 0.0, ())
    setting = replace(SETTING, queue_depth=4, connections=2)
    point = Point("p", 0, setting, 9.0 * MS, 0.0, 6_553_600, 1_200, {}, {}, exact(4.0 * MS), seen)
    left_out = {"pause": 1_000, "lossy": 0, "no_period": 1}
    grid = _model(fit(points=(point,), models=(TEN_MS,), residuals=(-0.1,), cycles_left_out=left_out)).residuals
    assert grid is not None
    assert grid.rows == (
        ("1,200 reads of 64 KiB, queue depth 8", "4.000", "6.554", "9.000", "10.000", "-10.0 %"),
    )  # fmt: skip
    assert grid.notes == (
        "From 1,234 commands; 1,001 not used: 1000 a pause of the program followed; 1 no command followed.",
    )
    (row,) = fit(points=(point,), models=(TEN_MS,), residuals=(-0.1,)).as_dict()["residuals"]
    assert (row["queue_depth"], row["model_ns"], row["residual"]) == (8, 10.0 * MS, -0.1)
    every = _model(fit(cycles_left_out={"pause": 0})).residuals
    assert every is not None
    assert every.notes == ()


def test_what_each_change_gains() -> None:
    """65,536 bytes in 10 ms; the line carries ten times as much."""
    cycle, line = "time per command", "line rate"
    expected = {
        "as captured": (6.5536, "1.0", cycle),
        "queue depth 8": (52.4288, "8.0", cycle),
        "queue depth 32": (65.536, "10.0", line),
        # 9 ms and 4, 16 and 64 on the line
        "I/O size 256 KiB": (0.262144 / 0.013, "3.1", cycle),
        "I/O size 1 MiB": (1.048576 / 0.025, "6.4", cycle),
        "I/O size 4 MiB": (4.194304 / 0.073, "8.8", cycle),
        "half the service time": (0.065536 / 0.0095, "1.1", cycle),
        "half the RTT": (0.065536 / 0.006, "1.7", cycle),
        "line twice as fast": (0.065536 / 0.0095, "1.1", cycle),
    }
    found = changes()
    assert list(found) == list(expected)
    for name, (rate, factor, bound) in expected.items():
        assert found[name][3:] == (factor, bound)
        # nothing is in doubt
        assert [float(cell) for cell in found[name][:3]] == pytest.approx([rate] * 3, abs=0.0006)


def test_a_change_of_less_than_a_hundredth_is_no_row() -> None:
    """Of 9.2 ms half of 0.2 are 1.1 %; of 9.18 ms half of 0.18 are 0.99 %."""
    assert "half the service time" in changes(replace(SETTING, service_ns=0.2 * MS))
    assert "half the service time" not in changes(replace(SETTING, service_ns=0.18 * MS))


def test_a_change_whose_losses_the_model_cannot_predict_is_no_row() -> None:
    assert list(changes(replace(SETTING, loss=0.02))) == ["as captured", "no packet loss"]


def test_a_change_that_the_model_does_not_cover_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(setting: Setting, values: dict[str, Any]) -> Setting:
        if "queue_depth" in values:
            raise InputInvalid("not covered")
        return replace(setting, **values)

    each = [("deeper", {"queue_depth": 8}), ("nearer", {"delay_ns": 2.0 * MS})]
    monkeypatch.setattr("iscsitrace.report.modelled.changed", made)
    monkeypatch.setattr("iscsitrace.report.modelled._changes", lambda _: each)
    assert list(changes()) == ["as captured", "nearer"]


def test_a_setting_without_a_duration_has_no_what_ifs() -> None:
    assert _model(fit(Setting("read", 65_536, 0.0))).what_if is None


def test_which_changes_there_are() -> None:
    """Only larger depths and sizes, and only what the setting has."""
    least = Setting("read", 4 << 20, 4.0 * MS, queue_depth=32)
    assert dict(_changes(least)) == {"half the RTT": {"delay_ns": 2.0 * MS}}
    smaller = replace(least, queue_depth=31, block_bytes=(4 << 20) - 1)
    assert [name for name, _ in _changes(smaller)] == ["queue depth 32", "I/O size 4 MiB", "half the RTT"]
    most = replace(
        least, operation="write", window_bytes=1_000, loss=0.01, service_ns=7.0, c_bytes_per_s=7.0, is_status_held=True
    )
    most_burst = 16_777_216 - 1_024
    assert dict(_changes(most)) == {
        "status in the last Data-In": {"is_status_held": False, "ack_delay_ns": 0.0},
        "InitialR2T=No": {"is_initial_r2t": False},
        "InitialR2T=No, bursts as long as the I/O": {
            "is_initial_r2t": False, "first_burst_bytes": most_burst, "max_burst_bytes": most_burst,
        },
        "TCP windows 4 times as large": {"window_bytes": 4_000},
        "no packet loss": {"loss": 0.0},
        "half the service time": {"service_ns": 3.5},
        "half the RTT": {"delay_ns": 2.0 * MS},
        "line twice as fast": {"c_bytes_per_s": 14.0},
    }  # fmt: skip


def test_why_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    trace: Any = SimpleNamespace(table=None)
    missing = [SimpleNamespace(session=number, why=why) for number, why in ((0, "one"), (1, "other"), (0, "two"))]
    monkeypatch.setattr(
        "iscsitrace.report.modelled.survey", lambda source, name, only: SimpleNamespace(points=[], missing=missing)
    )
    assert of_session(trace, 0) == (None, "No model of session 0: one; two.")
    assert of_session(trace, 2) == (None, "No model of session 2: no steady commands.")
