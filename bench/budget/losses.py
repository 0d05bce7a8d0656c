"""Retransmissions: the results of iscsitrace, tshark and tcptrace at a tap, against the count of the sender.

At the tap beside the sender, packets pass in the order of sending: a packet that begins below the highest byte sent so
far is a retransmission, with certainty. At the far tap the same packets are expected, if they arrived. Their number
must equal the sender's count.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import iscsitrace
from bench.budget.packets import ANSWER_NS, Packet, resent
from tests.support import tshark

TAPS = ("initiator", "target")


@dataclass(frozen=True)
class Found:
    """Results of a tool for one direction at one tap."""

    found: int
    missed: int
    false: int

    def __add__(self, other: Found) -> Found:
        return Found(self.found + other.found, self.missed + other.missed, self.false + other.false)


NOTHING = Found(0, 0, 0)


def of_frames(reported: Iterable[int], true: Iterable[int]) -> Found:
    """Frames that a tool reports as retransmissions, against the true ones."""
    reported, true = set(reported), set(true)
    return Found(len(reported & true), len(true - reported), len(reported - true))


def true_frames(packets: Mapping[str, list[Packet]], tap: str) -> dict[int, str]:
    """Retransmitted frames at a tap, and their causes."""
    found = {}
    for near in TAPS:
        causes = {packet.key: cause for packet, cause in reasons(packets[near], to_target=near == "initiator").items()}
        for packet in packets[tap]:
            if packet.to_target is (near == "initiator") and packet.key in causes:
                found[packet.frame] = causes[packet.key]
    return found


def reasons(near: list[Packet], *, to_target: bool) -> dict[Packet, str]:
    """Retransmissions of a direction at the tap beside their sender, and whether an ACK or a timer caused each."""
    mine = {packet for packet in resent(near) if packet.to_target is to_target}
    found, received_ns, highest, driven = {}, 0, 0, ""
    for packet in near:
        if packet.to_target is not to_target:
            received_ns = packet.time_ns
            continue
        if packet in mine:
            if packet.time_ns - received_ns <= ANSWER_NS:
                driven = "ack"
            elif packet.end >= highest:
                driven = "timer, last bytes"
            else:
                driven = "timer"
            found[packet] = driven
        highest = max(highest, packet.end)
    return found


def by_iscsitrace(capture: Path) -> dict[int, tuple[str, bool]]:
    """Retransmitted frames by iscsitrace, each with its cause and whether it was spurious."""
    table = iscsitrace.read(str(capture), tables=("retransmissions",)).retransmissions
    return {row["frame"]: (row["cause"], row["is_spurious"]) for row in table.rows()}


def by_tshark(capture: Path, *, is_out_of_order_counted: bool = False) -> list[int]:
    """Retransmitted frames by tshark, fast and spurious ones included; out-of-order frames on request."""
    kinds = ["retransmission", "fast_retransmission", "spurious_retransmission"]
    kinds += ["out_of_order"] if is_out_of_order_counted else []
    return tshark.frame_numbers(capture, " || ".join(f"tcp.analysis.{kind}" for kind in kinds))


def by_tcptrace(capture: Path) -> int:
    """Retransmissions of data that tcptrace counts, in both directions."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "capture.pcap")
        subprocess.run(["editcap", "-F", "pcap", str(capture), str(plain)], check=True, capture_output=True, timeout=60)
        reported = subprocess.run(
            ["tcptrace", "-l", "-n", str(plain)], check=True, capture_output=True, text=True, timeout=60
        ).stdout
    return sum(
        int(count)
        for pair in re.findall(r"rexmt data pkts:\s+(\d+)\s+rexmt data pkts:\s+(\d+)", reported)
        for count in pair
    )


@dataclass
class Losses:
    """Results of several runs: frames found by each tool at either tap, and the true causes against ours."""

    tools: dict[tuple[str, str], Found]
    counts: Counter[tuple[str, str]]
    causes: dict[str, Counter[str]]

    @classmethod
    def none(cls) -> Losses:
        """No runs yet."""
        return cls({}, Counter(), defaultdict(Counter))

    def add(self, files: Mapping[str, Path], packets: Mapping[str, list[Packet]]) -> dict[str, dict[str, Found]]:
        """Adds a run; returns its results by tap and tool."""
        of_run: dict[str, dict[str, Found]] = {}
        for tap in TAPS:
            true, reported = true_frames(packets, tap), by_iscsitrace(files[tap])
            of_run[tap] = {
                "iscsitrace": of_frames(reported, true),
                "tshark": of_frames(by_tshark(files[tap]), true),
                "tshark with out-of-order": of_frames(by_tshark(files[tap], is_out_of_order_counted=True), true),
            }
            for tool, found in of_run[tap].items():
                self.tools[tap, tool] = self.tools.get((tap, tool), NOTHING) + found
            self.counts[tap, "true"] += len(true)
            self.counts[tap, "tcptrace"] += by_tcptrace(files[tap])
            for frame, cause in true.items():
                self.causes[cause][reported[frame][0] if frame in reported else "missed"] += 1
            for frame in reported:
                if frame not in true:
                    self.causes["none: no retransmission"][reported[frame][0]] += 1
        return of_run

    def show(self) -> None:
        """Prints the results as tables."""
        if not self.counts:
            return
        print("\nretransmissions of all lossy runs, by frame")
        print(f"{'tap':12}{'tool':28}{'found':>8}{'missed':>8}{'false':>8}")
        for (tap, tool), found in sorted(self.tools.items()):
            print(f"{tap:12}{tool:28}{found.found:8}{found.missed:8}{found.false:8}")
        for tap in TAPS:
            print(f"{tap:12}tcptrace counts {self.counts[tap, 'tcptrace']} of {self.counts[tap, 'true']}")
        causes = sorted({cause for counted in self.causes.values() for cause in counted})
        print(f"\n{'true cause / reported cause':30}" + "".join(f"{cause:>14}" for cause in causes))
        for driven, counted in sorted(self.causes.items()):
            print(f"{driven:30}" + "".join(f"{counted[cause] or '':>14}" for cause in causes))
