"""Which gains are shown, and the readings of a measurement that their range comes from. A read takes 8 ms."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.diagnosis import opinions
from iscsitrace.findings.distance import _larger_blocks, _of_call, _whole_system_calls
from iscsitrace.findings.finding import Advice, Finding
from iscsitrace.fit import gain
from iscsitrace.fit.gain import Change, WhatIf
from iscsitrace.fit.situation import Measured, Situation
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.system_calls import SystemCall
from iscsitrace.model.setting import Setting
from tests.support.tables_by_hand import MS

PLAIN = Situation(Setting("read", 65_536, 4.0 * MS))
RATE = 65_536 / 0.008


def measured(situation: Situation, factor: float, **parts_ns: int) -> Measured:
    """The throughput of the model times this factor, in 100 ns of busy time."""
    parts = dict.fromkeys(PARTS, 0) | parts_ns
    return Measured(situation, factor * situation.throughput(), 100, parts, 1, 1)


# --- which


def fake(throughput: float, rough: float | None = None) -> Any:
    """A situation with two throughputs."""
    return SimpleNamespace(throughput=lambda is_rough=False: throughput if not is_rough or rough is None else rough)


def gains_of(
    *changes: dict[int, Any], error: float = 1.0, removes: tuple[str, ...] = ("propagation",)
) -> list[tuple[str, float, float, float]]:
    """Of changes that lead from a reading, 0 or 1, to situations; 96 % of the time are `propagation`."""
    readings: Any = [fake(100), fake(100, 50)]

    def changed(change: dict[int, Any], reading: Situation) -> Situation:
        found: Situation = change[readings.index(reading)]
        return found

    asked = WhatIf(measured(readings[0], error, propagation=96, transfer=4), readings)
    steps = [Change(str(number), partial(changed, change), removes) for number, change in enumerate(changes)]
    return [(gain.change, gain.throughput_factor, gain.low, gain.high) for gain in asked.gains(steps)]


def steps_to(*rates: float) -> list[dict[int, Any]]:
    return [{0: fake(rate), 1: fake(rate, rate / 2)} for rate in rates]


def test_a_change_is_shown_if_it_gains_more_than_the_one_before() -> None:
    shown = gains_of(*steps_to(110, 112.1, 112.3, 112, 200))
    # from 110 on 112.2 is the least that is shown
    assert [change for change, *_ in shown] == ["0", "2", "4"]
    assert [factor for _, factor, *_ in shown] == pytest.approx([1.1, 1.123, 2.0])
    assert gains_of() == []


def test_no_gain_is_smaller_than_the_error_of_the_model_or_larger_than_twenty() -> None:
    factors = [factor for _, factor, *_ in gains_of(*steps_to(109, 111, 2_000, 2_010), error=1.1)]
    assert factors == pytest.approx([1.11, 20.0])
    assert [change for change, *_ in gains_of(*steps_to(109, 111), error=1 / 1.1)] == ["1"]
    assert gains_of(*steps_to(100, 90)) == []


def test_no_gain_is_larger_than_the_time_that_the_change_can_take_away() -> None:
    assert gains_of(*steps_to(150), removes=("transfer",)) == [("0", *[pytest.approx(100 / 96)] * 3)]
    assert gains_of(*steps_to(150), removes=("loss_recovery",)) == []


def test_the_range_of_a_gain_is_that_of_the_readings() -> None:
    """By the rough model twice as much, and by the other reading 1.5 or 3 times."""
    low = gains_of({0: fake(180, 200), 1: fake(0, 75)})
    high = gains_of({0: fake(180, 200), 1: fake(0, 150)})
    assert low == [("0", 1.8, pytest.approx(1.8 * 1.5 / 2), 1.8)]
    assert high == [("0", 1.8, 1.8, pytest.approx(1.8 * 3 / 2))]


@pytest.mark.parametrize(
    ("factor", "is_shown"), [(1.24, True), (1.26, False), (1 / 1.24, True), (1 / 1.26, False), (1.0, True)]
)
def test_gains_need_a_model_that_is_right_within_a_quarter(
    factor: float, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def measure(subject: Any) -> Measured:
        seen.append(subject)
        return measured(PLAIN, factor, propagation=100)

    monkeypatch.setattr(gain, "measure", measure)
    subject: Any = SimpleNamespace(workload=SimpleNamespace(word="read"))
    case: Any = SimpleNamespace(subject=subject)
    deeper = Change("deeper", lambda situation: situation.with_setting(queue_depth=8), ("propagation",))
    problem: Any = SimpleNamespace(name="odd", advice=(Advice("text", lambda basis: iter((deeper,))),))
    (found,) = opinions.with_gains(lambda: case, [Finding(problem, "info", None, "text", ())])
    assert not seen, "nothing is computed before it is used"
    assert bool(found.gains) == is_shown
    assert seen == [subject]


# --- readings


def test_time_that_the_model_misses_is_a_wait_or_a_stall() -> None:
    """At 8/10 of the model's rate 2 ms of 10 are missed."""
    plain, wait, stall = gain.readings(measured(PLAIN, 0.8))
    assert plain == PLAIN
    assert wait.waits_ns == pytest.approx({"missed": 2.0 * MS})
    assert stall.stalls_ns_per_byte == pytest.approx({"missed": 2.0 * MS / 65_536})
    assert wait.throughput() == pytest.approx(0.8 * RATE)
    assert stall.throughput() == pytest.approx(0.8 * RATE)


