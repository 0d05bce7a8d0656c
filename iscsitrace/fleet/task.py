"""The tasks of a tap: which new captures each reads, and what it does, from the state before it to the next commit.

Planning reads listings and first packets, and writes nothing. Tasks run in workers. A task that is run twice, because
its worker was lost, commits once.
"""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.fleet import history
from iscsitrace.fleet.captures import Capture, Tap, in_order, in_unicode, listed
from iscsitrace.fleet.history import CaptureRow, TapHistory
from iscsitrace.fleet.rows import DAY_NS, CaptureOrder, RowFiles, day_name
from iscsitrace.fleet.store import Manifest, Superseded, TapStore, state_name
from iscsitrace.tables.passes import CaptureRead, Period, RingPass
from iscsitrace.tables.schema import DATASET_TABLES, ON_REQUEST, SCHEMA_VERSION
from iscsitrace.tables.table import Table

TASK_BYTES: Final = 1 << 30
"""Captures of a task: a second or two of work, so that a lost worker costs little and a commit is rare."""
TASK_CAPTURES: Final = 1000
_COMPRESSED: Final = (".gz", ".zst", ".lz4")
_PACKED: Final = 16
"""Bytes of packets in a byte of a compressed capture, at most: payload is zero or cut away, and headers are alike."""


@dataclass(frozen=True)
class Work:
    """What one task has to do."""

    captures: tuple[Capture, ...]
    is_last: bool
    """Whether the tap has no further captures now: its last one may still grow."""
    rewinds: bool = False
    """Whether the last capture of the run before has grown, and is read again."""

    @property
    def size_bytes(self) -> int:
        """Size of the files."""
        return sum(each.size_bytes for each in self.captures)


@dataclass(frozen=True)
class TapPlan:
    """What there is to do for one tap."""

    tap: str
    works: tuple[Work, ...]
    known_count: int
    """Captures that were read before."""
    changed: tuple[str, ...]
    """Captures that have changed since, though others follow them."""


@dataclass(frozen=True)
class Destination:
    """Where a task writes, and how."""

    dataset: Path
    run: str
    tables: tuple[str, ...]
    version: str
    task_bytes: int = TASK_BYTES
    """Captures of a task, at most, unless it has one."""


def plan(place: Destination, tap: Tap) -> TapPlan:
    """The new captures of a tap, in order, as tasks. Reads listings and first packets."""
    manifest = TapStore(place.dataset, tap.name).manifest()
    entries = TapHistory(place.dataset, tap.name).entries
    last = manifest.last if manifest else None
    new, changed = [], []
    captures = listed(tap.sources)
    for each in captures:
        before = entries.get(each.name)
        if before is None or (last and each.name == last[0] and each.version != last):
            new.append(each)
        elif before.known.version != each.version:
            changed.append(each.name)
    new = _told_late(new, entries, manifest)
    new = [each for each in new if not _is_pruned(each, manifest)]
    rewinds = last is not None and any(each.name == last[0] for each in new)
    # what comes late is only listed: it is no part of the stream, and no last capture
    new.sort(key=lambda each: each.status != history.LATE)
    return TapPlan(tap.name, _works(place, new, manifest, rewinds=rewinds), len(captures) - len(new), tuple(changed))


def _told_late(new: list[Capture], entries: Mapping[str, CaptureRow], manifest: Manifest | None) -> list[Capture]:
    """New captures in order; late is one that has its place before one that was read."""
    names = {each.name for each in new}
    known = {name: entry.known for name, entry in entries.items()}
    # the new ones are one stream with those before: numbers of a ring tell more than times that are nearly the same
    ordered = in_order([*new, *(each for name, each in known.items() if name not in names)], known)
    read = [place for place, each in enumerate(ordered) if each.name in entries and entries[each.name].frame_count]
    from_ns = manifest.read_to_ns if manifest else None
    # what a prune has forgotten has a time only
    is_remembered = any(known[ordered[place].name].first_ns == from_ns for place in read)
    last = manifest.last[0] if manifest and manifest.last else None

    def is_late(place: int, each: Capture) -> bool:
        if from_ns is None or each.name == last:
            return False
        return place < max(read, default=0) or (each.order[0] < from_ns and not is_remembered)

    return [
        replace(each, status=history.LATE, problem=history.STATUSES[history.LATE]) if is_late(place, each) else each
        for place, each in enumerate(ordered)
        if each.name in names
    ]


