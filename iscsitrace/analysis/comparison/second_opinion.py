"""Two readings of one capture compared PDU by PDU: ours, and what tshark shows.

A difference is *explained* only by evidence about that very PDU: its digest verifies though tshark shows nothing
there, its bytes cross a hole or a snaplen's cut, tshark itself calls its frame malformed or does not dissect it, or
tshark lost its place at such a spot and found none before this PDU. All else is *unexplained*. Neither reading is
taken to be right; nothing here runs a program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from iscsitrace.tables.table import Table

BASIC_HEADER_BYTES = 48
_DATA_IN = 0x25
_TEXTS_AND_NOPS = (0x00, 0x04, 0x20, 0x24)
_RESERVED_TAG = 0xFFFFFFFF
_IS_TARGETS = 0x20  # set in the opcodes that a target sends (RFC 7143 section 11.2.1.2)
_DIGESTS_BYTES = 8
_ADDITIONAL_HEADER_MAX_BYTES = 255 * 4

# what makes a PDU the same PDU in both readings; a field that one side lacks is left out on both
_IDENTITY = ("opcode", "initiator_task_tag", "data_sn", "buffer_offset", "cmd_sn", "data_segment_length")

EXPLANATIONS = {
    "tshark_digest_layout": "our reading of this PDU has a digest that verifies; tshark shows nothing there",
    "tshark_snaplen": "the snaplen cut a frame of this PDU",
    "tshark_capture_gap": "bytes of this PDU were never captured",
    "tshark_malformed": "tshark calls a frame of this PDU malformed",
    "tshark_irregular_segment": "tshark flags a frame of this PDU as retransmitted, out of order or after a loss",
    "tshark_lost_place": "tshark lost its place at an earlier PDU that it could not read, and shows none in between",
    "tshark_duplicate_copy": "tshark shows this PDU again in a frame that repeats bytes",
    "tshark_false_pdu": "tshark reads a header inside a PDU whose place other headers confirm",
    "tshark_delivery_order": "tshark shows this PDU with a later frame, which filled a hole before it",
}
"""Known limits of tshark, by name, and the evidence that each needs."""


@dataclass(frozen=True)
class Frame:
    """A frame that tshark had a reason not to dissect as usual."""

    frame: int
    is_cut: bool
    is_malformed: bool
    is_irregular: bool


@dataclass(frozen=True)
class ShownPdu:
    """A PDU as tshark shows it: the frame that completes it, and the values of our columns that it gives."""

    frame: int
    values: dict[str, int]
    place_frame: int | None
    """The frame that brought its first byte, when tshark's output tells it."""
    place_bytes: int | None
    """Its first byte, counted from the start of that frame's payload."""
    place_tail_bytes: int | None
    """Or counted from the payload's end."""


@dataclass(frozen=True)
class Dissection:
    """All that tshark shows of a capture."""

    version: str
    pdus: list[ShownPdu]
    """With out-of-order reassembly, which is right unless bytes are missing."""
    pdus_in_order_of_arrival: list[ShownPdu]
    """Without it: fewer where segments come late, more after a hole. Consulted for PDUs that the first lack."""
    frames: dict[int, Frame]


@dataclass(frozen=True)
class Difference:
    """One difference: ``kind`` ours_only, tshark_only, field or frame; ``explanation`` None when unexplained."""

    kind: str
    connection: int | None
    frame: int | None
    text: str
    explanation: str | None
    evidence: str


@dataclass
class Comparison:
    """What comparing gave."""

    tshark_version: str
    our_pdu_count: int
    tshark_pdu_count: int
    tshark_pdu_count_in_order_of_arrival: int
    matched_pdu_count: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        """The differences without an explanation."""
        return [difference for difference in self.differences if difference.explanation is None]

    def explained_counts(self) -> dict[str, int]:
        """How many differences each explanation covers."""
        return dict(Counter(each.explanation for each in self.differences if each.explanation))


