"""PDUs of one direction: where each ends, which confirm each other, and which bytes are missing."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.compare.second_opinion import PduStream, ShownPdu, least_length

COMMAND, DATA_IN = 0x01, 0x25


def pdu(offset: int, data: int = 0, opcode: int = DATA_IN, **columns: Any) -> dict[str, Any]:
    row = {"stream_offset_bytes": offset, "data_segment_length": data, "opcode": opcode, "frame_first": 100 + offset}
    return row | {"header_digest_ok": None, "data_digest_ok": None} | columns


def piece(frame: int, offset: int, length: int) -> dict[str, Any]:
    return {"frame": frame, "stream_offset_bytes": offset, "payload_bytes": length}


@pytest.mark.parametrize(("data", "length"), [(0, 48), (1, 52), (4, 52), (5, 56), (8, 56)])
def test_data_is_padded_to_four_bytes(data: int, length: int) -> None:
    assert least_length(pdu(0, data)) == length


@pytest.mark.parametrize(
    ("opcode", "spare", "is_chained"),
    [
        # up to two digests of 4 bytes; additional headers of up to 255 words only in a command
        (DATA_IN, -1, False),
        (DATA_IN, 0, True),
        (DATA_IN, 8, True),
        (DATA_IN, 9, False),
        (COMMAND, -1, False),
        (COMMAND, 0, True),
        (COMMAND, 1_028, True),
        (COMMAND, 1_029, False),
    ],
)
def test_the_next_pdu_follows_after_digests_and_additional_headers(opcode: int, spare: int, is_chained: bool) -> None:
    stream = PduStream([pdu(48 + spare, 52), pdu(0, 0, opcode)], [])
    assert stream.is_chained(0) is is_chained
    assert stream.end(0) == (48 + spare if is_chained else 48)
    assert not stream.is_chained(1)
    assert stream.end(1) == 48 + spare + 48 + 52


def test_a_pdu_covers_what_lies_after_its_first_byte() -> None:
    stream = PduStream([pdu(0, 52), pdu(200, 52)], [])
    found = [stream.covering(offset) for offset in (-1, 0, 1, 99, 100, 199, 200, 201, 299, 300)]
    assert found == [None, None, 0, 0, None, None, None, 1, 1, None]


def test_bytes_in_no_segment_are_a_hole() -> None:
    stream = PduStream([], [piece(2, 100, 50), piece(1, 0, 100), piece(3, 160, 40), piece(4, 165, 5), piece(5, 210, 9)])
    holes = [(0, 150), (149, 151), (150, 160), (159, 161), (160, 200), (170, 201), (200, 210), (210, 219)]
    assert [stream.has_hole(*each) for each in holes] == [False, True, True, True, False, True, True, False]
    assert stream.has_hole(-1, 1)
    assert stream.has_hole(218, 220)
    assert not stream.has_hole(160, 160)
    assert PduStream([], []).has_hole(5, 6)


def test_the_frames_of_a_pdu_are_those_with_its_bytes() -> None:
    pieces = [piece(1, 0, 60), piece(2, 60, 40), piece(3, 100, 100), piece(4, 200, 1), piece(5, 148, 2)]
    stream = PduStream([pdu(60, 40), pdu(148, 4)], pieces)
    # from 60 to 148, and from 148 to 200
    assert stream.frames(0) == [2, 3]
    assert stream.frames(1) == [3, 5]
    assert PduStream([pdu(59, 0)], pieces).frames(0) == [1, 2, 3]
    assert PduStream([pdu(153, 0)], pieces).frames(0) == [3, 4]


def shown() -> ShownPdu:
    return ShownPdu(1, {}, None, None, None)


def test_tshark_or_a_digest_confirms_all_pdus_of_a_chain() -> None:
    """Three PDUs in a row, a gap, and two more."""
    offsets = (0, 48, 96, 500, 548)

    def confirmed(place: int) -> list[str | None]:
        stream = PduStream([pdu(offset) for offset in offsets], [])
        stream.matched[place] = shown()
        return [stream.confirmation(each) for each in range(5)]

    of_first, of_last = (f"tshark shows the PDU of frame {frame} in the same chain" for frame in (100, 648))
    assert confirmed(0) == [of_first, of_first, of_first, None, None]
    assert [each is not None for each in confirmed(2)] == [True, True, True, False, False]
    assert confirmed(4) == [None, None, None, of_last, of_last]
    assert [each is not None for each in confirmed(3)] == [False, False, False, True, True]


@pytest.mark.parametrize("digest", ["header_digest_ok", "data_digest_ok"])
def test_a_digest_confirms_only_where_it_verifies(digest: str) -> None:
    good = PduStream([pdu(0), pdu(48, **{digest: 1})], [])
    assert good.confirmation(0) == "the digest of the PDU of frame 148 in the same chain"
    assert PduStream([pdu(0), pdu(48, **{digest: 0})], []).confirmation(0) is None
