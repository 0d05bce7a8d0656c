"""A scheduler killed during a run: one line, and the same command completes the dataset with another scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from tests.support import rings

pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
PIECES = 24
RUN = """
from iscsitrace.fleet.run import run
run.__kwdefaults__["task_bytes"] = 1  # a task of each capture
from iscsitrace.cli import main
main()
"""


class Dask:
    """A scheduler with workers, each a process of its own, without a nanny."""

    def __init__(self, folder: Path, worker_count: int) -> None:
        folder.mkdir()
        file = folder / "scheduler.json"
        self.scheduler = _started(folder, "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1", file)
        self.processes = [
            _started(folder, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", file)
            for _ in range(worker_count)
        ]
        self.processes.append(self.scheduler)
        with Client(scheduler_file=str(file), timeout=30) as client:
            client.wait_for_workers(worker_count, timeout=30)
            self.address: str = client.scheduler.address

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(timeout=30)


def _started(folder: Path, module: str, *arguments: object) -> subprocess.Popen[bytes]:
    *others, file = map(str, arguments)
    return subprocess.Popen(
        [sys.executable, "-m", module, *others, "--scheduler-file", file, "--no-dashboard"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )


@pytest.fixture
def schedulers(tmp_path: Path) -> Iterator[list[Dask]]:
    """The first of them; tests append others."""
    found = [Dask(tmp_path / "dask-1", 2)]
    yield found
    for each in found:
        each.end()


def fleet_run(folder: Path, scheduler: str) -> subprocess.Popen[str]:
    sources = [f"{name}={folder / name}" for name in ("a", "b")]
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "fleet", "run", *sources, "-o", folder / "data", "--scheduler", scheduler],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def generation(folder: Path, tap: str) -> int:
    """The number of commits of a tap."""
    return max((int(path.stem) for path in (folder / "data" / "_fleet" / tap).glob("0*.json")), default=0)


def test_a_killed_scheduler_is_one_line_and_the_same_command_goes_on_with_another(
    tmp_path: Path, schedulers: list[Dask]
) -> None:
    packets = {name: rings.traffic(seed) for seed, name in enumerate(("a", "b"), 1)}
    for name, each in packets.items():
        rings.cut(tmp_path / name, each, rings.random_borders(each, PIECES, 3))
    process = fleet_run(tmp_path, schedulers[0].address)
    while generation(tmp_path, "a") < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    schedulers[0].scheduler.kill()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"iscsitrace: the scheduler {schedulers[0].address} is lost; run the same command again")
    assert err.count("\n") == 1
    assert 3 <= generation(tmp_path, "a") < PIECES
    # the workers of the lost scheduler live on: what one of them still reads must not reach the dataset twice
    schedulers.append(Dask(tmp_path / "dask-2", 1))
    process = fleet_run(tmp_path, schedulers[1].address)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    for name, each in packets.items():
        rings.assert_equal(tmp_path / "data", name, rings.whole(tmp_path, each))
