"""Answers that may be those of other commands: a task tag is used again once its command was answered.

Where a capture lacks the answer, and the command that took the tag next, it shows the answer of that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.table import Table

Array = NDArray[Any]

_NUMBERS = 1 << 32
_FEW = 16
"""Where at most so many numbers are skipped for one that occurs, a mark for each number is faster than sorting."""


def may_be_of_others(cycles_a: Table, cycles_b: Table, rows_a: Array, rows_b: Array) -> Array:
    """Whether the answer of each command may be that of another with its task tag, bool.

    A CmdSN that no capture shows, between that of the command and the first that was issued after its status, may be
    that of such a command. One that the other capture shows is not, if MaxCmdSN says that both have the same answer.
    """
    tables, rows = (cycles_a, cycles_b), (rows_a, rows_b)
    has_same_answer = known(cycles_a, "max_cmd_sn")[rows_a] & known(cycles_b, "max_cmd_sn")[rows_b]
    in_doubt = np.zeros(len(rows_a), dtype=bool)
    sessions = tuple(table.raw("session").astype(np.int64) for table in tables)
    pairs = np.unique(np.stack([sessions[0][rows_a], sessions[1][rows_b]]), axis=1)
    for pair in pairs.T.tolist():
        which = (sessions[0][rows_a] == pair[0]) & (sessions[1][rows_b] == pair[1])
        numbered = [
            np.flatnonzero((each == number) & known(table, "cmd_sn"))
            for table, each, number in zip(tables, sessions, pair, strict=True)
        ]
        numbers = [table.raw("cmd_sn")[each].astype(np.int64) for table, each in zip(tables, numbered, strict=True)]
        first = min(int(each.min()) for each in numbers)
        seen = _distinct(np.concatenate(numbers), first)
        for table, row, each, own in zip(tables, rows, numbered, numbers, strict=True):
            if not _is_gapless(seen):
                is_meant = which & has_same_answer
                in_doubt[is_meant] |= _has_unseen(table, row[is_meant], each, seen, first)
            is_meant = which & ~has_same_answer
            if is_meant.any():
                in_doubt[is_meant] |= _has_unseen(table, row[is_meant], each, _distinct(own, first), first)
    return in_doubt


def _distinct(numbers: Array, first: int) -> Array:
    """The numbers counted from ``first``, each once, in order."""
    counted = (numbers - first) % _NUMBERS
    last = int(counted.max())
    if last > _FEW * len(counted):
        return np.unique(counted)
    is_there = np.zeros(last + 1, dtype=bool)
    is_there[counted] = True
    return np.flatnonzero(is_there)


def _is_gapless(seen: Array) -> bool:
    return int(seen[-1]) - int(seen[0]) == len(seen) - 1


def _has_unseen(cycles: Table, rows: Array, session: Array, seen: Array, first: int) -> Array:
    """Whether a CmdSN is not ``seen`` between each row's own and the first after its status, bool.

    ``session``: rows of its session. Numbers are counted from ``first``.
    """
    session = session[np.argsort(cycles.raw("command_first_ns")[session], kind="stable")]
    issued_ns = cycles.raw("command_first_ns")[session].astype(np.int64)
    latest = np.maximum.accumulate((cycles.raw("cmd_sn")[session].astype(np.int64) - first) % _NUMBERS)
    own = (cycles.raw("cmd_sn")[rows].astype(np.int64) - first) % _NUMBERS
    before = np.searchsorted(issued_ns, cycles.raw("status_ns")[rows].astype(np.int64), side="left") - 1
    after = np.minimum(np.searchsorted(seen, latest[np.maximum(before, 0)], side="right"), len(seen) - 1)
    return np.asarray(seen[after] - own != after - np.searchsorted(seen, own))
