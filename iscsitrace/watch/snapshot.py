"""Snapshots of the live view in new files."""

from __future__ import annotations

import json
import os
from pathlib import Path

from iscsitrace.errors import OutputExists
from iscsitrace.watch.board import render
from iscsitrace.watch.choice import Choice
from iscsitrace.watch.watcher import Report

WIDTH, HEIGHT = 130, 200
_TRIES = 1000


def save(report: Report, choice: Choice, folder: Path) -> tuple[Path, Path]:
    """Writes ``watch-TIME.json`` and ``watch-TIME.txt``, with a number if they exist; returns both paths.

    OSError if the folder is not writable.
    """
    stem = f"watch-{report.to_ns // 10**9}"
    text = "\n".join(line.plain.rstrip() for line in render(report, choice, WIDTH, HEIGHT)) + "\n"
    document = json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n"
    for attempt in range(_TRIES):
        name = stem if not attempt else f"{stem}-{attempt}"
        paths = folder / f"{name}.json", folder / f"{name}.txt"
        try:
            for path, content in zip(paths, (document, text), strict=True):
                _write_new(path, content)
        except FileExistsError:
            continue
        return paths
    raise OutputExists(f"{folder / stem} exists {_TRIES} times; nothing was written")


def _write_new(path: Path, content: str) -> None:
    # names and addresses are private
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(content)
