"""Explanations of differences from tshark, each with its evidence; without evidence a difference is unexplained."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.compare.second_opinion import Comparison, Dissection, Frame, ShownPdu, compare
from tests.support.tables_by_hand import table

COMMAND, DATA_IN = 0x01, 0x25
DATA_BYTES = 952  # with its header 1000 bytes: one segment each


def data_in(number: int, **more: Any) -> dict[str, Any]:
    """Data-In `number` of a stream of equal ones, each in frame 10 + number."""
    row = {
        "connection": 0,
        "to_target": False,
        "frame_first": 10 + number,
        "frame_last": 10 + number,
        "stream_offset_bytes": 1000 * number,
        "header_bytes": 48,
        "opcode": DATA_IN,
        "initiator_task_tag": 7,
        "data_sn": number,
        "buffer_offset": number * DATA_BYTES,
        "data_segment_length": DATA_BYTES,
    }
    return row | more


def segment(frame: int, offset: int, payload_bytes: int = 1000, segment_class: str = "new") -> dict[str, Any]:
    return {
        "connection": 0,
        "to_target": False,
        "frame": frame,
        "stream_offset_bytes": offset,
        "payload_bytes": payload_bytes,
        "segment_class": segment_class,
    }


def shown(number: int, frame: int | None = None, place_bytes: int = 0, **more: int) -> ShownPdu:
    """The same PDU as tshark shows it."""
    row = data_in(number)
    names = ("opcode", "initiator_task_tag", "data_sn", "buffer_offset", "data_segment_length")
    frame = row["frame_last"] if frame is None else frame
    return ShownPdu(frame, {name: row[name] for name in names} | more, frame, place_bytes, None)


OURS = [data_in(number) for number in range(4)]
SEGMENTS = [segment(10 + number, 1000 * number) for number in range(4)]
SHOWN = [shown(number) for number in range(4)]


def compared(
    ours: list[dict[str, Any]],
    theirs: list[ShownPdu],
    segments: list[dict[str, Any]] = SEGMENTS,
    *frames: Frame,
    as_arrived: list[ShownPdu] | None = None,
) -> Comparison:
    dissection = Dissection("TShark", theirs, as_arrived or [], {frame.frame: frame for frame in frames})
    return compare(table("pdus", *ours), table("segments", *segments), dissection)


def explanations(result: Comparison) -> list[tuple[str, str | None]]:
    return [(difference.kind, difference.explanation) for difference in result.differences]


def weak(frame: int, **flags: bool) -> Frame:
    return Frame(frame, **({"is_cut": False, "is_malformed": False, "is_irregular": False} | flags))


def test_agreement() -> None:
    result = compared(OURS, SHOWN)
    assert result.matched_pdu_count == 4
    assert result.differences == []


def test_pdus_shown_only_without_reordering_are_compared_too() -> None:
    as_arrived = [shown(2), shown(3, max_cmd_sn=9), shown(8)]
    result = compared(OURS, SHOWN[:2], as_arrived=as_arrived)
    assert result.matched_pdu_count == 4
    # the wrong field counts; a PDU that only this setting shows does not, for late segments mislead it
    assert [difference.text for difference in result.differences] == ["max_cmd_sn: ours None, tshark 9"]


def test_a_field_that_differs_is_never_explained() -> None:
    result = compared(OURS, [*SHOWN[:3], shown(3, max_cmd_sn=5)])
    assert explanations(result) == [("field", None)]
    assert result.differences[0].text == "max_cmd_sn: ours None, tshark 5"


def test_a_field_of_a_cut_header_is_no_difference() -> None:
    result = compared([*OURS[:3], data_in(3, header_bytes=40)], [*SHOWN[:3], shown(3, max_cmd_sn=5)])
    assert result.differences == []


def test_status_fields_of_data_without_status_are_reserved() -> None:
    # RFC 7143 section 11.7.3: valid only with the S bit
    theirs = [*SHOWN[:3], shown(3, stat_sn=5, status=0)]
    assert compared([*OURS[:3], data_in(3, has_status=False)], theirs).differences == []
    assert len(compared([*OURS[:3], data_in(3, has_status=True)], theirs).unexplained) == 2


def test_a_pdu_that_only_we_show_is_unexplained_without_evidence() -> None:
    assert explanations(compared(OURS, SHOWN[:2] + SHOWN[3:])) == [("ours_only", None)]


@pytest.mark.parametrize("digest", ["header_digest_ok", "data_digest_ok"])
def test_a_verified_digest_explains_a_pdu(digest: str) -> None:
    def ours(verdict: int | None) -> list[dict[str, Any]]:
        return [*OURS[:2], data_in(2, **{digest: verdict}), OURS[3]]

    assert explanations(compared(ours(1), SHOWN[:2] + SHOWN[3:])) == [("ours_only", "tshark_digest_layout")]
    assert explanations(compared(ours(0), SHOWN[:2] + SHOWN[3:])) == [("ours_only", None)]


@pytest.mark.parametrize(
    ("flag", "explanation"),
    [
        ("is_cut", "tshark_snaplen"),
        ("is_malformed", "tshark_malformed"),
        ("is_irregular", "tshark_irregular_segment"),
    ],
)
def test_frames_that_tshark_does_not_dissect(flag: str, explanation: str) -> None:
    theirs = SHOWN[:2] + SHOWN[3:]
    assert explanations(compared(OURS, theirs, SEGMENTS, weak(12, **{flag: True}))) == [("ours_only", explanation)]
    # a frame of another PDU is no evidence once tshark has shown a sound one since
    assert explanations(compared(OURS, theirs, SEGMENTS, weak(10, **{flag: True}))) == [("ours_only", None)]


def test_a_hole_in_the_pdu() -> None:
    segments = [*SEGMENTS[:2], segment(12, 2000, 500), SEGMENTS[3]]
    result = compared(OURS, SHOWN[:2] + SHOWN[3:], segments)
    assert explanations(result) == [("ours_only", "tshark_capture_gap")]


def test_our_own_report_of_a_hole_is_no_evidence() -> None:
    ours = [*OURS[:2], data_in(2, has_capture_gap=True), OURS[3]]
    assert explanations(compared(ours, SHOWN[:2] + SHOWN[3:])) == [("ours_only", None)]


def test_a_hole_explains_missing_pdus_until_tshark_shows_one_again() -> None:
    ours = [data_in(number) for number in range(6)]
    segments = [segment(10 + number, 1000 * number) for number in range(6)]
    segments[1] = segment(11, 1000, 500)
    theirs = [shown(0), shown(4)]
    result = compared(ours, theirs, segments)
    assert explanations(result) == [
        ("ours_only", "tshark_capture_gap"),
        ("ours_only", "tshark_lost_place"),
        ("ours_only", "tshark_lost_place"),
        ("ours_only", None),
    ]


def test_a_hole_between_two_pdus() -> None:
    ours = [OURS[0], data_in(2), data_in(3)]
    segments = [SEGMENTS[0], SEGMENTS[2], SEGMENTS[3]]
    result = compared(ours, [shown(0)], segments)
    assert explanations(result) == [("ours_only", "tshark_lost_place"), ("ours_only", "tshark_lost_place")]


def test_a_pdu_inside_another_is_never_explained() -> None:
    false = data_in(9, stream_offset_bytes=2100, frame_first=12, frame_last=12, header_digest_ok=1)
    result = compared([*OURS, false], SHOWN, SEGMENTS, weak(12, is_malformed=True))
    assert explanations(result) == [("ours_only", None)]


def test_a_pdu_whose_header_was_never_captured_is_never_explained() -> None:
    result = compared([*OURS, data_in(9)], SHOWN)
    assert explanations(result) == [("ours_only", None)]


def test_a_pdu_that_only_tshark_shows_is_unexplained_without_evidence() -> None:
    assert explanations(compared(OURS[:3], SHOWN)) == [("tshark_only", None)]


def test_a_pdu_shown_twice_because_of_a_retransmission() -> None:
    theirs = [*SHOWN, shown(3, frame=14)]
    for segment_class, explanation in (("copy", "tshark_duplicate_copy"), ("new", None)):
        segments = [*SEGMENTS, segment(14, 3000, segment_class=segment_class)]
        assert explanations(compared(OURS, theirs, segments)) == [("tshark_only", explanation)]


def test_a_header_read_inside_a_pdu_that_others_confirm() -> None:
    false = shown(8, frame=12, place_bytes=100)
    assert explanations(compared(OURS, [*SHOWN, false])) == [("tshark_only", "tshark_false_pdu")]


def test_a_header_read_inside_a_pdu_that_nothing_confirms() -> None:
    # nothing confirms our PDU: tshark shows neither it nor a neighbour, and it has no digest
    alone = data_in(2)
    result = compared([alone], [shown(8, frame=12, place_bytes=100, opcode=COMMAND)], [SEGMENTS[2]])
    assert ("tshark_only", None) in explanations(result)


def test_a_pdu_shown_with_the_frame_that_filled_a_hole_before_it() -> None:
    # frame 11 came after frame 12: tshark shows PDU 2 when the stream is whole again
    ours = [OURS[0], data_in(1, frame_first=12, frame_last=12), data_in(2, frame_first=11, frame_last=11), OURS[3]]
    segments = [SEGMENTS[0], segment(12, 1000), segment(11, 2000), SEGMENTS[3]]
    theirs = [shown(0), shown(1, frame=12), shown(2, frame=12, place_bytes=1000), shown(3)]
    assert explanations(compared(ours, theirs, segments)) == [("frame", "tshark_delivery_order")]


def test_a_pdu_shown_with_a_later_frame_that_filled_nothing() -> None:
    theirs = [*SHOWN[:2], shown(2, frame=13), SHOWN[3]]
    assert explanations(compared(OURS, theirs)) == [("frame", None)]


def test_streams_of_different_connections_are_separate() -> None:
    segments = [*SEGMENTS[:3], SEGMENTS[3] | {"connection": 1}]
    result = compared(OURS, SHOWN, segments)
    assert {difference.kind for difference in result.unexplained} >= {"tshark_only", "ours_only"}


def test_a_difference_names_opcode_and_tag() -> None:
    (ours,) = compared(OURS, SHOWN[:2] + SHOWN[3:]).differences
    assert ours.text == "opcode 0x25, Initiator Task Tag 0x00000007: tshark does not show it"
    assert (ours.connection, ours.frame, ours.evidence) == (0, 12, "")
    untagged = ShownPdu(12, {"opcode": COMMAND}, 12, 0, None)
    (theirs,) = compared(OURS, [*SHOWN, untagged]).differences
    assert theirs.text == "opcode 0x01, Initiator Task Tag unknown: only tshark shows it"


def test_tshark_loses_sync_at_a_cut_frame_until_it_shows_a_pdu_again() -> None:
    result = compared(OURS, SHOWN[:1], SEGMENTS, weak(11, is_cut=True))
    assert [(each.frame, each.explanation, each.evidence) for each in result.differences] == [
        (11, "tshark_snaplen", "frame 11 (cut)"),
        (12, "tshark_lost_place", "frame 11 (cut) of the PDU of frame 11"),
        (13, "tshark_lost_place", "frame 11 (cut) of the PDU of frame 11"),
    ]
    assert result.explained_counts() == {"tshark_snaplen": 1, "tshark_lost_place": 2}
    assert result.unexplained == []


def test_a_pdu_whose_end_was_not_seen_is_not_shown_late() -> None:
    ours = [*OURS[:3], data_in(3, frame_last=None)]
    assert explanations(compared(ours, [*SHOWN[:3], shown(3, frame=12)])) == [("frame", None)]


def test_differences_are_in_order_of_frames_then_of_kinds() -> None:
    ours = [OURS[0], data_in(1, max_cmd_sn=7), *OURS[2:]]
    extra = shown(9, frame=11, place_bytes=4)
    theirs = [SHOWN[0], shown(1, max_cmd_sn=5), extra, shown(3, max_cmd_sn=9)]
    result = compared(ours, theirs)
    assert [(each.frame, each.kind) for each in result.differences] == [
        (11, "field"),
        (11, "tshark_only"),
        (12, "ours_only"),
        (13, "field"),
    ]
    assert (result.our_pdu_count, result.tshark_pdu_count, result.matched_pdu_count) == (4, 4, 3)


@pytest.mark.parametrize("opcode", [0x00, 0x04, 0x05, 0x20, 0x24], ids=hex)
@pytest.mark.parametrize(("tag", "name", "count"), [(0xFFFFFFFF, "lun", 0), (5, "lun", 1), (0xFFFFFFFF, "stat_sn", 1)])
def test_without_a_target_transfer_tag_the_lun_is_reserved(opcode: int, tag: int, name: str, count: int) -> None:
    # RFC 7143 sections 11.7.4, 11.10, 11.11, 11.18 and 11.19
    ours = [*OURS[:3], data_in(3, opcode=opcode, to_target=opcode < 0x20, target_transfer_tag=tag)]
    segments = [*SEGMENTS[:3], SEGMENTS[3] | {"to_target": opcode < 0x20}]
    found = compared(ours, [*SHOWN[:3], shown(3, opcode=opcode, **{name: 0})], segments)
    assert (found.matched_pdu_count, len(found.differences)) == (4, count)


@pytest.mark.parametrize(("opcode", "count"), [(0x02, 0), (0x10, 0), (0x32, 0), (0x01, 1), (0x31, 1)])
def test_a_lun_that_is_never_reserved_is_a_difference(opcode: int, count: int) -> None:
    """That of task management, SNACKs and events is, by a code that the table lacks; a command's and an R2T's never."""
    ours = [*OURS[:3], data_in(3, opcode=opcode, to_target=opcode < 0x20)]
    segments = [*SEGMENTS[:3], SEGMENTS[3] | {"to_target": opcode < 0x20}]
    found = compared(ours, [*SHOWN[:3], shown(3, opcode=opcode, lun=5)], segments)
    assert (found.matched_pdu_count, len(found.differences)) == (4, count)


@pytest.mark.parametrize("digest", ["header_digest_ok", "data_digest_ok"])
@pytest.mark.parametrize(("verdict", "explanation"), [(1, "tshark_digest_layout"), (0, None), (None, None)])
def test_a_pdu_shown_with_another_of_its_frames_is_explained_by_its_digest(
    digest: str, verdict: int | None, explanation: str | None
) -> None:
    # PDU 2 is in frames 12 and 13, and tshark completes it in frame 12
    ours = [*OURS[:2], data_in(2, frame_last=13, **{digest: verdict})]
    segments = [*SEGMENTS[:2], segment(12, 2000, 500), segment(13, 2500, 500)]
    assert explanations(compared(ours, SHOWN[:3], segments)) == [("frame", explanation)]
    # frame 11 has no bytes of it
    elsewhere = compared(ours, [*SHOWN[:2], shown(2, frame=11)], segments)
    assert explanations(elsewhere) == [("frame", None)]


def test_a_pdu_shown_with_a_frame_that_is_cut_or_has_a_hole() -> None:
    ours = [*OURS[:2], data_in(2, frame_last=13)]
    segments = [*SEGMENTS[:2], segment(12, 2000, 500), segment(13, 2500, 500)]
    cut = compared(ours, SHOWN[:3], segments, weak(12, is_cut=True))
    (difference,) = cut.differences
    assert (difference.explanation, difference.evidence) == ("tshark_snaplen", "frame 12 (cut)")
    assert difference.text == "completed in frame 13, by tshark in 12"
    malformed = compared(ours, SHOWN[:3], segments, weak(12, is_malformed=True))
    assert explanations(malformed) == [("frame", None)]
    # a cut frame of another PDU is no evidence
    elsewhere = compared(ours, [*SHOWN[:2], shown(2, frame=11)], segments, weak(11, is_cut=True))
    assert explanations(elsewhere) == [("frame", None)]
    hole = compared(ours, SHOWN[:3], [*segments[:3], segment(13, 2600, 400)])
    assert explanations(hole) == [("frame", "tshark_capture_gap")]


def test_a_pdu_shown_with_a_frame_that_repeats_its_bytes() -> None:
    for kind in ("copy", "retransmission", "probe", "new"):
        segments = [*SEGMENTS, segment(14, 2000, segment_class=kind)]
        result = compared(OURS, [*SHOWN[:2], shown(2, frame=14), SHOWN[3]], segments)
        assert explanations(result) == [("frame", None if kind == "new" else "tshark_duplicate_copy")]
        assert result.differences[0].evidence == ("" if kind == "new" else f"frame 14 is a {kind}")


def test_a_false_header_is_found_from_either_end_of_its_frame() -> None:
    def false(place_bytes: int | None, place_tail_bytes: int | None) -> list[tuple[str, str | None]]:
        values = {"opcode": DATA_IN, "initiator_task_tag": 99}
        pdu = ShownPdu(12, values, 12, place_bytes, place_tail_bytes)
        return explanations(compared(OURS, [*SHOWN, pdu]))

    inside, outside = [("tshark_only", "tshark_false_pdu")], [("tshark_only", None)]
    # PDU 2 is from 2000 to 3000: a header at its first byte would be its own
    assert false(1, None) == false(None, 999) == false(None, 1) == inside
    assert false(0, None) == false(None, 1000) == outside
    # without any place it begins after its frame, where PDU 3 begins
    assert false(None, None) == outside


def test_a_header_without_a_captured_frame_has_no_place() -> None:
    values = {"opcode": DATA_IN, "initiator_task_tag": 99}
    for frame in (None, 77):
        assert explanations(compared(OURS, [*SHOWN, ShownPdu(12, values, frame, 100, None)])) == [("tshark_only", None)]


def test_fields_that_one_side_lacks_do_not_tell_pdus_apart() -> None:
    ours = [*OURS[:2], data_in(2, data_sn=None), OURS[3]]
    theirs = [*SHOWN[:3], ShownPdu(13, {"opcode": DATA_IN, "initiator_task_tag": 7}, 13, 0, None)]
    result = compared(ours, theirs)
    assert (result.matched_pdu_count, [each.text for each in result.differences]) == (
        4,
        ["data_sn: ours None, tshark 2"],
    )


def test_a_pdu_in_a_frame_that_we_do_not_have_is_of_no_connection() -> None:
    result = compared(OURS, [*SHOWN[:3], shown(3, frame=77)])
    assert [(each.kind, each.connection, each.frame) for each in result.differences] == [
        ("ours_only", 0, 13),
        ("tshark_only", None, 77),
    ]
