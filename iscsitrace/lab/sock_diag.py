"""The TCP connections of a place with the kernel's TCP_INFO, over the netlink interface that `ss -tinm` uses.

Uses netlink's sock_diag (linux/inet_diag.h) directly, because starting a program for every sample would disturb the
measurement. Leaves out listening sockets and connections in states without TCP_INFO.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from types import TracebackType

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import tcp_info
from iscsitrace.lab.places import Place

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_INET_DIAG_INFO = 2
_INET_DIAG_CONG = 4
_INET_DIAG_SKMEMINFO = 7
_ASKED = 1 << (_INET_DIAG_INFO - 1) | 1 << (_INET_DIAG_CONG - 1) | 1 << (_INET_DIAG_SKMEMINFO - 1)
_LEFT_OUT = ("", "syn_received", "time_wait", "closed", "listen", "new_syn_received")
_STATES = sum(1 << code for code, name in enumerate(tcp_info.STATES) if name not in _LEFT_OUT)
_MESSAGE = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_SOCKET_ID_BYTES = 48
_FIXED_BYTES = 72
_RECEIVE_BYTES = 1 << 18
_LIMIT_S = 5

Connection = dict[str, int | str | bool]
"""``local_address local_port remote_address remote_port congestion_control``, bytes in queues and buffers, TCP_INFO."""


class SockDiag:
    """Reads the connections of one place from the kernel. Close it, or use it as a context manager."""

    def __init__(self, place: Place) -> None:
        self._socket = place.call(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG))
        self._socket.settimeout(_LIMIT_S)
        self._sequence = 0

    def connections(self) -> list[Connection]:
        """All current TCP connections over IPv4 and IPv6; ToolMissing if the kernel refuses to list them."""
        return [found for family in (socket.AF_INET, socket.AF_INET6) for found in self._ask(family)]

    def close(self) -> None:
        """Closes the netlink socket."""
        self._socket.close()

    def __enter__(self) -> SockDiag:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, family: int) -> Iterator[Connection]:
        self._sequence += 1
        request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, _ASKED, 0, _STATES) + bytes(_SOCKET_ID_BYTES)
        length = _MESSAGE.size + len(request)
        self._socket.send(_MESSAGE.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, self._sequence, 0) + request)
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            start = 0
            while start + _MESSAGE.size <= len(data):
                length, kind, _, sequence, _ = _MESSAGE.unpack_from(data, start)
                body = data[start + _MESSAGE.size : start + length]
                start += max(_aligned(length), _MESSAGE.size)
                # the rest of a reply that was abandoned
                if sequence != self._sequence:
                    continue
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    raise ToolMissing("the kernel does not list its TCP connections: modprobe tcp_diag")
                yield _connection(body)


def _connection(body: bytes) -> Connection:
    """One `struct inet_diag_msg` and its attributes."""
    family = body[0]
    local_port, remote_port = struct.unpack_from("!HH", body, 4)
    receive_queue, send_queue = struct.unpack_from("=II", body, 56)
    found: Connection = {
        "local_address": _address(family, body[8:24]),
        "local_port": local_port,
        "remote_address": _address(family, body[24:40]),
        "remote_port": remote_port,
        "receive_queue_bytes": receive_queue,
        "send_queue_bytes": send_queue,
    }
    start = _FIXED_BYTES
    while start + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, start)
        value = body[start + _ATTRIBUTE.size : start + length]
        if kind == _INET_DIAG_INFO:
            found |= tcp_info.unpack(value)
        elif kind == _INET_DIAG_CONG:
            found["congestion_control"] = value.rstrip(b"\0").decode("ascii", "replace")
        elif kind == _INET_DIAG_SKMEMINFO and len(value) >= 16:
            names = ("receive_memory_bytes", "receive_buffer_bytes", "send_memory_bytes", "send_buffer_bytes")
            found |= zip(names, struct.unpack_from("=4I", value), strict=True)
        start += max(_aligned(length), _ATTRIBUTE.size)
    return found


def _address(family: int, octets: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(octets[:4]))
    address = ipaddress.IPv6Address(octets)
    return str(address.ipv4_mapped or address)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
