"""`iscsitrace capture`, dumpcap and tcpdump on a veth pair and on a TAP device, at the highest rate that dumpcap
captures without loss.

The traffic is one TCP connection to port 3260 at a rate set by iperf3, in frames of 1514 bytes. All three capture at
the receiver, in turn, with the same filter, the same kernel buffer, and files in memory. The rate rises until dumpcap
drops a packet; at the last rate without drops all three run several times. CPU seconds are user and system time of the
capturing process after it is ready; the CPU time of its start is listed separately. Needs root; prints, and asserts
nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.process import machine
from iscsitrace.errors import ToolMissing
from iscsitrace.lab import peers
from iscsitrace.lab.link_process import linked
from iscsitrace.lab.namespaces import EndSettings, LabNetwork, network
from iscsitrace.lab.places import Place

PORT = 3260
FILTER = f"tcp port {PORT}"
BUFFER_MIB = 16
SECONDS = 4
REPEATS = 3
CONFIRMATIONS = 2
RATES_MBIT = (100, 200, 400, 600, 800, 1000, 1500, 2000, 3000, 4000, 6000, 8000)
_END = EndSettings(congestion_control="cubic")
_READY_S = 15
_ITSELF = (sys.executable, "-m", "iscsitrace", "capture")


@dataclass(frozen=True)
class Program:
    """A capturing program: its command line, its message when it is ready, and the format of its counts."""

    name: str
    command: tuple[str, ...]
    ready: str
    seen: str
    dropped: str


def programs(file: Path) -> list[Program]:
    """The three programs, in the same setting."""
    buffer_kib = str(BUFFER_MIB * 1024)
    return [
        Program(
            "dumpcap",
            ("dumpcap", "-q", "-p", "-i", "eth0", "-f", FILTER, "-B", str(BUFFER_MIB), "-w", str(file)),
            "File:",
            r"received/dropped on interface '?eth0'?: (\d+)/",
            r"received/dropped on interface '?eth0'?: \d+/(\d+)",
        ),
        Program(
            "tcpdump",
            ("tcpdump", "-p", "-n", "-i", "eth0", "-B", buffer_kib, "-Z", "root", "-w", str(file), FILTER),
            "listening on",
            r"(\d+) packets? received by filter",
            r"(\d+) packets? dropped by kernel",
        ),
        Program(
            "iscsitrace",
            (*_ITSELF, "-i", "eth0", "-f", FILTER, "-B", str(BUFFER_MIB), "-w", str(file)),
            "writing",
            r"(\d+) packets seen",
            r"(\d+) dropped",
        ),
    ]


@dataclass(frozen=True)
class Measured:
    """One run of one program."""

    seen: int
    written: int
    dropped: int
    start_s: float
    """CPU time until it was ready."""
    cpu_s: float
    """CPU time after that."""
    bytes_in_file: int
    sent_mbit: float


@contextmanager
def connected_places(cable: str) -> Iterator[LabNetwork]:
    """Two namespaces with a veth pair between them, or TAP devices and our link without delay or rate."""
    with ExitStack() as stack:
        ends = {"initiator": _END, "target": _END}
        made = stack.enter_context(network(ends, cable="veth" if cable == "veth" else "tap"))
        if cable == "tap":
            stack.enter_context(linked(made.cables[0], {}))
        stack.enter_context(peers.iperf3_server(made["target"], port=PORT))
        yield made


def measure(made: LabNetwork, program: Program, file: Path, rate_mbit: int) -> Measured:
    """One program during one transfer."""
    file.unlink(missing_ok=True)
    place: Place = made["target"]
    name, *words = program.command
    with tempfile.TemporaryFile() as log:
        popen = subprocess.Popen(place.command(name, *words, package=name), stdout=log, stderr=log)
        try:
            end = time.monotonic() + _READY_S
            while program.ready not in _output(log):
                if popen.poll() is not None or time.monotonic() > end:
                    raise ToolMissing(f"{program.name} does not capture: {_output(log).strip()}")
                time.sleep(0.02)
            start_s = _cpu_s(popen.pid)
            result = peers.iperf3(
                made["initiator"], made["target"].address, "-b", f"{rate_mbit}M", port=PORT, seconds=SECONDS
            )
            time.sleep(0.5)
        finally:
            popen.send_signal(signal.SIGINT)
            _, status, usage = os.wait4(popen.pid, 0)
            popen.returncode = os.waitstatus_to_exitcode(status)
        output = _output(log)
    seen, dropped = (int(re.findall(pattern, output)[-1]) for pattern in (program.seen, program.dropped))
    counted = subprocess.run(["capinfos", "-M", "-c", file], check=True, capture_output=True, text=True).stdout
    written = int(re.findall(r"Number of packets\s*[:=]\s*(\d+)", counted)[-1])
    # dumpcap counts packets written, the others packets received
    seen = seen + dropped if program.name == "dumpcap" else seen
    sent = result["end"]["sum_received"]["bits_per_second"] / 1e6
    cpu_s = usage.ru_utime + usage.ru_stime - start_s
    return Measured(seen, written, dropped, start_s, cpu_s, file.stat().st_size, sent)


def _cpu_s(process_id: int) -> float:
    user, system = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _output(log: object) -> str:
    return os.pread(log.fileno(), 1 << 20, 0).decode("utf-8", "replace")  # type: ignore[attr-defined]


def highest_rate(made: LabNetwork, file: Path) -> int:
    """The highest rate at which dumpcap drops nothing."""
    dumpcap = programs(file)[0]
    carried = [RATES_MBIT[0]]
    for rate in RATES_MBIT:
        found = measure(made, dumpcap, file, rate)
        print(f"    dumpcap at {rate} Mbit/s: {found.sent_mbit:.0f} arrived, {found.dropped} dropped", flush=True)
        if found.dropped:
            break
        carried.append(rate)
        if found.sent_mbit < 0.8 * rate:
            # the hosts are at their limit
            break
    # a single run without drops may be luck
    while len(carried) > 1 and any(measure(made, dumpcap, file, carried[-1]).dropped for _ in range(CONFIRMATIONS)):
        print(f"    dumpcap at {carried.pop()} Mbit/s: packets dropped in a repeated run", flush=True)
    return carried[-1]


def main() -> None:
    """Runs the bench on both cables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cable", choices=["veth", "tap"], action="append")
    parser.add_argument("--rate", type=int, help="Mbit/s, instead of the highest rate at which dumpcap drops nothing")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    print(f"{machine()}; kernel buffer {BUFFER_MIB} MiB, filter '{FILTER}', {SECONDS} s each")
    for name in ("dumpcap", "tcpdump"):
        command = [shutil.which(name) or name, "--version"]
        output = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"  {(output.stdout or output.stderr).splitlines()[0]}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "capture")
        for cable in arguments.cable or ["veth", "tap"]:
            with connected_places(cable) as made:
                print(f"{cable}:", flush=True)
                rate = arguments.rate or highest_rate(made, file)
                print(f"  at {rate} Mbit/s, {arguments.repeats} runs each")
                print("  program     arrived Mbit/s     seen  written  dropped  start s  CPU s  us/packet  exact")
                runs: dict[str, list[Measured]] = {}
                # in turn, so that other load affects all alike
                for _ in range(arguments.repeats):
                    for program in programs(file):
                        runs.setdefault(program.name, []).append(measure(made, program, file, rate))
                for name, found in runs.items():
                    for each in found:
                        is_exact = each.seen == each.written + each.dropped
                        each_us = each.cpu_s * 1e6 / max(1, each.seen)
                        print(
                            f"  {name:10}  {each.sent_mbit:14.0f}  {each.seen:7}  {each.written:7}  {each.dropped:7}  "
                            f"{each.start_s:7.2f}  {each.cpu_s:5.2f}  {each_us:9.3f}  {'yes' if is_exact else 'no'}"
                        )
                    middle = statistics.median(each.cpu_s * 1e6 / max(1, each.seen) for each in found)
                    print(f"  {name:10}  median {middle:.3f} us per packet")


if __name__ == "__main__":
    main()