def test_of_several_in_flight_the_missed_time_is_that_of_all() -> None:
    deep = PLAIN.with_setting(queue_depth=4)
    _, wait, _ = gain.readings(measured(deep, 0.8))
    assert wait.waits_ns == pytest.approx({"missed": 2.0 * MS})


def test_where_the_model_has_too_much_the_path_is_shorter() -> None:
    _, shorter = gain.readings(measured(PLAIN, 1.25))
    assert shorter.setting.delay_ns == pytest.approx(3.2 * MS)
    assert gain.readings(measured(PLAIN, 1.0)) == [PLAIN]


def test_a_target_serves_side_by_side_or_one_after_another_and_the_line_is_uncertain() -> None:
    own = Situation(PLAIN.setting, {"target_service": 2.0 * MS}).with_setting(queue_depth=2, c_bytes_per_s=1e9)
    plain, *others = gain.readings(measured(own, 1.0))
    # what the time is by the model is not exactly what was measured
    serial, slower, faster = others[-3:]
    assert plain == own
    assert serial.waits_ns == {"target_service": 0}
    assert serial.stalls_ns_per_byte == pytest.approx({"target_service": 2.0 * MS / (2 * 65_536)})
    assert [each.setting.c_bytes_per_s for each in (slower, faster)] == pytest.approx([0.98e9, 1.02e9])


# --- larger blocks


def call(count: int, *, is_at_once: bool = True) -> SystemCall:
    return SystemCall(count * 4_096, (4_096,) * count, 9, is_at_once, ())


def test_six_pieces_of_a_system_call_are_named() -> None:
    for count, pieces in (
        (2, "4 KiB + 4 KiB"),
        (6, " + ".join(["4 KiB"] * 6)),
        (7, " + ".join(["4 KiB"] * 6) + " + ..."),
    ):
        words = (
            f"The kernel seems to split system calls of {4 * count} KiB into {count} commands ({pieces}), issued "
            "together."
        )
        assert _of_call(call(count)) == words
    assert _of_call(call(2, is_at_once=False)).endswith(", issued one after another.")


def test_blocks_at_least_twice_as_large_and_whole_system_calls_are_tried() -> None:
    def basis(block_bytes: int, system_call: SystemCall | None = None) -> Any:
        situation = PLAIN.with_setting(block_bytes=block_bytes)
        return SimpleNamespace(
            measured=SimpleNamespace(situation=situation), case=SimpleNamespace(system_call=system_call)
        )

    sizes = [change.words for change in _larger_blocks(basis(1))]
    assert sizes == ["256 KiB I/O", "1 MiB I/O"]
    assert [change.words for change in _larger_blocks(basis(128 << 10))] == sizes
    assert [change.words for change in _larger_blocks(basis((128 << 10) + 1))] == sizes[1:]
    assert [change.words for change in _whole_system_calls(basis(8_191, call(2)))] == ["8 KiB I/O"]
    assert list(_whole_system_calls(basis(8_192, call(2)))) == []
    assert list(_whole_system_calls(basis(8_192))) == []
    (change,) = _whole_system_calls(basis(4_096, call(2)))
    assert change.apply(PLAIN).setting.block_bytes == 8_192
