"""Which packets, ACKs, SACKs and PDUs a time-sequence plot shows, in tables made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.plots import marks
from iscsitrace.plots.kinds import sequence
from iscsitrace.plots.marks import Detail, Label
from iscsitrace.plots.view import View
from tests.support.tables_by_hand import table

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
VIEW = View(origin_ns=0, start_ns=100, end_ns=200, connections=(0,))
"""Data to the initiator, so that ACKs are to the target."""


def data(time_ns: int, offset: int, length: int, segment_class: str = "new", **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": time_ns, "flags": ACK, "segment_class": segment_class}
    return row | {"stream_offset_bytes": offset, "payload_bytes": length} | columns


def ack(time_ns: int, offset: int | None, window: int = 5000, **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "to_target": True, "time_ns": time_ns, "flags": ACK, "segment_class": "empty"}
    return row | {"ack_offset_bytes": offset, "window_bytes": window} | columns


def curves(
    *segments: dict[str, Any],
    sacks: list[dict[str, Any]] | None = None,
    pdus: list[dict[str, Any]] | None = None,
    detail: Detail | None = None,
) -> sequence.Sequence:
    return sequence.compute(
        table("segments", *(segments or [ack(100, 0)])),
        table("sacks", *(sacks or [])),
        table("pdus", *(pdus or [])),
        table("cycles"),
        VIEW,
        detail,
    )


def points(line: Any) -> list[tuple[int, int]]:
    return list(zip(line.times_ns.tolist(), line.values.tolist(), strict=True))


def test_each_class_has_its_bars_and_one_byte_is_drawn() -> None:
    found = curves(
        data(100, 0, 10),
        data(110, 20, 10),
        data(120, 10, 10, "reordered"),
        data(130, 0, 10, "retransmission"),
        data(140, 30, 1, "probe"),
        data(150, 30, 10, "copy"),
        data(160, 31, 0, "retransmission", flags=SYN),
        data(99, 40, 10),
        data(201, 40, 10),
        data(170, 40, 10, connection=1),
        data(170, 40, 10, to_target=True),
    )
    bars = {
        name: list(zip(each.times_ns.tolist(), each.lows.tolist(), each.highs.tolist(), strict=True))
        for name, each in found.segments.items()
    }
    assert bars == {
        "new": [(100, 0, 10), (110, 20, 30)],
        "reordered": [(120, 10, 20)],
        "retransmission": [(130, 0, 10)],
        "probe": [(140, 30, 31)],
    }
    # the copy and the packet of the other direction count too
    assert found.packet_count == 8


def test_notes_whose_texts_would_overlap_are_one() -> None:
    notes = [Label(*each) for each in ((120, 10, "FIN"), (122, 11, "RST"), (123, 11, "RST"), (140, 11, "RST"))]
    assert sequence.joined(reversed(notes), VIEW, 1_000) == [Label(120, 10, "FIN, RST"), Label(140, 11, "RST")]
    # at another height
    assert len(sequence.joined(notes, VIEW, 10)) == 3


def test_syn_fin_and_rst_are_noted_at_their_offset() -> None:
    found = curves(
        data(100, -1, 0, "empty", flags=SYN | ACK),
        data(110, 0, 10, flags=PSH | ACK),
        data(120, 10, 0, "empty", flags=FIN | ACK),
        data(130, 11, 0, "empty", flags=RST),
        data(140, 0, 0, "empty", flags=SYN | FIN),
        data(99, 0, 0, "empty", flags=SYN),
    )
    assert [(note.time_ns, note.value, note.text) for note in found.notes] == [
        (100, 0, "SYN"),
        (120, 10, "FIN"),
        (130, 11, "RST"),
        (140, 0, "SYN FIN"),
    ]


@pytest.mark.parametrize("rows", [1 << 20, 20])
def test_the_first_24_notes_are_shown(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(marks, "CHUNK_ROWS", rows)
    found = curves(*(data(100 + number, number, 0, "empty", flags=RST) for number in range(26)))
    assert [note.value for note in found.notes] == list(range(24))


def test_a_duplicate_ack_repeats_offset_and_window_without_data_or_flags() -> None:
    found = curves(
        ack(100, None, 7000, flags=SYN),
        ack(110, 0),
        ack(111, 0),
        ack(112, 0, flags=SYN | ACK),
        ack(113, 0, flags=FIN | ACK),
        ack(114, 0, flags=RST | ACK),
        ack(115, 0, payload_bytes=1),
        ack(116, 0, 6000),
        ack(117, 0, 6000, segment_class="copy"),
        ack(118, 1, 6000),
        ack(119, 1, 6000),
        ack(120, 1, 0),
        ack(121, 1, 1),
    )
    assert points(found.duplicate_acks) == [(111, 0), (119, 1)]
    assert points(found.zero_windows) == [(120, 1)]
    assert points(found.acks) == [
        *((at, 0) for at in range(110, 117)),
        *((at, 1) for at in range(118, 122)),
        (200, 1),
    ]
    assert points(found.window)[-5:] == [(118, 6001), (119, 6001), (120, 1), (121, 2), (200, 2)]


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_a_duplicate_ack_is_found_across_chunks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(marks, "CHUNK_ROWS", rows)
    found = curves(
        ack(100, 0, 5000), ack(110, 10, 6000), ack(120, 10, 6000), ack(130, 20, 6000), ack(140, 0, 5000)
    )  # fmt: skip
    assert points(found.duplicate_acks) == [(120, 10)]


def test_sacks_are_those_of_the_direction_in_the_view() -> None:
    def sack(time_ns: int, left: int, **columns: Any) -> dict[str, Any]:
        row = {"connection": 0, "time_ns": time_ns, "left_offset_bytes": left, "right_offset_bytes": left + 5}
        return row | columns

    others = [sack(99, 4), sack(201, 5), sack(120, 6, connection=1), sack(120, 7, to_target=True)]
    found = curves(sacks=[sack(100, 1), sack(110, 2, is_duplicate=True), sack(200, 3), *others])
    assert (found.sacks.times_ns.tolist(), found.sacks.lows.tolist(), found.sacks.highs.tolist()) == (
        [100, 200],
        [1, 3],
        [6, 8],
    )
    assert (found.duplicate_sacks.times_ns.tolist(), found.duplicate_sacks.highs.tolist()) == ([110], [7])


def pdu(time_ns: int, opcode: int, offset: int = 0, **columns: Any) -> dict[str, Any]:
    return {"connection": 0, "time_first_ns": time_ns, "opcode": opcode, "stream_offset_bytes": offset} | columns


def test_pdus_are_marked_by_kind_where_they_start() -> None:
    """Opcodes: RFC 7143, section 11.2.1.2."""
    command, data_out, data_in, nop_in, r2t, response, text = 0x01, 0x05, 0x25, 0x20, 0x31, 0x21, 0x04
    others = [pdu(99, command), pdu(201, command), pdu(120, command, connection=1), pdu(120, command, to_target=True)]
    found = curves(
        pdus=[
            pdu(100, command, 1),
            pdu(110, data_out, 2),
            pdu(120, data_in, 3),
            pdu(130, r2t, 4),
            pdu(140, response, 5),
            pdu(150, nop_in, 6),
            pdu(160, text, 8),
            pdu(200, command, 7),
            *others,
        ]
    )
    assert {kind: points(line) for kind, line in found.pdus.items()} == {
        "command": [(100, 1), (200, 7)],
        "data": [(110, 2), (120, 3)],
        "response": [(140, 5)],
        "R2T": [(130, 4)],
        "other": [(150, 6), (160, 8)],
    }
    assert found.pdu_count == 8


def test_of_more_than_400_pdus_none_is_marked() -> None:
    assert len(curves(pdus=[pdu(150, 0x25, number) for number in range(400)]).pdus["data"]) == 400
    many = curves(pdus=[pdu(150, 0x25, number) for number in range(401)])
    assert (many.pdus, many.pdu_count) == ({}, 401)


def test_packets_are_decimated_beyond_the_limit() -> None:
    segments = [data(100, 0, 1), data(150, 1, 1), data(200, 2, 1), data(99, 9, 1), data(150, 9, 1, connection=1)]
    assert not curves(*segments, detail=Detail(limit=3, columns=1)).is_decimated
    found = curves(*segments, detail=Detail(limit=2, columns=1))
    assert found.is_decimated
    assert (found.segments["new"].lows.tolist(), found.segments["new"].highs.tolist()) == ([0], [3])


def test_a_zero_window_is_at_the_offset_of_its_ack() -> None:
    found = curves(ack(110, 10, 0), ack(120, 20, 1), ack(130, 30, 0))
    assert points(found.zero_windows) == [(110, 10), (130, 30)]
