"""Loads: the commands of a trace by LUN, operation, initiator, target, I/O size, volume or hour, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.measure import waits
from iscsitrace.measure.data_commands import is_data_command, is_operation
from iscsitrace.measure.distribution import is_bound
from iscsitrace.measure.intervals import Span, union_length
from iscsitrace.measure.throughput import NANOSECONDS
from iscsitrace.relate import volumes
from iscsitrace.relate.outages import NEEDED_OF_VOLUMES, outages_of_volumes
from iscsitrace.relate.volumes import Volume, Volumes, ends_of_sessions
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, rows_of_each
from iscsitrace.tables.table import Array, Source, Table
from iscsitrace.wording import cells
from iscsitrace.wording.command_status import of_columns
from iscsitrace.wording.status_classes import INFO

HOUR_NS: Final = 3_600_000_000_000


@dataclass(frozen=True)
class Attribute:
    """The values of one attribute."""

    labels: Sequence[str]
    places: Array
    """The place of each command's value among them; -1 for none."""
    volumes: Volumes | None = None
    """Where the values are volumes."""


class Attributes:
    """The attributes of the commands of one trace; ``source`` is its method ``table``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cycles = source("cycles")

    def by(self, name: str) -> Attribute:
        """The values of one of NAMES. All but operations have only the commands that read, write or erase data."""
        return _BY[name](self)

    @cached_property
    def _is_data(self) -> Array:
        return self._cycles.each(is_data_command)

    def _by_operation(self) -> Attribute:
        words = self._cycles.words_by_code("operation")
        labels = [str(word or "unknown") for word in words.tolist()]
        return Attribute(labels, self._cycles.raw("operation").astype(np.int64))

    def _by_size(self) -> Attribute:
        is_sized = self._is_data & known(self._cycles, "bytes")
        sizes, places = np.unique(self._cycles.raw("bytes"), return_inverse=True)
        return Attribute([cells.size(size) for size in sizes.tolist()], np.where(is_sized, places, -1))

    def _by_initiator(self) -> Attribute:
        return self._by_session("host")

    def _by_target(self) -> Attribute:
        return self._by_session("target")

    def _by_session(self, name: str) -> Attribute:
        ends = ends_of_sessions(self._source)
        labels: dict[str, int] = {}
        of_session = np.full(max(ends, default=-1) + 2, -1, dtype=np.int64)
        for number, each in ends.items():
            of_session[number] = labels.setdefault(each[name], len(labels))
        sessions = self._cycles.raw("session").astype(np.int64).clip(max=len(of_session) - 1)
        places = np.where(self._is_data & known(self._cycles, "session"), of_session[sessions], -1)
        return Attribute(list(labels), places)

    def _by_lun(self) -> Attribute:
        target = self._by_target()
        luns, of_lun = np.unique(self._cycles.raw("lun"), return_inverse=True)
        is_placed = (target.places >= 0) & known(self._cycles, "lun")
        used, which = distinct((target.places * len(luns) + of_lun)[is_placed])
        places = np.full(len(is_placed), -1, dtype=np.int64)
        places[is_placed] = which
        labels = [f"LUN {luns[each % len(luns)]} of {target.labels[each // len(luns)]}" for each in used.tolist()]
        return Attribute(labels, places)

    def _by_volume(self) -> Attribute:
        found = volumes.find(self._source)
        places = np.where(self._is_data, found.of_commands(self._cycles), -1)
        return Attribute([each.label for each in found.all], places, found)

    def _by_hour(self) -> Attribute:
        hours, which = distinct(self._cycles.raw("command_first_ns")[self._is_data] // HOUR_NS)
        places = np.full(len(self._is_data), -1, dtype=np.int64)
        places[self._is_data] = which
        return Attribute([hour_label(each) for each in hours.tolist()], places)


def hour_label(hour: int) -> str:
    """``2026-11-26 14:00``: the start of an hour, counted from 1970, in UTC."""
    return cells.clock(hour * HOUR_NS)[: len("2026-11-26 14:00")]


_BY: Final[dict[str, Callable[[Attributes], Attribute]]] = {
    "lun": Attributes._by_lun,
    "operation": Attributes._by_operation,
    "initiator": Attributes._by_initiator,
    "target": Attributes._by_target,
    "size": Attributes._by_size,
    "volume": Attributes._by_volume,
    "hour": Attributes._by_hour,
}
NAMES: Final = tuple(_BY)
"""What commands can be told apart by."""


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
