"""Diseases of TCP: windows that are too small, and losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import LOSS, RESTARTS
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.subject import Subject, frames_in, known
from iscsitrace.wording import amounts as wording


def line_bytes_per_s(subject: Subject) -> int | None:
    """The pace of the line in the direction that carried most; None where it is not known."""
    row = _busiest(subject)
    return row["line_bytes_per_s"] if row else None


def find(subject: Subject) -> Iterator[Finding]:
    """receive_window_small or receiver_stalled, restart_after_idle or congestion_window_small, and loss."""
    yield from _receive_window(subject)
    yield from _congestion_window(subject)
    yield from _loss(subject)


def _senders(subject: Subject) -> list[dict[str, Any]]:
    return list(subject.tables["senders"].rows())


def _busiest(subject: Subject) -> dict[str, Any] | None:
    """The sender of most bytes, among those whose line is known if there are."""
    sent = {
        (row["connection"], direction == "to_target"): row[f"stream_bytes_{direction}"]
        for row in subject.connections
        for direction in ("to_target", "to_initiator")
    }
    rows = _senders(subject)
    return max(rows, key=lambda row: sent.get((row["connection"], row["to_target"]), 0), default=None)


def _receiver(row: dict[str, Any]) -> str:
    return "target" if row["to_target"] else "initiator"


def _sender(row: dict[str, Any]) -> str:
    return "initiator" if row["to_target"] else "target"


def _capacity(subject: Subject, row: dict[str, Any]) -> str:
    """`` where the path holds 390 KiB (40.0 MB/s for 10.0 ms)``."""
    line, path_ns = row["line_bytes_per_s"], subject.path_ns
    if not line or not path_ns:
        return ""
    held = line * path_ns / 1e9
    return f", where the path holds {wording.about(held)} ({wording.rate(line)} for {wording.time(path_ns)})"


def _held(subject: Subject, waits: Stretches, weight: str) -> dict[str, Any] | None:
    """The sender that waited: in the direction of the tasks that it held up, the one with most of that column."""
    by_cycle = subject.waits_by_cycle(waits)
    to_target = 2 * int(by_cycle[subject.cycles.raw("is_write")].sum()) > int(by_cycle.sum())
    rows = [row for row in _senders(subject) if row["to_target"] == to_target]
    return max(rows, key=lambda row: row[weight], default=None)


def _receive_window(subject: Subject) -> Iterator[Finding]:
    waits = subject.stretches("receive_window")
    if not subject.is_worth(waits.total_ns):
        return
    row = _held(subject, waits, "window_full_ns")
    if row is None:
        return
    receiver = _receiver(row)
    size = f"it is {wording.about(row['rwnd_max_bytes'] or 0)} at most"
    if row["is_window_scale_inferred"]:
        name = "receive_window_small"
        text = f"the {receiver}'s receive window was full, if {size}: its scale was not captured, it may be larger"
    elif (row["rwnd_min_bytes"] or 0) < (row["segment_bytes"] or 1):
        name = "receiver_stalled"
        text = f"the {receiver} let its receive window shrink to {row['rwnd_min_bytes']} bytes: it takes its data late"
    else:
        name = "receive_window_small"
        full = wording.time(row["window_full_ns"])
        text = f"the {receiver}'s receive window was full for {full}; {size}{_capacity(subject, row)}"
    yield subject.finding(name, waits.total_ns, text, subject.evidence(waits))


def _congestion_window(subject: Subject) -> Iterator[Finding]:
    waits = subject.stretches("congestion_window")
    if not subject.is_worth(waits.total_ns):
        return
    row = _held(subject, waits, "restart_after_idle_count")
    if row is None:
        return
    if row["restart_after_idle_count"] >= RESTARTS:
        name = "restart_after_idle"
        times = row["restart_after_idle_count"]
        text = f"TCP at the {_sender(row)} began anew with a small congestion window {times} times after a pause"
    else:
        name = "congestion_window_small"
        losses = wording.count(row["recovery_count"], "loss", "losses")
        text = f"data waited for TCP's congestion window at the {_sender(row)}, after {losses}{_capacity(subject, row)}"
    yield subject.finding(name, waits.total_ns, text, subject.evidence(waits))


def _loss(subject: Subject) -> Iterator[Finding]:
    lost_ns = subject.part_ns("loss_recovery")
    if not subject.is_worth(lost_ns, LOSS):
        return
    repairs = subject.tables["recoveries"]
    is_repaired = known(repairs, "time_last_ns")
    lengths = np.where(is_repaired, repairs.raw("time_last_ns") - repairs.raw("time_first_ns"), 0)
    longest = np.argsort(-lengths, kind="stable")[:3]
    causes = repairs["cause"].tolist()
    timeouts = sum(cause == "timeout" for cause in causes)
    resent = int(repairs.raw("retransmitted_packets").sum())
    packets = sum(row["packets_to_target"] + row["packets_to_initiator"] for row in subject.connections)
    text = (
        f"{wording.count(len(repairs), 'loss', 'losses')} ({wording.count(resent, 'packet')} sent again, "
        f"{wording.percent(resent / packets if packets else 0)} of all) took {wording.time(lost_ns)} to repair, the "
        f"longest {wording.time(float(lengths.max(initial=0)))}; {wording.count(timeouts, 'timeout')}"
    )
    yield subject.finding("loss", lost_ns, text, frames_in(repairs, longest, "frame_first", "frame_last"))
