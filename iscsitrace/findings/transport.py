"""TCP problems: windows that are too small, and packet loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, Final

import numpy as np

from iscsitrace.findings import ack_loss
from iscsitrace.findings.case import Case, is_worth
from iscsitrace.findings.concurrency import RAISE_QUEUE_DEPTH, SHARE_PATH, more_connections
from iscsitrace.findings.finding import Advice, Basis, Explains, Found, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import LOSS_SHARE, WORTH, WORTH_A_CHANGE
from iscsitrace.fit.gain import Change
from iscsitrace.measure import all_waits, line
from iscsitrace.measure.by_subject import first_of_each
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.losses import losses
from iscsitrace.measure.session import Session, frames_in
from iscsitrace.model.setting import Setting
from iscsitrace.tables.nulls import known, numbers_of
from iscsitrace.wording import amounts as wording


def _receiver(row: dict[str, Any]) -> str:
    return "target" if row["to_target"] else "initiator"


def _sender(row: dict[str, Any]) -> str:
    return "initiator" if row["to_target"] else "target"


def _capacity(subject: Session, row: dict[str, Any]) -> str:
    """``; the bandwidth-delay product is 390 KiB (40.0 MB/s x 10.0 ms)``, where both are known."""
    found, path_ns = line.of_sender(row), subject.path_ns
    if not found or not path_ns:
        return ""
    product = wording.about(found.bytes_per_s * path_ns / 1e9)
    return f"; the bandwidth-delay product is {product} ({wording.rate(found.bytes_per_s)} x {wording.time(path_ns)})"


def _held(facts: Facts, part: str, weight: str) -> Array:
    """The sender that waited in this part, as its row of ``senders``: in the direction of the delayed commands the one
    with the largest value of a column; -1 where there is none.
    """
    senders, cycles = facts.table("senders"), facts.table("cycles")
    waits = all_waits.of_parts(facts, part)
    waits = waits.where(waits.row >= 0)
    is_write = cycles.raw("is_write")[waits.row]
    to_target = 2 * waits.where(is_write).sums_ns(facts) > waits.sums_ns(facts)
    places = facts.places("senders")
    is_own = (places >= 0) & (senders.raw("to_target") == to_target[places])
    return first_of_each(np.where(is_own, places, -1), len(facts), -np.maximum(numbers_of(senders, weight), 0))


def _row(subject: Session, held: Callable[[Facts], Array]) -> dict[str, Any]:
    """The row of that sender, for one session."""
    row = subject.fact(held)
    return next(subject.facts.table("senders").select(slice(row, row + 1)).rows())


# --- receive_window_small and receiver_stalled


def _behind_the_receiver(facts: Facts) -> Array:
    return _held(facts, "receive_window", "rwnd_limited_ns")


def _closes(facts: Facts) -> Array:
    """Whether the window of its receiver shrank below a segment; unknown without its scale."""
    senders, rows = facts.table("senders"), facts.once(_behind_the_receiver)
    least, segment = (numbers_of(senders, name) for name in ("rwnd_min_bytes", "segment_bytes"))
    is_small = np.maximum(least, 0) < np.where(segment > 0, segment, 1)
    return np.append(is_small & ~senders.raw("is_window_scale_inferred"), False)[rows]


def _has_small_window(facts: Facts) -> Found:
    is_found = (facts.once(_behind_the_receiver) >= 0) & ~facts.once(_closes)
    return Found(is_found, facts.part_ns("receive_window"))


def _window_small(case: Case) -> Observation:
    subject = case.subject
    waits, row = subject.stretches("receive_window"), _row(subject, _behind_the_receiver)
    size = wording.about(row["rwnd_max_bytes"] or 0)
    if row["is_window_scale_inferred"]:
        text = (
            f"the {_receiver(row)}'s receive window was full; it is at most {size}: the window scale was not captured, "
            "but the sender stopped at that size again and again"
        )
    else:
        text = (
            f"the {_receiver(row)}'s receive window held the {_sender(row)} for {wording.time(waits.total_ns)}; "
            f"it is at most {size}{_capacity(subject, row)}"
        )
    return Observation(text, subject.evidence(waits))


def _window_needed(setting: Setting) -> float:
    """Twice the bandwidth-delay product; 0 where the line rate is unknown."""
    return 2 * (setting.c_bytes_per_s or 0) * 2 * setting.delay_ns / 1e9


def _larger_window(basis: Basis) -> Iterator[Change]:
    situation = basis.measured.situation
    setting, needed = situation.setting, _window_needed(situation.setting)
    if "c_bytes_per_s" not in situation.open_names and needed > (setting.window_bytes or needed):
        yield Change(
            f"receive window {wording.about(needed)}",
            lambda situation: situation.with_setting(window_bytes=ceil(_window_needed(situation.setting))),
            ("receive_window",),
        )


def _windows_of_more_connections(basis: Basis) -> Iterator[Change]:
    setting = basis.measured.situation.setting
    if setting.c_bytes_per_s is not None and setting.window_bytes is not None:
        yield from more_connections(basis)


RECEIVE_WINDOW_SMALL: Final = Problem(
    name="receive_window_small",
    meaning="The sender has data, but the receiver's TCP window is full: it is smaller than the bandwidth-delay "
    "product (line rate times RTT).",
    condition=f"`receive_window` takes {WORTH}, and the window never shrank below a segment (or its scale is unknown).",
    evidence="The first packets after the three longest waits. The share is the time waited.",
    example="The initiator's receive window held the target for 2.1 s; it is at most 128 KiB.",
    # the bandwidth-delay product is 320 KB
    shown_by=f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=128K {WAN}",
    near_miss=f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=2M {WAN}",
    explains=Explains("receive_window", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "On the receiver (for reads: the initiator) set net.core.rmem_max and the third value of net.ipv4.tcp_rmem "
            "to twice the bandwidth-delay product; the kernel's overhead uses part of the buffer.",
            _larger_window,
        ),
        Advice(
            "In open-iscsi node.conn[0].tcp.window_size sets the socket buffers, limited by net.core.rmem_max, and "
            "disables the kernel's autotuning: raise both, then log in again."
        ),
        Advice("On the sender set net.ipv4.tcp_wmem and net.core.wmem_max to at least the same size."),
        Advice(SHARE_PATH, _windows_of_more_connections, is_tried_first=True),
    ),
    where=_has_small_window,
    tell=_window_small,
)


def _stalled(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, _behind_the_receiver)
    return Observation(
        f"the {_receiver(row)}'s receive window shrank to {row['rwnd_min_bytes']} bytes: it reads its socket late",
        subject.evidence(subject.stretches("receive_window")),
    )


RECEIVER_STALLED: Final = Problem(
    name="receiver_stalled",
    meaning="The receiver's TCP window closes: its program reads the socket late.",
    condition=f"`receive_window` takes {WORTH}, and the advertised window shrank below a full segment.",
    evidence="The first packets after the three longest waits. The share is the time waited.",
    example="The initiator's receive window shrank to 56 bytes: it reads its socket late.",
    # an initiator that reads its socket 40 ms late, or at once; without SACK no probe looks like a loss meanwhile
    shown_by=f"read --block-size 1M --bytes 16M --queue-depth 4 --set receive-buffer=256K --set sack=no {WAN} "
    "--set initiator-host-delay=40ms",
    near_miss=f"read --block-size 1M --bytes 16M --queue-depth 4 --set receive-buffer=256K --set sack=no {WAN}",
    explains=Explains("receive_window", least=WORTH_A_CHANGE),
    advice=(
        Advice("Check the receiver: CPU (softirq, iscsi_q or kworker threads at 100 %), memory, a slow disk."),
        Advice("Larger buffers (net.ipv4.tcp_rmem) only delay the problem."),
    ),
    where=lambda facts: Found(facts.once(_closes), facts.part_ns("receive_window")),
    tell=_stalled,
)


# --- restart_after_idle and congestion_window_small

RESTARTS: Final = 4
"""Least count of slow starts after idle periods: the first ones can be the start of the I/O."""


def _limited(facts: Facts) -> Array:
    return _held(facts, "congestion_window", "restart_after_idle_count")


def _limited_after_restarts(facts: Facts, *, is_restarting: bool) -> Found:
    """Where the sender that waited restarted often after idle periods, or where it did not."""
    rows = facts.once(_limited)
    is_often = np.append(facts.table("senders").raw("restart_after_idle_count") >= RESTARTS, False)[rows]
    return Found((rows >= 0) & (is_often == is_restarting), facts.part_ns("congestion_window"))


def _restarts(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, _limited)
    times = row["restart_after_idle_count"]
    return Observation(
        f"the {_sender(row)}'s TCP went back to slow start {times} times after idle periods",
        subject.evidence(subject.stretches("congestion_window")),
    )


def _no_slow_start(basis: Basis) -> Iterator[Change]:
    yield Change(
        "no slow start after idle",
        lambda situation: situation.without("slow_start").with_setting(start_window_bytes=None),
        ("congestion_window",),
    )


RESTART_AFTER_IDLE: Final = Problem(
    name="restart_after_idle",
    meaning="After an idle period TCP restarts with a small congestion window, so that a command needs several RTTs "
    "instead of one. iSCSI at a low queue depth is idle after every command.",
    condition=f"A sender restarted at least {RESTARTS} times, and `congestion_window` takes {WORTH}.",
    evidence="The first packets after the three longest waits for the window. The share is all waiting for the "
    "congestion window; restarts are the part that a setting avoids.",
    example="The target's TCP went back to slow start 15 times after idle periods.",
    # three seconds of thought between two blocks of 1 MiB; the window is halved again and again meanwhile, or kept
    shown_by="read --block-size 1M --bytes 16M --think-time 3s --one-way-delay 100ms --rate 320Mbit",
    near_miss="read --block-size 1M --bytes 16M --think-time 3s --set slow-start-after-idle=no --one-way-delay "
    "100ms --rate 320Mbit",
    explains=Explains("congestion_window", least=WORTH_A_CHANGE),
    advice=(
        Advice("On the sender (for reads: the target) set net.ipv4.tcp_slow_start_after_idle = 0.", _no_slow_start),
        Advice(RAISE_QUEUE_DEPTH),
    ),
    where=partial(_limited_after_restarts, is_restarting=True),
    tell=_restarts,
)


CONTROLS: Final = {"reno": "Reno", "cubic": "CUBIC"}


def _congestion_window_small(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, _limited)
    recoveries = losses(subject.tables["recoveries"])
    of_sender = (recoveries["connection"] == row["connection"]) & (recoveries["to_target"] == row["to_target"])
    lost = int(of_sender.sum())
    control = row["congestion_control"]
    named = f", after which it reduced its window as {CONTROLS[control]} does" if lost and control else ""
    facts = f"with {wording.count(lost, 'loss', 'losses')}{named}{_capacity(subject, row)}"
    if not lost:
        facts += "; without losses a full send buffer may look the same"
    return Observation(
        f"the {_sender(row)} was cwnd-limited, {facts}",
        subject.evidence(subject.stretches("congestion_window")),
        cause=f"The sender is the {_sender(row)}, {facts}.",
    )


def loses_packets(case: Case) -> bool:
    """Whether data was lost."""
    return len(losses(case.subject.tables["recoveries"])) > 0


def _has_loss(basis: Basis) -> bool:
    return bool(basis.measured.situation.stalls_ns_per_byte.get("loss"))


NO_LOSSES: Final = Change(
    "no losses",
    lambda situation: situation.without("loss").with_setting(loss=0.0),
    ("loss_recovery", "congestion_window"),
)


def _no_losses(basis: Basis) -> Iterator[Change]:
    if _has_loss(basis):
        yield NO_LOSSES


def _losses_of_more_connections(basis: Basis) -> Iterator[Change]:
    if _has_loss(basis):
        yield from more_connections(basis)


CONGESTION_WINDOW_SMALL: Final = Problem(
    name="congestion_window_small",
    meaning="The sender has data and the receiver's window is open, but TCP waits for ACKs: its congestion window is "
    "smaller than the bandwidth-delay product, in slow start or after losses.",
    condition=f"`congestion_window` takes {WORTH}, with fewer than {RESTARTS} restarts after idle periods.",
    evidence="The first packets after the three longest waits. The share is the time waited.",
    example="The sender is the target, with 205 losses, after which it reduced its window as Reno does.",
    # Reno that loses one packet in a hundred, or none; slow start takes 30 ms of either
    shown_by=f"read --block-size 256K --bytes 32M --queue-depth 8 --loss 1% --congestion-control reno {WAN}",
    near_miss=f"read --block-size 256K --bytes 32M --queue-depth 8 --congestion-control reno {WAN}",
    explains=Explains("congestion_window", least=WORTH_A_CHANGE),
    advice=(
        Advice("Fix the losses first (finding loss): they keep the window small.", _no_losses, only_if=loses_packets),
        Advice("On the sender set net.ipv4.tcp_congestion_control to cubic or bbr; reno is slow at a long RTT."),
        Advice(SHARE_PATH, _losses_of_more_connections),
        Advice("Keep sessions logged in: a new connection starts with a small window."),
    ),
    where=partial(_limited_after_restarts, is_restarting=False),
    tell=_congestion_window_small,
)


# --- send_buffer_small


def _behind_its_buffer(facts: Facts) -> Array:
    return _held(facts, "send_buffer", "sndbuf_limited_ns")


def _send_buffer(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, _behind_its_buffer)
    return Observation(
        f"the {_sender(row)} was send-buffer-limited: its bytes in flight stopped at the same level, at most "
        f"{wording.about(row['owin_max_bytes'])}, without losses, below the receive window{_capacity(subject, row)}",
        subject.evidence(subject.stretches("send_buffer")),
    )


SEND_BUFFER_SMALL: Final = Problem(
    name="send_buffer_small",
    meaning="The sender has data, and both windows have room, but the bytes in flight stop at a flat level: the send "
    "buffer of its socket is full. A congestion window would have grown (BBR's, which does not, looks the same).",
    condition=f"`send_buffer` takes {WORTH}.",
    evidence="The first packets after the three longest waits. The share is the time waited.",
    example="The target was send-buffer-limited: its bytes in flight stopped at the same level, at most 128 KiB, "
    "without losses, below the receive window; the bandwidth-delay product is 299 KiB (38.3 MB/s x 8.0 ms).",
    # what fits into 128 KiB, or 6 MiB
    shown_by=f"read --block-size 1M --bytes 32M --queue-depth 4 --set send-buffer=128K {WAN}",
    near_miss=f"read --block-size 1M --bytes 32M --queue-depth 4 {WAN}",
    explains=Explains("send_buffer", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "On the sender (for reads: the target) set the third value of net.ipv4.tcp_wmem and net.core.wmem_max to "
            "twice the bandwidth-delay product, and remove a fixed SO_SNDBUF of the target or initiator.",
        ),
        Advice(SHARE_PATH),
    ),
    where=lambda facts: Found(facts.once(_behind_its_buffer) >= 0, facts.part_ns("send_buffer")),
    tell=_send_buffer,
)

# --- loss


def _loss(case: Case) -> Observation | None:
    subject = case.subject
    lost_ns = subject.part_ns("loss_recovery") - ack_loss.waits(subject).total_ns
    if not is_worth(subject, lost_ns, LOSS_SHARE):
        return None
    recoveries = losses(subject.tables["recoveries"])
    if not len(recoveries) and len(subject.tables["recoveries"]):
        # no data was lost; waits among needless recoveries: findings reordering and ack_loss
        return None
    ends = {row["connection"]: row["time_last_ns"] for row in subject.connections}
    unended_ns = np.array([ends[connection] for connection in recoveries["connection"].tolist()], dtype=np.int64)
    ended_ns = np.where(known(recoveries, "time_last_ns"), recoveries.raw("time_last_ns"), unended_ns)
    lengths = ended_ns - recoveries.raw("time_first_ns")
    longest = np.argsort(-lengths, kind="stable")[:3]
    timeouts = recoveries["cause"].tolist().count("timeout")
    resent = int(recoveries.raw("retransmitted_packets").sum())
    sides = ["target" if each else "initiator" for each in np.unique(recoveries.raw("to_target")).tolist()]
    packets = sum(row[f"packets_to_{side}"] for row in subject.connections for side in sides)
    share = wording.percent(resent / packets if packets else 0)
    text = (
        f"{wording.count(len(recoveries), 'loss', 'losses')} to the {' and the '.join(sides)} "
        f"({wording.count(resent, 'retransmission')}, {share} of the packets) cost {wording.time(lost_ns)}; "
        f"the longest recovery took {wording.time(float(lengths.max(initial=0)))}, with "
        f"{wording.count(timeouts, 'retransmission timeout')}"
    )
    return Observation(text, frames_in(recoveries, longest, "frame_first", "frame_last"), lost_ns)


LOSS: Final = Problem(
    name="loss",
    meaning="The network loses packets, and transfers stall until TCP has retransmitted them.",
    condition=f"`loss_recovery` takes at least {wording.percent(LOSS_SHARE)} of the busy time, without recoveries of "
    "finding `ack_loss`.",
    evidence="First and last frame of the longest recoveries. The share is the time that the losses cost.",
    example="46 losses to the initiator (48 retransmissions, 0.83 % of the packets) cost 725.6 ms; the longest "
    "recovery took 25.0 ms, with 0 retransmission timeouts.",
    # lost, or only late
    shown_by=f"read --block-size 128K --bytes 8M --queue-depth 4 --set to-initiator-loss=1% {WAN}",
    near_miss=f"read --block-size 128K --bytes 8M --queue-depth 4 --set reorder=1%,0.2ms {WAN}",
    explains=Explains("loss_recovery", least=LOSS_SHARE),
    advice=(
        Advice(
            "Find where packets are lost: errors and drops of both interfaces (ethtool -S, ip -s link), switch ports, "
            "flow control, duplex.",
            _no_losses,
        ),
        Advice(
            "Avoid retransmission timeouts, which cost most: net.ipv4.tcp_sack = 1 on both sides, and enough data in "
            "flight for fast retransmit."
        ),
        Advice(
            "On the sender set net.ipv4.tcp_congestion_control to bbr: it tolerates random loss, cubic and reno do not."
        ),
        Advice(SHARE_PATH, _losses_of_more_connections),
    ),
    tell=_loss,
)
