"""Two captures of the same traffic as tables: their connections, and the packets of both joined by bytes.

Nothing is decided here: which captures are taps of the same traffic, and which is nearer to the initiator, the caller
knows. Tap a is the one nearer to the initiator. Times are those of each tap's own clock, int64 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iscsitrace.errors import CaptureUnreadable
from iscsitrace.tables.schema import CATEGORIES, TABLES, TAP_TABLES
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Source, named

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
        found = core.connections_seen(named(sources), packet_limit=packet_limit, progress=progress)
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

    ``offset_hint_ns``: clock of b less clock of a, to within some 100 ms, as the commands show it. Also ``counters``
    (of the join), ``counters_a`` and ``counters_b`` (of the captures). Raises CaptureUnreadable, and ValueError when a
    connection is in two pairs.
    """
    core = _loaded()
    numbers = [
        (pair.connection_a, pair.connection_b, pair.is_client_target_a, pair.is_client_target_b) for pair in pairs
    ]
    try:
        joined = core.join_taps(named(sources_a), named(sources_b), numbers, offset_hint_ns, progress=progress)
    except core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    return _tables(joined)


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
