"""Recordings of two Linux kernels: their captures, and what the kernels and the network counted and measured.

A recording is a description (``NAME.json``) with its captures and, for either host, the trace events tcp_probe and
tcp_retransmit_skb. This file analyses no capture.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.senders import Known

SIDES = ("initiator", "target")
_WAYS = {"to_target": "initiator_to_target", "to_initiator": "target_to_initiator"}
_MICROSECOND_NS = 1_000
_WRAP = 1 << 32


@dataclass(frozen=True)
class Recording:
    """One run: its truth and its captures."""

    file: Path
    """The description."""
    truth: dict[str, Any]
    captures: dict[str, Path]
    """By tap. A single capture is that of the initiator's tap."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.file.stem

    @cached_property
    def senders(self) -> tuple[Sender, ...]:
        """Both ends of each connection, as their kernels know them."""
        found = []
        for name, times in self.truth["sender_time_ms"].items():
            side, local, peer = name.replace("-", " ").split()
            found.append(Sender(self.file, side, local, peer, times))
        return tuple(found)

    @property
    def resent_counts(self) -> dict[str, int]:
        """What each host sent again in all, SYNs included, by side."""
        counters = self.truth.get("tcp_counters_delta") or {}
        return {side: int(counters.get(side, {}).get("TcpRetransSegs", 0)) for side in SIDES if counters}

    def ahead_ns(self, side: str, tap: str) -> int:
        """By how much the clock of a host is ahead of that of a tap, which is its host's."""
        clock = self.truth.get("clock", {}).get("target_minus_initiator_us_before", {}).get("offset_us", 0.0)
        return 0 if side == tap else round(clock * _MICROSECOND_NS) * (1 if side == "target" else -1)

    @property
    def rtt_ms(self) -> float | None:
        """The least RTT, of packets or else of ping, or else as it was set; None with several targets."""
        measured = self._measured_ms("min")
        if len(measured) == 2:
            return sum(measured.values())
        set_ms = self.truth["network"]["one_way_delay_ms"]
        if not all(isinstance(each, int | float) for each in set_ms.values()):
            return None
        ping = self.truth["network"].get("ping_rtt_ms_under_this_configuration")
        return float(ping["min"] if ping else sum(set_ms.values()))

    @property
    def median_delay_ms(self) -> dict[str, float]:
        """One-way delays by direction, measured packet by packet; empty without captures at both ends."""
        return self._measured_ms("p50")

    def _measured_ms(self, what: str) -> dict[str, float]:
        measured = self.truth.get("measured_one_way_delay_ms") or {}
        ways = {name: value[what] for name, value in measured.items() if "_to_" in name}
        if len(ways) != len(_WAYS):
            return {}
        return {
            way: float(value) for way, words in _WAYS.items() for name, value in ways.items() if name.startswith(words)
        }


@dataclass(frozen=True)
class Sender:
    """One end of a connection, as its kernel knows it."""

    file: Path
    """The description of its recording."""
    side: str
    local: str
    peer: str
    """Its address and port, and those of its peer."""
    times_ms: dict[str, Any]
    """Totals of TCP_INFO: ``busy``, ``rwnd_limited``, ``sndbuf_limited`` in ms, and others."""

    @property
    def initiator_port(self) -> int:
        """The port of the initiator, which names the connection."""
        return int((self.local if self.side == "initiator" else self.peer).rpartition(":")[2])

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """What tcp_probe said, a row for each segment that came in."""
        return [
            row
            for row in _probe(self.file.with_name(f"{self.file.stem}.{self.side}.tcp_probe.csv.gz"))
            if (row["local"], row["peer"]) == (self.local, self.peer) and row["event"] != "retransmit"
        ]

    def windows(self, ahead_ns: int = 0) -> Known | None:
        """Its congestion window by tcp_probe, on a clock that its own is ahead of; None without two rows.

        A row has the window before a segment was processed, which is the window since the row before.
        """
        if len(self.rows) < 2:
            return None
        time_ns = [_time_ns(row) - ahead_ns for row in self.rows]
        cwnd = [int(row["snd_cwnd_segs"]) * self.segment_bytes for row in self.rows]
        return Known(np.asarray(time_ns[:-1]), np.asarray(cwnd[1:]))

    @property
    def segment_bytes(self) -> int:
        """Payload of a full segment."""
        return int(self.times_ms["mss"])

    def full_ns(self) -> tuple[int, int]:
        """How long tcp_probe shows a congestion window without room for a segment, and how long data in flight."""
        full = busy = 0
        for before, row in pairwise(self.rows):
            flight_bytes = (int(row["snd_nxt"]) - int(row["snd_una"])) % _WRAP
            lasted_ns = (_time_ns(row) - _time_ns(before)) * (flight_bytes > 0)
            busy += lasted_ns
            full += lasted_ns * (flight_bytes + self.segment_bytes > int(row["snd_cwnd_segs"]) * self.segment_bytes)
        return full, busy


def recordings(folder: Path) -> Iterator[Recording]:
    """Every run of a folder that has counts of the kernels; none of a folder that is missing."""
    for file in sorted(folder.glob("*.json")):
        truth = json.loads(file.read_text())
        names = [each["file"] for each in truth.get("files", ()) if ".pcap" in each["file"]]
        if "sender_time_ms" in truth:
            yield Recording(
                file, truth, {"target" if ".target." in name else "initiator": folder / name for name in names}
            )


@lru_cache(maxsize=4)
def _probe(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with gzip.open(file, "rt") as lines:
        # IPv6 addresses stand in brackets here, and nowhere else
        return [
            row | {end: row[end].replace("[", "").replace("]", "") for end in ("local", "peer")}
            for row in csv.DictReader(lines)
        ]


def _time_ns(row: dict[str, str]) -> int:
    return int(row["time"].replace(".", "")) * _MICROSECOND_NS
