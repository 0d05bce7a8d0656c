"""The sidecar: a text file beside a capture with what is known of its frames, for Wireshark's plugin to show.

Tab-separated lines: which capture it belongs to, the names of the columns, then one line per frame of which something
is known (``iscsitrace/tables/schema/computed.py``), empty where nothing is. Written in chunks; the same capture gives
the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import budget as time_budget
from iscsitrace.show.csv_writer import write_csv
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.schema.computed import SIDECAR
from iscsitrace.tables.table import NO_WORD, Array, Table, null_value
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording.rules import rules

SUFFIX = ".iscsitrace"
TABLES = ("segments", "budget", "window", "retransmissions", "violations")
"""What a trace has to be read with."""

_FORMAT = "iscsitrace-sidecar"
_VERSION = 1


def path_of(capture: Path, directory: Path | None = None) -> Path:
    """Where the plugin looks for the sidecar of a capture; or the same name in another folder."""
    return (directory or capture.parent) / f"{capture.name}{SUFFIX}"


def write(trace: TraceTables, stream: BinaryIO, capture_bytes: int) -> int:
    """Writes the sidecar of a capture that was read whole; how many frames it tells of.

    ``capture_bytes`` is the size of the capture's file as it is on disk. InputInvalid for a capture without a packet.
    """
    if trace.first_packet is None:
        raise InputInvalid("it has no packets, so there is nothing to write")
    time_ns, wire_bytes = trace.first_packet
    identity = {
        "frames": trace.packet_count,
        "first_frame_time": time_ns,
        "first_frame_length": wire_bytes,
        "size": capture_bytes,
    }
    line = "\t".join([_FORMAT, str(_VERSION), *(f"{name}={value}" for name, value in identity.items())])
    stream.write(f"{line}\n".encode())
    rows = facts(*(trace.table(name) for name in TABLES))
    write_csv(rows, stream, separator="\t")
    return len(rows)


_CHUNK_FRAMES = 1 << 18
"""Frames whose time breakdown is in memory at a time."""


def facts(segments: Table, budget: Table, window: Table, retransmissions: Table, violations: Table) -> Table:
    """A row for each frame with a fact, in ascending order; columns of schema.sidecar."""
    known = {
        "budget_owner": _budget_owners(segments, budget),
        "cwnd_estimate_bytes": _cwnd_estimates(window),
        "loss_class": _loss_classes(retransmissions),
        "violation": _violations(violations),
    }
    frames = np.unique(np.concatenate([of for of, _ in known.values()]))
    columns = {"frame": frames}
    for name, (of, values) in known.items():
        dtype = SIDECAR.column(name).dtype
        nothing = "" if dtype == "str" else NO_WORD if dtype.startswith("category:") else null_value(dtype)
        column = np.full(len(frames), nothing, dtype=values.dtype)
        column[np.searchsorted(frames, of)] = values
        columns[name] = column
    return Table(SIDECAR, columns, words=CATEGORIES)


def _budget_owners(segments: Table, budget: Table) -> tuple[Array, Array]:
    """The largest part of the time since the packet before, of the same connection in either direction.

    A stretch rarely ends with a packet: the line is busy before the packet comes out of it. So this divides the time
    between packets, and does not use the frames of the stretches.
    """
    frames, owners = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint8)]
    stretches_of = time_budget.by_connection(budget)
    for connection, rows in grouped(segments.raw("connection")).items():
        stretches = stretches_of.rows(connection)
        if not len(stretches):
            continue
        own = rows[np.argsort(segments.raw("frame")[rows], kind="stable")]
        own_frames, times_ns = segments.raw("frame")[own], segments.raw("time_ns")[own]
        for start in range(0, len(own) - 1, _CHUNK_FRAMES):
            instants_ns = times_ns[start : start + _CHUNK_FRAMES + 1]
            shares_ns = time_budget.of_cycles(stretches, instants_ns[:-1], instants_ns[1:])
            is_owned = shares_ns.max(axis=1) > 0
            frames.append(own_frames[start + 1 : start + len(instants_ns)][is_owned])
            owners.append(shares_ns.argmax(axis=1).astype(np.uint8)[is_owned])
    found = np.concatenate(frames)
    order = np.argsort(found, kind="stable")
    return found[order], np.concatenate(owners)[order]


def _cwnd_estimates(window: Table) -> tuple[Array, Array]:
    is_told = window.raw("is_valid") & known(window, "cwnd_estimate_bytes")
    estimates = window.raw("cwnd_estimate_bytes")[is_told]
    return _greatest_by_frame(window.raw("frame")[is_told], estimates, estimates)


def _loss_classes(retransmissions: Table) -> tuple[Array, Array]:
    frames = retransmissions.raw("frame")
    return _greatest_by_frame(frames, np.zeros(len(frames), dtype=np.uint8), retransmissions.raw("cause"))


def _violations(violations: Table) -> tuple[Array, Array]:
    """``D5: The target asked for ...``; several of one frame one after another."""
    texts: dict[int, dict[str, None]] = {}
    for row in violations.rows():
        rule = rules()[row["rule"]]
        text = f"{rule.name}: {rule.did(row['side'], row['seen'], row['expected'])}"
        if row["frame"] is not None:
            texts.setdefault(row["frame"], {})[text] = None
    frames = sorted(texts)
    return np.array(frames, dtype=np.uint64), np.array(["; ".join(texts[frame]) for frame in frames], dtype=object)


def _greatest_by_frame(frames: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """Each frame once, in ascending order, and the value with the greatest key; of equal keys the last."""
    order = np.lexsort((keys, frames))
    frames = frames[order]
    is_last = np.ones(len(frames), dtype=bool)
    is_last[:-1] = frames[1:] != frames[:-1]
    return frames[is_last], values[order][is_last]
