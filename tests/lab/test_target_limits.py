"""What initiators can make a target keep: sessions, and reads that they do not take."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.programs import running

NAME = "iqn.2025-01.org.iscsitrace:memory"
READ_BYTES = 16 << 20
KEYS = {
    "InitiatorName": "iqn.2025-01.org.example:greedy",
    "TargetName": NAME,
    "SessionType": "Normal",
    "HeaderDigest": "None",
    "DataDigest": "None",
    "MaxRecvDataSegmentLength": "16777215",
    "MaxBurstLength": "16777215",
    "DefaultTime2Retain": "0",
}


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, int]]:
    """A target in a process of its own: its port, and the process."""
    words = [sys.executable, "-m", "iscsitrace", "target", "--listen", "127.0.0.1:0", "--lun", "null:64M", *options]
    with running(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)/", process.stdout.readline())
            assert found is not None
            yield int(found[1]), process.pid
        finally:
            process.kill()


def log_in(stack: ExitStack, port: int, number: int) -> tuple[socket.socket, int]:
    """A session of its own, in one exchange (RFC 7143 section 11.12); the status class and detail of the answer."""
    client = stack.enter_context(socket.socket())
    # little of an answer fits into the sockets
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    text = "".join(f"{key}={value}\0" for key, value in KEYS.items()).encode()
    isid = b"\x80" + struct.pack(">I", number) + b"\0"
    # immediate Login Request with T, from operational negotiation to the full feature phase
    header = b"\x43\x87\0\0" + struct.pack(">I", len(text)) + isid + bytes(2) + struct.pack(">I", 1) + bytes(4)
    client.sendall((header + struct.pack(">II", 1, 0)).ljust(48, b"\0") + text + bytes(-len(text) % 4))
    answer = client.recv(48, socket.MSG_WAITALL)
    length = struct.unpack(">I", answer[4:8])[0]
    client.recv(length + -length % 4, socket.MSG_WAITALL)
    return client, int.from_bytes(answer[36:38], "big")


def read(client: socket.socket) -> None:
    """Sends a READ(16) of 16 MiB and takes nothing of it."""
    cdb = b"\x88\0" + struct.pack(">QI", 0, READ_BYTES // 512) + bytes(2)
    header = b"\x01\xc1\0\0" + bytes(12) + struct.pack(">IIII", 7, READ_BYTES, 1, 1) + cdb
    client.sendall(header)


def resident_mib(process: int) -> int:
    """The most memory that a process had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


@pytest.mark.parametrize(("options", "limit_mib"), [((), 256), (("--waiting-memory", "32M"), 32)])
def test_reads_that_nobody_takes_have_limited_memory(options: tuple[str, ...], limit_mib: int) -> None:
    with ExitStack() as stack:
        port, process = stack.enter_context(serving(*options))
        clients = [log_in(stack, port, number) for number in range(40)]
        assert {status for _, status in clients} == {0}
        before = resident_mib(process)
        for client, _ in clients:
            read(client)
        # each answer has begun, so its buffer is full
        for client, _ in clients:
            assert client.recv(48, socket.MSG_WAITALL)[0] & 0x3F == 0x25
        # one system call of 256 KiB for each connection beyond the limit, and what an allocator keeps
        assert resident_mib(process) - before < limit_mib + 40


def test_sessions_beyond_the_limit_are_refused() -> None:
    with ExitStack() as stack:
        port, _ = stack.enter_context(serving("--max-sessions", "2"))
        statuses = [log_in(stack, port, number)[1] for number in range(3)]
    # RFC 7143 section 11.13.5: out of resources
    assert statuses == [0, 0, 0x0302]
