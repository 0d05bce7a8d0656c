"""The setting of cycles as far as the packets tell it: the delay of the path, windows, and the keys in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.model.setting import Setting, Solicitation
from iscsitrace.analysis.session.spans import Spans, Tasks
from iscsitrace.tables.table import Table

INITIAL_WINDOW_SEGMENTS: Final = 10
"""RFC 6928: with so many a sender begins, and begins anew after a pause."""

_SIDES: Final = ("target", "initiator")
_KEYS: Final = {
    "InitialR2T": "is_initial_r2t",
    "ImmediateData": "is_immediate_data",
    "FirstBurstLength": "first_burst_bytes",
    "MaxBurstLength": "max_burst_bytes",
    "MaxOutstandingR2T": "max_outstanding_r2t",
    "MaxRecvDataSegmentLength": "max_recv_data_segment_bytes",
}


@dataclass(frozen=True)
class Path:
    """The path of a session, by its busiest connection."""

    delay_ns: float
    delay_low_ns: float
    """At 95 % confidence: see `low_ns`."""

    @property
    def round_trip_ns(self) -> float:
        """There and back."""
        return 2 * self.delay_ns


def low_ns(least_ns: float, median_ns: float, count: int) -> float:
    """How low the path's round trip may be when the least of so many samples is this.

    What samples take beyond it is taken for exponential, by their median. Then the least of n takes, with 95 %
    confidence, at most ln 20 / n times the mean.
    """
    mean_ns = (median_ns - least_ns) / np.log(2)
    return max(0.0, float(least_ns - np.log(20) / max(count, 1) * mean_ns))


class Session:
    """The rows of one session that say how it was set up."""

    def __init__(self, connections: Sequence[dict[str, Any]], tables: dict[str, Table]) -> None:
        """``connections`` are its rows of that table, ``tables`` its rows of senders, parameters, cycles and rounds."""
        self.connections = connections
        self.tables = tables

    @cached_property
    def senders(self) -> dict[tuple[int, bool], dict[str, Any]]:
        """By connection and direction."""
        return {(row["connection"], row["to_target"]): row for row in self.tables["senders"].rows()}

    @cached_property
    def busiest(self) -> dict[str, Any]:
        """The connection that carried most."""
        return max(self.connections, key=lambda row: row["stream_bytes_to_target"] + row["stream_bytes_to_initiator"])

    @cached_property
    def path(self) -> Path | None:
        """None where a round trip was never seen, or takes no time."""
        least = [self.busiest[f"rtt_to_{side}_min_ns"] for side in _SIDES]
        if None in least or sum(least) <= 0:
            return None
        low = 0.0
        for side, least_ns in zip(_SIDES, least, strict=True):
            row = self.senders.get((self.busiest["connection"], side == "target"), {})
            median_ns = row.get("rtt_median_ns")
            low += low_ns(least_ns, max(least_ns, median_ns or 0), row.get("rtt_count") or 1) if median_ns else least_ns
        return Path(sum(least) / 2, low / 2)

    @property
    def why_no_path(self) -> str:
        """What is in the way of a delay."""
        unseen = next((side for side in _SIDES if self.busiest[f"rtt_to_{side}_min_ns"] is None), None)
        return f"no round trip to the {unseen} was seen" if unseen else "its round trips take no time"

    def setting(self, spans: Spans) -> Setting:
        """What the model has to know of these cycles, but for service, C and whether a status is held."""
        to_target = spans.operation == "write"
        rows = [row for (_, direction), row in self.senders.items() if direction == to_target]
        used = [row for row in rows if row["owin_max_bytes"]] or rows
        # the window of a session is that of its connections together; the model reckons per connection
        windows = [row["rwnd_max_bytes"] for row in used if not row["is_window_scale_inferred"]]
        restarted = sum(row["restart_after_idle_count"] for row in used)
        segment_bytes = max((row["segment_bytes"] or 0 for row in used), default=0) or Setting.segment_bytes
        connections = max(1, min(len(used), spans.queue_depth))
        return Setting(
            operation=spans.operation,
            block_bytes=spans.block_bytes,
            delay_ns=self.path.delay_ns if self.path else 0.0,
            queue_depth=max(1, round(spans.queue_depth / connections)),
            connections=connections,
            solicitation=self._solicitation,
            window_bytes=min((each for each in windows if each), default=None),
            start_window_bytes=INITIAL_WINDOW_SEGMENTS * segment_bytes if restarted else None,
            segment_bytes=segment_bytes,
        )

    @cached_property
    def _solicitation(self) -> Solicitation:
        """The keys in force; where no login was captured, what its writes did."""
        busiest = self.busiest["connection"]
        rows = self.tables["parameters"].rows(("connection", "key", "effective_target"))
        values = {
            _KEYS[row["key"]]: row["effective_target"]
            for row in rows
            if row["connection"] == busiest and row["key"] in _KEYS and row["effective_target"]
        }
        found: dict[str, Any] = {
            name: text == "Yes" if name.startswith("is_") else int(text, 0) for name, text in values.items()
        }
        return replace(Solicitation(), **found) if found else self._done

    @property
    def _done(self) -> Solicitation:
        cycles, rounds = self.tables["cycles"], self.tables["rounds"]
        writes = cycles.select(cycles.raw("is_write") & (cycles.raw("data_bytes") > 0))
        if not len(writes):
            return Solicitation()
        immediate, unsolicited = writes.raw("immediate_bytes"), writes.raw("unsolicited_bytes")
        bursts = rounds.raw("desired_data_transfer_length")
        return Solicitation(
            is_initial_r2t=not unsolicited.any(),
            is_immediate_data=bool(immediate.any()),
            first_burst_bytes=int((immediate.astype(np.int64) + unsolicited).max()) or Solicitation.first_burst_bytes,
            max_burst_bytes=int(bursts.max(initial=0)) or Solicitation.max_burst_bytes,
            max_recv_data_segment_bytes=int(immediate.max()) or Solicitation.max_recv_data_segment_bytes,
        )


def is_status_held(tasks: Tasks, spans: Spans, held_ns: Any, delay_ns: float) -> bool:
    """Whether more than half of the reads' statuses came apart from the data and waited for its ACK.

    ``held_ns`` is what each span waited for ACKs; a status that merely came apart waits for none.
    """
    if spans.operation != "read":
        return False
    is_apart = ~tasks.table.raw("is_status_in_data")[spans.first]
    return bool(np.mean(is_apart & (held_ns >= delay_ns)) > 0.5)
