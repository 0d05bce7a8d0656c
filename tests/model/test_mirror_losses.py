"""The simulated mirrors, step by step: windows, the line, losses and system calls, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from iscsitrace.model import bounds
from iscsitrace.model.bounds import CUBIC_AS_RENO, Copies, _Mirrors, loss_window_segments, mirror_bytes_per_s
from iscsitrace.model.setting import Setting

MS = 1_000_000
COPIES = Copies(
    round_trips_ns=(100.0, 100.0),
    loss=0.01,
    growth=(0.0, 0.0),
    decrease=0.5,
    window_segments=inf,
    ahead_segments=1e9,
    call_segments=inf,
    line_segments_per_ns=inf,
)
"""Two copies whose windows are 10 segments, 1 / sqrt(0.01), at first: 5 in each step of 50 ns."""


class Chance:
    """Draws this number for each copy."""

    def __init__(self, *drawn: float) -> None:
        self._drawn = drawn

    def random(self, shape: tuple[int, int]) -> Any:
        return np.broadcast_to(np.array(self._drawn), shape)


def mirrors(drawn: tuple[float, ...] = (1.0,), **values: Any) -> _Mirrors:
    copies = replace(COPIES, **values)
    made = _Mirrors(copies, np.array(copies.round_trips_ns), 50.0)
    made._chance = Chance(*drawn)  # type: ignore[assignment]
    return made


def steps(made: _Mirrors, count: int, name: str) -> list[list[float]]:
    """The state of the first mirror after each step; all are equal."""
    found = []
    for _ in range(count):
        made.go_on()
        state = getattr(made, name)
        assert (state == state[0]).all()
        found.append(state[0].tolist())
    return found


def test_each_step_sends_its_share_of_the_window() -> None:
    assert steps(mirrors(), 3, "_sent") == [[5, 5], [10, 10], [15, 15]]
    # at half of the RTT a step is a whole round
    assert steps(mirrors(round_trips_ns=(100.0, 50.0)), 2, "_sent") == [[5, 10], [10, 20]]
    assert steps(mirrors(window_segments=8.0), 2, "_sent") == [[4, 4], [8, 8]]


def test_data_is_known_to_have_arrived_an_rtt_later() -> None:
    for trips, known in (((100.0, 100.0), [0, 5, 10]), ((100.0, 50.0), [0, 5, 10]), ((50.0, 50.0), [10, 20, 30])):
        made, found = mirrors(round_trips_ns=trips), []
        for _ in known:
            made.go_on()
            found.append(made.done()[0])
        assert found == known


def test_a_window_grows_where_all_of_it_was_sent() -> None:
    grown = steps(mirrors(growth=(1.0, 2.0)), 3, "_windows")
    assert grown == [pytest.approx(each) for each in ([10.5, 11], [11, 12], [11.5, 13])]
    assert steps(mirrors(growth=(1.0, 2.0), window_segments=10.0), 2, "_windows") == [[10, 10]] * 2
    # five may be sent before an ACK: a step without data grows nothing
    ahead = mirrors(growth=(1.0, 1.0), ahead_segments=5.0)
    assert steps(ahead, 3, "_windows") == [[10.5, 10.5]] * 3
    assert steps(mirrors(ahead_segments=5.0), 4, "_sent") == [[5, 5], [5, 5], [10, 10], [10, 10]]
    assert steps(mirrors(growth=(1.0, 1.0), ahead_segments=4.9), 1, "_windows") == [[10, 10]]


def test_copies_wait_for_each_other() -> None:
    """The near copy knows after a step that its data arrived, and the far one after two."""
    found = mirrors(round_trips_ns=(100.0, 50.0), ahead_segments=10.0)
    assert steps(found, 3, "_sent") == [[5, 10], [10, 10], [15, 15]]


def test_the_copies_share_the_line() -> None:
    """Five segments in a step."""
    shared = mirrors(line_segments_per_ns=0.1, growth=(1.0, 1.0))
    assert steps(shared, 2, "_sent") == [pytest.approx(each) for each in ([2.5, 2.5], [5, 5])]
    assert shared._windows[0].tolist() == [10, 10]
    uneven = mirrors(line_segments_per_ns=0.1, round_trips_ns=(100.0, 50.0))
    assert steps(uneven, 1, "_sent") == [pytest.approx([5 / 3, 10 / 3])]
    assert steps(mirrors(line_segments_per_ns=0.2), 1, "_sent") == [[5, 5]]


def test_a_loss_reduces_the_window_once_in_an_rtt() -> None:
    """All is lost: at the first step, and again when the recovery of an RTT is over."""
    found = steps(mirrors((0.0,), growth=(9.0, 9.0)), 5, "_windows")
    assert found == [[5, 5], [5, 5], [5, 5], [2.5, 2.5], [2.5, 2.5]]
    near = steps(mirrors((0.0,), round_trips_ns=(100.0, 50.0)), 3, "_windows")
    assert near == [[5, 5], [5, 5], [5, 2.5]]
    assert steps(mirrors((0.0,), decrease=0.05), 1, "_windows") == [[1, 1]]


@pytest.mark.parametrize(("drawn", "window"), [(0.0490, 5), (0.0491, 10)])
def test_the_chance_of_a_loss_is_that_of_any_of_the_segments(drawn: float, window: float) -> None:
    """Of five segments: 1 - 0.99^5 = 0.04901."""
    assert steps(mirrors((drawn, 1.0)), 1, "_windows") == [[window, 10]]


def test_a_system_call_ends_when_all_copies_have_it() -> None:
    """A call of seven, four of which are ahead: 4, then 3 when these have arrived, and 4 of the next call."""
    found = mirrors(call_segments=7.0, ahead_segments=4.0)
    sent = [row[0] for row in steps(found, 6, "_sent")]
    assert sent == [4, 4, 7, 7, 11, 11]
    # within a call the near copy runs ahead, up to its end
    near = mirrors(call_segments=7.0, ahead_segments=4.0, round_trips_ns=(100.0, 50.0))
    assert steps(near, 5, "_sent") == [[4, 4], [4, 7], [7, 7], [7, 7], [11, 11]]


def test_a_copy_that_waited_for_longer_than_its_timeout_begins_slow_start_again() -> None:
    """Three timeouts halve 40 segments to the 10 of a restart, and slow start ends at three quarters of the 40."""
    made = mirrors()
    made._windows[:] = 40.0
    made._thresholds[:] = 16.0
    # the timeout is the RTT and 200 ms; one copy waited for just that
    made._idle_ns[:] = [3 * (200e6 + 100) + 1, 200e6 + 100]
    assert steps(made, 5, "_windows") == [[15, 40], [22.5, 40], [30, 40], [30, 40], [30, 40]]
    # the last loss decides where slow start ends, and a window does not grow by waiting
    made = mirrors()
    made._windows[:] = 12.0
    made._thresholds[:] = 11.0
    made._idle_ns[:] = 201e6
    assert steps(made, 2, "_windows") == [[11, 11], [11, 11]]


def test_the_idle_time_counts_from_the_last_data() -> None:
    """Seven segments go in two steps; the next call begins when they have arrived."""
    made = mirrors(call_segments=7.0)
    assert steps(made, 4, "_idle_ns") == [[0, 0], [0, 0], [50, 50], [0, 0]]


@pytest.mark.parametrize(("loss", "count"), [(0.04, 100), (0.039, 102), (1e-9, 12_000)])
def test_throughput_counts_from_two_fifths_of_the_steps_on(
    loss: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times the 1 / sqrt(p) RTTs, by two steps; after n of them n squared segments are done."""

    class Squares:
        def __init__(self, *arguments: object) -> None:
            self.steps = 0

        def go_on(self) -> None:
            self.steps += 1

        def done(self) -> Any:
            return np.full(3, self.steps**2)

    monkeypatch.setattr(bounds, "_Mirrors", Squares)
    found = bounds.segments_per_ns.__wrapped__(replace(COPIES, loss=loss, round_trips_ns=(40.0, 100.0)))
    begun = count * 2 // 5
    assert found == pytest.approx((count**2 - begun**2) / ((count - begun) * 50), rel=1e-12)


