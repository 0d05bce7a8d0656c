"""What a capture and a watch listen to, and what they say where nothing is seen."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from iscsitrace.lab.namespaces import LabNetwork, Namespace
from iscsitrace.recording import silence
from iscsitrace.recording.silence import Silence, listening, packets_of
from tests.recording.test_capture_live import capturing, stopped, target, traffic, veth
from tests.support.lab import needs_root

__all__ = ["veth"]
PORTS = "TCP ports 3260 and 860"
CALM = ("--think-time", "5ms")
"""Seconds of traffic that takes little of the processor."""


class Clock:
    """Time and the counters of the interfaces, as a test sets them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.packets: int | None = 1000

    def monotonic(self) -> float:
        return self.now

    def packets_of(self, names: tuple[str, ...]) -> int | None:
        return self.packets if names else None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(silence, "packets_of", made.packets_of)
    return made


def test_the_first_line_says_what_is_captured() -> None:
    assert listening(["eth0"], None, is_learning=True) == (
        f"listening on eth0: {PORTS}, and iSCSI on other ports once it is found"
    )
    assert listening(["eth0", "eth1"], None, is_learning=False) == f"listening on eth0, eth1: {PORTS} only"
    assert listening(["eth0"], "port 5", is_learning=False) == "listening on eth0: packets that match 'port 5'"


@pytest.mark.parametrize(
    ("others", "seen", "capture_filter", "is_learning", "line"),
    [
        (0, 0, None, True, "no packets on eth0 in 5 s: iscsitrace interfaces lists the others"),
        (
            7, 0, None, True,
            f"7 packets on eth0 in 5 s, but none of iSCSI: {PORTS} are silent, and no other port has iSCSI so far",
        ),
        (7, 0, None, False, f"7 packets on eth0 in 5 s, but none on {PORTS}: name another port with -f 'tcp port N'"),
        (7, 0, "port 5", False, "7 packets on eth0 in 5 s, but none that match the capture filter 'port 5'"),
        (9, 3, None, True, "3 packets on eth0 in 5 s, but no iSCSI in them"),
        (None, 0, None, True, "no packets on eth0 in 5 s"),
    ],
)  # fmt: skip
def test_silence_says_why(
    others: int | None, seen: int, capture_filter: str | None, is_learning: bool, line: str, clock: Clock
) -> None:
    found = Silence(["eth0"], capture_filter, is_learning=is_learning)
    clock.now += 4.9
    clock.packets = None if others is None else 1000 + others
    assert found.line(seen, has_iscsi=False) is None
    clock.now += 0.2
    assert found.line(seen, has_iscsi=False) == line
    # once
    clock.now += 60
    assert found.line(seen, has_iscsi=False) is None


def test_what_has_begun_is_not_silent_later(clock: Clock) -> None:
    found = Silence(["eth0"], None, is_learning=True)
    assert found.line(5, has_iscsi=True) is None
    clock.now += 60
    assert found.line(5, has_iscsi=False) is None


def test_a_file_without_iscsi_says_so(clock: Clock) -> None:
    found = Silence([], None, is_learning=True)
    clock.now += 6
    assert found.line(12, has_iscsi=False) == "12 packets in 5 s, but no iSCSI in them"


def test_counters_of_interfaces() -> None:
    before = packets_of(["lo"])
    assert before is not None
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    after, everything = packets_of(["lo"]), packets_of(["any"])
    assert after is not None
    assert everything is not None
    assert before < after <= everything
    assert packets_of(["no-such-interface"]) is None


def heard(place: Namespace, word: str, *options: str | Path) -> str:
    with capturing(place, *options) as process:
        process.wait_until(lambda: word in process.log, "nothing was said", limit_s=15)
        said = process.log
        stopped(process)
    return said


@needs_root
def test_a_capture_says_what_it_listens_to_and_why_it_sees_nothing(veth: LabNetwork, tmp_path: Path) -> None:
    place = veth["target"]
    said = heard(place, " in 5 s", "-w", tmp_path / "idle.pcapng")
    assert f"iscsitrace: listening on eth0: {PORTS}, and iSCSI on other ports once it is found\n" in said
    with target(veth, port=5001) as url, capturing(place, "-w", tmp_path / "x.pcapng", "--no-learn") as process:
        traffic(veth, url, "--seconds", "6", "--block-size", "4K", "--queue-depth", "1", *CALM)
        time.sleep(0.5)
        said = process.log
        stopped(process)
    assert f"listening on eth0: {PORTS} only\n" in said
    assert f"but none on {PORTS}: name another port with -f 'tcp port N'\n" in said


@needs_root
def test_a_watch_finds_iscsi_on_another_port_and_is_not_silent(veth: LabNetwork) -> None:
    words = ("-m", "iscsitrace", "watch", "eth0", "--plain", "-a", "duration:7")
    with (
        target(veth, port=5002) as url,
        veth["target"].started(sys.executable, *words, package="python3") as process,
    ):
        process.wait_until(lambda: "listening on eth0" in process.log, "no line")
        traffic(veth, url, "--seconds", "5", "--block-size", "4K", *CALM)
        process.wait_until(lambda: not process.is_running, "no end", limit_s=15)
        said = process.log
    assert "in 5 s" not in said
    assert "IOPS" in said
