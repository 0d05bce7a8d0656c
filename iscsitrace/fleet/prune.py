"""Removes whole days from a dataset; the states of the passes stay, so the next run goes on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from iscsitrace.fleet import history, store
from iscsitrace.fleet.rows import DAY_NS, day_name
from iscsitrace.fleet.store import Manifest, TapStore

_DAY: Final = "day="


@dataclass(frozen=True)
class Pruned:
    """What was removed of one tap."""

    tap: str
    days: tuple[str, ...]
    file_count: int
    size_bytes: int
    kept: tuple[str, ...]
    """Older days with the row of a session that is still open."""


def prune(dataset: Path, older_ns: int, now_ns: int) -> list[Pruned]:
    """Remove the days that ended at least ``older_ns`` before ``now_ns``. InputInvalid if there is no dataset.

    A day stays while the row of a session that is still open is on it: the day on which that session began.
    """
    before = day_name((now_ns - older_ns) // DAY_NS)
    taps = store.stores(dataset)
    found = []
    with store.locked(dataset):
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
    return Pruned(tap.tap, days, len(removed), sum(removed.values()), tuple(sorted(kept)))


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
