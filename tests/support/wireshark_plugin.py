"""tshark with plugins/iscsitrace.lua: the fields of each command, and the expected fields from the tables.

The table of cycles is tested elsewhere. Here it is the truth for what the plugin derives from Wireshark's dissection.
Bytes in flight are counted here, from the table of segments.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from iscsitrace.wireshark.dissect import preferences

if TYPE_CHECKING:
    from iscsitrace import Trace

PLUGIN = Path(__file__).parents[2] / "plugins" / "iscsitrace.lua"
TIMES = ("latency", "first_data_time", "transfer_time", "status_time", "idle_time")
Row = dict[str, Any]


@dataclass
class Shown:
    """The output of one run of tshark."""

    cycles: dict[int, Row] = field(default_factory=dict)
    """by number of the cycle: the fields of the frame that completes the status."""
    unnumbered: list[Row] = field(default_factory=list)
    """commands whose number was left out."""
    pdus: list[tuple[int, int | None, str]] = field(default_factory=list)
    """frame, cycle and phase of every PDU of a command."""


def tshark(file: Path | str, *options: str, folder: Path | None = None, ports: Iterable[int] = ()) -> str:
    """The standard output of tshark with the plugin; an error of Lua fails the test."""
    command = ["tshark", "-n", "-X", f"lua_script:{PLUGIN}", *preferences(ports), "-r", str(file), *options]
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": str(folder or "/nonexistent"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=120)
    output, errors = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Lua" not in errors, errors
    assert "Lua Error" not in output
    return output


def shown(file: Path, *options: str, ports: Iterable[int] = ()) -> Shown:
    """The commands of a capture in the plugin's output."""
    result = Shown()
    output = tshark(file, "-Y", "iscsitrace", "-T", "pdml", "-J", "iscsitrace", *options, ports=ports)
    for packet in ElementTree.fromstring(output):  # noqa: S314 -- tshark's own output
        frame = next(int(part.get("show", "")) for part in packet.iter("field") if part.get("name") == "num")
        for protocol in packet.iter("proto"):
            if protocol.get("name") == "iscsitrace":
                for item in protocol:
                    _take(result, frame, item)
    return result


def _take(result: Shown, frame: int, item: ElementTree.Element) -> None:
    values = {
        part.get("name", "").removeprefix("iscsitrace."): part.get("show", "") for part in item if part.get("name")
    }
    number = int(item.get("show", "")) if item.get("name") == "iscsitrace.cycle" else None
    if "phase" not in values:
        return
    result.pdus.append((frame, number, values["phase"]))
    if "block_size" not in values:
        return
    row: Row = {name: _value(name, text) for name, text in values.items()}
    row["frame"] = frame
    if number is None:
        result.unnumbered.append(row)
    else:
        assert number not in result.cycles, f"cycle {number} ends twice"
        result.cycles[number] = row


def _value(name: str, text: str) -> Any:
    if name in TIMES:
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
        seconds, _, rest = digits.partition(".")
        return sign * (int(seconds) * 1_000_000_000 + int(rest.ljust(9, "0")))
    return text if name in ("operation", "phase") else int(text)


def expected(trace: Trace) -> dict[int, Row]:
    """The expected fields of each command with a status; None where the plugin must omit a field."""
    idle = _idle_before(trace)
    outstanding = _outstanding(trace)
    rows = {}
    for row in trace.cycles.rows():
        if row["status_frame"] is None:
            continue
        is_write = row["is_write"] and not row["is_read"]
        moved = row["data_pdu_count"] or row["immediate_bytes"] or row["r2t_count"] or row["has_capture_gap"]
        rows[row["cycle"]] = {
            "operation": row["operation"],
            "block_size": row["bytes"],
            "queue_depth": row["queue_depth"],
            "latency": row["latency_ns"],
            "first_data_time": (row["grant_ns"] if is_write else row["request_ns"]) if moved else None,
            "transfer_time": row["transfer_ns"],
            "status_time": row["service_ns"] if is_write else row["status_wait_ns"],
            "idle_time": idle.get(row["cycle"]),
            "owin": outstanding.get(row["cycle"]),
            "command_frame": row["command_frame"],
            "first_data_frame": row["data_first_frame"],
            "status_frame": row["status_frame"],
        }
    return rows


def _idle_before(trace: Trace) -> dict[int, int]:
    """The turnaround of a cycle, by the next cycle of the session."""
    by_session: dict[int, list[Row]] = {}
    for row in trace.cycles.rows():
        by_session.setdefault(row["session"], []).append(row)
    found = {}
    for rows in by_session.values():
        rows.sort(key=lambda row: (row["command_first_ns"], row["cycle"]))
        for row, following in pairwise(rows):
            if row["turnaround_ns"] is not None:
                found[following["cycle"]] = row["turnaround_ns"]
    return found


def _outstanding(trace: Trace) -> dict[int, int]:
    """Bytes in flight in the direction of a command's data, after the packet with the first byte of the command."""
    commands: dict[int, list[Row]] = {}
    for row in trace.cycles.rows():
        commands.setdefault(row["command_frame"], []).append(row)
    sent: dict[tuple[int, bool], int] = {}
    acknowledged: dict[tuple[int, bool], int] = {}
    found = {}
    for segment in trace.segments.rows():
        connection, to_target = segment["connection"], bool(segment["to_target"])
        own, opposite = (connection, to_target), (connection, not to_target)
        if segment["payload_bytes"]:
            end = segment["stream_offset_bytes"] + segment["payload_bytes"]
            sent[own] = max(sent.get(own, end), end)
        if segment["ack_offset_bytes"] is not None:
            acknowledged[opposite] = max(acknowledged.get(opposite, 0), segment["ack_offset_bytes"])
        for row in commands.get(segment["frame"], ()):
            data = (connection, not row["is_read"])
            if row["connection"] == connection and data in sent and data in acknowledged:
                found[row["cycle"]] = max(sent[data] - acknowledged[data], 0)
    return found


def differences(found: Shown, trace: Trace, *, is_whole: bool) -> Iterator[str]:
    """Every wrong value; on a capture that tshark dissects correctly (`is_whole`) also every missing one."""
    truth = expected(trace)
    for number, row in found.cycles.items():
        right = truth.get(number)
        if right is None:
            yield f"cycle {number} has no status"
            continue
        for name, value in right.items():
            if (is_whole or name in row) and row.get(name) != value:
                yield f"{name} of cycle {number} is {value}, not {row.get(name)}"
    if is_whole:
        yield from (f"cycle {number} is not shown" for number in sorted(truth.keys() - found.cycles.keys()))
        yield from (f"a cycle without number: {row}" for row in found.unnumbered)
