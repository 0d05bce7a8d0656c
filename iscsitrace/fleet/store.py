"""The part of a dataset that one tap has: manifests, states, and files that are committed together or not at all.

    DATASET/TABLE/tap=NAME/day=YYYY-MM-DD/*.parquet    committed rows, and nothing else
    DATASET/_fleet/NAME/000000012.json                 the manifest of the last commit; its number is its generation
    DATASET/_fleet/NAME/state-...                      the states of the pass that it names
    DATASET/_fleet/NAME/staging/RUN/                   files of a commit to come

A commit is the creation of the next manifest, which fails if it exists. The manifest names the staged files and their
places, so whoever opens the tap next can complete what an interrupted commit began. Pruning removes whole days; the
states of the passes stay, so the next run goes on.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from iscsitrace.errors import InputInvalid, IscsitraceError
from iscsitrace.fleet import history
from iscsitrace.fleet.rows import DAY_NS, day_name

_FLEET = "_fleet"
_STAGING = "staging"
_GENERATION = "[0-9]" * 9


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit left."""

    generation: int
    run: str
    tap: str
    version: str
    """Of iscsitrace."""
    schema: int
    tables: tuple[str, ...]
    is_ended: bool
    """Whether the rows of all captures listed by the run are there, with those that are still open."""
    state: str
    """File of the state after the last capture read."""
    state_before: str = ""
    """File of the state before the last capture, which may still grow; empty within a run."""
    last: tuple[str, int, int] | None = None
    """Name, size and time of that capture."""
    last_files: tuple[str, ...] = ()
    """Rows that could no longer change after that capture, to be replaced if it has grown."""
    open_files: tuple[str, ...] = ()
    """Rows of what is still open, to be replaced by the next commit."""
    placed: tuple[tuple[str, str], ...] = ()
    """Staged files and their places."""
    removed: tuple[str, ...] = ()
    """Files that they replace."""
    read_to_ns: int | None = None
    """Time of the first packet of the last capture read: an older capture comes too late."""
    pruned_before: str = ""
    """The day before which rows were removed."""
    outcome: dict[str, object] = {}
    """What the task that committed has to report."""


def state_name(run: str, generation: int, which: str) -> str:
    """The name of the file of a state: ``before`` or ``after`` the last capture of a commit."""
    return f"state-{which}-{generation:09}-{run}"


