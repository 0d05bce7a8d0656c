"""Wireshark's dissection of a capture: tshark for all PDUs, PyShark for single frames beside their rows of ``pdus``."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from iscsitrace.compare.second_opinion import Dissection, Frame, ShownPdu
from iscsitrace.errors import ExtraMissing, ToolMissing
from iscsitrace.tables.trace import hide_secret

_DATA_SEGMENT_MAX = (1 << 24) - 1  # DataSegmentLength has 24 bits

FIELDS = {
    "iscsi.opcode": "opcode",
    "iscsi.I": "is_immediate",
    "iscsi.scsicommand.F": "is_final",
    "iscsi.scsidata.F": "is_final",
    "iscsi.text.F": "is_final",
    "iscsi.scsidata.S": "has_status",
    "scsi.lun": "lun",
    "iscsi.initiatortasktag": "initiator_task_tag",
    "iscsi.targettransfertag": "target_transfer_tag",
    "iscsi.cmdsn": "cmd_sn",
    "iscsi.statsn": "stat_sn",
    "iscsi.expstatsn": "exp_stat_sn",
    "iscsi.expcmdsn": "exp_cmd_sn",
    "iscsi.maxcmdsn": "max_cmd_sn",
    "iscsi.datasn": "data_sn",
    "iscsi.r2tsn": "data_sn",
    "iscsi.bufferOffset": "buffer_offset",
    "iscsi.datasegmentlength": "data_segment_length",
    "iscsi.scsicommand.expecteddatatransferlength": "expected_data_transfer_length",
    "iscsi.desireddatalength": "expected_data_transfer_length",
    "iscsi.scsiresponse.status": "status",
}
"""Wireshark's field to the column of ``pdus``."""

_FRAME_FIELDS = ("frame.number", "frame.len", "frame.cap_len", "tcp.stream", "_ws.malformed")
_NOT_DISSECTED = (
    "tcp.analysis.retransmission || tcp.analysis.out_of_order || tcp.analysis.lost_segment "
    "|| tcp.analysis.keep_alive || _ws.malformed || frame.len > frame.cap_len"
)


def preferences(ports: Iterable[int], is_reordering: bool = True) -> list[str]:
    """tshark arguments for faithful iSCSI dissection; ``ports`` are the target ports in the capture.

    Reordering puts late segments in their place, but then tshark shows nothing after a hole.
    """
    every = sorted({3260, 860, *ports})
    settings = {
        "tcp.desegment_tcp_streams": "TRUE",
        "tcp.reassemble_out_of_order": "TRUE" if is_reordering else "FALSE",
        "tcp.analyze_sequence_numbers": "TRUE",
        "iscsi.desegment_iscsi_messages": "TRUE",
        "iscsi.bogus_pdu_max_data_len": str(_DATA_SEGMENT_MAX),
        "iscsi.target_ports": ",".join(map(str, every)),
    }
    arguments = [part for name, value in settings.items() for part in ("-o", f"{name}:{value}")]
    return [*arguments, *(part for port in every for part in ("-d", f"tcp.port=={port},iscsi"))]


def dissect(path: str, ports: Iterable[int], packet_limit: int | None = None) -> Dissection:
    """All iSCSI PDUs of a capture file as tshark shows them, and the frames that tshark has a reason not to dissect.

    ToolMissing if tshark is not installed or fails.
    """
    limit = ["-c", str(packet_limit)] if packet_limit else []
    given = ["-r", path, *limit]
    frames = {frame.frame: frame for frame in _frames([*given, *preferences(ports)])}
    version, pdus = _pdus([*given, *preferences(ports)])
    as_arrived = pdus
    if frames:
        # else no segment is late or missing, and tshark shows the same without reordering
        _, as_arrived = _pdus([*given, *preferences(ports, is_reordering=False)])
    return Dissection(version, pdus, as_arrived, frames)


def _pdus(arguments: Sequence[str]) -> tuple[str, list[ShownPdu]]:
    """What tshark says that it is, and the PDUs."""
    version, pdus = "tshark", list[ShownPdu]()
    with _tshark([*arguments, "-Y", "iscsi", "-T", "pdml", "-J", "iscsi"]) as stream:
        try:
            for _, element in ElementTree.iterparse(stream, events=("end",)):  # noqa: S314 -- tshark's own output
                if element.tag == "packet":
                    pdus += _shown_pdus(element)
                    element.clear()
                elif element.tag == "pdml":
                    # wireshark/4.0.17
                    version = f"TShark (Wireshark) {element.get('creator', '').partition('/')[2]}"
        except ElementTree.ParseError as error:
            raise ToolMissing(f"tshark's output is cut short or not XML ({error})") from error
    return version, pdus


