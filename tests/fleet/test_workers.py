"""Workers of this machine: each that ends is started again, and none outlives its run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.fleet import local_pool
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.local_pool import LocalPool
from iscsitrace.fleet.run import run
from tests.support import rings

RUN = """
import os, time
from iscsitrace.fleet.local_pool import LocalPool
with LocalPool(2) as pool:
    found = set()
    while len(found) < 2:
        pool.submit("a", os.getpid)
        pool.submit("b", os.getpid)
        found |= {pid for _ in range(2) for _, pid in pool.finished(1)}
    print(*found, flush=True)
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
    started, original = [], LocalPool._started

    def killed(self: LocalPool) -> Any:
        worker = original(self)
        started.append(worker.process)
        if len(started) <= 8:
            time.sleep(0.15 * (len(started) - 1))
            worker.process.kill()
        return worker

    monkeypatch.setattr(LocalPool, "_started", killed)
    result = run(tmp_path / "data", [Tap("a", (str(tmp_path / "ring"),))], worker_count=2)
    assert result.read_count == 3
    rings.assert_equal(tmp_path / "data", "a", rings.whole(tmp_path, packets))
    assert len(started) >= 10
    assert not any(is_running(process.pid) for process in started)


@pytest.mark.parametrize(
    ("program", "reason"),
    [("exit 1", "run the same command again to continue"), ("echo no libpython >&2; exit 1", "no libpython")],
)
def test_workers_that_cannot_start_end_the_run_with_their_reason(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = rings.traffic(3)
    rings.cut(tmp_path / "ring", packets, [])
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\n{program}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    monkeypatch.setattr(local_pool, "_ALONE_S", 1)
    with pytest.raises(InputInvalid, match=f"^no worker runs any more: {reason}$"):
        run(tmp_path / "data", [Tap("a", (str(tmp_path / "ring"),))])


def test_no_worker_runs_what_lies_in_the_current_folder(tmp_path: Path) -> None:
    packets = rings.traffic(3)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 3, 3))
    trap = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\nraise SystemExit\n"
    for name in ("numpy", "pyarrow", "pickle", "iscsitrace", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text(trap)
    # as the installed script begins
    words = "from iscsitrace.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", words, "fleet", "run", "-o", "data", "a=ring"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def results(pool: LocalPool, count: int = 1) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    limit = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < limit
        found += pool.finished(0.1)
    return found


def test_a_worker_that_takes_the_memory_of_the_machine_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalPool(1) as pool:
        pool.submit("a", os.getpid)
        [(_, pid)] = results(pool)
        assert 0 < local_pool._resident_bytes(pid) < 1 << 30
        original = local_pool._resident_bytes
        monkeypatch.setattr(local_pool, "_resident_bytes", lambda each: 1 << 60 if each == pid else original(each))
        pool.finished(0)
        wait_until(lambda: not is_running(pid))
        pool.submit("a", os.getpid)
        assert results(pool) != [("a", pid)]


def test_a_task_that_ends_its_workers_is_given_up_and_others_go_on() -> None:
    with LocalPool(2) as pool:
        pool.submit("bad", os._exit, 1)
        pool.submit("good", abs, -1)
        assert sorted(results(pool, 2)) == [("bad", None), ("good", 1)]


def missing() -> None:
    raise ExtraMissing("a URL", "fsspec", "fleet")


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        ((int, "x"), ValueError, "invalid literal"),
        # its constructor takes more than its text
        ((missing,), InputInvalid, r"a URL needs fsspec: pip install 'iscsitrace\[fleet\]'"),
    ],
)
def test_what_a_task_raises_is_raised_by_the_run(
    task: tuple[Callable[..., Any], Any], error: type[Exception], text: str
) -> None:
    with LocalPool(1) as pool:
        pool.submit("a", *task)
        with pytest.raises(error, match=text):
            results(pool)


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