class _Stream:
    """Our PDUs of one direction of one connection in the order of the stream, and which of them tshark shows."""

    def __init__(self, rows: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
        self.rows = sorted(rows, key=lambda row: row["stream_offset_bytes"])
        self.offsets = [row["stream_offset_bytes"] for row in self.rows]
        self.matched: dict[int, ShownPdu] = {}
        self.pieces = sorted(pieces, key=lambda piece: piece["stream_offset_bytes"])
        self.piece_starts = [piece["stream_offset_bytes"] for piece in self.pieces]
        self.piece_longest = max((piece["payload_bytes"] for piece in self.pieces), default=0)
        self.hole_starts, self.hole_ends = _holes(self.pieces)

    def end(self, place: int) -> int:
        """Where a PDU ends: at the next one when that fits its length, else at the least length it can have."""
        least = _least_length(self.rows[place])
        if self.is_chained(place):
            return int(self.offsets[place + 1])
        return int(self.offsets[place] + least)

    def is_chained(self, place: int) -> bool:
        """Whether the next PDU begins where this one says that it ends, digests and AHS allowed for."""
        if place + 1 >= len(self.rows):
            return False
        spare: int = self.offsets[place + 1] - self.offsets[place] - _least_length(self.rows[place])
        return 0 <= spare <= _DIGESTS_BYTES or (
            self.rows[place]["opcode"] == 0x01 and 0 <= spare <= _DIGESTS_BYTES + _ADDITIONAL_HEADER_MAX_BYTES
        )

    def confirmation(self, place: int) -> str | None:
        """What confirms the place of a PDU's header besides ourselves: tshark or a digest, here or along the chain."""
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
        """The PDU in whose bytes, after its first, a stream offset falls."""
        place = bisect_right(self.offsets, offset) - 1
        return place if place >= 0 and self.offsets[place] < offset < self.end(place) else None

    def has_hole(self, start: int, end: int) -> bool:
        """Whether a byte from start up to end is in no captured segment."""
        place = bisect_right(self.hole_ends, start)
        return place < len(self.hole_starts) and self.hole_starts[place] < end

    def frames(self, place: int) -> list[int]:
        """The frames that carried bytes of a PDU."""
        start, end = self.offsets[place], self.end(place)
        first = bisect_right(self.piece_starts, start - self.piece_longest - 1)
        last = bisect_right(self.piece_starts, end - 1)
        return [
            piece["frame"]
            for piece in self.pieces[max(0, first) : last]
            if piece["stream_offset_bytes"] + piece["payload_bytes"] > start
        ]


def _holes(pieces: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Starts and ends of the ranges that no segment brought; what is before the first and after the last is one."""
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


def _least_length(row: dict[str, Any]) -> int:
    data_bytes: int = row["data_segment_length"]
    return BASIC_HEADER_BYTES + (data_bytes + 3) // 4 * 4


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
    streams = {key: _Stream(rows[key], pieces[key]) for key in rows}
    shown = _by_stream(dissection.pdus, segment_of)
    shown_as_arrived = _by_stream(dissection.pdus_in_order_of_arrival, segment_of)
    for key in sorted({*streams, *shown}):
        stream = streams.get(key) or _Stream([], pieces[key])
        left = _match(stream, shown[key])
        if len(stream.matched) < len(stream.rows):
            known = {frozenset(pdu.values.items()) for pdu in stream.matched.values()}
            _match(stream, [pdu for pdu in shown_as_arrived[key] if frozenset(pdu.values.items()) not in known])
        result.matched_pdu_count += len(stream.matched)
        result.differences += _compare_matched(stream, dissection, segment_of)
        result.differences += _ours_only(stream, dissection)
        result.differences += [_tshark_only(stream, pdu, segment_of) for pdu in left]
    result.differences.sort(key=lambda each: (each.frame or 0, each.kind))
    return result


def _by_stream(
    pdus: Iterable[ShownPdu], segment_of: dict[int, dict[str, Any]]
) -> dict[tuple[int, bool], list[ShownPdu]]:
    found: dict[tuple[int, bool], list[ShownPdu]] = defaultdict(list)
    for pdu in pdus:
        seen = segment_of.get(pdu.frame)
        found[seen["connection"] if seen else -1, pdu.values.get("opcode", 0) < _IS_TARGETS].append(pdu)
    return found


def _match(stream: _Stream, shown: Iterable[ShownPdu]) -> list[ShownPdu]:
    """Pairs what is the same: by identity in the same frame, anywhere, then by frame and opcode; gives the rest."""
    left = list(shown)
    for in_same_frame, names in ((True, _IDENTITY), (False, _IDENTITY), (True, ("opcode",))):
        # keyed by frame or by task, so that each list is short; the latest is at its end, to be found last
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


def _is_same(stream: _Stream, place: int, pdu: ShownPdu, names: Iterable[str]) -> bool:
    row = stream.rows[place]
    return place not in stream.matched and all(
        row[name] == pdu.values[name] for name in names if name in pdu.values and row[name] is not None
    )


def _compare_matched(
    stream: _Stream, dissection: Dissection, segment_of: dict[int, dict[str, Any]]
) -> Iterable[Difference]:
    for place, pdu in sorted(stream.matched.items()):
        row = stream.rows[place]
        for name, theirs in pdu.values.items():
            ours = row[name]
            if ours is None and (row["header_bytes"] < BASIC_HEADER_BYTES or _is_reserved(row, name)):
                continue
            if ours is None or int(ours) != theirs:
                text = f"{name}: ours {ours if ours is None else int(ours)}, tshark {theirs}"
                yield Difference("field", row["connection"], pdu.frame, text, None, "")
        if row["frame_last"] != pdu.frame:
            text = f"completed in frame {row['frame_last']}, by tshark in {pdu.frame}"
            explanation, evidence = _explain_frame(stream, place, pdu, dissection, segment_of)
            yield Difference("frame", row["connection"], pdu.frame, text, explanation, evidence)


def _is_reserved(row: dict[str, Any], name: str) -> bool:
    """Fields that tshark shows though they mean nothing there.

    StatSN and status of a Data-In without the S bit (RFC 7143 section 11.7.3), and the LUN of text and NOP PDUs
    without a Target Transfer Tag (sections 11.10, 11.11, 11.18, 11.19).
    """
    if row["opcode"] == _DATA_IN and not row["has_status"]:
        return name in ("stat_sn", "status")
    return row["opcode"] in _TEXTS_AND_NOPS and name == "lun" and row["target_transfer_tag"] == _RESERVED_TAG


def _explain_frame(
    stream: _Stream, place: int, pdu: ShownPdu, dissection: Dissection, segment_of: dict[int, dict[str, Any]]
) -> tuple[str | None, str]:
    row, seen = stream.rows[place], segment_of.get(pdu.frame)
    if stream.has_hole(stream.offsets[place], stream.end(place)):
        return "tshark_capture_gap", "bytes of it were never captured"
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


def _ours_only(stream: _Stream, dissection: Dissection) -> Iterable[Difference]:
    lost_at: str | None = None  # where tshark lost its place, as long as it has not found it again
    for place, row in enumerate(stream.rows):
        weakness = _weakness(stream, place, dissection)
        if place in stream.matched:
            lost_at = f"{weakness[1]} of the PDU of frame {row['frame_first']}" if weakness else None
            continue
        if place and lost_at is None and stream.has_hole(stream.offsets[place - 1], stream.offsets[place]):
            lost_at = f"bytes before frame {row['frame_first']} were never captured"
        explanation, evidence = None, ""
        if place and stream.offsets[place - 1] + _least_length(stream.rows[place - 1]) > stream.offsets[place]:
            evidence = "it begins inside another PDU of ours"
        elif stream.has_hole(stream.offsets[place], stream.offsets[place] + row["header_bytes"]):
            evidence = "the header that we claim to have read was never captured"
        elif row["header_digest_ok"] == 1 or row["data_digest_ok"] == 1:
            explanation, evidence = "tshark_digest_layout", "its digest verifies"
        elif weakness is not None:
            explanation, evidence = weakness
        elif lost_at is not None:
            explanation, evidence = "tshark_lost_place", lost_at
        if explanation is not None and lost_at is None:
            lost_at = f"{evidence} of the PDU of frame {row['frame_first']}"
        text = f"opcode {row['opcode']:#04x}, task {_tag(row['initiator_task_tag'])}: tshark does not show it"
        yield Difference("ours_only", row["connection"], row["frame_first"], text, explanation, evidence)


def _weakness(stream: _Stream, place: int, dissection: Dissection) -> tuple[str, str] | None:
    """What about the capture of a PDU can hide it, and what follows it, from tshark: explanation and evidence."""
    if stream.has_hole(stream.offsets[place], stream.end(place)):
        return "tshark_capture_gap", "bytes never captured"
    carriers = [dissection.frames[frame] for frame in stream.frames(place) if frame in dissection.frames]
    for flag, explanation, what in (
        ("is_cut", "tshark_snaplen", "cut"),
        ("is_malformed", "tshark_malformed", "malformed for tshark"),
        ("is_irregular", "tshark_irregular_segment", "retransmitted, out of order or after a loss for tshark"),
    ):
        flagged = [frame.frame for frame in carriers if getattr(frame, flag)]
        if flagged:
            return explanation, f"frame {flagged[0]} ({what})"
    return None


def _tshark_only(stream: _Stream, pdu: ShownPdu, segment_of: dict[int, dict[str, Any]]) -> Difference:
    seen = segment_of.get(pdu.frame)
    connection = seen["connection"] if seen else None
    tag = pdu.values.get("initiator_task_tag")
    text = f"opcode {pdu.values.get('opcode', 0):#04x}, task {_tag(tag)}: only tshark shows it"
    explanation, evidence = _explain_presence(stream, pdu, segment_of)
    return Difference("tshark_only", connection, pdu.frame, text, explanation, evidence)


def _explain_presence(stream: _Stream, pdu: ShownPdu, segment_of: dict[int, dict[str, Any]]) -> tuple[str | None, str]:
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
    """The place in the stream of a PDU as tshark sees it."""
    segment = segment_of.get(pdu.place_frame) if pdu.place_frame is not None else None
    if segment is None:
        return None
    if pdu.place_bytes is not None:
        return int(segment["stream_offset_bytes"]) + pdu.place_bytes
    return int(segment["stream_offset_bytes"]) + int(segment["payload_bytes"]) - (pdu.place_tail_bytes or 0)


def _tag(tag: int | None) -> str:
    return "unknown" if tag is None else f"{tag:#010x}"
