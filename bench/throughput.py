"""Utilisation of a link by our initiator and by iperf3; and packets per second of the simulated world.

Over 200 Mbit/s and 8 ms one way: reads of 4 MiB at queue depth 4, and iperf3 in the same direction (-R), in turn over
the same link, with the same congestion control and buffers. Goodput is payload over the whole time, slow start
included. Without root only the simulated world is measured. Prints, and asserts nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.process import FOLDER, machine
from iscsitrace.lab import actors, peers, real, simulation, traffic

SECONDS = 8
ROUNDS = 3
CONGESTION_CONTROLS = ("reno", "cubic", "bbr")
SIMULATED_BYTES = 512 << 20
_SECOND_NS = 1_000_000_000


def settings(congestion_control: str) -> dict[str, Any]:
    """Settings of a run, as for a simulation."""
    direction = {"rate_bps": 200_000_000, "delay_ns": 8_000_000}
    buffers = {"receive_buffer_bytes": 3 << 20, "send_buffer_bytes": 4 << 20}
    tcp = {"congestion_control": congestion_control, **buffers, "nagle": False}
    workload = {"block_size_bytes": 4 << 20, "queue_depth": 4, "duration_ns": SECONDS * _SECOND_NS}
    path = {"to_target": direction, "to_initiator": direction}
    return {
        "client": {"workload": workload},
        "portals": [{}],
        "world": {"initiator_tcp": tcp, "target_tcp": tcp, "paths": [path]},
    }


def beside_iperf3(congestion_control: str) -> list[tuple[float, float]]:
    """Goodput of our initiator against our target, and of iperf3, in bits per second, round by round."""
    asked = settings(congestion_control)
    rounds = []
    with real.up(asked["world"]) as world, peers.iperf3_server(world.hosts["target"]):
        for _ in range(ROUNDS):
            with actors.target("iscsitrace", world.hosts["target"], world.address("target"), asked) as target:
                found = actors.run_initiator("iscsitrace", world.hosts["initiator"], [target], asked, lambda _: False)
            results = found["results"]
            if results["errors"]:
                raise RuntimeError(results["errors"][0])
            theirs = peers.iperf3(world.hosts["initiator"], world.hosts["target"].address, "-R", seconds=SECONDS)
            received = theirs["end"]["sum_received"]["bits_per_second"]
            rounds.append((results["bytes"] * 8 * _SECOND_NS / results["elapsed_ns"], float(received)))
    return rounds


def simulated_packets_per_s(*, has_captures: bool) -> float:
    """Packets through the initiator's tap per second of wall time."""
    asked = settings("cubic")
    asked["client"]["workload"] |= {"duration_ns": None, "total_bytes": SIMULATED_BYTES}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        if has_captures:
            truth = simulation.run(asked, Path(folder), lambda *_: False)
        else:
            truth = traffic.simulate(asked, [None, None], lambda *_: False)
        return float(truth["packet_counts"][0] / (time.perf_counter() - started))


def main() -> None:
    """Runs the bench."""
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    found: dict[str, Any] = {}
    for has_captures in (False, True):
        rate = max(simulated_packets_per_s(has_captures=has_captures) for _ in range(ROUNDS))
        found["captured" if has_captures else "not_captured"] = rate
        what = "with both captures and the truth written" if has_captures else "without captures"
        print(f"simulated world: {rate:,.0f} packets per second of wall time {what}")
    if os.geteuid() == 0:
        print(f"\n200 Mbit/s, 8 ms; Mbit/s of payload, median of {ROUNDS}\n{'':8}{'ours':>9}{'iperf3':>9}{'ratio':>8}")
        for name in CONGESTION_CONTROLS:
            try:
                rounds = beside_iperf3(name)
            except Exception as error:  # a kernel without it
                print(f"{name:8} {error}")
                continue
            ours, theirs = (statistics.median(each) / 1e6 for each in zip(*rounds, strict=True))
            found[name] = rounds
            print(f"{name:8}{ours:9.2f}{theirs:9.2f}{ours / theirs:8.3f}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "throughput.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
