"""The TCP connections of a place with the kernel's TCP_INFO, over the netlink interface that `ss -tinm` uses; and that
of a run's own sockets over time.

Uses netlink's sock_diag (linux/inet_diag.h) directly, because starting a program for every sample would disturb the
measurement. Leaves out listening sockets and connections in states without TCP_INFO.

The kernel's state of a connection is `struct tcp_info` (linux/tcp.h), as far as this kernel fills it. Names are the
kernel's without prefix and with the unit; times are nanoseconds. Fields that an older kernel does not have, or that
have no value yet, are left out; fields that a newer kernel appends are ignored.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import IO, Any

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.places import Place

STATES = (
    *("", "established", "syn_sent", "syn_received", "fin_wait_1", "fin_wait_2", "time_wait", "closed", "close_wait"),
    *("last_ack", "listen", "closing", "new_syn_received"),
)
"""RFC 9293, section 3.3.2; a code of the kernel (net/tcp_states.h) is the place in the tuple."""

_NONE_YET = {"B": -1, "I": (1 << 32) - 1, "Q": (1 << 64) - 1}
"""Values that mean none: min_rtt before the first sample, max_pacing_rate without a limit."""

_MICROSECONDS = 1_000
_MILLISECONDS = 1_000_000
_LENGTH_MAX = 1024

# name, format, and factor, in the order of the struct with C's alignment
_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("state", "B", 1),
    ("ca_state", "B", 1),
    ("retransmits", "B", 1),
    ("probes", "B", 1),
    ("backoff", "B", 1),
    ("options", "B", 1),
    ("window_scales", "B", 1),
    ("flags", "B", 1),
    ("rto_ns", "I", _MICROSECONDS),
    ("ato_ns", "I", _MICROSECONDS),
    ("snd_mss_bytes", "I", 1),
    ("rcv_mss_bytes", "I", 1),
    ("unacked_segments", "I", 1),
    ("sacked_segments", "I", 1),
    ("lost_segments", "I", 1),
    ("retrans_segments", "I", 1),
    ("fackets_segments", "I", 1),
    ("last_data_sent_ns", "I", _MILLISECONDS),
    ("last_ack_sent_ns", "I", _MILLISECONDS),
    ("last_data_recv_ns", "I", _MILLISECONDS),
    ("last_ack_recv_ns", "I", _MILLISECONDS),
    ("pmtu_bytes", "I", 1),
    ("rcv_ssthresh_bytes", "I", 1),
    ("rtt_ns", "I", _MICROSECONDS),
    ("rttvar_ns", "I", _MICROSECONDS),
    ("snd_ssthresh_segments", "I", 1),
    ("snd_cwnd_segments", "I", 1),
    ("advmss_bytes", "I", 1),
    ("reordering_segments", "I", 1),
    ("rcv_rtt_ns", "I", _MICROSECONDS),
    ("rcv_space_bytes", "I", 1),
    ("total_retrans_segments", "I", 1),
    ("pacing_rate_bytes_per_s", "Q", 1),
    ("max_pacing_rate_bytes_per_s", "Q", 1),
    ("bytes_acked", "Q", 1),
    ("bytes_received", "Q", 1),
    ("segs_out", "I", 1),
    ("segs_in", "I", 1),
    ("notsent_bytes", "I", 1),
    ("min_rtt_ns", "I", _MICROSECONDS),
    ("data_segs_in", "I", 1),
    ("data_segs_out", "I", 1),
    ("delivery_rate_bytes_per_s", "Q", 1),
    ("busy_time_ns", "Q", _MICROSECONDS),
    ("rwnd_limited_ns", "Q", _MICROSECONDS),
    ("sndbuf_limited_ns", "Q", _MICROSECONDS),
    ("delivered_segments", "I", 1),
    ("delivered_ce_segments", "I", 1),
    ("bytes_sent", "Q", 1),
    ("bytes_retrans", "Q", 1),
    ("dsack_dups", "I", 1),
    ("reord_seen", "I", 1),
    ("rcv_ooopack_segments", "I", 1),
    ("snd_wnd_bytes", "I", 1),
    ("rcv_wnd_bytes", "I", 1),
)
_ENDS = tuple(struct.calcsize("".join(code for _, code, _ in _FIELDS[: place + 1])) for place in range(len(_FIELDS)))


def unpack_tcp_info(data: bytes) -> dict[str, int | str | bool]:
    """The complete fields in ``data``, in the struct's order; ``state`` as a word."""
    known = [place for place, end in enumerate(_ENDS) if end <= len(data)]
    layout = "".join(_FIELDS[place][1] for place in known)
    values: dict[str, int | str | bool] = {}
    for place, value in zip(known, struct.unpack_from(layout, data), strict=True):
        name, code, factor = _FIELDS[place]
        if name == "state":
            values[name] = STATES[value] if value < len(STATES) else str(value)
        elif name == "window_scales":
            values["snd_wscale"], values["rcv_wscale"] = _bits(value)
        elif name == "flags":
            is_low_first = sys.byteorder == "little"
            values["is_delivery_rate_app_limited"] = bool(value & (1 if is_low_first else 0x80))
        elif value != _NONE_YET[code]:
            values[name] = value * factor
    return values


