"""Agreement of both worlds: the throughputs of the same runs over the kernel's TCP and in virtual time.

Reads of 128 KiB at queue depth 1 over 320 Mbit/s: at five delays, and with 0.1 % loss (Reno), where each seed loses the
same packets of a direction in both worlds. A simulated host has zero service time; a real host, and an emulated link,
needs time to wake up, read and copy. These delays are measured in the captures of the real run and set in the
simulation. The fastest of several real runs counts, because other programs can only slow a run down. Needs root;
prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import iscsitrace
from bench.process import FOLDER, machine
from iscsitrace.lab import real, run_files, simulation

DELAYS_MS = (1, 2, 4, 8, 16)
RATE_BPS = 320_000_000
BLOCK_BYTES = 128 << 10
LOSS = 0.001
SEEDS = 20
REPEATS = 5
_MS_NS = 1_000_000
_COMMAND_FRAME_BYTES = 114
"""Headers of a SCSI command: Ethernet, IPv4, TCP with timestamps, and 48 bytes."""
# fixed, so that the kernel does not tune them: a window larger than any block
_TCP = {"congestion_control": "reno", "receive_buffer_bytes": 3 << 20, "send_buffer_bytes": 4 << 20, "nagle": False}


@dataclass(frozen=True)
class Hosts:
    """Delays from the last byte that reaches a host to the first byte of its answer, with no service time set."""

    initiator_ns: int = 0
    target_ns: int = 0
    path_ns: int = 0
    """Time of a packet from host to host in excess of rate and delay: the emulated link has to wake up."""

    @property
    def text(self) -> str:
        """The three delays, in the order of DELAYS_NOTE."""
        return " ".join(f"{ns / 1e3:.0f}" for ns in (self.initiator_ns, self.target_ns, self.path_ns))


DELAYS_NOTE = (
    "delays: from a status to the next command, from a command to its data, of a packet in excess of rate and delay; "
    "means in us"
)


@dataclass(frozen=True)
class Setting:
    """A run in either world."""

    delay_ms: float
    total_bytes: int
    loss: float = 0.0
    seed: int = 1
    hosts: Hosts = Hosts()

    def as_simulated(self) -> dict[str, Any]:
        """The settings, for either world."""
        direction = {
            "rate_bps": RATE_BPS,
            "delay_ns": round(self.delay_ms * _MS_NS) + self.hosts.path_ns,
            "loss_probability": self.loss,
        }
        return {
            "client": {"workload": {"block_size_bytes": BLOCK_BYTES, "total_bytes": self.total_bytes}},
            "portals": [{}],
            "world": {
                "initiator_tcp": _TCP,
                "target_tcp": _TCP,
                "initiator_host_delay_ns": self.hosts.initiator_ns,
                "target_host_delay_ns": self.hosts.target_ns,
                "paths": [{"to_target": direction, "to_initiator": direction, "seed": self.seed}],
                "seed": self.seed,
            },
        }


def simulated(setting: Setting) -> float:
    """Throughput in virtual time, in bytes per second."""
    with tempfile.TemporaryDirectory() as folder:
        return throughput_of(simulation.run(setting.as_simulated(), Path(folder), lambda *_: False))


def kernel(setting: Setting) -> float:
    """Throughput over the kernel's TCP, in bytes per second."""
    with tempfile.TemporaryDirectory() as folder:
        programs = real.Programs(capture_at=())
        return throughput_of(real.run(setting.as_simulated(), Path(folder), lambda _: False, programs=programs))


def kernel_and_hosts(setting: Setting) -> tuple[float, Hosts]:
    """Throughput over the kernel's TCP, and the delays of the hosts for a read, from the captures at both hosts.

    Means, because a run is longer by their sum.
    """
    with tempfile.TemporaryDirectory() as folder:
        throughput = throughput_of(real.run(setting.as_simulated(), Path(folder), lambda _: False))
        return throughput, hosts_of(Path(folder), setting.as_simulated(), BLOCK_BYTES)


