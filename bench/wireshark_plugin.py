"""Compares the plugin for Wireshark with `iscsitrace cycles` on every capture, and times tshark with and without it.

    python -m bench.wireshark_plugin                    the samples, and the recorded captures if there are any
    python -m bench.wireshark_plugin --speed FILE       user CPU time of tshark in several uses, alternating, medians

On a capture that tshark dissects correctly (`check --against tshark` finds no difference) every field of every command
must be equal. For the others the line shows how tshark differs and how many fields are wrong: none may be.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import iscsitrace
from iscsitrace.compare.second_opinion import compare
from iscsitrace.wireshark import dissect as wireshark
from tests.support.recordings import recorded_captures
from tests.support.wireshark_plugin import PLUGIN, differences, expected, shown

SAMPLES = Path(__file__).parents[1] / "samples"
FIELDS = [
    "-T",
    "fields",
    *(part for name in ("frame.number", "ip.src", "tcp.len", "iscsi.opcode") for part in ("-e", name)),
]
PLUGIN_FIELDS = [part for name in ("cycle", "latency", "queue_depth", "owin") for part in ("-e", f"iscsitrace.{name}")]
USES: dict[str, tuple[list[str], list[str]]] = {
    "a line per packet": ([], []),
    "a display filter": (["-Y", "iscsi.scsiresponse.status"], []),
    "response times": (["-q", "-z", "scsi,srt,0"], []),
    "fields": (FIELDS, []),
    "fields, and those of the plugin": (FIELDS, PLUGIN_FIELDS),
    "packet details": (["-V"], []),
    "response times, and the plugin's statistics": (["-q", "-z", "scsi,srt,0"], ["-z", "iscsitrace,cycles"]),
}
"""Options of tshark, and the additional ones with the plugin."""
PROFILE = "iscsitrace"


def equality(files: list[Path]) -> None:
    """Print a line for each capture."""
    for file in files:
        trace = iscsitrace.read(file, tables=("pdus", "segments"))
        ports = {row["target_port"] for row in trace.connections.rows() if row["is_iscsi"]}
        comparison = compare(trace.pdus, trace.segments, wireshark.dissect(str(file), ports))
        kinds = Counter(each.explanation or "unexplained" for each in comparison.differences if each.kind != "frame")
        found = shown(file, ports=ports)
        left_out = sum(1 for _ in differences(found, trace, is_whole=True))
        wrong = list(differences(found, trace, is_whole=False))
        tshark = " ".join(f"{name}={count}" for name, count in kinds.items()) or "right"
        print(
            f"{file.parent.name}/{file.name}: commands {len(expected(trace))}, shown {len(found.cycles)}, "
            f"unnumbered {len(found.unnumbered)}, not equal {left_out}, wrong {len(wrong)}; tshark {tshark}",
            flush=True,
        )
        for line in wrong[:5]:
            print(f"    {line}")


def user_seconds(command: list[str], configuration: Path) -> float:
    """User CPU time of one run; its output is discarded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": str(configuration)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def speed(file: Path, repeats: int, packet_limit: int | None) -> None:
    """Print a line for each use."""
    limit = ["-c", str(packet_limit)] if packet_limit else []
    with TemporaryDirectory() as folder:
        configuration = Path(folder)
        shutil.copytree(PLUGIN.parent / "profile", configuration / "profiles" / PROFILE)
        for name, (options, more) in USES.items():
            plain = ["tshark", "-n", "-r", str(file), *limit, *options]
            with_plugin = [plain[0], "-X", f"lua_script:{PLUGIN}", *plain[1:], *more]
            commands = [plain, with_plugin, [*with_plugin, "-C", PROFILE]]
            runs = [[user_seconds(command, configuration) for command in commands] for _ in range(repeats)]
            first, *others = (statistics.median(column) for column in zip(*runs, strict=True))
            line = ", ".join(
                f"{seconds:.2f} s {what} ({seconds / first:.2f})"
                for seconds, what in zip(others, ("with the plugin", "with plugin and profile"), strict=True)
            )
            print(f"{name}: {first:.2f} s, {line}", flush=True)


def main() -> None:
    """Compare the files, or time tshark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=Path, metavar="FILE", help="time tshark on this capture")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-c", dest="packets", type=int, help="read at most this many packets")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.speed:
        speed(arguments.speed, arguments.repeats, arguments.packets)
    else:
        equality(arguments.files or [*sorted(SAMPLES.glob("*/capture.pcap*")), *recorded_captures()])


if __name__ == "__main__":
    main()
