"""Loads: the commands of a trace by LUN, operation, initiator, target, I/O size, volume or hour, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure import waits
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.measure.distribution import is_bound
from iscsitrace.measure.intervals import Span, union_length
from iscsitrace.measure.throughput import NANOSECONDS
from iscsitrace.relate.attributes import Attributes
from iscsitrace.relate.outages import NEEDED_OF_VOLUMES, outages_of_volumes
from iscsitrace.relate.volumes import Volume, Volumes
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import rows_of_each
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording.command_status import of_columns
from iscsitrace.wording.status_classes import INFO

Array = NDArray[Any]

NEEDED: Final = NEEDED_OF_VOLUMES
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
        self._waits = waits.of_trace(source)
        self._is_error = _is_error(self._cycles)
        self._attributes = Attributes(source)

    def by(self, name: str) -> list[Load]:
        """The loads by one of attributes.NAMES: those in which a command without a status waited longest, then those
        with the longest busy time.
        """
        told = self._attributes.by(name)
        rows = rows_of_each(told.places, range(len(told.labels)))
        more = self._of_volumes(told.volumes)
        found = [
            self._load(label, own, more[place] if more else {})
            for place, (label, own) in enumerate(zip(told.labels, rows, strict=True))
            if len(own)
        ]
        return sorted(found, key=lambda each: (not each.is_hung, -each.waiting_ns * each.is_hung, -each.busy_ns))

    def _of_volumes(self, found: Volumes | None) -> list[dict[str, Any]]:
        """The fields of a load that only volumes have."""
        if found is None:
            return []
        outages = outages_of_volumes(self._source, found)
        return [{"volume": each, "outages": outages.get(each.number, ())} for each in found.all]

    def _load(self, label: str, rows: Array, more: dict[str, Any]) -> Load:
        own = self._cycles.select(rows)
        waited, has_status = self._waits.select(rows), known(own, "status_ns")
        busy_ns = union_length(own.raw("command_first_ns"), waited.ends_ns(own))
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


def _is_error(cycles: Table) -> Array:
    """Which commands have a status that is more than information: no UNIT ATTENTION, no optional page."""
    statuses, places = of_columns(
        *(cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq")),
        response=cycles.raw("response"),
        is_read_or_write=is_operation(cycles, "read", "write"),
    )
    is_error = np.array([*(each.severity != INFO for each in statuses), False])
    return np.asarray(is_error[places])
