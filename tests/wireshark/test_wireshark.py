"""tshark on conversations with known truth: it agrees with the truth, and every falsified value is found.

A missing tshark or PyShark is a failure here, never a reason to skip.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.compare.second_opinion import Comparison, Dissection, compare
from iscsitrace.errors import ToolMissing
from iscsitrace.measure.selection import display_filter
from iscsitrace.tables.schema import TABLES
from iscsitrace.wireshark import dissect as wireshark
from tests.support import hand_timed as by_hand
from tests.support import tshark
from tests.support.capture_file import cut, write_pcap
from tests.support.conversation import Capture, Conversation, Session
from tests.support.pdu import DATA_IN
from tests.support.tables_by_hand import table
from tests.support.transport import ETHERNET, Packet
from tests.support.transport import Path as NetworkPath
from tests.support.truth import observe

PDU_COLUMNS = {column.name for column in TABLES["pdus"].columns}


# where RFC 7143 section 11 puts the 32-bit fields of each opcode's header
_REQUEST = {"cmd_sn": 24, "exp_stat_sn": 28}
_ANSWER = {"stat_sn": 24, "exp_cmd_sn": 28, "max_cmd_sn": 32}
LAYOUTS = {
    0x00: {**_REQUEST, "target_transfer_tag": 20},
    0x01: {**_REQUEST, "expected_data_transfer_length": 20},
    0x03: _REQUEST,
    0x05: {"target_transfer_tag": 20, "exp_stat_sn": 28, "data_sn": 36, "buffer_offset": 40},
    0x06: _REQUEST,
    0x20: {**_ANSWER, "target_transfer_tag": 20},
    0x21: _ANSWER,
    0x23: _ANSWER,
    0x25: {**_ANSWER, "target_transfer_tag": 20, "data_sn": 36, "buffer_offset": 40},
    0x26: _ANSWER,
    0x31: {
        **_ANSWER,
        "target_transfer_tag": 20,
        "data_sn": 36,
        "buffer_offset": 40,
        "expected_data_transfer_length": 44,
    },
}
WITH_LUN = (0x00, 0x01, 0x05, 0x20, 0x25, 0x31)


def headers_of(capture: Capture) -> dict[tuple[int, bool, int], bytes]:
    """The header bytes that were sent, by connection, direction and position in the stream."""
    streams: dict[tuple[int, bool], bytearray] = {}
    for packet in capture.packets:
        stream = streams.setdefault((packet.connection, packet.to_target), bytearray())
        payload = packet.data[packet.header_bytes :]
        stream += bytes(max(0, packet.stream_offset - len(stream)))
        stream[packet.stream_offset : packet.stream_offset + len(payload)] = payload
    return {
        (pdu.connection, pdu.to_target, pdu.stream_offset): bytes(
            streams[pdu.connection, pdu.to_target][pdu.stream_offset : pdu.stream_offset + 48]
        )
        for pdu in capture.pdus
    }


def header_fields(opcode: int, header: bytes) -> dict[str, Any]:
    """The fields of a header, by the RFC's figures."""
    fields: dict[str, Any] = {
        name: int.from_bytes(header[place : place + 4]) for name, place in LAYOUTS[opcode].items()
    }
    has_status = opcode == 0x21 or (opcode == DATA_IN and bool(header[1] & 1))
    if opcode == DATA_IN and not has_status:
        fields["stat_sn"] = None
    return fields | {
        "is_immediate": opcode < 0x20 and bool(header[0] & 0x40),
        "has_status": has_status,
        "status": header[3] if has_status else None,
        "lun": header[9] if opcode in WITH_LUN else None,
    }


