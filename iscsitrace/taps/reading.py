"""Captures of the same traffic at several taps, read into one trace: that of the initiator's tap, with the others
beside it. Every analysis of a trace then sees each session once, as the initiator's host saw it.

They are read at the same time, one in each thread, because a pass leaves the interpreter to others while it runs. The
caller's thread reports the progress of all of them, and ends all at Ctrl-C, or if one fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any, Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.schema import TAPPED_TABLES
from iscsitrace.tables.table import Source as Tables
from iscsitrace.tables.table import Table, null_value
from iscsitrace.tables.trace import Source, TraceTables, read
from iscsitrace.taps import legs, network, senders
from iscsitrace.taps.legs import Legs
from iscsitrace.taps.network import Network
from iscsitrace.taps.recognition import Recognition, Relation, recognise
from iscsitrace.taps.senders import OnFirst, Senders
from iscsitrace.wording import amounts

Progress = Callable[[int, int | None], None]

_REPORT_EVERY_S: Final = 0.1


class _EndedEarly(Exception):
    """Ends a pass whose result nobody wants any more."""


def read_each(
    groups: Sequence[Sequence[Source]], *, progress: Progress | None = None, **options: Any
) -> list[TraceTables]:
    """Reads each group of sources, as :func:`iscsitrace.read` does, into a trace of its own.

    Files are read at the same time, as many as there are processors. Standard input and objects in memory are read one
    after another by the caller's thread: they may be the same one, and only that thread sees Ctrl-C while they wait.
    ``progress`` has the bytes of all. Raises what ``read`` raises, for the first group that fails.
    """
    most = min(len(groups), os.cpu_count() or 1)
    if most < 2 or not all(_is_file(source) for group in groups for source in group):
        return [read(*group, progress=progress, **options) for group in groups]
    reached: list[tuple[int, int | None]] = [(0, None)] * len(groups)
    is_over = Event()

    def read_one(place: int) -> TraceTables:
        def note(bytes_done: int, bytes_total: int | None) -> None:
            if is_over.is_set():
                raise _EndedEarly
            reached[place] = bytes_done, bytes_total

        return read(*groups[place], progress=note, **options)

    with ThreadPoolExecutor(most) as pool:
        passes = [pool.submit(read_one, place) for place in range(len(groups))]
        try:
            _wait(passes, lambda: _tell(progress, reached))
        finally:
            is_over.set()
            for each in passes:
                each.cancel()
    failures = (each.exception() for each in passes if not each.cancelled())
    for failure in failures:
        if failure is not None and not isinstance(failure, _EndedEarly):
            raise failure
    return [each.result() for each in passes]


def _is_file(source: Source) -> bool:
    """Whether a source is a path, not standard input or an object in memory."""
    return isinstance(source, (str, os.PathLike)) and source != "-"


def _wait(passes: Sequence[Future[TraceTables]], tell: Callable[[], None]) -> None:
    """Until all are done, or one has failed."""
    running = set(passes)
    while running:
        done, running = wait(running, timeout=_REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
        tell()
        if any(each.exception() is not None for each in done):
            return


def _tell(progress: Progress | None, reached: Sequence[tuple[int, int | None]]) -> None:
    bytes_done = sum(done for done, _ in reached)
    if progress is not None and bytes_done:
        known = [total for _, total in reached if total is not None]
        progress(bytes_done, sum(known) if len(known) == len(reached) else None)


MOST_TAPS: Final = 8
NEEDED: Final = ("budget", "retransmissions")
"""Tables filled on request that the legs need, at both ends."""

_LIMITS: Final = ("capture_filter", "packet_limit", "time_from_ns", "time_to_ns")


@dataclass(frozen=True)
class CapturePoint:
    """A place where the traffic was captured."""

    name: str
    sources: tuple[Source, ...]
    """Its captures: parts of one, in order of time."""
    trace: TraceTables

    @property
    def is_whole(self) -> bool:
        """Whether its captures can be read again, and were read without filters and limits."""
        options = self.trace.options
        is_limited = any(options[name] is not None for name in _LIMITS)
        return not is_limited and all(
            isinstance(each, (str, bytes, os.PathLike)) and each != "-" for each in self.sources
        )


class TappedTables(TraceTables):
    """The trace of the tap that is nearest to the initiator; it also has the tables ``legs`` and ``taps``.

    How senders behaved (senders.TABLES) is seen at the tap nearest to each sender; what is derived follows it.
    """

    def __init__(self, taps: Sequence[CapturePoint], recognised: Mapping[tuple[int, int], Recognition]) -> None:
        """``taps`` are in order from the initiator to the target; ``recognised`` has a pair of each two of them."""
        # tables leave the core once: both traces share them as the core made them
        self.__dict__.update(taps[0].trace.__dict__, _tables={}, _read_again=None)
        self._tap_tables: dict[str, Table] = {}
        self.tap_list = tuple(taps)
        """The taps, in order from the initiator to the target."""
        self._recognised = recognised
        self._networks: dict[tuple[int, int], Network] = {}

    def table(self, name: str) -> Table:
        """The table with this name, as of :class:`TraceTables`; also ``legs`` and ``taps``."""
        if name not in (*TAPPED_TABLES, *senders.TABLES):
            return super().table(name)
        if name not in self._tap_tables:
            self._tap_tables[name] = self._made(name)
        return self._tap_tables[name]

    def _made(self, name: str) -> Table:
        if name in senders.TABLES:
            return self.senders_seen.table(name)
        if name == "legs":
            return _legs_table(len(self.cycles), self.command_legs)
        names = [tap.name for tap in self.tap_list]
        return _taps_table(list(zip(names[:-1], names[1:], self.networks, strict=True)))

    def row_count(self, name: str) -> int:
        """See :class:`TraceTables`."""
        return len(self.table(name)) if name in senders.TABLES else super().row_count(name)

    @cached_property
    def senders_seen(self) -> Senders:
        """What the taps show of the senders."""
        first, last = self.tap_list[0].trace, self.tap_list[-1].trace
        between = self.between(0, -1)
        return Senders(first.table, OnFirst(last.table, self.whole.matched, between.clock), between)

    def at_sender(self, connection: int, *, to_target: bool) -> tuple[str, Tables]:
        """The tap nearest to the sender of a direction: its name, and its tables on the clock of the first."""
        if to_target or not self.senders_seen.has(connection):
            return self.tap_list[0].name, self.table
        return self.tap_list[-1].name, self.senders_seen.last

    def tap_of(self, connection: int, *, to_target: bool) -> str:
        """See :class:`TraceTables`: with its name, ``tap target.pcapng``."""
        return f"tap {self.at_sender(connection, to_target=to_target)[0]}"

    @property
    def legs(self) -> Table:
        """The table ``legs``."""
        return self.table("legs")

    @property
    def taps(self) -> Table:
        """The table ``taps``."""
        return self.table("taps")

    @property
    def is_tapped(self) -> bool:
        """See :class:`TraceTables`."""
        return True

    @property
    def whole(self) -> Recognition:
        """The tap at the initiator, as A, and that at the target, as B."""
        return self.recognised(0, -1)

    def recognised(self, near: int, far: int) -> Recognition:
        """Two taps, by their places from the initiator to the target, as A and B."""
        near, far = (range(len(self.tap_list))[place] for place in (near, far))
        return self._recognised[near, far]

    @cached_property
    def command_legs(self) -> Legs:
        """The legs of the commands between the first tap and the last."""
        first, last = self.tap_list[0].trace, self.tap_list[-1].trace
        return legs.of_commands(first.table, last.table, self.whole.complete, self.between(0, -1))

    @property
    def networks(self) -> tuple[Network, ...]:
        """The network between each two neighbours, from the initiator to the target."""
        return tuple(self.between(place, place + 1) for place in range(len(self.tap_list) - 1))

    def between(self, near: int, far: int) -> Network:
        """The network between two taps, by their places from the initiator to the target."""
        near, far = (range(len(self.tap_list))[place] for place in (near, far))
        if (near, far) not in self._networks:
            self._networks[near, far] = self._compared(near, far)
        return self._networks[near, far]

    def _compared(self, near: int, far: int) -> Network:
        recognition = self._recognised[near, far]
        ends = self.tap_list[near], self.tap_list[far]
        samples, clock = recognition.samples, recognition.clock
        assert samples is not None  # noqa: S101 -- pairs of tapped tables have been recognised as taps
        assert clock is not None  # noqa: S101 -- likewise
        joined = None
        if all(tap.is_whole for tap in ends):
            captured = [(tap.trace, tap.sources) for tap in ends]
            joined = network.join(captured[0], captured[1], recognition.matched, clock)
        return network.between(samples, clock, len(recognition.matched), joined)

    @property
    def provenance(self) -> dict[str, Any]:
        """As of :class:`TraceTables`, with the names and inputs of all taps."""
        taps = [{"name": tap.name, "input": tap.trace.inputs} for tap in self.tap_list]
        return super().provenance | {"taps": taps}


def tapped(trace: TraceTables) -> TappedTables:
    """The trace as one of several taps; InputInvalid if it is of one."""
    if not isinstance(trace, TappedTables):
        raise InputInvalid("two or more captures of the same traffic, from different taps, are needed")
    return trace


def read_taps(
    taps: Mapping[str, Source | Sequence[Source]],
    *,
    are_synchronised: bool = False,
    tables: Iterable[str] = (),
    **options: Any,
) -> TappedTables:
    """See :func:`iscsitrace.tables.trace.read_taps`."""
    if not 2 <= len(taps) <= MOST_TAPS:
        raise InputInvalid(f"{amounts.count(len(taps), 'tap')}: there have to be 2 to {MOST_TAPS}")
    groups = [tuple(given) if isinstance(given, (list, tuple)) else (given,) for given in taps.values()]
    traces = read_each(groups, tables={*tables, *NEEDED} - TAPPED_TABLES.keys(), **options)
    read_in = [CapturePoint(*each) for each in zip(taps, groups, traces, strict=True)]
    pairs = recognise_all([tap.trace for tap in read_in], are_synchronised=are_synchronised)
    for (first, second), each in pairs.items():
        if each.relation is not Relation.TAPS:
            what = "the same packets" if each.relation is Relation.COPY else "different traffic"
            raise InputInvalid(f"the taps {read_in[first].name} and {read_in[second].name} have {what}")
    return in_order(read_in, pairs)


def recognise_all(
    traces: Sequence[TraceTables], *, are_synchronised: bool = False
) -> dict[tuple[int, int], Recognition]:
    """Each two of the captures compared, the one with the smaller number as A."""
    return {
        (first, second): recognise(traces[first].table, traces[second].table, are_synchronised=are_synchronised)
        for first in range(len(traces))
        for second in range(first + 1, len(traces))
    }


def in_order(taps: Sequence[CapturePoint], pairs: Mapping[tuple[int, int], Recognition]) -> TappedTables:
    """The taps from the initiator to the target, as one trace; each two of them have been recognised as taps."""
    nearer_than = [0] * len(taps)
    for (first, second), each in pairs.items():
        nearer_than[first if each.is_first_nearer else second] += 1
    order = sorted(range(len(taps)), key=lambda place: -nearer_than[place])
    place_of = {place: number for number, place in enumerate(order)}
    ordered = {
        (min(place_of[first], place_of[second]), max(place_of[first], place_of[second])): each
        for (first, second), each in pairs.items()
    }
    return TappedTables([taps[place] for place in order], ordered)


def _legs_table(command_count: int, found: Legs) -> Table:
    """A row per command of the initiator's tap."""
    columns: dict[str, Any] = {"cycle": np.arange(command_count, dtype=np.uint32)}
    for column in TAPPED_TABLES["legs"].columns[1:]:
        values = np.full(command_count, null_value(column.dtype), dtype=column.dtype)
        values[found.rows] = getattr(found, column.name)
        columns[column.name] = values
    return Table(TAPPED_TABLES["legs"], columns)


def _taps_table(pairs: Sequence[tuple[str, str, Network]]) -> Table:
    """A row per pair of neighbours: their names, and the network between them."""
    rows = [{"tap_a": name_a, "tap_b": name_b, **network.as_dict()} for name_a, name_b, network in pairs]
    columns: dict[str, Any] = {}
    for column in TAPPED_TABLES["taps"].columns:
        values = [row[column.name] for row in rows]
        if column.nullable:
            values = [null_value(column.dtype) if value is None else value for value in values]
        columns[column.name] = values if column.dtype == "str" else np.array(values, dtype=column.dtype)
    return Table(TAPPED_TABLES["taps"], columns)
