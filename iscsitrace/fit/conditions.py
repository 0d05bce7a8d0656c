"""The conditions under which the reads, or the writes, of a session ran: the model's setting as the packets show it.

The steady points of a fit and the situation of a what-if both start here, so that they describe a session alike. A
session of several connections counts those that carried the operation: RTT and line of the busiest, and the smallest of
their windows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.session import Session
from iscsitrace.measure.workload import MOST
from iscsitrace.model.setting import LOGIN_KEYS, Setting, Solicitation
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Array, Table

_NAMES: Final = {key: name for name, key in LOGIN_KEYS.items()}
_LAST: Final = np.iinfo(np.uint32).max


def measure(parameters: Table, writes: Table, rounds: Table) -> tuple[Solicitation, frozenset[str]]:
    """The parameters that decide the R2T rounds, and the names of those that are assumed.

    ``writes`` and ``rounds`` are the session's complete writes and its R2Ts. Parameters count as they were used
    (docs/method.md, section 8): InitialR2T=No of an initiator that sends nothing unsolicited counts as Yes, and a
    target whose R2Ts ask for less than MaxBurstLength counts with these bursts. *Why:* usage decides how many RTTs a
    write takes. A session without writes has its parameters as negotiated.
    """
    negotiated = _negotiated(parameters)
    found = replace(Solicitation(), **negotiated)
    if len(writes):
        found = _as_used(found, negotiated, writes, rounds)
    # where InitialR2T=Yes and ImmediateData=No FirstBurstLength is not negotiated (RFC 7143, section 13.14)
    return found, frozenset() if "first_burst_bytes" in negotiated else frozenset({"first_burst_bytes"})


def _negotiated(parameters: Table) -> dict[str, Any]:
    """Values by field of Solicitation, from the first connection that logged in: the leading one, on which the
    parameters of the whole session are negotiated (RFC 7143, section 13).
    """
    connections = parameters.raw("connection")
    wanted = parameters.select(parameters.each(_is_of_writes) & (connections == connections.min(initial=_LAST)))
    rows = wanted.rows(("key", "effective_target"))
    texts = {_NAMES[row["key"]]: row["effective_target"] for row in rows if row["effective_target"]}
    return {name: text == "Yes" if name.startswith("is_") else int(text, 0) for name, text in texts.items()}


def _is_of_writes(parameters: Table) -> NDArray[np.bool_]:
    return np.fromiter((key in _NAMES for key in parameters.raw("key").tolist()), np.bool_, len(parameters))


def _as_used(found: Solicitation, negotiated: dict[str, Any], writes: Table, rounds: Table) -> Solicitation:
    block_bytes = int(writes.raw("bytes").max())
    immediate, unsolicited = (
        int(writes.raw(name).astype(np.int64).max()) for name in ("immediate_bytes", "unsolicited_bytes")
    )
    burst = int(rounds.raw("desired_data_transfer_length").max(initial=0))

    def limit(name: str, seen: int) -> int:
        """As negotiated; else as seen, if R2Ts requested the rest, and else at least the default."""
        default: int = getattr(found, name)
        return default if name in negotiated or not seen else seen if burst else max(seen, default)

    first_burst = limit("first_burst_bytes", immediate + unsolicited)
    largest = found.max_burst_bytes
    is_full = "max_burst_bytes" in negotiated and burst >= min(largest, block_bytes - immediate - unsolicited)
    # everything that may go unsolicited went with the command
    is_all_immediate = negotiated.get("is_initial_r2t") is False and immediate >= min(first_burst, block_bytes)
    return replace(
        found,
        is_initial_r2t=not unsolicited and not is_all_immediate,
        is_immediate_data=immediate > 0,
        first_burst_bytes=first_burst,
        max_burst_bytes=burst if burst and not is_full else largest,
        max_recv_data_segment_bytes=limit("max_recv_data_segment_bytes", immediate),
    )


INITIAL_WINDOW_SEGMENTS: Final = 10
"""RFC 6928: the congestion window with which a sender begins, and begins again after an idle time."""


class Conditions:
    """What the reads, or the writes, of one session have in common."""

    def __init__(self, session: Session, operation: str) -> None:
        """``operation`` is ``read`` or ``write``."""
        self.session = session
        self.operation = operation

    @cached_property
    def _transfers(self) -> Table:
        return self._complete("is_read" if self.operation == "read" else "is_write")

    def _complete(self, name: str) -> Table:
        transfers = self.session.transfers
        return transfers.select(transfers.raw(name))

    @cached_property
    def connection_count(self) -> int:
        """Connections that carried these commands."""
        return max(1, len(self._numbers))

    @cached_property
    def _numbers(self) -> Array:
        return np.unique(self._transfers.raw("connection"))

    @cached_property
    def queue_depth(self) -> int:
        """Median of the commands in flight, as the initiator sees them, when the next ended after each was issued."""
        commands = self.session.commands
        is_own = commands.is_of(self.operation) & commands.table.raw("is_complete")
        return int(np.median(commands.depth_in_full[is_own])) if is_own.any() else 1

    @cached_property
    def senders(self) -> list[dict[str, Any]]:
        """The rows of ``senders`` of the connections that carried the data, in its direction."""
        to_target = self.operation == "write"
        rows = [row for row in self.session.senders if row["to_target"] == to_target]
        numbers = set(self._numbers.tolist())
        return [row for row in rows if row["connection"] in numbers] or rows

    @property
    def busiest_sender(self) -> dict[str, Any]:
        """The sender of most data; empty where there is none."""
        direction = "to_target" if self.operation == "write" else "to_initiator"
        sent = {row["connection"]: row[f"stream_bytes_{direction}"] for row in self.session.connections}
        return max(self.senders, key=lambda row: sent[row["connection"]], default={})

    @property
    def window_bytes(self) -> int | None:
        """The largest receive window that was advertised, or what was in flight where the send buffer held its sender
        for longer than windows; of several connections the least of these.

        None where neither is known. *Why the least:* commands are dealt over the connections in turn, so the smallest
        window is the first in the way.
        """
        largest = [row["rwnd_max_bytes"] for row in self.senders if not row["is_window_scale_inferred"]]
        buffers = [row["sndbuf_level_bytes"] for row in self.senders] if self.is_held_by_buffer else []
        return min((each for each in (*largest, *buffers) if each), default=None)

    @property
    def is_held_by_buffer(self) -> bool:
        """Whether its send buffer, of a known size, held the sender of most data for longer than both windows."""
        row = self.busiest_sender
        if not row or row["sndbuf_level_bytes"] is None:
            return False
        return bool(row["sndbuf_limited_ns"] > row["cwnd_limited_ns"] + (row["rwnd_limited_ns"] or 0))

    def window_at(self, bytes_per_s: float, round_trip_ns: float) -> int | None:
        """The window that lets so much through. A program that waits for room in its send buffer is woken when a part
        of it is free: less than the buffer is carried in an RTT.
        """
        window = self.window_bytes
        if window is None or not self.is_held_by_buffer:
            return window
        return min(window, round(bytes_per_s * round_trip_ns / 1e9 / max(1, len(self.senders))))

    @property
    def is_window_shut(self) -> bool:
        """Whether a receiver shrank its window below a segment: then its largest size does not bound the throughput."""
        return any((row["rwnd_min_bytes"] or 0) < (row["segment_bytes"] or 1) for row in self.senders)

    @property
    def segment_bytes(self) -> int:
        """Payload of a full segment."""
        return max((row["segment_bytes"] or 0 for row in self.senders), default=0) or Setting.segment_bytes

    @property
    def start_window_bytes(self) -> int | None:
        """The congestion window after an idle time; None where no sender began again with a small one."""
        has_restarted = any(row["restart_after_idle_count"] for row in self.senders)
        return INITIAL_WINDOW_SEGMENTS * self.segment_bytes if has_restarted else None

    @property
    def data_pdu_bytes(self) -> int | None:
        """Payload of the largest data PDU; None where all data was immediate."""
        sizes = self._transfers.raw("data_pdu_bytes_max")[known(self._transfers, "data_pdu_bytes_max")]
        return int(sizes.max(initial=0)) or None

    @property
    def solicitation(self) -> Solicitation:
        """How writes get their data across."""
        return self._solicitation[0]

    @property
    def assumed_names(self) -> frozenset[str]:
        """Fields of ``solicitation`` that the packets do not show."""
        return self._solicitation[1]

    @cached_property
    def _solicitation(self) -> tuple[Solicitation, frozenset[str]]:
        tables = self.session.tables
        return measure(tables["parameters"], self._complete("is_write"), tables["rounds"])

    @cached_property
    def is_status_held(self) -> bool:
        """Whether most reads got their status apart from the data, and waited for it half an RTT or more in `ack_wait`
        (docs/method.md, section 8): TCP held it until the data was acknowledged. A status that only comes apart does
        not wait.
        """
        session, path = self.session, self.session.path
        if self.operation != "read" or path is None:
            return False
        is_read = session.is_transfer & session.cycles.raw("is_read")
        waited_ns = session.waits_by_cycle(session.stretches("ack_wait"))
        is_held = is_read & ~session.cycles.raw("is_status_in_data") & (waited_ns >= path.delay_ns)
        return bool(is_held.sum() > MOST * is_read.sum())

    @cached_property
    def is_status_apart(self) -> bool:
        """Whether most reads got their status in a SCSI Response, not in the last Data-In."""
        return self.operation == "read" and bool(self._transfers.raw("is_status_in_data").mean() < 1 - MOST)

    def setting(self, block_bytes: int, queue_depth: int) -> Setting:
        """The model's setting for commands of that size and queue depth; the depth is that of all connections together.

        Without C and service time, which a fit and a what-if take from the time breakdown each in its way.
        """
        path = self.session.path
        return Setting(
            operation=self.operation,
            block_bytes=block_bytes,
            delay_ns=path.delay_ns if path else 0.0,
            queue_depth=queue_depth,
            connections=self.connection_count,
            is_status_held=self.is_status_held,
            solicitation=self.solicitation,
            window_bytes=self.window_bytes,
            start_window_bytes=self.start_window_bytes,
            segment_bytes=self.segment_bytes,
        )
