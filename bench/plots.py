"""Times `iscsitrace plot sequence` and `plot window` on a capture of ten million packets, with their peak memory.

The capture is made like those of bench.generate, with small segments and three losses in every period, and kept in
build/bench. A bench, not a test: it prints the limits, 10 s and 1 GB, beside the measurements.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path as FilePath

from bench.generate import sequential_reads, write
from bench.process import FOLDER, cost, machine
from tests.support.conversation import Capture
from tests.support.transport import Path

KINDS = ("sequence", "window")
PACKETS = 10_000_000
LIMIT_S, LIMIT_BYTES = 10.0, 1_000_000_000
RECORD_BYTES = 16
PATH = Path(
    one_way_delay_ns=250_000,
    delayed_ack_ns=1_000_000,
    mss_bytes=200,
    lost_after_tap=frozenset({(False, 1000), (False, 4003), (False, 4004)}),
)


def small_segments() -> Capture:
    """Reads of 256 KiB to 1 MiB in segments of 200 bytes, some of which are lost."""
    return sequential_reads(PATH)


def generate(folder: FilePath, packets: int) -> FilePath:
    """The capture, made if it does not exist; NAME.json lists its content."""
    folder.mkdir(parents=True, exist_ok=True)
    file, truth = folder / f"packets-{packets}.pcap", folder / f"packets-{packets}.json"
    if not (file.exists() and truth.exists()):
        capture = small_segments()
        size = sum(len(packet.data) + RECORD_BYTES for packet in capture.packets)
        # with the login and the last period, once each
        content = write(file, capture, size * packets // len(capture.packets) + size)
        truth.write_text(json.dumps(content) + "\n")
        print(f"{file}: {content}")
    return file


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=FilePath, default=FOLDER)
    parser.add_argument("--packets", type=int, default=PACKETS)
    arguments = parser.parse_args()
    file = generate(arguments.folder, arguments.packets)
    print(machine())
    print(f"{'':12}{'seconds':>9}{'limit':>6}{'peak MB':>9}{'limit':>6}")
    for kind in KINDS:
        picture = arguments.folder / f"{kind}.png"
        command = [sys.executable, "-m", "iscsitrace", "plot", kind, "--quiet", "--force", "-o", str(picture)]
        took = min((cost([*command, str(file)]) for _ in range(2)), key=lambda each: each.elapsed_s)
        print(f"{kind:12}{took.elapsed_s:9.2f}{LIMIT_S:6.0f}{took.peak_bytes / 1e6:9.0f}{LIMIT_BYTES / 1e6:6.0f}")


if __name__ == "__main__":
    main()
