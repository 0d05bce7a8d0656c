"""Estimates against the kernel's account, in tables made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.measure import kernel_agreement
from tests.support.tables_by_hand import table

MS = 1_000_000


def agreement(
    samples: list[dict[str, Any]], changes: list[dict[str, Any]], estimate: dict[str, Any]
) -> kernel_agreement.SenderAgreement:
    connections = table("connections", {"connection": 0, "time_first_ns": 0, "time_last_ns": 900 * MS, "has_syn": True})
    of_sender = {"connection": 0, "to_target": True}
    (found,) = kernel_agreement.compare(
        table("tcp_info", *(of_sender | {"segment_bytes": 1000} | each for each in samples)),
        table("window", *(of_sender | each for each in changes)),
        table("senders", of_sender | estimate, {"connection": 0, "to_target": False}),
        connections,
    )
    return found


def test_cwnd_is_compared_where_the_estimate_is_valid() -> None:
    changes = [
        {"time_ns": 10, "cwnd_estimate_bytes": 11_000, "is_valid": True},
        {"time_ns": 20, "cwnd_estimate_bytes": 5_000, "is_valid": False},
        {"time_ns": 30, "cwnd_estimate_bytes": 20_000, "is_valid": True},
    ]
    samples = [{"time_ns": at, "cwnd_segments": 10} for at in (5, 15, 25, 30)]
    found = agreement(samples, changes, {})
    # 11 against 10, and 20 against 10
    assert (found.sample_count, found.compared_count) == (4, 2)
    assert found.cwnd_error_median == pytest.approx(0.55)
    assert found.cwnd_error_p95 == pytest.approx(0.1 + 0.95 * 0.9)
    assert found.busy_ns is None


def test_limited_times_are_compared_in_points_of_the_busy_time() -> None:
    counters = {"busy_ns": 200 * MS, "rwnd_limited_ns": 50 * MS, "sndbuf_limited_ns": 0, "retransmitted_segments": 7}
    estimate = {"rwnd_limited_ns": 56 * MS, "sndbuf_limited_ns": 20 * MS}
    # after the last packet nothing counts
    late = counters | {"time_ns": 901 * MS, "rwnd_limited_ns": 90 * MS}
    found = agreement([counters | {"time_ns": 800 * MS}, late], [], estimate)
    assert (found.rwnd_limited_points, found.sndbuf_limited_points) == (3, 10)
    assert (found.busy_ns, found.retransmitted_segments, found.compared_count) == (200 * MS, 7, 0)
    unknown = agreement([counters | {"time_ns": 800 * MS}], [], {"rwnd_limited_ns": None})
    assert unknown.rwnd_limited_points is None
