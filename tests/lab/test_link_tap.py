"""The link between two TAP devices: delay and rate of frames as set, and a log of all frames.

Bounds are generous, because other programs run on the machine. Tests in virtual time check the link to the nanosecond.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.errors import InputInvalid, TrafficImpossible
from iscsitrace.lab.link_process import RunningLink, linked
from iscsitrace.lab.namespaces import Cable, EndSettings, LabNetwork, network
from tests.lab.test_lab_namespaces import connected, is_gone
from tests.support.lab import judge_run, needs_root
from tests.support.programs import running

ENDS = {"initiator": EndSettings(congestion_control="cubic"), "target": EndSettings(congestion_control="cubic")}
MS_NS = 1_000_000
UDP_HEADERS_BYTES = 14 + 20 + 8


@contextmanager
def connected_places(**settings: Any) -> Iterator[tuple[LabNetwork, RunningLink]]:
    with network(ENDS) as made, linked(made.cables[0], settings) as link:
        yield made, link


@contextmanager
def datagrams(made: LabNetwork) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket in each namespace, connected with each other."""

    def bound(end: str) -> socket.socket:
        made_socket = made[end].call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made_socket.bind((made[end].address, 0))
        made_socket.settimeout(2)
        return made_socket

    with bound("initiator") as near, bound("target") as far:
        near.connect(far.getsockname())
        far.connect(near.getsockname())
        yield near, far


@needs_root
def test_each_direction_has_its_own_delay() -> None:
    delays_ns = {"to_target": 12 * MS_NS, "to_initiator": 3 * MS_NS}
    times_ns: dict[str, list[int]] = {direction: [] for direction in delays_ns}
    settings = {direction: {"delay_ns": delay_ns} for direction, delay_ns in delays_ns.items()}
    with connected_places(**settings) as (made, link), datagrams(made) as (near, far):
        for _ in range(50):
            for direction, (sender, receiver) in {"to_target": (near, far), "to_initiator": (far, near)}.items():
                sent_ns = time.monotonic_ns()
                sender.send(b"x")
                receiver.recv(16)
                times_ns[direction].append(time.monotonic_ns() - sent_ns)
    for direction, delay_ns in delays_ns.items():
        assert min(times_ns[direction]) >= delay_ns
        assert statistics.median(times_ns[direction]) < delay_ns + 2 * MS_NS
    assert link.log["lateness"]["count"] >= 100
    assert link.log["lateness"]["median_ns"] < MS_NS
    assert link.log["failure"] is None


@needs_root
def test_tcp_gets_the_rate_and_the_line_is_busy_meanwhile() -> None:
    rate_bps, payload_bytes = 50_000_000, 6 << 20
    direction = {"rate_bps": rate_bps, "delay_ns": MS_NS, "queue_packets": 100}
    with connected_places(to_target=direction, to_initiator=direction) as (made, link):
        with connected(made["initiator"], made["target"]) as (near, far):
            started = time.monotonic()
            sending = threading.Thread(target=near.sendall, args=(bytes(payload_bytes),))
            sending.start()
            received = 0
            while received < payload_bytes:
                received += len(far.recv(1 << 20))
            took = time.monotonic() - started
            sending.join()
        time.sleep(0.1)
    # each 1448 bytes of payload take 1514 on the line
    on_line_bytes = payload_bytes * 1514 / 1448
    assert 0.99 * on_line_bytes * 8 / rate_bps < took < 1.3 * on_line_bytes * 8 / rate_bps
    log = link.log["link"]["to_target"]
    counters = log["counters"]
    assert counters["delivered"]["bytes"] > on_line_bytes
    assert counters["arrived"]["count"] == counters["delivered"]["count"] + counters["queue_full"]["count"]
    # every frame has its time on the line, rounded up to the nanosecond at most
    busy_ns = counters["delivered"]["bytes"] * 8 * 1_000_000_000 / rate_bps
    assert busy_ns <= log["line"]["busy_ns"] <= busy_ns + counters["delivered"]["count"]
    busy_times = log["line"]["busy_times"]
    assert sum(busy_times["to_ns"]) - sum(busy_times["from_ns"]) == log["line"]["busy_ns"]


