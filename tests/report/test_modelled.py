"""The model's tables in a report, from a fit made by hand: 2 x 4 ms, 1 ms of service and 1 ms on the line are 10 ms."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.fit.gain import WhatIf
from iscsitrace.fit.points import Fit, Point, Seen
from iscsitrace.fit.situation import Measured, Situation
from iscsitrace.measure.budget import PARTS
from iscsitrace.model.setting import Leg, Prediction, Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.report.sections import _changes, _gains, _sentence, of_session
from iscsitrace.show import model_fit
from iscsitrace.show.document import Grid

MS = 1_000_000
SOURCES = model_fit.SOURCES
exact = Estimate.exact
SETTING = Setting("read", 65_536, 4.0 * MS, 65_536_000, service_ns=1.0 * MS)
TEN_MS = Prediction(SETTING, 10.0 * MS, 6_553_600, "cycle", (), 1.0 * MS, 0.0, 0.9)


def fit(setting: Setting = SETTING, **values: Any) -> Fit:
    c = None if setting.c_bytes_per_s is None else exact(setting.c_bytes_per_s, "packets")
    known: dict[str, Any] = {
        "k": exact(2.0, "fit"), "d_ns": exact(setting.delay_ns, "packets"), "s_ns": exact(setting.service_ns, "fit"),
        "c_bytes_per_s": c, "k_of_legs": 2.0, "legs": (Leg("data", 1.25, "meaning"),), "setting": setting,
        "ack_delay_ns": None, "stall_share": exact(1.0, "assumed"), "correlations": {}, "scatter": 0.0,
        "points": (), "models": (), "residuals": (), "cycles_used": 1_234, "cycles_left_out": {}, "undetermined": (),
    }  # fmt: skip
    return Fit(**known | values)


def parameters(found: Fit) -> Grid:
    return model_fit.parameters(found, "")


def at_point(found: Fit, bound: str = "cycle", *, depth: int = 1, residual: float = 0.0) -> Fit:
    seen = Seen(bound, None, None, exact(1.0), 0.0, ())
    setting = replace(found.setting, queue_depth=depth)
    point = Point("p", 0, setting, 10.0 * MS * (1 + residual), 0.0, 6_553_600, 9, {}, {}, exact(4.0 * MS), seen)
    return replace(found, points=(point,), models=(TEN_MS,), residuals=(residual,))


def test_the_sentence_has_the_terms_that_there_are() -> None:
    start = "The model has 10.0 ms from one read to the next, 10.0 ms were measured: k·d + s + B/C = 2.00 x 4.0 ms"
    assert _sentence(at_point(fit())) == f"{start} + 1.0 ms of hosts and pauses + 1.0 ms for 64 KiB on the line."
    assert _sentence(at_point(fit(replace(SETTING, service_ns=0.0, c_bytes_per_s=None)))) == f"{start}."
    delayed = fit(replace(SETTING, service_ns=0.0, ack_delay_ns=40.0 * MS, c_bytes_per_s=None))
    assert _sentence(at_point(delayed)).endswith(" measured: k·d + s + B/C + ACK delay = 2.00 x 4.0 ms + 40.0 ms.")


def test_the_sentence_names_the_limit_of_commands_in_flight_together() -> None:
    assert _sentence(at_point(fit(), "window", depth=4)) == (
        "The model has 10.0 ms for 4 reads in flight, 10.0 ms were measured: a window in each RTT limits them."
    )


@pytest.mark.parametrize(("residual", "is_described"), [(0.2, True), (0.21, False), (-0.21, False)])
def test_the_sentence_says_where_the_model_is_far_from_the_packets(residual: float, is_described: bool) -> None:
    sentence = _sentence(at_point(fit(), residual=residual))
    assert sentence.startswith("The model does not describe these commands: it has 10.0 ms ") == (not is_described)


def test_parameters_have_the_ends_of_their_intervals_and_their_source() -> None:
    found = parameters(fit(k=Estimate(2.0, 1.9, 2.126, "fit"), d_ns=Estimate(4.0 * MS, 3.0 * MS, 5_000_400, "given")))
    assert found.rows == (
        ("k", "one-way delays per command; 2 from its parts", "2.00", "1.90", "2.13", "", SOURCES["fit"]),
        ("d", "one-way delay", "4.000", "3.000", "5.000", "ms", SOURCES["given"]),
        ("s", "time of target, hosts and pauses", "1.000", "1.000", "1.000", "ms", SOURCES["fit"]),
        ("C", "TCP throughput of the line", "65.54", "65.54", "65.54", "MB/s", SOURCES["packets"]),
    )
    # units are exact: ms and MB/s
    large = fit(d_ns=exact(1_234_567_890.0), s_ns=exact(1_234_567_890.0), c_bytes_per_s=exact(99_999_960_000.0))
    assert [row[2] for row in parameters(large).rows] == ["2.00", "1234.568", "1234.568", "99999.96"]
    without = parameters(fit(replace(SETTING, c_bytes_per_s=None)))
    assert [row[0] for row in without.rows] == ["k", "d", "s"]
    delayed = parameters(fit(ack_delay_ns=exact(40.0 * MS, "packets")))
    meaning = "delay of the ACK that a status waits for; at 0 of 0 points"
    assert delayed.rows[-1] == ("ACK", meaning, "40.000", "40.000", "40.000", "ms", SOURCES["packets"])
    legs = next(each for each in model_fit.blocks(fit()) if isinstance(each, Grid) and each.columns[0] == "interval")
    assert legs.rows == (("data", "1.25", "meaning"),)


def test_each_point_stands_beside_the_model() -> None:
    seen = Seen("cycle", None, None, exact(1.0), 0.0, ())
    setting = replace(SETTING, queue_depth=4, connections=2)
    point = Point("p", 0, setting, 9.0 * MS, 0.0, 6_553_600, 1_200, {}, {}, exact(4.0 * MS), seen)
    left_out = {"pause": 1_000, "lossy": 0, "no_period": 1}
    found = fit(points=(point,), models=(TEN_MS,), residuals=(-0.1,), cycles_left_out=left_out)
    points, left = [each for each in model_fit.blocks(found) if isinstance(each, Grid)][2:]
    assert points.rows == (
        ("4.000", "64K", "8", "1200", "0", "6.554", "9.000", "10.000", "-10.00", "p"),
    )  # fmt: skip
    assert "steady MB/s" in points.columns
    assert [row[:2] for row in left.rows] == [("pause", "1000"), ("lossy", "0"), ("no_period", "1")]
    (row,) = fit(points=(point,), models=(TEN_MS,), residuals=(-0.1,)).as_dict()["residuals"]
    assert (row["queue_depth"], row["model_ns"], row["residual"]) == (8, 10.0 * MS, -0.1)


def situation(setting: Setting, **parts_ns: float) -> WhatIf:
    own = Situation(setting, {"target_service": setting.service_ns})
    parts = dict.fromkeys(PARTS, 0) | {name: round(part * MS) for name, part in parts_ns.items()}
    return WhatIf(Measured(own, own.throughput(), sum(parts.values()), parts, 1, 1), [own])


def test_what_each_change_gains() -> None:
    """65,536 bytes in 10 ms; the line carries ten times as much."""
    grid = _gains(situation(SETTING, propagation=8, target_service=1, transfer=1))
    assert grid is not None
    expected = {
        # 9 ms and 4, 16 and 64 on the line
        "I/O size 256 KiB": 40 / 13,
        "I/O size 1 MiB": 160 / 25,
        "I/O size 4 MiB": 640 / 73,
        "half the service time": 10 / 9.5,
        "half the RTT": 10 / 6,
        "a line twice as fast": 10 / 9.5,
    }
    assert {row[0]: row[1] for row in grid.rows} == {name: f"{factor:.1f}" for name, factor in expected.items()}
    # one command in flight shows no program that has others to issue; and nothing is in doubt
    assert all(row[1] == row[2] == row[3] for row in grid.rows)


def test_a_gain_of_less_than_a_twentieth_is_no_row() -> None:
    """Of 10 ms the line has 1.0 or 0.9."""
    for on_line_ms, is_shown in ((1.0, True), (0.9, False)):
        found = _gains(
            situation(replace(SETTING, c_bytes_per_s=65_536 / on_line_ms * 1_000), propagation=9, transfer=on_line_ms)
        )
        assert found is not None
        assert ("a line twice as fast" in {row[0] for row in found.rows}) == is_shown


def test_without_a_gain_there_is_no_table() -> None:
    assert _gains(situation(SETTING, unknown=10)) is None


def test_which_changes_there_are() -> None:
    """Only larger depths and sizes, and only what the setting has."""
    least = Setting("read", 4 << 20, 4.0 * MS, queue_depth=128)
    always = ["no losses", "half the service time", "half the RTT"]

    def names(setting: Setting) -> list[str]:
        return [change.words for change in _changes(Situation(setting))]

    assert names(least) == always
    assert names(replace(least, queue_depth=127, block_bytes=(4 << 20) - 1)) == [
        "queue depth 128", "I/O size 4 MiB", *always,
    ]  # fmt: skip
    # one command in flight shows no application that has others to issue
    assert names(replace(least, queue_depth=1)) == always
    most = replace(
        least, operation="write", window_bytes=1_000, loss=0.01, service_ns=7.0, c_bytes_per_s=7.0, is_status_held=True
    )
    assert names(most) == [
        "status in the last Data-In", "InitialR2T=No", "InitialR2T=No, bursts as long as the I/O",
        "receive window 4 times as large", *always, "a line twice as fast",
    ]  # fmt: skip


def test_what_the_changes_are() -> None:
    own = Situation(SETTING, {"target_service": 7.0}, {"loss": 0.5}).with_setting(
        operation="write", window_bytes=1_000, loss=0.01, block_bytes=4 << 20, queue_depth=128
    )
    changed = {change.words: change.apply(own) for change in _changes(own)}
    long = changed["InitialR2T=No, bursts as long as the I/O"].setting.solicitation
    assert (long.is_initial_r2t, long.first_burst_bytes, long.max_burst_bytes) == (False, *[16_777_216 - 1_024] * 2)
    assert changed["InitialR2T=No"].setting.solicitation == replace(own.setting.solicitation, is_initial_r2t=False)
    assert changed["receive window 4 times as large"].setting.window_bytes == 4_000
    assert (changed["no losses"].setting.loss, changed["no losses"].stalls_ns_per_byte) == (0.0, {"loss": 0})
    assert changed["half the service time"].waits_ns == {"target_service": 3.5}
    assert changed["half the RTT"].setting.delay_ns == 2.0 * MS
    assert changed["a line twice as fast"].setting.c_bytes_per_s == 131_072_000


def test_why_there_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    trace: Any = SimpleNamespace(table=None)
    missing = [SimpleNamespace(session=number, why=why) for number, why in ((0, "one"), (1, "other"), (0, "two"))]
    monkeypatch.setattr(
        "iscsitrace.report.sections.survey", lambda source, name, only: SimpleNamespace(points=[], missing=missing)
    )
    assert of_session(trace, 0, "").blocks == ("No model of session 0: one; two.",)
    # a sentence of ours is not cut
    missing.append(SimpleNamespace(session=3, why="kept for " * 40 + "hours."))
    assert str(of_session(trace, 3, "").blocks[0]).endswith("kept for hours.")
    assert of_session(trace, 2, "").blocks == ("No model of session 2: no steady commands.",)
