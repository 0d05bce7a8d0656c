"""Dask: a cluster of this machine's cores, or an existing one, and the resources by which its workers name taps."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.fleet.workers import Workers

ALLOWED_FAILURES: Final = 2
"""Lost workers after which a task is given up: its captures are then read one by one."""
_CONNECT_S: Final = 10
_START_S: Final = 30


def require() -> None:
    """ExtraMissing unless the packages of the extra ``fleet`` are installed."""
    for package in ("dask", "distributed", "pyarrow"):
        try:
            __import__(package)
        except ImportError as error:
            raise ExtraMissing("fleet", package, "fleet") from error


@contextmanager
def connected(scheduler: str | None, worker_count: int) -> Iterator[Any]:
    """A client of an existing scheduler, or of a cluster that ends with it. InputInvalid without a scheduler there."""
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        "distributed.admin.tick.limit": "1h",
        "distributed.comm.timeouts.connect": f"{_CONNECT_S}s",
        # a stack of every worker a hundred times a second, which nobody looks at
        "distributed.worker.profile.enabled": False,
    }
    with dask.config.set(settings), _quiet():
        if scheduler is not None:
            try:
                client = Client(scheduler, timeout=_CONNECT_S)
            except (OSError, ValueError, TimeoutError) as error:
                raise InputInvalid(f"no scheduler answers at {scheduler}") from error
            with client:
                yield client
            return
        with (
            # its workers are ours: Dask's own are not always started again
            LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Workers(cluster.scheduler_address, worker_count),
            Client(cluster) as client,
        ):
            # a run can begin with some of them, and looks for them itself
            with suppress(TimeoutError):
                client.wait_for_workers(worker_count, timeout=_START_S)
            yield client


def resource_of(client: Any, tap: str) -> dict[str, float]:
    """What a worker needs to read a tap: nothing, unless workers name taps. InputInvalid if none names this one."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    named = {name for worker in workers for name in worker.get("resources", {}) if name.startswith("tap-")}
    if not named:
        return {}
    if f"tap-{tap}" not in named:
        raise InputInvalid(f'no worker reads tap {tap}: start one with dask worker --resources "tap-{tap}=1"')
    return {f"tap-{tap}": 1}


def has_worker(client: Any, resources: dict[str, float]) -> bool:
    """Whether a worker can run a task that needs these."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return any(resources.keys() <= worker.get("resources", {}).keys() for worker in workers)


def dashboard_of(client: Any) -> str:
    """Address of Dask's dashboard; empty where there is none."""
    return str(client.dashboard_link) if _has_dashboard() and client.dashboard_link else ""


def _has_dashboard() -> bool:
    try:
        import bokeh  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Dask's messages: what matters of a lost worker is in the result."""
    # some loggers below the first have levels of their own: that of a client shows a lost scheduler's traceback
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
