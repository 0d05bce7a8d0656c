"""The model of each connection, by hand: its own delay, a shared line, and commands that take turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iscsitrace.fit.points import OfConnection, Point, throughput_of_each
from iscsitrace.fit.regression import fit
from iscsitrace.model.uncertainty import Estimate
from tests.fit.test_sweep import KIB, C, point
from tests.support.tables_by_hand import MS

RATE = Estimate(1e6, 1e6, 1e6, "packets")
B = 64 * KIB


def connections(*delays_ms: float | None) -> tuple[OfConnection, ...]:
    return tuple(
        OfConnection(number, RATE, 0.5, None if each is None else each * MS) for number, each in enumerate(delays_ms)
    )


def fitted(made: Point, *delays_ms: float | None, **setting: Any) -> tuple[float | None, ...]:
    own = replace(made, connections=connections(*delays_ms), setting=replace(made.setting, **setting))
    # the other points, of one command at a time, decide k, s and C
    return throughput_of_each(fit([point(1.0), point(4.0), point(8.0), point(4.0, 256), own]), 4)


def test_one_connection_has_all_of_the_session() -> None:
    result = fit([point(1.0), replace(point(8.0), connections=connections(8.0))])
    assert throughput_of_each(result, 1) == (result.models[1].throughput_bytes_per_s,)


def test_each_connection_pays_its_own_delay() -> None:
    """Two commands in flight, one on each: 1 ms of service, 1.6 ms on the line, and two delays."""
    seen = replace(point(4.0).seen, bound="cycle", k=None, service_ns=None)
    both = replace(point(4.0, seen=seen), throughput_bytes_per_s=2 * B / (10.6384e-3), period_ns=10.6384 * MS)
    near, far = fitted(both, 2.0, 6.0, queue_depth=1, connections=2)
    assert near == pytest.approx(B / (4e-3 + 1e-3 + B / C), rel=0.02)
    assert far == pytest.approx(B / (12e-3 + 1e-3 + B / C), rel=0.02)


def test_together_they_carry_what_the_line_does() -> None:
    seen = replace(point(0.1).seen, bound="line", k=None, service_ns=None)
    full = replace(point(0.1, seen=seen), throughput_bytes_per_s=C, period_ns=8 * B / C * 1e9)
    rates = fitted(full, 0.1, 0.1, queue_depth=4, connections=2)
    assert rates == pytest.approx([C / 2, C / 2], rel=0.02)


def test_one_command_that_takes_turns_gives_all_the_same() -> None:
    """Of three connections the far one delays the others: a round takes the sum of their cycles."""
    rates = fitted(point(4.0), 1.0, 1.0, 10.0)
    assert rates == pytest.approx([B / (24e-3 + 3 * (1e-3 + B / C))] * 3, rel=0.02)


def test_an_unknown_delay_and_a_mirror_have_none() -> None:
    assert fitted(point(4.0), 4.0, None) == (None, None)
    result = fit([point(1.0), replace(point(8.0), connections=connections(8.0))])
    mirror = replace(result.points[1].setting, operation="write", target_delays_ns=(MS, 8.0 * MS))
    points = (result.points[0], replace(result.points[1], setting=mirror))
    assert throughput_of_each(replace(result, points=points), 1) == (None,)