# --- what a setting becomes


def copies_of(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Copies:
    made: list[Copies] = []

    def segments_per_ns(copies: Copies) -> float:
        made.append(copies)
        return 0.5

    monkeypatch.setattr(bounds, "segments_per_ns", segments_per_ns)
    found = mirror_bytes_per_s(setting)
    assert found == pytest.approx(setting.connections * 0.5 * setting.segment_bytes * 1e9, rel=1e-12)
    return made[0]


def test_the_copies_of_a_mirrored_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting("write", 20_000, 0.0, segment_bytes=1_000, loss=1e-3, congestion_control="reno", queue_depth=3)
    setting = replace(setting, target_delays_ns=(1.0 * MS, 4.0 * MS))
    assert copies_of(setting, monkeypatch) == Copies(
        (2.0 * MS, 8.0 * MS), 1e-3, (1.0, 1.0), 0.5, inf, 60.0, inf, inf
    )  # fmt: skip
    # two segments of 10 us before an ACK
    limits = {"window_bytes": 50_000, "call_bytes": 100_000, "c_bytes_per_s": 1e8, "connections": 2}
    found = copies_of(replace(setting, **limits), monkeypatch)  # type: ignore[arg-type]
    assert found.round_trips_ns == pytest.approx((2.02 * MS, 8.02 * MS))
    assert (found.window_segments, found.call_segments, found.ahead_segments) == (50, 100, 60)
    assert found.line_segments_per_ns == pytest.approx(1e-4, rel=1e-12)


def test_cubic_grows_as_fast_as_its_average_window_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near it grows as Reno does, a segment behind; far away its window is larger, by the square root of the growth."""
    setting = Setting("write", 20_000, 0.0, loss=1e-5, target_delays_ns=(1_000.0, 50.0 * MS))
    found = copies_of(replace(setting, window_bytes=1_448), monkeypatch)
    near, far = (loss_window_segments(1e-5, 2 * delay_s, "cubic") for delay_s in (1e-6, 0.05))
    assert far > 1.5 * near
    assert found.decrease == 0.7
    like_reno = near + 0.5 + CUBIC_AS_RENO[0]
    assert found.growth == pytest.approx(tuple(CUBIC_AS_RENO[0] * (each / like_reno) ** 2 for each in (near, far)))
