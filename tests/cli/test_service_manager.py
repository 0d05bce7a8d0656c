"""What a service manager learns: a datagram when it begins, signs of life, and its end."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iscsitrace.cli.record.service_manager import ServiceManager
from tests.support.programs import running
from tools.docs import ROOT

SAMPLE = ROOT / "samples" / "any-device" / "capture.pcap.gz"


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self._socket.settimeout(30)

    def heard(self) -> str:
        return self._socket.recv(4096).decode()

    def heard_so_far(self) -> list[str]:
        self._socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.heard())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(30)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@iscsitrace-test-{os.getpid()}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_signs_of_life_come_three_times_in_the_allowed_time(
    manager: Manager, address: str, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    service = ServiceManager()
    # what it starts does not speak for it
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
    assert manager.heard_so_far() == []
    service.alive()
    assert manager.heard() == "READY=1\nWATCHDOG=1"
    for at_s, expected in ((9.9, []), (10.0, ["WATCHDOG=1"]), (19.9, []), (20.0, ["WATCHDOG=1"])):
        clock[0] = 1000 + at_s
        service.alive()
        assert manager.heard_so_far() == expected
    service.stopping()
    service.alive()
    assert manager.heard_so_far() == ["STOPPING=1"]


@pytest.mark.parametrize("process", ["1", "none"])
def test_a_watchdog_of_another_process_is_not_fed(
    process: str, manager: Manager, address: str, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", process)
    service = ServiceManager()
    service.alive()
    clock[0] += 100
    service.alive()
    service.stopping()
    assert manager.heard_so_far() == ["READY=1\nWATCHDOG=1", "STOPPING=1"]


@pytest.mark.parametrize("value", ["", "/no/such/socket", "relative"])
def test_without_a_manager_nothing_is_sent(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", value)
    service = ServiceManager()
    service.alive()
    service.stopping()


def test_a_manager_that_is_gone_does_not_end_a_capture(
    manager: Manager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    service = ServiceManager()
    manager.close()
    service.alive()
    service.stopping()


def test_a_watch_is_ready_lives_and_ends(manager: Manager, address: str, tmp_path: Path) -> None:
    """Also while nothing arrives, and with the rights that it keeps."""
    capture = tmp_path / "a.pcap"
    capture.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    environment = os.environ | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "900000"}
    command = [sys.executable, "-m", "iscsitrace", "watch", "--plain", str(capture)]
    with running(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)) as watch:
        try:
            assert manager.heard() == "READY=1\nWATCHDOG=1"
            begun_s = time.monotonic()
            assert [manager.heard() for _ in range(3)] == ["WATCHDOG=1"] * 3
            assert time.monotonic() - begun_s >= 0.6
            watch.send_signal(signal.SIGTERM)
            while (last := manager.heard()) == "WATCHDOG=1":
                pass
            assert last == "STOPPING=1"
            assert watch.wait(timeout=30) == 0
        finally:
            watch.kill()


def test_a_capture_is_ready_and_ends(manager: Manager, address: str, tmp_path: Path) -> None:
    environment = os.environ | {"NOTIFY_SOCKET": address}
    command = [sys.executable, "-m", "iscsitrace", "capture", "-q", "-r", str(SAMPLE), "-w", str(tmp_path / "b.pcapng")]
    subprocess.run(command, env=environment, check=True, timeout=60)
    assert manager.heard_so_far() == ["READY=1\nWATCHDOG=1", "STOPPING=1"]
