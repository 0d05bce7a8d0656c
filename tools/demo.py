"""``make demo``: simulates iSCSI over a WAN, analyses its capture and every sample capture, and writes a report.

Prints the truth next to the results. Tests compare the two; the demo only prints them.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.cli import main as iscsitrace_command
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.lab import simulation
from iscsitrace.measure import distribution, throughput, waits
from iscsitrace.show.terminal import show_heading, show_line, show_table
from iscsitrace.wording import cells

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
_SHOWN = "sequential-read-4ms"
_REPORTED = ROOT / "build" / "demo"
_REPORTED_RUN = "simulate read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M --quiet"


_WAN: dict[str, Any] = {
    "delay_ns": 8_000_000,
    "rate_bps": 320_000_000,
    "loss_probability": 1 / 4096,
}
_BLOCK_BYTES, _TOTAL_BYTES = 256 << 10, 64 << 20


def wan() -> dict[str, Any]:
    """Settings of the simulation: reads at queue depth 4 over a long path that loses a few packets."""
    workload = {"block_size_bytes": _BLOCK_BYTES, "total_bytes": _TOTAL_BYTES, "queue_depth": 4}
    tcp = {"congestion_control": "reno", "nagle": False}
    path = {"to_target": _WAN, "to_initiator": _WAN, "seed": 1}
    return {
        "client": {"workload": workload},
        "portals": [{}],
        "world": {"initiator_tcp": tcp, "target_tcp": tcp, "paths": [path]},
    }


def show_wan() -> None:
    """Simulates, reads the initiator's capture, and prints the truth next to the results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = simulation.run(wan(), folder, lambda *_: False)
        trace = iscsitrace.read(folder / "initiator.pcapng")
        cycles = trace.cycles
        reads = cycles.select([place for place, row in enumerate(cycles.rows()) if row["operation"] == "read"])
        volume = throughput.measure(cycles, waits.of_trace(trace.table))[-1]
        (connection,) = trace.connections.rows()
        rtt_ns = connection["rtt_to_target_min_ns"] + connection["rtt_to_initiator_min_ns"]
        took_s = (truth["ended_ns"] - truth["started_ns"]) / 1e9
        packets = sum(truth["packet_counts"])
        show_heading(f"A simulated WAN: {took_s:.1f} s of virtual time, {packets} packets captured at both ends")
        line = truth["paths"][0]["to_initiator"]
        (end,) = truth["target_ends"][0]
        asked = [place for place, operation in enumerate(truth["cycles"]["operation"]) if operation]
        sent, ended = (truth["cycles"]["initiator"][name] for name in ("command_first_ns", "status_ns"))
        latencies = sorted(ended[place] - sent[place] for place in asked)
        show_table(
            ("", "truth", "measured in the capture"),
            [
                ("RTT, ms", cells.milliseconds(2 * _WAN["delay_ns"]), cells.milliseconds(rtt_ns)),
                ("reads", truth["results"]["read"]["commands"], len(reads)),
                ("MB read", cells.megabytes(truth["results"]["bytes"]), cells.megabytes(volume.read_bytes)),
                ("block size", cells.size(_BLOCK_BYTES), cells.size(int(max(reads.raw("bytes"))))),
                ("packets lost on the way to the initiator", line["counters"]["lost"]["count"], None),
                (
                    "retransmissions",
                    end["retransmitted_segment_count"],
                    connection["retransmitted_packets_to_initiator"],
                ),
                (
                    "latency p50, ms",
                    cells.milliseconds(latencies[(len(latencies) - 1) // 2]),
                    cells.milliseconds(distribution.percentiles(reads["latency_ns"])["p50"]),
                ),
                *_keys(truth, trace),
            ],
        )
        show_heading("Where the time of the slowest reads went (iscsitrace cycles --operation read --top 5)")
        words = ["cycles", "--operation", "read", "--top", "5", str(folder / "initiator.pcapng")]
        iscsitrace_command(words, standalone_mode=False)


def _keys(truth: dict[str, Any], trace: iscsitrace.Trace) -> list[tuple[object, ...]]:
    """Negotiated parameters, from the two machines and from the capture."""
    known = truth["results"]["connections"][0]["parameters"]
    names = {
        "MaxRecvDataSegmentLength": "initiator_max_recv_data_segment_length",
        "MaxBurstLength": "max_burst_length",
        "InitialR2T": "initial_r2t",
        "ImmediateData": "immediate_data",
    }
    found = {row["key"]: row["effective_initiator"] for row in trace.parameters.rows()}
    spelled = {True: "Yes", False: "No"}
    return [
        (key, spelled[value] if isinstance(value := known[name], bool) else value, found[key])
        for key, name in names.items()
    ]


def show_report() -> None:
    """Simulates reads at queue depth 1 over a WAN, prints what limits them, and writes a report."""
    show_heading("What limits 128 KiB reads at queue depth 1 over an RTT of 16 ms (iscsitrace diagnose)")
    run, page = _REPORTED / "wan", _REPORTED / "wan.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    capture = str(run / "initiator.pcapng")
    with redirect_stdout(io.StringIO()):
        iscsitrace_command([*_REPORTED_RUN.split(), "--force", "-o", str(run)], standalone_mode=False)
    iscsitrace_command(["diagnose", capture], standalone_mode=False)
    show_heading("The report on the same capture (iscsitrace report)")
    iscsitrace_command(["report", "--force", "-o", str(page), capture], standalone_mode=False)
    show_line(f"open {page.relative_to(ROOT)} in a browser: it needs no network")


def samples() -> list[Path]:
    """The captures of all samples, by name."""
    return sorted(SAMPLES.glob("*/capture.*"))


def line(capture: Path) -> tuple[object, ...]:
    """Truth and results of one sample, as cells; null where its truth does not have the value."""
    truth: dict[str, Any] = json.loads((capture.parent / "truth.json").read_text())
    trace = iscsitrace.read(capture, tables=NEEDED)
    volume = throughput.measure(trace.cycles, waits.of_trace(trace.table))[-1]
    delays = truth.get("one_way_delay_ms")
    transferred = sum(each["bytes"] for each in truth["transfers"]) if "transfers" in truth else truth["read_bytes"]
    headline = examine(trace.table).headline
    rtts = [row["rtt_to_target_min_ns"] + row["rtt_to_initiator_min_ns"] for row in trace.connections.rows()]
    return (
        capture.parent.name,
        delays and f"{sum(delays.values())} ms",
        f"{cells.milliseconds(min(rtts))} ms",
        cells.megabytes(transferred),
        cells.megabytes(volume.read_bytes + volume.write_bytes),
        volume.cycle_count,
        volume.complete_cycle_count,
        cells.percent(trace.coverage[-1].explained_bytes_share),
        headline and headline.name,
    )


def main() -> int:
    """Runs the demo; returns the exit code."""
    found = samples()
    if not found:
        print(f"there are no samples in {SAMPLES}", file=sys.stderr)
        return 1
    show_wan()
    show_heading(f"Results of iscsitrace {iscsitrace.__version__} for the {len(found)} captures of samples/")
    show_table(
        (
            "sample",
            "RTT set",
            "min RTT measured",
            "MB transferred",
            "MB in capture",
            "commands",
            "complete",
            "decoded %",
            "diagnosis",
        ),
        [line(capture) for capture in found],
    )
    show_line("MB in capture includes the reads of the kernel when it sets up a disk. Each sample has a README.")
    show_next()
    show_report()
    return 0


def show_next() -> None:
    """Commands to try next."""
    (shown,) = (SAMPLES / _SHOWN).glob("capture.*")
    name = shown.relative_to(ROOT)
    show_heading("Next")
    for command in (
        "simulate read --one-way-delay 8ms --rate 320Mbit --block-size 128K --bytes 16M -o build/wan",
        f"summary {name}",
        f"cycles --operation read --top 8 --filter {name}",
        "check samples/capture-drops/capture.pcap.gz",
    ):
        show_line(f"  .venv/bin/iscsitrace {command}")


if __name__ == "__main__":
    sys.exit(main())
