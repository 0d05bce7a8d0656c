"""Accuracy of the link in real time: delay, rate, and its highest rate; and a veth pair without the link.

``lateness`` is what the link adds: from the due time of a frame to the time when the kernel took it. The errors of the
RTT (from ping) and of the one-way delay (from captures at both ends) include the time of the kernel. Rates count frames
as captures show them. Needs root; prints, and asserts nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process import FOLDER, machine
from iscsitrace.lab import peers
from iscsitrace.lab.link_process import RunningLink, linked
from iscsitrace.lab.namespaces import EndSettings, LabNetwork, network
from iscsitrace.lab.places import Place
from iscsitrace.lab.recording import capturing

FRAME_BYTES, UDP_PAYLOAD_BYTES = 1514, 1472
PINGS = 400
SECONDS = 6
_MS_NS, _MBIT = 1_000_000, 1_000_000
_END = EndSettings(congestion_control="cubic", tcp_rmem_bytes=(4096, 131_072, 64 << 20))


@dataclass(frozen=True)
class Line:
    """Settings of both directions; with is_bypassed a veth pair without the link."""

    title: str
    delay_ms: int = 0
    rate_mbit: int | None = None
    queue_packets: int = 1000
    is_bypassed: bool = False
    is_prioritized: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """As the core's LinkSettings."""
        direction = {
            "delay_ns": self.delay_ms * _MS_NS,
            "rate_bps": self.rate_mbit and self.rate_mbit * _MBIT,
            "queue_packets": self.queue_packets,
        }
        return {"to_target": direction, "to_initiator": direction}


@contextmanager
def connected_places(line: Line) -> Iterator[tuple[LabNetwork, RunningLink | None]]:
    """Two namespaces with the link between them."""
    with ExitStack() as stack:
        ends = {"initiator": _END, "target": _END}
        made = stack.enter_context(network(ends, cable="veth" if line.is_bypassed else "tap"))
        link = (
            None
            if line.is_bypassed
            else stack.enter_context(linked(made.cables[0], line.settings, is_prioritized=line.is_prioritized))
        )
        yield made, link