def _frames(arguments: Sequence[str]) -> Iterator[Frame]:
    wanted = [part for name in _FRAME_FIELDS for part in ("-e", name)]
    shown = _run([*arguments, "-Y", f"tcp && ({_NOT_DISSECTED})", "-T", "fields", "-E", "occurrence=f", *wanted])
    for line in shown:
        number, length, captured, _, malformed = (line.rstrip("\n").split("\t") + [""] * len(_FRAME_FIELDS))[:5]
        is_cut = int(captured) < int(length)
        yield Frame(int(number), is_cut=is_cut, is_malformed=bool(malformed), is_irregular=not is_cut and not malformed)


def _shown_pdus(packet: ElementTree.Element) -> Iterator[ShownPdu]:
    """The PDUs of one packet in order. The place of a PDU is known if it is in the frame itself, or in a reassembled
    buffer whose first segment tshark names.
    """
    frame = payload_start = 0
    buffer: tuple[int, int] | None = None
    for protocol in packet:
        name = protocol.get("name")
        if name == "geninfo":
            frame = next(int(field.get("show", "0")) for field in protocol if field.get("name") == "num")
        elif name == "tcp":
            payload_start = int(protocol.get("pos", "0")) + int(protocol.get("size", "0"))
        elif name == "fake-field-wrapper":
            buffer = _first_segment(protocol)
        elif name == "iscsi":
            position = int(protocol.get("pos", "0"))
            if position >= payload_start:
                yield ShownPdu(frame, _values(protocol), frame, position - payload_start, None)
            elif buffer is not None and position == 0:
                yield ShownPdu(frame, _values(protocol), buffer[0], None, buffer[1])
            else:
                yield ShownPdu(frame, _values(protocol), None, None, None)


def _first_segment(wrapper: ElementTree.Element) -> tuple[int, int] | None:
    """Frame and byte count of the first segment: ``2 Reassembled TCP Segments (484 bytes): #4(48), #5(436)``."""
    for field in wrapper.iter("field"):
        if field.get("name") == "tcp.segments":
            first = field.get("showname", "").partition("#")[2].partition(")")[0].split("(")
            if len(first) == 2 and first[0].isdigit() and first[1].isdigit():
                return int(first[0]), int(first[1])
    return None


def _values(protocol: ElementTree.Element) -> dict[str, int]:
    """The values of ``pdus`` columns that tshark shows for this PDU."""
    values: dict[str, int] = {}
    for field in protocol.iter("field"):
        column = FIELDS.get(field.get("name", ""))
        if column is not None and column not in values:
            try:
                values[column] = int(field.get("show", ""), 0)
            except ValueError:  # a field that tshark names without a value
                continue
    return values


def require_tshark() -> str:
    """The path of tshark; ToolMissing if there is none."""
    found = shutil.which("tshark")
    if found is None:
        raise ToolMissing(
            "tshark is not installed: apt install tshark, dnf install wireshark-cli, brew install wireshark"
        )
    return found


def require_pyshark() -> None:
    """Raises ExtraMissing if PyShark is not installed, ToolMissing if tshark is not."""
    try:
        import pyshark  # noqa: F401
    except ImportError as error:
        raise ExtraMissing("inspect", "pyshark", "wireshark") from error
    require_tshark()


def _run(arguments: Sequence[str]) -> Iterator[str]:
    with _tshark(arguments) as stream:
        for line in stream:
            yield line.decode("utf-8", "replace")


