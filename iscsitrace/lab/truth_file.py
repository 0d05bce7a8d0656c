"""The truth of a run as a file: tool, settings, events and results. Written once, never read here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.errors import OutputExists, TrafficImpossible
from iscsitrace.lab.traffic import TRUTH_SCHEMA_VERSION

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


def write(file: Path, truth: Mapping[str, Any]) -> None:
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