def quantiles_us(times_ns: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile, in microseconds."""
    ordered = sorted(times_ns)
    return ordered[len(ordered) // 2] / 1e3, ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3


def delay(line: Line) -> dict[str, Any]:
    """Delay errors of pings: RTT from ping, one-way delay from captures at both ends."""
    delay_ns = line.delay_ms * _MS_NS
    with tempfile.TemporaryDirectory() as folder:
        files = {end: Path(folder, f"{end}.pcapng") for end in ("initiator", "target")}
        with connected_places(line) as (made, link), ExitStack() as stack:
            for end, file in files.items():
                stack.enter_context(capturing(made[end], "eth0", file, capture_filter="icmp"))
            words = ("-n", "-i", "0.01", "-c", str(PINGS), made["target"].address)
            output = made["initiator"].run("ping", *words, package="iputils-ping").output
        seen = {end: _echoes(file) for end, file in files.items()}
    round_trips = [float(text.split()[0]) * 1e6 for text in output.split("time=")[1:]]
    one_way = []
    for near, far in (("initiator", "target"), ("target", "initiator")):
        kind = 8 if near == "initiator" else 0
        sent, received = (
            {number: time_ns for time_ns, found, number in seen[end] if found == kind} for end in (near, far)
        )
        one_way += [received[number] - sent[number] - delay_ns for number in sent if number in received]
    found = {
        "round trip error": quantiles_us([each - 2 * delay_ns for each in round_trips]),
        "one way error": quantiles_us(one_way),
    }
    return found | (_lateness(link) if link else {})


def _echoes(file: Path) -> list[tuple[int, int, int]]:
    """Time, type and number of each echo request and reply."""
    fields = [word for name in ("frame.time_epoch", "icmp.type", "icmp.seq") for word in ("-e", name)]
    command = ["tshark", "-r", str(file), "-T", "fields", *fields]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    rows = (row.split("\t") for row in output.splitlines())
    return [(int(at.replace(".", "")), int(kind), int(number)) for at, kind, number in rows]


def _lateness(link: RunningLink) -> dict[str, Any]:
    late = link.log["lateness"]
    return {"lateness": (late["median_ns"] / 1e3, late["p99_ns"] / 1e3), "latest_us": late["max_ns"] / 1e3}


def throughput(line: Line, *options: str) -> dict[str, Any]:
    """Throughput of iperf3 through the link, from the frames that arrived between two times in its middle."""
    counted = []
    with connected_places(line) as (made, link), peers.iperf3_server(made["target"]):
        command = made["initiator"].command(
            *("iperf3", "-c", made["target"].address, "-t", str(SECONDS), *options), package="iperf3"
        )
        # the server is still busy with the connection that checked whether it listens
        time.sleep(0.5)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(2)
                counted.append(_arrived(made["target"]))
                time.sleep(SECONDS - 3)
                counted.append(_arrived(made["target"]))
                if process.wait(20) != 0:
                    raise RuntimeError(f"{' '.join(command)} failed")
            finally:
                process.kill()
        user_and_system = _processor_s(link.process_id) if link else 0.0
    (first_ns, first), (last_ns, last) = counted
    frames_per_s = (last - first) * 1e9 / (last_ns - first_ns)
    found: dict[str, Any] = {"frames_per_s": frames_per_s, "mbit": frames_per_s * FRAME_BYTES * 8 / _MBIT}
    if link is None:
        return found
    found |= _lateness(link) | {"link_processor_s": user_and_system}
    direction = link.log["link"]["to_target"]
    found["queue_full"] = direction["counters"]["queue_full"]["count"]
    if line.rate_mbit:
        busy_times = direction["line"]["busy_times"]
        busy_ns = sum(
            max(0, min(to_ns, last_ns) - max(from_ns, first_ns))
            for from_ns, to_ns in zip(busy_times["from_ns"], busy_times["to_ns"], strict=True)
        )
        found["busy_share"] = busy_ns / (last_ns - first_ns)
        found["rate_error"] = found["mbit"] / line.rate_mbit - 1
        found["rate_error_while_busy"] = found["mbit"] / found["busy_share"] / line.rate_mbit - 1
    return found


def _arrived(place: Place) -> tuple[int, int]:
    """The time, and the number of frames that the device received."""

    def count() -> tuple[int, int]:
        before_ns = time.time_ns()
        text = Path("/proc/thread-self/net/dev").read_text()
        (words,) = (line.split() for line in text.splitlines() if line.strip().startswith("eth0:"))
        return (before_ns + time.time_ns()) // 2, int(words[2])

    return place.call(count)


def _processor_s(process_id: int) -> float:
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


DELAYS = (
    Line("veth, no link", is_bypassed=True),
    Line("link, no delay"),
    Line("link, 1 ms", 1),
    Line("link, 8 ms", 8),
    Line("link, 8 ms, 100 Mbit/s", 8, 100),
)
RATES = (100, 200, 500, 1000)


def _show_delays() -> dict[str, Any]:
    print(f"{'us; median and 99th percentile':34}{'RTT error':>18}{'one-way error':>18}{'link late':>16}")
    found = {}
    for line in DELAYS:
        measured = delay(line)
        found[line.title] = measured
        row = f"{line.title:34}"
        for name, width in (("round trip error", 18), ("one way error", 18), ("lateness", 16)):
            cell = "-" if name not in measured else "{:.1f} {:.1f}".format(*measured[name])
            row += f"{cell:>{width}}"
        print(row, flush=True)
    return found


def _show_rates() -> dict[str, Any]:
    udp = ("-u", "-l", str(UDP_PAYLOAD_BYTES), "-b")
    runs = [
        *((Line(f"UDP into {rate} Mbit/s, 1 ms", 1, rate), (*udp, f"{rate * 1.03:.0f}M")) for rate in RATES),
        *((Line(f"TCP over {rate} Mbit/s, 1 ms", 1, rate), ("-C", "cubic")) for rate in RATES),
        (Line("UDP, link without a rate"), (*udp, "0")),
        (Line("TCP, link without a rate"), ("-C", "cubic")),
        (Line("UDP, veth, no link", is_bypassed=True), (*udp, "0")),
        (Line("TCP, veth, no link", is_bypassed=True), ("-C", "cubic")),
    ]
    headings = ("frames/s", "Mbit/s", "error %", "line busy %", "error busy %", "late us", "CPU s", "queue full")
    print("\n" + f"{'':34}" + "".join(f"{heading:>14}" for heading in headings))
    found = {}
    for line, options in runs:
        measured = throughput(line, *options)
        found[line.title] = measured
        late = measured.get("lateness")
        cells = (
            f"{measured['frames_per_s']:,.0f}",
            f"{measured['mbit']:.1f}",
            _percent(measured.get("rate_error"), "+.3f"),
            _percent(measured.get("busy_share"), ".2f"),
            _percent(measured.get("rate_error_while_busy"), "+.3f"),
            "{:.0f} {:.0f}".format(*late) if late else "-",
            f"{measured['link_processor_s']:.1f}" if late else "-",
            str(measured.get("queue_full", "-")),
        )
        print(f"{line.title:34}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    return found


def _percent(share: float | None, form: str) -> str:
    return "-" if share is None else f"{100 * share:{form}}"


def main() -> None:
    """Runs the bench."""
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    found = {"delays": _show_delays(), "rates": _show_rates()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "link.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
