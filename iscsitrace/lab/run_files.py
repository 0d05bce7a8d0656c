"""The files of a run, the same in either world: a capture of each host, and the truth. Reads none of them.

The truth has the tool, settings, events and results.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.errors import OutputExists, TrafficImpossible
from iscsitrace.lab import own_process
from iscsitrace.lab.traffic import TRUTH_SCHEMA_VERSION

TRUTH = "truth.json"
INITIATOR = "initiator"
_PREFIX, _SUFFIX = ".run.", ".partial"


def targets(count: int) -> list[str]:
    """The names of ``count`` targets: ``target``, ``target-2`` ..."""
    return ["target", *(f"target-{number}" for number in range(2, count + 1))]


def capture_name(host: str) -> str:
    """The name of the capture of a host."""
    return f"{host}.pcapng"


def capture_names(target_count: int) -> list[str]:
    """The names of a run's captures: the initiator's, then each target's."""
    return [capture_name(host) for host in (INITIATOR, *targets(target_count))]


def hosts(target_count: int, capture_at: Sequence[str]) -> list[str]:
    """The hosts to capture at, for the sides ``initiator`` and ``target`` in ``capture_at``."""
    is_wanted = {INITIATOR: INITIATOR in capture_at} | dict.fromkeys(targets(target_count), "target" in capture_at)
    return [host for host, wanted in is_wanted.items() if wanted]


@contextmanager
def made_in(directory: Path, names: Sequence[str], *, is_forced: bool) -> Iterator[Path]:
    """A new folder for the captures with these ``names`` and the truth, all of which the block writes.

    Afterwards they move to ``directory``, the truth last: what is there is complete, however a run ends. When the block
    fails they are removed, and those of a killed run at the next.

    ``directory`` is created if missing. OutputExists if a capture or the truth exists and ``is_forced`` is not set;
    TrafficImpossible if the folder cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrafficImpossible(f"cannot make {directory}: {error.strerror}") from error
    names = [*names, TRUTH]
    require_new([directory / name for name in names], is_forced=is_forced)
    with own_process.unwinding():
        _remove_leftovers(directory)
        aside = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=directory))
        lock = _locked(aside)
        try:
            yield aside
            with own_process.deferred():
                for name in names:
                    (aside / name).replace(directory / name)
        finally:
            with own_process.deferred():
                shutil.rmtree(aside, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that locks a folder: the kernel closes it with its process. OSError if another one has the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_leftovers(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


_INITIATOR_COLUMNS = (
    *("session", "connection", "target", "initiator_task_tag", "operation", "lba", "block_count", "bytes", "status"),
    *("submitted_ns", "sent_ns", "first_data_ns", "completed_ns"),
)


def envelope(kind: str) -> dict[str, Any]:
    """The head of a truth: schema number, tool and kind."""
    return {
        "schema": TRUTH_SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": iscsitrace.__version__},
        "kind": kind,
    }


def columns(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, list[Any]]:
    """Records as columns."""
    kept = list(records)
    return {name: [record.get(name) for record in kept] for name in names}


def initiator_cycles(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The commands of a run of our initiator, from the core's document to columns of a truth."""
    # bulk transfers have neither commands nor sessions
    targets = {one["session"]: one["target"] for one in found["results"]["connections"] if "session" in one}
    records = [
        {
            **task,
            "target": targets.get(task["session"]),
            "operation": "read" if task["is_read"] else "write",
            "block_count": task["blocks"],
        }
        for task in found["tasks"]
    ]
    return columns(records, _INITIATOR_COLUMNS)


def target_log(found: Mapping[str, Any]) -> dict[str, Any]:
    """The log of our target, from the core's document to ``counters``, ``connections``, ``cycles`` and ``cpu``."""
    tasks = found["tasks"]
    return {
        "counters": found["counters"],
        "connections": found["connections"],
        "cycles": columns(tasks, tasks[0] if tasks else ()),
        "cpu": found["cpu"],
    }


def pack_busy_times(log: Mapping[str, Any]) -> None:
    """Turns the busy times in the log of a link into columns; there may be as many as packets."""
    for direction in ("to_target", "to_initiator"):
        line = log[direction]["line"]
        if line is not None:
            line["busy_times"] = columns(line["busy_times"], ("from_ns", "to_ns"))


def require_new(files: Iterable[Path], *, is_forced: bool) -> None:
    """OutputExists for an existing file, unless it may be overwritten: then it is removed.

    TrafficImpossible for a file that cannot be written, before the run starts.
    """
    wanted = list(files)
    for file in wanted:
        if not file.parent.is_dir():
            raise TrafficImpossible(f"cannot write {file}: there is no folder {file.parent}")
        if not os.access(file.parent, os.W_OK):
            raise TrafficImpossible(f"cannot write {file}: no permission for {file.parent}")
    for file in wanted:
        if not file.exists() and not file.is_symlink():
            continue
        if not is_forced:
            raise OutputExists(f"{file} exists; --force overwrites it")
        try:
            file.unlink()
        except OSError as error:
            raise TrafficImpossible(f"cannot overwrite {file}: {error.strerror}") from error


def write_truth(file: Path, truth: Mapping[str, Any]) -> None:
    """Writes a truth, completely or not at all. TrafficImpossible if it cannot be written."""
    try:
        stream = file.open("x")
    except OSError as error:
        raise TrafficImpossible(f"cannot write {file}: {error.strerror}") from error
    try:
        with stream:
            # in one piece: many small writes take ten times as long
            stream.write(json.dumps(truth, allow_nan=False))
            stream.write("\n")
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise TrafficImpossible(f"cannot write {file}: {error.strerror}") from error
        raise
