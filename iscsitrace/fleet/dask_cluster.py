"""Dask: tasks on the workers of an existing cluster, which may name the taps that they read by resources."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, Final

from iscsitrace.errors import ExtraMissing, InputInvalid

_CONNECT_S: Final = 10
_PATIENCE: Final = 50
"""Polls without a result before the workers are checked."""


@contextmanager
def connected(scheduler: str, say: Callable[[str], None]) -> Iterator[DaskCluster]:
    """The cluster of a scheduler. ``say`` gets lines, such as the address of the dashboard.

    InputInvalid without a scheduler there, ExtraMissing without Dask.
    """
    try:
        import dask
        from distributed import Client
    except ImportError as error:
        raise ExtraMissing("fleet run --scheduler", "distributed", "fleet") from error
    with dask.config.set({"distributed.comm.timeouts.connect": f"{_CONNECT_S}s"}), _quiet():
        try:
            client = Client(scheduler, timeout=_CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputInvalid(f"no scheduler answers at {scheduler}") from error
        with client:
            cluster = DaskCluster(client, scheduler, say)
            try:
                yield cluster
            finally:
                cluster.cancel()


class DaskCluster:
    """Runs the tasks of taps, each on a worker that reads its tap."""

    def __init__(self, client: Any, scheduler: str, say: Callable[[str], None]) -> None:
        self._client, self._scheduler, self._say = client, scheduler, say
        self._pending: dict[Any, str] = {}
        self._needed: dict[str, dict[str, float]] = {}
        self._idle_looks = 0
        if client.dashboard_link and find_spec("bokeh"):
            say(f"dashboard: {client.dashboard_link}")

    def submit(self, tap: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Runs a task on a worker that reads the tap. InputInvalid if workers name taps, and none names this one."""
        if tap not in self._needed:
            named = {name for each in self._resources() for name in each if name.startswith("tap-")}
            if named and f"tap-{tap}" not in named:
                raise InputInvalid(f'no worker reads tap {tap}: start one with dask worker --resources "tap-{tap}=1"')
            self._needed[tap] = {f"tap-{tap}": 1} if named else {}
        key = f"{tap}-{uuid.uuid4().hex[:12]}"
        future = self._client.submit(function, *arguments, key=key, resources=self._needed[tap], pure=False)
        self._pending[future] = tap

    def finished(self, timeout_s: float) -> list[tuple[str, Any]]:
        """Tap and result of each task that has ended within the timeout; None where its workers were lost.

        Raises what a task raised, and InputInvalid where the scheduler is lost.
        """
        from distributed import wait
        from distributed.scheduler import KilledWorker

        found: list[tuple[str, Any]] = []
        try:
            done = wait(list(self._pending), timeout=timeout_s, return_when="FIRST_COMPLETED").done
            self._idle_looks = 0
            for future in done:
                tap = self._pending.pop(future)
                try:
                    found.append((tap, future.result()))
                except KilledWorker:
                    found.append((tap, None))
        except TimeoutError:
            self._look_for_workers()
        except (CancelledError, OSError) as error:
            raise self._lost() from error
        return found

    def cancel(self) -> None:
        """Ends what still runs."""
        if self._pending:
            with suppress(OSError, TimeoutError, RuntimeError):
                self._client.cancel(list(self._pending), force=True)

    def _look_for_workers(self) -> None:
        self._idle_looks += 1
        if self._idle_looks % _PATIENCE:
            return
        if self._client.status != "running":
            raise self._lost()
        there = self._resources()
        for tap in sorted(self._pending.values()):
            if not any(self._needed[tap].keys() <= each.keys() for each in there):
                self._say(f"tap {tap} waits for a worker")

    def _resources(self) -> list[dict[str, float]]:
        """What each worker has."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return [worker.get("resources", {}) for worker in workers]

    def _lost(self) -> InputInvalid:
        return InputInvalid(f"the scheduler {self._scheduler} is lost; run the same command again to continue")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Dask's messages: what matters of a lost worker is in the result."""
    # some loggers below the first have levels of their own: that of a client shows a lost scheduler's traceback
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