def hosts_of(folder: Path, settings: dict[str, Any], block_bytes: int) -> Hosts:
    """Delays of the hosts and the link between them for a read of this size, from the captures of a run."""
    at_initiator, at_target = (_reads(folder / name, block_bytes) for name in run_files.capture_names(1))
    between = at_initiator["command_first_ns"][1:] - at_initiator["status_ns"][:-1]
    served = at_target["data_first_ns"] - at_target["command_last_ns"]
    path = settings["world"]["paths"][0]["to_target"]
    frame_bytes = _COMMAND_FRAME_BYTES + path.get("overhead_bytes", 0)
    set_ns = path.get("delay_ns", 0) + frame_bytes * 8e9 / path["rate_bps"]
    passed = at_target["command_last_ns"] - at_initiator["command_first_ns"]
    return Hosts(int(np.mean(between)), int(np.mean(served)), max(0, int(np.mean(passed) - set_ns)))


def _reads(capture: Path, block_bytes: int) -> dict[str, Any]:
    cycles = iscsitrace.read(str(capture)).cycles
    is_block = cycles.raw("bytes") == block_bytes
    names = ("command_first_ns", "command_last_ns", "data_first_ns", "status_ns")
    return {name: cycles.raw(name)[is_block] for name in names}


def throughput_of(truth: dict[str, Any]) -> float:
    """Throughput of a run, in bytes per second; RuntimeError if a command failed."""
    results = truth["results"]
    if results["errors"]:
        raise RuntimeError(results["errors"][0])
    return float(results["bytes"] * 1e9 / results["elapsed_ns"])


def of_delay(delay_ms: float, seconds: float = 1.5) -> Setting:
    """Reads at this delay, for about this many seconds."""
    one_ms = 2 * delay_ms + BLOCK_BYTES * 8e3 / RATE_BPS
    return Setting(delay_ms, max(20, round(seconds * 1000 / one_ms)) * BLOCK_BYTES)


def of_loss(seeds: int, hosts: Hosts = Hosts(), total_bytes: int = 16 << 20) -> Iterator[Setting]:
    """Reads over 4 ms with 0.1 % loss, for each seed."""
    for seed in range(1, seeds + 1):
        yield Setting(4.0, total_bytes, LOSS, seed, hosts)


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    print("reads of 128 KiB, QD 1, 320 Mbit/s; MB/s; real: the fastest of", arguments.repeats, "(and the slowest)")
    print(DELAYS_NOTE)
    headings = (
        ("real", 18),
        ("simulated", 11),
        ("error %", 9),
        ("delays us", 12),
        ("no delays", 14),
        ("error %", 9),
    )
    print(f"{'one way ms':>10}" + "".join(f"{heading:>{width}}" for heading, width in headings))
    found: dict[str, Any] = {"delays": []}
    hosts = Hosts()
    for delay_ms in DELAYS_MS:
        setting = of_delay(delay_ms)
        runs = [kernel_and_hosts(setting) for _ in range(arguments.repeats)]
        measured, hosts = max(runs, key=lambda each: each[0])
        predicted, ideal = simulated(replace(setting, hosts=hosts)), simulated(setting)
        found["delays"].append({"delay_ms": delay_ms, "real": runs, "simulated": predicted, "without": ideal})
        cells = (
            f"{measured / 1e6:.3f} ({min(runs)[0] / 1e6:.3f})",
            f"{predicted / 1e6:.3f}",
            f"{100 * (predicted / measured - 1):+.2f}",
            hosts.text,
            f"{ideal / 1e6:.3f}",
            f"{100 * (ideal / measured - 1):+.2f}",
        )
        row = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, headings, strict=True))
        print(f"{delay_ms:10}{row}", flush=True)
    pairs = [(kernel(setting), simulated(setting)) for setting in of_loss(arguments.seeds, hosts)]
    found["losses"] = pairs
    of_kernel, of_simulation = zip(*pairs, strict=True)
    print(f"\n0.1 % loss, Reno, 4 ms one way, {arguments.seeds} seeds; MB/s")
    for name, values in (("real", of_kernel), ("simulated", of_simulation)):
        print(f"{name:>10}{statistics.mean(values) / 1e6:9.3f} mean{statistics.stdev(values) / 1e6:9.3f} deviation")
    error = statistics.mean(of_simulation) / statistics.mean(of_kernel) - 1
    apart = statistics.mean(abs(b / a - 1) for a, b in pairs)
    print(f"the means differ by {100 * error:+.2f} %, runs with the same seed by {100 * apart:.2f} % on average")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "worlds.json").write_text(json.dumps(found, indent=1, default=asdict) + "\n")


if __name__ == "__main__":
    main()
