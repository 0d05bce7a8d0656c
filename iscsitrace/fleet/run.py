"""A run: the new captures of every tap into the dataset. Taps in parallel, the tasks of one tap one after another.

The results are those of one pass over each tap's captures: the state of the pass goes from task to task. Nothing that
happens to a capture or a worker ends the run.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.fleet import dask_cluster, history, store
from iscsitrace.fleet.captures import Tap, in_unicode
from iscsitrace.fleet.dask_cluster import DaskCluster
from iscsitrace.fleet.local_pool import LocalPool
from iscsitrace.fleet.rows import DECLARED
from iscsitrace.fleet.store import TapStore
from iscsitrace.fleet.task import TASK_BYTES, Destination, TapPlan, TaskOutcome, Work, execute, has_periods, plan
from iscsitrace.tables.schema import DATASET_TABLES, DEFAULT_TABLES, ON_REQUEST, SCHEMA_VERSION

TABLES: Final = (*DEFAULT_TABLES, *DATASET_TABLES)
"""The tables that are written when none are named."""
_POLL_S: Final = 0.2


Executor = LocalPool | DaskCluster
"""What runs tasks, at most one of each tap at a time, again if a worker is lost: ``submit`` and ``finished``."""


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

    def add(self, tap: str, outcome: TaskOutcome) -> None:
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
    executor: Executor | None = None,
    task_bytes: int = TASK_BYTES,
    watch: Watch | None = None,
) -> Result:
    """Read the new captures of taps into a dataset, which is made if missing.

    An executor reads them that is there already, or the cluster of a scheduler, or workers of this machine.

    Raises InputInvalid for a source that cannot be listed, for a dataset that cannot be written or was made with
    other options, and for a scheduler that is lost; ExtraMissing; KeyboardInterrupt when ``watch`` stops it. After any
    of these the same call completes the dataset.
    """
    from iscsitrace import __version__

    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ExtraMissing("fleet", "pyarrow", "fleet") from error
    _check_tables(tables)
    if in_unicode(str(dataset)) != str(dataset):
        raise InputInvalid(f"{dataset}: the name of a dataset has to be in UTF-8")
    place = Destination(dataset.absolute(), uuid.uuid4().hex[:12], tuple(tables), __version__, task_bytes)
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
        watch = watch or Watch()
        count = worker_count or min(len(taps), os.cpu_count() or 1)
        if executor is None and scheduler is not None:
            executor = stack.enter_context(dask_cluster.connected(scheduler, watch.say))
        return _Run(executor or stack.enter_context(LocalPool(count)), place, taps, watch).run()


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
    """The tasks of a run: one of each tap at a time is with the executor."""

    def __init__(self, executor: Executor, place: Destination, taps: Sequence[Tap], watch: Watch) -> None:
        self._executor, self._place, self._watch = executor, place, watch
        self._result = Result(place.dataset)
        self._works: dict[str, list[Work]] = {}
        manifests = {tap.name: TapStore(place.dataset, tap.name).manifest() for tap in taps}
        self._generations = {tap: each.generation if each else 0 for tap, each in manifests.items()}
        self._pending: dict[str, Work | None] = dict.fromkeys(self._generations)
        self._total_bytes = self._done_bytes = 0
        for tap in taps:
            executor.submit(tap.name, plan, place, tap)

    def run(self) -> Result:
        while self._pending:
            if self._watch.is_stopped():
                raise KeyboardInterrupt
            for tap, found in self._executor.finished(_POLL_S):
                self._finished(tap, self._pending.pop(tap), found)
        return self._result

    def _finished(self, tap: str, work: Work | None, found: TapPlan | TaskOutcome | None) -> None:
        if isinstance(found, TapPlan):
            self._works[tap] = list(found.works)
            self._result.known_count += found.known_count
            self._result.problems += [
                (tap, name, "changed", "changed since it was read, and others follow it: not read again")
                for name in found.changed
            ]
            self._total_bytes += sum(each.size_bytes for each in found.works)
        elif found is not None:
            self._result.add(tap, found)
            self._done_bytes += found.size_bytes
            self._generations[tap] += 1
        elif work is None:
            raise InputInvalid(f"tap {tap}: its worker was lost again and again")
        else:
            self._works[tap][:0] = _smaller(work)
            self._result.lost.append((tap, len(work.captures)))
        self._watch.show(self._done_bytes, self._total_bytes)
        if self._works[tap]:
            work = self._pending[tap] = self._works[tap].pop(0)
            self._executor.submit(tap, execute, self._place, tap, self._generations[tap] + 1, work)


def _smaller(work: Work) -> list[Work]:
    """A task whose workers were lost, as tasks of one capture each; of one capture, without it."""
    if len(work.captures) <= 1:
        problem = "the worker was lost again and again while it read this capture"
        given_up = tuple(replace(each, status=history.UNREADABLE, problem=problem) for each in work.captures)
        return [replace(work, captures=given_up)]
    last = len(work.captures) - 1
    return [
        Work((each,), is_last=work.is_last and place == last, rewinds=work.rewinds and place == 0)
        for place, each in enumerate(work.captures)
    ]
