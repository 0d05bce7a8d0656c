"""Worker processes of this machine: one that ends, for whatever reason, is started again, and its task with it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Final, Self

from iscsitrace.errors import InputInvalid

_MOST_LOSSES: Final = 3
"""Lost workers after which a task is given up."""
_RESTART_S: Final = 0.1
_ALONE_S: Final = 20
"""Time without any worker after which a run ends."""
_PACKAGES: Final = Path(__file__).parents[2]
"""The folder from which this package is imported."""
_SHARE: Final = 0.95
"""Part of its share of the memory at which a worker is killed, before the machine runs out."""
_SHOWN_BYTES: Final = 4096
_MEMORY_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_COMMAND: Final = "import sys; from iscsitrace.fleet.local_pool import work; work(int(sys.argv[1]))"


@dataclass
class _Call:
    tap: str
    call: tuple[Callable[..., Any], tuple[Any, ...]]
    loss_count: int = 0


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    is_ready: bool = False
    task: _Call | None = None


class LocalPool:
    """Workers that run one task each at a time. They end with it, and after a task if its process is killed."""

    def __init__(self, count: int) -> None:
        self._count, self._limit_bytes = count, int(_memory_bytes() * _SHARE / count)
        self._workers: list[_Worker] = []
        self._waiting: deque[_Call] = deque()
        self._ready_s, self._started_s = time.monotonic(), 0.0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in [*self._workers]:
            # what it wrote is either committed or removed by the next run
            self._remove(worker)
        self._errors.close()

    def submit(self, tap: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Runs a task in the next worker that is free."""
        self._waiting.append(_Call(tap, (function, arguments)))

    def finished(self, timeout_s: float) -> list[tuple[str, Any]]:
        """Tap and result of each task that has ended within the timeout; None where its workers were lost.

        Raises what a task raised, and InputInvalid where no worker starts any more.
        """
        self._assign()
        answering = set(wait([worker.pipe for worker in self._workers], timeout_s))
        found = []
        for worker in [each for each in self._workers if each.pipe in answering]:
            task, worker.task = worker.task, None
            try:
                error, result = worker.pipe.recv()
            except (EOFError, OSError):
                self._remove(worker)
                if task is not None and task.loss_count + 1 < _MOST_LOSSES:
                    task.loss_count += 1
                    self._waiting.appendleft(task)
                elif task is not None:
                    found.append((task.tap, None))
                continue
            if error is not None:
                raise error
            worker.is_ready = True
            if task is not None:
                found.append((task.tap, result))
        for worker in self._workers:
            if _resident_bytes(worker.process.pid) > self._limit_bytes:
                worker.process.kill()
        self._assign()
        return found

    def _assign(self) -> None:
        now_s = time.monotonic()
        if len(self._workers) < self._count and now_s - self._started_s >= _RESTART_S:
            self._started_s = now_s
            while len(self._workers) < self._count:
                try:
                    self._workers.append(self._started())
                except OSError:  # short of memory or processes: again after a moment
                    break
        ready = [worker for worker in self._workers if worker.is_ready and worker.process.poll() is None]
        self._ready_s = now_s if ready else self._ready_s
        if now_s - self._ready_s > _ALONE_S:
            reason = _last_line(self._errors) or "run the same command again to continue"
            raise InputInvalid(f"no worker runs any more: {reason}")
        for worker in ready:
            if worker.task is None and self._waiting:
                worker.task = self._waiting.popleft()
                with suppress(OSError):  # it has ended: its pipe says so next
                    worker.pipe.send(worker.task.call)

    def _started(self) -> _Worker:
        ours, its = Pipe()
        with its:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**dict.fromkeys(_THREADS, "1"), **os.environ, "PYTHONPATH": _import_path()},
                pass_fds=[its.fileno()],
                # Ctrl-C is for the run, which ends its workers
                process_group=0,
            )
        return _Worker(process, ours)

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.wait()
        worker.pipe.close()


def work(descriptor: int) -> None:
    """Runs the tasks that come through a pipe, until it is closed."""
    with Connection(descriptor) as pipe, suppress(EOFError, OSError):
        pipe.send((None, None))
        while True:
            task = pipe.recv_bytes()
            failure = result = None
            try:
                # imports what the task needs
                function, arguments = pickle.loads(task)  # noqa: S301 -- our own
                result = function(*arguments)
            except Exception as error:
                failure = _sendable(error)
            pipe.send((failure, result))


def _import_path() -> str:
    """Where this process finds modules, but for the current folder, whose files may be anybody's."""
    current = Path.cwd()
    return os.pathsep.join(
        each for each in sys.path if each and (Path(each).resolve() != current or current == _PACKAGES)
    )


def _last_line(file: IO[bytes]) -> str:
    """The last line that a process wrote to its standard error."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _SHOWN_BYTES))
    lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _sendable(error: Exception) -> Exception:
    """The error, or one with its text where that cannot be read at the other end."""
    try:
        found: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
    except Exception:
        return InputInvalid(str(error))
    return found


def _memory_bytes() -> int:
    """Memory of the machine, or of the control group if that has less."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # no such group, or "max"
            found.append(int(Path(name).read_text(encoding="ascii")))
    return min(found)


def _resident_bytes(pid: int) -> int:
    """Memory of a process; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
