"""The commands that two captures have in common: by what their PDUs say, never by addresses or times.

A command is known by its CmdSN, task tag, LUN, length and CDB. The first commands of every login of a host are alike:
the connections are paired first, by the commands that few other connections have. Equal addresses break ties; another
ISID or TSIH is another session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import first_rows, order_of
from iscsitrace.tables.table import Array, Source, Table
from iscsitrace.taps.envelope import Samples, joined

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
        session = (code >> 32, code & _NUMBERS - 1)
        if any(number not in of for of, number in zip(numbered_of, session, strict=True)):
            # the snaplen is within its headers
            in_doubt[which] = True
            continue
        numbered = [of[number] for of, number in zip(numbered_of, session, strict=True)]
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
    if not len(numbers):
        return {}
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


_SEEN_IN_MOST: Final = 8
"""A command that more connections have says nothing about which of them are the same."""

_FIELDS: Final = ("cmd_sn", "initiator_task_tag", "lun", "bytes", "is_read", "is_write")
"""The first 28 bytes of the header have them."""
_CDB_FIELDS: Final = ("cdb_opcode", "service_action", "lba", "block_count")
_LEAST_WITH_CDB: Final = 0.5
"""A capture that shows the CDB of fewer commands has a snaplen that cuts it: then CDBs are not compared."""

_ANSWER: Final = ("status", "response", "max_cmd_sn", "data_bytes", "r2t_count", "is_status_in_data", "residual_bytes")
"""What both taps see of the same answer.

Where a capture lacks PDUs, it may take that of a later command of the same tag.
"""

_FIRST_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class ConnectionPair:
    """One connection at both taps. A proxy between them, or NAT, may have changed its addresses."""

    at_a: int
    at_b: int
    has_same_addresses: bool
    has_same_login: bool = False
    """Whether both captures show its login, with the same ISID, TSIH and CID."""


@dataclass(frozen=True)
class Matched:
    """The same commands at both taps, in the order of A's table ``cycles``."""

    rows_a: Array
    rows_b: Array
    connections: tuple[ConnectionPair, ...]

    def __len__(self) -> int:
        return len(self.rows_a)

    def where(self, which: Array) -> Matched:
        """The commands that a boolean mask picks."""
        return Matched(self.rows_a[which], self.rows_b[which], self.connections)

    def turned(self) -> Matched:
        """The same with the other capture as A."""
        pairs = (
            ConnectionPair(pair.at_b, pair.at_a, pair.has_same_addresses, pair.has_same_login)
            for pair in self.connections
        )
        order = np.argsort(self.rows_b, kind="stable")
        return Matched(self.rows_b[order], self.rows_a[order], tuple(sorted(pairs, key=lambda pair: pair.at_a)))


def match(a: Source, b: Source) -> Matched:
    """The commands that both captures have, each at most once."""
    cycles = a("cycles"), b("cycles")
    has_cdbs = all(known(table, "cdb_opcode").sum() >= _LEAST_WITH_CDB * len(table) for table in cycles)
    keys = tuple(_keys(table, (*_FIELDS, *_CDB_FIELDS) if has_cdbs else _FIELDS) for table in cycles)
    connections = cycles[0].raw("connection").astype(np.int64), cycles[1].raw("connection").astype(np.int64)
    single = tuple(_single(*columns) for columns in zip(keys, connections, strict=True))
    first, second = _equal(keys[0][single[0]], keys[1][single[1]])
    rows = single[0][first], single[1][second]
    pairs = _pairs(rows, connections, cycles, (_ends(a), _ends(b)))
    if not pairs:
        return Matched(rows[0][:0], rows[1][:0], pairs)
    # now that the connections are known, all commands of each pair, also those that every login has
    of_pair = [
        _of_pair(*columns, numbers)
        for columns, numbers in zip(
            zip(single, keys, connections, strict=True),
            ([pair.at_a for pair in pairs], [pair.at_b for pair in pairs]),
            strict=True,
        )
    ]
    first, second = _equal(of_pair[0][1], of_pair[1][1])
    rows_a, rows_b = of_pair[0][0][first], of_pair[1][0][second]
    order = np.argsort(rows_a, kind="stable")
    return Matched(rows_a[order], rows_b[order], pairs)


