"""Recordings of two Linux kernels: their captures, and what the kernels and the network counted and measured.

A recording is a description (``NAME.json``) with its captures and, for either host, the trace event tcp_probe and
samples of TCP_INFO. This file analyses no capture.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from bench.senders import Known, of_probe

SIDES = ("initiator", "target")
_WAYS = {"to_target": "initiator_to_target", "to_initiator": "target_to_initiator"}
_MICROSECOND_NS = 1_000
_RECOVERING = (3, 4)
"""The states of a sender in fast recovery, and after a timeout (Linux's TCP_CA_Recovery, TCP_CA_Loss)."""


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

    def rate_bps(self, side: str) -> int | None:
        """The rate of the line that a host sends over, if it was limited."""
        is_limited = "rate" in self.truth["network"].get(f"netem_{side}_egress", "")
        return int(self.truth["bottleneck_bit_per_s"]) if is_limited else None

    @property
    def median_delay_ms(self) -> dict[str, float]:
        """One-way delays by direction, measured packet by packet; empty without captures at both ends of one target."""
        measured = self.truth.get("measured_one_way_delay_ms") or {}
        ways = {name: value["p50"] for name, value in measured.items() if "_to_" in name}
        found = {way: [ways[name] for name in ways if name.startswith(words)] for way, words in _WAYS.items()}
        return {way: float(each[0]) for way, each in found.items()} if len(ways) == len(_WAYS) else {}


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
        """Its congestion window by tcp_probe, on a clock that its own is ahead of; None without two rows."""
        time_ns = [_time_ns(row) - ahead_ns for row in self.rows]
        return of_probe(time_ns, [int(row["snd_cwnd_segs"]) * self.segment_bytes for row in self.rows])

    @property
    def segment_bytes(self) -> int:
        """Payload of a full segment."""
        return int(self.times_ms["mss"])

    @cached_property
    def samples(self) -> list[dict[str, Any]]:
        """Its TCP_INFO every 20 ms."""
        ends = {"local": self.local, "peer": self.peer}
        return [
            each
            for each in _samples(self.file.with_name(f"{self.file.stem}.{self.side}.ss.jsonl.gz"))
            if "cwnd" in each and ends == {end: f"{each[end]}:{each[f'{end[0]}port']}" for end in ends}
        ]

    @cached_property
    def _busy_samples(self) -> list[dict[str, Any]]:
        return [each for each in self.samples if each["unacked"] or each["notsent"]]

    @property
    def cwnd_limited_ns(self) -> tuple[int, int] | None:
        """How long its congestion window held it, and how long it was busy, login included; None without TCP_INFO.

        By the share of samples in which it had more to send, and as much in flight as its window allows. Time in which
        it recovers from a loss is apart.
        """
        busy = self._busy_samples
        sending = [each for each in busy if each["notsent"] and each["ca_state"] not in _RECOVERING]
        held = [each for each in sending if _pipe(each) >= each["cwnd"]]
        if not busy:
            return None
        busy_ns = self.samples[-1]["busy_us"] * _MICROSECOND_NS
        return round(busy_ns * len(held) / len(busy)), busy_ns

    @property
    def rtt_ms(self) -> dict[str, float]:
        """Its ``least`` RTT, and under ``load`` the median of the smoothed ones while it was busy; none is left out."""
        least = [each["min_rtt_us"] for each in self.samples if each["min_rtt_us"]]
        load = [each["rtt_us"] for each in self._busy_samples if each["rtt_us"]]
        return {"least": min(least) / 1000, "load": median(load) / 1000} if least and load else {}


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


@lru_cache(maxsize=4)
def _samples(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _pipe(sample: dict[str, Any]) -> int:
    """Segments in the network, as the kernel counts them (tcp_packets_in_flight)."""
    return int(sample["unacked"] - sample["sacked"] - sample["lost"] + sample["retrans"])


def _time_ns(row: dict[str, str]) -> int:
    return int(row["time"].replace(".", "")) * _MICROSECOND_NS
