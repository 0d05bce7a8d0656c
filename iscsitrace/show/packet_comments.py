"""A capture as pcapng with comments: of packets, and of the whole, with what a diagnosis says of them. Every packet is
kept byte for byte, in order.

Blocks of a pcapng are copied as they are; a commented one grows by its comment. The records of a pcap become enhanced
packet blocks of one interface, with the same link type, snaplen and resolution of time. Bytes behind damage, or of a
last packet that is cut short, are left out. Nothing is held in memory but the packet that is copied.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO, Final

import numpy as np

from iscsitrace.diagnosis.headline import to_act_on
from iscsitrace.errors import ExtraMissing, InputInvalid
from iscsitrace.findings import NEEDED
from iscsitrace.findings.history import listed
from iscsitrace.tables.nulls import known
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import printable
from iscsitrace.wording.rules import rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.findings.finding import Finding
    from iscsitrace.tables.table import Source


NEEDED_TABLES: Final = NEEDED
"""What a trace has to be read with."""
_SESSIONS: Final = 10
"""Sessions whose headline is in the comment of the capture."""


_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    "cycles": {
        "command_frame": "the command of cycle {cycle}",
        "data_first_frame": "the first data of cycle {cycle}",
        "data_last_frame": "the last data of cycle {cycle}",
        "status_frame": "the status of cycle {cycle}",
    },
    "rounds": {"r2t_frame": "an R2T of cycle {cycle}"},
    "recoveries": {"frame_first": "the first frame of a recovery", "frame_last": "the last frame of a recovery"},
    "retransmissions": {"frame": "a retransmission"},
    "logins": {"request_frame": "a login request", "response_frame": "a login response"},
    "task_management": {"request_frame": "a task management request", "response_frame": "its response"},
    "nops": {"request_frame": "a NOP", "response_frame": "the answer to a NOP"},
    "connections": {
        "syn_frame": "the first SYN of connection {connection}",
        **{f"fin_to_{side}_frame": f"the first FIN to the {side}" for side in ("target", "initiator")},
        **{f"rst_to_{side}_frame": f"the first RST to the {side}" for side in ("target", "initiator")},
    },
}
"""What a frame has part in: by the columns of tables that name it."""


def comments_of_frames(diagnosis: Diagnosis, source: Source) -> dict[int, list[str]]:
    """The comments of the frames that show what has to be acted on: the finding, its sessions, what the frame is, and
    the sentence; and of each violation of RFC 7143 that a peer may fail upon. ``source`` has the tables of the trace.
    """
    findings = [*_findings_of(diagnosis)]
    parts = _parts(source, {frame for finding in findings for frame in finding.frames})
    found: dict[int, dict[str, None]] = {}
    for finding in findings:
        sessions = "session" if len(finding.sessions) == 1 else "sessions"
        where = f", {sessions} {listed(finding.sessions)}" if finding.sessions else ""
        for number, frame in enumerate(finding.frames, start=1):
            part = f" ({listed(parts[frame])})" if frame in parts else ""
            what = (
                f"iscsitrace: {finding.name} ({finding.severity}{where}), frame {number} of {len(finding.frames)}{part}"
            )
            found.setdefault(frame, {})[printable(f"{what}: {finding.text}")] = None
    broken = source("violations")
    for row in broken.select(known(broken, "frame")).rows():
        rule = rules()[row["rule"]]
        if rule.severity == "info":
            continue
        text = f"iscsitrace: rule {rule.name} ({rule.severity}): {rule.did(row['side'], row['seen'], row['expected'])}"
        found.setdefault(row["frame"], {})[printable(f"{text}.")] = None
    return {frame: [*texts] for frame, texts in sorted(found.items())}


def _parts(source: Source, frames: Collection[int]) -> dict[int, list[str]]:
    """What each of these frames has part in."""
    found: dict[int, dict[str, None]] = {}
    wanted = np.array(sorted(frames), dtype=np.uint64)
    for name, columns in _PARTS.items():
        table = source(name)
        for column, words in columns.items():
            which = known(table, column) & np.isin(table.raw(column), wanted)
            for row in table.select(which).rows():
                found.setdefault(row[column], {})[words.format(**row)] = None
    return {frame: [*parts] for frame, parts in found.items()}


def comment_of_capture(diagnosis: Diagnosis, frame_count: int, made_by: str) -> str:
    """The headline, what to do first, the headlines of sessions, and where the comments are."""
    lines = [diagnosis.headline.text] if diagnosis.headline else ["No session of iSCSI was found."]
    if diagnosis.headline and diagnosis.headline.first_step:
        lines.append(f"What to do: {diagnosis.headline.first_step}")
    texts = dict.fromkeys(opinion.headline.text for opinion in diagnosis.sessions.values())
    others = [text for text in texts if text not in lines]
    lines += others[:_SESSIONS]
    if more := len(others[_SESSIONS:]):
        lines.append(f"{count(more, 'more session')}: iscsitrace diagnose shows them.")
    where = "No frame has a comment"
    if frame_count:
        where = f"{count(frame_count, 'frame')} with a comment: filter frame.comment"
    return "\n".join(map(printable, (*lines, f"{where}. Made by {made_by}.")))


def _findings_of(diagnosis: Diagnosis) -> Iterator[Finding]:
    """What leads and what is wrong, that of stories first; a finding of several sessions may come again."""
    for opinion in (*diagnosis.stories, *diagnosis.sessions.values(), *diagnosis.separate.values()):
        lead = opinion.headline.finding
        yield from [lead] if lead else []
        yield from to_act_on(opinion.headline, opinion.findings)


_SECTION: Final = 0x0A0D0D0A
_INTERFACE, _PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 2, 3, 6
_NUMBERED: Final = frozenset((9, 0xBAD, 0x40000BAD, 0x204, 0x208, 0x216, 0x217, 0x221, 0x222))
"""Blocks that are no packets and have a frame number in Wireshark, as the core counts them (reader/pcapng.rs)."""
_COMMENT: Final = 1
_MOST_COMMENT_BYTES: Final = 0xFFFF
_MOST_BLOCK_BYTES: Final = 1 << 28
_BYTE_ORDERS: Final = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
# magic of a pcap: byte order, digits of a second, bytes of a record's header
_PCAPS: Final = {
    b"\xa1\xb2\xc3\xd4": (">", 6, 16),
    b"\xd4\xc3\xb2\xa1": ("<", 6, 16),
    b"\xa1\xb2\x3c\x4d": (">", 9, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 9, 16),
    b"\xa1\xb2\xcd\x34": (">", 6, 24),
    b"\x34\xcd\xb2\xa1": ("<", 6, 24),
}
_COMPRESSIONS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}

Comments = Mapping[int, Sequence[str]]
"""The comments of frames, which count from 1 as in Wireshark."""


def copy(path: Path, out: BinaryIO, comments: Comments, summary: str, application: str) -> int:
    """Writes the capture with comments; how many packets were copied.

    ``summary`` is the comment of the whole, ``application`` the writer of a file that was a pcap. InputInvalid for a
    file that is no capture, ExtraMissing for a compression that Python cannot read alone.
    """
    try:
        with _decompressed(path) as source:
            magic = source.read(4)
            if magic in _PCAPS:
                return _copy_pcap(source, magic, out, comments, summary, application)
            if magic == struct.pack("<I", _SECTION):
                return _copy_pcapng(source, magic, out, comments, summary)
    except (OSError, EOFError, ValueError) as error:
        raise InputInvalid(f"cannot read {path}: {error}") from error
    raise InputInvalid(f"{path} is neither pcap nor pcapng")


@contextmanager
def _decompressed(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a capture; compression within compression is not looked for."""
    with path.open("rb") as source:
        kind = next((kind for magic, kind in _COMPRESSIONS.items() if source.peek(4).startswith(magic)), None)
        if kind is None:
            yield source
        elif kind == "gzip":
            with gzip.open(source) as inner:
                yield inner  # type: ignore[misc]
        else:
            try:
                import pyarrow
            except ImportError as error:
                raise ExtraMissing(f"a capture compressed by {kind}", "pyarrow", "parquet") from error
            with pyarrow.CompressedInputStream(pyarrow.PythonFile(source, mode="r"), kind) as inner:
                yield inner


