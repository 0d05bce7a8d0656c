"""A trace for the Perfetto UI (ui.perfetto.dev): sessions as processes, commands as slices, counters and events.

Packets are messages of the package ``perfetto``, written as they are made: none of them stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from iscsitrace import events
from iscsitrace.errors import ExtraMissing
from iscsitrace.events import derived
from iscsitrace.events.selection import ends_ns
from iscsitrace.measure import waits
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import Partition, grouped, places_of
from iscsitrace.tables.table import Array, Table
from iscsitrace.tables.trace import TraceTables
from iscsitrace.wording import cells
from iscsitrace.wording.command_status import of_columns

_PHASES: Final = ("request", "grant", "transfer", "service", "status_wait")
"""In the order in which they follow each other."""
_STEPS: Final = 2_000
"""Steps of the throughput."""
_AT_ONCE: Final = 1_000
"""Packets, and rows as Python values, that memory holds."""


def require() -> Any:
    """The package's messages; ExtraMissing if it is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise ExtraMissing("A trace for the Perfetto UI", "perfetto", "perfetto") from error
    return perfetto_trace_pb2


def needed() -> tuple[str, ...]:
    """The tables that a trace must be read with."""
    return tuple(dict.fromkeys((*events.NEEDED, "rounds", "window", "segments")))


def write(trace: TraceTables, stream: BinaryIO, *, has_packets: bool = False) -> int:
    """Writes a trace that was read with the tables needed; returns the number of its packets."""
    return _Export(trace, stream).write(has_packets=has_packets)


class _Writer:
    """Writes packets, each in its turn."""

    def __init__(self, stream: BinaryIO, start_ns: int) -> None:
        """``start_ns`` is the time at which the clocks are set."""
        self._messages = messages = require()
        self._kinds, self._ordering = messages.TrackEvent, messages.TrackDescriptor.EXPLICIT
        self._stream, self._held = stream, messages.Trace()
        self._flags = messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._tracks = 0
        self._words: dict[tuple[str, str], int] = {}
        self.packet_count = 0
        start_ns = max(start_ns, 0)
        first = self._packet(timestamp=start_ns)
        self._flags = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        # times are those of the capture: nanoseconds since 1970, on both clocks
        for clock in (messages.BUILTIN_CLOCK_BOOTTIME, messages.BUILTIN_CLOCK_REALTIME):
            first.clock_snapshot.clocks.add(clock_id=clock, timestamp=start_ns)

    def process(self, name: str) -> int:
        """A new process; returns its track."""
        descriptor = self._descriptor()
        descriptor.process.pid = descriptor.uuid
        descriptor.process.process_name = name
        return self._tracks

    def track(self, parent: int, name: str) -> int:
        """A new track below another."""
        self._descriptor(
            parent_uuid=parent, name=name, child_ordering=self._ordering, sibling_order_rank=self._tracks + 1
        )
        return self._tracks

    def counter(self, parent: int, name: str, unit: str) -> int:
        """A new track of a number over time."""
        self._descriptor(parent_uuid=parent, name=name).counter.unit_name = unit
        return self._tracks

    def begin(self, time_ns: int, track: int, name: str, values: Mapping[str, int]) -> None:
        """Begins a slice; values are shown with it."""
        self._named(self._kinds.TYPE_SLICE_BEGIN, time_ns, track, name, values)

    def instant(self, time_ns: int, track: int, name: str, values: Mapping[str, int]) -> None:
        """Something at one time."""
        self._named(self._kinds.TYPE_INSTANT, time_ns, track, name, values)

    def end(self, time_ns: int, track: int) -> None:
        """Ends the last slice of the track that has begun."""
        self._event(self._kinds.TYPE_SLICE_END, time_ns, track)

    def count(self, time_ns: int, track: int, value: int) -> None:
        """From then on a counter has this value."""
        _, event = self._event(self._kinds.TYPE_COUNTER, time_ns, track)
        event.counter_value = value

    def flush(self) -> None:
        """Writes what is held; the last packets need it."""
        self._stream.write(self._held.SerializeToString())
        # a message that is cleared keeps its memory
        self._held = self._messages.Trace()

    def _packet(self, **fields: Any) -> Any:
        if len(self._held.packet) == _AT_ONCE:
            self.flush()
        self.packet_count += 1
        return self._held.packet.add(trusted_packet_sequence_id=1, sequence_flags=self._flags, **fields)

    def _descriptor(self, **fields: Any) -> Any:
        self._tracks += 1
        descriptor = self._messages.TrackDescriptor(uuid=self._tracks, **fields)
        return self._packet(track_descriptor=descriptor).track_descriptor

    def _event(self, kind: int, time_ns: int, track: int) -> tuple[Any, Any]:
        # times are unsigned: what a damaged capture dates before 1970 is at its beginning
        packet = self._packet(timestamp=max(time_ns, 0))
        packet.track_event.type, packet.track_event.track_uuid = kind, track
        return packet, packet.track_event

    def _named(self, kind: int, time_ns: int, track: int, name: str, values: Mapping[str, int]) -> None:
        packet, event = self._event(kind, time_ns, track)
        event.name_iid = self._word(packet, "event_names", name)
        for label, value in values.items():
            number = self._word(packet, "debug_annotation_names", label)
            event.debug_annotations.add(name_iid=number, int_value=value)

    def _word(self, packet: Any, field: str, word: str) -> int:
        """The number of a word; the packet that has it first says which."""
        number = self._words.get((field, word))
        if number is None:
            number = self._words[field, word] = len(self._words) + 1
            getattr(packet.interned_data, field).add(iid=number, name=word)
        return number