@contextmanager
def _tshark(arguments: Sequence[str]) -> Iterator[IO[bytes]]:
    """tshark's output; ToolMissing with its last message if it fails."""
    program = require_tshark()
    with tempfile.TemporaryDirectory(prefix="iscsitrace-") as folder:
        environment = os.environ | {"WIRESHARK_CONFIG_DIR": folder, "LC_ALL": "C.UTF-8"}
        errors = Path(folder, "stderr")
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [program, "-n", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
            output = process.stdout or io.BytesIO()
            try:
                yield output
            finally:
                output.close()
                try:
                    code = process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    code = process.wait()
        complaints = errors.read_text(errors="replace").strip().splitlines()
        # for a last record that is cut short tshark exits with an error, after printing all before it
        if code > 0 and not any("cut short" in line for line in complaints):
            raise ToolMissing(f"tshark failed with exit code {code}: {complaints[-1] if complaints else 'no message'}")


def show_frames(
    path: str, frames: Iterable[int], ports: Iterable[int]
) -> Iterator[tuple[int, list[list[tuple[str, str]]]]]:
    """Wireshark's fields of the iSCSI PDUs in some frames, through PyShark.

    Per frame its number and its PDUs, each a list of (field name, value as Wireshark shows it). ExtraMissing without
    PyShark, ToolMissing without tshark.
    """
    require_pyshark()
    import pyshark

    wanted = ",".join(str(frame) for frame in sorted(set(frames)))
    given = preferences(ports)
    with tempfile.TemporaryDirectory(prefix="iscsitrace-") as folder:
        previous = os.environ.get("WIRESHARK_CONFIG_DIR")
        os.environ["WIRESHARK_CONFIG_DIR"] = folder
        # PyShark uses the loop of this thread, and after asyncio.run() there is none
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        capture = pyshark.FileCapture(
            path, display_filter=f"frame.number in {{{wanted}}}", custom_parameters=given, keep_packets=False
        )
        try:
            for packet in capture:
                layers = [layer for layer in packet.layers if layer.layer_name == "iscsi"]
                yield int(packet.number), [_layer_fields(layer) for layer in layers]
        except pyshark.capture.capture.TSharkCrashException as error:
            raise ToolMissing(f"tshark failed under PyShark: {' '.join(str(error).split())}") from error
        finally:
            capture.close()
            # PyShark's loop still receives SIGCHLD after it has stopped running: its pipe would fill up
            with suppress(ValueError):
                capture.eventloop.remove_signal_handler(signal.SIGCHLD)
            asyncio.set_event_loop(None)
            loop.close()
            if previous is None:
                os.environ.pop("WIRESHARK_CONFIG_DIR", None)
            else:
                os.environ["WIRESHARK_CONFIG_DIR"] = previous


def _layer_fields(layer: Any) -> list[tuple[str, str]]:
    # PyShark stores every field under Wireshark's name, and repeated ones with the first
    fields = []
    for name in layer._all_fields:
        container = layer._all_fields[name]
        for field in getattr(container, "all_fields", [container]):
            shown = str(getattr(field, "showname_value", None) or getattr(field, "show", field))
            fields.append((name, hide_secret(shown)))
    return fields


Row = dict[str, Any]
Fields = list[tuple[str, str]]


@dataclass(frozen=True)
class PduPair:
    """A PDU at the frame where Wireshark shows it; one side is missing where only the other has the PDU."""

    frame: int
    fields: Fields | None
    row: Row | None


def ends(row: Row) -> list[int]:
    """The frames in which a PDU begins and ends: Wireshark shows it at one of them."""
    return [number for number in (row["frame_first"], row["frame_last"]) if number is not None]


def pairs(rows: Sequence[Row], shown: Mapping[int, list[Fields]], frame: int | None) -> Iterator[PduPair]:
    """The PDUs of ``rows`` and, in the requested frame, all that Wireshark shows; without a frame, of that command.

    ``shown`` has Wireshark's PDUs of each frame.
    """
    remaining = list(rows)
    for number in sorted({number for row in rows for number in ends(row)} | ({frame} if frame is not None else set())):
        for fields in shown.get(number, []):
            row = _partner(number, dict(fields), remaining)
            if row is not None:
                remaining.remove(row)
                yield PduPair(number, fields, row)
            # Wireshark alone has this PDU; other PDUs of these frames were not requested
            elif number == frame or (frame is None and _has_tag(dict(fields), rows[0])):
                yield PduPair(number, fields, None)
        yield from (PduPair(number, None, row) for row in remaining if ends(row)[-1] == number)


def _partner(number: int, fields: Mapping[str, str], rows: Sequence[Row]) -> Row | None:
    """The row for Wireshark's fields in that frame, or None.

    It has the same opcode and task tag, and the same DataSN if one of them has. A PDU that ends in the frame comes
    before one that only begins there, which Wireshark shows when frames are truncated.
    """
    alike = [row for row in rows if _has_tag(fields, row) and f"{row['opcode']:#04x}" in fields.get("iscsi.opcode", "")]
    ending = [row for row in alike if row["frame_last"] == number]
    beginning = [row for row in alike if row["frame_first"] == number]
    same = [row for row in (*ending, *beginning) if _has_data_sn(fields, row)]
    return next(iter((*same, *ending)), None)


def _has_tag(fields: Mapping[str, str], row: Row) -> bool:
    return _shows(fields.get("iscsi.initiatortasktag"), row["initiator_task_tag"])


def _has_data_sn(fields: Mapping[str, str], row: Row) -> bool:
    return _shows(fields.get("iscsi.datasn", fields.get("iscsi.r2tsn")), row["data_sn"])


def _shows(shown: str | None, value: int | None) -> bool:
    """Whether Wireshark's text has our value; true where either has none."""
    return shown is None or value is None or f"{value:#010x}" in shown