@needs_root
def test_the_log_accounts_for_every_datagram() -> None:
    count, loss = 1000, 0.2
    payload = bytes(333)
    settings = {"to_target": {"loss_probability": loss}, "seed": 5, "is_logging_packets": True}

    def run() -> tuple[dict[str, Any], int]:
        with connected_places(**settings) as (made, link), datagrams(made) as (near, far):
            received = 0
            for number in range(count):
                near.send(payload)
                # taken at once, so that none is dropped for want of room
                far.settimeout(0.0005 if number < count - 1 else 0.5)
                with suppress(TimeoutError):
                    while far.recv(1024):
                        received += 1
        return link.log["link"], received

    def judge(log: dict[str, Any], received: int) -> None:
        of_size = [
            packet for packet in log["to_target"]["packets"] if packet["bytes"] == UDP_HEADERS_BYTES + len(payload)
        ]
        fates = [packet["fate"] for packet in of_size]
        assert len(fates) == count
        assert fates.count("delivered") == received
        assert fates.count("lost") == count - received
        # four deviations of a binomial distribution
        assert abs(count - received - loss * count) < 4 * (count * loss * (1 - loss)) ** 0.5
        assert log["to_initiator"]["counters"]["lost"]["count"] == 0

    # the kernel may drop a datagram before it reaches the link
    judge_run(run, judge)


@needs_root
def test_an_invalid_link_is_a_one_line_error() -> None:
    def lay(cable: Cable, settings: dict[str, Any]) -> None:
        with linked(cable, settings):
            pass

    with network(ENDS) as made:
        with pytest.raises(TrafficImpossible, match="loss_probability is 2; it has to be from 0 to 1"):
            lay(made.cables[0], {"to_target": {"loss_probability": 2}})
        with linked(made.cables[0], {}), pytest.raises(TrafficImpossible, match="Device or resource busy"):
            lay(made.cables[0], {})
    with network(ENDS, cable="veth") as made, pytest.raises(InputInvalid, match="TAP"):
        lay(made.cables[0], {})


@needs_root
def test_a_link_that_ends_too_early_is_a_one_line_error() -> None:
    def lay(harm: Callable[[LabNetwork, RunningLink], object]) -> None:
        with connected_places() as (made, link):
            harm(made, link)

    def kill(_: LabNetwork, link: RunningLink) -> None:
        os.kill(link.process_id, signal.SIGKILL)

    def pull_out(made: LabNetwork, _: RunningLink) -> None:
        made["target"].run("ip", "link", "del", "eth0", package="iproute2")
        time.sleep(0.2)

    def fail(_: LabNetwork, __: RunningLink) -> None:
        raise EOFError("of the one who uses it")

    with pytest.raises(TrafficImpossible, match="the link ended without a message"):
        lay(kill)
    with pytest.raises(TrafficImpossible, match="the link ended: a TAP device is gone"):
        lay(pull_out)
    with pytest.raises(EOFError, match="of the one who uses it"):
        lay(fail)


RUN = """
import time
from iscsitrace.lab.link_process import linked
from iscsitrace.lab.namespaces import EndSettings, network
with network({"initiator": EndSettings(), "target": EndSettings()}) as made, linked(made.cables[0], {}) as link:
    print(link.process_id, flush=True)
    time.sleep(60)
"""


@needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_link_ends_with_the_process_that_started_it(number: signal.Signals) -> None:
    with running(
        subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        link = int(process.stdout.readline())
        assert Path(f"/proc/{link}").exists()
        process.send_signal(number)
        process.communicate(timeout=20)
    assert is_gone(link)
