"""Loads: the commands of a trace by LUN, operation, initiator, target, I/O size or volume, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups import logical_units, volume_outages, volumes
from iscsitrace.analysis.groups.service import Service
from iscsitrace.analysis.groups.volumes import Volume
from iscsitrace.analysis.measures import waits
from iscsitrace.analysis.measures.data_commands import is_data_command, is_operation
from iscsitrace.analysis.measures.distribution import is_bound
from iscsitrace.analysis.measures.intervals import Span, union_length
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.measures.throughput import NANOSECONDS
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording import cells
from iscsitrace.wording.command_status import of_columns
from iscsitrace.wording.status_classes import INFO

Array = NDArray[Any]

NEEDED: Final = volume_outages.NEEDED
"""Tables filled on request that this reads."""


@dataclass(frozen=True)
class Load:
    """The commands with one value."""

    label: str
    command_count: int
    bytes: int
    busy_ns: int
    """Time with at least one of them in flight."""
    iops: float | None
    bytes_per_s: float | None
    latency_ns: dict[str, int | None]
    """``n p50 p95 p99 max``, and ``open_count`` where commands without a status are among them (waits.py)."""
    waiting_count: int
    """Commands without a status, unless the capture missed it."""
    waiting_ns: int
    """The longest time that one of these waited; 0 without one."""
    error_count: int
    """Commands with a status other than GOOD that is not expected of a healthy device."""
    volume: Volume | None = None
    outages: tuple[Span, ...] = ()

    @property
    def is_hung(self) -> bool:
        """Whether the slowest command is one without a status."""
        return is_bound(self.latency_ns, "max")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {
            "label": self.label,
            "command_count": self.command_count,
            "bytes": self.bytes,
            "busy_ns": self.busy_ns,
            "iops": self.iops,
            "bytes_per_s": self.bytes_per_s,
            "latency_ns": self.latency_ns,
            "without_status_count": self.waiting_count,
            "without_status_ns": self.waiting_ns,
            "error_count": self.error_count,
        }
        if self.volume is None:
            return found
        return found | volume_document(self.volume, self.outages)


def volume_document(volume: Volume, outages: Sequence[Span]) -> dict[str, Any]:
    """A volume with its outages, for JSON."""
    return volume.as_dict() | {
        "outage_ns": sum(to_ns - from_ns for from_ns, to_ns in outages),
        "outage_spans": [list(span) for span in outages],
    }


class Loads:
    """The loads of one trace; ``source`` is its method ``table``."""

    def __init__(self, source: Source) -> None:
        self._cycles = source("cycles")
        self._source = source
        self._service = Service(source)
        self._waits = waits.of_trace(source)
        self._is_data = self._cycles.each(is_data_command)
        self._is_error = _is_error(self._cycles)
        self._ends = logical_units.ends(source)

    def by(self, name: str) -> list[Load]:
        """The loads by one of BY: those in which a command without a status waited longest, then those with the
        longest busy time.

        All but operations have only the commands that read, write or erase data.
        """
        labels, places, more = BY[name](self)
        which = np.flatnonzero(places >= 0)
        order = which[np.argsort(places[which], kind="stable")]
        bounds = np.searchsorted(places[order], np.arange(len(labels) + 1))
        found = [
            self._load(label, order[bounds[place] : bounds[place + 1]], more[place] if more else {})
            for place, label in enumerate(labels)
            if bounds[place] < bounds[place + 1]
        ]
        return sorted(found, key=lambda each: (not each.is_hung, -each.waiting_ns * each.is_hung, -each.busy_ns))

    def _load(self, label: str, rows: Array, more: dict[str, Any]) -> Load:
        own = self._cycles.select(rows)
        begun_ns, ended_ns = own.raw("command_first_ns"), self._service.ends_ns[rows]
        has_status = known(own, "status_ns")
        waited = self._waits.select(rows)
        busy_ns = union_length(begun_ns, ended_ns)
        moved = int(own.raw("data_bytes").sum(dtype=np.int64))
        return Load(
            label=label,
            command_count=len(rows),
            bytes=moved,
            busy_ns=busy_ns,
            iops=int(has_status.sum()) * NANOSECONDS / busy_ns if busy_ns else None,
            bytes_per_s=moved * NANOSECONDS / busy_ns if busy_ns else None,
            latency_ns=waited.percentiles,
            waiting_count=int(waited.is_open.sum()),
            waiting_ns=int(waited.least_ns[waited.is_open].max(initial=0)),
            error_count=int(self._is_error[rows].sum()),
            **more,
        )

    # --- what the commands are told apart by: labels, and the place of each command's among them, -1 for none

    def _by_operation(self) -> _Places:
        words = self._cycles.words_by_code("operation")
        labels = [str(word or "unknown") for word in words.tolist()]
        return labels, self._cycles.raw("operation").astype(np.int64), None

    def _by_size(self) -> _Places:
        is_sized = self._is_data & known(self._cycles, "bytes")
        sizes, places = np.unique(self._cycles.raw("bytes"), return_inverse=True)
        return [cells.size(size) for size in sizes.tolist()], np.where(is_sized, places, -1), None

    def _by_initiator(self) -> _Places:
        return self._by_session("host")

    def _by_target(self) -> _Places:
        return self._by_session("target")

    def _by_session(self, name: str) -> _Places:
        values = {number: each[name] for number, each in self._ends.items()}
        labels = list(dict.fromkeys(values.values()))
        of_session = np.full(max(values, default=-1) + 2, -1, dtype=np.int64)
        for number, value in values.items():
            of_session[number] = labels.index(value)
        sessions = self._cycles.raw("session").astype(np.int64).clip(max=len(of_session) - 1)
        return labels, np.where(self._is_data & known(self._cycles, "session"), of_session[sessions], -1), None

    def _by_lun(self) -> _Places:
        targets, of_target, _ = self._by_target()
        luns, of_lun = np.unique(self._cycles.raw("lun"), return_inverse=True)
        places = np.where((of_target >= 0) & known(self._cycles, "lun"), of_target * len(luns) + of_lun, -1)
        used, which = np.unique(places, return_inverse=True)
        labels = [
            "" if place < 0 else f"LUN {luns[place % len(luns)]} of {targets[place // len(luns)]}"
            for place in used.tolist()
        ]
        return labels, np.where(places < 0, -1, which), None

    def _by_volume(self) -> _Places:
        found = volumes.find(self._source)
        outages = volume_outages.find(self._source, found)
        numbers = np.where(self._is_data, found.of_commands(self._cycles), -1)
        more = [{"volume": each, "outages": outages.get(each.number, ())} for each in found.all]
        return [each.label for each in found.all], numbers, more


_Places = tuple[Sequence[str], Array, list[dict[str, Any]] | None]

BY: Final[dict[str, Callable[[Loads], _Places]]] = {
    "lun": Loads._by_lun,
    "operation": Loads._by_operation,
    "initiator": Loads._by_initiator,
    "target": Loads._by_target,
    "size": Loads._by_size,
    "volume": Loads._by_volume,
}
"""What commands can be told apart by."""


def _is_error(cycles: Table) -> Array:
    """Which commands have a status that is more than information: no UNIT ATTENTION, no optional page."""
    statuses, places = of_columns(
        *(cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq")),
        response=cycles.raw("response"),
        is_read_or_write=is_operation(cycles, "read", "write"),
    )
    is_error = np.array([*(each.severity != INFO for each in statuses), False])
    return np.asarray(is_error[places])
