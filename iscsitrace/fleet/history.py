"""The table ``captures`` of one tap: what was read, in one file for each day."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from iscsitrace.fleet.captures import Capture
from iscsitrace.fleet.rows import DAY_NS, CaptureOrder

TABLE: Final = "captures"
READ, DAMAGED, EMPTY, UNREADABLE, VANISHED, LATE = "read", "damaged", "empty", "unreadable", "vanished", "late"
STATUSES: Final = {
    READ: "read to its end",
    DAMAGED: "read, but its end is missing or its compression is damaged",
    EMPTY: "without packets",
    UNREADABLE: "not a capture, or not readable",
    VANISHED: "gone before it was read",
    LATE: "older than captures that were read before it came: not read",
}


@dataclass(frozen=True)
class CaptureRow:
    """A row of ``captures``."""

    capture: str
    path: str
    size_bytes: int
    modified_ns: int
    first_frame: int | None = None
    """Number of its first frame in the ring: frame F of the dataset is its frame F - first_frame + 1."""
    frame_count: int = 0
    time_first_ns: int | None = None
    time_last_ns: int | None = None
    status: str = READ
    problem: str = ""

    @property
    def day(self) -> int:
        """Days since 1970 of its first packet; of its last change, if it has none."""
        return (self.modified_ns if self.time_first_ns is None else self.time_first_ns) // DAY_NS

    @property
    def known(self) -> Capture:
        """The file as it was listed."""
        return Capture(self.capture, self.path, self.size_bytes, self.modified_ns, self.time_first_ns)


class TapHistory:
    """The captures of a tap that were read."""

    def __init__(self, dataset: Path, tap: str) -> None:
        from pyarrow import parquet

        self._folder = dataset / TABLE / f"tap={tap}"
        self._dataset = dataset
        self.entries: dict[str, CaptureRow] = {}
        self._files: dict[str, int] = {}
        for path in sorted(self._folder.glob("day=*/*.parquet")):
            entries = [CaptureRow(**row) for row in parquet.ParquetFile(path).read().to_pylist()]
            self.entries |= {each.capture: each for each in entries}
            if entries:
                self._files[str(path.relative_to(dataset))] = entries[0].day
        self._changed: set[int] = set()

    def add(self, entry: CaptureRow) -> None:
        """A capture that was read now; it replaces what was known of one of its name."""
        before = self.entries.pop(entry.capture, None)
        self._changed |= {entry.day, *([before.day] if before else ())}
        self.entries[entry.capture] = entry

    def forget(self, names: Collection[str]) -> None:
        """Captures that are read again."""
        for name in names:
            before = self.entries.pop(name, None)
            if before is not None:
                self._changed.add(before.day)

    @property
    def replaced(self) -> list[str]:
        """The files of the days that changed."""
        return [name for name, day in self._files.items() if day in self._changed]

    def changed_days(self) -> dict[int, Any]:
        """The rows of each day that changed, as Arrow tables."""
        import pyarrow

        found = {}
        for day in sorted(self._changed):
            rows = [vars(each) for each in self.entries.values() if each.day == day]
            if rows:
                rows.sort(key=lambda row: (row["first_frame"] or 0, row["capture"]))
                found[day] = pyarrow.Table.from_pylist(rows, schema=arrow_schema())
        return found

    def timeline(self) -> CaptureOrder:
        """The captures with packets, in order."""
        found = [each for each in self.entries.values() if each.frame_count and each.first_frame is not None]
        found.sort(key=lambda each: each.first_frame or 0)
        return CaptureOrder(
            tuple(each.capture for each in found),
            np.array([each.first_frame for each in found], dtype=np.int64),
            np.array([each.time_first_ns for each in found], dtype=np.int64),
        )


def arrow_schema() -> Any:
    """The columns of ``captures``, without its partitions."""
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int64()
    return pyarrow.schema(
        [
            ("capture", text),
            ("path", text),
            ("size_bytes", number),
            ("modified_ns", number),
            ("first_frame", pyarrow.uint64()),
            ("frame_count", pyarrow.uint64()),
            ("time_first_ns", number),
            ("time_last_ns", number),
            ("status", text),
            ("problem", text),
        ]
    )
