"""What the tables know of single frames and no dissector can tell: the sidecar's rows.

Pure functions over the tables ``budget``, ``window`` and ``retransmissions`` of one capture; no loop over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.schema import CATEGORIES
from iscsitrace.schema.sidecar import SIDECAR
from iscsitrace.table import NO_WORD, Table, null_value

Array = NDArray[Any]


def facts(budget: Table, window: Table, retransmissions: Table) -> Table:
    """One row per frame of which one of them knows something, in ascending order; columns of schema.sidecar."""
    known = {
        "budget_owner": _budget_owners(budget),
        "cwnd_estimate_bytes": _cwnd_estimates(window),
        "loss_class": _loss_classes(retransmissions),
    }
    frames = np.unique(np.concatenate([of for of, _ in known.values()]))
    columns = {"frame": frames}
    for name, (of, values) in known.items():
        dtype = SIDECAR.column(name).dtype
        nothing = NO_WORD if dtype.startswith("category:") else null_value(dtype)
        column = np.full(len(frames), nothing, dtype=values.dtype)
        column[np.searchsorted(frames, of)] = values
        columns[name] = column
    return Table(SIDECAR, columns, words=CATEGORIES)


def _budget_owners(budget: Table) -> tuple[Array, Array]:
    """Of the stretches that a frame ends the longest; a session's own time repeats that of its connections."""
    is_told = ~(_is_null(budget, "connection") | _is_null(budget, "frame"))
    length_ns = (budget.raw("time_last_ns") - budget.raw("time_first_ns"))[is_told]
    return _greatest_by_frame(budget.raw("frame")[is_told], length_ns, budget.raw("part")[is_told])


def _cwnd_estimates(window: Table) -> tuple[Array, Array]:
    is_told = window.raw("is_valid") & ~_is_null(window, "cwnd_estimate_bytes")
    estimates = window.raw("cwnd_estimate_bytes")[is_told]
    return _greatest_by_frame(window.raw("frame")[is_told], estimates, estimates)


def _loss_classes(retransmissions: Table) -> tuple[Array, Array]:
    frames = retransmissions.raw("frame")
    return _greatest_by_frame(frames, np.zeros(len(frames), dtype=np.uint8), retransmissions.raw("cause"))


def _greatest_by_frame(frames: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """Each frame once, in ascending order, and the value with the greatest key; of equal keys the last."""
    order = np.lexsort((keys, frames))
    frames = frames[order]
    is_last = np.ones(len(frames), dtype=bool)
    is_last[:-1] = frames[1:] != frames[:-1]
    return frames[is_last], values[order][is_last]


def _is_null(table: Table, name: str) -> Array:
    mask = table.mask(name)
    return np.zeros(len(table), dtype=bool) if mask is None else mask
