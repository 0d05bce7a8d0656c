"""Figures of a run besides its throughput: the model's line and window, and differences between connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iscsitrace.lab import simulation
from iscsitrace.lab.settings import structs as settings
from iscsitrace.model.setting import Setting, in_commands
from iscsitrace.studies import expected, from_truth, measured

SECOND_NS = 1_000_000_000
BASE: dict[str, Any] = {
    "workload.operation": "read",
    "workload.block-size": 262_144,
    "workload.queue-depth": 16,
    "workload.calls": 120,
    "link.rate": 100_000_000,
    "link.one-way-delay": 1_000_000,
    "target.status": "in_data",
}


def throughputs(folder: Path, values: dict[str, Any]) -> tuple[float, float]:
    """Throughputs of a simulated run without its first calls, and by the model."""
    truth = simulation.run(settings.of_run(values, 0), folder, lambda *_: False)
    prediction = expected.of_point(values, truth["results"]["connections"][0]["parameters"])
    assert prediction is not None
    return measured.steady_stretch(truth, values, 50).throughput_bytes_per_s, prediction.throughput_bytes_per_s


@pytest.mark.parametrize(
    ("changes", "bits_per_s"),
    [
        ({}, 100e6),
        # a slower disk is no line
        ({"target.is-serial": True, "target.service-delay": 1_000_000_000}, 100e6),
        # the line of the data
        ({"link.to-target.rate": 50_000_000}, 100e6),
        ({"workload.operation": "write", "link.to-target.rate": 50_000_000}, 50e6),
        ({"workload.operation": "socket_write", "link.to-target.rate": 50_000_000}, 50e6),
        # a line that all targets share; it carries each copy of a mirror
        ({"target.count": 4, "workload.layout": "stripe", "link.access-rate": 80_000_000}, 80e6),
        ({"target.count": 2, "workload.layout": "mirror", "link.access-rate": 80_000_000}, 40e6),
    ],
)
def test_the_line_that_idle_fractions_refer_to(changes: dict[str, Any], bits_per_s: float) -> None:
    assert expected.line_bytes_per_s(BASE | changes) == pytest.approx(bits_per_s / 8 * 1448 / 1514)


def test_without_a_rate_there_is_no_idle_fraction() -> None:
    assert expected.line_bytes_per_s({name: value for name, value in BASE.items() if name != "link.rate"}) is None


@pytest.mark.parametrize(("is_ipv6", "headers_bytes"), [(False, 20 + 20), (True, 40 + 20)])
def test_a_full_line_has_its_payload_rate(tmp_path: Path, is_ipv6: bool, headers_bytes: int) -> None:
    """Of each frame 14 bytes are Ethernet's, and 12 TCP's timestamps; of 262,192 bytes 48 are a Data-In's header."""
    found, model = throughputs(tmp_path, BASE | {"capture.is-ipv6": is_ipv6})
    carried = 100e6 / 8 * 1448 / (14 + headers_bytes + 12 + 1448) * 262_144 / 262_192
    assert model == pytest.approx(carried, rel=1e-6)
    assert found == pytest.approx(carried, rel=0.001)


def test_a_send_buffer_allows_two_thirds_of_its_size_per_rtt(tmp_path: Path) -> None:
    """Plus the segment that frees enough buffer, at either end, at an RTT of 20 ms."""
    buffer = {"link.rate": 10**9, "link.one-way-delay": 10_000_000, "target.tcp.send-buffer": 65_536}
    found, model = throughputs(tmp_path, BASE | buffer | {"workload.queue-depth": 8})
    carried = (65_536 * 2 / 3 + 2 * 1448) / 0.020
    assert model == pytest.approx(carried, rel=0.01)
    assert found == pytest.approx(carried, rel=0.03)


def places(values: dict[str, Any]) -> tuple[int, int, int, int | None]:
    """Commands in flight on each connection, connections, their I/O size, and the call that ends before the next."""
    found = expected.setting_of(BASE | values, {})
    assert found
    return found.queue_depth, found.connections, found.block_bytes, found.call_bytes


