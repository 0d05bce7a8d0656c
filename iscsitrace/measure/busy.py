"""Which stretches of the table ``budget`` are busy time: the time of the workload (docs/method.md, section 4).

The workload is the commands that read, write or erase data. Busy are the stretches with such a command in flight, and
the think time between such commands where they follow one another steadily. The scan of the device and the time in
which a program issues no I/O are not. A longer pause ends a run of commands, unless such pauses are usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, first_rows, order_of
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table

THINK_MAX_NS: Final = 100_000_000
"""Longest pause between two commands of the workload that is think time of a program at work. A longer one is a program
that sleeps, waits for its user, or has ended: it issues no I/O, so nothing limits it."""

STEADY_COUNT: Final = 8
"""Least count of such pauses for think time to be claimed: fewer can be chance, or the start of a program."""

STEADY_SHARE: Final = 0.5
"""Least share of such pauses among all pauses: where most are longer, commands come now and then, and short pauses
between them show no steady work."""

IDLE, SCAN, FLUSH, BUSY = range(4)
"""Uses of a stretch, with the codes of ``budget.in_flight``: no command in flight; inspection and set-up of the device;
SYNCHRONIZE CACHE apart from reads and writes; the workload."""

_AT_ONCE: Final = 1 << 16
"""Stretches that are looked at together, or more where they are of one session."""
_IN_FLIGHT: Final = CATEGORIES["in_flight"]
_OTHER_CODE, _FLUSH_CODE, _DATA_CODE = (_IN_FLIGHT.index(word) for word in ("other", "flush", "data"))


def uses(budget: Table) -> Array:
    """The use of each stretch: IDLE, SCAN, FLUSH or BUSY. Connections, and sessions of several, each for themselves.

    The stretches of each connection or session are in order of time.
    """
    is_session = ~known(budget, "connection")
    scope = np.where(is_session, budget.raw("session"), budget.raw("connection")).astype(np.int64)
    scope *= 2
    scope += is_session
    order = None if (scope[1:] >= scope[:-1]).all() else order_of(scope)
    scope = scope if order is None else scope[order]
    in_flight, firsts_ns, lasts_ns = (budget.raw(name) for name in ("in_flight", "time_first_ns", "time_last_ns"))
    found = np.empty(len(scope), dtype=np.uint8)
    for part in _parts(scope):
        rows = part if order is None else order[part]
        found[rows] = _uses(scope[part], in_flight[rows], lasts_ns[rows] - firsts_ns[rows])
    return found


def _parts(scope: Array) -> Iterator[slice]:
    """Rows of whole connections and sessions, so few at a time that what is computed of them stays in the cache."""
    starts = first_rows(scope)
    edges = np.unique(starts[np.searchsorted(starts, np.arange(0, len(scope), _AT_ONCE), side="right") - 1])
    yield from map(slice, edges.tolist(), [*edges[1:].tolist(), len(scope)])


def rows_of(budget: Table) -> Table:
    """The stretches that are busy time."""
    is_busy = uses(budget) == BUSY
    return budget if is_busy.all() else budget.select(is_busy)


def _uses(scope: Array, in_flight: Array, length_ns: Array) -> Array:
    """The same of rows sorted by connection or session."""
    is_empty = in_flight < _OTHER_CODE
    is_work = (in_flight == _FLUSH_CODE) | (in_flight == _DATA_CODE)
    first, last, pause_ns = _pauses(scope, is_work, length_ns)
    is_short = pause_ns <= THINK_MAX_NS
    _, place = distinct(scope[first])
    short_counts, counts = np.bincount(place[is_short], minlength=place.max(initial=-1) + 1), np.bincount(place)
    is_steady = (short_counts >= STEADY_COUNT) & (short_counts >= STEADY_SHARE * counts)
    # a burst of work ends with a longer pause; one of flushes alone belongs to no workload
    is_joined = _covered(first[is_short], last[is_short], len(scope)) | is_work
    begins = is_joined & ~np.concatenate([[False], is_joined[:-1]])
    begins[1:] |= is_joined[1:] & (scope[1:] != scope[:-1])
    burst = np.cumsum(begins)
    has_data = np.zeros(int(burst[-1]) + 1 if len(burst) else 1, dtype=bool)
    has_data[burst[in_flight == _DATA_CODE]] = True
    is_thought = is_short & is_steady[place]
    is_busy = (is_work | _covered(first[is_thought], last[is_thought], len(scope))) & has_data[burst]
    found = np.where(is_busy, BUSY, in_flight).astype(np.uint8)
    found[~is_busy & is_empty] = IDLE
    # a scan lasts from command to command
    first, last, pause_ns = _pauses(scope, ~is_empty, length_ns)
    is_scanned = (pause_ns <= THINK_MAX_NS) & ((found[first] == SCAN) | (found[last] == SCAN))
    found[_covered(first[is_scanned], last[is_scanned], len(scope)) & (found == IDLE)] = SCAN
    return found


def _pauses(scope: Array, which: Array, length_ns: Array) -> tuple[Array, Array, Array]:
    """The pauses between these rows of one scope: the row before, the row after, and the time between."""
    # the row before each change, in turn from and to these rows
    changes = np.flatnonzero(which[1:] != which[:-1])
    is_end = which[changes]
    first, last = changes[is_end], changes[~is_end] + 1
    last = last[int(len(changes) > 0 and not is_end[0]) :]
    first = first[: len(last)]
    is_pause = scope[last] == scope[first]
    first, last = first[is_pause], last[is_pause]
    until = np.concatenate([[0], np.cumsum(length_ns)])
    return first, last, until[last] - until[first + 1]


def _covered(first: Array, last: Array, count: int) -> Array:
    """Which rows lie between these rows."""
    steps = np.zeros(count + 1, dtype=np.int64)
    steps[first + 1] += 1
    steps[last] -= 1
    return np.asarray(np.cumsum(steps)[:count] > 0)


STEADY_QUARTILES: Final = 10
"""Up to this many upper quartiles of the pauses of a run are part of it: a steady pause ends nothing."""

STEADY_COUNT_MIN: Final = 3
"""Pauses that it takes for steady ones."""


def longest_pause_ns(pauses_ns: NDArray[Any]) -> float:
    """The longest pause within a run, given all pauses: 100 ms, or what is usual among them."""
    return float(longest_pauses_ns(pauses_ns, np.zeros(len(pauses_ns), dtype=np.intp), 1)[0])


def longest_pauses_ns(pauses_ns: NDArray[Any], place: NDArray[Any], count: int) -> NDArray[np.float64]:
    """The same of ``count`` sets of pauses; ``place`` is the set of each."""
    longest = np.full(count, float(THINK_MAX_NS))
    is_long = pauses_ns > THINK_MAX_NS / STEADY_QUARTILES
    counts, long_counts = np.bincount(place, minlength=count), np.bincount(place[is_long], minlength=count)
    # the upper quartile by the lower rank, counted from the first long pause: most sets have none there
    rank = 3 * (counts - 1) // 4 - (counts - long_counts)
    is_steady = (counts >= STEADY_COUNT_MIN) & (rank >= 0)
    rows = np.flatnonzero(is_long & is_steady[place])
    if len(rows):
        rows = rows[np.lexsort((pauses_ns[rows], place[rows]))]
        first = np.cumsum(long_counts[is_steady]) - long_counts[is_steady]
        longest[is_steady] = STEADY_QUARTILES * pauses_ns[rows[first + rank[is_steady]]].astype(np.float64)
    return longest
