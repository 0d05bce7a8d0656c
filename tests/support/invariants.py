"""What holds for every capture, however damaged: of the tables of a pass, and of what the commands print.

Nothing here knows what a capture contains. A number that breaks one of these rules is wrong whatever the truth is: a
frame that does not exist, a span that ends before it begins, a negative latency, parts that do not add up.
"""

from __future__ import annotations

import json
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from click.testing import CliRunner
from numpy.typing import NDArray

import iscsitrace
from iscsitrace import Trace
from iscsitrace.cli import main
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.measure.budget import PARTS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.phases import LATENCY_PHASES
from iscsitrace.tables.schema import DERIVED_CYCLE_COLUMNS, DERIVED_TABLES, TABLES
from iscsitrace.tables.table import Table

Array = NDArray[Any]
COMMANDS: Final = ("summary", "diagnose", "cycles", "events", "conformance")
EVERY_TABLE: Final = (*TABLES, *DERIVED_TABLES)

_DURATION: Final = re.compile(
    r"(^|_)(rtt|rttvar|pause|late|delay|delayed|skew|wait|limited|full|window|busy|recovery|queue|behind|cause|ack|least)(_|$)"
)
"""Names of lengths of time; other columns in ns are instants."""
_INSTANTS: Final = {"syn_ack_ns", "cause_time_ns"}
_OF_CYCLES: Final = {"idle_ns", *(column.name for column in DERIVED_CYCLE_COLUMNS)}
_SIGNED: Final = {
    # an underflow is negative; offsets before the first byte that was captured; kept as the capture shows them
    *("residual_bytes", "stream_offset_bytes", "ack_offset_bytes", "left_offset_bytes", "right_offset_bytes"),
}
_ELSEWHERE: Final = {
    # times at the sender, and on the clock of its host
    *(("window", "time_ns"), ("rtt", "time_ns"), ("tcp_info", "time_ns")),
}
_ORDERED: Final = (
    *(("time_first_ns", "time_last_ns"), ("begin_ns", "end_ns"), ("time_ns", "end_ns")),
    *(("command_first_ns", "end_ns"), ("blocked_first_ns", "blocked_last_ns")),
    *(("rtt_least_ns", "rtt_median_ns"), ("rtt_min_ns", "rtt_median_ns"), ("rtt_median_ns", "rtt_p95_ns")),
    *(("rtt_load_least_ns", "rtt_load_median_ns"), ("rtt_load_median_ns", "rtt_load_p95_ns")),
    *(("rwnd_min_bytes", "rwnd_max_bytes"), ("data_pdu_bytes_min", "data_pdu_bytes_max")),
    *(("line_low_bytes_per_s", "line_bytes_per_s"), ("line_bytes_per_s", "line_high_bytes_per_s")),
    *(("left_offset_bytes", "right_offset_bytes"), ("time_first_ns", "time_answered_ns")),
)
_NUMBERED: Final = {9, 0xBAD, 0x4000_0BAD, 0x204, 0x208, 0x216, 0x217, 0x221, 0x222}
"""Blocks of the systemd journal, custom ones and those of sysdig (Wireshark's wiretap/pcapng.c)."""
_PIECE: Final = 64
"""Bytes decompressed at once: what a piece with an error would have given is lost."""
_NEGATIVE: Final = re.compile(r"(?<![\w.:\]^-])-\d[\d,]*(\.\d)? ?(s|ms|µs|ns|%|bytes)\b")
"""A negative amount in a sentence. One with two decimals is an instant, before the first packet of the capture."""
_SENTENCES: Final = {"text", "advice", "meaning"}
_CLASS: Final = 1.016
"""A percentile of the core is the middle of its class, which may lie above the largest value."""
_RANKS: Final = ("p50", "p95", "p99", "max")
_HARMLESS: Final = {"\n"}
_HARMFUL_CATEGORIES: Final = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@dataclass(frozen=True)
class Bounds:
    """What no number of a capture exceeds."""

    first_ns: int
    last_ns: int
    frame_count: int
    runs_backwards: bool
    """Whether times go back: what passed between two packets is then counted more than once."""

    @classmethod
    def of(cls, trace: Trace, capture: Path) -> Bounds:
        """Those of the trace of a capture."""
        times = [
            each[name]
            for each in trace.provenance["input"]
            for name in ("time_first_ns", "time_last_ns")
            # events of a capture without TCP have no time
            if each[name] is not None and len(trace.connections)
        ]
        counts = dict(zip(trace.counters["name"], trace.counters.raw("count").tolist(), strict=True))
        # a frame with an impossible time or of an unknown interface is in no result, and has a number all the same
        left_out = sum(counts.get(name, 0) for name in ("time_implausible", "interface_unknown"))
        return cls(
            min(times, default=0),
            max(times, default=0),
            trace.packet_count + left_out + _numbered_blocks(capture),
            bool({"time_runs_backwards", "packets_disordered"} & counts.keys()),
        )


