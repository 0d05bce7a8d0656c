"""The content of a list of captured packets, by the definitions of method.md section 3.

It starts from the PDUs that were sent and finds the packet that first carried each byte; it never parses a packet. It
is the result of a perfect analysis, for a whole capture and for one that is thinned, cut or started late.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.conversation import Capture, TaskRecord
from tests.support.pdu import DATA_IN, DATA_OUT, R2T, SCSI_COMMAND, SCSI_RESPONSE, Pdu
from tests.support.transport import ACK, Packet

INSTANTS = (
    "command_first_ns",
    "command_last_ns",
    "r2t_first_ns",
    "data_first_ns",
    "data_last_ns",
    "data_acked_ns",
    "status_ns",
)
"""The instants of a cycle."""


@dataclass(frozen=True)
class _Region:
    """Bytes that one packet carried first."""

    start: int
    end: int
    captured_end: int
    place: int


class Stream:
    """The captured part of one direction of one connection."""

    def __init__(self) -> None:
        self.regions: list[_Region] = []
        self.acks: list[tuple[int, int]] = []
        """(place of the packet, offset that it acknowledges), of the packets of this direction."""
        self._acked: list[int] = []
        """The highest offset up to each of these."""
        self.late: set[int] = set()
        """places of packets that carried bytes again, or late."""
        self.repeated: list[tuple[int, int]] = []
        """stream ranges that were carried a second time (without copies made by the capture)."""
        self._highest = 0

    def add(self, place: int, packet: Packet) -> None:
        """Adds the next packet of this direction."""
        if packet.ack_offset is not None and packet.flags & ACK:
            self.acks.append((place, packet.ack_offset))
            self._acked.append(max(packet.ack_offset, self._acked[-1] if self._acked else 0))
        if packet.payload_bytes == 0:
            return
        start, end = packet.stream_offset, packet.stream_offset + packet.payload_bytes
        # A copy made by the capture has no new bytes. Nor is a retransmission visible if no packet sent after the lost
        # first copy has passed the tap.
        if not packet.is_copy and start < self._highest:
            self.late.add(place)
        self._highest = max(self._highest, end)
        captured_end = start + packet.captured_payload_bytes
        if not self.regions or start >= self.regions[-1].end:
            # most packets come in order
            self.regions.append(_Region(start, end, max(start, min(end, captured_end)), place))
            return
        index = bisect_left(self.regions, start, key=lambda region: region.end)
        cursor, fresh = start, []
        for region in self.regions[index:]:
            if region.start >= end:
                break
            if cursor < region.start:
                fresh.append((cursor, min(region.start, end)))
            if not packet.is_copy and max(start, region.start) < min(end, region.end):
                self.repeated.append((max(start, region.start), min(end, region.end)))
            cursor = max(cursor, region.end)
        if cursor < end:
            fresh.append((cursor, end))
        for low, high in fresh:
            region = _Region(low, high, max(low, min(high, captured_end)), place)
            self.regions.insert(bisect_left(self.regions, low, key=lambda known: known.start), region)

    def first_ack(self, offset: int) -> int | None:
        """The place of the first packet of this direction that acknowledges so many bytes."""
        found = bisect_left(self._acked, offset)
        return self.acks[found][0] if found < len(self._acked) else None

    def overlapping(self, start: int, end: int) -> list[_Region]:
        """The regions with bytes of start..end, in order."""
        first = bisect_right(self.regions, start, key=lambda region: region.end)
        last = bisect_left(self.regions, end, key=lambda region: region.start)
        return self.regions[first:last]

    def passed_bytes(self, start: int, end: int) -> int:
        """Number of these bytes in captured packets, cut or not."""
        return sum(min(end, region.end) - max(start, region.start) for region in self.overlapping(start, end))

    def kept_bytes(self, start: int, end: int) -> int:
        """Number of these bytes in the file from `start` on, without a hole."""
        cursor = start
        for region in self.overlapping(start, end):
            if region.start > cursor:
                break
            cursor = min(end, region.captured_end)
            if region.captured_end < min(region.end, end):
                break
        return max(0, cursor - start)


@dataclass(frozen=True)
class SeenPdu:
    """A PDU as captured; null is None. Frames count from 1."""

    pdu: Pdu
    header_bytes: int
    """bytes of its header that are in the file, from the first on."""
    frame_first: int | None
    frame_last: int | None
    time_first_ns: int | None
    time_last_ns: int | None
    has_capture_gap: bool
    is_late: bool

    @property
    def has_header(self) -> bool:
        """Whether all 48 bytes of the header are in the file."""
        return self.header_bytes == 48


@dataclass(frozen=True)
class SeenCycle:
    """A task as captured: the columns of the table of cycles, null is None."""

    record: TaskRecord
    pdus: list[SeenPdu]
    columns: dict[str, int | str | bool | None]

    @property
    def has_all_headers(self) -> bool:
        """Whether the header of each of its PDUs is in the file."""
        return all(pdu.has_header for pdu in self.pdus)


@dataclass(frozen=True)
class Seen:
    """The whole content of a capture."""

    pdus: list[SeenPdu]
    cycles: list[SeenCycle]
    streams: dict[tuple[int, bool], Stream]

    def pdu_count(self, opcode: int) -> int:
        """PDUs of that opcode whose header is in the file."""
        return sum(seen.pdu.opcode == opcode and seen.has_header for seen in self.pdus)


def observe(capture: Capture, packets: Sequence[Packet]) -> Seen:
    """The content of `packets`, an arbitrary part of `capture`."""
    streams: dict[tuple[int, bool], Stream] = {}
    for pdu in capture.pdus:
        streams.setdefault((pdu.connection, pdu.to_target), Stream())
    for place, packet in enumerate(packets):
        if (packet.connection, packet.to_target) in streams:
            streams[packet.connection, packet.to_target].add(place, packet)
    seen = {id(pdu): _see(pdu, streams[pdu.connection, pdu.to_target], packets) for pdu in capture.pdus}
    cycles = [_cycle(record, [seen[id(pdu)] for pdu in record.pdus], streams, packets) for record in capture.tasks]
    _relate(cycles)
    return Seen([seen[id(pdu)] for pdu in capture.pdus], cycles, streams)


def _see(pdu: Pdu, stream: Stream, packets: Sequence[Packet]) -> SeenPdu:
    start, end = pdu.stream_offset, pdu.stream_offset + pdu.length
    regions = stream.overlapping(start, end)
    has_gap = stream.passed_bytes(start, end) < pdu.length
    first = regions[0].place if regions and regions[0].start <= start else None
    # a PDU ends with its last byte: bytes missing before it came earlier, if TCP sent them in order
    has_end = bool(regions) and regions[-1].end >= end
    last = max(regions, key=lambda region: (packets[region.place].time_ns, region.place)).place if has_end else None
    is_late = any(region.place in stream.late for region in regions)
    is_late |= any(low < end and start < high for low, high in stream.repeated)
    return SeenPdu(
        pdu,
        stream.kept_bytes(start, start + 48),
        None if first is None else first + 1,
        None if last is None else last + 1,
        None if first is None else packets[first].time_ns,
        None if last is None else packets[last].time_ns,
        has_gap,
        is_late,
    )


def _cycle(
    record: TaskRecord,
    pdus: list[SeenPdu],
    streams: dict[tuple[int, bool], Stream],
    packets: Sequence[Packet],
) -> SeenCycle:
    task = record.task
    command = next(seen for seen in pdus if seen.pdu.opcode == SCSI_COMMAND)
    status = next((seen for seen in pdus if seen.pdu.has_status), None)
    data = [seen for seen in pdus if seen.pdu.opcode in (DATA_IN, DATA_OUT) and seen.pdu.data_segment_length]
    r2ts = [seen for seen in pdus if seen.pdu.opcode == R2T]
    out = [seen.pdu for seen in data if seen.pdu.opcode == DATA_OUT]
    last = max(data, key=lambda seen: seen.time_last_ns or 0) if data and data[-1].time_last_ns else None
    unsolicited = [seen for seen in data if seen.pdu.opcode == DATA_OUT and not seen.pdu.is_solicited]
    has_unsolicited_end = bool(unsolicited) and unsolicited[-1].time_last_ns is not None
    acked = None
    if data:
        data_end = max(seen.pdu.data_end for seen in data)
        place = streams[record.connection, not data[0].pdu.to_target].first_ack(data_end)
        acked = None if place is None else packets[place].time_ns
        # an ACK that passed the tap before the data did is that of packets that were captured in another order
        final = data[-1].pdu
        regions = streams[record.connection, final.to_target].overlapping(final.stream_offset + 48, final.data_end)
        last_ns = max((packets[region.place].time_ns for region in regions), default=0)
        acked = acked if acked is not None and acked >= last_ns else None
    sizes = [seen.pdu.data_segment_length for seen in data]
    # the packets with a byte of data that none before had; a direction of a connection has packets of its own
    data_packets = {
        region.place
        for seen in [command, *data]
        if seen.pdu.data_segment_length
        for region in streams[record.connection, seen.pdu.to_target].overlapping(
            seen.pdu.data_end - seen.pdu.data_segment_length, seen.pdu.data_end
        )
    }
    has_gap = any(seen.has_capture_gap for seen in pdus)
    return SeenCycle(
        record,
        pdus,
        {
            "session": record.session,
            "connection": record.connection,
            "lun": task.lun,
            "initiator_task_tag": record.initiator_task_tag,
            "operation": task.operation,
            "cdb_opcode": task.cdb[0],
            "is_read": task.is_read,
            "is_write": task.is_write,
            "lba": task.addressed[0],
            "block_count": task.addressed[1],
            "bytes": task.expected_data_transfer_length,
            "data_bytes": sum(sizes) + command.pdu.data_segment_length,
            "command_first_ns": command.time_first_ns,
            "command_last_ns": command.time_last_ns,
            "r2t_first_ns": r2ts[0].time_last_ns if r2ts else None,
            "data_first_ns": data[0].time_first_ns if data else None,
            "data_last_ns": last.time_last_ns if last else None,
            "unsolicited_last_ns": max(seen.time_last_ns or 0 for seen in unsolicited) if has_unsolicited_end else None,
            "data_acked_ns": acked,
            "status_ns": status.time_last_ns if status else None,
            **(_ended(status.time_last_ns) if status and status.time_last_ns is not None else {}),
            "data_pdu_count": len(data),
            "data_pdu_bytes_min": min(sizes) if sizes else None,
            "data_pdu_bytes_max": max(sizes) if sizes else None,
            "data_packet_count": len(data_packets),
            "r2t_count": len(r2ts),
            "immediate_bytes": command.pdu.data_segment_length,
            "unsolicited_bytes": sum(pdu.data_segment_length for pdu in out if not pdu.is_solicited),
            "solicited_bytes": sum(pdu.data_segment_length for pdu in out if pdu.is_solicited),
            "status": task.status if status else None,
            "residual_bytes": -task.expected_data_transfer_length if task.status else 0,
            "command_frame": command.frame_first,
            "data_first_frame": data[0].frame_first if data else None,
            "data_last_frame": last.frame_last if last else None,
            "status_frame": status.frame_last if status else None,
            "is_complete": status is not None
            and status.time_last_ns is not None
            and all(seen.has_header for seen in pdus),
            "is_status_in_data": status is not None and status.pdu.opcode != SCSI_RESPONSE,
            "is_aborted": False,
            "has_capture_gap": has_gap,
            "has_retransmission": any(seen.is_late for seen in pdus),
        },
    )


def _ended(status_ns: int) -> dict[str, int | str | bool | None]:
    """By its status."""
    return {"end_ns": status_ns, "ended_by": "status", "is_lost": False}


def _relate(cycles: list[SeenCycle]) -> None:
    """Fills the two columns that depend on several tasks: queue_depth and next_command_ns."""
    for session in {cycle.record.session for cycle in cycles}:
        mine = [cycle for cycle in cycles if cycle.record.session == session]
        # in the order in which the tap saw the commands
        mine.sort(key=lambda cycle: (cycle.columns["command_frame"] or 0, cycle.record.number))
        times = [(cycle.columns["command_first_ns"], cycle.columns["status_ns"]) for cycle in mine]
        ends: list[int] = []
        for place, cycle in enumerate(mine):
            issued, ended = times[place]
            _, before = times[place - 1] if place else (None, None)
            if isinstance(before, int):
                insort(ends, before)
            if not isinstance(issued, int):
                cycle.columns.update(queue_depth=None, next_command_ns=None)
                continue
            # all commands before this one, but for those that had ended
            depth = 1 + place - bisect_right(ends, issued)
            following = times[place + 1][0] if place + 1 < len(times) else None
            is_alone = depth == 1 and isinstance(following, int) and isinstance(ended, int) and following >= ended
            cycle.columns.update(queue_depth=depth, next_command_ns=following if is_alone else None)
