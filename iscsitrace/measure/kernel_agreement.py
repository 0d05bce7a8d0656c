"""How far the estimates from packets are off the kernel's own account: cwnd at each sample, and limited times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from iscsitrace.tables import kernel
from iscsitrace.tables.numbers import Partition
from iscsitrace.tables.table import Array, Table, null_value

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


def compare(samples: Table, window: Table, estimated: Table, connections: Table) -> Iterator[SenderAgreement]:
    """Each sender with samples; ``estimated`` is the table ``senders`` without the kernel's counters."""
    counters = {(each.connection, each.to_target): each for each in kernel.counted(samples, connections)}
    by_sender = Partition(samples, kernel.sender_keys(samples))
    changes = Partition(window, kernel.sender_keys(window))
    for row in estimated.rows(("connection", "to_target", *_COMPARED)):
        key = 2 * row["connection"] + row["to_target"]
        own = by_sender.rows(key)
        if not len(own):
            continue
        errors = _cwnd_errors(own, changes.rows(key))
        counted = counters.get((row["connection"], row["to_target"]))
        busy_ns = counted.total("busy_ns") if counted else None
        points = {
            name: _points(row[name], counted.total(name), busy_ns) if counted and busy_ns else None
            for name in _COMPARED
        }
        yield SenderAgreement(
            row["connection"],
            row["to_target"],
            len(own),
            len(errors),
            float(np.median(errors)) if len(errors) else None,
            float(np.quantile(errors, 0.95)) if len(errors) else None,
            busy_ns,
            points["rwnd_limited_ns"],
            points["sndbuf_limited_ns"],
            counted.total("retransmitted") if counted else None,
        )


_COMPARED: Final = ("rwnd_limited_ns", "sndbuf_limited_ns")


def _points(estimate_ns: int | None, counted_ns: int, busy_ns: int) -> float | None:
    return None if estimate_ns is None else 100 * (estimate_ns - counted_ns) / busy_ns


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