def _numbered_blocks(capture: Path) -> int:
    """Blocks of a pcapng that are no packets, but numbered by Wireshark, as far as they can be followed."""
    content = capture.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        # of a file that is cut short or damaged, what there is
        plain, unpacking = bytearray(), zlib.decompressobj(zlib.MAX_WBITS | 16)
        with suppress(zlib.error):
            for at in range(0, len(content), _PIECE):
                plain += unpacking.decompress(content[at : at + _PIECE])
        content = bytes(plain)
    count, at = 0, 0
    while content.startswith(b"\x0a\x0d\x0d\x0a") and at + 12 <= len(content):
        kind, length = struct.unpack_from("<II", content, at)
        count += kind in _NUMBERED
        at += max(length, 12)
    return count


def of_capture(capture: Path) -> list[str]:
    """What is wrong with the tables of a capture, and with what the commands print of it; nothing if it is none."""
    try:
        trace = iscsitrace.read(capture, tables=EVERY_TABLE)
    except (CaptureUnreadable, InputInvalid):
        return []
    bounds = Bounds.of(trace, capture)
    found = list(of_trace(trace, bounds))
    for command in COMMANDS:
        result = CliRunner().invoke(main, [command, "--json", str(capture)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            found.append(f"{command}: {type(result.exception).__name__}: {result.exception}")
        else:
            document = json.loads(result.stdout)
            found += [f"{command}: {line}" for line in of_document(document, bounds)]
    return list(dict.fromkeys(found))


def of_trace(trace: Trace, bounds: Bounds) -> Iterator[str]:
    """What is wrong with the tables of a trace that has EVERY_TABLE."""
    for name in EVERY_TABLE:
        found = trace.table(name)
        for column in found.columns:
            yield from _column(name, column.name, column.unit, found, bounds)
        for first, last in _ORDERED:
            if first in found and last in found:
                yield from _in_order(name, found, first, last)
        yield from _references(name, found, trace)
    yield from _of_cycles(trace.cycles)
    yield from _of_sums(trace)
    yield from _of_budget(trace.budget)
    for name in ("events", "budget"):
        found = trace.table(name)
        if name == "events" and (np.diff(found.raw("time_ns")) < 0).any():
            yield "events are not in order of time"


def _is_duration(table: str, name: str) -> bool:
    """Whether a value in ns is a length of time."""
    if table == "cycles":
        return name in _OF_CYCLES
    return name not in _INSTANTS and bool(_DURATION.search(name.removesuffix("_ns")))


def _column(table: str, name: str, unit: str, found: Table, bounds: Bounds) -> Iterator[str]:
    values = found.raw(name)
    if values.dtype.kind not in "iuf" or found.column(name).dtype.startswith("category:"):
        return
    values = values[known(found, name)]
    if not len(values):
        return
    least, most = int(values.min()), int(values.max())
    label = f"{table}.{name}"
    if name == "frame" or name.endswith("_frame") or name.startswith("frame_"):
        if least < 1 or most > bounds.frame_count:
            yield f"{label} is {least} to {most}, of {bounds.frame_count} frames"
    elif unit == "ns" and not _is_duration(table, name):
        if bounds.last_ns and (table, name) not in _ELSEWHERE and (least < bounds.first_ns or most > bounds.last_ns):
            yield f"{label} is {least} to {most}, in a capture from {bounds.first_ns} to {bounds.last_ns}"
    elif least < 0 and name not in _SIGNED:
        yield f"{label} is {least}"
    elif unit == "ns" and not bounds.runs_backwards and most > _CLASS * (bounds.last_ns - bounds.first_ns):
        yield f"{label} is {most}, in a capture of {bounds.last_ns - bounds.first_ns} ns"


def _in_order(table: str, found: Table, first: str, last: str) -> Iterator[str]:
    is_known = known(found, first) & known(found, last)
    wrong = np.flatnonzero(is_known & (found.raw(first).astype(np.int64) > found.raw(last).astype(np.int64)))
    if len(wrong):
        row = wrong[0]
        yield f"{table}.{first} is {found.raw(first)[row]}, {last} {found.raw(last)[row]} (row {row})"


def _references(name: str, found: Table, trace: Trace) -> Iterator[str]:
    """Rows of other tables that a row names."""
    for column, table in (("connection", "connections"), ("session", "sessions"), ("cycle", "cycles")):
        if column not in found:
            continue
        numbers = found.raw(column)[known(found, column)]
        lacking = set(numbers.tolist()) - set(trace.table(table).raw(column).tolist())
        if lacking:
            yield f"{name}.{column} names {sorted(lacking)[:3]}, which {table} lacks"
        if name == table and len(set(numbers.tolist())) != len(numbers):
            yield f"{name} has a {column} twice"


def _of_cycles(cycles: Table) -> Iterator[str]:
    parts = [np.ma.filled(np.ma.asarray(cycles[name]), 0) for name in LATENCY_PHASES]
    latency = np.ma.asarray(cycles["latency_ns"])
    is_whole = cycles.raw("is_complete") & ~np.ma.getmaskarray(latency)
    total = np.sum(parts, axis=0)
    longer = np.flatnonzero(~np.ma.getmaskarray(latency) & (total > np.ma.getdata(latency)))
    if len(longer):
        yield f"phases of cycle {longer[0]} add up to {total[longer[0]]}, its latency is {latency[longer[0]]}"
    has_all = is_whole & _has_all_phases(cycles)
    wrong = np.flatnonzero(has_all & (total != np.ma.getdata(latency)))
    if len(wrong):
        yield f"phases of cycle {wrong[0]} add up to {total[wrong[0]]}, its latency is {latency[wrong[0]]}"
    if (cycles.raw("queue_depth") < 1).any():
        yield "a cycle has no queue depth"


def _has_all_phases(cycles: Table) -> Array:
    """Reads that have each of the three phases of a read."""
    is_whole = [known(cycles, name) for name in ("request_ns", "transfer_ns", "status_wait_ns")]
    return np.asarray(np.logical_and.reduce([cycles.raw("is_read"), *is_whole]))


def _of_sums(trace: Trace) -> Iterator[str]:
    for side in ("to_target", "to_initiator"):
        yield from _of_streams(trace.connections, side)
    names = [f"{name}_{side}" for name in ("packets", "copied_packets") for side in ("to_target", "to_initiator")]
    packets = sum(int(trace.connections.raw(name).sum()) for name in names)
    if packets > trace.packet_count:
        yield f"connections have {packets} packets of {trace.packet_count}"
    for session in trace.sessions.rows():
        yield from _of_session(session, trace.cycles)
    if (trace.counters.raw("count") == 0).any():
        yield "a counter is 0"


def _of_streams(connections: Table, side: str) -> Iterator[str]:
    whole = connections.raw(f"stream_bytes_{side}").astype(np.int64)
    captured, gap = (connections.raw(f"{name}_bytes_{side}").astype(np.int64) for name in ("captured", "gap"))
    # a hole at the end of a stream, which nothing tells to be one, is in neither
    for row in np.flatnonzero(captured + gap > whole)[:1]:
        yield f"connection {row} {side}: {captured[row]} captured bytes and {gap[row]} of gaps, of {whole[row]}"
    pairs = (("cut_bytes", "captured_bytes"), ("explained_bytes", "stream_bytes"), ("retransmitted_packets", "packets"))
    for part, all_of in pairs:
        own, most = connections.raw(f"{part}_{side}"), connections.raw(f"{all_of}_{side}")
        for row in np.flatnonzero(own > most)[:1]:
            yield f"connection {row} {side}: {part} are {own[row]}, {all_of} {most[row]}"


def _of_session(session: Mapping[str, Any], cycles: Table) -> Iterator[str]:
    label, own = f"session {session['session']}", cycles.raw("session") == session["session"]
    if session["cycle_count"] != own.sum():
        yield f"{label} has {session['cycle_count']} commands, cycles {own.sum()}"
    data_bytes, is_read, is_write = (cycles.raw(name) for name in ("data_bytes", "is_read", "is_write"))
    if (total := int(data_bytes[own].sum(dtype=np.int64))) != session["read_bytes"] + session["write_bytes"]:
        yield f"{label} has {session['read_bytes']} + {session['write_bytes']} bytes, its commands {total}"
    for name, rows in (("read_bytes", own & is_read & ~is_write), ("write_bytes", own & is_write & ~is_read)):
        if session[name] < (least := int(data_bytes[rows].sum(dtype=np.int64))):
            yield f"{label} has {session[name]} {name}, its commands {least}"
    if own.any() and session["queue_depth_max"] != cycles.raw("queue_depth")[own].max():
        yield f"{label} has queue depth {session['queue_depth_max']}"


def _of_budget(budget: Table) -> Iterator[str]:
    """Intervals of one subject follow each other without a gap."""
    session, connection = budget.raw("session").astype(np.int64), budget.raw("connection").astype(np.int64)
    first, last = budget.raw("time_first_ns"), budget.raw("time_last_ns")
    is_same = (np.diff(session) == 0) & (np.diff(connection) == 0)
    wrong = np.flatnonzero(is_same & (first[1:] != last[:-1]))
    if len(wrong):
        yield f"budget row {wrong[0] + 1} begins at {first[wrong[0] + 1]}, the one before ends at {last[wrong[0]]}"


# --- documents


def of_document(document: Mapping[str, Any], bounds: Bounds) -> Iterator[str]:
    """What is wrong with a document that ``--json`` prints of a capture."""
    for path, value in _walk(document, ""):
        yield from _value(path, value, bounds)


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _walk(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each, f"{path}[]")


def _value(path: str, value: Any, bounds: Bounds) -> Iterator[str]:
    name = path.rpartition(".")[2]
    if isinstance(value, Mapping):
        yield from _mapping(path, value)
    elif isinstance(value, str):
        if name in _SENTENCES and (found := _NEGATIVE.search(value)):
            yield f"{path} says {found.group()!r}"
    elif isinstance(value, bool) or value is None:
        return
    elif name in {"frames[]", "frame"} and isinstance(value, int):
        if not 1 <= value <= bounds.frame_count:
            yield f"{path} is {value}, of {bounds.frame_count} frames"
    elif name == "spans[]" and isinstance(value, list):
        start, end = value
        if start > end:
            yield f"{path} is {value}, which ends before it begins"
        if start < bounds.first_ns or end > bounds.last_ns:
            yield f"{path} is {value}, in a capture from {bounds.first_ns} to {bounds.last_ns}"
    elif name in {"share", "idle_fraction"} or ".shares." in path or "_share" in name:
        if not 0 <= value <= 1:
            yield f"{path} is {value}"
    elif isinstance(value, int | float) and value < 0 and name.rstrip("[]") not in _SIGNED:
        yield f"{path} is {value}"


def _mapping(path: str, value: Mapping[str, Any]) -> Iterator[str]:
    ranks = [value[name] for name in _RANKS if value.get(name) is not None]
    if ranks != sorted(ranks):
        yield f"{path} has percentiles {ranks}"
    if value.get("jobs_ns"):
        parts = sum(value["busy_budget"][part] for part in PARTS)
        if parts != value["jobs_ns"]:
            yield f"{path}.busy_budget adds up to {parts}, jobs_ns is {value['jobs_ns']}"
        if abs(sum(value["shares"].values()) - 1) > 1e-9:
            yield f"{path}.shares add up to {sum(value['shares'].values())}"
    for first, last in (("from_ns", "to_ns"), ("time_first_ns", "time_last_ns"), ("time_ns", "end_ns")):
        start, end = value.get(first), value.get(last)
        if start is not None and end is not None and start > end:
            yield f"{path}.{first} is {start}, {last} {end}"
    if value.get("throughput_factor") is not None and not (
        0 < value["low"] <= value["throughput_factor"] <= value["high"]
    ):
        yield f"{path}: gain {value['throughput_factor']} of {value['low']} to {value['high']}"


def harmful(text: str) -> str:
    """The characters of a text that control a terminal, turn text around or are not seen, as code points."""
    found = {each for each in text if each not in _HARMLESS and unicodedata.category(each) in _HARMFUL_CATEGORIES}
    return " ".join(f"U+{ord(each):04X}" for each in sorted(found))