@pytest.mark.parametrize(
    ("operation", "calls", "connections", "window", "found"),
    [
        # calls of 600,000 bytes are three commands of at most 256 KiB; those of a read are sent together
        ("read", 1, 1, None, (1, 1, 600_000, None)),
        ("read", 4, 2, None, (2, 2, 600_000, None)),
        ("read", 1, 1, 1, (1, 1, 200_000, 600_000)),
        ("read", 4, 2, 6, (3, 2, 200_000, None)),
        ("write", 1, 1, None, (3, 1, 200_000, 600_000)),
        # six commands over four connections: the nearest whole number on each
        ("write", 2, 4, None, (2, 4, 200_000, None)),
        # no more connections than commands in flight
        ("write", 2, 4, 3, (1, 3, 200_000, None)),
        ("write", 1, 4, 1, (1, 1, 200_000, 600_000)),
    ],
)
def test_commands_in_flight_are_those_of_the_session(
    operation: str, calls: int, connections: int, window: int | None, found: tuple[int, int, int, int | None]
) -> None:
    values = {"workload.operation": operation, "workload.queue-depth": calls, "workload.connections": connections}
    values |= {"workload.system-call-size": 600_000, "workload.max-transfer": 262_144}
    if window:
        values["target.command-window"] = window
    assert places(values) == found
    # each session, and each target of a stripe, has as many
    depth, count, *sizes = found
    assert places(values | {"workload.sessions": 3}) == (depth, 3 * count, *sizes)
    # the what-if of a capture that shows the calls on each connection
    if calls % connections == 0:
        shown = Setting(operation, 262_144, 1e6, queue_depth=calls // connections, connections=connections)
        asked = in_commands(shown, 600_000, window)
        assert (asked.queue_depth, asked.connections, asked.block_bytes, asked.call_bytes) == found


def test_statuses_are_held_for_reads_only() -> None:
    apart = {"target.status": "apart_held"}
    for operation, depth, is_held in (("read", 16, True), ("write", 1, False), ("socket_read", 16, False)):
        found = expected.setting_of(BASE | apart | {"workload.operation": operation, "workload.queue-depth": depth}, {})
        assert found
        assert found.is_status_held is is_held
    # where R2Ts and statuses of writes follow each other, Nagle's algorithm holds them
    assert expected.setting_of(BASE | apart | {"workload.operation": "write"}, {}) is None
    part = {"workload.system-call-size": 1 << 20, "workload.max-transfer": 262_144, "target.command-window": 8}
    assert expected.setting_of(BASE | apart | part, {}) is None
    assert expected.setting_of(BASE | part, {}) is not None


def test_congestion_control_that_the_model_does_not_know_matters_only_under_losses() -> None:
    tahoe, reno = (BASE | {"tcp.congestion-control": name} for name in ("tahoe", "reno"))
    assert expected.of_point(tahoe, {}) == expected.of_point(reno, {})
    assert expected.of_point(tahoe | {"link.loss": 0.001}, {}) is None
    assert expected.of_point(reno | {"link.loss": 0.001}, {}) is not None


def connection(number: int, **times: int | None) -> dict[str, Any]:
    return {"connection": number, "joined_ns": None, "left_ns": None} | times


def end(port: int, **cwnd_from_s: int) -> dict[str, Any]:
    """A sender by its initiator's port, and its windows from a second on, as ``at_4=10``."""
    times = [int(name.removeprefix("at_")) * SECOND_NS for name in cwnd_from_s]
    return {"initiator_port": port, "windows": {"time_ns": times, "cwnd": list(cwnd_from_s.values())}}


def truth_of(tasks: list[tuple[int, int, int]], ends: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """The truth of reads; of each command: connection, end and duration in milliseconds."""
    return {
        "results": {
            "started_ns": 0,
            "tuning": None,
            "connections": [connection(number) for number in range(count)],
        },
        "cycles": {
            "operation": ["read"] * len(tasks),
            "target": [0] * len(tasks),
            "connection": [number for number, _, _ in tasks],
            "bytes": [1_000_000] * len(tasks),
            "initiator": {
                "command_first_ns": [(ended - took) * 1_000_000 for _, ended, took in tasks],
                "status_ns": [ended * 1_000_000 for _, ended, _ in tasks],
            },
        },
        "initiator_ends": [],
        # in no order: the port shows which connection came first
        "target_ends": [ends],
    }


def test_differences_of_connections_are_of_time_weighted_means() -> None:
    """10 packets for nine seconds of ten and 100 for one are 19 on average, beside 57 all the time."""
    tasks = [(0, 1000 * second, 100) for second in range(1, 11)] + [(1, 5000, 300), (1, 9999, 300)]
    ends = [end(40_001, at_0=57), end(40_000, at_0=10, at_9=100)]
    found = from_truth.of_connections(truth_of(tasks, ends, 2), {}, 0, 10 * SECOND_NS)
    assert found["cwnd_spread"] == pytest.approx(19 / 38)
    # ten megabytes and two: 6 on average, 4 more and less
    assert found["connection_spread"] == pytest.approx(4 / 6)
    # ten times 100 ms and twice 300: 133.3 on average
    mean = 1600 / 12
    variance = (10 * (100 - mean) ** 2 + 2 * (300 - mean) ** 2) / 12
    assert found["latency_cv"] == pytest.approx(variance**0.5 / mean)
    (goodput,) = [each for each in found["courses"] if each.name == "goodput"]
    assert (goodput.unit, len(goodput.values)) == ("MB/s", 10)
    # what ends on an edge counts in what follows, and at the end in the last
    assert goodput.values == pytest.approx((0, 1, 1, 1, 1, 2, 1, 1, 1, 3))
    assert goodput.times_s == pytest.approx([0.5 + second for second in range(10)])


def test_read_times_of_a_connection_are_in_order_of_their_ends() -> None:
    tasks = [(0, 3000, 300), (0, 1000, 100), (1, 2000, 70), (0, 2000, 150)]
    found = from_truth.of_connections(truth_of(tasks, [end(40_000, at_0=10)], 2), {}, 0, 4 * SECOND_NS)
    (latency,) = [each for each in found["courses"] if each.name == "latency of connection 1"]
    assert (latency.unit, latency.times_s, latency.values) == ("ms", (1, 2, 3), (100, 150, 300))
    # a thousand commands are 200 of them, each fifth
    many = [(0, number, 1) for number in range(1, 1001)]
    found = from_truth.of_connections(truth_of(many, [end(40_000, at_0=10)], 1), {}, 0, 4 * SECOND_NS)
    (latency,) = [each for each in found["courses"] if each.name == "latency of connection 1"]
    assert np.allclose(latency.times_s, np.arange(1, 1001, 5) / 1000)


def test_a_window_counts_from_its_first_sample_on() -> None:
    ends = [end(40_000, at_4=10, at_6=40), end(40_001, at_0=40)]
    tasks = [(number, 9000, 100) for number in (0, 1)]
    found = from_truth.of_connections(truth_of(tasks, ends, 2), {}, 2 * SECOND_NS, 10 * SECOND_NS)
    # two seconds of 10 and four of 40 are 30
    assert found["cwnd_spread"] == pytest.approx(5 / 35)


def test_the_window_of_a_connection_ends_when_it_leaves() -> None:
    truth = truth_of([(0, 9000, 100)], [end(40_000, at_0=10, at_3=20)], 1)

    def last_s() -> float:
        found = from_truth.of_connections(truth, {}, 0, 10 * SECOND_NS)
        (window,) = [each for each in found["courses"] if each.name == "cwnd of connection 1"]
        assert (window.values[0], window.values[-1]) == (10, 20)
        return float(window.times_s[-1])

    assert last_s() == pytest.approx(10)
    truth["results"]["connections"][0]["left_ns"] = 5 * SECOND_NS
    assert last_s() == pytest.approx(5)


def test_the_goodput_of_a_connection_is_spread_over_its_commands() -> None:
    """1 MB each 1.5 s is 0.67 MB/s in every second; a connection that begins late has no goodput before."""
    tasks = [(0, 1500, 1500), (0, 3000, 1500), (0, 5000, 1000), (39, 4500, 500), (39, 4000, 2000)]
    found = from_truth.of_connections(truth_of(tasks, [end(40_000, at_0=10)], 40), {}, 0, 5 * SECOND_NS)
    first, late = (
        next(each for each in found["courses"] if each.name == f"goodput of connection {number}") for number in (1, 40)
    )
    assert (first.unit, first.times_s) == ("MB/s", pytest.approx((0.5, 1.5, 2.5, 3.5, 4.5)))
    assert first.values == pytest.approx((2 / 3, 2 / 3, 2 / 3, 0, 1))
    # two intervals of 1.25 s from 2 to 4.5 s: 0.625 of the first command, then the rest of it and the other one
    assert late.times_s == pytest.approx((2.625, 3.875))
    assert late.values == pytest.approx((0.625 / 1.25, 1.375 / 1.25))


def step(time_s: float, connections: int, megabytes_per_s: float, then: int) -> dict[str, Any]:
    rate = megabytes_per_s * 1e6
    return {"time_s": time_s, "connections": connections, "goodput_bytes_per_s": rate, "next_connections": then}


def test_measurements_are_those_of_the_last_number() -> None:
    truth = truth_of([(0, 9000, 100)], [end(40_000, at_0=10)], 1)
    steps = [step(2.0, 8, 40.0, 8), step(4.0, 8, 50.0, 16), step(6.5, 16, 60.0, 16), step(8.0, 16, 100.0, 16)]
    truth["results"]["tuning"] = {"settled_connections": None, "converged_s": None, "connections": 16, "steps": steps}
    found = from_truth.of_connections(truth, {}, 0, 10 * SECOND_NS)
    # the first is what a search would go by; both are 80 on average, 20 more and less
    assert (found["measured_bytes_per_s"], found["measuring_s"]) == (60e6, 2.5)
    assert found["measured_cv"] == pytest.approx(20 / 80)
    (course,) = [each for each in found["courses"] if each.name == from_truth.MEASURED]
    assert (course.times_s, course.values) == ((2.0, 4.0, 6.5, 8.0), (40.0, 50.0, 60.0, 100.0))


@pytest.mark.parametrize(
    ("took_ms", "share"),
    [
        # two groups, two groups with scatter, even spacing of three, four and many
        ([100, 100, 500, 500], 1.0),
        ([90, 110, 490, 510], 160_000 / 160_400),
        ([100, 200, 300], 0.75),
        ([100, 200, 300, 400], 0.8),
        (list(range(100, 500)), 0.75),
        ([100, 200], None),
        ([100, 100, 100], None),
    ],
)
def test_two_poles_are_told_from_even_spacing(took_ms: list[int], share: float | None) -> None:
    done = np.array([(0, number, 0, took * 1_000_000, 1) for number, took in enumerate(took_ms)])
    # commands that ended before do not count
    early = np.array([(0, number, 0, 1, 1) for number in range(len(took_ms))])
    found = from_truth.latency_poles(np.concatenate([early, done]), 1)
    assert found == (None if share is None else pytest.approx(share, rel=1e-4))


def test_connections_are_counted_among_those_in_use_at_the_end() -> None:
    """A search that closes 40 of 60 connections and opens 30 again: the 40th is number 79 of the run, from 0."""
    tasks = [(number, 9000, 100 + number) for number in (0, 39, 79)]
    ends = [end(40_000 + number, at_0=10 + number) for number in range(90)]
    truth = truth_of(tasks, ends, 90)
    for number in range(20, 60):
        truth["results"]["connections"][number]["left_ns"] = 3 * SECOND_NS
    found = from_truth.of_connections(truth, {}, 0, 10 * SECOND_NS)
    late = next(each for each in found["courses"] if each.name == "latency of connection 40")
    assert late.values == (179.0,)
    assert found["late_window"] == pytest.approx(89 / 10)
    dots = next(each for each in found["courses"] if each.name == from_truth.ALL_LATENCIES)
    assert sorted(dots.values) == [100.0, 139.0, 179.0]