def tcp_info_of(descriptor: int) -> dict[str, int | str | bool]:
    """TCP_INFO of an open TCP socket, which stays open; OSError for any other descriptor."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        return unpack_tcp_info(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH_MAX))


def _bits(octet: int) -> tuple[int, int]:
    """Two bit fields of four bits, in the order of their declaration."""
    low, high = octet & 0xF, octet >> 4
    return (low, high) if sys.byteorder == "little" else (high, low)


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
_STATES = sum(1 << code for code, name in enumerate(STATES) if name not in _LEFT_OUT)
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
            found |= unpack_tcp_info(value)
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


_PERIOD_S = 0.02

KEPT = (
    *("state", "snd_cwnd_segments", "snd_ssthresh_segments", "snd_mss_bytes", "rtt_ns", "rttvar_ns", "min_rtt_ns"),
    *("unacked_segments", "lost_segments", "total_retrans_segments", "bytes_acked", "bytes_received"),
    *("snd_wnd_bytes", "rcv_space_bytes", "delivery_rate_bytes_per_s"),
)
"""The fields of TCP_INFO that a truth has."""


class TcpSamples:
    """Samples of a run's connections."""

    def __init__(self, *, has_columns: bool = False, lines: IO[str] | None = None) -> None:
        self._next_s = 0.0
        self._has_columns = has_columns
        self._lines = lines
        self.columns: dict[str, list[Any]] = {name: [] for name in ("time_ns", "connection", *KEPT)}
        """A row per connection and sample; null for values that the kernel does not report."""
        self.ends: dict[int, dict[str, Any]] = {}
        """By the number of a connection: addresses and ports of both ends."""
        self.last: list[dict[str, Any]] = []
        """A sample of each connection just before it was closed, with addresses and ports of both ends."""

    def take(self, descriptors: Iterable[tuple[int, int, bool]]) -> None:
        """Samples the open connections every 20 ms, and each connection just before it is closed."""
        now_s = time.monotonic()
        is_due = (self._has_columns or self._lines is not None) and now_s >= self._next_s
        if is_due:
            self._next_s = now_s + _PERIOD_S
        for connection, descriptor, is_last in descriptors:
            if connection not in self.ends:
                self._take_ends(connection, descriptor)
            if not is_due and not is_last:
                continue
            try:
                found = tcp_info_of(descriptor)
            except OSError:
                continue
            time_ns = time.time_ns()
            self._keep({"time_ns": time_ns, "connection": connection} | found)
            if is_last and (ends := self.ends.get(connection)):
                names = {"local": "own", "remote": "peer"}
                where = {
                    f"{name}_{part}": ends[f"{its}_{part}"]
                    for name, its in names.items()
                    for part in ("address", "port")
                }
                self.last.append({"time_ns": time_ns, **where, **found})

    def _keep(self, sample: dict[str, Any]) -> None:
        if self._has_columns:
            for name, values in self.columns.items():
                values.append(sample.get(name))
        if self._lines is not None:
            self._lines.write(json.dumps(sample) + "\n")

    def _take_ends(self, connection: int, descriptor: int) -> None:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as stream:
                own, peer = stream.getsockname(), stream.getpeername()
        except OSError:  # not connected yet
            return
        self.ends[connection] = {
            "connection": connection,
            "own_address": own[0],
            "own_port": own[1],
            "peer_address": peer[0],
            "peer_port": peer[1],
        }
