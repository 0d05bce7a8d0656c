"""Times two taps of the same traffic, 1 GB each, against the passes over both captures, and prints the ratios.

The second capture has the packets of ``random.pcap`` as they pass the target: those of the initiator later and those of
the target earlier, by nearly half the RTT each, on a clock that is ahead and drifts. Each time is the CPU time of a
process of its own, the best of three. A bench, not a test: it always exits with code 0.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np

from bench.generate import FOLDER, RECORD_BYTES
from bench.run import Measured, machine, run

FILE_HEADER_BYTES = 24
# the unit of time of random.pcap
UNIT_PER_S = 1_000_000
ONE_WAY_DELAY_US = 240
OFFSET_US = 3_700
DRIFT_PPM = 20
# Ethernet and IPv4 without options
SOURCE_PORT_AT = RECORD_BYTES + 34
TARGET_PORT = 3260

READ = """
import sys, time
import iscsitrace
from iscsitrace.analysis.findings import NEEDED
tables = NEEDED if sys.argv[1] == "diagnose" else ()
traces = [iscsitrace.read(file, tables=tables) for file in sys.argv[2:]]
print(time.process_time())
"""

JOIN = """
import sys, time
from iscsitrace.analysis.findings import NEEDED
from iscsitrace.analysis.taps.inputs import read_inputs
tables = NEEDED if sys.argv[1] == "diagnose" else ()
trace = read_inputs(sys.argv[2:], {}, tables=tables).trace
assert len(trace.command_legs) > 0.9 * len(trace.cycles)
assert trace.taps.row(0)["missing_at_b_packets"] == trace.taps.row(0)["lost_a_to_b_packets"] == 0
print(time.process_time())
"""


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


def show(measured: Measured, passes: Measured) -> None:
    """Prints a line."""
    if measured.seconds is None or passes.seconds is None or measured.peak_bytes is None:
        print(f"{measured.name:44}{'-':>9}")
        return
    ratio = measured.seconds / passes.seconds
    print(f"{measured.name:44}{measured.seconds:9.3f}{measured.peak_bytes / 1e6:9.0f}{ratio:11.2f}")


def main() -> None:
    near = FOLDER / "random.pcap"
    files = [str(near), str(second_tap(near))]
    print(f"{machine()}\n\n{'two taps of 1 GB each':44}{'CPU s':>9}{'peak MB':>9}{'x passes':>11}")
    for tables in ("no tables", "diagnose"):
        passes, joined = (
            run(f"{name} ({tables})", [sys.executable, "-c", code, tables, *files], 3, is_time_printed=True)
            for name, code in (("one pass over each", READ), ("read as taps, with legs", JOIN))
        )
        show(passes, passes)
        show(joined, passes)


if __name__ == "__main__":
    main()
