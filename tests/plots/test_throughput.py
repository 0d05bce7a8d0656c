"""Bytes and commands in flight per bin, in tables made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from iscsitrace.plots.kinds import throughput
from iscsitrace.plots.view import View
from tests.support.tables_by_hand import table

SECOND = 1_000_000_000
VIEW = View(origin_ns=0, start_ns=SECOND, end_ns=3 * SECOND, connections=(0, 1))
EDGES = np.array([1, 2, 3]) * SECOND


def segment(time_ns: int, length: int, **columns: Any) -> dict[str, Any]:
    return {"connection": 0, "time_ns": time_ns, "payload_bytes": length, "segment_class": "new"} | columns


def command(number: int, start_s: float, end_s: float | None, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "connection": 0, "operation": "inquiry", "command_first_ns": int(start_s * SECOND)}
    return row | {"status_ns": None if end_s is None else int(end_s * SECOND)} | columns


def test_a_packet_counts_in_the_bin_that_begins_at_its_time_and_at_the_end_in_the_last() -> None:
    rows = [
        segment(SECOND - 1, 1_000),
        segment(SECOND, 1),
        segment(2 * SECOND - 1, 2),
        segment(2 * SECOND, 4),
        segment(3 * SECOND, 8, connection=1),
        segment(3 * SECOND + 1, 1_000),
        segment(2 * SECOND, 1_000, connection=2),
        segment(2 * SECOND, 1_000, segment_class="copy"),
        segment(2 * SECOND, 16, to_target=True, segment_class="probe"),
        segment(2 * SECOND, 32, to_target=True, segment_class="retransmission"),
        segment(SECOND, 64, segment_class="retransmission"),
    ]
    found = throughput.compute(table("segments", *rows), table("cycles"), table("budget"), EDGES, VIEW)
    assert found.to_initiator_bytes_per_s.tolist() == [3, 12]
    assert found.to_target_bytes_per_s.tolist() == [0, 16]
    assert found.again_bytes_per_s.tolist() == [64, 32]


def test_rates_are_per_second() -> None:
    edges = np.array([SECOND, SECOND + SECOND // 4])
    found = throughput.compute(table("segments", segment(SECOND, 100)), table("cycles"), table("budget"), edges, VIEW)
    assert found.to_initiator_bytes_per_s.tolist() == [400]


def test_commands_in_flight_are_those_with_a_status() -> None:
    rows = [
        command(0, 0.5, 1.5),
        command(1, 1.25, 1.75, connection=1),
        command(2, 1.0, None),
        # a status captured before its command
        command(3, 2.75, 2.25),
        command(4, 1.0, 3.0, connection=2),
        command(5, 2.5, 3.5),
    ]
    found = throughput.compute(
        table("segments", segment(SECOND, 1)), table("cycles", *rows), table("budget"), EDGES, VIEW
    )
    assert found.queue_depth_mean.tolist() == [1.0, 0.5]
    assert found.queue_depth_max.tolist() == [2, 1]


def test_one_command_after_another_is_a_depth_of_one() -> None:
    mean, greatest = throughput.mean_and_max(np.array([0, 10, 25]), np.array([10, 20, 30]), np.array([0, 20, 40, 50]))
    assert (mean.tolist(), greatest.tolist()) == ([1.0, 0.25, 0.0], [1, 1, 0])


def test_commands_that_end_where_a_bin_begins_are_not_in_it() -> None:
    mean, greatest = throughput.mean_and_max(np.array([0, 0, 0]), np.array([20, 20, 30]), np.array([0, 20, 40]))
    assert (mean.tolist(), greatest.tolist()) == ([3.0, 0.5], [3, 1])