def _of_pair(rows: Array, keys: Array, connections: Array, numbers: Sequence[int]) -> tuple[Array, Array]:
    """The rows on these connections, and for each a number of what it says and of its connection's place."""
    place = np.full(max(int(connections.max()), *numbers) + 1, -1, dtype=np.int64)
    place[list(numbers)] = np.arange(len(numbers))
    of_row = place[connections[rows]]
    kept = rows[of_row >= 0]
    with np.errstate(over="ignore"):
        return kept, (keys[kept] ^ of_row[of_row >= 0].astype(np.uint64)) * _FIRST_FACTOR


def samples_of(whole: Matched, cycles_a: Table, cycles_b: Table) -> Samples:
    """The differences of the clocks that commands, data and statuses show; A is nearer to the initiator.

    ``whole`` are complete at both taps. Commands with retransmissions are left out while there are others: at one tap
    it may be the first copy that was captured, at the other the second.
    """
    is_repeated = cycles_a.raw("has_retransmission")[whole.rows_a] | cycles_b.raw("has_retransmission")[whole.rows_b]
    kept = whole if is_repeated.all() else whole.where(~is_repeated)
    is_write = cycles_a.raw("is_write")[kept.rows_a]
    parts, frames = [], []
    for name, frame, is_a_first in (
        ("command_first_ns", "command_frame", np.ones(len(kept), dtype=bool)),
        ("data_last_ns", "data_last_frame", is_write),
        ("status_ns", "status_frame", np.zeros(len(kept), dtype=bool)),
    ):
        both = known(cycles_a, name)[kept.rows_a] & known(cycles_b, name)[kept.rows_b]
        rows_a, rows_b = kept.rows_a[both], kept.rows_b[both]
        time_a = cycles_a.raw(name)[rows_a].astype(np.int64)
        parts.append(Samples(time_a, cycles_b.raw(name)[rows_b].astype(np.int64) - time_a, is_a_first[both]))
        frames.append(cycles_a.raw(frame)[rows_a].astype(np.int64))
    return joined(parts, np.concatenate(frames))


def complete(matched: Matched, cycles_a: Table, cycles_b: Table) -> Matched:
    """The commands that both captures have from the command to its answer."""
    is_same = cycles_a.raw("is_complete")[matched.rows_a] & cycles_b.raw("is_complete")[matched.rows_b]
    for name in _ANSWER:
        # a snaplen may cut it at one of them
        is_both = known(cycles_a, name)[matched.rows_a] & known(cycles_b, name)[matched.rows_b]
        is_same &= ~is_both | (cycles_a.raw(name)[matched.rows_a] == cycles_b.raw(name)[matched.rows_b])
    kept = matched.where(is_same)
    return kept.where(~may_be_of_others(cycles_a, cycles_b, kept.rows_a, kept.rows_b))