def _options(order: str, comments: Sequence[str]) -> bytes:
    """Comments as options of a block, without the end of the list."""
    found = b""
    for text in comments:
        # a cut through a character leaves none of it
        content = text.encode(errors="replace")[:_MOST_COMMENT_BYTES].decode(errors="ignore").encode()
        found += struct.pack(f"{order}HH", _COMMENT, len(content)) + content + bytes(-len(content) % 4)
    return found


def _copy_pcapng(source: IO[bytes], magic: bytes, out: BinaryIO, comments: Comments, summary: str) -> int:
    order, frame, packet_count, is_first = "<", 0, 0, True
    head = magic + source.read(4)
    while len(head) == 8:
        if head[:4] == struct.pack("<I", _SECTION):
            byte_order_magic = source.read(4)
            if byte_order_magic not in _BYTE_ORDERS:
                return packet_count
            order, rest = _BYTE_ORDERS[byte_order_magic], byte_order_magic
        else:
            rest = b""
        kind, length = struct.unpack(f"{order}II", head)
        if length < 12 + len(rest) or length % 4 or length > _MOST_BLOCK_BYTES:
            return packet_count
        body = rest + source.read(length - 8 - len(rest))
        if len(body) < length - 8 or body[-4:] != head[4:]:
            return packet_count
        frame += kind in (_PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET) or kind in _NUMBERED
        packet_count += kind in (_PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET)
        added, before = b"", 0
        if kind == _SECTION and length >= 28:
            # its length is not known beforehand any more
            body = body[:8] + struct.pack(f"{order}q", -1) + body[16:]
            added, before = _options(order, [summary] if is_first and summary else []), 16
            is_first = False
        elif kind in (_PACKET, _ENHANCED_PACKET) and frame in comments and length >= 32:
            (captured_bytes,) = struct.unpack_from(f"{order}I", body, 12)
            before = 20 + captured_bytes + -captured_bytes % 4
            if before <= len(body) - 4:
                added = _options(order, comments[frame])
        if added:
            options = body[before:-4]
            body = body[:before] + added + (options or bytes(4)) + body[-4:]
            size = struct.pack(f"{order}I", len(body) + 8)
            head, body = head[:4] + size, body[:-4] + size
        out.write(head + body)
        head = source.read(8)
    return packet_count


