"""Selection of commands by session, size and the like, and the display filter that shows one in Wireshark."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table


def pick(
    cycles: Table,
    *,
    lun: int | None = None,
    operations: Collection[str] = (),
    block_size_bytes: int | None = None,
    connection: int | None = None,
    session: int | None = None,
    is_incomplete: bool = False,
) -> Table:
    """The rows of ``cycles`` that meet all given conditions. InputInvalid for an unknown operation."""
    unknown = set(operations) - set(cycles.words("operation"))
    if unknown:
        known = ", ".join(cycles.words("operation"))
        raise InputInvalid(f"unknown operation: {', '.join(sorted(unknown))}; known are {known}")
    keep = np.ones(len(cycles), dtype=bool)
    wanted_values = {"lun": lun, "bytes": block_size_bytes, "connection": connection, "session": session}
    for name, wanted in wanted_values.items():
        if wanted is not None:
            keep &= np.ma.filled(np.ma.asarray(cycles[name]) == wanted, False)
    if operations:
        keep &= np.isin(cycles.raw("operation"), [cycles.words("operation").index(word) for word in operations])
    if is_incomplete:
        keep &= ~cycles.raw("is_complete")
    return cycles.select(keep)


def first_packet_ns(connections: Table) -> int | None:
    """Time of the first TCP packet; None where there is none."""
    times = connections.raw("time_first_ns")
    return int(times.min()) if len(times) else None


def frames_filter(frames: Iterable[int]) -> str:
    """A Wireshark display filter for these frames."""
    return f"frame.number in {{{', '.join(map(str, sorted(frames)))}}}"


def display_filter(cycle: dict[str, Any]) -> str:
    """A Wireshark display filter for the frames of one command, a row of ``cycles`` as a dict."""
    frames = [cycle[name] for name in ("command_frame", "data_first_frame", "data_last_frame", "status_frame")]
    known = [frame for frame in frames if frame is not None]
    terms = [
        f"tcp.stream=={cycle['connection']}",
        f"iscsi.initiatortasktag=={cycle['initiator_task_tag']:#010x}",
        f"frame.number>={min(known)}",
    ]
    if cycle["status_frame"] is not None:
        terms.append(f"frame.number<={max(known)}")
    return " && ".join(terms)
