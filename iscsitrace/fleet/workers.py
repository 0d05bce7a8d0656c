"""Worker processes of this machine: one that ends, for whatever reason, is started again.

Dask's own watch over its workers gives up for good on one that fails while it starts, or starts slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_POLL_S: Final = 0.1
_CONNECT_S: Final = 60
"""A worker ends that finds no scheduler for so long: its run was killed."""
_SHARE: Final = 0.95
"""A worker with more than that of its share of the memory is killed before the machine has none left."""


class Workers:
    """Workers of one thread each. They end with this context, and if its process is killed."""

    def __init__(self, scheduler: str, count: int) -> None:
        self._scheduler, self._count = scheduler, count
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_ended = threading.Event()
        self._watch = threading.Thread(target=self._keep, name="watch over workers", daemon=True)
        self._folder = tempfile.TemporaryDirectory(prefix="iscsitrace-fleet-", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        self._running = [self._started() for _ in range(self._count)]
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ended.set()
        self._watch.join()
        for process in self._running:
            # what it wrote is either committed or removed by the next run
            process.kill()
        for process in self._running:
            process.wait()
        self._folder.cleanup()

    def _keep(self) -> None:
        from distributed.system import MEMORY_LIMIT

        limit = int(MEMORY_LIMIT * _SHARE / self._count)
        while not self._is_ended.wait(_POLL_S):
            for place, process in enumerate(self._running):
                if process.poll() is not None:
                    with suppress(OSError):  # short of memory or processes: again after a moment
                        self._running[place] = self._started()
                elif _resident_bytes(process.pid) > limit:
                    process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        options = {
            "--nthreads": 1,
            "--host": "127.0.0.1",
            "--memory-limit": 0,
            "--death-timeout": _CONNECT_S,
            "--local-directory": self._folder.name,
        }
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self._scheduler, "--no-nanny", "--no-dashboard"]
        return subprocess.Popen(
            [*command, *(str(each) for pair in options.items() for each in pair)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            # Ctrl-C is for the run, which ends its workers
            process_group=0,
        )


def _environment() -> dict[str, str]:
    """That of this process, with Dask's settings and the places of modules, as they are here."""
    from dask import config

    threads = {name: str(value) for name, value in config.get("distributed.nanny.pre-spawn-environ").items()}
    return {
        **threads,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DASK_INTERNAL_INHERIT_CONFIG": config.serialize(config.global_config),
    }


def _resident_bytes(pid: int) -> int:
    """Memory of a process; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
