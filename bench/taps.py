"""Times two taps of the same traffic, 1 GB each, against one pass over both captures, and prints the ratios.

The second capture has the packets of ``random.pcap`` as they pass the target: those of the initiator later and those of
the target earlier, by nearly half the RTT each, on a clock that is ahead and drifts.

One pass over both is ``read`` of each with the tables that the join takes: legs need the time breakdown. The ratio to
passes without any table stands beside it. Ratios are those of CPU time with imports, and of elapsed time without them:
taps are read at the same time. Each time is that of a process of its own, the one with the least CPU time of three. A
bench, not a test: it always exits with code 0.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.generate import RECORD_BYTES
from bench.process import FOLDER, machine

FILE_HEADER_BYTES = 24
# the unit of time of random.pcap
UNIT_PER_S = 1_000_000
ONE_WAY_DELAY_US = 240
OFFSET_US = 3_700
DRIFT_PPM = 20
# Ethernet and IPv4 without options
SOURCE_PORT_AT = RECORD_BYTES + 34
TARGET_PORT = 3260

TABLES = """
import json, sys, time
import iscsitrace
from iscsitrace.findings import NEEDED as DIAGNOSE
from iscsitrace.taps.inputs import read_inputs
from iscsitrace.taps.reading import NEEDED as JOIN
tables = {"none": (), "join": JOIN, "diagnose": (*JOIN, *DIAGNOSE)}[sys.argv[1]]
started = time.perf_counter()
"""

# the peak of a process's own memory: that of getrusage is its parent's until it exceeds it
SHOW = """
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([time.process_time(), time.perf_counter() - started, int(peak) * 1024]))
"""

READ = """
traces = [iscsitrace.read(file, tables=tables) for file in sys.argv[2:]]
"""

JOIN = """
trace = read_inputs(sys.argv[2:], {}, tables=tables).trace
assert len(trace.command_legs) > 0.9 * len(trace.cycles)
assert trace.taps.row(0)["missing_at_b_packets"] == trace.taps.row(0)["lost_a_to_b_packets"] == 0
"""


@dataclass(frozen=True, order=True)
class Measured:
    """A process: CPU time with imports, time without them, and peak memory."""

    cpu_s: float
    wall_s: float
    peak_bytes: int

    def ratio(self, other: Measured) -> str:
        """CPU time and elapsed time per that of the other."""
        return f"{self.cpu_s / other.cpu_s:.2f} {self.wall_s / other.wall_s:.2f}"


def second_tap(near: Path) -> Path:
    """The capture at the target's tap, in order of its times; made once."""
    far = near.with_name("random_far.pcap")
    if far.exists():
        return far
    content = near.read_bytes()
    starts, times = [], []
    at = FILE_HEADER_BYTES
    while at < len(content):
        seconds, rest, captured = struct.unpack_from("<III", content, at)
        is_back = struct.unpack_from(">H", content, at + SOURCE_PORT_AT)[0] == TARGET_PORT
        starts.append(at)
        times.append(seconds * UNIT_PER_S + rest + (-ONE_WAY_DELAY_US if is_back else ONE_WAY_DELAY_US))
        at += RECORD_BYTES + captured
    start, time_us = np.array([*starts, at]), np.array(times)
    time_us += OFFSET_US + (time_us - time_us[0]) * DRIFT_PPM // 1_000_000
    with far.open("wb") as out:
        out.write(content[:FILE_HEADER_BYTES])
        for row in np.argsort(time_us, kind="stable").tolist():
            out.write(
                struct.pack("<II", *divmod(int(time_us[row]), UNIT_PER_S)) + content[start[row] + 8 : start[row + 1]]
            )
    return far


def run(code: str, tables: str, files: list[str]) -> Measured:
    """The run with the least CPU time of three."""
    command = [sys.executable, "-c", TABLES + code + SHOW, tables, *files]
    runs = (subprocess.run(command, check=True, capture_output=True).stdout for _ in range(3))
    return min(Measured(*json.loads(each)) for each in runs)


def main() -> None:
    near = FOLDER / "random.pcap"
    files = [str(near), str(second_tap(near))]
    print(f"{machine()}\n\n{'two taps of 1 GB each':44}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}{'x CPU wall':>12}")
    passes = {tables: run(READ, tables, files) for tables in ("none", "join", "diagnose")}
    lines = [(f"one pass over each, tables: {tables}", each, "") for tables, each in passes.items()]
    for tables in ("join", "diagnose"):
        joined = run(JOIN, tables, files)
        ratio = joined.ratio(passes[tables])
        if tables == "join":
            ratio += f" ({joined.ratio(passes['none'])} without tables)"
        lines.append((f"read as taps, with legs, tables: {tables}", joined, ratio))
    for name, each, ratio in lines:
        print(f"{name:44}{each.cpu_s:9.3f}{each.wall_s:9.3f}{each.peak_bytes / 1e6:9.0f}{ratio:>12}")


if __name__ == "__main__":
    main()
