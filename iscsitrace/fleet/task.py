"""One task of a run: some captures of one tap, from the state of the task before to the next commit.

Tasks run in workers. A task that is run twice, because its worker was lost, commits once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.fleet import history
from iscsitrace.fleet.captures import Capture, in_order, listed
from iscsitrace.fleet.history import Entry, History
from iscsitrace.fleet.places import DAY_NS, Timeline, day_name
from iscsitrace.fleet.rows import RowFiles
from iscsitrace.fleet.store import Manifest, Superseded, TapStore
from iscsitrace.fleet.taps import Tap
from iscsitrace.tables.ring_pass import CaptureRead, RingPass
from iscsitrace.tables.schema import ON_REQUEST, SCHEMA_VERSION
from iscsitrace.tables.table import Table

TASK_BYTES: Final = 1 << 30
"""Captures of a task: a second or two of work, so that a lost worker costs little and a commit is rare."""
TASK_CAPTURES: Final = 1000
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.5


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
class Plan:
    """What there is to do for one tap."""

    tap: str
    works: tuple[Work, ...]
    known_count: int
    """Captures that were read before."""
    changed: tuple[str, ...]
    """Captures that have changed since, though others follow them."""


@dataclass(frozen=True)
class Outcome:
    """What a task did."""

    size_bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    """Number of captures by status."""
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, status and what was wrong, of captures that were not read, or not whole."""
    row_count: int = 0


@dataclass(frozen=True)
class Place:
    """Where a task writes, and how."""

    dataset: Path
    run: str
    tables: tuple[str, ...]
    version: str
    task_bytes: int = TASK_BYTES
    """Captures of a task, at most, unless it has one."""


def plan(place: Place, tap: Tap) -> Plan:
    """The new captures of a tap, in order, as tasks. Reads listings and first packets."""
    manifest = TapStore(place.dataset, tap.name).manifest()
    known = {name: entry.known for name, entry in History(place.dataset, tap.name).entries.items()}
    last = manifest.last if manifest else None
    new, changed = [], []
    captures = listed(tap.sources)
    for each in captures:
        before = known.get(each.name)
        if before is None or (last and each.name == last[0] and each.version != last):
            new.append(each)
        elif before.version != each.version:
            changed.append(each.name)
    new = [_late(each, manifest) for each in in_order(new, known)]
    new = [each for each in new if not _is_pruned(each, manifest)]
    rewinds = last is not None and any(each.name == last[0] for each in new)
    # what comes late is only listed: it is no part of the stream, and no last capture
    new.sort(key=lambda each: each.status != history.LATE)
    return Plan(tap.name, _works(place, new, manifest, rewinds=rewinds), len(captures) - len(new), tuple(changed))


def _late(capture: Capture, manifest: Manifest | None) -> Capture:
    if manifest is None or manifest.read_to_ns is None or capture.order[0] >= manifest.read_to_ns:
        return capture
    if manifest.last is not None and capture.name == manifest.last[0]:
        return capture
    return replace(capture, status=history.LATE, problem=history.STATUSES[history.LATE])


