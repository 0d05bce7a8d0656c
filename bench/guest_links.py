"""How exactly the links between guests delay and lose packets. Needs root, QEMU and a quiet machine.

Every packet of both captures is paired by its IP identification, addresses, sequence and acknowledgment numbers and
length, as tshark reads them. Its delay, with the offset of the guests' clocks taken off, is compared with that of the
link plus what the guests' virtual devices take. A guest that sleeps longer wakes up later, and queues what comes at
once: so commands of one block, one at a time, are delayed in one direction only, and the devices are measured in the
run of the same round trip that delays the other direction. Losses are compared with the binomial distribution, the
link's log with what only one capture has, the kernels' retransmissions with the drops.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from iscsitrace.lab.guests import world
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import DIRECTIONS

MS = 1_000_000
DELAYS_MS = (1, 4, 16)
LOSS = 0.01
ONE_AT_A_TIME = {"workload.block-size": 512, "workload.bytes": 512 * 1000}
BULK = {"workload.block-size": 65_536, "workload.bytes": 16 << 20}
FIELDS = ("frame.time_epoch", "ip.src", "ip.id", "tcp.srcport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.flags")
LIMIT_MS = 0.2
BOUND = 3.29
"""Standard deviations within which 99.9 % of a binomial distribution are."""

Packets = dict[tuple[str, ...], list[int]]


def main() -> None:
    """Run every delay and the loss, and print what differs; exit code 1 if something does."""
    delays_ms = [float(word) for word in sys.argv[1:]] or DELAYS_MS
    is_good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for delay_ms in delays_ms:
            found = {way: one_way_ms(folder / f"{delay_ms:g} {way}", delay_ms, way) for way in DIRECTIONS}
            for way, (delays, _) in found.items():
                (other,) = found.keys() - {way}
                devices = statistics.median(found[other][1])
                median = statistics.median(delays)
                off = median - delay_ms - devices
                is_good &= abs(off) <= LIMIT_MS
                print(
                    f"{delay_ms:g} ms {way}: {len(delays)} packets, median {median:.3f} ms, least {min(delays):.3f}, "
                    f"devices {devices:.3f}, off by {off:+.3f} ms",
                    flush=True,
                )
        truth, at = run(folder / "loss", BULK | {"link.one-way-delay": 4 * MS, "link.loss": LOSS})
        is_good &= losses(truth, at)
    sys.exit(not is_good)


def run(folder: Path, values: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """A sequential read."""
    settings = structs.of_run({"workload.operation": "read"} | values, 1)
    return world.run(settings, folder, lambda _: False, lambda _: None), folder


def packets(file: Path) -> Packets:
    """The times of the TCP packets of a capture in ns, by what identifies a packet on both sides."""
    command = [
        "tshark",
        "-r",
        str(file),
        "-Y",
        "tcp",
        "-T",
        "fields",
        "-E",
        "separator=,",
        "-o",
        "tcp.desegment_tcp_streams:false",
    ]
    for name in FIELDS:
        command += ["-e", name]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: Packets = defaultdict(list)
    for time, *key in csv.reader(io.StringIO(text)):
        seconds, _, fraction = time.partition(".")
        found[tuple(key)].append(int(seconds) * 10**9 + int(fraction.ljust(9, "0")))
    return found


def paired(truth: dict[str, Any], folder: Path) -> dict[str, tuple[list[float], list[tuple[str, ...]]]]:
    """By direction: the one-way delays in ms of packets that both captures have, and those that only the sender has."""
    captures = truth["captures"]
    sides = packets(folder / captures["initiator"]), packets(folder / captures["targets"][0])
    offsets = [statistics.mean(truth["guests"][host]["clock"]["offset_ns"]) for host in ("initiator", "target")]
    client = next(key[0] for key in sides[0] if key[2] != "3260")
    found = {}
    for way, sender, receiver in zip(DIRECTIONS, (0, 1), (1, 0), strict=True):
        delays, lost = [], []
        for key, sent in sides[sender].items():
            if (key[0] == client) is not (sender == 0):
                continue
            got = sides[receiver].get(key, [])
            lost += [key] * (len(sent) - len(got))
            ahead = offsets[receiver] - offsets[sender]
            delays += [(there - here - ahead) / MS for here, there in zip(sent, got, strict=False)]
        found[way] = delays, lost
    return found


def one_way_ms(folder: Path, delay_ms: float, way: str) -> tuple[list[float], list[float]]:
    """Delays the packets of one direction only; the one-way delays of that direction, and of the other."""
    found = paired(*run(folder, ONE_AT_A_TIME | {f"link.{way}.one-way-delay": round(delay_ms * MS)}))
    delays = {name: each for name, (each, _) in found.items()}
    return delays.pop(way), delays.popitem()[1]


def losses(truth: dict[str, Any], folder: Path) -> bool:
    """Print losses beside what they should be; whether they are."""
    is_good = True
    retransmitted = {
        DIRECTIONS[0]: sum(end["retransmitted_segment_count"] for end in truth["initiator_ends"]),
        DIRECTIONS[1]: truth["guests"]["target"]["counters"]["Tcp"].get("RetransSegs", 0),
    }
    for way, (delays, missing) in paired(truth, folder).items():
        counters = truth["paths"][0][way.replace("-", "_")]["counters"]
        count, lost = counters["arrived"]["count"], counters["lost"]["count"]
        spread = BOUND * math.sqrt(count * LOSS * (1 - LOSS))
        is_within = abs(lost - count * LOSS) <= spread
        is_good &= is_within
        print(
            f"{LOSS:.0%} loss {way}: {lost} of {count} packets (binomial: {count * LOSS:.0f} +- {spread:.0f}), "
            f"{len(missing)} TCP packets in the sender's capture alone, {len(delays)} in both; "
            f"retransmitted by the kernel: {retransmitted[way]}",
        )
    return is_good


if __name__ == "__main__":
    main()