class TapStore:
    """The files of one tap in a dataset; paths in manifests are relative to the dataset."""

    def __init__(self, dataset: Path, tap: str) -> None:
        self.dataset, self.tap = dataset, tap
        self.folder = dataset / _FLEET / tap

    def manifest(self) -> Manifest | None:
        """The manifest of the last commit; InputInvalid if it is none."""
        paths = sorted(self.folder.glob(f"{_GENERATION}.json"))
        if not paths:
            return None
        try:
            return msgspec.json.decode(paths[-1].read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputInvalid(f"cannot read {paths[-1]}: {error}") from error

    def begin(self, run: str) -> None:
        """Complete an interrupted commit, remove what was never committed, and make the staging folder of a run."""
        staging = self.folder / _STAGING
        staging.mkdir(parents=True, exist_ok=True)
        found = self.manifest()
        if found is not None:
            self.complete(found)
        for other in staging.iterdir():
            shutil.rmtree(other, ignore_errors=True)
        self._keep_states(found)
        (staging / run).mkdir()

    def end(self, run: str) -> None:
        """Complete an interrupted commit, and remove the staging folder of a run."""
        found = self.manifest()
        if found is not None and found.run == run:
            try:
                self.complete(found)
            except OSError:
                # the next run completes it
                return
        shutil.rmtree(self.folder / _STAGING / run, ignore_errors=True)

    def staged(self, run: str, generation: int) -> Path:
        """An empty folder for the files of a commit. FileNotFoundError if another run has begun meanwhile.

        Each attempt has its own: a worker that was given up may still write.
        """
        folder = self.folder / _STAGING / run / f"{generation}-{uuid.uuid4().hex[:12]}"
        folder.mkdir()
        return folder

    def state(self, name: str) -> Path:
        """The place of a state."""
        return self.folder / name

    def commit(self, manifest: Manifest) -> None:
        """Put the staged files into their places, all or none. Raises Superseded if that was committed before."""
        needed = [self.dataset / staged for staged, _ in manifest.placed]
        if not all(path.exists() for path in needed):
            raise Superseded(self.dataset, self.tap)
        with ThreadPoolExecutor(max(len(needed), 1)) as pool:
            # together they take little longer than one of them
            list(pool.map(_sync, needed))
        aside = self.folder / _STAGING / manifest.run / f"manifest-{uuid.uuid4().hex[:12]}"
        with aside.open("wb") as stream:
            stream.write(msgspec.json.encode(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            # a link never replaces: of two runs that would commit this generation one does
            os.link(aside, self.folder / f"{manifest.generation:09}.json")
        except FileExistsError as error:
            raise Superseded(self.dataset, self.tap) from error
        finally:
            aside.unlink(missing_ok=True)
        _sync(self.folder)
        self.complete(manifest)

    def complete(self, manifest: Manifest) -> None:
        """Place and remove what a manifest names, as far as that was not done yet; remove what it replaces."""
        for staged, place in manifest.placed:
            target = self.dataset / place
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # it is there
                (self.dataset / staged).replace(target)
        for name in manifest.removed:
            path = self.dataset / name
            path.unlink(missing_ok=True)
            for folder in (path.parent, path.parent.parent):
                with suppress(OSError):  # others are in it
                    folder.rmdir()
        for path in self.folder.glob(f"{_GENERATION}.json"):
            if int(path.stem) < manifest.generation:
                path.unlink(missing_ok=True)
        self._keep_states(manifest)

    def _keep_states(self, manifest: Manifest | None) -> None:
        """Remove the states that the last manifest does not name."""
        for path in self.folder.glob("state-*"):
            if manifest is None or path.name not in (manifest.state, manifest.state_before):
                path.unlink(missing_ok=True)


class Superseded(IscsitraceError):
    """Another run has committed to this tap."""

    def __init__(self, dataset: Path, tap: str) -> None:
        super().__init__(dataset, tap)

    def __str__(self) -> str:
        return f"{self.args[0]}: another run has written tap {self.args[1]} meanwhile; start again"


def stores(dataset: Path) -> list[TapStore]:
    """The taps of a dataset by name; InputInvalid if it is none."""
    folder = dataset / _FLEET
    if not folder.is_dir():
        raise InputInvalid(f"{dataset} is not a dataset of 'iscsitrace fleet run'")
    return [TapStore(dataset, path.name) for path in sorted(folder.iterdir()) if path.is_dir()]


@contextmanager
def locked(dataset: Path) -> Iterator[None]:
    """The right to change a dataset; InputInvalid if another process of this machine has it, or if it is read-only."""
    try:
        (dataset / _FLEET).mkdir(parents=True, exist_ok=True)
        stream = (dataset / _FLEET / "lock").open("wb")
    except OSError as error:
        raise InputInvalid(f"cannot write {dataset}: {error.strerror or error}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputInvalid(f"another 'iscsitrace fleet' is changing {dataset}") from error
        yield


def check(manifest: Manifest, dataset: Path, version: str, schema: int, tables: Sequence[str]) -> None:
    """InputInvalid unless a tap was read by this version and with these options: one dataset has one meaning."""
    if (manifest.version, manifest.schema) != (version, schema):
        was = f"iscsitrace {manifest.version} (schema {manifest.schema}), this is {version} (schema {schema})"
    elif manifest.tables != tuple(tables):
        was = f"--tables {','.join(manifest.tables)}, not {','.join(tables)}"
    else:
        return
    raise InputInvalid(f"{dataset} was made with {was}: to start anew, name another folder or remove this one")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_DAY: Final = "day="


@dataclass(frozen=True)
class Pruned:
    """What was removed of one tap."""

    tap: str
    days: tuple[str, ...]
    size_bytes: int
    kept: tuple[str, ...]
    """Older days with the row of a session that is still open."""


def prune(dataset: Path, older_ns: int, now_ns: int) -> list[Pruned]:
    """Remove the days that ended at least ``older_ns`` before ``now_ns``. InputInvalid if there is no dataset.

    A day stays while the row of a session that is still open is on it: the day on which that session began.
    """
    before = day_name((now_ns - older_ns) // DAY_NS)
    taps = stores(dataset)
    found = []
    with locked(dataset):
        for each in taps:
            run = uuid.uuid4().hex[:12]
            each.begin(run)
            manifest = each.manifest()
            if manifest is not None:
                found.append(_prune(each, manifest, run, before))
            each.end(run)
    return found


def _prune(tap: TapStore, manifest: Manifest, run: str, before: str) -> Pruned:
    by_day: dict[str, list[Path]] = {}
    for name in (*manifest.tables, history.TABLE):
        for path in (tap.dataset / name / f"tap={tap.tap}").glob(f"{_DAY}*/*.parquet"):
            by_day.setdefault(path.parent.name.removeprefix(_DAY), []).append(path)
    old = {day: paths for day, paths in by_day.items() if day < before}
    kept = _open_days(tap, manifest) & old.keys()
    paths = [path for day, each in old.items() if day not in kept for path in each]
    removed = {str(path.relative_to(tap.dataset)): path.stat().st_size for path in paths}
    if removed:
        tap.commit(
            msgspec.structs.replace(
                manifest,
                generation=manifest.generation + 1,
                run=run,
                last_files=tuple(name for name in manifest.last_files if name not in removed),
                open_files=tuple(name for name in manifest.open_files if name not in removed),
                placed=(),
                removed=tuple(removed),
                pruned_before=max(before, manifest.pruned_before),
                outcome={},
            )
        )
    days = tuple(sorted(old.keys() - kept))
    return Pruned(tap.tap, days, sum(removed.values()), tuple(sorted(kept)))


def _open_days(tap: TapStore, manifest: Manifest) -> set[str]:
    """The days with the row of an open session, or of an open iSCSI connection whose session is unknown."""
    days = set()
    for name in (*manifest.open_files, *manifest.last_files):
        table, _, rest = name.partition("/")
        columns = {"sessions": ["end"], "connections": ["session", "is_iscsi", "has_fin", "has_rst"]}.get(table)
        if columns is None:
            continue
        rows = _read(tap.dataset / name, columns)
        if any(_is_open(row) for row in rows):
            days.add(rest.split(_DAY)[1].partition("/")[0])
    return days


def _is_open(row: dict[str, Any]) -> bool:
    if "end" in row:
        return bool(row["end"] == "open")
    return bool(row["is_iscsi"] and row["session"] is None and not row["has_fin"] and not row["has_rst"])


def _read(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.ParquetFile(path).read(columns=columns).to_pylist()
    return rows