class _Export:
    def __init__(self, trace: TraceTables, stream: BinaryIO) -> None:
        self.trace = trace
        first_ns = min((each["time_first_ns"] for each in trace.inputs if each["time_first_ns"] is not None), default=0)
        self.writer = _Writer(stream, first_ns)
        self._processes: dict[int, int] = {}
        self.connections = list(trace.connections.rows())
        self._targets = {row["session"]: row["target_name"] for row in trace.sessions.rows()}

    def write(self, *, has_packets: bool) -> int:
        self._events()
        cycles = self.trace.cycles
        session = np.where(known(cycles, "session"), cycles.raw("session").astype(np.int64), -1)
        lun = np.where(known(cycles, "lun"), cycles.raw("lun").astype(np.int64), -1)
        # of all at once: each session would look at all rounds and connections
        ends = waits.of_trace(self.trace.table).ends_ns(cycles)
        _, pair = np.unique(np.stack([session, lun]), axis=1, return_inverse=True)
        rounds_of = self._rounds_of(cycles, pair.ravel())
        for number, own in grouped(session).items():
            self._queue_depth(self.process(number), cycles.raw("command_first_ns")[own], ends[own])
            for unit, of_unit in grouped(lun[own]).items():
                name = f"LUN {unit}" if unit >= 0 else "LUN unknown"
                track, rows = self.writer.track(self.process(number), name), own[of_unit]
                self._commands(track, cycles.select(rows), ends[rows])
                self._rounds(track, rounds_of.rows(int(pair.ravel()[rows[0]])))
        windows = grouped(self.trace.window.raw("connection"))
        segments = grouped(self.trace.segments.raw("connection"))
        none = np.zeros(0, dtype=np.intp)
        for row in self.connections:
            if row["is_iscsi"]:
                number = row["connection"]
                window = self.trace.window.select(windows.get(number, none))
                self._connection(row, window, self.trace.segments.select(segments.get(number, none)), has_packets)
        self.writer.flush()
        return self.writer.packet_count

    def process(self, session: int) -> int:
        """The track of a session; of what belongs to none, that of -1."""
        if session not in self._processes:
            target = self._targets.get(session)
            name = f"session {session}" if session >= 0 else "no session"
            self._processes[session] = self.writer.process(f"{name}: {cells.short(target)}" if target else name)
        return self._processes[session]

    def _slices(
        self,
        parent: int,
        name: str,
        table: Table,
        starts: Array,
        ends: Array,
        names: Array,
        reached: Sequence[Array] = (),
    ) -> None:
        """Slices in as many tracks as overlap at most; ``reached`` are the ends of the phases within them."""
        if not len(table):
            return
        ends = np.maximum(ends, starts + 1)
        slot = slots(starts, ends)
        tracks = np.array([self.writer.track(parent, f"{name} {number}") for number in range(int(slot.max()) + 1)])
        for values, start, end, track, label, *until in _rows(table, starts, ends, tracks[slot], names, *reached):
            self.writer.begin(start, track, label, values)
            for phase, begun, ended in zip(_PHASES, (start, *until), until, strict=False):
                if ended > begun:
                    self.writer.begin(begun, track, phase.replace("_", " "), {})
                    self.writer.end(ended, track)
            self.writer.end(end, track)

    def _rounds_of(self, cycles: Table, groups: Array) -> Partition:
        """The complete rounds by the group of their command."""
        rounds = self.trace.rounds
        rounds = rounds.select(known(rounds, "data_last_ns"))
        place = places_of(rounds.raw("cycle"), cycles.raw("cycle"))
        return Partition(rounds, np.append(groups, -1)[place])

    def _commands(self, track: int, cycles: Table, ends: Array) -> None:
        # earlier first: at one instant the command before ends before the next begins
        order = np.argsort(cycles.raw("command_first_ns"), kind="stable")
        cycles, ends = cycles.select(order), ends[order]
        starts = cycles.raw("command_first_ns")
        reached = [starts]
        for phase in _PHASES:
            column = f"{phase}_ns"
            lengths = np.ma.filled(np.ma.asarray(cycles[column]), 0).astype(np.int64)
            reached.append(np.minimum(reached[-1] + np.maximum(lengths, 0), ends))
        self._slices(track, "slot", cycles, starts, ends, self._command_names(cycles), reached[1:])

    def _rounds(self, track: int, rounds: Table) -> None:
        own = rounds.select(np.argsort(rounds.raw("r2t_ns"), kind="stable"))
        names = np.full(len(own), "R2T round")
        self._slices(track, "R2T rounds", own, own.raw("r2t_ns"), own.raw("data_last_ns"), names)

    def _command_names(self, cycles: Table) -> Array:
        """Operation, and what became of it where it did not succeed."""
        columns = [cycles.raw(name) for name in ("status", "sense_key", "asc", "ascq")]
        is_data = cycles.raw("is_read").astype(bool) | cycles.raw("is_write").astype(bool)
        statuses, place = of_columns(*columns, response=cycles.raw("response"), is_read_or_write=is_data)
        endings = ["", "no status", *(each.text for each in statuses)]
        ending = np.where(known(cycles, "status_ns"), np.where(place >= 0, place + 2, 0), 1)
        operations = cycles.words_by_code("operation")
        pairs, which = np.unique(
            np.stack([cycles.raw("operation").astype(np.int64), ending.astype(np.int64)]), axis=1, return_inverse=True
        )
        words = []
        for code, end in pairs.T.tolist():
            operation = operations[min(code, len(operations) - 1)] or "unknown"
            name = cells.text(operation.replace("_", " ").upper())
            words.append(f"{name}: {endings[end]}" if end else name)
        return np.array(words, dtype=object)[which.ravel()]

    def _queue_depth(self, track: int, starts: Array, ends: Array) -> None:
        ends = np.maximum(ends, starts)
        times = np.concatenate([starts, ends])
        steps = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))]).astype(np.int64)
        order = np.lexsort((steps, times))
        self._counter(track, "queue depth", "commands", times[order], np.cumsum(steps[order]))

    def _counter(self, parent: int, name: str, unit: str, times: Array, values: Array) -> None:
        """A counter from the values from each time on, in order of time: of one time, the last one counts."""
        is_last = np.append(np.diff(times) > 0, True)[: len(times)]
        times, values = times[is_last], values[is_last]
        is_new = np.append(True, np.diff(values) != 0)[: len(values)]
        times, values = times[is_new], values[is_new]
        if len(times):
            track = self.writer.counter(parent, name, unit)
            for time_ns, value in _columns(times, values):
                self.writer.count(time_ns, track, value)

    def _connection(self, row: dict[str, Any], windows: Table, segments: Table, has_packets: bool) -> None:
        process = self.process(-1 if row["session"] is None else row["session"])
        track = self.writer.track(process, f"connection {row['connection']}")
        for to_target, way in ((True, "to target"), (False, "to initiator")):
            window = windows.select(windows.raw("to_target") == to_target)
            for column, name in (
                ("owin_bytes", "bytes in flight"), ("cwnd_estimate_bytes", "cwnd, estimated"), ("rwnd_bytes", "rwnd"),
            ):  # fmt: skip
                own = window.select(known(window, column))
                self._counter(track, f"{name} {way}", "bytes", own.raw("time_ns"), own.raw(column).astype(np.int64))
            own = segments.select(segments.raw("to_target") == to_target)
            self._throughput(track, way, own)
            if has_packets and len(own):
                self._packets(self.writer.track(track, f"packets {way}"), own)

    def _throughput(self, track: int, way: str, segments: Table) -> None:
        times = segments.raw("time_ns")
        if not len(times):
            return
        first_ns, length_ns = int(times.min()), int(times.max()) + 1 - int(times.min())
        # in parts: 2000 times the length of two months exceeds an int64
        steps, (whole_ns, rest_ns) = np.arange(_STEPS + 1), divmod(length_ns, _STEPS)
        edges = first_ns + np.unique(steps * whole_ns + steps * rest_ns // _STEPS)
        place = np.searchsorted(edges, times, side="right") - 1
        payload = np.bincount(place, weights=segments.raw("payload_bytes"), minlength=len(edges) - 1)
        rates = (payload * 1e9 / np.diff(edges)).astype(np.int64)
        # it ends with the last packet
        self._counter(track, f"throughput {way}", "bytes/s", edges, np.append(rates, 0))

    def _packets(self, track: int, segments: Table) -> None:
        words = [(word or "packet").replace("_", " ") for word in segments.words_by_code("segment_class")]
        names = np.array(words, dtype=object)[segments.raw("segment_class")]
        self._instants(track, segments, names)

    def _instants(self, track: int, table: Table, names: Array) -> None:
        for values, time_ns, name in _rows(table, table.raw("time_ns"), names):
            self.writer.instant(time_ns, track, name, values)

    def _events(self) -> None:
        """Events on a track of their session: those with a length as slices."""
        every = derived.table(self.trace, "events")
        if not len(every):
            return
        session = np.where(known(every, "session"), every.raw("session").astype(np.int64), -1)
        lasts = self.trace.connections.raw("time_last_ns")
        ends = ends_ns(every, int(lasts.max()) if len(lasts) else None)
        names = np.array([cells.text(text) for text in every["text"].tolist()], dtype=object)
        for number, own in grouped(session).items():
            events_of = every.select(own)
            starts, until = events_of.raw("time_ns"), ends[own]
            track = self.writer.track(self.process(number), "events")
            is_long, labels = until > starts, names[own]
            long = events_of.select(is_long)
            self._slices(track, "lasting", long, starts[is_long], until[is_long], labels[is_long])
            self._instants(track, events_of.select(~is_long), labels[~is_long])


def _columns(*columns: Array) -> Iterator[tuple[Any, ...]]:
    """The rows of columns as Python values."""
    for at in range(0, len(columns[0]), _AT_ONCE):
        yield from zip(*(each[at : at + _AT_ONCE].tolist() for each in columns), strict=True)


def _rows(table: Table, *columns: Array) -> Iterator[tuple[Any, ...]]:
    """The values that are shown with each row of a table, by their names, and its row of further columns."""
    shown = (
        {name: value for name, value in row.items() if value is not None}
        for at in range(0, len(table), _AT_ONCE)
        for row in table.select(slice(at, at + _AT_ONCE)).rows(_VALUES[table.name])
    )
    return ((values, *others) for values, others in zip(shown, _columns(*columns), strict=True))


_VALUES: Final = {
    "cycles": ("cycle", "lba", "bytes", "queue_depth", "command_frame", "status_frame"),
    "rounds": ("cycle", "r2t_sn", "bytes", "r2t_frame"),
    "events": ("frame",),
    "segments": ("frame", "payload_bytes"),
}


def slots(starts_ns: Array, ends_ns: Array) -> Array:
    """The slot of each stretch, from 0; as few slots as stretches overlap at most. Ends are after their starts.

    A stretch takes the slot that has been free for longest, or a new one where none is free.
    """
    count = len(starts_ns)
    by_start, by_end = np.argsort(starts_ns, kind="stable"), np.argsort(ends_ns, kind="stable")
    starts = starts_ns[by_start]
    ended = np.searchsorted(ends_ns[by_end], starts, side="right")
    in_flight = np.arange(count) - ended
    before = np.concatenate([[-1], np.maximum.accumulate(in_flight)[:-1]]) if count else in_flight
    is_new = in_flight > before
    place = np.empty(count, dtype=np.int64)
    place[by_start] = np.arange(count)
    # the k-th that finds a free slot takes that of the k-th that ended
    taken_from = place[by_end[np.maximum(np.cumsum(~is_new) - 1, 0)]] if count else by_start
    root = np.where(is_new, np.arange(count), taken_from)
    while True:
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    found = np.empty(count, dtype=np.int64)
    found[by_start] = (np.cumsum(is_new) - 1)[root]
    return found
