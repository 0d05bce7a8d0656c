"""This program's reading of a capture compared with tshark's, PDU by PDU.

A difference is *explained* only by evidence about that PDU: its digest verifies and tshark shows nothing there, some of
its bytes are missing or cut by the snaplen, tshark calls its frame malformed or does not dissect it, or tshark lost
sync at such a place before. All others are *unexplained*. Neither reading is assumed to be right. Nothing here runs a
program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from iscsitrace.tables.table import Table


@dataclass(frozen=True)
class Frame:
    """A frame that tshark may not have dissected fully, and why."""

    frame: int
    is_cut: bool
    is_malformed: bool
    is_irregular: bool


@dataclass(frozen=True)
class ShownPdu:
    """A PDU as tshark shows it: the frame that completes it, and values by our column names."""

    frame: int
    values: dict[str, int]
    place_frame: int | None
    """The frame of its first byte, if tshark's output shows it."""
    place_bytes: int | None
    """Offset of its first byte from the start of that frame's payload."""
    place_tail_bytes: int | None
    """Or from the end of the payload."""


@dataclass(frozen=True)
class Dissection:
    """Everything that tshark shows of a capture."""

    version: str
    pdus: list[ShownPdu]
    """With out-of-order reassembly, which is right unless bytes are missing."""
    pdus_in_order_of_arrival: list[ShownPdu]
    """Without it: fewer where segments come late, more after a hole. Used for PDUs that the first list lacks."""
    frames: dict[int, Frame]


BASIC_HEADER_BYTES = 48
_DIGESTS_BYTES = 8
_ADDITIONAL_HEADER_MAX_BYTES = 255 * 4


