"""Recordings of two Linux kernels: results of iscsitrace against the counts of the kernels and the network.

The kernel of a sender counts the time in which it was receive-window-limited (``rwnd_limited`` of TCP_INFO), and its
retransmissions with their causes. One-way delays were measured packet by packet where both ends were captured;
elsewhere they are half the RTT of ping under the same netem setting, or the setting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.analysis.measures import budget

_MS_NS = 1e6
_SIDES = ("initiator", "target")
_COUNTERS = {
    "TcpRetransSegs": "all",
    "TcpExtTCPFastRetrans": "fast",
    "TcpExtTCPTimeouts": "timeout",
    "TcpExtTCPLossProbes": "tail probe",
}
_COLUMNS = {
    "fast": "fast_retransmit_count",
    "timeout": "timeout_count",
    "tail probe": "tail_probe_count",
}


@dataclass(frozen=True)
class Recording:
    """One run: its truth and its captures."""

    name: str
    truth: dict[str, Any]
    captures: tuple[Path, ...]


def recordings(folder: Path) -> Iterator[Recording]:
    """Every run of a folder that has counts of the kernels."""
    for file in sorted(folder.glob("*.json")):
        truth = json.loads(file.read_text())
        names = [each["file"] for each in truth.get("files", ()) if ".pcap" in each["file"]]
        if "sender_time_ms" in truth:
            yield Recording(file.stem, truth, tuple(folder / name for name in names if (folder / name).exists()))


def window_limited_ms(truth: dict[str, Any], initiator_port: int) -> dict[str, tuple[float, float]]:
    """Time in which each side's kernel was receive-window-limited, and in which it had data to send."""
    found = {}
    for name, times in truth["sender_time_ms"].items():
        side, _, pair = name.partition(" ")
        if f":{initiator_port}" in pair:
            found[side] = (float(times["rwnd_limited"]), float(times["busy"]))
    return found


def one_way_ms(truth: dict[str, Any]) -> tuple[float, str] | None:
    """The mean of both one-way delays, and its source; None with several targets."""
    measured = truth.get("measured_one_way_delay_ms") or {}
    ways = [value["min"] for name, value in measured.items() if "_to_" in name]
    if len(ways) == 2:
        return sum(ways) / 2, "packets"
    set_ms = truth["network"]["one_way_delay_ms"]
    if not all(isinstance(each, int | float) for each in set_ms.values()):
        return None
    ping = truth["network"].get("ping_rtt_ms_under_this_configuration")
    return (ping["min"] / 2, "ping") if ping else (sum(set_ms.values()) / 2, "netem")


def show(folder: Path) -> None:
    """Prints three tables: windows, delays, retransmissions."""
    rows = [row for recording in recordings(folder) for row in _rows(recording)]
    print(
        "\nrecordings: time limited by the receive window, in ms "
        "(kernel: rwnd_limited, which includes transfer; budget: idle time)"
    )
    print(f"{'capture':66}{'conn':>5}{'kernel':>8}{'busy':>9}{'full':>8}{'budget':>8}{'limiter':>20}{'idle %':>8}")
    for row in rows:
        kernel, busy = row["kernel"]
        print(
            f"{row['name']:66}{row['connection']:5}{kernel:8.0f}{busy:9.0f}{row['full']:8.0f}{row['receive_window']:8.0f}"
            f"{row['limiter']:>20}{row['idle']:8.1f}"
        )
    print(f"\n{'one-way delay in ms':66}{'conn':>5}{'true':>9}{'source':>9}{'measured':>9}{'error':>9}")
    for row in rows:
        if row["one_way"]:
            true_ms, source = row["one_way"]
            error = row["delay"] - true_ms
            print(f"{row['name']:66}{row['connection']:5}{true_ms:9.3f}{source:>9}{row['delay']:9.3f}{error:+9.3f}")
    print(
        f"\n{'retransmissions: kernel / capture':66}{'side':>10}"
        + "".join(f"{name:>18}" for name in _COUNTERS.values())
    )
    for recording in recordings(folder):
        _show_counts(recording)


def _rows(recording: Recording) -> Iterator[dict[str, Any]]:
    for capture in recording.captures:
        trace = iscsitrace.read(str(capture), tables=("budget", "senders"))
        budgets = budget.of_connections(trace.budget)
        ports = {row["connection"]: row["initiator_port"] for row in trace.connections.rows()}
        senders: dict[int, list[dict[str, Any]]] = {}
        for row in trace.senders.rows():
            senders.setdefault(row["connection"], []).append(row)
        for connection, ends in senders.items():
            found, kernel = budgets.get(connection), window_limited_ms(recording.truth, ports[connection])
            side = max(kernel, key=lambda side: kernel[side][0], default=None)
            rtts = [end["rtt_min_ns"] for end in ends]
            yield {
                "name": capture.name,
                "connection": connection,
                "kernel": kernel[side] if side else (float("nan"), float("nan")),
                "full": max(end["window_full_ns"] for end in ends) / _MS_NS,
                "receive_window": found.parts_ns["receive_window"] / _MS_NS if found else float("nan"),
                "limiter": (found.limiter or "-") if found else "-",
                "idle": 100 * found.idle_fraction if found and found.idle_fraction is not None else float("nan"),
                "one_way": one_way_ms(recording.truth),
                "delay": sum(rtts) / 2 / _MS_NS if all(rtt is not None for rtt in rtts) else float("nan"),
            }


def _show_counts(recording: Recording) -> None:
    counted = recording.truth.get("tcp_counters_delta") or {}
    if not any(name in side for side in counted.values() for name in _COUNTERS):
        return
    for capture in recording.captures:
        trace = iscsitrace.read(str(capture), tables=("senders", "retransmissions"))
        for side in _SIDES:
            to_target = side == "initiator"
            ends = [row for row in trace.senders.rows() if row["to_target"] is to_target]
            ours = {name: sum(end[column] for end in ends) for name, column in _COLUMNS.items()}
            ours["all"] = sum(row["to_target"] is to_target for row in trace.retransmissions.rows())
            cells = [
                f"{counted.get(side, {}).get(name, 0)} / {ours[ours_name]}" for name, ours_name in _COUNTERS.items()
            ]
            print(f"{capture.name:66}{side:>10}" + "".join(f"{cell:>18}" for cell in cells))
