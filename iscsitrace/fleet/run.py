"""A run: the new captures of every tap into the dataset. Taps in parallel, the tasks of one tap one after another.

The results are those of one pass over each tap's captures: the state of the pass goes from task to task. Nothing that
happens to a capture or a worker ends the run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet import cluster, history, store
from iscsitrace.fleet.places import DECLARED
from iscsitrace.fleet.plan import TASK_BYTES, Place, Plan, Work, plan
from iscsitrace.fleet.store import TapStore
from iscsitrace.fleet.taps import Tap
from iscsitrace.fleet.task import Outcome, execute, has_periods
from iscsitrace.tables.schema import DATASET_TABLES, DEFAULT_TABLES, ON_REQUEST, SCHEMA_VERSION

TABLES: Final = (*DEFAULT_TABLES, *DATASET_TABLES)
"""The tables that are written when none are named."""
_POLL_S: Final = 0.2
_PATIENCE: Final = 50
"""Polls without a result before workers are looked for."""
_ALONE_MAX: Final = 6
"""Looks in a row, a minute in all, that find no worker of this machine's own cluster: Dask has given them up."""


@dataclass
class Result:
    """What a run did."""

    dataset: Path
    statuses: dict[str, int] = field(default_factory=dict)
    """Number of captures by status (history.STATUSES)."""
    problems: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Tap, capture, status and what was wrong."""
    known_count: int = 0
    """Captures that were read by an earlier run."""
    size_bytes: int = 0
    row_count: int = 0
    lost: list[tuple[str, int]] = field(default_factory=list)
    """Taps, with the number of captures that were read one by one because their workers were lost."""

    @property
    def read_count(self) -> int:
        """Captures with rows in the dataset."""
        return sum(self.statuses.get(each, 0) for each in (history.READ, history.DAMAGED))

    def add(self, tap: str, outcome: Outcome) -> None:
        """What one task did."""
        self.size_bytes += outcome.size_bytes
        self.row_count += outcome.row_count
        for status, count in outcome.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + count
        self.problems += [(tap, *map(str, problem)) for problem in outcome.problems]  # type: ignore[misc]


@dataclass
class Watch:
    """How a caller follows a run."""

    show: Callable[[int, int], None] = lambda done, total: None
    """Called with bytes of captures done, and of all."""
    say: Callable[[str], None] = lambda line: None
    """Called with a line, such as the address of the dashboard."""
    is_stopped: Callable[[], bool] = lambda: False
    """Asked several times a second."""


def run(
    dataset: Path,
    taps: Sequence[Tap],
    *,
    tables: Sequence[str] = TABLES,
    worker_count: int | None = None,
    scheduler: str | None = None,
    task_bytes: int = TASK_BYTES,
    watch: Watch | None = None,
) -> Result:
    """Read the new captures of taps into a dataset, which is made if missing.

    Raises InputInvalid for a source that cannot be listed, for a dataset that cannot be written or was made with
    other options, and for a scheduler that is lost; ExtraMissing; KeyboardInterrupt when ``watch`` stops it. After any
    of these the same call completes the dataset.
    """
    from iscsitrace import __version__

    cluster.require()
    _check_tables(tables)
    place = Place(dataset.absolute(), uuid.uuid4().hex[:12], tuple(tables), __version__, task_bytes)
    with ExitStack() as stack:
        stack.enter_context(store.locked(place.dataset))
        for each in store.stores(place.dataset):
            manifest = each.manifest()
            if manifest is not None:
                store.check(manifest, dataset, __version__, SCHEMA_VERSION, place.tables)
        for tap in taps:
            own = TapStore(place.dataset, tap.name)
            own.begin(place.run)
            stack.callback(own.end, place.run)
        count = worker_count or min(len(taps), os.cpu_count() or 1)
        client = stack.enter_context(cluster.connected(scheduler, count))
        return _Run(client, place, taps, watch or Watch(), scheduler).run()


def _check_tables(tables: Sequence[str]) -> None:
    unknown = [name for name in tables if name not in DECLARED]
    if unknown or not tables:
        raise InputInvalid(f"no table is called {', '.join(unknown) or '(nothing)'}; there are {', '.join(DECLARED)}")
    whole = [name for name in tables if name in ON_REQUEST and name != "pdus"]
    if whole and has_periods(tables):
        raise InputInvalid(
            f"{', '.join(whole)} are tables of whole connections, {', '.join(DATASET_TABLES)} are those of periods: "
            "name only the ones or the others"
        )


class _Run:
    """The tasks of a run: one of each tap at a time is with the cluster."""

    def __init__(self, client: Any, place: Place, taps: Sequence[Tap], watch: Watch, scheduler: str | None) -> None:
        self._client, self._place, self._watch, self._scheduler = client, place, watch, scheduler
        self._resources = {tap.name: cluster.resource_of(client, tap.name) for tap in taps}
        self._result = Result(place.dataset)
        self._works: dict[str, list[Work]] = {}
        self._generations = {tap.name: self._generation_of(tap) for tap in taps}
        self._pending: dict[Any, tuple[str, Work | None]] = {
            self._submit(plan, tap.name, "plan", place, tap): (tap.name, None) for tap in taps
        }
        self._total_bytes = self._done_bytes = 0
        self._idle_polls = self._alone = 0

    def _generation_of(self, tap: Tap) -> int:
        manifest = TapStore(self._place.dataset, tap.name).manifest()
        return manifest.generation if manifest else 0

    def _submit(self, function: Callable[..., Any], tap: str, what: str, *arguments: Any) -> Any:
        return self._client.submit(
            function,
            *arguments,
            key=f"{tap}-{what}-{self._place.run}",
            resources=self._resources[tap],
            pure=False,
        )

    def run(self) -> Result:
        from distributed import wait

        address = cluster.dashboard_of(self._client)
        if address:
            self._watch.say(f"dashboard: {address}")
        try:
            while self._pending:
                if self._watch.is_stopped():
                    raise KeyboardInterrupt
                try:
                    done = wait(list(self._pending), timeout=_POLL_S, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    self._check_workers()
                    continue
                self._idle_polls = 0
                for future in done:
                    self._finished(future, *self._pending.pop(future))
        except (CancelledError, OSError) as error:
            raise InputInvalid(
                f"the scheduler {self._scheduler or ''} is lost; the same command goes on where this one ended"
            ) from error
        finally:
            if self._pending:
                self._abandon()
        return self._result

    def _abandon(self) -> None:
        try:
            self._client.cancel(list(self._pending), force=True)
        except (OSError, TimeoutError, RuntimeError):
            return

    def _finished(self, future: Any, tap: str, work: Work | None) -> None:
        from distributed.scheduler import KilledWorker

        try:
            found = future.result()
        except KilledWorker:
            if work is None:
                raise InputInvalid(f"tap {tap}: its worker was lost {cluster.ALLOWED_FAILURES + 1} times") from None
            self._works[tap][:0] = _smaller(work)
            self._result.lost.append((tap, len(work.captures)))
            self._next(tap, attempt=1)
            return
        if isinstance(found, Plan):
            self._works[tap] = list(found.works)
            self._result.known_count += found.known_count
            self._result.problems += [
                (tap, name, "changed", "changed since it was read, and others follow it: not read again")
                for name in found.changed
            ]
            self._total_bytes += sum(each.size_bytes for each in found.works)
        else:
            self._result.add(tap, found)
            self._done_bytes += found.size_bytes
            self._generations[tap] += 1
        self._watch.show(self._done_bytes, self._total_bytes)
        self._next(tap)

    def _next(self, tap: str, attempt: int = 0) -> None:
        if not self._works[tap]:
            return
        work = self._works[tap].pop(0)
        generation = self._generations[tap] + 1
        what = f"{generation}-{len(work.captures)}-{attempt}"
        self._pending[self._submit(execute, tap, what, self._place, tap, generation, work)] = (tap, work)

    def _check_workers(self) -> None:
        self._idle_polls += 1
        if self._idle_polls % _PATIENCE:
            return
        if getattr(self._client, "status", "running") != "running":
            raise CancelledError
        waiting = {
            tap for tap, _ in self._pending.values() if not cluster.has_worker(self._client, self._resources[tap])
        }
        for tap in sorted(waiting):
            self._watch.say(f"tap {tap} waits for a worker")
        self._alone = self._alone + 1 if waiting and self._scheduler is None else 0
        if self._alone >= _ALONE_MAX:
            raise InputInvalid("no worker runs any more; the same command goes on where this one ended")


def _smaller(work: Work) -> list[Work]:
    """A task whose workers were lost, as tasks of one capture each; of one capture, without it."""
    if len(work.captures) <= 1:
        problem = f"the worker was lost {cluster.ALLOWED_FAILURES + 1} times while it read this capture"
        given_up = tuple(replace(each, status=history.UNREADABLE, problem=problem) for each in work.captures)
        return [replace(work, captures=given_up)]
    last = len(work.captures) - 1
    return [
        Work((each,), is_last=work.is_last and place == last, rewinds=work.rewinds and place == 0)
        for place, each in enumerate(work.captures)
    ]
