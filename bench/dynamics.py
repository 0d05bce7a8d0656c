"""Accuracy of the estimates of senders: congestion window, and retransmissions.

The truth is the simulated TCP's window at every change, the kernel's TCP_INFO every 20 ms (``lab run``, needs root), or
its tcp_probe at every segment (captures recorded with it). The table also shows naive estimates of the congestion
window: bytes in flight, by us and by tshark. Prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import iscsitrace
from iscsitrace.lab import real, simulation

TABLES = ("window", "retransmissions", "senders", "recoveries")
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
_MS_NS = 1_000_000
_S_NS = 1_000_000_000
_MICROSECOND_NS = 1_000


@dataclass(frozen=True)
class Known:
    """The congestion window of one sender: from each time on, in bytes."""

    time_ns: Numbers
    cwnd_bytes: Numbers

    def at(self, time_ns: Numbers) -> Numbers:
        """The window at these times; before the first one, the first."""
        place = np.searchsorted(self.time_ns, time_ns, side="right") - 1
        return self.cwnd_bytes[np.maximum(place, 0)]


@dataclass(frozen=True)
class Estimates:
    """The rows of one sender in the table ``window``."""

    time_ns: Numbers
    estimate_bytes: Numbers
    is_valid: npt.NDArray[np.bool_]
    owin_bytes: Numbers

    @property
    def lasting_ns(self) -> Numbers:
        """How long each row is valid."""
        return np.diff(self.time_ns, append=self.time_ns[-1:])


@dataclass(frozen=True)
class Errors:
    """Relative errors where there is an estimate, weighted by time, and the share of the busy time with an estimate."""

    median: float
    p95: float
    share_valid: float
    owin_median: float
    owin_p95: float
    by_change_median: float
    by_change_p95: float


def percentile(values: Shares, weights: Numbers, percent: float) -> float:
    """The weighted percentile; NaN without values."""
    if not len(values) or weights.sum() <= 0:
        return float("nan")
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] * percent / 100)])


def estimates(trace: iscsitrace.Trace, *, to_target: bool, connection: int = 0) -> Estimates:
    """Errors of one sender."""
    window = trace.window
    rows = (window["to_target"] == to_target) & (window["connection"] == connection)
    estimate = np.ma.filled(np.ma.asarray(window["cwnd_estimate_bytes"]), 0)
    return Estimates(
        np.asarray(window["time_ns"])[rows],
        np.asarray(estimate)[rows],
        np.asarray(window["is_valid"])[rows],
        np.asarray(window["owin_bytes"])[rows],
    )


def errors(found: Estimates, known: Known, *, is_sampled: bool = False) -> Errors:
    """Errors of the estimates; a sampled truth is compared only at its samples."""
    if is_sampled:
        found = at_samples(found, known)
    truth = known.at(found.time_ns).astype(float)
    lasting = np.ones_like(found.time_ns) if is_sampled else found.lasting_ns
    busy = found.owin_bytes > 0
    off = np.abs(found.estimate_bytes - truth) / truth
    owin_off = np.abs(found.owin_bytes - truth) / truth
    valid = found.is_valid
    # just before each change in the truth
    place = np.searchsorted(found.time_ns, known.time_ns[1:], side="left") - 1
    is_there = (place >= 0) & valid[np.maximum(place, 0)]
    before = known.cwnd_bytes[:-1][is_there].astype(float)
    change_off = np.abs(found.estimate_bytes[place[is_there]] - before) / before
    once = np.ones(len(change_off), dtype=np.int64)
    return Errors(
        percentile(off[valid], lasting[valid], 50),
        percentile(off[valid], lasting[valid], 95),
        float(lasting[valid & busy].sum() / max(lasting[busy].sum(), 1)),
        percentile(owin_off[busy], lasting[busy], 50),
        percentile(owin_off[busy], lasting[busy], 95),
        percentile(change_off, once, 50),
        percentile(change_off, once, 95),
    )


def at_samples(found: Estimates, known: Known) -> Estimates:
    """The rows that are valid at the times of the truth."""
    instants = known.time_ns[(known.time_ns >= found.time_ns[0]) & (known.time_ns <= found.time_ns[-1])]
    place = np.searchsorted(found.time_ns, instants, side="right") - 1
    return Estimates(instants, found.estimate_bytes[place], found.is_valid[place], found.owin_bytes[place])


def of_truth(end: dict[str, Any]) -> Known:
    """The window of one end, from the truth of a simulation or a run."""
    windows = end["windows"]
    return Known(np.asarray(windows["time_ns"]), np.asarray(windows["cwnd"]) * end["snd_mss"])


def of_probe(
    file: Path, local_port: str, *, segment_bytes: int, offset_ns: int = 0, peer_port: str = ""
) -> tuple[Known, Numbers]:
    """The window seen by tcp_probe, and the times of the kernel's retransmissions.

    A row has the window before a segment was processed, which is the window since the row before.
    """
    time_ns, cwnd, again = [], [], []
    with gzip.open(file, "rt") as lines:
        for row in csv.DictReader(lines):
            if not row["local"].endswith(local_port) or not row["peer"].endswith(peer_port):
                continue
            at_ns = int(row["time"].replace(".", "")) * _MICROSECOND_NS - offset_ns
            if row["event"] == "retransmit":
                again.append(at_ns)
            else:
                time_ns.append(at_ns)
                cwnd.append(int(row["snd_cwnd_segs"]) * segment_bytes)
    return Known(np.asarray(time_ns[:-1]), np.asarray(cwnd[1:])), np.asarray(again, dtype=np.int64)


def simulated(settings: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, iscsitrace.Trace]]:
    """A simulated run: its truth, and the results at either tap."""
    truth = simulation.run(settings, folder, lambda *_: False)
    return truth, {tap: iscsitrace.read(folder / f"{tap}.pcapng", tables=TABLES) for tap in ("initiator", "target")}


def real_run(settings: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, iscsitrace.Trace]]:
    """A run over the kernel's TCP: its truth, and the results at either tap."""
    truth = real.run(settings, folder, lambda _: False)
    return truth, {tap: iscsitrace.read(folder / f"{tap}.pcapng", tables=TABLES) for tap in ("initiator", "target")}