def _is_pruned(capture: Capture, manifest: Manifest | None) -> bool:
    return (
        manifest is not None
        and capture.status == history.LATE
        and day_name(capture.order[0] // DAY_NS) < manifest.pruned_before
    )


def _works(place: Place, captures: list[Capture], manifest: Manifest | None, *, rewinds: bool) -> tuple[Work, ...]:
    if not captures and (manifest is None or manifest.is_ended):
        return ()
    groups: list[list[Capture]] = [[]]
    for each in captures:
        group = groups[-1]
        size = sum(other.size_bytes for other in group)
        if group and (size + each.size_bytes > place.task_bytes or len(group) == TASK_CAPTURES):
            groups.append([])
        groups[-1].append(each)
    return tuple(
        Work(tuple(group), is_last=group is groups[-1], rewinds=rewinds and group is groups[0]) for group in groups
    )


def execute(place: Place, tap: str, generation: int, work: Work) -> Outcome:
    """Read the captures of a task and commit their rows. Raises InputInvalid if the dataset cannot be written."""
    try:
        return _execute(place, tap, generation, work)
    except OSError as error:
        raise InputInvalid(f"cannot write {place.dataset}: {error.strerror or error}") from error


def _execute(place: Place, tap: str, generation: int, work: Work) -> Outcome:
    store = TapStore(place.dataset, tap)
    manifest = store.manifest()
    if manifest is not None:
        store.complete(manifest)
        if manifest.generation == generation and manifest.run == place.run:
            # the worker before was lost after its commit
            return Outcome(**manifest.outcome)  # type: ignore[arg-type]
    if (manifest.generation if manifest else 0) != generation - 1:
        raise Superseded(place.dataset, tap)
    files = RowFiles(store.staged(place.run, generation), place.dataset, tap, generation)
    try:
        return _Task(place, store, manifest, generation, files).run(work)
    finally:
        files.abandon()


class _Task:
    """The reading of one task."""

    def __init__(
        self, place: Place, store: TapStore, manifest: Manifest | None, generation: int, files: RowFiles
    ) -> None:
        self._place, self._store, self._before, self._generation = place, store, manifest, generation
        self._files = files
        self._history = History(place.dataset, store.tap)
        self._entries: list[Entry] = []

    def run(self, work: Work) -> Outcome:
        before = self._before
        self._history.forget([each.name for each in work.captures])
        self._ring = self._continued(work)
        last = work.captures[-1] if work.is_last and work.captures and not work.captures[-1].status else None
        # without a capture to read the last one stays what it was
        kept = before if before is not None and all(each.status for each in work.captures) else None
        state_before = kept.state_before if kept else ""
        for capture in work.captures:
            if capture is last:
                self._settle("settled", self._ring.take())
                state_before = self._write_state("before")
            self._entries.append(self._read(capture))
            self._history.add(self._entries[-1])
            self._settle("last" if capture is last else "settled", self._ring.take())
        state = self._write_state("after")
        if work.is_last:
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
                placed=tuple(pair for pairs in placed.values() for pair in pairs),
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
        return self._pass_from(self._store.read_state(name))

    def _pass_from(self, state: bytes | None) -> RingPass:
        return RingPass(state, tables=[name for name in self._place.tables if name in ON_REQUEST])

    def _write_state(self, which: str) -> str:
        return self._store.write_state(self._place.run, self._generation, which, self._ring.state())

    def _settle(self, kind: str, found: Mapping[str, Table]) -> None:
        tables = {name: table for name, table in found.items() if name in self._place.tables}
        timeline = self._history.timeline()
        if not timeline.names and self._entries:
            # counters of captures without packets
            only = self._entries[-1]
            timeline = Timeline((only.capture,), np.array([1]), np.array([only.day * DAY_NS]))
        self._files.add(kind, tables, timeline)

    def _outcome(self, work: Work) -> Outcome:
        statuses: dict[str, int] = {}
        for each in self._entries:
            statuses[each.status] = statuses.get(each.status, 0) + 1
        problems = [(each.capture, each.status, each.problem) for each in self._entries if each.problem]
        return Outcome(work.size_bytes, statuses, problems, self._files.row_count)

    def _read(self, capture: Capture) -> Entry:
        """Reads one capture, again if that fails on the way; the entry of what became of it."""
        found = Entry(capture.name, capture.path, capture.size_bytes, capture.modified_ns)
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


def _entry(found: Entry, read: CaptureRead) -> Entry:
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


def _failed(found: Entry, status: str, problem: str = "") -> Entry:
    """The entry of a capture without packets; the reason if it is known."""
    reason = problem if problem and status == history.UNREADABLE else history.STATUSES[status]
    return replace(found, status=status, problem=" ".join(reason.split()))