class PduStream:
    """Our PDUs of one direction of a connection in stream order, and those of them that tshark shows."""

    def __init__(self, rows: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
        self.rows = sorted(rows, key=lambda row: row["stream_offset_bytes"])
        self.offsets = [row["stream_offset_bytes"] for row in self.rows]
        self.matched: dict[int, ShownPdu] = {}
        self.pieces = sorted(pieces, key=lambda piece: piece["stream_offset_bytes"])
        self.piece_starts = [piece["stream_offset_bytes"] for piece in self.pieces]
        self.piece_longest = max((piece["payload_bytes"] for piece in self.pieces), default=0)
        self.hole_starts, self.hole_ends = _holes(self.pieces)

    def end(self, place: int) -> int:
        """End of a PDU: the start of the next one if its length allows, else its least length."""
        least = least_length(self.rows[place])
        if self.is_chained(place):
            return int(self.offsets[place + 1])
        return int(self.offsets[place] + least)

    def is_chained(self, place: int) -> bool:
        """Whether the next PDU begins where this one ends by its length, with digests and AHS."""
        if place + 1 >= len(self.rows):
            return False
        spare: int = self.offsets[place + 1] - self.offsets[place] - least_length(self.rows[place])
        is_command = self.rows[place]["opcode"] == 0x01
        return 0 <= spare <= _DIGESTS_BYTES + (_ADDITIONAL_HEADER_MAX_BYTES if is_command else 0)

    def confirmation(self, place: int) -> str | None:
        """Independent evidence for the offset of a PDU's header: tshark or a digest, here or along the chain."""
        for step in (-1, 1):
            at = place
            while True:
                if at in self.matched:
                    return f"tshark shows the PDU of frame {self.rows[at]['frame_first']} in the same chain"
                if self.rows[at]["header_digest_ok"] == 1 or self.rows[at]["data_digest_ok"] == 1:
                    return f"the digest of the PDU of frame {self.rows[at]['frame_first']} in the same chain"
                follower = at - 1 if step < 0 else at
                if not 0 <= at + step < len(self.rows) or not self.is_chained(follower):
                    break
                at += step
        return None

    def covering(self, offset: int) -> int | None:
        """The PDU that contains a stream offset after its first byte."""
        place = bisect_right(self.offsets, offset) - 1
        return place if place >= 0 and self.offsets[place] < offset < self.end(place) else None

    def has_hole(self, start: int, end: int) -> bool:
        """Whether a byte from start to end is in no captured segment."""
        place = bisect_right(self.hole_ends, start)
        return place < len(self.hole_starts) and self.hole_starts[place] < end

    def frames(self, place: int) -> list[int]:
        """The frames with bytes of a PDU."""
        start, end = self.offsets[place], self.end(place)
        first = bisect_right(self.piece_starts, start - self.piece_longest - 1)
        last = bisect_right(self.piece_starts, end - 1)
        return [
            piece["frame"]
            for piece in self.pieces[max(0, first) : last]
            if piece["stream_offset_bytes"] + piece["payload_bytes"] > start
        ]


def _holes(pieces: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Starts and ends of the ranges without a segment, with those before the first and after the last."""
    starts, ends, reached = [-inf], [], None
    for piece in pieces:
        start = piece["stream_offset_bytes"]
        if reached is None:
            ends.append(float(start))
            reached = start
        elif start > reached:
            starts.append(float(reached))
            ends.append(float(start))
        reached = max(reached, start + piece["payload_bytes"])
    if reached is not None:
        starts.append(float(reached))
    return starts, [*ends, inf]


def least_length(row: dict[str, Any]) -> int:
    """Bytes of a PDU without additional headers and digests."""
    data_bytes: int = row["data_segment_length"]
    return BASIC_HEADER_BYTES + (data_bytes + 3) // 4 * 4


_DATA_IN = 0x25
_LUN_BY_TRANSFER_TAG = (0x00, 0x04, 0x05, 0x20, 0x24)
"""NOP-Out, Text Request, Data-Out, NOP-In, Text Response: without a Target Transfer Tag their LUN is reserved."""
_LUN_BY_FUNCTION = (0x02, 0x10, 0x32)
"""Task Management Function Request, SNACK, Asynchronous Message: their LUN depends on a code that `pdus` lacks."""
_RESERVED_TAG = 0xFFFFFFFF
_IS_TARGETS = 0x20  # set in the opcodes that a target sends (RFC 7143 section 11.2.1.2)

# fields that identify a PDU in both readings; a field that one side lacks is ignored
_IDENTITY = ("opcode", "initiator_task_tag", "data_sn", "buffer_offset", "cmd_sn", "data_segment_length")


@dataclass(frozen=True)
class PduDifference:
    """One difference: ``kind`` ours_only, tshark_only, field or frame; ``explanation`` None where unexplained."""

    kind: str
    connection: int | None
    frame: int
    text: str
    explanation: str | None
    evidence: str


@dataclass
class Comparison:
    """The result of a comparison."""

    tshark_version: str
    our_pdu_count: int
    tshark_pdu_count: int
    tshark_pdu_count_in_order_of_arrival: int
    matched_pdu_count: int = 0
    differences: list[PduDifference] = field(default_factory=list)

    @property
    def unexplained(self) -> list[PduDifference]:
        """The differences without an explanation."""
        return [difference for difference in self.differences if difference.explanation is None]

    def explained_counts(self) -> dict[str, int]:
        """Number of differences by explanation."""
        return dict(Counter(each.explanation for each in self.differences if each.explanation))


def compare(pdus: Table, segments: Table, dissection: Dissection) -> Comparison:
    """Compares the tables ``pdus`` and ``segments`` of a trace with what tshark shows of the same file."""
    result = Comparison(dissection.version, len(pdus), len(dissection.pdus), len(dissection.pdus_in_order_of_arrival))
    segment_names = ("connection", "to_target", "frame", "stream_offset_bytes", "payload_bytes", "segment_class")
    segment_of: dict[int, dict[str, Any]] = {}
    pieces: dict[tuple[int, bool], list[dict[str, Any]]] = defaultdict(list)
    for segment in segments.rows(segment_names):
        segment_of[segment["frame"]] = segment
        if segment["payload_bytes"]:
            pieces[segment["connection"], segment["to_target"]].append(segment)
    rows: dict[tuple[int, bool], list[dict[str, Any]]] = defaultdict(list)
    for row in pdus.rows():
        rows[row["connection"], row["to_target"]].append(row)
    streams = {key: PduStream(rows[key], pieces[key]) for key in rows}
    shown = _by_stream(dissection.pdus, segment_of)
    shown_as_arrived = _by_stream(dissection.pdus_in_order_of_arrival, segment_of)
    for key in sorted({*streams, *shown}):
        stream = streams.get(key) or PduStream([], pieces[key])
        left = _match(stream, shown[key])
        if len(stream.matched) < len(stream.rows):
            known = {frozenset(pdu.values.items()) for pdu in stream.matched.values()}
            _match(stream, [pdu for pdu in shown_as_arrived[key] if frozenset(pdu.values.items()) not in known])
        result.matched_pdu_count += len(stream.matched)
        result.differences += _compare_matched(stream, dissection, segment_of)
        result.differences += _ours_only(stream, dissection)
        result.differences += [_tshark_only(stream, pdu, segment_of) for pdu in left]
    result.differences.sort(key=lambda each: (each.frame, each.kind))
    return result


def _by_stream(
    pdus: Iterable[ShownPdu], segment_of: dict[int, dict[str, Any]]
) -> dict[tuple[int, bool], list[ShownPdu]]:
    found: dict[tuple[int, bool], list[ShownPdu]] = defaultdict(list)
    for pdu in pdus:
        seen = segment_of.get(pdu.frame)
        found[seen["connection"] if seen else -1, pdu.values.get("opcode", 0) < _IS_TARGETS].append(pdu)
    return found


def _match(stream: PduStream, shown: Iterable[ShownPdu]) -> list[ShownPdu]:
    """Pairs equal PDUs: by identity in the same frame, then in any, then by frame and opcode. Returns the rest."""
    left = list(shown)
    for in_same_frame, names in ((True, _IDENTITY), (False, _IDENTITY), (True, ("opcode",))):
        # keyed by frame or by Initiator Task Tag, so that lists are short; the latest is last
        waiting: dict[Any, list[int]] = defaultdict(list)
        for place, row in enumerate(stream.rows):
            if place not in stream.matched:
                keys = (row["frame_last"], row["frame_first"]) if in_same_frame else (row["initiator_task_tag"], None)
                for key in set(keys):
                    waiting[row["opcode"], key].append(place)
        rest = []
        for pdu in left:
            key = pdu.frame if in_same_frame else pdu.values.get("initiator_task_tag")
            candidates = waiting[pdu.values.get("opcode"), key]
            found = next((place for place in candidates if _is_same(stream, place, pdu, names)), None)
            if found is None:
                rest.append(pdu)
            else:
                stream.matched[found] = pdu
                candidates.remove(found)
        left = rest
    return left


def _is_same(stream: PduStream, place: int, pdu: ShownPdu, names: Iterable[str]) -> bool:
    row = stream.rows[place]
    return place not in stream.matched and all(
        row[name] == pdu.values[name] for name in names if name in pdu.values and row[name] is not None
    )


def _compare_matched(
    stream: PduStream, dissection: Dissection, segment_of: dict[int, dict[str, Any]]
) -> Iterable[PduDifference]:
    for place, pdu in sorted(stream.matched.items()):
        row = stream.rows[place]
        for name, theirs in pdu.values.items():
            ours = row[name]
            if ours is None and (row["header_bytes"] < BASIC_HEADER_BYTES or _is_reserved(row, name)):
                continue
            if ours is None or int(ours) != theirs:
                text = f"{name}: ours {ours if ours is None else int(ours)}, tshark {theirs}"
                yield PduDifference("field", row["connection"], pdu.frame, text, None, "")
        if row["frame_last"] != pdu.frame:
            text = f"completed in frame {row['frame_last']}, by tshark in {pdu.frame}"
            explanation, evidence = _explain_frame(stream, place, pdu, dissection, segment_of)
            yield PduDifference("frame", row["connection"], pdu.frame, text, explanation, evidence)


def _is_reserved(row: dict[str, Any], name: str) -> bool:
    """Whether it is a field that tshark shows although it has no meaning there.

    StatSN and status of a Data-In without the S bit (RFC 7143 section 11.7.3). The LUN of Data-Out, text and NOP PDUs
    without a Target Transfer Tag (sections 11.7.4, 11.10, 11.11, 11.18, 11.19), and that of functions, SNACKs and
    events of no logical unit (sections 11.5.3, 11.9, 11.16).
    """
    if row["opcode"] == _DATA_IN and not row["has_status"]:
        return name in ("stat_sn", "status")
    has_no_tag = row["opcode"] in _LUN_BY_TRANSFER_TAG and row["target_transfer_tag"] == _RESERVED_TAG
    return name == "lun" and (has_no_tag or row["opcode"] in _LUN_BY_FUNCTION)


def _explain_frame(
    stream: PduStream, place: int, pdu: ShownPdu, dissection: Dissection, segment_of: dict[int, dict[str, Any]]
) -> tuple[str | None, str]:
    row, seen = stream.rows[place], segment_of.get(pdu.frame)
    if stream.has_hole(stream.offsets[place], stream.end(place)):
        return "tshark_capture_gap", "some of its bytes are missing from the capture"
    if pdu.frame in dissection.frames and dissection.frames[pdu.frame].is_cut and pdu.frame in stream.frames(place):
        return "tshark_snaplen", f"frame {pdu.frame} (cut)"
    if (row["header_digest_ok"] == 1 or row["data_digest_ok"] == 1) and pdu.frame in stream.frames(place):
        return "tshark_digest_layout", "its digest verifies"
    if seen is None:
        return None, ""
    if seen["segment_class"] in ("copy", "retransmission", "probe"):
        return "tshark_duplicate_copy", f"frame {pdu.frame} is a {seen['segment_class']}"
    is_late = row["frame_last"] is not None and pdu.frame > row["frame_last"]
    if is_late and seen["stream_offset_bytes"] < stream.offsets[place]:
        return "tshark_delivery_order", f"frame {pdu.frame} carries bytes that come before this PDU"
    return None, ""


def _ours_only(stream: PduStream, dissection: Dissection) -> Iterable[PduDifference]:
    lost_at: str | None = None  # where tshark lost sync, until it finds it again
    for place, row in enumerate(stream.rows):
        weakness = _weakness(stream, place, dissection)
        if place in stream.matched:
            lost_at = f"{weakness[1]} of the PDU of frame {row['frame_first']}" if weakness else None
            continue
        if place and lost_at is None and stream.has_hole(stream.offsets[place - 1], stream.offsets[place]):
            lost_at = f"bytes before frame {row['frame_first']} are missing from the capture"
        explanation, evidence = None, ""
        if place and stream.offsets[place - 1] + least_length(stream.rows[place - 1]) > stream.offsets[place]:
            evidence = "it begins inside another PDU of ours"
        elif stream.has_hole(stream.offsets[place], stream.offsets[place] + row["header_bytes"]):
            evidence = "bytes of the header that we read are missing from the capture"
        elif row["header_digest_ok"] == 1 or row["data_digest_ok"] == 1:
            explanation, evidence = "tshark_digest_layout", "its digest verifies"
        elif weakness is not None:
            explanation, evidence = weakness
        elif lost_at is not None:
            explanation, evidence = "tshark_lost_place", lost_at
        if explanation is not None and lost_at is None:
            lost_at = f"{evidence} of the PDU of frame {row['frame_first']}"
        tag = _tag(row["initiator_task_tag"])
        text = f"opcode {row['opcode']:#04x}, Initiator Task Tag {tag}: tshark does not show it"
        yield PduDifference("ours_only", row["connection"], row["frame_first"], text, explanation, evidence)


def _weakness(stream: PduStream, place: int, dissection: Dissection) -> tuple[str, str] | None:
    """What in the capture of a PDU can hide it, and those after it, from tshark: explanation and evidence."""
    if stream.has_hole(stream.offsets[place], stream.end(place)):
        return "tshark_capture_gap", "bytes missing from the capture"
    carriers = [dissection.frames[frame] for frame in stream.frames(place) if frame in dissection.frames]
    for flag, explanation, what in (
        ("is_cut", "tshark_snaplen", "cut"),
        ("is_malformed", "tshark_malformed", "malformed by tshark"),
        ("is_irregular", "tshark_irregular_segment", "retransmitted, out of order or after a loss by tshark"),
    ):
        flagged = [frame.frame for frame in carriers if getattr(frame, flag)]
        if flagged:
            return explanation, f"frame {flagged[0]} ({what})"
    return None


def _tshark_only(stream: PduStream, pdu: ShownPdu, segment_of: dict[int, dict[str, Any]]) -> PduDifference:
    seen = segment_of.get(pdu.frame)
    connection = seen["connection"] if seen else None
    tag = pdu.values.get("initiator_task_tag")
    text = f"opcode {pdu.values.get('opcode', 0):#04x}, Initiator Task Tag {_tag(tag)}: only tshark shows it"
    explanation, evidence = _explain_presence(stream, pdu, segment_of)
    return PduDifference("tshark_only", connection, pdu.frame, text, explanation, evidence)


def _explain_presence(
    stream: PduStream, pdu: ShownPdu, segment_of: dict[int, dict[str, Any]]
) -> tuple[str | None, str]:
    seen = segment_of.get(pdu.frame)
    if seen is not None and seen["segment_class"] in ("copy", "retransmission", "probe"):
        for place, other in stream.matched.items():
            if other.values == pdu.values and other.frame != pdu.frame:
                first = stream.rows[place]["frame_first"]
                return "tshark_duplicate_copy", f"frame {pdu.frame} is a {seen['segment_class']} of frame {first}"
    offset = _offset(pdu, segment_of)
    place_found = None if offset is None else stream.covering(offset)
    if place_found is not None:
        confirmation = stream.confirmation(place_found)
        if confirmation is not None:
            first = stream.rows[place_found]["frame_first"]
            return "tshark_false_pdu", f"inside the PDU of frame {first}, confirmed by: {confirmation}"
    return None, ""


def _offset(pdu: ShownPdu, segment_of: dict[int, dict[str, Any]]) -> int | None:
    """The stream offset of a PDU by tshark."""
    segment = segment_of.get(pdu.place_frame) if pdu.place_frame is not None else None
    if segment is None:
        return None
    if pdu.place_bytes is not None:
        return int(segment["stream_offset_bytes"]) + pdu.place_bytes
    return int(segment["stream_offset_bytes"]) + int(segment["payload_bytes"]) - (pdu.place_tail_bytes or 0)


def _tag(tag: int | None) -> str:
    return "unknown" if tag is None else f"{tag:#010x}"