def true_rows(capture: Capture, packets: Sequence[Packet]) -> list[dict[str, Any]]:
    """The rows of ``pdus`` of a perfect analysis."""
    headers = headers_of(capture)
    return [
        {
            "connection": seen.pdu.connection,
            "to_target": seen.pdu.to_target,
            "frame_first": seen.frame_first,
            "frame_last": seen.frame_last,
            "stream_offset_bytes": seen.pdu.stream_offset,
            "header_bytes": seen.header_bytes,
            "opcode": seen.pdu.opcode,
            "is_final": seen.pdu.is_final,
            "has_capture_gap": seen.has_capture_gap,
            "initiator_task_tag": seen.pdu.initiator_task_tag,
            "data_segment_length": seen.pdu.data_segment_length,
            "header_digest_ok": 1 if seen.pdu.has_header_digest else None,
            "data_digest_ok": 1 if seen.pdu.has_data_digest and seen.pdu.data_segment_length else None,
            **header_fields(seen.pdu.opcode, headers[seen.pdu.connection, seen.pdu.to_target, seen.pdu.stream_offset]),
        }
        for seen in observe(capture, packets).pdus
        if seen.has_header
    ]


def segment_rows(packets: Sequence[Packet]) -> list[dict[str, Any]]:
    return [
        {
            "connection": packet.connection,
            "to_target": packet.to_target,
            "frame": frame,
            "stream_offset_bytes": packet.stream_offset,
            "payload_bytes": packet.payload_bytes,
            "segment_class": "copy" if packet.is_copy else "retransmission" if packet.is_retransmission else "new",
        }
        for frame, packet in enumerate(packets, 1)
    ]


_DISSECTED: dict[tuple[bytes, int], Dissection] = {}
"""Of each content, by the target port: tshark reads it once for all tests."""


def against_tshark(
    folder: Path, packets: Sequence[Packet], rows: Sequence[dict[str, Any]], port: int = 3260
) -> Comparison:
    file = write_pcap(folder / "a.pcap", packets, ETHERNET)
    content = file.read_bytes()
    if (content, port) not in _DISSECTED:
        _DISSECTED[content, port] = wireshark.dissect(str(file), [port])
    return compare(table("pdus", *rows), table("segments", *segment_rows(packets)), _DISSECTED[content, port])


def conversation(settings: Session | None = None, path: NetworkPath | None = None) -> Capture:
    built = Conversation(path)
    built.session(settings).login().read(count=4).write(count=4).nop().logout()
    return built.run()


@pytest.fixture(scope="module")
def plain() -> Capture:
    return conversation()


@pytest.mark.parametrize("packet_limit", [None, 40])
def test_the_command_agrees_with_tshark_on_every_pdu_that_was_sent(
    tmp_path: Path, plain: Capture, packet_limit: int | None
) -> None:
    file = write_pcap(tmp_path / "a.pcap", plain.packets, ETHERNET)
    limit = [] if packet_limit is None else ["-c", str(packet_limit)]
    result = CliRunner().invoke(main, ["check", "--against", "tshark", "--json", *limit, str(file)])
    found = json.loads(result.output)["against_tshark"]
    assert found["unexplained_count"] == 0
    # where the last packet cuts a PDU, they may differ
    assert (found["matched_pdu_count"] == len(plain.pdus)) == (packet_limit is None)
    assert found["matched_pdu_count"] > 0


def test_tshark_agrees_with_the_truth(tmp_path: Path, plain: Capture) -> None:
    result = against_tshark(tmp_path, plain.packets, true_rows(plain, plain.packets))
    assert result.tshark_version == f"TShark (Wireshark) {'.'.join(map(str, tshark.version()))}"
    assert result.our_pdu_count == result.tshark_pdu_count == result.matched_pdu_count == len(plain.pdus)
    assert result.differences == []


