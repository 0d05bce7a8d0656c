"""Loads as tables: by LUN, operation, initiator, target, I/O size, volume and hour; and latencies as their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from iscsitrace.measure.distribution import is_bound
from iscsitrace.measure.ranks import PERCENTILES
from iscsitrace.show.document import Grid, table
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.relate.loads import Load

HEADINGS: Final = {
    "lun": ("LUN", "Load by LUN"),
    "operation": ("operation", "Load by operation"),
    "initiator": ("initiator", "Load by initiator"),
    "target": ("target", "Load by target"),
    "size": ("I/O size", "Load by I/O size"),
    "volume": ("volume", "Load by volume"),
    "hour": ("hour (UTC)", "Load by hour"),
}
"""Of each table: the heading of its first column, and its caption."""

_COLUMNS: Final = (*("commands", "MB", "MB/s", "IOPS", "in flight s", *PERCENTILES, "no status", "errors"),)

_VOLUME_COLUMNS: Final = ("initiator", "paths", "outage s", "size", "known by")

READING: Final = (
    "Worst first: by the longest wait of a command without a status, then by the time with commands in flight. "
    "Rates are over that time. Latencies are in ms; > is a lower bound: commands without a status rank last."
)


def grid(name: str, loads: Sequence[Load], top: int | None = None) -> Grid:
    """The table of the ``top`` worst loads by ``name``, one of HEADINGS, with a note on how many it omits."""
    heading, caption = HEADINGS[name]
    is_of_volumes = name == "volume"
    columns = (heading, *_COLUMNS, *(_VOLUME_COLUMNS if is_of_volumes else ()))
    rows = ((load.label, *_figures(load), *(_of_volume(load) if is_of_volumes else ())) for load in loads[:top])
    return table(columns, rows, caption, count=len(loads))


def _figures(load: Load) -> tuple[object, ...]:
    return (
        load.command_count,
        cells.megabytes(load.bytes),
        cells.megabytes(load.bytes_per_s),
        cells.NOTHING if load.iops is None else f"{load.iops:.1f}",
        cells.seconds(load.busy_ns),
        *percentiles(load.latency_ns),
        load.waiting_count,
        load.error_count,
    )


def _of_volume(load: Load) -> tuple[object, ...]:
    volume = load.volume
    if volume is None:
        return (None,) * len(_VOLUME_COLUMNS)
    known_by = volume.identity if volume.known_by in ("designator", "serial") else volume.known_by
    outage_ns = sum(to_ns - from_ns for from_ns, to_ns in load.outages)
    known = cells.size(volume.capacity_bytes), cells.short(known_by)
    return cells.short(volume.host), len(volume.paths), cells.seconds(outage_ns), *known


def percentiles(found: Mapping[str, int | None]) -> list[str]:
    """Each of PERCENTILES."""
    return [percentile(found, name) for name in PERCENTILES]


def percentile(found: Mapping[str, int | None], name: str) -> str:
    """One of PERCENTILES."""
    return latency(found[name], is_open=is_bound(found, name))


def latency(time_ns: int | None, *, is_open: bool) -> str:
    """A latency in ms, with ``>`` before the wait of a command without a status."""
    return f"{'>' if is_open else ''}{cells.milliseconds(time_ns)}"
