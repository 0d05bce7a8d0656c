"""Two captures of the same traffic as tables: their connections, and the packets of both joined by bytes.

Nothing is decided here: which captures are taps of the same traffic, and which is nearer to the initiator, the caller
knows. Tap a is the one nearer to the initiator. Times are those of each tap's own clock, int64 nanoseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from iscsitrace.errors import CaptureUnreadable
from iscsitrace.tables.schema import CATEGORIES, TABLES, TAP_TABLES
from iscsitrace.tables.table import Table

Source = str | os.PathLike[str] | os.PathLike[bytes] | bytes | BinaryIO
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Pair:
    """A connection of tap a and the same connection of tap b, by their numbers.

    ``is_client_target_*``: whether the client, as ``connections_seen`` has it, is the target. Only a connection whose
    SYN is not in the capture can be so: its first packet came from the target.
    """

    connection_a: int
    connection_b: int
    is_client_target_a: bool = False
    is_client_target_b: bool = False


def connections_seen(
    sources: Sequence[Source], *, packet_limit: int | None = None, progress: Progress | None = None
) -> dict[str, Table]:
    """The tables ``connections_seen`` and ``landmarks`` of a capture, by the headers of its packets.

    It takes a fraction of the time of :func:`iscsitrace.read`. Raises CaptureUnreadable.
    """
    core = _loaded()
    try:
        found = core.connections_seen(_named(sources), packet_limit=packet_limit, progress=progress)
    except core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    return _tables(found)


def join(
    sources_a: Sequence[Source],
    sources_b: Sequence[Source],
    pairs: Sequence[Pair],
    offset_hint_ns: int,
    *,
    progress: Progress | None = None,
) -> dict[str, Table]:
    """The tables ``transits``, ``envelope``, ``path_losses`` and ``paths`` of two captures of the same traffic.

    ``offset_hint_ns``: clock of b less clock of a, to within some 100 ms; see :func:`clock_offset_hint`. Also
    ``counters`` (of the join), ``counters_a`` and ``counters_b`` (of the captures). Raises CaptureUnreadable, and
    ValueError when a connection is in two pairs.
    """
    core = _loaded()
    numbers = [
        (pair.connection_a, pair.connection_b, pair.is_client_target_a, pair.is_client_target_b) for pair in pairs
    ]
    try:
        joined = core.join_taps(_named(sources_a), _named(sources_b), numbers, offset_hint_ns, progress=progress)
    except core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    return _tables(joined)


def clock_offset_hint(seen_a: Mapping[str, Table], seen_b: Mapping[str, Table], pairs: Sequence[Pair]) -> int | None:
    """Clock of b less clock of a, from what both captures saw of a connection; None if they share nothing.

    ``seen_*``: the tables of :func:`connections_seen`. The middle between the differences of both directions' SYNs and
    landmarks: off by half the difference of the two delays, and by what packets waited.
    """
    to_target: list[int] = []
    to_initiator: list[int] = []
    rows = [_rows_by_connection(seen["connections_seen"]) for seen in (seen_a, seen_b)]
    marks = [_landmark_times(seen["landmarks"]) for seen in (seen_a, seen_b)]
    for pair in pairs:
        a, b = rows[0].get(pair.connection_a), rows[1].get(pair.connection_b)
        if a is None or b is None:
            continue
        for name, found in (("syn_ns", to_target), ("syn_ack_ns", to_initiator)):
            if a[name] is not None and b[name] is not None:
                found.append(b[name] - a[name])
        mine, other = marks[0].get(pair.connection_a, {}), marks[1].get(pair.connection_b, {})
        for (is_from_client, number), time_ns in mine.items():
            is_to_target = is_from_client != pair.is_client_target_a
            far = other.get((is_to_target != pair.is_client_target_b, number))
            if far is not None:
                (to_target if is_to_target else to_initiator).append(far - time_ns)
    bounds = [min(to_target)] if to_target else []
    bounds += [max(to_initiator)] if to_initiator else []
    return round(sum(bounds) / len(bounds)) if bounds else None


def round_trip_ns(joined: Mapping[str, Table]) -> int | None:
    """The least RTT between two joined taps: least transit to the target less greatest transit to the initiator.

    Negative: tap b is the one nearer to the initiator, and the join has to be made the other way round. None without
    transits of both directions. Clocks that drift or step during the capture make it too short.
    """
    paths = joined["paths"]
    to_target, to_initiator = (paths.select(paths["to_target"] == direction) for direction in (True, False))
    least, greatest = (
        np.ma.compressed(rows[name]) for rows, name in ((to_target, "least_ns"), (to_initiator, "greatest_ns"))
    )
    return int(least.min() - greatest.max()) if least.size and greatest.size else None


def _rows_by_connection(table: Table) -> dict[int, dict[str, Any]]:
    return {row["connection"]: row for row in table.rows(["connection", "syn_ns", "syn_ack_ns"])}


def _landmark_times(table: Table) -> dict[int, dict[tuple[bool, int], int]]:
    found: dict[int, dict[tuple[bool, int], int]] = {}
    for row in table.rows():
        found.setdefault(row["connection"], {})[row["is_from_client"], row["sequence_number"]] = row["time_ns"]
    return found


def _named(sources: Sequence[Source]) -> list[str | bytes | BinaryIO]:
    return [os.fsdecode(source) if isinstance(source, os.PathLike) else source for source in sources]


def _tables(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Table]:
    declared = TAP_TABLES | dict.fromkeys(("counters", "counters_a", "counters_b"), TABLES["counters"])
    return {
        name: Table(declared[name], {key: np.asarray(values) for key, values in columns.items()}, None, CATEGORIES)
        for name, columns in found.items()
    }


def _loaded() -> Any:
    try:
        from iscsitrace import _core
    except ImportError as error:
        raise CaptureUnreadable(f"the compiled core is missing: {error}") from error
    return _core
