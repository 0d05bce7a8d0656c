"""Commands of a trace, one row each, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.measure.selection import CYCLE_HEADINGS, display_filter
from iscsitrace.measure.waits import UNKNOWN
from iscsitrace.show import inputs
from iscsitrace.show.document import Grid, Section, table
from iscsitrace.show.loads import latency
from iscsitrace.show.terminal import json_rows
from iscsitrace.wording import cells, scsi_names

if TYPE_CHECKING:
    from iscsitrace.measure.waits import Waits
    from iscsitrace.tables.table import Table
    from iscsitrace.tables.trace import TraceTables

_FLAGS: Final = {
    "is_status_in_data": "S",
    "is_aborted": "aborted",
    "has_capture_gap": "missing",
    "has_retransmission": "rexmt",
}
_COLUMNS: Final = (*CYCLE_HEADINGS, "flags")
_LEGS_COLUMNS: Final = (
    *("cycle", "time", "stream", "operation", "I/O size", "R2Ts", "latency", "initiator", "to target", "target"),
    *("to initiator", "held by initiator's TCP", "held by target's TCP", "frame"),
)
READING: Final = (
    "flags: S status in the last Data-In; rexmt retransmission; missing: packets are missing from the capture; "
    "incomplete: so are the command's data or status"
)
"""What the flags of a command are."""
_PHASES: Final = ("request_ns", "grant_ns", "transfer_ns", "service_ns", "status_wait_ns")


def json_lines(
    trace: TraceTables, cycles: Table, waited: Waits, *, has_filter: bool, has_legs: bool = False
) -> Iterator[str]:
    """What ``cycles --json`` prints, one row at a time: a capture may hold millions of commands.

    A command without a status has ``in_flight_ns``, the least time that it waited. With ``has_legs`` each has its legs,
    null where they are unknown.
    """
    return json_rows(
        trace.provenance, "cycles", _documents(trace, cycles, waited, has_filter=has_filter, has_legs=has_legs)
    )


def _documents(
    trace: TraceTables, cycles: Table, waited: Waits, *, has_filter: bool, has_legs: bool
) -> Iterator[dict[str, Any]]:
    of_legs = _legs(trace, cycles) if has_legs else [{}] * len(cycles)
    for row, legs, least_ns, is_open in zip(cycles.rows(), of_legs, waited.least_ns, waited.is_open, strict=True):
        row.update(legs)
        if is_open:
            row["in_flight_ns"] = int(least_ns)
        if has_filter:
            row["display_filter"] = display_filter(row)
        yield row


def sections(
    trace: TraceTables, cycles: Table, waited: Waits, *, has_filter: bool, has_legs: bool = False
) -> Iterator[Section]:
    """One line per command; with ``has_filter`` a Wireshark display filter for each, with ``has_legs`` its legs."""
    rows = list(cycles.rows())
    if has_legs:
        start_ns = trace.start_ns
        each = zip(rows, _legs(trace, cycles), _latencies(waited), strict=True)
        grid = table(_LEGS_COLUMNS, (_leg_line(*line, start_ns) for line in each))
        yield Section("", (f"{inputs.zero_of_times(trace)}; legs: ms, which add up to the latency", grid))
    else:
        yield Section("", commands(trace, cycles, waited))
    if has_filter:
        yield Section("Display filters", tuple(f"cycle {row['cycle']}: {display_filter(row)}" for row in rows))


def commands(trace: TraceTables, cycles: Table, waited: Waits, caption: str = "") -> tuple[str, Grid]:
    """A row for each of these commands; before it, what its times are."""
    start_ns = trace.start_ns
    rows = (_line(row, one, start_ns) for row, one in zip(cycles.rows(), _latencies(waited), strict=True))
    return f"{inputs.zero_of_times(trace)}; phases: ms", table(_COLUMNS, rows, caption)


def _legs(trace: TraceTables, cycles: Table) -> list[dict[str, Any]]:
    """The legs of these commands; InputInvalid for a single tap."""
    legs = trace.table("legs")
    names = [name for name in legs if name != "cycle"]
    return list(legs.select(cycles.raw("cycle").astype("int64")).rows(names))


def _latencies(waited: Waits) -> list[str]:
    return [
        cells.NOTHING if least_ns == UNKNOWN else latency(least_ns, is_open=is_open)
        for least_ns, is_open in zip(waited.least_ns.tolist(), waited.is_open.tolist(), strict=True)
    ]


def _parts(legs: dict[str, Any]) -> dict[str, Any]:
    """The legs with those of the hosts without what their TCP held, as the plot and the table by place have them."""
    own = {f"{host}_ns": (legs[f"{host}_ns"], legs[f"{host}_held_ns"]) for host in ("initiator", "target")}
    return legs | {name: None if None in times else times[0] - times[1] for name, times in own.items()}


def _leg_line(row: dict[str, Any], legs: dict[str, Any], latency: str, start_ns: int) -> tuple[object, ...]:
    return (
        *(row["cycle"], cells.seconds(row["command_first_ns"] - start_ns), row["connection"], row["operation"]),
        *(cells.size(row["bytes"]), row["r2t_count"], latency),
        *(cells.milliseconds(time_ns) for time_ns in _parts(legs).values()),
        row["command_frame"],
    )


def unranked(count: int) -> str:
    """The number of commands that ``--top`` leaves out."""
    return f"commands of unknown latency (packets missing from the capture): {count:,}; --incomplete lists them"


def _line(row: dict[str, Any], latency: str, start_ns: int) -> tuple[object, ...]:
    flags = [word for name, word in _FLAGS.items() if row[name]]
    if not row["is_complete"]:
        flags.append("incomplete")
    return (
        row["cycle"],
        cells.seconds(row["command_first_ns"] - start_ns),
        row["connection"],
        row["lun"],
        row["operation"],
        row["lba"],
        cells.size(row["bytes"]),
        latency,
        *(cells.milliseconds(row[name]) for name in (*_PHASES, "idle_ns")),
        row["queue_depth"],
        row["data_pdu_count"],
        row["data_packet_count"],
        row["r2t_count"],
        _status(row["status"]),
        row["command_frame"],
        " ".join(flags),
    )


def _status(status: int | None) -> str | None:
    """The name of a SCSI status in lower case, as all cells of the table."""
    return None if status is None else scsi_names.name(scsi_names.statuses(), status).lower().replace("aca", "ACA")
