"""What a fit takes from its points before it computes: a socket's rate, the delays that are paid, mirrors as one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fit import socket
from iscsitrace.fit.points import Paid, Point, Seen, of_operation
from iscsitrace.fit.socket import Socket
from iscsitrace.fit.steady import join
from iscsitrace.model.prediction import changed
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate
from tests.support.tables_by_hand import MS, table

exact = Estimate.exact
READ = Setting("read", 65_536, 4.0 * MS, 65_536_000)
WRITE = replace(READ, operation="write", block_bytes=8_192)


def point(setting: Setting = READ, session: int = 0, k: float | None = None, **values: Any) -> Point:
    seen = Seen("cycle", None if k is None else exact(k), None, exact(1.0), 0.0, ())
    made = Point(
        f"point {session}", session, setting, 10.0 * MS, 0.0, 6_553_600, 10, {}, {}, exact(setting.delay_ns), seen
    )
    return replace(made, **values)


# --- a plain transfer


def connection(number: int, **columns: Any) -> dict[str, Any]:
    return {"connection": number, "time_first_ns": 100, "time_last_ns": 1_100} | columns


def test_the_steady_time_of_the_busiest_connection() -> None:
    """From 40 % to 95 % of its 1000 ns."""
    rows = [
        connection(0, stream_bytes_to_target=60, stream_bytes_to_initiator=60, time_last_ns=9_999),
        connection(1, stream_bytes_to_initiator=61),
    ]
    assert socket.steady_times_ns("a.pcap", table("connections", *rows)) == (500, 1_050)
    with pytest.raises(InputInvalid, match=r"a\.pcap: no TCP connection carries data"):
        socket.steady_times_ns("a.pcap", table("connections", connection(0)))
    with pytest.raises(InputInvalid, match="no TCP connection"):
        socket.steady_times_ns("a.pcap", table("connections"))


def test_the_rate_of_a_plain_transfer() -> None:
    """5000 bytes in a microsecond, in the direction that carried more; half of 3 and 5 ms. Without its handshake the
    steady part may have the sides the other way round.
    """
    sides = {"rtt_to_target_min_ns": 3 * MS, "rtt_to_initiator_min_ns": 5 * MS}
    whole = table("connections", connection(0, stream_bytes_to_initiator=9, stream_bytes_to_target=8, **sides))
    rows = [
        connection(0, stream_bytes_to_initiator=5_000, captured_bytes_to_initiator=11, stream_bytes_to_target=7),
        connection(1, stream_bytes_to_initiator=4, captured_bytes_to_initiator=10, captured_bytes_to_target=99),
    ]
    assert socket.measure("a.pcap", whole, table("senders"), table("connections", *rows)) == Socket(5e9, 4.0 * MS)
    swapped = connection(0, stream_bytes_to_target=5_000)
    assert socket.measure("a.pcap", whole, table("senders"), table("connections", swapped)).bytes_per_s == 5e9
    for steady in ([], [connection(0, time_last_ns=100, captured_bytes_to_initiator=11)]):
        with pytest.raises(InputInvalid, match="is too short for a steady throughput"):
            socket.measure("a.pcap", whole, table("senders"), table("connections", *steady))
    short = [connection(0, time_last_ns=101, stream_bytes_to_initiator=1)]
    assert socket.measure("a.pcap", whole, table("senders"), table("connections", *short)).bytes_per_s == 1e9


def test_each_point_has_the_rate_at_the_nearest_delay() -> None:
    points = [point(replace(READ, delay_ns=delay_ms * MS)) for delay_ms in (1.0, 4.9, 5.1, 50.0)]
    near, far = Socket(1.0, 2.0 * MS), Socket(2.0, 8.0 * MS)
    assert socket.of_points(points, {"near": near, "far": far}) == [1, 1, 2, 2]
    assert socket.of_points(points, {"near": Socket(3.0, None)}) == 3
    with pytest.raises(InputInvalid, match="far: no RTT was measured"):
        socket.of_points(points, {"near": near, "far": Socket(2.0, None)})


# --- delays


@pytest.mark.parametrize(("seen", "delays"), [(None, 4), (3.0, 4), (5.0, 4), (5.1, 6), (7.1, 8), (2.9, 2), (0.4, 2)])
def test_the_packets_decide_on_delays_that_differ_by_more_than_a_quarter(seen: float | None, delays: float) -> None:
    """A read whose status is held pays four. Others are whole round trips, one at least."""
    paid = Paid.of(point(replace(READ, is_status_held=True), k=seen))
    assert (paid.of_setting, paid.delays) == (4, delays)
    # half of them, a millisecond of service and one on the line; what a held status waits for is a part
    expected_ms = 0.5 * delays * 4 + 1 + 1
    assert paid.predict(0.5, 1.0 * MS, 65_536_000).period_ns == pytest.approx(expected_ms * MS)


def test_the_operation_that_moved_most_is_fitted() -> None:
    points = [point(), point(WRITE, cycle_count=79), point(WRITE, cycle_count=2)]
    assert of_operation(points) == points[1:]
    assert of_operation([points[0], points[1]]) == points[:1]
    assert of_operation(points, "read") == points[:1]
    assert of_operation([]) == []


# --- mirrors


def mirrors(*sessions: tuple[int, ...]) -> Any:
    return [SimpleNamespace(sessions=each) for each in sessions]


def test_copies_are_the_point_of_the_farthest() -> None:
    """Two copies take 2 x 0.125 ms of the line and 8 ms; one alone is faster."""
    near = point(replace(WRITE, delay_ns=1.0 * MS, service_ns=5.0), 0, period_ns=8.25 * MS)
    far = point(replace(WRITE, service_ns=7.0), 1, period_ns=8.25 * MS)
    for order in ([near, far], [far, near]):
        (one,) = join(order, mirrors((0, 1)))
        assert (one.name, one.session) == ("point 1, mirrored with 1 nearer target", 1)
        assert one.setting == replace(far.setting, target_delays_ns=(1.0 * MS, 4.0 * MS))
    third = point(replace(WRITE, delay_ns=2.0 * MS), 2)
    assert [each.name for each in join([near, third, far], mirrors((0, 1, 2)))] == [
        "point 1, mirrored with 2 nearer targets"
    ]


def test_a_cycle_faster_than_one_line_has_a_line_to_each_target() -> None:
    """On one line with the near copy first: 0.125 ms, 0.125 ms and 8 ms."""
    near = point(replace(WRITE, delay_ns=1.0 * MS), 0)
    for period_ms, is_shared in ((8.25 * 0.991, True), (8.25 * 0.989, False)):
        (one,) = join([near, point(WRITE, 1, period_ns=period_ms * MS)], mirrors((0, 1)))
        assert bool(one.setting.target_delays_ns) == is_shared


def test_what_is_no_copy_stays_a_point() -> None:
    near, far = point(replace(WRITE, delay_ns=1.0 * MS), 0), point(WRITE, 1)
    reads = [replace(each, setting=replace(each.setting, operation="read")) for each in (near, far)]
    others = [replace(far, setting=changed(far.setting, {name: 2})) for name in ("queue_depth", "connections")]
    others.append(replace(far, setting=replace(far.setting, block_bytes=4_096)))
    for points in (reads, [near, reads[1]], *([near, other] for other in others)):
        assert join(points, mirrors((0, 1))) == points
    # of two mirrors, and of one session
    assert join([near, far], mirrors((0, 2), (1, 3))) == [near, far]
    same = replace(far, session=0)
    assert join([near, same], mirrors((0, 1))) == [near, same]
