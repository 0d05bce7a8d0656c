"""Workers of this machine: each that ends is started again, and none outlives its run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import cluster, workers
from iscsitrace.fleet import run as run_module
from iscsitrace.fleet.cluster import connected
from iscsitrace.fleet.run import Watch, run
from iscsitrace.fleet.taps import Tap
from iscsitrace.fleet.workers import Workers
from tests.support import rings

pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
RUN = """
import sys, time
from iscsitrace.fleet.cluster import connected
with connected(None, 2) as client:
    print(*client.run(__import__("os").getpid).values(), flush=True)
    time.sleep(600)
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_killed_at_any_moment_of_their_start_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the first eight workers is killed after a time of its own, the first before it has begun."""
    packets = rings.traffic(3)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 3, 3))
    started, original = [], Workers._started

    def killed(self: Workers) -> subprocess.Popen[bytes]:
        process = original(self)
        started.append(process)
        if len(started) <= 8:
            time.sleep(0.15 * (len(started) - 1))
            process.kill()
        return process

    monkeypatch.setattr(Workers, "_started", killed)
    result = run(tmp_path / "data", [Tap("a", (str(tmp_path / "ring"),))], worker_count=2)
    assert result.read_count == 3
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path, packets))
    assert len(started) >= 10
    assert not any(is_running(process.pid) for process in started)


def test_workers_that_cannot_start_end_the_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = rings.traffic(3)
    rings.cut(tmp_path / "ring", packets, [])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(cluster, "_START_S", 1)
    monkeypatch.setattr(run_module, "_PATIENCE", 1)
    said: list[str] = []
    tap = Tap("a", (str(tmp_path / "ring"),))
    with pytest.raises(InputInvalid, match="no worker runs any more; the same command goes on where this one ended"):
        run(tmp_path / "data", [tap], watch=Watch(say=said.append))
    assert "tap a waits for a worker" in said


def test_a_worker_that_takes_the_memory_of_the_machine_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(None, 1) as client:
        [pid] = client.run(os.getpid).values()
        assert 0 < workers._resident_bytes(pid) < 1 << 30
        original = workers._resident_bytes
        monkeypatch.setattr(workers, "_resident_bytes", lambda each: 1 << 60 if each == pid else original(each))
        wait_until(lambda: not is_running(pid))
        client.wait_for_workers(1, timeout=60)
        wait_until(lambda: list(client.run(os.getpid, on_error="ignore").values()) not in ([], [pid]))


def test_workers_end_with_a_run_that_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pids = [int(each) for each in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_running(pid) for pid in pids)
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not any(is_running(pid) for pid in pids))
