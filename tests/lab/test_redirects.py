"""Where a target can send an initiator: only where its user allows."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

NAME = "iqn.2025-01.org.iscsitrace:moved"
ELSEWHERE = "127.0.1.1"
"""Another network than 127.0.0.0/24, and a host that is there all the same."""


@pytest.fixture
def moved() -> Iterator[tuple[int, list[str]]]:
    """The port of a target that sends each login to ELSEWHERE, and the hosts that were asked."""
    asked: list[str] = []
    with socket.create_server((ELSEWHERE, 0)) as other:
        port = other.getsockname()[1]
        with socket.create_server(("127.0.0.1", port)) as first:
            for listener in (first, other):
                threading.Thread(target=_redirect, args=(listener, port, asked), daemon=True).start()
            yield port, asked
            for listener in (first, other):
                listener.shutdown(socket.SHUT_RDWR)


def _redirect(listener: socket.socket, port: int, asked: list[str]) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client:
                asked.append(client.getsockname()[0])
                request = client.recv(48, socket.MSG_WAITALL)
                text = f"TargetAddress={ELSEWHERE}:{port}\0".encode()
                # RFC 7143 section 11.13.5: Login Response, class 1 detail 1, the target moved temporarily
                head = b"\x23\0\0\0" + struct.pack(">I", len(text)) + request[8:20] + bytes(16) + b"\x01\x01"
                client.sendall(head.ljust(48, b"\0") + text + bytes(-len(text) % 4))
                client.recv(1 << 16)


@pytest.mark.parametrize(
    ("follow", "hosts"), [((), {"127.0.0.1"}), (("none",), {"127.0.0.1"}), (("any",), {"127.0.0.1", ELSEWHERE})]
)
def test_a_redirection_is_followed_where_that_is_allowed(
    follow: tuple[str, ...], hosts: set[str], moved: tuple[int, list[str]]
) -> None:
    port, asked = moved
    options = ["--follow-redirects", *follow] if follow else []
    url = f"iscsi://127.0.0.1:{port}/{NAME}/0"
    command = [sys.executable, "-m", "iscsitrace", "initiator", "ping", *options, url]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert set(asked) == hosts
    assert result.returncode == 2
    assert f"the target moved to {ELSEWHERE}:{port}" in result.stderr