def _keys(cycles: Table, names: Sequence[str]) -> Array:
    """A number of 64 bits for what a command says."""
    key = np.zeros(len(cycles), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in names:
            key = (key ^ cycles.raw(name).astype(np.uint64)) * _FIRST_FACTOR
            key = (key ^ (key >> np.uint64(29))) * _SECOND_FACTOR
    return key


def _single(keys: Array, connections: Array) -> Array:
    """Rows of the commands that their connection has once."""
    with np.errstate(over="ignore"):
        codes = (keys ^ connections.astype(np.uint64)) * _FIRST_FACTOR
    if _is_distinct(np.sort(codes)):
        return np.arange(len(codes))
    order = np.argsort(codes)
    same = np.diff(codes[order]) == 0
    return np.sort(order[~(np.append(same, False) | np.insert(same, 0, False))])


def _equal(first: Array, second: Array) -> tuple[Array, Array]:
    """Places of equal keys: every pair of them, but of keys that many connections have only the first ones."""
    if np.array_equal(first, second) and _is_distinct(np.sort(second)):
        # both captures have the same commands in the same order
        every = np.arange(len(first))
        return every, every
    order = np.argsort(second)
    ordered = second[order]
    is_distinct = _is_distinct(ordered)
    if not is_distinct:
        order = np.argsort(second, kind="stable")
    # in order of the keys: neighbours are searched for in the same memory
    search = np.argsort(first)
    start, end = np.empty((2, len(first)), dtype=np.intp)
    start[search] = np.searchsorted(ordered, first[search], side="left")
    if is_distinct:
        places = np.flatnonzero(start < len(ordered))
        places = places[ordered[start[places]] == first[places]]
        return places, order[start[places]]
    end[search] = np.searchsorted(ordered, first[search], side="right")
    count = np.minimum(end - start, _SEEN_IN_MOST)
    places = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
    return places, order[start[places] + within]


def _is_distinct(ordered: Array) -> bool:
    return not (ordered[1:] == ordered[:-1]).any()


@dataclass(frozen=True)
class _End:
    """One connection in one capture."""

    addresses: tuple[Any, ...]
    login: tuple[Any, ...]
    """ISID, TSIH and CID; None for what the capture does not show."""

    def may_be(self, other: _End) -> bool:
        """Whether no known part of the logins differs."""
        both = zip(self.login, other.login, strict=True)
        return not any(one is not None and another is not None and one != another for one, another in both)


def _ends(source: Source) -> dict[int, _End]:
    sessions = {
        row["session"]: (row["isid"], row["tsih"]) for row in source("sessions").rows(["session", "isid", "tsih"])
    }
    addresses = ("initiator_address", "initiator_port", "target_address", "target_port")
    return {
        row["connection"]: _End(
            tuple(row[name] for name in addresses), (*sessions.get(row["session"], (None, None)), row["cid"])
        )
        for row in source("connections").rows(["connection", "session", "cid", *addresses])
    }


def _pairs(
    rows: tuple[Array, Array],
    connections: tuple[Array, Array],
    cycles: tuple[Table, Table],
    ends: tuple[dict[int, _End], dict[int, _End]],
) -> tuple[ConnectionPair, ...]:
    """The connections that have most commands in common, each at most once."""
    codes = connections[0][rows[0]] << 32 | connections[1][rows[1]]
    if not len(codes):
        return ()
    candidates, inverse, count = np.unique(codes, return_inverse=True, return_counts=True)
    apart = cycles[1].raw("command_first_ns")[rows[1]].astype(np.int64) - cycles[0].raw("command_first_ns")[rows[0]]
    typical = apart[np.argsort(inverse, kind="stable")[(np.cumsum(count) - count) + count // 2]]
    numbers = (candidates >> 32).tolist(), (candidates & 0xFFFFFFFF).tolist()
    found = [(ends[0][one], ends[1][other]) for one, other in zip(*numbers, strict=True)]
    is_same = np.array([one.addresses == other.addresses for one, other in found])
    is_possible = np.array([one.may_be(other) for one, other in found])
    strongest = np.lexsort((-count, ~is_same, ~is_possible))[0]
    ranked = np.lexsort((np.abs(typical - typical[strongest]), -count, ~is_same, ~is_possible))
    taken: tuple[set[int], set[int]] = (set(), set())
    pairs = []
    for place in ranked[is_possible[ranked]].tolist():
        at_a, at_b = numbers[0][place], numbers[1][place]
        if at_a not in taken[0] and at_b not in taken[1]:
            taken[0].add(at_a)
            taken[1].add(at_b)
            one, other = found[place]
            has_same_login = None not in one.login and one.login == other.login
            pairs.append(ConnectionPair(at_a, at_b, bool(is_same[place]), has_same_login))
    return tuple(sorted(pairs, key=lambda pair: pair.at_a))
