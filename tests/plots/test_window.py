"""Bytes in flight, congestion window, retransmissions and recoveries of one sender, in tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.plots.kinds import window
from iscsitrace.plots.marks import Detail
from iscsitrace.plots.view import View
from tests.support.tables_by_hand import table

VIEW = View(origin_ns=0, start_ns=100, end_ns=200, connections=(0,))


def change(time_ns: int, owin: int, cwnd: int | None = None, **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": time_ns, "owin_bytes": owin, "pipe_bytes": owin, "cwnd_estimate_bytes": cwnd}
    return row | {"is_valid": cwnd is not None} | columns


def curves(
    *changes: dict[str, Any],
    resent: list[dict[str, Any]] | None = None,
    recoveries: list[dict[str, Any]] | None = None,
    detail: Detail | None = None,
) -> window.Window:
    return window.compute(
        table("window", *changes),
        table("retransmissions", *(resent or [])),
        table("recoveries", *(recoveries or [])),
        table("cycles"),
        VIEW,
        detail,
    )


def points(line: Any) -> list[tuple[int, int]]:
    return list(zip(line.times_ns.tolist(), line.values.tolist(), strict=True))


def test_a_view_begins_with_the_change_before_it_and_ends_with_its_last_instant() -> None:
    other = [change(150, 9, connection=1), change(150, 9, to_target=True)]
    found = curves(*other, change(80, 1), change(90, 2), change(100, 3), change(200, 4), change(201, 5))
    assert points(found.owin) == [(100, 2), (100, 3), (200, 4), (200, 4)]
    assert found.change_count == 2
    assert not found.is_decimated


def test_changes_are_decimated_beyond_the_limit() -> None:
    changes = [change(90, 9), *(change(100 + number, number) for number in range(6))]
    assert not curves(*changes, detail=Detail(limit=6, columns=1)).is_decimated
    found = curves(*changes, detail=Detail(limit=5, columns=1))
    assert found.is_decimated
    # the value from before, then least, greatest and last of one column
    assert points(found.owin) == [(100, 9), (100, 0), (105, 5), (200, 5)]


def test_the_estimate_is_held_until_the_change_that_ends_it() -> None:
    found = curves(change(80, 1, 10), change(120, 1, 20), change(140, 1), change(160, 1, 30), change(170, 1, 40))
    assert [points(line) for line in found.cwnd] == [
        [(100, 10), (120, 20), (140, 20)],
        [(160, 30), (170, 40), (200, 40)],
    ]
    assert found.valid_share == pytest.approx((40 + 40) / 100)


def test_an_estimate_marked_invalid_or_missing_is_not_drawn() -> None:
    found = curves(change(110, 1, 10, is_valid=False), change(120, 1, None, is_valid=True))
    assert (found.cwnd, found.valid_share) == ((), 0)


def test_the_time_of_an_estimate_is_that_of_its_runs() -> None:
    # a run that ends at once has a line, and no time
    found = curves(change(110, 1, 10), change(110, 1), change(150, 1, 20))
    assert [points(line) for line in found.cwnd] == [[(110, 10), (110, 10)], [(150, 20), (200, 20)]]
    assert found.valid_share == pytest.approx(50 / 100)
    far = View(origin_ns=0, start_ns=100, end_ns=1_000, connections=(0,))
    estimate = table("window", change(100, 1, 10))
    assert window._runs(estimate, "cwnd_estimate_bytes", np.array([True]), slice(0, 1), far, None)[1] == 900


def test_a_decimated_estimate_keeps_its_runs_apart() -> None:
    first = [change(100 + number, 1, 10 + number) for number in range(6)]
    second = [change(150 + number, 1, 50 - number) for number in range(6)]
    found = curves(*first, change(120, 1), *second, change(160, 1), detail=Detail(limit=1, columns=2))
    # of each of two columns the first, the least, the greatest and the last
    assert [points(line) for line in found.cwnd] == [
        [(100, 10), (105, 15), (120, 15)],
        [(150, 50), (155, 45), (160, 45)],
    ]
    assert found.valid_share == pytest.approx((20 + 10) / 100)


def test_retransmissions_lie_on_the_bytes_in_flight_at_their_time() -> None:
    def again(time_ns: int, cause: str = "fast", **columns: Any) -> dict[str, Any]:
        return {"connection": 0, "time_ns": time_ns, "cause": cause} | columns

    others = [again(99), again(201), again(150, connection=1), again(150, to_target=True)]
    found = curves(
        change(110, 10),
        change(150, 30),
        change(170, 99, to_target=True),
        resent=[again(100), again(149), again(150), again(200), again(160, "timeout"), *others],
    )
    assert {cause: points(line) for cause, line in found.retransmissions.items()} == {
        # before the first change there is only its value
        "fast": [(100, 10), (149, 10), (150, 30), (200, 30)],
        "timeout": [(160, 30)],
    }


def recovery(first_ns: int, last_ns: int | None, **columns: Any) -> dict[str, Any]:
    return {"connection": 0, "time_first_ns": first_ns, "time_last_ns": last_ns} | columns


def test_recoveries_that_touch_the_view_are_shown() -> None:
    others = [recovery(90, 99), recovery(201, 300), recovery(120, 130, connection=1), recovery(1, 2, to_target=True)]
    shown = [recovery(90, 100), recovery(120, 130), recovery(200, 250), recovery(180, None)]
    found = curves(change(100, 1), recoveries=[*shown, *others]).recoveries
    assert list(zip(found.starts_ns.tolist(), found.ends_ns.tolist(), strict=True)) == [
        (90, 100),
        (120, 130),
        (200, 250),
        (180, 200),
    ]


def test_more_than_300_recoveries_are_joined_where_they_meet() -> None:
    assert len(curves(change(100, 1), recoveries=[recovery(150, 160)] * 300).recoveries) == 300
    found = curves(change(100, 1), recoveries=[recovery(150, 160)] * 300 + [recovery(170, 175)]).recoveries
    assert (found.starts_ns.tolist(), found.ends_ns.tolist()) == ([150, 170], [160, 175])


def test_a_receive_window_that_is_unknown_is_a_gap() -> None:
    found = curves(
        change(110, 1) | {"rwnd_bytes": 50}, change(130, 1) | {"rwnd_bytes": None}, change(150, 1) | {"rwnd_bytes": 70}
    )
    assert [points(line) for line in found.rwnd] == [[(110, 50), (130, 50)], [(150, 70), (200, 70)]]


def test_the_pipe_is_drawn_where_it_differs_from_owin() -> None:
    rows = [change(at, owin) | {"pipe_bytes": pipe} for at, owin, pipe in ((110, 5, 5), (120, 9, 7), (140, 9, 9))]
    assert [points(line) for line in curves(*rows).pipe] == [[(120, 7), (140, 7)]]


def test_the_kernels_windows_are_bytes_from_the_sample_before_the_view_on() -> None:
    def sample(time_ns: int, cwnd: int | None, ssthresh: int | None, **columns: Any) -> dict[str, Any]:
        row = {"connection": 0, "time_ns": time_ns, "cwnd_segments": cwnd, "ssthresh_segments": ssthresh}
        return row | {"segment_bytes": 1000} | columns

    samples = table(
        "tcp_info",
        sample(50, 1, None),
        sample(90, 10, None),
        sample(150, 20, 15),
        sample(160, None, None),
        sample(201, 30, None),
        sample(150, 99, 99, to_target=True),
    )
    changes = table("window", change(110, 1))
    resent, recoveries, cycles = (table(name) for name in ("retransmissions", "recoveries", "cycles"))
    found = window.compute(changes, resent, recoveries, cycles, VIEW, None, samples)
    assert points(found.kernel_cwnd) == [(100, 10_000), (150, 20_000), (200, 20_000)]
    assert points(found.kernel_ssthresh) == [(150, 15_000), (200, 15_000)]
    assert not len(window.compute(changes, resent, recoveries, cycles, VIEW).kernel_cwnd)
