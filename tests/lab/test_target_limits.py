"""What initiators can make a target keep: sessions, and reads that they do not take."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import time
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


def log_in(stack: ExitStack, port: int, number: int, host: str = "127.0.0.1") -> tuple[socket.socket, int]:
    """A session of its own, in one exchange (RFC 7143 section 11.12); the status class and detail of the answer."""
    client = stack.enter_context(socket.socket())
    client.bind((host, 0))
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


def test_connections_that_never_log_in_leave_room_for_others() -> None:
    """More of them than may log in at a time; they would keep their places for the 15 s of a login."""
    with ExitStack() as stack:
        port, _ = stack.enter_context(serving())
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert log_in(stack, port, 1, "127.0.0.2")[1] == 0
        time.sleep(1.5)
        assert log_in(stack, port, 2)[1] == 0


def guess(port: int, host: str, response: str = "0x00") -> int | None:
    """The status of a login with CHAP and this response; None where the connection is refused."""
    with socket.socket() as client:
        client.settimeout(30)
        client.bind((host, 0))
        client.connect(("127.0.0.1", port))
        names = {name: KEYS[name] for name in ("InitiatorName", "TargetName", "SessionType")}
        texts = (names | {"AuthMethod": "CHAP"}, {"CHAP_A": "5"}, {"CHAP_N": "joe", "CHAP_R": response})
        for keys in texts:
            text = "".join(f"{key}={value}\0" for key, value in keys.items()).encode()
            # of the security stage, without T
            header = b"\x43\0\0\0" + struct.pack(">I", len(text)) + b"\x80" + bytes(7) + struct.pack(">I", 1) + bytes(4)
            try:
                client.sendall((header + struct.pack(">II", 1, 0)).ljust(48, b"\0") + text + bytes(-len(text) % 4))
                answer = client.recv(48, socket.MSG_WAITALL)
            except OSError:
                return None
            if len(answer) < 48:
                return None
            length = struct.unpack(">I", answer[4:8])[0]
            client.recv(length + -length % 4, socket.MSG_WAITALL)
        return int.from_bytes(answer[36:38], "big")


def test_a_host_that_guesses_secrets_has_to_wait() -> None:
    with serving("--chap", "joe%correct horse battery") as (port, _):
        answers = [guess(port, "127.0.0.1") for _ in range(40)]
        # RFC 7143 section 11.13.5: authentication failure
        assert answers == [0x0201] * 16 + [None] * 24
        assert guess(port, "127.0.0.2") == 0x0201
