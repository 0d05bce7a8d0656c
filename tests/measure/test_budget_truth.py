"""Time breakdowns of traffic with known truth: idle fraction by the log of the link, limiter by all logs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iscsitrace
from bench.budget import runs
from bench.budget.cases import CASES, MS_NS, limiters
from bench.budget.outcomes import Outcome, outcomes_of
from bench.budget.runs import Made
from iscsitrace.lab import simulation
from iscsitrace.measure import budget
from iscsitrace.measure.budget import Budget
from iscsitrace.tables.trace import TraceTables
from tests.support.lab import Truth, judge_run, needs_root

LOSSY = [name for name in CASES if name.startswith("loss")]
DELAYS_MS = {1: (0.1, 4.0), 8: (1.0, 16.0)}
"""By queue depth: each kind of case at two delays of each, all four together. The bench runs all cases."""
LOSSLESS = [name for name, case in CASES.items() if not case.loss and case.delay_ms in DELAYS_MS[case.queue_depth]]
REAL = (
    *("plain, read, 4 ms, QD 1", "plain, write, 4 ms, QD 8", "window-limited, read, 1 ms, QD 1"),
    *("slow target, write, 1 ms, QD 1", "think time, read, 1 ms, QD 1", "R2T rounds, write, 4 ms, QD 1"),
    *("slow start, read, 16 ms, QD 1", "status held, odd, read, 4 ms, QD 1"),
)


def _wrong(outcome: Outcome) -> list[str]:
    found = []
    if abs(outcome.error_points) > outcome.allowed_points:
        found.append(f"{outcome.tap}: idle {outcome.idle:.4f}, the link's log has {outcome.true_idle:.4f}")
    if not outcome.is_right or not outcome.is_wait_right:
        found.append(
            f"{outcome.tap}: {outcome.named} named, {' or '.join(outcome.right)} is right; "
            f"{outcome.wait} the largest part, {' or '.join(outcome.largest)} is"
        )
    return found


def _assert_arithmetic_and_logs_agree(made: Made) -> None:
    for tap in runs.TAPS:
        parts = made.parts.parts(tap)
        first, last = made.parts.taps.span(tap)
        assert sum(parts.values()) == last - first
        # queued tasks with a held status have no arithmetic
        if made.case.limiters:
            assert set(made.case.limiters) & set(limiters(parts))


@pytest.mark.parametrize("name", LOSSLESS, ids=str)
def test_simulated_runs(tmp_path: Path, name: str) -> None:
    made = runs.make(CASES[name], "simulated", tmp_path)
    _assert_arithmetic_and_logs_agree(made)
    assert [each for outcome in outcomes_of(made) for each in _wrong(outcome)] == []


# the bench runs all cases
@pytest.mark.parametrize("name", LOSSY[::5], ids=str)
def test_simulated_runs_with_losses(tmp_path: Path, name: str) -> None:
    made = runs.make(CASES[name], "simulated", tmp_path)
    assert made.packets
    assert [each for outcome in outcomes_of(made) for each in _wrong(outcome)] == []


@needs_root
@pytest.mark.parametrize("name", REAL, ids=str)
def test_real_runs(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    def run() -> tuple[Truth, Made]:
        made = runs.make(CASES[name], "real", tmp_path_factory.mktemp("run"))
        return made.truth, made

    def judge(_: Truth, made: Made) -> None:
        assert [each for outcome in outcomes_of(made) for each in _wrong(outcome)] == []

    judge_run(run, judge)


# --- the parts add up, for any run

_DIRECTION = st.fixed_dictionaries(
    {
        "rate_bps": st.sampled_from((None, 10_000_000, 100_000_000, 1_000_000_000)),
        "delay_ns": st.sampled_from((0, 100_000, 2 * MS_NS, 20 * MS_NS)),
        "loss_probability": st.sampled_from((0.0, 0.0, 0.002, 0.02)),
        "jitter_ns": st.sampled_from((0, 0, MS_NS)),
        "is_jitter_reordering": st.booleans(),
        "queue_packets": st.sampled_from((20, 1000)),
    }
)
_TCP = st.fixed_dictionaries(
    {
        "receive_buffer_bytes": st.sampled_from((8 << 10, 64 << 10, 3 << 20)),
        "nagle": st.booleans(),
        "delayed_ack": st.booleans(),
        "timestamps": st.booleans(),
        "sack": st.booleans(),
        "window_scaling": st.booleans(),
        "initial_window": st.sampled_from((1, 10)),
        "congestion_control": st.sampled_from(("reno", "cubic")),
    }
)
_SERVICE = st.sampled_from(({"distribution": "fixed", "delay_ns": 0}, {"distribution": "fixed", "delay_ns": 5 * MS_NS}))


@st.composite
def _simulations(draw: st.DrawFn) -> dict[str, Any]:
    seed = draw(st.integers(0, 1_000))
    bytes_of_burst = draw(st.sampled_from((8 << 10, 64 << 10, 256 << 10)))
    workload = {
        "operation": draw(st.sampled_from(("read", "write", "mixed"))),
        "block_size_bytes": draw(st.sampled_from((512, 4 << 10, 64 << 10, 512 << 10))),
        "queue_depth": draw(st.sampled_from((1, 2, 16))),
        "think_time_ns": draw(st.sampled_from((0, 0, 5 * MS_NS))),
        "connections": draw(st.integers(1, 3)),
        "sessions": draw(st.integers(1, 2)),
        "total_bytes": 1 << 20,
        "seed": seed,
    }
    offers = {
        "initial_r2t": draw(st.booleans()),
        "immediate_data": draw(st.booleans()),
        "max_connections": 8,
        "max_burst_length": bytes_of_burst,
        "first_burst_length": bytes_of_burst,
        "max_outstanding_r2t": draw(st.sampled_from((1, 4))),
    }
    portal = {
        "status": draw(st.sampled_from(("in_data", "apart", "apart_held"))),
        "read_delay": draw(_SERVICE),
        "write_delay": draw(_SERVICE),
        "keys": {"max_connections": 8, "max_outstanding_r2t": 4},
        "seed": seed,
    }
    path = {"to_target": draw(_DIRECTION), "to_initiator": draw(_DIRECTION), "seed": seed}
    world = {"initiator_tcp": draw(_TCP), "target_tcp": draw(_TCP), "paths": [path], "seed": seed}
    return {"client": {"workload": workload, "login": {"offers": offers}}, "portals": [portal], "world": world}


def _span(trace: TraceTables, members: set[int]) -> tuple[int, int]:
    """From the first command of these connections to their last status, or to its ACK after a retransmission."""
    ends = ("status_ns", "status_acked_ns")
    cycles = trace.cycles.rows(("connection", "command_first_ns", *ends))
    mine = [row for row in cycles if row["connection"] in members]
    last_ns = max((row[end] for row in mine for end in ends if row[end] is not None), default=0)
    return min((row["command_first_ns"] for row in mine), default=0), last_ns


def _check_stretches(rows: list[dict[str, Any]], span: tuple[int, int], found: Budget) -> None:
    """The spans follow each other without a gap, and have the sums of the table."""
    assert (rows[0]["time_first_ns"], rows[-1]["time_last_ns"]) == span
    assert all(row["time_last_ns"] == following["time_first_ns"] for row, following in pairwise(rows))
    assert all(row["time_first_ns"] < row["time_last_ns"] for row in rows)
    for part in budget.PARTS:
        lasted_ns = sum(row["time_last_ns"] - row["time_first_ns"] for row in rows if row["part"] == part)
        assert found.whole_ns[part] == lasted_ns
    assert found.total_ns == span[1] - span[0]


@given(_simulations())
@settings(max_examples=40, deadline=None)
def test_every_nanosecond_is_attributed_to_one_part(
    tmp_path_factory: pytest.TempPathFactory, simulated: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    simulation.run(simulated, folder, lambda *_: False)
    for tap in runs.TAPS:
        trace = iscsitrace.read(folder / f"{tap}.pcapng", tables=("budget",))
        rows = list(trace.budget.rows())
        members: dict[int, set[int]] = {}
        for row in trace.connections.rows():
            if row["is_iscsi"]:
                members.setdefault(row["session"], set()).add(row["connection"])
        of_connections, of_sessions = budget.of_connections(trace.budget), budget.of_sessions(trace.budget)
        assert len(members) == simulated["client"]["workload"]["sessions"]
        for session, connections in members.items():
            spans = {connection: _span(trace, {connection}) for connection in connections}
            # without a delay or a rate everything happens at once, and a connection may have carried no task
            lasting = {connection for connection, (first_ns, last_ns) in spans.items() if last_ns > first_ns}
            assert lasting == connections & set(of_connections)
            for connection in lasting:
                own = [row for row in rows if row["connection"] == connection]
                _check_stretches(own, spans[connection], of_connections[connection])
            if session in of_sessions:
                own = [row for row in rows if row["session"] == session and row["connection"] is None]
                # the time of a session with tasks on one connection is that connection's
                own = own or [row for row in rows if row["session"] == session]
                _check_stretches(own, _span(trace, connections), of_sessions[session])
            else:
                assert not lasting
