"""Which queue depths and numbers of connections are tried; and serial numbers, which begin anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.findings.concurrency import hiding_queue_depths, more_connections, next_queue_depth
from iscsitrace.tables.numbers import serial_distances


def basis(
    queue_depth: int = 1, connections: int = 1, rates: dict[int, float] | None = None, near: float | None = 1e9
) -> Any:
    """The model has those rates by number of connections; else 1 for each command in flight, ``near`` without delay, or
    no throughput there.
    """

    def reached(rate: float | None) -> float:
        if rate is None:
            raise InputInvalid("no duration")
        return rate

    def situation(count: int, depth: int = queue_depth, delay_ns: float = 1.0) -> Any:
        setting = SimpleNamespace(queue_depth=depth, connections=count)
        rate = (rates or {}).get(count, 0.0) if rates is not None else float(depth) if delay_ns else near

        def with_setting(**changes: Any) -> Any:
            return situation(count, changes.get("queue_depth", depth), changes.get("delay_ns", delay_ns))

        return SimpleNamespace(
            setting=setting, throughput=lambda: reached(rate), with_connections=situation, with_setting=with_setting
        )

    measured = SimpleNamespace(situation=situation(connections))
    return SimpleNamespace(measured=measured)


@pytest.mark.parametrize(
    ("queue_depth", "depths"),
    [(1, []), (2, [8, 32]), (7, [8, 32]), (8, [32, 128]), (32, [128]), (127, [128]), (128, [])],
)
def test_the_next_two_depths_above_the_measured_one_are_tried(queue_depth: int, depths: list[int]) -> None:
    """Beside one command in flight none: it shows no application that has others to issue."""
    words = [f"queue depth {depth}" for depth in depths]
    assert [change.words for change in hiding_queue_depths(basis(queue_depth))] == words
    assert [change.words for change in next_queue_depth(basis(queue_depth))] == words[:1]


@pytest.mark.parametrize(
    ("queue_depth", "near", "words"),
    [
        # each command in flight carries 1: 18 of 20 hide nine tenths of the delay
        (2, 20, ["queue depth 8", "queue depth 18, which hides 90 % of the delay"]),
        (9, 20, ["queue depth 18, which hides 90 % of the delay"]),
        (2, 6, ["queue depth 6, which hides 90 % of the delay"]),
        (18, 20, ["queue depth 32", "queue depth 128"]),
        # one in flight shows no program that has others to issue
        (1, 20, []),
    ],
)
def test_the_depth_that_hides_the_delay_is_tried(queue_depth: int, near: float, words: list[str]) -> None:
    assert [change.words for change in hiding_queue_depths(basis(queue_depth, near=near))] == words


def test_no_depth_hides_a_delay_beside_which_nothing_is_known_to_take_time() -> None:
    """No rate, and no service time: the model has no throughput without the delay."""
    alone = basis(queue_depth=2, near=None)
    assert [change.words for change in hiding_queue_depths(alone)] == ["queue depth 8", "queue depth 32"]


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        # as long as twice as many gain a tenth
        ({1: 10, 2: 20, 4: 40, 8: 44.1, 16: 48}, ["2 connections", "8 connections"]),
        ({1: 10, 2: 11.1, 4: 12}, ["2 connections"]),
        ({1: 10, 2: 10.9, 4: 99}, []),
        (
            {1 << power: 10 * 2**power for power in range(8)},
            ["2 connections", "64 connections"],
        ),
    ],
)
def test_connections_double_as_long_as_that_gains(rates: dict[int, float], words: list[str]) -> None:
    assert [change.words for change in more_connections(basis(rates=rates))] == words


def test_connections_are_multiples_of_the_measured_ones() -> None:
    found = more_connections(basis(connections=3, rates={3: 10, 6: 20, 12: 21}))
    assert [change.words for change in found] == ["6 connections"]


def test_serial_numbers_begin_anew_after_the_largest() -> None:
    """RFC 1982: half of all numbers come after one, half before."""
    numbers = np.array([10, 9, 11, 10 + 2**31 - 1, 10 + 2**31, 2**32 - 1], dtype=np.uint32)
    assert serial_distances(numbers, 10).tolist() == [0, -1, 1, 2**31 - 1, -(2**31), -11]
    assert serial_distances(np.array([2, 2**32 - 2], dtype=np.uint32), 2**32 - 1).tolist() == [3, -1]
