"""The PDUs of one direction of a connection as this program read them, and the captured bytes of each."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import Any

from iscsitrace.analysis.comparison.dissection import ShownPdu

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