def settings_of(
    operation: str,
    *,
    delay_ms: float,
    loss: float = 0.0,
    control: str = "cubic",
    queue_depth: int = 8,
    block_bytes: int = 256 << 10,
    total_bytes: int = 16 << 20,
    rate_bps: int = 320_000_000,
    seed: int = 1,
    **tcp: Any,
) -> dict[str, Any]:
    """The settings of a run in either world."""
    direction = {"rate_bps": rate_bps, "delay_ns": round(delay_ms * _MS_NS), "loss_probability": loss}
    host = {
        "congestion_control": control,
        "nagle": False,
        "receive_buffer_bytes": 6 << 20,
        "send_buffer_bytes": 6 << 20,
    }
    workload = {
        "operation": operation,
        "block_size_bytes": block_bytes,
        "queue_depth": queue_depth,
        "total_bytes": total_bytes,
        "seed": seed,
    }
    return {
        "client": {"workload": workload},
        "portals": [{}],
        "world": {
            "initiator_tcp": host | tcp,
            "target_tcp": host | tcp,
            "paths": [{"to_target": direction, "to_initiator": direction, "seed": seed}],
            "seed": seed,
        },
    }


CASES: dict[str, dict[str, Any]] = {
    f"{operation} {control} {delay_ms} ms {loss:.1%}": {
        "operation": operation,
        "control": control,
        "delay_ms": delay_ms,
        "loss": loss,
    }
    for operation in ("read", "write")
    for control in ("reno", "cubic")
    for delay_ms in (1, 4, 16)
    for loss in (0.0, 0.001, 0.01)
}


def in_flight(file: Path, sender_port: int, known: Known) -> float:
    """The median error, over time, of tshark's bytes in flight of one sender; NaN without tshark."""
    if shutil.which("tshark") is None:
        return float("nan")
    fields = ["-e", "frame.time_epoch", "-e", "tcp.analysis.bytes_in_flight"]
    chosen = f"tcp.srcport == {sender_port} && tcp.analysis.bytes_in_flight"
    command = ["tshark", "-r", str(file), "-Y", chosen, "-T", "fields", *fields]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    pairs = [line.split("\t") for line in lines if line]
    if not pairs:
        return float("nan")
    time_ns = np.asarray([int(time.replace(".", "")) for time, _ in pairs])
    truth = known.at(time_ns).astype(float)
    off = np.abs(np.asarray([int(count) for _, count in pairs]) - truth) / truth
    return percentile(off, np.diff(time_ns, append=time_ns[-1:]), 50)


def sender_of(truth: dict[str, Any], operation: str) -> dict[str, Any]:
    """The end that sends the data."""
    end: dict[str, Any] = truth["initiator_ends"][0] if operation == "write" else truth["target_ends"][0][0]
    return end


