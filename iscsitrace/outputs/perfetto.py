"""A trace for the Perfetto UI (ui.perfetto.dev): sessions as processes, commands as slices, counters and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups import derived, events
from iscsitrace.analysis.groups.events.selection import ends_ns
from iscsitrace.analysis.measures import waits
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.measures.queue_slots import slots
from iscsitrace.outputs.perfetto_packets import Writer
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.table import Table
from iscsitrace.tables.trace import Trace
from iscsitrace.wording import cells
from iscsitrace.wording.command_status import of_columns

Array = NDArray[Any]

_PHASES: Final = ("request", "grant", "transfer", "service", "status_wait")
"""In the order in which they follow each other."""
_STEPS: Final = 2_000
"""Steps of the throughput."""


def needed() -> tuple[str, ...]:
    """The tables that a trace must be read with."""
    return tuple(dict.fromkeys((*events.NEEDED, "rounds", "window", "segments")))


def write(trace: Trace, stream: BinaryIO, *, has_packets: bool = False) -> int:
    """Writes a trace that was read with the tables needed; returns the number of its packets."""
    return _Export(trace, stream).write(has_packets=has_packets)


class _Export:
    def __init__(self, trace: Trace, stream: BinaryIO) -> None:
        self.trace = trace
        first_ns = min((each["time_first_ns"] for each in trace.inputs if each["time_first_ns"] is not None), default=0)
        self.writer = Writer(stream, first_ns)
        self._processes: dict[int, int] = {}
        self.connections = list(trace.connections.rows())
        self._targets = {row["session"]: row["target_name"] for row in trace.sessions.rows()}

    def write(self, *, has_packets: bool) -> int:
        self._events()
        cycles = self.trace.cycles
        session = np.where(known(cycles, "session"), cycles.raw("session").astype(np.int64), -1)
        lun = np.where(known(cycles, "lun"), cycles.raw("lun").astype(np.int64), -1)
        for number, own in grouped(session).items():
            self._queue_depth(self.process(number), cycles.select(own))
            for unit, of_unit in grouped(lun[own]).items():
                name = f"LUN {unit}" if unit >= 0 else "LUN unknown"
                self._commands(self.writer.track(self.process(number), name), cycles.select(own[of_unit]))
        windows = grouped(self.trace.window.raw("connection"))
        segments = grouped(self.trace.segments.raw("connection"))
        none = np.zeros(0, dtype=np.intp)
        for row in self.connections:
            if row["is_iscsi"]:
                number = row["connection"]
                window = self.trace.window.select(windows.get(number, none))
                self._connection(row, window, self.trace.segments.select(segments.get(number, none)), has_packets)
        return self.writer.packet_count

    def process(self, session: int) -> int:
        """The track of a session; of what belongs to none, that of -1."""
        if session not in self._processes:
            target = self._targets.get(session)
            name = f"session {session}" if session >= 0 else "no session"
            self._processes[session] = self.writer.process(f"{name}: {cells.short(target)}" if target else name)
        return self._processes[session]

    def _slices(
        self, track: int, name: str, table: Table, starts: Array, ends: Array, names: Array, inner: list[Any]
    ) -> None:
        """Slices in as many tracks as overlap at most; ``inner`` are starts, ends and name of slices within them."""
        if not len(table):
            return
        ends = np.maximum(ends, starts + 1)
        slot = slots(starts, ends)
        count = int(slot.max()) + 1
        tracks = np.array([self.writer.track(track, f"{name} {number}") for number in range(count)])[slot]
        rank, at = 2 * (len(inner) + 1), np.arange(len(table), dtype=np.int64) * (2 * (len(inner) + 1) + 1)
        groups = [(packets, at[rows]) for packets, rows in self._begins(table, starts, tracks, names)]
        for place, (inner_starts, inner_ends, inner_name) in enumerate(inner):
            rows = np.flatnonzero(inner_ends > inner_starts)
            label = np.full(len(rows), self.writer.names([inner_name])[0])
            begins = self.writer.begins(inner_starts[rows], tracks[rows], label, {})
            groups += [
                (begins, at[rows] + 2 * place + 1),
                (self.writer.ends(inner_ends[rows], tracks[rows]), at[rows] + 2 * place + 2),
            ]
        self.writer.write_in_turn(*groups, (self.writer.ends(ends, tracks), at + rank))

    def _begins(self, table: Table, starts: Array, tracks: Array, names: Array) -> Iterator[tuple[Array, Array]]:
        """Packets that begin slices, and their rows: those with the same columns known at a time."""
        columns = _VALUES[table.name]
        has = np.stack([known(table, column) for column in columns])
        patterns, which = np.unique(has, axis=1, return_inverse=True)
        for number, pattern in enumerate(patterns.T):
            rows = np.flatnonzero(which.ravel() == number)
            values = {
                column: table.raw(column)[rows].astype(np.int64)
                for column, is_known in zip(columns, pattern, strict=True)
                if is_known
            }
            yield self.writer.begins(starts[rows], tracks[rows], names[rows], values), rows

    def _commands(self, track: int, cycles: Table) -> None:
        # earlier first: at one instant the command before ends before the next begins
        cycles = cycles.select(np.argsort(cycles.raw("command_first_ns"), kind="stable"))
        starts = cycles.raw("command_first_ns")
        ends = self._ends_ns(cycles)
        reached, phases = starts, []
        for phase in _PHASES:
            column = f"{phase}_ns"
            lengths = np.ma.filled(np.ma.asarray(cycles[column]), 0).astype(np.int64)
            until = np.minimum(reached + np.maximum(lengths, 0), ends)
            phases.append((reached, until, phase.replace("_", " ")))
            reached = until
        self._slices(track, "slot", cycles, starts, ends, self._command_names(cycles), phases)
        rounds = self.trace.rounds
        own = rounds.select(np.isin(rounds.raw("cycle"), cycles.raw("cycle")) & known(rounds, "data_last_ns"))
        own = own.select(np.argsort(own.raw("r2t_ns"), kind="stable"))
        names = np.full(len(own), self.writer.names(["R2T round"])[0])
        self._slices(track, "R2T rounds", own, own.raw("r2t_ns"), own.raw("data_last_ns"), names, [])

    def _ends_ns(self, cycles: Table) -> Array:
        return waits.of(cycles, self.trace.connections).ends_ns(cycles)

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
        return self.writer.names(words)[which.ravel()] if words else np.zeros(0, dtype=np.int64)

    def _queue_depth(self, track: int, cycles: Table) -> None:
        starts = cycles.raw("command_first_ns")
        ends = np.maximum(self._ends_ns(cycles), starts)
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
            self.writer.write(self.writer.counts(times, np.full(len(times), track), values))

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
        labels = self.writer.names(words)
        codes = np.minimum(segments.raw("segment_class"), len(words) - 1)
        values = {name: segments.raw(name).astype(np.int64) for name in ("frame", "payload_bytes")}
        tracks = np.full(len(segments), track)
        self.writer.write(self.writer.instants(segments.raw("time_ns"), tracks, labels[codes], values))

    def _events(self) -> None:
        """Events on a track of their session: those with a length as slices."""
        every = derived.table(self.trace, "events")
        if not len(every):
            return
        session = np.where(known(every, "session"), every.raw("session").astype(np.int64), -1)
        lasts = self.trace.connections.raw("time_last_ns")
        ends = ends_ns(every, int(lasts.max()) if len(lasts) else None)
        texts, which = np.unique(every["text"].astype(str), return_inverse=True)
        names = self.writer.names([cells.text(text) for text in texts.tolist()])[which.ravel()]
        for number in np.unique(session).tolist():
            own = np.flatnonzero(session == number)
            events_of = every.select(own)
            starts, until = events_of.raw("time_ns"), ends[own]
            track = self.writer.track(self.process(number), "events")
            is_long = until > starts
            chosen = np.flatnonzero(is_long)
            self._slices(
                track, "lasting", events_of.select(chosen), starts[chosen], until[chosen], names[own][chosen], []
            )
            chosen = np.flatnonzero(~is_long)
            for has_frame in (True, False):
                rows = chosen[known(events_of, "frame")[chosen] == has_frame]
                frames = {"frame": events_of.raw("frame")[rows].astype(np.int64)} if has_frame else {}
                tracks = np.full(len(rows), track)
                self.writer.write(self.writer.instants(starts[rows], tracks, names[own][rows], frames))


_VALUES: Final = {
    "cycles": ("cycle", "lba", "bytes", "queue_depth", "command_frame", "status_frame"),
    "rounds": ("cycle", "r2t_sn", "bytes", "r2t_frame"),
    "events": ("frame",),
}
