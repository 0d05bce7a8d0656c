"""The truth for time breakdowns: its arithmetic by hand, and the logs of link and hosts against their counts.

test_budget_truth.py holds both against each other in every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.budget import link, losses, packets, runs, spans
from bench.budget.cases import CASES, EQUAL_POINTS, MS_NS, Case, limiters, line_ns

_LAST = 30
_SETS = st.lists(st.tuples(st.integers(0, _LAST), st.integers(0, _LAST)), max_size=6)
LOSSY = [name for name in CASES if name.startswith("loss")]


def _instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for first, last in pairs for instant in range(first, last)}


@given(_SETS, _SETS)
def test_sets_of_times_against_counting_instants(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    one, other = spans.union(first), spans.union(second)
    both = spans.union(first, second)
    assert _instants(both.tolist()) == _instants(first) | _instants(second)
    assert all(left[1] < right[0] for left, right in zip(both.tolist(), both.tolist()[1:], strict=False))
    assert _instants(spans.intersection(one, other).tolist()) == _instants(first) & _instants(second)
    assert _instants(spans.subtraction(one, other).tolist()) == _instants(first) - _instants(second)
    assert _instants(spans.complement(one, (5, 20)).tolist()) == set(range(5, 20)) - _instants(first)
    found = spans.attributed((5, 20), {"one": one, "other": other}, "rest")
    inside = set(range(5, 20))
    mine, its = _instants(first) & inside, _instants(second) & inside
    assert found == {"one": len(mine), "other": len(its - mine), "rest": len(inside - mine - its)}


def test_parts_within_five_points_are_equally_large() -> None:
    assert limiters({"transfer": 40.0, "propagation": 29.0, "ack_wait": 31.0}) == ("ack_wait", "propagation")
    assert limiters({"transfer": 35.0, "propagation": 35.0, "ack_wait": 35.0 - EQUAL_POINTS}) == ("propagation",)
    assert limiters({"transfer": 48.0, "propagation": 42.0, "ack_wait": 10.0}) == ("transfer", "propagation")
    assert limiters({"transfer": 53.0, "propagation": 47.0}) == ("transfer",)
    assert limiters({}) == ()


def test_the_line_time_of_a_block() -> None:
    # 46 segments of at most 1448 bytes, 66 bytes of headers each, at 25 ns a byte
    assert line_ns(65_536) == (65_536 + 48 + 46 * 66) * 25


@pytest.mark.parametrize("operation", ["read", "write"])
def test_logs_show_that_a_small_send_buffer_is_the_limiter(tmp_path: Path, operation: str) -> None:
    """Of 256 KiB at most 64 KiB are in flight: three times in each block a sender waits for an ACK, or more often."""
    delay_ms, block_bytes, buffer_bytes, count = 8.0, 256 << 10, 64 << 10, 16
    case = Case(
        *("send buffer", operation, delay_ms, 1, block_bytes),
        send_buffer_bytes=buffer_bytes,
        total_bytes=count * block_bytes,
    )
    made = runs.make(case, "simulated", tmp_path)
    wait_ns = 2 * delay_ms * MS_NS - line_ns(buffer_bytes)
    limited_ns = made.parts.limited_ns()
    assert limited_ns["receive_window"] == 0
    assert limited_ns["send_buffer"] <= limited_ns["busy"]
    for tap in runs.TAPS:
        parts = made.parts.parts(tap)
        assert limiters(parts) == ("send_buffer",)
        assert parts["send_buffer"] >= 3 * count * wait_ns
        # in the first slow start only
        assert parts["congestion_window"] < 0.05 * sum(parts.values())


@pytest.mark.parametrize("name", LOSSY[::5], ids=str)
def test_losses_and_retransmissions_equal_the_counts_of_link_and_hosts(tmp_path: Path, name: str) -> None:
    made = runs.make(CASES[name], "simulated", tmp_path)
    assert made.packets
    lost_bytes = 0
    for direction, near in link.NEAR.items():
        far = "target" if near == "initiator" else "initiator"
        to_target = direction == "to_target"
        lost = packets.lost(made.packets[near], made.packets[far], to_target=to_target)
        lost_bytes += sum(packet.payload_bytes for packet in lost)
        missing = link.lost_count(made.truth, direction) + link.unfinished_count(made.truth, direction)
        assert len(lost) == missing
        (end,) = made.truth["initiator_ends"] if to_target else made.truth["target_ends"][0]
        again = losses.reasons(made.packets[near], to_target=to_target)
        # SYN and FIN bring no bytes
        control = [
            packet.sequence for packet in made.packets[near] if packet.to_target is to_target and packet.is_control
        ]
        assert len(again) + len(control) - len(set(control)) == end["retransmitted_segment_count"]
    parts = made.parts.parts("initiator")
    # ACKs that are lost alone cost nothing
    assert (parts["loss_recovery"] > 0) == (lost_bytes > 0)
