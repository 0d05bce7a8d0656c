"""The figures of one interval: of all, of every session, of every connection. Pure functions of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iscsitrace.analysis.budget import PARTS, Budget
from iscsitrace.analysis.distribution import counts, percentiles
from iscsitrace.analysis.volumes import NANOSECONDS, measure
from iscsitrace.table import Table

SIZES_SHOWN = 3
CAUSES = ("fast_retransmit", "timeout", "tail_probe", "unknown_retransmit")
"""Why bytes were sent again: columns of ``senders``, without ``_count``."""


@dataclass(frozen=True)
class Load:
    """What was done in an interval; a task counts in the interval in which all of it had been read."""

    task_count: int
    read_bytes: int
    write_bytes: int
    length_ns: int
    latency_ns: dict[str, int | None]
    """``p50 p95 p99 max`` of the tasks with a status, command to status."""
    queue_depth_mean: float | None
    """At issue."""
    queue_depth_max: int | None
    block_sizes: list[dict[str, int]]
    """The most frequent ones: ``bytes task_count``."""

    @property
    def iops(self) -> float:
        """Tasks a second."""
        return self._per_s(self.task_count)

    @property
    def read_bytes_per_s(self) -> float:
        """Payload to the initiator."""
        return self._per_s(self.read_bytes)

    @property
    def write_bytes_per_s(self) -> float:
        """Payload to the target."""
        return self._per_s(self.write_bytes)

    def _per_s(self, amount: int) -> float:
        return amount * NANOSECONDS / self.length_ns if self.length_ns > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "task_count": self.task_count,
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "iops": self.iops,
            "read_bytes_per_s": self.read_bytes_per_s,
            "write_bytes_per_s": self.write_bytes_per_s,
            "latency_ns": self.latency_ns,
            "queue_depth": {"mean": self.queue_depth_mean, "max": self.queue_depth_max},
            "block_sizes": self.block_sizes,
        }


@dataclass(frozen=True)
class Transport:
    """The senders of one connection."""

    owin_peak_bytes: dict[str, int]
    """Most outstanding data in the interval, ``to_target`` and ``to_initiator``."""
    owin_bytes: dict[str, int]
    rwnd_bytes: dict[str, int | None]
    rtt_smoothed_ns: int | None
    """Both sides of the tap."""
    rtt_min_ns: int | None
    retransmissions: dict[str, int]
    """Packets sent again in the interval, by cause; ``spurious`` are among them."""
    retransmitted_total: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Line:
    """One session or connection in one interval."""

    kind: str
    number: int
    load: Load
    budget: Budget | None
    open_task_count: int
    total_latency_ns: dict[str, int | None] = field(default_factory=dict)
    """Since the start."""
    names: dict[str, Any] = field(default_factory=dict)
    """Of a session: ``initiator_name target_name``; of a connection: ``session initiator target``."""
    connections: tuple[int, ...] = ()
    transports: dict[int, Transport] = field(default_factory=dict)
    is_open: bool = True

    @property
    def retransmitted(self) -> int:
        """Packets sent again in the interval."""
        return sum(sum(each.retransmissions[cause] for cause in CAUSES) for each in self.transports.values())

    @property
    def rtt_smoothed_ns(self) -> int | None:
        """The longest of its connections."""
        known = [each.rtt_smoothed_ns for each in self.transports.values() if each.rtt_smoothed_ns is not None]
        return max(known, default=None)

    @property
    def owin_peak_bytes(self) -> int | None:
        """The most of its connections and directions together."""
        if not self.transports:
            return None
        by_direction = [
            sum(each.owin_peak_bytes[direction] for each in self.transports.values())
            for direction in ("to_target", "to_initiator")
        ]
        return max(by_direction)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        budget = self.budget
        document = {
            self.kind: self.number,
            **self.names,
            "is_open": self.is_open,
            **self.load.as_dict(),
            "latency_total_ns": self.total_latency_ns,
            "open_task_count": self.open_task_count,
            "idle_fraction": budget.idle_fraction if budget else None,
            "limiter": budget.limiter if budget else None,
            "budget": {part: budget.parts_ns[part] for part in PARTS} if budget else None,
        }
        if self.kind == "session":
            return document | {"connections": list(self.connections)}
        transport = self.transports.get(self.number)
        return document | {"transport": transport.as_dict() if transport else None}


def load_of(cycles: Table, length_ns: int) -> Load:
    """What the cycles of an interval of that length amount to."""
    volume = measure(cycles)[-1]
    depths = cycles.raw("queue_depth")
    size, mask = cycles.raw("bytes"), cycles.mask("bytes")
    sizes = counts(size[(size > 0) & (~mask if mask is not None else True)]) if len(cycles) else {}
    most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SIZES_SHOWN]
    return Load(
        task_count=volume.cycle_count,
        read_bytes=volume.read_bytes,
        write_bytes=volume.write_bytes,
        length_ns=length_ns,
        latency_ns=percentiles(cycles["latency_ns"]),
        queue_depth_mean=float(depths.mean()) if len(depths) else None,
        queue_depth_max=volume.queue_depth_max,
        block_sizes=[{"bytes": each, "task_count": count} for each, count in most],
    )


def transports_of(
    now: Iterable[dict[str, Any]], senders: Table, before: dict[tuple[int, bool], dict[str, int]]
) -> dict[int, Transport]:
    """The senders of every connection; ``before`` holds their counts at the last look, and is brought up to date."""
    names = [*(f"{cause}_count" for cause in CAUSES), "spurious_count"]
    rows = {
        (row["connection"], row["to_target"]): row
        for row in senders.rows(["connection", "to_target", "rtt_min_ns", *names])
    }
    found = {}
    for connection in now:
        if "to_target" not in connection:
            continue
        number = connection["connection"]
        own = [rows.get((number, to_target)) for to_target in (True, False)]
        since = dict.fromkeys(names, 0)
        total = 0
        for to_target, row in zip((True, False), own, strict=True):
            if row is None:
                continue
            last = before.get((number, to_target), {})
            for name in names:
                since[name] += max(row[name] - last.get(name, 0), 0)
            total += sum(row[name] for name in names[:-1])
            before[number, to_target] = {name: row[name] for name in names}
        sides = [connection["to_target"], connection["to_initiator"]]
        found[number] = Transport(
            owin_peak_bytes=dict(zip(_DIRECTIONS, (side["owin_peak_bytes"] for side in sides), strict=True)),
            owin_bytes=dict(zip(_DIRECTIONS, (side["owin_bytes"] for side in sides), strict=True)),
            rwnd_bytes=dict(zip(_DIRECTIONS, (side["rwnd_bytes"] for side in sides), strict=True)),
            rtt_smoothed_ns=_sum(side["rtt_smoothed_ns"] for side in sides),
            rtt_min_ns=_sum(row["rtt_min_ns"] if row else None for row in own),
            retransmissions={name.removesuffix("_count"): amount for name, amount in since.items()},
            retransmitted_total=total,
        )
    for key in before.keys() - rows.keys():
        del before[key]
    return found


_DIRECTIONS = ("to_target", "to_initiator")


def _sum(times: Iterable[int | None]) -> int | None:
    known = list(times)
    return None if None in known else sum(time for time in known if time is not None)


def mask_of(cycles: Table, column: str, number: int) -> Any:
    """Which cycles are of a session or connection."""
    return np.asarray(cycles.raw(column) == number)
