"""TCP_INFO of a run's own sockets over time, and the addresses and ports of its connections.

Samples go into columns that stay in memory, or line by line into a file. Sampling never disturbs a connection.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from typing import IO, Any

from iscsitrace.lab.sock_diag import tcp_info_of

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
