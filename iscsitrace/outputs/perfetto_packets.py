"""Packets of Perfetto's trace format in bulk: the package writes one of each form, NumPy fills in the numbers.

A number in a packet is a varint, which may be padded: so all packets of a form have one length, and a million of them
are one array of bytes (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import ExtraMissing

Array = NDArray[Any]

_VARINT: Final = 9
"""Bytes of a padded number: 63 bits."""
_SEQUENCE: Final = 1
_FIRST_HOLE: Final = 1 << 62
"""Numbers of nine bytes that stand for those to be written; no other number is as large."""
_CLEARED, _NEEDED = 1, 2
"""TracePacket.SEQ_INCREMENTAL_STATE_CLEARED and SEQ_NEEDS_INCREMENTAL_STATE."""


def require() -> Any:
    """The package's messages; ExtraMissing if it is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise ExtraMissing("A trace for the Perfetto UI", "perfetto", "perfetto") from error
    return perfetto_trace_pb2


class Writer:
    """Writes a trace: tracks and names one by one, events by columns."""

    def __init__(self, stream: BinaryIO, start_ns: int) -> None:
        """``start_ns`` is the time at which the clocks are set."""
        self._messages = require()
        self._event = self._messages.TrackEvent
        self._stream = stream
        self._tracks = 0
        self._names: dict[tuple[str, str], int] = {}
        self.packet_count = 0
        first = self._packet()
        first.sequence_flags = _CLEARED
        first.timestamp = start_ns
        # times are those of the capture: nanoseconds since 1970, on both clocks
        for clock in (self._messages.BUILTIN_CLOCK_BOOTTIME, self._messages.BUILTIN_CLOCK_REALTIME):
            first.clock_snapshot.clocks.add(clock_id=clock, timestamp=start_ns)
        self._write_one(first)

    def process(self, name: str) -> int:
        """A new process; returns its track."""
        packet = self._track(0, "")
        packet.track_descriptor.process.pid = packet.track_descriptor.uuid
        packet.track_descriptor.process.process_name = name
        self._write_one(packet)
        return int(packet.track_descriptor.uuid)

    def track(self, parent: int, name: str) -> int:
        """A new track below another."""
        packet = self._track(parent, name)
        packet.track_descriptor.child_ordering = self._messages.TrackDescriptor.EXPLICIT
        packet.track_descriptor.sibling_order_rank = self._tracks
        self._write_one(packet)
        return self._tracks

    def counter(self, parent: int, name: str, unit: str) -> int:
        """A new track of a number over time."""
        packet = self._track(parent, name)
        packet.track_descriptor.counter.unit_name = unit
        self._write_one(packet)
        return self._tracks

    def names(self, words: Sequence[str], field: str = "event_names") -> Array:
        """The number of each word; ``debug_annotation_names`` are those of values."""
        fresh = [word for word in dict.fromkeys(words) if (field, word) not in self._names]
        if fresh:
            packet = self._packet()
            for word in fresh:
                number = self._names[field, word] = len(self._names) + 1
                getattr(packet.interned_data, field).add(iid=number, name=word)
            self._write_one(packet)
        return np.array([self._names[field, word] for word in words], dtype=np.int64)

    def begins(self, times_ns: Array, tracks: Array, names: Array, values: Mapping[str, Array]) -> Array:
        """The packets that begin slices, a row of bytes each; values are shown with a slice."""
        return self._named(self._event.TYPE_SLICE_BEGIN, times_ns, tracks, names, values)

    def instants(self, times_ns: Array, tracks: Array, names: Array, values: Mapping[str, Array]) -> Array:
        """The packets of instants."""
        return self._named(self._event.TYPE_INSTANT, times_ns, tracks, names, values)

    def ends(self, times_ns: Array, tracks: Array) -> Array:
        """The packets that end slices: each the last one of its track that has begun."""
        packet = self._packet()
        packet.timestamp = _FIRST_HOLE
        packet.track_event.type = self._event.TYPE_SLICE_END
        packet.track_event.track_uuid = _FIRST_HOLE + 1
        return self._filled(packet, [times_ns, tracks])

    def counts(self, times_ns: Array, tracks: Array, values: Array) -> Array:
        """The packets of a counter: from then on it has this value."""
        packet = self._packet()
        packet.timestamp = _FIRST_HOLE
        packet.track_event.type = self._event.TYPE_COUNTER
        packet.track_event.track_uuid = _FIRST_HOLE + 1
        packet.track_event.counter_value = _FIRST_HOLE + 2
        return self._filled(packet, [times_ns, tracks, values])

    def write(self, *packets: Array) -> None:
        """Writes packets."""
        for rows in packets:
            self._stream.write(rows.tobytes())
            self.packet_count += len(rows)

    def write_in_turn(self, *groups: tuple[Array, Array]) -> None:
        """Writes groups of packets, all in the order of the numbers beside them."""
        place = np.argsort(np.concatenate([order for _, order in groups]), kind="stable")
        lengths = np.concatenate([np.full(len(form), form.shape[1], dtype=np.int64) for form, _ in groups])
        ends = np.cumsum(lengths[place])
        starts = np.empty(len(place), dtype=np.int64)
        starts[place] = ends - lengths[place]
        out = np.empty(int(lengths.sum()), dtype=np.uint8)
        first = 0
        for form, _ in groups:
            at = starts[first : first + len(form)]
            out[at[:, None] + np.arange(form.shape[1])] = form
            first += len(form)
        self._stream.write(out.tobytes())
        self.packet_count += len(place)

    def _track(self, parent: int, name: str) -> Any:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        if parent:
            packet.track_descriptor.parent_uuid = parent
        if name:
            packet.track_descriptor.name = name
        return packet

    def _named(self, kind: int, times_ns: Array, tracks: Array, names: Array, values: Mapping[str, Array]) -> Array:
        packet = self._packet()
        packet.timestamp = _FIRST_HOLE
        packet.track_event.type = kind
        packet.track_event.track_uuid = _FIRST_HOLE + 1
        packet.track_event.name_iid = _FIRST_HOLE + 2
        for place, name in enumerate(self.names(list(values), "debug_annotation_names").tolist()):
            packet.track_event.debug_annotations.add(name_iid=name, int_value=_FIRST_HOLE + 3 + place)
        return self._filled(packet, [times_ns, tracks, names, *values.values()])

    def _packet(self) -> Any:
        packet = self._messages.TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDED
        return packet

    def _write_one(self, packet: Any) -> None:
        self._stream.write(self._in_trace(packet))
        self.packet_count += 1

    def _in_trace(self, packet: Any) -> bytes:
        trace = self._messages.Trace()
        trace.packet.append(packet)
        found: bytes = trace.SerializeToString()
        return found

    def _filled(self, packet: Any, numbers: Sequence[Array]) -> Array:
        """Copies of a packet, in which the holes have these numbers."""
        form = self._in_trace(packet)
        found = np.tile(np.frombuffer(form, dtype=np.uint8), (len(numbers[0]), 1))
        for place, each in enumerate(numbers):
            at = form.index(_varint(np.array([_FIRST_HOLE + place]))[0].tobytes())
            found[:, at : at + _VARINT] = _varint(each)
        return found


def _varint(numbers: Array) -> Array:
    """Numbers from 0 below 2^63 as padded varints, a row of bytes each."""
    values = np.asarray(numbers, dtype=np.int64).astype(np.uint64)
    shifts = np.arange(_VARINT, dtype=np.uint64) * np.uint64(7)
    found = ((values[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found
