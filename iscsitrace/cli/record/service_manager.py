"""What a service manager such as systemd learns: that the capture has begun, that it still runs, that it ends.

The protocol of sd_notify(3): a datagram for each state, to the socket that the manager names. Without one nothing is
sent. What a process starts is not to speak for it, so the names leave the environment.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

_SHARE = 3
"""Signs of life in the time that the manager allows between two."""


class ServiceManager:
    """The manager that started this process, if any."""

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        limit_us = os.environ.pop("WATCHDOG_USEC", "")
        process = os.environ.pop("WATCHDOG_PID", "")
        self._socket: socket.socket | None = None
        self._every_s = 0.0
        self._said_s: float | None = None
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                # before the process gives up the rights to connect; @ is the abstract name space
                self._socket.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            except OSError:
                self._end()
        if limit_us.isdecimal() and process in ("", str(os.getpid())):
            self._every_s = int(limit_us) / 1e6 / _SHARE

    def alive(self) -> None:
        """It works: called often. The first call says that it is ready."""
        if self._socket is None:
            return
        now_s = time.monotonic()
        if self._said_s is None:
            self._send("READY=1\nWATCHDOG=1")
            self._said_s = now_s
        elif self._every_s and now_s - self._said_s >= self._every_s:
            self._send("WATCHDOG=1")
            self._said_s = now_s

    def stopping(self) -> None:
        """It ends."""
        self._send("STOPPING=1")
        self._end()

    def _send(self, state: str) -> None:
        if self._socket is not None:
            # a manager that does not listen is no reason to lose packets
            with suppress(OSError):
                self._socket.send(state.encode())

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
