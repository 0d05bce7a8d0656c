"""Answers that may be those of other commands: a task tag is used again once its command was answered.

Where a capture lacks the answer, and the command that took the tag next, it shows the answer of that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.numbers import first_rows, order_of
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
    codes = sessions[0][rows_a] << 32 | sessions[1][rows_b]
    has_number = tuple(np.flatnonzero(known(table, "cmd_sn")) for table in tables)
    numbered_of = [_by_number(each[row], row) for each, row in zip(sessions, has_number, strict=True)]
    for code, which in _by_number(codes, np.arange(len(codes))).items():
        numbered = [of[number] for of, number in zip(numbered_of, (code >> 32, code & _NUMBERS - 1), strict=True)]
        numbers = [table.raw("cmd_sn")[each].astype(np.int64) for table, each in zip(tables, numbered, strict=True)]
        first = min(int(each.min()) for each in numbers)
        seen = _distinct(np.concatenate(numbers), first)
        for table, row, each, own in zip(tables, rows, numbered, numbers, strict=True):
            if not _is_gapless(seen):
                meant = which[has_same_answer[which]]
                in_doubt[meant] |= _has_unseen(table, row[meant], each, seen, first)
            meant = which[~has_same_answer[which]]
            if len(meant):
                in_doubt[meant] |= _has_unseen(table, row[meant], each, _distinct(own, first), first)
    return in_doubt


def _by_number(numbers: Array, rows: Array) -> dict[int, Array]:
    """The rows of each number, in their order."""
    order = order_of(numbers)
    starts = first_rows(numbers[order])
    return dict(zip(numbers[order][starts].tolist(), np.split(rows[order], starts[1:]), strict=True))


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
