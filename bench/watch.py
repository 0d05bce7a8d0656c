"""Load test of the live view: memory and CPU time over ten minutes at the highest rate of the lab.

Our initiator reads from our target over a veth pair between two namespaces as fast as they can. tcpdump captures at the
initiator. Its output goes both into a file and into ``watch``, so the final figures of the view can be compared with
``summary`` of the file. Without ``--keep`` the file is a pipe that ``summary`` reads at the same time, because ten
minutes take 30 GB. Needs root; prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.process import FOLDER, machine
from iscsitrace.lab.namespaces import EndSettings, network
from iscsitrace.lab.places import Place, portal

SNAPLEN_BYTES = 160
LUN = "64M"
NAME = "iqn.2026-11.example:watch"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TOTALS = ("packet_count", "tcp_packet_count", "volumes", "queue_depth", "block_sizes", "coverage", "counters")


@dataclass
class ProcessUsage:
    """CPU and memory of a process, sampled once a second."""

    rss_mb: list[float] = field(default_factory=list)
    processor_s: float = 0.0

    def sample(self, process_id: int) -> None:
        try:
            status = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return
        self.rss_mb.append(int(status[21]) * _PAGE / 1e6)
        self.processor_s = (int(status[11]) + int(status[12])) / _TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--block-size", default="64K")
    parser.add_argument("--queue-depth", default="8")
    parser.add_argument("--keep", action="store_true", help="write the packets to a file, and read it afterwards")
    options = parser.parse_args()
    print(machine())
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        _run(Path(folder), options)


def _run(folder: Path, options: argparse.Namespace) -> None:
    capture, lines = folder / "beside.pcap", folder / "watch.jsonl"
    ends = {"initiator": EndSettings(), "target": EndSettings()}
    with network(ends, cable="veth") as made:
        host, disk = made["initiator"], made["target"]
        address = str(disk.address)
        program = [sys.executable, "-m", "iscsitrace"]
        target = disk.started(
            sys.executable,
            "-m",
            "iscsitrace",
            "target",
            "--lun",
            LUN,
            "--listen",
            portal(address, 3260),
            "--name",
            NAME,
            package="iscsitrace",
        )
        with target as serving:
            serving.wait_until(lambda: disk.answers(address, 3260), "no target")
            _measure(host, capture, lines, [*program], f"iscsi://{portal(address, 3260)}/{NAME}/0", options)


def _measure(
    host: Place, capture: Path, lines: Path, program: list[str], url: str, options: argparse.Namespace
) -> None:
    dump = shutil.which("tcpdump")
    tee = shutil.which("tee")
    assert dump, "tcpdump is needed"
    assert tee, "tee is needed"
    capturing = host.command(
        dump, "-i", "eth0", "-s", str(SNAPLEN_BYTES), "-B", "65536", "-U", "-w", "-", package="tcpdump"
    )
    beside = capture.with_suffix(".json")
    if not options.keep:
        os.mkfifo(capture)
    with (
        beside.open("wb") as summed,
        subprocess.Popen(["true"] if options.keep else [*program, "summary", "--json", str(capture)], stdout=summed),
        lines.open("wb") as out,
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(capturing, stdout=subprocess.PIPE, stderr=messages) as tcpdump,
        subprocess.Popen([tee, str(capture)], stdin=tcpdump.stdout, stdout=subprocess.PIPE) as both,
        subprocess.Popen([*program, "watch", "--json", "-"], stdin=both.stdout, stdout=out) as watch,
    ):
        time.sleep(2)
        load = host.command(
            sys.executable,
            "-m",
            "iscsitrace",
            "initiator",
            "read",
            url,
            "--block-size",
            options.block_size,
            "--queue-depth",
            options.queue_depth,
            "--seconds",
            str(options.seconds),
            "--json",
            package="iscsitrace",
        )
        usage, started = ProcessUsage(), time.monotonic()
        # its results may be larger than a pipe's buffer
        results = capture.with_suffix(".initiator.json")
        with (
            results.open("wb") as into,
            subprocess.Popen(load, stdout=into, stderr=subprocess.DEVNULL) as initiator,
        ):
            while initiator.poll() is None:
                time.sleep(1)
                usage.sample(watch.pid)
        result = json.loads(results.read_text())
        elapsed_s = time.monotonic() - started
        time.sleep(2)
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait()
        both.wait()
        code = watch.wait()
        messages.seek(0)
        print(messages.read().decode().strip().replace("\n", "; "))
    if options.keep:
        with beside.open("wb") as summed:
            subprocess.run([*program, "summary", "--json", str(capture)], stdout=summed, check=True)
    _print_results(beside, lines, usage, elapsed_s, result, code)


def _print_results(
    beside: Path,
    lines: Path,
    usage: ProcessUsage,
    elapsed_s: float,
    result: dict[str, Any],
    code: int,
) -> None:
    *intervals, totals = [json.loads(line) for line in lines.read_text().splitlines()]
    summary = json.loads(beside.read_text())
    packets = totals["packet_count"]
    print(
        f"initiator: {result['throughput_bytes_per_s'] / 1e6:.1f} MB/s, {result['iops']:.0f} IOPS in {elapsed_s:.0f} s"
    )
    print(f"watch: {packets} packets, {packets / elapsed_s:.0f} per second, exit code {code}")
    print(
        f"CPU: {usage.processor_s / elapsed_s * 100:.1f} % of one core, "
        f"{usage.processor_s / max(packets, 1) * 1e6:.2f} us per packet"
    )
    tenth = max(len(usage.rss_mb) // 10, 1)
    tenths = [max(usage.rss_mb[at : at + tenth]) for at in range(0, len(usage.rss_mb), tenth)]
    print(f"memory, MB, maximum of each tenth of the time: {' '.join(f'{most:.0f}' for most in tenths)}")
    lags = [interval["lag_s"] for interval in intervals]
    print(
        f"lag: at most {max(lags):.2f} s; skipped {totals['left_out_packets']} packets; "
        f"late commands {totals['late_command_count']}"
    )
    for name in _TOTALS:
        is_equal = totals[name] == summary[name]
        print(f"{name}: {'equal to summary' if is_equal else 'NOT equal to summary'}")
    for own, other in zip(totals["latency"], summary["latency"], strict=True):
        for name in ("p50", "p95", "p99", "max"):
            found, expected = own["latency_ns"][name], other["latency_ns"][name]
            if expected:
                print(
                    f"{own['operation']} {name}: {found} ns, summary {expected} ns, "
                    f"{abs(found - expected) / expected * 100:.4f} % apart"
                )


if __name__ == "__main__":
    main()
