"""How far the estimates from packets are off the kernel's own account: cwnd at each sample, and limited times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table, null_value

Array = NDArray[Any]

NEEDED: Final = ("tcp_info", "window", "senders")
"""Tables filled on request that it needs."""


@dataclass(frozen=True)
class SenderAgreement:
    """One sender's estimates against TCP_INFO of its host. What cannot be compared is None."""

    connection: int
    to_target: bool
    sample_count: int
    compared_count: int
    """Samples at which the estimate of cwnd is valid."""
    cwnd_error_median: float | None
    """Of \\|estimate - kernel\\| / kernel."""
    cwnd_error_p95: float | None
    busy_ns: int | None
    """Time with data in flight or to send, as the kernel counts."""
    rwnd_limited_points: float | None
    """Estimated less counted time, in percent of the busy time."""
    sndbuf_limited_points: float | None
    retransmitted_segments: int | None
    """As the kernel counts."""


def compare(samples: Table, window: Table, senders: Table, estimated: Table) -> Iterator[SenderAgreement]:
    """Each sender with samples. ``senders`` has the kernel's counters, ``estimated`` is the same table without them."""
    guesses = {(row["connection"], row["to_target"]): row for row in estimated.rows(_COMPARED)}
    keys, of_window = _keys(samples), _keys(window)
    for row in senders.rows((*_COMPARED, "kernel_busy_ns", "kernel_retransmitted_segments")):
        own = samples.select(keys == 2 * row["connection"] + row["to_target"])
        if not len(own):
            continue
        errors = _cwnd_errors(own, window.select(of_window == 2 * row["connection"] + row["to_target"]))
        guess, busy_ns = guesses[row["connection"], row["to_target"]], row["kernel_busy_ns"]
        yield SenderAgreement(
            row["connection"],
            row["to_target"],
            len(own),
            len(errors),
            float(np.median(errors)) if len(errors) else None,
            float(np.quantile(errors, 0.95)) if len(errors) else None,
            busy_ns,
            _points(guess["rwnd_limited_ns"], row["rwnd_limited_ns"], busy_ns),
            _points(guess["sndbuf_limited_ns"], row["sndbuf_limited_ns"], busy_ns),
            row["kernel_retransmitted_segments"],
        )


_COMPARED: Final = ("connection", "to_target", "rwnd_limited_ns", "sndbuf_limited_ns")


def _keys(table: Table) -> Array:
    return table.raw("connection").astype(np.int64) * 2 + table.raw("to_target")


def _points(estimate_ns: int | None, counted_ns: int | None, busy_ns: int | None) -> float | None:
    if estimate_ns is None or counted_ns is None or not busy_ns:
        return None
    return 100 * (estimate_ns - counted_ns) / busy_ns


def _cwnd_errors(samples: Table, window: Table) -> Array:
    """Relative errors of the estimate at the samples where it is valid."""
    segments, sizes = samples["cwnd_segments"], samples["segment_bytes"]
    is_known = ~(np.ma.getmaskarray(segments) | np.ma.getmaskarray(sizes))
    place = np.searchsorted(window.raw("time_ns"), samples.raw("time_ns"), side="right") - 1
    is_known &= place >= 0
    if not len(window):
        return np.empty(0)
    place = np.maximum(place, 0)
    estimates = window.raw("cwnd_estimate_bytes")[place]
    is_known &= window.raw("is_valid")[place] & (estimates != null_value("int64"))
    counted = np.ma.getdata(segments)[is_known].astype(np.float64) * np.ma.getdata(sizes)[is_known]
    errors: Array = np.abs(estimates[is_known] - counted) / np.maximum(counted, 1)
    return errors
