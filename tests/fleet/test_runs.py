"""Runs here and on Dask: lost workers, named taps, interruptions; the dataset is that of one pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import history
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.local_pool import LocalPool
from iscsitrace.fleet.run import Watch, run
from iscsitrace.fleet.task import Destination, TaskOutcome, Work, execute
from tests.support import rings
from tests.support.transport import Packet

pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
SMALL = 1 << 16
"""Bytes of a task, so that a ring has several."""
POISON = "eth0_00004_20231114235959.pcapng"


def poisoned(place: Destination, tap: str, generation: int, work: Work) -> TaskOutcome:
    """A task that ends its worker when it reads one of the captures, as one does that is out of memory."""
    if any(each.name == POISON and not each.status for each in work.captures):
        os._exit(1)
    return execute(place, tap, generation, work)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The scheduler of a cluster that gives up a task with its first worker: Dask may not start a lost one again."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def packets() -> dict[str, list[Packet]]:
    return {name: rings.traffic(seed) for seed, name in enumerate(("a", "b"), 1)}


def taps_in(folder: Path, packets: dict[str, list[Packet]]) -> list[Tap]:
    """A ring of eight files for each tap."""
    for name, each in packets.items():
        rings.cut(folder / name, each, rings.random_borders(each, 8, 3))
    return [Tap(name, (str(folder / name),)) for name in packets]


def assert_whole(data: Path, folder: Path, packets: dict[str, list[Packet]]) -> None:
    for name, each in packets.items():
        rings.assert_equal(data, name, rings.whole(folder, each))


def test_one_worker_and_two_write_the_same(tmp_path: Path, scheduler: str, packets: dict[str, list[Packet]]) -> None:
    taps = taps_in(tmp_path, packets)
    shown: list[tuple[int, int]] = []
    result = run(
        tmp_path / "two",
        taps,
        scheduler=scheduler,
        task_bytes=SMALL,
        watch=Watch(show=lambda done, total: shown.append((done, total))),
    )
    size = sum(path.stat().st_size for tap in taps for path in Path(tap.sources[0]).iterdir())
    assert shown[-1] == (size, size)
    assert result.statuses == {history.READ: 16}
    run(tmp_path / "one", taps, worker_count=1)
    for data in ("one", "two"):
        assert_whole(tmp_path / data, tmp_path, packets)
    again = run(tmp_path / "two", taps, scheduler=scheduler)
    assert (again.statuses, again.known_count, again.row_count) == ({}, 16, 0)


def test_workers_killed_while_they_read_cost_nothing_but_time(
    tmp_path: Path, packets: dict[str, list[Packet]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is killed after the first, third and fifth commit of a tap, which has eight."""
    taps = taps_in(tmp_path, packets)
    data = tmp_path / "data"
    killed: list[int] = []
    original = LocalPool.finished

    def finished(pool: LocalPool, timeout_s: float) -> list[tuple[str, Any]]:
        commits = [int(path.stem) for path in (data / "_fleet" / "a").glob("0*.json")]
        pool._assign()
        # only of this tap, which has another task after each commit: one that loses three workers is given up
        busy = [worker.process for worker in pool._workers if worker.task and worker.task.tap == "a"]
        if busy and len(killed) < 3 and max(commits, default=0) > 2 * len(killed):
            busy[0].kill()
            killed.append(busy[0].pid)
        return original(pool, timeout_s)

    monkeypatch.setattr(LocalPool, "finished", finished)
    result = run(data, taps, worker_count=2, task_bytes=1)
    assert len(set(killed)) == 3
    assert result.read_count == 16
    assert_whole(data, tmp_path, packets)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_capture_that_kills_its_workers_is_named_and_left_out(
    tmp_path: Path, scheduler: str, packets: dict[str, list[Packet]], monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    monkeypatch.setattr("iscsitrace.fleet.run.execute", poisoned)
    (tap,) = taps_in(tmp_path, {"a": packets["a"]})
    result = run(tmp_path / "data", [tap], scheduler=None if is_local else scheduler)
    assert result.statuses == {history.READ: 7, history.UNREADABLE: 1}
    assert [(each[1], each[2]) for each in result.problems] == [(POISON, history.UNREADABLE)]
    assert result.lost[0] == ("a", 8)


def command(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_scheduler_with_a_worker_at_each_tap(
    tmp_path: Path, packets: dict[str, list[Packet]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker has its captures on a disk of its own: the paths of a tap lead to nothing in the other's folder."""
    scheduler_file = tmp_path / "scheduler.json"
    processes = [
        command(
            "distributed.cli.dask_scheduler",
            "--scheduler-file",
            scheduler_file,
            "--port",
            0,
            "--host",
            "127.0.0.1",
            "--no-dashboard",
        )
    ]
    for name, each in packets.items():
        disk = tmp_path / f"disk-{name}"
        rings.cut(disk / "ring", each, rings.random_borders(each, 4, 2))
        processes.append(
            command(
                "distributed.cli.dask_worker",
                "--scheduler-file",
                scheduler_file,
                "--resources",
                f"tap-{name}=1",
                "--nthreads",
                1,
                "--no-nanny",
                "--no-dashboard",
                cwd=disk,
                env=os.environ | {"PYTHONPATH": str(Path.cwd())},
            )
        )
    try:
        with Client(scheduler_file=str(scheduler_file), timeout=30) as client:
            client.wait_for_workers(2, timeout=30)
            address = client.scheduler.address
        taps = [Tap(name, ("ring",)) for name in packets]
        run(tmp_path / "data", taps, scheduler=address)
        assert_whole(tmp_path / "data", tmp_path, packets)
        with pytest.raises(InputInvalid, match="no worker reads tap c"):
            run(tmp_path / "data", [Tap("c", ("ring",))], scheduler=address)
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
    monkeypatch.setattr("iscsitrace.fleet.dask_cluster._CONNECT_S", 1)
    with pytest.raises(InputInvalid, match="no scheduler answers at"):
        run(tmp_path / "data", taps, scheduler="tcp://127.0.0.1:9")


def test_an_interrupted_run_is_one_line_and_the_next_one_completes_it(
    tmp_path: Path, packets: dict[str, list[Packet]]
) -> None:
    taps = taps_in(tmp_path, packets)
    stops = iter([False, False, True])

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "data", taps, worker_count=1, task_bytes=1, watch=Watch(is_stopped=lambda: next(stops)))
    # as from a terminal: all processes of the group get the signal
    arguments = ("iscsitrace", "fleet", "run", *(f"{tap.name}={tap.sources[0]}" for tap in taps))
    process = command(*arguments, "-o", tmp_path / "data", start_new_session=True)
    staging = tmp_path / "data" / "_fleet" / "a" / "staging"
    while process.poll() is None and not list(staging.iterdir()):
        time.sleep(0.01)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    # it may have been complete already, and on its way out
    complete = {(code, out, "") for code in (0, -signal.SIGINT) if "16 captures read" in out}
    assert (code, out, err) in {(130, "", "iscsitrace: interrupted\n"), *complete}
    code, out, err = ended(command(*arguments, "-o", tmp_path / "data"))
    assert (code, err) == (0, "")
    assert_whole(tmp_path / "data", tmp_path, packets)
    code, out, err = ended(command(*arguments, "-o", tmp_path / "data", "--tables", "cycles"))
    assert (code, out) == (2, "")
    assert "to start anew, name another folder or remove this one" in err


def test_a_full_disk_is_one_line_and_a_start_with_room_completes_it(
    tmp_path: Path, packets: dict[str, list[Packet]]
) -> None:
    """A limit on the size of files stands for the disk's: writes fail as on a full one."""
    taps = taps_in(tmp_path, {"a": packets["a"]})
    source = f"a={taps[0].sources[0]}"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); "
    code = f"{limited}import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    code += "from iscsitrace.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "fleet", "run", source, "-o", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    status, out, err = ended(process)
    assert (status, out) == (2, "")
    assert err.startswith("iscsitrace: cannot write ")
    assert err.count("\n") == 1
    run(tmp_path / "data", taps, worker_count=1)
    assert_whole(tmp_path / "data", tmp_path, {"a": packets["a"]})