def show_errors(name: str, tap: str, found: Errors, flying: float, again: str) -> None:
    """Prints a line of the table."""
    shares = (found.median, found.p95, found.by_change_median, found.by_change_p95, found.share_valid)
    owin = (found.owin_median, found.owin_p95, flying)
    numbers = [f"{share:8.1%}" for share in (*shares, *owin)]
    print(f"{name:44.44} {tap:9}{''.join(numbers)}  {again}")


def show_head() -> None:
    """Prints the headings: errors over time and at changes, share of time with an estimate, errors of naive owin."""
    heads = [f"{head:>8}" for head in ("cwnd", "p95", "changes", "p95", "valid", "owin", "p95", "tshark")]
    print(f"{'sender of':44} {'tap':9}{''.join(heads)}  retransmissions: true count, and those found")


def causes(trace: iscsitrace.Trace, *, to_target: bool) -> str:
    """Counts of the causes of retransmissions."""
    rows = trace.retransmissions
    words = [
        str(cause) for cause, direction in zip(rows["cause"], rows["to_target"], strict=True) if direction == to_target
    ]
    return ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words))) or "none"


def show_run(name: str, case: dict[str, Any], *, is_real: bool) -> None:
    """Prints the lines of one run in either world, at both taps."""
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        truth, traces = (real_run if is_real else simulated)(settings_of(**case), folder)
        end = sender_of(truth, case["operation"])
        known = of_truth(end)
        to_target = case["operation"] == "write"
        for tap, trace in traces.items():
            found = errors(estimates(trace, to_target=to_target), known, is_sampled=is_real)
            port = int(trace.connections["initiator_port" if to_target else "target_port"][0])
            flying = in_flight(folder / f"{tap}.pcapng", port, known)
            again = f"{end['retransmitted_segment_count']}: {causes(trace, to_target=to_target)}"
            show_errors(name, tap, found, flying, again)


def run_simulated(only: str) -> None:
    """Prints all simulated cases."""
    show_head()
    for name, case in CASES.items():
        if only in name:
            show_run(name, case, is_real=False)


def run_recorded(folder: Path, only: str) -> None:
    """Prints all captures with tcp_probe."""
    show_head()
    for description in sorted(folder.glob("*.json")):
        name = description.stem
        about = json.loads(description.read_text())
        if only not in name:
            continue
        clock = about.get("clock", {}).get("target_minus_initiator_us_before", {}).get("offset_us", 0.0)
        for capture in about["files"]:
            file = folder / capture["file"]
            if ".pcap" not in file.name:
                continue
            tap = "target" if ".target." in file.name else "initiator"
            trace = iscsitrace.read(file, tables=TABLES)
            for sender in ("target", "initiator"):
                probe = folder / f"{name}.{sender}.tcp_probe.csv.gz"
                if not probe.exists() or len(trace.connections) != 1:
                    continue
                to_target = sender == "initiator"
                rows = estimates(trace, to_target=to_target)
                if not len(rows.time_ns) or rows.owin_bytes.max() < 30_000:
                    continue
                ports = {"target": 3260, "initiator": int(trace.connections["initiator_port"][0])}
                offset_us = {("target", "initiator"): clock, ("initiator", "target"): -clock}.get((sender, tap), 0.0)
                known, again = of_probe(
                    probe, f":{ports[sender]}", segment_bytes=1448, offset_ns=round(offset_us * _MICROSECOND_NS)
                )
                if len(known.time_ns) < 10:
                    continue
                found = errors(rows, known)
                flying = in_flight(file, ports[sender], known)
                sent = f"{len(again)}: {causes(trace, to_target=to_target)}"
                show_errors(f"{name} ({sender})", tap, found, flying, sent)


RUNS: dict[str, dict[str, Any]] = {name: case | {"total_bytes": 8 << 20} for name, case in CASES.items()}


def run_real(only: str) -> None:
    """Prints the same cases over the kernel's TCP; needs root."""
    show_head()
    for name, case in RUNS.items():
        if only in name:
            show_run(name, case, is_real=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("simulated", "recorded", "run"))
    parser.add_argument("folder", nargs="?", type=Path, help="folder of the recorded captures")
    parser.add_argument("--only", default="", help="run only cases whose names contain this text")
    arguments = parser.parse_args()
    if arguments.what == "simulated":
        run_simulated(arguments.only)
    elif arguments.what == "run":
        run_real(arguments.only)
    else:
        run_recorded(arguments.folder, arguments.only)


if __name__ == "__main__":
    main()
