"""Agreement of both worlds on designs of initiators, and the time that each design needs for a read.

Sequential reads at queue depth 1 over a link without delay, by our initiator with events, with events and no copies,
and with threads. A simulated host has zero service time. The delays of the real hosts (from a status to the next
command, from a command to its data) and of the emulated link, which has to wake up for a packet, are measured in the
captures of the real run and set in the simulation. The fastest of several real runs counts, because other programs can
only slow a run down. Needs root; prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.process import FOLDER, machine
from bench.worlds import DELAYS_NOTE, Hosts, hosts_of, throughput_of
from iscsitrace.lab import real, simulation
from iscsitrace.wording import amounts

BLOCKS = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
DESIGNS = {"events": ("events", "copy"), "events, no copy": ("events", "discard"), "threads": ("threads", "copy")}
RATE_BPS = 100_000_000
SECONDS = 1.0
REPEATS = 3
NO_TIME = Hosts()
_OVERHEAD_BYTES = 24
_TCP = {"receive_buffer_bytes": 3 << 20, "send_buffer_bytes": 4 << 20, "nagle": False}


@dataclass(frozen=True)
class Setting:
    """A run in either world."""

    block_bytes: int
    rate_bps: int
    seconds: float
    design: tuple[str, str] = DESIGNS["events"]
    hosts: Hosts = NO_TIME
    is_bypassed: bool = False

    def as_simulated(self) -> dict[str, Any]:
        """The settings, in the form that both worlds accept."""
        line = {"rate_bps": self.rate_bps, "delay_ns": self.hosts.path_ns, "overhead_bytes": _OVERHEAD_BYTES}
        count = max(20, round(self.seconds * self.rate_bps / 8 / (self.block_bytes + 4096)))
        keys = {"max_recv_data_segment_length": 1 << 20, "max_burst_length": 1 << 20}
        return {
            "client": {
                "login": {"offers": keys},
                "workload": {"block_size_bytes": self.block_bytes, "total_bytes": count * self.block_bytes},
            },
            "portals": [{"keys": {"max_burst_length": 1 << 20}}],
            "world": {
                "initiator_tcp": _TCP,
                "target_tcp": _TCP,
                "initiator_host_delay_ns": self.hosts.initiator_ns,
                "target_host_delay_ns": self.hosts.target_ns,
                "paths": [{"to_target": line, "to_initiator": line}],
                "snaplen_bytes": 160,
            },
        }


@dataclass(frozen=True)
class Real:
    """Results of a real run."""

    throughput_bytes_per_s: float
    hosts: Hosts
    cpu_s_per_gigabyte: float


def simulated(setting: Setting) -> float:
    """Throughput in virtual time, in bytes per second."""
    with tempfile.TemporaryDirectory() as folder:
        return throughput_of(simulation.run(setting.as_simulated(), Path(folder), lambda *_: False))


def kernel(setting: Setting) -> Real:
    """Throughput over the kernel's TCP, in bytes per second."""
    driver, receive = setting.design
    programs = real.Programs(driver=driver, receive=receive, is_bypassed=setting.is_bypassed)
    with tempfile.TemporaryDirectory() as folder:
        truth = real.run(setting.as_simulated(), Path(folder), lambda _: False, programs=programs)
        hosts = hosts_of(Path(folder), setting.as_simulated(), setting.block_bytes)
    results = truth["results"]
    each = amounts.seconds_per_gigabyte(results["cpu"], results["bytes"])
    return Real(throughput_of(truth), hosts, each or 0.0)


def fastest(setting: Setting, repeats: int) -> Real:
    """The best of several runs."""
    return max((kernel(setting) for _ in range(repeats)), key=lambda each: each.throughput_bytes_per_s)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=RATE_BPS, help="rate of the line, in bits per second")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration of each run")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--bypass", action="store_true", help="use a veth pair without a rate; simulate nothing")
    arguments = parser.parse_args()
    where = "a veth pair" if arguments.bypass else f"{arguments.rate / 1e6:g} Mbit/s"
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    print(f"reads, QD 1, over {where}; MB/s; real: the fastest of {arguments.repeats}")
    print(DELAYS_NOTE)
    print(f"{'design':17}{'I/O':>8}{'real':>10}{'simulated':>11}{'error %':>9}{'delays us':>13}{'CPU s/GB':>10}")
    found = []
    for name, design in DESIGNS.items():
        for block_bytes in BLOCKS:
            setting = Setting(block_bytes, arguments.rate, arguments.seconds, design, is_bypassed=arguments.bypass)
            measured = fastest(setting, arguments.repeats)
            throughput, hosts = measured.throughput_bytes_per_s, measured.hosts
            predicted = None if arguments.bypass else simulated(replace(setting, hosts=hosts))
            found.append({"design": name, "block_bytes": block_bytes, "real": asdict(measured), "simulated": predicted})
            beside = ("", "")
            if predicted is not None:
                beside = (f"{predicted / 1e6:.3f}", f"{100 * (predicted / throughput - 1):+.1f}")
            print(
                f"{name:17}{block_bytes >> 10:>6} K{throughput / 1e6:10.3f}{beside[0]:>11}{beside[1]:>9}"
                f"{hosts.text:>13}{measured.cpu_s_per_gigabyte:10.2f}",
                flush=True,
            )
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "designs.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