def _block(kind: int, body: bytes, options: bytes = b"") -> bytes:
    content = body + bytes(-len(body) % 4) + (options + bytes(4) if options else b"")
    length = struct.pack("<I", len(content) + 12)
    return struct.pack("<I", kind) + length + content + length


def _copy_pcap(
    source: IO[bytes], magic: bytes, out: BinaryIO, comments: Comments, summary: str, application: str
) -> int:
    order, digits, header_bytes = _PCAPS[magic]
    header = source.read(20)
    if len(header) < 20:
        raise InputInvalid("the capture ends within its header")
    snaplen, network = struct.unpack(f"{order}II", header[12:])
    user_application = application.encode()
    written_by = struct.pack("<HH", 4, len(user_application)) + user_application + bytes(-len(user_application) % 4)
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    out.write(_block(_SECTION, section, _options("<", [summary] if summary else []) + written_by))
    # if_tsresol; if_fcslen, where the header tells it in 16-bit words
    described = struct.pack("<HHB3x", 9, 1, digits)
    if network & 0x04000000:
        described += struct.pack("<HHB3x", 13, 1, (network >> 28) * 2)
    out.write(_block(_INTERFACE, struct.pack("<HHI", network & 0xFFFF, 0, snaplen), described))
    count = 0
    read_header: Callable[[bytes], tuple[int, ...]] = struct.Struct(f"{order}IIII").unpack
    while len(record := source.read(header_bytes)) == header_bytes:
        seconds, fraction, captured_bytes, original_bytes = read_header(record[:16])
        if captured_bytes > _MOST_BLOCK_BYTES:
            break
        data = source.read(captured_bytes)
        if len(data) < captured_bytes:
            break
        count += 1
        time = seconds * 10**digits + fraction
        fields = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, captured_bytes, original_bytes)
        out.write(_block(_ENHANCED_PACKET, fields + data, _options("<", comments.get(count, ()))))
    return count