def test_a_reserved_lun_that_tshark_shows_is_no_difference(tmp_path: Path) -> None:
    """LUN 5 in an unsolicited Data-Out, in target resets, and in an event of no logical unit."""
    lun, reserved = bytes([0, 5]) + bytes(6), by_hand.RESERVED
    wire = by_hand.Wire().send(1, by_hand.login_request({"InitialR2T": "No"}))
    wire.receive(2, by_hand.login_response({"InitialR2T": "No"}))
    wire.send(3, by_hand.command(7, by_hand.WRITE, cmd_sn=1, write=512, lun=5))
    unsolicited = (reserved, 0, 1, 0, 0, 0, 0)
    wire.send(4, by_hand.pdu(0x05, 0x80, b"\0\0", lun, 7, unsolicited, bytes(512))).receive(5, by_hand.response(7, 1))
    for number, function in enumerate((6, 7)):
        wire.send(6 + 2 * number, by_hand.management(20 + number, function, cmd_sn=2, lun=5))
        wire.receive(7 + 2 * number, by_hand.management_response(20 + number, 2 + number))
    wire.receive(10, by_hand.pdu(0x32, 0x80, b"\0\0", lun, reserved, (0, 4, 1, 64, 1 << 24, 0, 0), b""))
    file = by_hand.capture(tmp_path, wire)
    trace = iscsitrace.read(file, tables=("pdus", "segments"))
    found = compare(trace.pdus, trace.segments, wireshark.dissect(str(file), [3260]))
    assert (found.our_pdu_count, found.matched_pdu_count, found.differences) == (10, 10, [])


def test_other_ports_are_passed_to_tshark(tmp_path: Path) -> None:
    capture = conversation(path=NetworkPath(target_port=13_260))
    result = against_tshark(tmp_path, capture.packets, true_rows(capture, capture.packets), port=13_260)
    assert result.matched_pdu_count == len(capture.pdus)
    assert result.differences == []


def test_where_no_segment_is_late_tshark_shows_the_same_without_reordering() -> None:
    """So a capture without such frames is dissected once."""
    (sample,) = (Path(__file__).parents[2] / "samples" / "medium-error").glob("capture.*")
    found = wireshark.dissect(str(sample), [3260])
    _, as_arrived = wireshark._pdus(["-r", str(sample), *wireshark.preferences([3260], is_reordering=False)])
    assert (found.frames, found.pdus_in_order_of_arrival) == ({}, as_arrived)


def test_data_pdus_of_1_mib(tmp_path: Path) -> None:
    settings = Session(initiator_max_recv_data_segment_length=1 << 20, max_burst_length=1 << 20)
    built = Conversation()
    built.session(settings).login().read(count=2, block_bytes=1 << 20)
    capture = built.run()
    result = against_tshark(tmp_path, capture.packets, true_rows(capture, capture.packets))
    assert result.matched_pdu_count == len(capture.pdus)
    assert result.differences == []


def test_late_segments_change_only_the_frame(tmp_path: Path) -> None:
    capture = conversation(path=NetworkPath(late=frozenset({(False, 12), (True, 20)})))
    result = against_tshark(tmp_path, capture.packets, true_rows(capture, capture.packets))
    assert result.matched_pdu_count == len(capture.pdus)
    assert result.unexplained == []


@pytest.mark.parametrize(
    "name", ["opcode", "initiator_task_tag", "data_segment_length", "cmd_sn", "stat_sn", "data_sn"]
)
def test_one_wrong_field_is_found(tmp_path: Path, plain: Capture, name: str) -> None:
    rows = true_rows(plain, plain.packets)
    victim = next(row for row in reversed(rows) if row.get(name) is not None)
    rows[rows.index(victim)] = victim | {name: victim[name] ^ 4}
    assert against_tshark(tmp_path, plain.packets, rows).unexplained


def test_one_pdu_missed_and_one_invented_are_found(tmp_path: Path, plain: Capture) -> None:
    rows = true_rows(plain, plain.packets)
    missed = against_tshark(tmp_path, plain.packets, rows[:20] + rows[21:])
    assert [difference.kind for difference in missed.unexplained] == ["tshark_only"]
    invented = rows[20] | {"initiator_task_tag": 0x99, "stream_offset_bytes": rows[20]["stream_offset_bytes"] + 512}
    result = against_tshark(tmp_path, plain.packets, [*rows, invented])
    assert [difference.kind for difference in result.unexplained] == ["ours_only"]


def test_a_frame_number_off_by_one_is_found(tmp_path: Path, plain: Capture) -> None:
    rows = true_rows(plain, plain.packets)
    rows[10] = rows[10] | {"frame_last": rows[10]["frame_last"] + 1}
    assert [difference.kind for difference in against_tshark(tmp_path, plain.packets, rows).unexplained] == ["frame"]


