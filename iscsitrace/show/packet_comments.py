"""A capture as pcapng with comments: of packets, and of the whole. Every packet is kept byte for byte, in order.

Blocks of a pcapng are copied as they are; a commented one grows by its comment. The records of a pcap become enhanced
packet blocks of one interface, with the same link type, snaplen and resolution of time. Bytes behind damage, or of a
last packet that is cut short, are left out. Nothing is held in memory but the packet that is copied.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO, Final

from iscsitrace.errors import ExtraMissing, InputInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
