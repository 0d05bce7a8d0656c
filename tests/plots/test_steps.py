"""Steps filled from whole cycles: steady work is flat at any delay and block size, pauses and stalls stay visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.lab import simulation
from iscsitrace.plots import steps, view
from iscsitrace.plots.kinds import throughput, time_breakdown
from iscsitrace.plots.marks import Spans
from iscsitrace.plots.view import View, Zoom
from tests.support.tables_by_hand import table

MS = 1_000_000
VIEW = View(origin_ns=0, start_ns=0, end_ns=2_000 * MS, connections=(0,))
EDGES = steps.edges(VIEW)
"""10 ms each."""


def test_a_view_has_200_steps() -> None:
    assert (len(EDGES), EDGES[0], EDGES[1], EDGES[-1]) == (201, 0, 10 * MS, 2_000 * MS)


def read(number: int, start_ms: float, status_ms: float | None, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "connection": 0, "operation": "read", "is_read": True, "bytes": 65_536}
    ended = None if status_ms is None else int(status_ms * MS)
    return row | {"command_first_ns": int(start_ms * MS), "status_ns": ended} | columns


def data(at_ms: float, **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": int(at_ms * MS), "payload_bytes": 65_536, "segment_class": "new"}
    return row | columns


def rates(commands: list[dict[str, Any]], packets: list[dict[str, Any]], a_view: View = VIEW) -> np.ndarray[Any, Any]:
    """Throughput in bytes per millisecond."""
    tables = table("segments", *packets), table("cycles", *commands), table("budget")
    found = throughput.compute(*tables, steps.edges(a_view), a_view)
    return found.to_initiator_bytes_per_s / 1000


def test_reads_of_15_ms_are_flat_in_steps_of_10_ms() -> None:
    starts = range(0, 2_000, 15)
    commands = [read(number, at, at + 14) for number, at in enumerate(starts)]
    packets = [data(at + 13) for at in starts]
    assert rates(commands, packets)[:-2] == pytest.approx(65_536 / 15)
    # in equal steps without regard to cycles, every third step is empty
    assert rates([], packets)[:6].tolist() == [0, 6_553.6, 6_553.6, 0, 6_553.6, 6_553.6]


def test_all_bytes_of_the_view_count_once() -> None:
    chance = np.random.default_rng(7)
    starts = sorted(chance.uniform(0, 1_900, 90).tolist())
    commands = [read(number, at, at + 40 * float(chance.random())) for number, at in enumerate(starts)]
    packets = [data(at) for at in chance.uniform(0, 2_000, 500).tolist()]
    assert rates(commands, packets).sum() * 10 == pytest.approx(500 * 65_536)


def test_each_cycle_counts_evenly_over_its_time() -> None:
    """Against a naive model: cycles of any length below ten steps, with any data."""
    chance = np.random.default_rng(16)
    for _ in range(20):
        lengths = chance.integers(1, 99, 60)
        starts = np.cumsum(lengths) - lengths
        commands = [read(number, float(at), at + 0.5) for number, at in enumerate(starts.tolist())]
        packets = [
            data(at + float(chance.uniform(0.1, 0.4))) for at in starts.tolist() for _ in range(chance.integers(3))
        ]
        naive = np.zeros(200)
        for at, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            amount = sum(65_536 for packet in packets if at <= packet["time_ns"] / MS < at + length)
            for step in range(200):
                share = max(0, min(at + length, 10 * step + 10) - max(at, 10 * step)) / length
                naive[step] += share * amount / 10
        # the last cycle has no command after it
        until = int(starts[-1]) // 10
        assert rates(commands, packets)[:until] == pytest.approx(naive[:until])


def test_a_cycle_of_ten_steps_shows_its_pause_and_a_shorter_one_is_averaged() -> None:
    for cycle_ms, empty in ((1_000, 98), (100, 8), (99, 0)):
        after = 500 + cycle_ms
        commands = [read(0, 500, 515), read(1, after, after + 10), read(2, after + 10, after + 20)]
        found = rates(commands, [data(510), data(after + 5), data(after + 15)])
        busy = np.flatnonzero(found)
        assert (np.diff(busy) - 1).max() == empty
        assert found.sum() * 10 == pytest.approx(3 * 65_536)


def test_a_long_command_keeps_its_stall() -> None:
    # bursts every 12 ms, none from 600 to 1000 ms
    bursts = [at for at in range(312, 1_500, 12) if not 600 <= at < 1_000]
    stretches = [
        {
            "session": 0,
            "connection": 0,
            "time_first_ns": at * MS,
            "time_last_ns": at * MS + MS // 100,
            "part": "transfer",
        }
        for at in bursts
    ]
    tables = table("segments", *map(data, bursts)), table("cycles", read(0, 300, 1_500)), table("budget", *stretches)
    found = throughput.compute(*tables, EDGES, VIEW).to_initiator_bytes_per_s / 1000
    assert found[36:55] == pytest.approx(65_536 / 12)
    assert not found[64:98].any()
    assert found.sum() * 10 == pytest.approx(len(bursts) * 65_536)


def test_commands_without_a_status_and_data_without_commands_are_counted_where_they_are() -> None:
    packets = [data(105), data(1_805)]
    for commands in ([], [read(0, 100, None)], [read(0, 100, None, data_last_ns=106 * MS)]):
        found = rates(commands, packets)
        assert found[180] == pytest.approx(6_553.6)
        assert found[10] == pytest.approx(6_553.6)
        assert np.count_nonzero(found) == 2


def test_a_view_from_the_middle_of_a_cycle_has_its_share_of_it() -> None:
    starts = range(0, 2_000, 15)
    commands = [read(number, at, at + 14) for number, at in enumerate(starts)]
    found = rates(commands, [data(at + 13) for at in starts], View(0, 407 * MS, 1_207 * MS, (0,)))
    assert found == pytest.approx(65_536 / 15)


def test_boundaries_at_the_ends_of_a_time() -> None:
    """An instant may be any int64."""
    first = np.iinfo(np.int64).max - 3_000 * MS
    edges = steps.edges(View(0, first, first + 2_000 * MS))
    starts = first + np.arange(0, 2_000, 15) * MS
    found = steps.boundaries(Spans(starts, starts + 14 * MS), Spans(), edges)
    assert (np.diff(found) > 0).all()
    assert found[0] <= edges[0]
    assert found[-1] >= edges[-1]


def test_steps_of_one_nanosecond() -> None:
    edges = steps.edges(View(0, 5, 7))
    assert edges.tolist() == [5, 6, 7]
    assert steps.boundaries(Spans(np.array([5]), np.array([6])), Spans(), edges).tolist() == [5, 6, 7]


# --- simulated runs


def simulated(folder: Path, delay_ms: float, block_bytes: int, depth: int, count: int, operation: str) -> Any:
    workload = {"block_size_bytes": block_bytes, "total_bytes": block_bytes * count, "queue_depth": depth}
    path = {way: {"delay_ns": int(delay_ms * MS), "rate_bps": 320_000_000} for way in ("to_target", "to_initiator")}
    settings = {
        "client": {"workload": workload | {"operation": operation}},
        "portals": [{}],
        "world": {"paths": [path]},
    }
    simulation.run(settings, folder, lambda *_: False)
    return iscsitrace.read(folder / "initiator.pcapng", tables=("segments", "budget"))


def variation(values: Any) -> float:
    """Coefficient of variation of the inner steps: after slow start, before the last cycle."""
    inner = values[60:-10]
    return float(inner.std() / inner.mean())


@pytest.mark.parametrize(
    ("delay_ms", "block_bytes", "depth", "count", "operation"),
    [
        # 128 commands in 200 steps: the report of the demo
        (8, 131_072, 1, 128, "read"),
        (8, 131_072, 1, 40, "read"),
        (8, 131_072, 1, 25, "read"),
        (1, 16_384, 1, 150, "read"),
        (1, 524_288, 1, 100, "read"),
        (0.1, 65_536, 1, 170, "read"),
        (16, 65_536, 8, 400, "read"),
        (4, 131_072, 4, 300, "read"),
        (4, 262_144, 1, 64, "write"),
    ],
)
def test_steady_commands_are_a_flat_curve(
    tmp_path: Path, delay_ms: float, block_bytes: int, depth: int, count: int, operation: str
) -> None:
    trace = simulated(tmp_path, delay_ms, block_bytes, depth, count, operation)
    seen = view.of_tasks(trace.connections, trace.cycles, Zoom(), trace.inputs[0]["time_first_ns"])
    edges = steps.edges(seen)
    found = throughput.compute(trace.segments, trace.cycles, trace.budget, edges, seen)
    name = "to_initiator_bytes_per_s" if operation == "read" else "to_target_bytes_per_s"
    assert variation(getattr(found, name)) < 0.01
    assert variation(found.idle_share) < 0.01
    assert variation(found.queue_depth_mean) < 0.01
    # the payload of all commands, less what headers add
    assert (getattr(found, name) * np.diff(edges) / 1e9).sum() == pytest.approx(block_bytes * count, rel=0.02)
    for shares in time_breakdown.compute(trace.budget, trace.cycles, edges, seen).shares:
        assert shares[60:-10].std() < 0.01
    # the same without commands: the control that these settings do beat with the steps
    blind = throughput.compute(trace.segments, trace.cycles.select([]), trace.budget, edges, seen)
    assert variation(getattr(blind, name)) > 0.03