def test_pdus_hidden_from_tshark_by_a_snaplen_are_explained(tmp_path: Path) -> None:
    capture = conversation(path=NetworkPath(is_pdu_per_segment=True))
    packets = cut(capture.packets, 128)
    rows = true_rows(capture, packets)
    result = against_tshark(tmp_path, packets, rows)
    assert result.tshark_pdu_count < len(rows)
    assert result.unexplained == []
    assert "tshark_snaplen" in result.explained_counts()


def test_pdus_hidden_from_tshark_by_a_hole_are_explained(tmp_path: Path, plain: Capture) -> None:
    data = [place for place, packet in enumerate(plain.packets) if packet.payload_bytes == 1448]
    packets = [packet for place, packet in enumerate(plain.packets) if place != data[len(data) // 3]]
    rows = true_rows(plain, packets)
    result = against_tshark(tmp_path, packets, rows)
    assert result.matched_pdu_count < len(rows)
    assert result.unexplained == []


def test_digests_without_login_are_explained(tmp_path: Path) -> None:
    capture = conversation(Session(header_digest=True, data_digest=True))
    packets = capture.without_login()
    rows = true_rows(capture, packets)
    result = against_tshark(tmp_path, packets, rows)
    assert result.unexplained == []
    assert result.explained_counts().keys() <= {"tshark_digest_layout", "tshark_lost_place", "tshark_false_pdu"}


def test_a_display_filter_shows_the_frames_of_its_cycle(tmp_path: Path, plain: Capture) -> None:
    file = write_pcap(tmp_path / "a.pcap", plain.packets, ETHERNET)
    for cycle in observe(plain, plain.packets).cycles:
        row = {**cycle.columns, "connection": cycle.record.connection}
        row["initiator_task_tag"] = cycle.record.initiator_task_tag
        command = ["tshark", "-n", "-r", str(file), "-Y", display_filter(row), "-T", "fields", "-e", "frame.number"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert {int(frame) for frame in shown.split()} == {pdu.frame_last for pdu in cycle.pdus}


def test_tshark_knows_every_preference() -> None:
    known = subprocess.run(["tshark", "-G", "currentprefs"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    given = wireshark.preferences([13_260])
    names = [given[place + 1].partition(":")[0] for place, option in enumerate(given) if option == "-o"]
    assert names
    assert [name for name in names if f"{name}:" not in known] == []
    assert "tcp.port==13260,iscsi" in given


def test_tshark_knows_every_field() -> None:
    fields = subprocess.run(["tshark", "-G", "fields"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    known = {line.split("\t")[2] for line in fields.splitlines() if line.startswith("F\t")}
    assert wireshark.FIELDS.keys() - known == set()
    assert set(wireshark.FIELDS.values()) - PDU_COLUMNS == set()


def test_a_file_that_tshark_refuses_is_a_one_line_error(tmp_path: Path) -> None:
    file = tmp_path / "a.pcap"
    file.write_text("this is no capture")
    with pytest.raises(ToolMissing, match="tshark failed"):
        wireshark.dissect(str(file), [])


def test_pyshark_shows_the_fields_of_a_frame(tmp_path: Path, plain: Capture) -> None:
    file = write_pcap(tmp_path / "a.pcap", plain.packets, ETHERNET)
    row = next(row for row in true_rows(plain, plain.packets) if row["opcode"] == DATA_IN)
    ((number, pdus),) = wireshark.show_frames(str(file), [row["frame_last"]], [3260])
    assert number == row["frame_last"]
    tags = [value for fields in pdus for name, value in fields if name == "iscsi.initiatortasktag"]
    assert any(f"{row['initiator_task_tag']:#010x}" in tag for tag in tags)
    # the end of child processes is no longer reported
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGCHLD) in {signal.SIG_DFL, None}


def test_pyshark_works_where_asyncio_has_run(tmp_path: Path, plain: Capture) -> None:
    asyncio.run(asyncio.sleep(0))
    file = write_pcap(tmp_path / "a.pcap", plain.packets, ETHERNET)
    row = next(row for row in true_rows(plain, plain.packets) if row["opcode"] == DATA_IN)
    for _ in range(2):
        assert [number for number, _ in wireshark.show_frames(str(file), [row["frame_last"]], [3260])] == [
            row["frame_last"]
        ]


def inspected(file: Path, *arguments: str) -> list[tuple[int, bool, dict[str, str]]]:
    """The output of ``inspect``: for each PDU its frame, whether Wireshark shows it, and our columns."""
    result = CliRunner().invoke(main, ["inspect", *arguments, str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    blocks = []
    for block in result.stdout.split("\nframe ")[1:]:
        number, *lines = block.splitlines()
        columns = {name: value for *_, name, value in (line.split() for line in lines if len(line.split()) > 1)}
        blocks.append((int(number), "Wireshark shows no such PDU" not in block, columns))
    return blocks


@pytest.fixture(scope="module")
def chained() -> Capture:
    """Reads of several Data-In PDUs each, so that one starts in the frame in which another ends."""
    built = Conversation()
    built.session(Session(initiator_max_recv_data_segment_length=8192)).login().read(count=2)
    return built.run()


def test_inspect_shows_each_pdu_of_a_command_at_its_last_frame(tmp_path: Path, chained: Capture) -> None:
    file = write_pcap(tmp_path / "a.pcap", chained.packets, ETHERNET)
    for number, cycle in enumerate(observe(chained, chained.packets).cycles):
        sent = [(pdu.frame_first, pdu.frame_last) for pdu in cycle.pdus]
        ends = {last for _, last in sent}
        assert any(first in ends and first != last for first, last in sent)
        found = inspected(file, "--cycle", str(number))
        assert all(is_shown for _, is_shown, _ in found)
        assert sorted((int(ours["frame_first"]), frame) for frame, _, ours in found) == sorted(sent)


def test_inspect_finds_a_pdu_by_its_first_frame(tmp_path: Path, chained: Capture) -> None:
    file = write_pcap(tmp_path / "a.pcap", chained.packets, ETHERNET)
    pdus = observe(chained, chained.packets).pdus
    shared = {pdu.frame_first for pdu in pdus if pdu.frame_first != pdu.frame_last} & {pdu.frame_last for pdu in pdus}
    frame = min(each for each in shared if each is not None)
    sent = [(pdu.frame_first, pdu.frame_last) for pdu in pdus if frame in (pdu.frame_first, pdu.frame_last)]
    found = inspected(file, "--frame", str(frame))
    assert all(is_shown for _, is_shown, _ in found)
    assert sorted((int(ours["frame_first"]), number) for number, _, ours in found) == sorted(sent)


def test_inspect_of_cut_frames_shows_a_pdu_at_its_first_frame(tmp_path: Path, plain: Capture) -> None:
    """tshark cannot reassemble cut segments: it shows the PDU in the first of them."""
    packets = cut(plain.packets, 128)
    file = write_pcap(tmp_path / "a.pcap", packets, ETHERNET)
    several = [
        pdu for pdu in observe(plain, packets).pdus if pdu.pdu.opcode == DATA_IN and pdu.frame_first != pdu.frame_last
    ]
    # where the first one ends is unknown: a digest may follow
    data_in = several[-1]
    ((frame, is_shown, ours),) = inspected(file, "--frame", str(data_in.frame_first))
    assert (frame, is_shown, int(ours["frame_last"])) == (data_in.frame_first, True, data_in.frame_last)


def test_inspect_reports_pdus_that_wireshark_does_not_show(tmp_path: Path, chained: Capture) -> None:
    data_in = next(pdu for pdu in observe(chained, chained.packets).pdus if pdu.pdu.opcode == DATA_IN)
    assert data_in.frame_last
    file = write_pcap(tmp_path / "a.pcap", chained.packets[: data_in.frame_last - 1], ETHERNET)
    ((frame, is_shown, ours),) = inspected(file, "--frame", str(data_in.frame_first))
    assert (frame, is_shown) == (data_in.frame_first, False)
    assert "frame_last" not in ours
