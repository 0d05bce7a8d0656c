"""Selection of commands by a condition, and the display filter that shows one in Wireshark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from iscsitrace.measure.waits import UNKNOWN, Waits
from iscsitrace.tables.condition import Columns, Condition, Values
from iscsitrace.tables.schema import DERIVED_CYCLE_COLUMNS, TABLES
from iscsitrace.tables.table import Table
from iscsitrace.wording import scsi_names

CYCLE_HEADINGS: Final[Mapping[str, str]] = {
    "cycle": "cycle",
    "time": "command_first_ns",
    "stream": "connection",
    "LUN": "lun",
    "operation": "operation",
    "LBA": "lba",
    "I/O size": "bytes",
    "latency": "latency_ns",
    "request": "request_ns",
    "grant": "grant_ns",
    "transfer": "transfer_ns",
    "service": "service_ns",
    "status wait": "status_wait_ns",
    "idle": "idle_ns",
    "QD": "queue_depth",
    "PDUs": "data_pdu_count",
    "packets": "data_packet_count",
    "R2Ts": "r2t_count",
    "status": "status",
    "frame": "command_frame",
}
"""What the table of commands calls its columns."""


@cache
def cycles_columns() -> Columns:
    """What a condition on commands can name."""
    stored = TABLES["cycles"].columns
    statuses = {name.lower(): code for code, name in scsi_names.statuses().items()}
    return Columns(
        "cycles",
        (*stored, *DERIVED_CYCLE_COLUMNS),
        frozenset(column.name for column in stored if column.unit == "ns" and column.name != "idle_ns"),
        {"tcp.stream": "connection"} | {name: CYCLE_HEADINGS[name] for name in ("stream", "time", "frame")},
        CYCLE_HEADINGS,
        {"status": statuses},
    )


def pick(cycles: Table, waited: Waits, condition: Condition, start_ns: int) -> tuple[Table, Waits]:
    """The commands that meet a condition, and their waits; instants in it count from ``start_ns``.

    The latency of a command without a status is at least the time that it waited.
    """
    latency = Values(waited.least_ns, waited.least_ns != UNKNOWN, waited.is_open)
    rows = condition.rows(cycles, start_ns, {"latency_ns": latency})
    return cycles.select(rows), waited.select(rows)


def frames_filter(frames: Iterable[int]) -> str:
    """A Wireshark display filter for these frames."""
    return f"frame.number in {{{', '.join(map(str, sorted(frames)))}}}"


def display_filter(cycle: dict[str, Any]) -> str:
    """A Wireshark display filter for the frames of one command, a row of ``cycles`` as a dict."""
    frames = [cycle[name] for name in ("command_frame", "data_first_frame", "data_last_frame", "status_frame")]
    known = [frame for frame in frames if frame is not None]
    own = f"iscsi.initiatortasktag=={cycle['initiator_task_tag']:#010x}"
    if cycle["has_retransmission"]:
        # Wireshark looks for no iSCSI in a packet whose bytes it had
        own = f"({own} || tcp.analysis.retransmission)"
    terms = [
        f"tcp.stream=={cycle['connection']}",
        own,
        f"frame.number>={min(known)}",
    ]
    if cycle["status_frame"] is not None:
        terms.append(f"frame.number<={max(known)}")
    return " && ".join(terms)
