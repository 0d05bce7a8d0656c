"""``make demo``: analyses every shipped sample and prints, beside what is known of it, what was found.

It shows; to compare with the truth is for tests/test_samples.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.analysis import distribution, health, volumes
from iscsitrace.cli import units
from iscsitrace.cli.output import show_heading, show_line, show_table

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
_SHOWN = "sequential-read-4ms"


def samples() -> list[Path]:
    """The captures of all samples, by name."""
    return sorted(SAMPLES.glob("*/capture.*"))


def line(capture: Path) -> tuple[object, ...]:
    """What is known of one sample and what was found in it, as cells."""
    truth: dict[str, Any] = json.loads((capture.parent / "truth.json").read_text())
    trace = iscsitrace.read(capture, tables=())
    volume = volumes.measure(trace.cycles)[-1]
    transfers = truth["transfers"]
    sizes = {size for each in transfers if (size := each.get("block_bytes"))}
    of_size = trace.cycles.select([place for place, size in enumerate(trace.cycles.raw("bytes")) if int(size) in sizes])
    latency = distribution.percentiles(of_size["latency_ns"])["p50"]
    delays = truth["one_way_delay_ms"].values()
    rtts = [row["rtt_to_target_min_ns"] + row["rtt_to_initiator_min_ns"] for row in trace.connections.rows()]
    findings = [each["name"] for each in health.by_name(trace.counters) if each["severity"] != "info"]
    return (
        capture.parent.name,
        f"{sum(delays)} ms",
        f"{units.milliseconds(min(rtts))} ms",
        units.megabytes(sum(each["bytes"] for each in transfers)),
        units.megabytes(volume.read_bytes + volume.write_bytes),
        volume.cycle_count,
        volume.complete_cycle_count,
        units.milliseconds(latency),
        units.percent(trace.coverage[-1].explained_bytes_share),
        findings[0] if findings else "-",
    )


def main() -> int:
    """Shows all samples; the exit code."""
    found = samples()
    if not found:
        print(f"there are no samples in {SAMPLES}", file=sys.stderr)
        return 1
    show_heading(f"What iscsitrace {iscsitrace.__version__} finds in the {len(found)} captures of samples/")
    show_table(
        (
            "sample",
            "delay, there and back",
            "least rtt found",
            "MB programs moved",
            "MB found",
            "tasks",
            "complete",
            "latency p50 ms",
            "explained %",
            "first finding",
        ),
        [line(capture) for capture in found],
    )
    show_line("MB found includes what the kernel reads when it meets a disk. Each sample's README says what to see.")
    (shown,) = (SAMPLES / _SHOWN).glob("capture.*")
    name = shown.relative_to(ROOT)
    show_heading("Next")
    for command in (
        f"summary {name}",
        f"cycles --operation read --top 8 --filter {name}",
        "check samples/capture-drops/capture.pcap.gz",
    ):
        show_line(f"  .venv/bin/iscsitrace {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