def _is_pruned(capture: Capture, manifest: Manifest | None) -> bool:
    return (
        manifest is not None
        and capture.status == history.LATE
        and day_name(capture.order[0] // DAY_NS) < manifest.pruned_before
    )


def _works(
    place: Destination, captures: list[Capture], manifest: Manifest | None, *, rewinds: bool
) -> tuple[Work, ...]:
    if not captures and (manifest is None or manifest.is_ended):
        return ()
    groups: list[list[Capture]] = [[]]
    for each in captures:
        group = groups[-1]
        size = sum(_read_bytes(other) for other in [*group, each])
        if group and (size > place.task_bytes or len(group) == TASK_CAPTURES):
            groups.append([])
        groups[-1].append(each)
    return tuple(
        Work(tuple(group), is_last=group is groups[-1], rewinds=rewinds and group is groups[0]) for group in groups
    )


def _read_bytes(capture: Capture) -> int:
    """How much a pass may read of a capture."""
    return capture.size_bytes * (_PACKED if capture.name.lower().endswith(_COMPRESSED) else 1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt."""
_TRIM_BYTES: Final = 4 << 20
_MMAP_BYTES: Final = 1 << 20
"""Larger arrays go back at once: they are few, and keeping them takes 80 MB more."""


@contextmanager
def freed_kept() -> Iterator[None]:
    """Freed memory is used again, and goes back to the system at the end.

    A worker of Dask gives each freed array back at once: to get it again takes a fifth of a task's time. Nothing
    happens where the C library is not glibc.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
    library.mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)
    try:
        yield
    finally:
        library.malloc_trim(0)


_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.5
_SETTLED_PACKETS: Final = 1 << 17
"""Rows leave the pass after captures with so many packets: the few rows of a small capture cost as much time."""


@dataclass(frozen=True)
class TaskOutcome:
    """What a task did."""

    size_bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    """Number of captures by status."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, status and what was wrong, of captures that were not read, or not whole."""
    row_count: int = 0


def has_periods(tables: Collection[str]) -> bool:
    """Whether one of these tables is made of periods of the ring."""
    return any(name in DATASET_TABLES for name in tables)


def execute(place: Destination, tap: str, generation: int, work: Work) -> TaskOutcome:
    """Read the captures of a task and commit their rows. Raises InputInvalid if the dataset cannot be written."""
    try:
        return _execute(place, tap, generation, work)
    except OSError as error:
        raise InputInvalid(f"cannot write {place.dataset}: {error.strerror or error}") from error


def _execute(place: Destination, tap: str, generation: int, work: Work) -> TaskOutcome:
    store = TapStore(place.dataset, tap)
    manifest = store.manifest()
    if manifest is not None:
        store.complete(manifest)
        if manifest.generation == generation and manifest.run == place.run:
            # the worker before was lost after its commit
            return TaskOutcome(**manifest.outcome)  # type: ignore[arg-type]
    if (manifest.generation if manifest else 0) != generation - 1:
        raise Superseded(place.dataset, tap)
    folder = store.staged(place.run, generation)
    files = RowFiles(folder, place.dataset, tap, generation)
    with freed_kept():
        try:
            outcome = _Task(place, store, manifest, generation, files, folder).run(work)
        except Superseded:
            committed = store.manifest()
            if committed is None or (committed.generation, committed.run) != (generation, place.run):
                raise
            # by a worker that was given up, but was still there
            outcome = TaskOutcome(**committed.outcome)  # type: ignore[arg-type]
        finally:
            files.abandon()
    shutil.rmtree(folder, ignore_errors=True)
    return outcome


class _Task:
    """The reading of one task."""

    def __init__(
        self,
        place: Destination,
        store: TapStore,
        manifest: Manifest | None,
        generation: int,
        files: RowFiles,
        folder: Path,
    ) -> None:
        self._place, self._store, self._before, self._generation = place, store, manifest, generation
        self._files, self._folder = files, folder
        self._states: list[tuple[str, str]] = []
        self._history = TapHistory(place.dataset, store.tap)
        self._entries: list[CaptureRow] = []

    def run(self, work: Work) -> TaskOutcome:
        before = self._before
        self._history.forget([each.name for each in work.captures])
        self._ring = self._continued(work)
        last = work.captures[-1] if work.is_last and work.captures and not work.captures[-1].status else None
        # without a capture to read the last one stays what it was
        kept = before if before is not None and all(each.status for each in work.captures) else None
        state_before = kept.state_before if kept else ""
        packets = 0
        for capture in work.captures:
            if capture is last:
                self._settle_all("settled")
                state_before = self._write_state("before")
            self._entries.append(self._read(capture))
            self._history.add(self._entries[-1])
            packets += self._entries[-1].frame_count
            if packets > _SETTLED_PACKETS or capture is work.captures[-1]:
                self._settle_all("last" if capture is last else "settled")
                packets = 0
        state = self._write_state("after")
        if work.is_last:
            last_period = self._ring.open_period()
            self._settle_periods("open", [last_period] if last_period else [])
            del last_period
            self._settle("open", self._ring.finish())
        for day, rows in self._history.changed_days().items():
            self._files.add_arrow("settled", history.TABLE, day, rows)
        placed = self._files.close()
        removed = [*self._history.replaced, *(before.open_files if before else ())]
        removed += before.last_files if before and work.rewinds else ()
        outcome = self._outcome(work)
        times = [each.order[0] for each in work.captures if not each.status]
        self._store.commit(
            Manifest(
                generation=self._generation,
                run=self._place.run,
                tap=self._store.tap,
                version=self._place.version,
                schema=SCHEMA_VERSION,
                tables=self._place.tables,
                is_ended=work.is_last,
                state=state,
                state_before=state_before,
                last=kept.last if kept else last.version if last else None,
                last_files=kept.last_files if kept else tuple(name for _, name in placed.get("last", ())),
                open_files=tuple(name for _, name in placed.get("open", ())),
                placed=(*self._states, *(pair for pairs in placed.values() for pair in pairs)),
                removed=tuple(removed),
                read_to_ns=max(times, default=before.read_to_ns if before else None),
                pruned_before=before.pruned_before if before else "",
                outcome=vars(outcome),
            )
        )
        return outcome

    def _continued(self, work: Work) -> RingPass:
        if self._before is None:
            return self._pass_from(None)
        name = self._before.state_before if work.rewinds else self._before.state
        return self._pass_from(self._store.state(name).read_bytes())

    def _pass_from(self, state: bytes | None) -> RingPass:
        tables = self._place.tables
        return RingPass(state, tables=[name for name in tables if name in ON_REQUEST], has_periods=has_periods(tables))

    def _write_state(self, which: str) -> str:
        name = state_name(self._place.run, self._generation, which)
        self._ring.write_state(self._folder / name)
        staged, place = self._folder / name, self._store.state(name)
        dataset = self._place.dataset
        self._states.append((str(staged.relative_to(dataset)), str(place.relative_to(dataset))))
        return name

    def _settle_all(self, kind: str) -> None:
        """Writes what can no longer change."""
        self._settle_periods(kind, self._ring.take_periods())
        self._settle(kind, self._ring.take())

    def _settle_periods(self, kind: str, ended: list[Period]) -> None:
        if ended:
            # a diagnosis needs more modules than a pass
            from iscsitrace.fleet import periods
            from iscsitrace.tables.memory import cycles_freed
        while ended:
            # its tables would stay until Python looks through all old objects
            with cycles_freed():
                self._settle(kind, periods.tables_of(ended.pop(0), self._place.tables))

    def _settle(self, kind: str, found: Mapping[str, Table]) -> None:
        tables = {name: table for name, table in found.items() if name in self._place.tables}
        timeline = self._history.timeline()
        if not timeline.names and self._entries:
            # counters of captures without packets
            only = self._entries[-1]
            timeline = CaptureOrder((only.capture,), np.array([1]), np.array([only.day * DAY_NS]))
        self._files.add(kind, tables, timeline)

    def _outcome(self, work: Work) -> TaskOutcome:
        statuses: dict[str, int] = {}
        for each in self._entries:
            statuses[each.status] = statuses.get(each.status, 0) + 1
        problems = [(each.capture, each.status, each.problem) for each in self._entries if each.problem]
        return TaskOutcome(work.size_bytes, statuses, problems, self._files.row_count)

    def _read(self, capture: Capture) -> CaptureRow:
        """Reads one capture, again if that fails on the way; the entry of what became of it."""
        found = CaptureRow(capture.name, in_unicode(capture.path), capture.size_bytes, capture.modified_ns)
        if capture.status:
            return replace(found, status=capture.status, problem=capture.problem, time_first_ns=capture.first_ns)
        # a file object that fails leaves no pass to go on with
        state = self._ring.state() if capture.remote else None
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            try:
                with capture.opened() as source:
                    return _entry(found, self._ring.read(source))
            except FileNotFoundError:
                return _failed(found, history.VANISHED)
            except CaptureUnreadable as error:
                return _failed(found, history.UNREADABLE if capture.size_bytes else history.EMPTY, str(error))
            except Exception as error:
                if not capture.remote:
                    raise
                # each kind of filesystem has errors of its own
                problem = str(error) or type(error).__name__
                self._ring = self._pass_from(state)
        return _failed(found, history.UNREADABLE, problem)


def _entry(found: CaptureRow, read: CaptureRead) -> CaptureRow:
    """The entry of a capture that the pass has read."""
    info = read.info
    if info["format"] == history.UNREADABLE:
        return _failed(found, history.UNREADABLE)
    if not info["packet_count"]:
        return _failed(found, history.EMPTY)
    status = history.DAMAGED if info.get("is_cut_short") else history.READ
    return replace(
        found,
        first_frame=read.first_frame,
        frame_count=info["packet_count"],
        time_first_ns=info["time_first_ns"],
        time_last_ns=info["time_last_ns"],
        status=status,
        problem="" if status == history.READ else history.STATUSES[status],
    )


def _failed(found: CaptureRow, status: str, problem: str = "") -> CaptureRow:
    """The entry of a capture without packets; the reason if it is known."""
    reason = problem if problem and status == history.UNREADABLE else history.STATUSES[status]
    return replace(found, status=status, problem=" ".join(reason.split()))
