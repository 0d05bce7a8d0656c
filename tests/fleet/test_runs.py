"""Runs on Dask: workers as processes, lost ones, named taps, interruptions; the dataset is that of one pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, WorkerPlugin

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import history, task
from iscsitrace.fleet.cluster import connected
from iscsitrace.fleet.run import Watch, run
from iscsitrace.fleet.taps import Tap
from tests.support import rings
from tests.support.transport import Packet

pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")
SMALL = 1 << 16
"""Bytes of a task, so that a ring has several."""
POISON = "eth0_00004_20231114235959.pcapng"


class Poisoned(WorkerPlugin):  # type: ignore[misc, unused-ignore]
    """A worker that dies when it reads one of the captures, as one does that is out of memory."""

    def setup(self, worker: Any) -> None:
        original = task._Task._read

        def read(self: Any, capture: Any) -> Any:
            if capture.name == POISON and capture.path.find("poisoned") >= 0 and not capture.status:
                os._exit(1)
            return original(self, capture)

        task._Task._read = read  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The scheduler of a cluster of two workers."""
    with connected(None, 2) as client:
        client.register_plugin(Poisoned())
        yield client.scheduler.address


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
    tmp_path: Path, scheduler: str, packets: dict[str, list[Packet]]
) -> None:
    taps = taps_in(tmp_path, packets)
    data = tmp_path / "data"
    killed: list[int] = []

    def kill_some() -> None:
        """Kills a worker after the first, second and third commit of a tap."""
        with Client(scheduler) as client:
            for generation in (1, 2, 3):
                while not (data / "_fleet" / "a" / f"{generation:09}.json").exists():
                    later = sorted((data / "_fleet" / "a").glob("0*.json"))
                    if later and int(later[-1].stem) > generation:
                        break
                    time.sleep(0.001)
                for pid in list(client.run(os.getpid, on_error="ignore").values())[:1]:
                    if isinstance(pid, int):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    thread = threading.Thread(target=kill_some)
    thread.start()
    result = run(data, taps, scheduler=scheduler, task_bytes=SMALL)
    thread.join()
    assert killed
    assert result.read_count == 16
    assert_whole(data, tmp_path, packets)


def test_a_capture_that_kills_its_workers_is_named_and_left_out(
    tmp_path: Path, scheduler: str, packets: dict[str, list[Packet]]
) -> None:
    only = {"a": packets["a"]}
    (tap,) = taps_in(tmp_path / "poisoned", only)
    result = run(tmp_path / "data", [tap], scheduler=scheduler)
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
    monkeypatch.setattr("iscsitrace.fleet.cluster._CONNECT_S", 1)
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
    assert (code, out, err) in ((130, "", "iscsitrace: interrupted\n"), (0, out, ""))
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
