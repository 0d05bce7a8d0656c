"""Latencies as the cells of a table: in ms, with ``>`` before the wait of a command without a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.measure.waits import Waits


def each(waited: Waits) -> list[str]:
    """The latency of each command."""
    from iscsitrace.measure.waits import UNKNOWN

    return [
        cells.NOTHING if least_ns == UNKNOWN else _cell(least_ns, is_open=is_open)
        for least_ns, is_open in zip(waited.least_ns.tolist(), waited.is_open.tolist(), strict=True)
    ]


def percentile(found: Mapping[str, int | None], name: str) -> str:
    """One of ``p50 p95 p99 max``."""
    from iscsitrace.measure.distribution import is_bound

    return _cell(found[name], is_open=is_bound(found, name))


def _cell(time_ns: int | None, *, is_open: bool) -> str:
    return f"{'>' if is_open else ''}{cells.milliseconds(time_ns)}"
