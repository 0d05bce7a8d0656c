"""Problems of TCP: windows that are too small, and losses."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.concurrency import SHARE_PATH, more_connections
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import WORTH
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.model.setting import Setting
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.subject import Subject, frames_in
from iscsitrace.wording import amounts as wording


def line_bytes_per_s(subject: Subject) -> int | None:
    """The pace of the line in the direction that carried most; None where it is not known."""
    row = _busiest(subject)
    return row["line_bytes_per_s"] if row else None


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


# --- receive_window_small and receiver_stalled


def _receive_window(subject: Subject) -> tuple[Stretches, dict[str, Any]] | None:
    """Waits for the receive window that are worth a change, and the sender that waited."""
    waits = subject.stretches("receive_window")
    if not is_worth(subject, waits.total_ns):
        return None
    row = _held(subject, waits, "window_full_ns")
    return None if row is None else (waits, row)


def _closes(row: dict[str, Any]) -> bool:
    """Whether the window shrank below a segment; without its scale nobody knows."""
    return not row["is_window_scale_inferred"] and (row["rwnd_min_bytes"] or 0) < (row["segment_bytes"] or 1)


def _window_small(case: Case) -> Observation | None:
    subject, seen = case.subject, case.once(_receive_window)
    if seen is None or _closes(seen[1]):
        return None
    waits, row = seen
    size = f"it is {wording.about(row['rwnd_max_bytes'] or 0)} at most"
    if row["is_window_scale_inferred"]:
        text = (
            f"the {_receiver(row)}'s receive window was full, if {size}: its scale was not captured, it may be larger"
        )
    else:
        full = wording.time(row["window_full_ns"])
        text = f"the {_receiver(row)}'s receive window was full for {full}; {size}{_capacity(subject, row)}"
    return Observation(text, subject.evidence(waits), waits.total_ns)


def _window_needed(setting: Setting) -> float:
    """Twice what the path holds; 0 where the line is not known."""
    return 2 * (setting.c_bytes_per_s or 0) * 2 * setting.delay_ns / 1e9


def _is_windowed(basis: Basis) -> bool:
    setting = basis.measured.situation.setting
    return setting.c_bytes_per_s is not None and setting.window_bytes is not None


def _larger_window(basis: Basis) -> Iterator[Change]:
    setting = basis.measured.situation.setting
    needed = _window_needed(setting)
    if _is_windowed(basis) and needed > (setting.window_bytes or 0):
        yield Change(
            f"a receive window of {wording.about(needed)}",
            lambda situation: situation.with_setting(window_bytes=ceil(_window_needed(situation.setting))),
        )


def _windows_of_more_connections(basis: Basis) -> Iterator[Change]:
    if _is_windowed(basis):
        yield from more_connections(basis)


RECEIVE_WINDOW_SMALL: Final = Problem(
    name="receive_window_small",
    meaning="The sender has data, but the receiver's TCP window is full: it is smaller than what the path holds (line "
    "rate times round trip).",
    condition=f"`receive_window` takes {WORTH}, and the window never shrank below a segment (or its scale is not "
    "known).",
    evidence="The first packets after the three longest waits. The share is that waiting.",
    explains=Explains("receive_window"),
    advice=(
        Advice(
            "On the receiver (of reads: the initiator): net.core.rmem_max, and the third value of net.ipv4.tcp_rmem, "
            "above line rate times round trip; twice that, for the kernel counts its own overhead.",
            _larger_window,
        ),
        Advice(
            "In open-iscsi node.conn[0].tcp.window_size sets the buffers, which net.core.rmem_max cuts and which "
            "switches the kernel's own growth off: raise both, then log in again."
        ),
        Advice("On the sender net.ipv4.tcp_wmem and net.core.wmem_max no smaller."),
        Advice(SHARE_PATH, _windows_of_more_connections, is_tried_first=True),
    ),
    observe=_window_small,
)


def _stalled(case: Case) -> Observation | None:
    seen = case.once(_receive_window)
    if seen is None or not _closes(seen[1]):
        return None
    waits, row = seen
    return Observation(
        f"the {_receiver(row)} let its receive window shrink to {row['rwnd_min_bytes']} bytes: it takes its data late",
        case.subject.evidence(waits),
        waits.total_ns,
    )


RECEIVER_STALLED: Final = Problem(
    name="receiver_stalled",
    meaning="The receiver's TCP window closes: its program takes the data late from the socket.",
    condition=f"`receive_window` takes {WORTH}, and the advertised window shrank below a full segment.",
    evidence="The first packets after the three longest waits. The share is that waiting.",
    explains=Explains("receive_window"),
    advice=(
        Advice(
            "Look at the receiver: CPU (softirq, iscsi_q or kworker threads at 100 %), memory, a slow disk behind it."
        ),
        Advice("Larger buffers only delay this: net.ipv4.tcp_rmem."),
    ),
    observe=_stalled,
)


# --- restart_after_idle and congestion_window_small

RESTARTS: Final = 4
"""Times that a sender began anew with a small window: the first ones may be the start of a job."""


def _congestion_window(subject: Subject) -> tuple[Stretches, dict[str, Any]] | None:
    """Waits for the congestion window that are worth a change, and the sender that waited."""
    waits = subject.stretches("congestion_window")
    if not is_worth(subject, waits.total_ns):
        return None
    row = _held(subject, waits, "restart_after_idle_count")
    return None if row is None else (waits, row)


def _restarts(case: Case) -> Observation | None:
    seen = case.once(_congestion_window)
    if seen is None or seen[1]["restart_after_idle_count"] < RESTARTS:
        return None
    waits, row = seen
    times = row["restart_after_idle_count"]
    return Observation(
        f"TCP at the {_sender(row)} began anew with a small congestion window {times} times after a pause",
        case.subject.evidence(waits),
        waits.total_ns,
    )


def _no_slow_start(basis: Basis) -> Iterator[Change]:
    yield Change(
        "no slow start after a pause",
        lambda situation: situation.without("slow_start").with_setting(start_window_bytes=None),
    )


RESTART_AFTER_IDLE: Final = Problem(
    name="restart_after_idle",
    meaning="After a pause TCP begins anew with a small congestion window, so that a block needs several round trips "
    "where one would do. iSCSI at low queue depth is all pauses.",
    condition=f"A sender restarted {RESTARTS} times or more, and `congestion_window` takes {WORTH}.",
    evidence="The first packets after the three longest waits for the window. The share is all waiting for the "
    "congestion window, of which restarts are the cause that can be removed.",
    explains=Explains("congestion_window"),
    advice=(
        Advice("On the sender (of reads: the target) net.ipv4.tcp_slow_start_after_idle = 0.", _no_slow_start),
        Advice("More tasks outstanding leave no pauses: node.session.queue_depth."),
    ),
    observe=_restarts,
)


def _congestion_window_small(case: Case) -> Observation | None:
    subject, seen = case.subject, case.once(_congestion_window)
    if seen is None or seen[1]["restart_after_idle_count"] >= RESTARTS:
        return None
    waits, row = seen
    losses = wording.count(row["recovery_count"], "loss", "losses")
    return Observation(
        f"data waited for TCP's congestion window at the {_sender(row)}, after {losses}{_capacity(subject, row)}",
        subject.evidence(waits),
        waits.total_ns,
    )


def _has_loss(basis: Basis) -> bool:
    return bool(basis.measured.situation.stalls_ns_per_byte.get("loss"))


def _no_losses(basis: Basis) -> Iterator[Change]:
    if _has_loss(basis):
        yield Change("no losses", lambda situation: situation.without("loss").with_setting(loss=0.0))


def _losses_of_more_connections(basis: Basis) -> Iterator[Change]:
    if _has_loss(basis):
        yield from more_connections(basis)


CONGESTION_WINDOW_SMALL: Final = Problem(
    name="congestion_window_small",
    meaning="The sender has data and the receiver room, but TCP waits for ACKs: its congestion window is smaller than "
    "what the path holds, at the start or after losses.",
    condition=f"`congestion_window` takes {WORTH}, without {RESTARTS} restarts after a pause.",
    evidence="The first packets after the three longest waits. The share is that waiting.",
    explains=Explains("congestion_window"),
    advice=(
        Advice("Find losses first (finding loss): they are what keeps the window small.", _no_losses),
        Advice("On the sender net.ipv4.tcp_congestion_control: cubic or bbr over distance, not reno."),
        Advice(SHARE_PATH, _losses_of_more_connections),
        Advice("Long sessions: a window grows once, a new login begins anew."),
    ),
    observe=_congestion_window_small,
)


# --- loss

LOSS_SHARE: Final = 0.01
"""Share of the jobs' time that repairs may take: a loss also makes the congestion window smaller for long after the
repair, so it costs more than the repair itself shows."""


def _loss(case: Case) -> Observation | None:
    subject = case.subject
    lost_ns = subject.part_ns("loss_recovery")
    if not is_worth(subject, lost_ns, LOSS_SHARE):
        return None
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
    return Observation(text, frames_in(repairs, longest, "frame_first", "frame_last"), lost_ns)


LOSS: Final = Problem(
    name="loss",
    meaning="The network loses packets, and transfers stand still until they are sent again.",
    condition=f"`loss_recovery` takes at least {wording.percent(LOSS_SHARE)} of the jobs' time.",
    evidence="First and last frame of the longest repairs. The share is the time of repairs.",
    explains=Explains("loss_recovery"),
    advice=(
        Advice(
            "Find where: errors and drops of both interfaces (ethtool -S, ip -s link), switch ports, flow control, "
            "duplex.",
            _no_losses,
        ),
        Advice(
            "Retransmission timeouts weigh most: net.ipv4.tcp_sack = 1 on both sides, and enough in flight for fast "
            "retransmission."
        ),
        Advice("On the sender net.ipv4.tcp_congestion_control: bbr bears random loss, cubic and reno do not."),
        Advice(SHARE_PATH, _losses_of_more_connections),
    ),
    observe=_loss,
)

PROBLEMS: Final = (RECEIVE_WINDOW_SMALL, RECEIVER_STALLED, RESTART_AFTER_IDLE, CONGESTION_WINDOW_SMALL, LOSS)
