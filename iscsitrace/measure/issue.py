"""Which groups of commands were issued at once, as the pieces of a system call are (docs/method.md, section 6).

Commands that overlap are not enough: programs that wait for their own answers overlap, too, each later than the other.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table

Array = NDArray[Any]

AT_ONCE: Final = 0.1
"""Largest share of a group's time, from its first command to its last status, in which its initiator sends nothing
before its last command: at least nine tenths of their delays are then shared."""


def is_at_once(cycles: Table, firsts: Array) -> Array:
    """Which groups of commands were issued at once; bool, one for each group.

    ``cycles`` are in order of time, ``firsts`` the rows with the first command of each group, ascending; a group ends
    where the next one begins.
    """
    if not len(firsts):
        return np.zeros(0, dtype=bool)
    starts = cycles.raw("command_first_ns").astype(np.int64)
    gaps = np.zeros(len(cycles), dtype=np.int64)
    gaps[1:] = np.maximum(starts[1:] - _sent_ns(cycles, starts)[:-1], 0)
    # the last data of these was requested: when their unsolicited data ended is unknown
    is_unclear = (cycles.raw("unsolicited_bytes") > 0) & (cycles.raw("r2t_count") > 0)
    gaps[1:][is_unclear[:-1]] = 0
    gaps[firsts] = 0
    ends = np.where(known(cycles, "status_ns"), cycles.raw("status_ns"), starts)
    lasted = np.maximum.reduceat(ends, firsts) - starts[firsts]
    return np.asarray(np.add.reduceat(gaps, firsts) <= AT_ONCE * lasted)


def _sent_ns(cycles: Table, starts: Array) -> Array:
    """When each command was sent, with the data that needs no R2T."""
    sent = np.where(known(cycles, "command_last_ns"), cycles.raw("command_last_ns"), starts)
    has_data = (cycles.raw("unsolicited_bytes") > 0) & known(cycles, "data_last_ns")
    return np.where(has_data, np.maximum(sent, cycles.raw("data_last_ns")), sent)
