"""TCP problems: windows that are too small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.concurrency import SHARE_PATH, gains_by_paths, more_connections
from iscsitrace.findings.finding import (
    NEXT_LOGIN,
    WHOLE_HOST,
    Advice,
    Basis,
    Explains,
    Found,
    Observation,
    Problem,
    Rank,
)
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import WORTH, WORTH_A_CHANGE
from iscsitrace.fit.gain import Change
from iscsitrace.measure import all_waits, line
from iscsitrace.measure.by_subject import first_of_each
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.losses import losses
from iscsitrace.measure.session import Session
from iscsitrace.model.setting import Setting
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.wording import amounts as wording


def _receiver(row: dict[str, Any]) -> str:
    return "target" if row["to_target"] else "initiator"


def _sender(row: dict[str, Any]) -> str:
    return "initiator" if row["to_target"] else "target"


def _capacity(subject: Session, row: dict[str, Any]) -> str:
    """`` The bandwidth-delay product is 390 KiB (40.0 MB/s x 10.0 ms).``, where both are known."""
    found, path_ns = line.of_sender(row), subject.path_ns
    if not found or not path_ns:
        return ""
    product = wording.about(found.bytes_per_s * path_ns / 1e9)
    return f" The bandwidth-delay product is {product} ({wording.rate(found.bytes_per_s)} x {wording.time(path_ns)})."


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
    return subject.facts.table("senders").row(row)


_EVIDENCE: Final = (
    "The packets that ended the three longest waits; where one wait follows upon another, the commands that waited "
    "longest. The share is the time waited."
)


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
            f"The {_receiver(row)}'s TCP receive window was full for {wording.time(waits.total_ns)}. Its scale was not "
            f"captured, but the {_sender(row)} repeatedly stopped at {size}."
        )
    else:
        full = f"The {_receiver(row)}'s TCP receive window ({size}) was full for {wording.time(waits.total_ns)}."
        text = full + _capacity(subject, row)
    return Observation(text, subject.evidence(waits))


def _window_needed(setting: Setting) -> float:
    """Twice the bandwidth-delay product; 0 where the line rate is unknown."""
    return 2 * (setting.c_bytes_per_s or 0) * 2 * setting.delay_ns / 1e9


def _larger_window(basis: Basis, name: str = "receive window", part: str = "receive_window") -> Iterator[Change]:
    situation = basis.measured.situation
    setting, needed = situation.setting, _window_needed(situation.setting)
    if "c_bytes_per_s" not in situation.open_names and needed > (setting.window_bytes or needed):
        yield Change(
            f"{name} {wording.about(needed)}",
            lambda situation: situation.with_setting(window_bytes=ceil(_window_needed(situation.setting))),
            (part,),
        )


def _larger_buffer(basis: Basis) -> Iterator[Change]:
    """The model's window is the send buffer, where its size is known."""
    if _row(basis.case.subject, behind_its_buffer)["sndbuf_level_bytes"] is not None:
        yield from _larger_window(basis, "send buffer", "send_buffer")


def _windows_of_more_connections(basis: Basis) -> Iterator[Change]:
    setting = basis.measured.situation.setting
    if setting.c_bytes_per_s is not None and setting.window_bytes is not None:
        yield from more_connections(basis)


RECEIVE_WINDOW_SMALL: Final = Problem(
    name="receive_window_small",
    meaning="The sender has data, but the receiver's TCP window is full: it is smaller than the bandwidth-delay "
    "product (line rate times RTT).",
    condition=f"Receive window takes {WORTH}, and the window never shrank below a segment (or its scale is unknown).",
    evidence=_EVIDENCE,
    example="The initiator's TCP receive window (128 KiB) was full for 2.1 s.",
    # the bandwidth-delay product is 320 KB
    shown_by=f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=128K {WAN}",
    near_miss=f"read --block-size 1M --bytes 32M --queue-depth 4 --set receive-buffer=2M {WAN}",
    explains=Explains("receive_window", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "On the receiver (for reads: the initiator) raise net.core.rmem_max and the third value of "
            "net.ipv4.tcp_rmem to four times the bandwidth-delay product; the kernel uses part of the buffer itself.",
            _larger_window,
            touches=WHOLE_HOST,
        ),
        Advice(
            "open-iscsi fixes the buffer at node.conn[0].tcp.window_size, up to net.core.rmem_max: raise both.",
            touches=NEXT_LOGIN,
        ),
        Advice(
            SHARE_PATH,
            _windows_of_more_connections,
            is_tried_first=True,
            only_if=gains_by_paths,
            touches=NEXT_LOGIN,
        ),
    ),
    where=_has_small_window,
    tell=_window_small,
)


def _stalled(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, _behind_the_receiver)
    return Observation(
        f"The {_receiver(row)} read its socket late: its TCP receive window shrank to {row['rwnd_min_bytes']} bytes.",
        subject.evidence(subject.stretches("receive_window")),
    )


RECEIVER_STALLED: Final = Problem(
    name="receiver_stalled",
    meaning="The receiver's TCP window closes: its program reads the socket late.",
    condition=f"Receive window takes {WORTH}, and the advertised window shrank below a full segment.",
    evidence=_EVIDENCE,
    example="The initiator read its socket late: its TCP receive window shrank to 56 bytes.",
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


def limited(facts: Facts) -> Array:
    """The sender that waited for its congestion window: see :func:`_held`."""
    return _held(facts, "congestion_window", "restart_after_idle_count")


def _limited_after_restarts(facts: Facts, *, is_restarting: bool) -> Found:
    """Where the sender that waited restarted often after idle periods, or where it did not."""
    rows = facts.once(limited)
    is_often = np.append(facts.table("senders").raw("restart_after_idle_count") >= RESTARTS, False)[rows]
    # without losses slow start or a small send buffer: nothing is wrong that the packets show
    ranks: dict[Rank, Array] = {} if is_restarting else {"limit": ~facts.once(_senders_lose)[rows]}
    return Found((rows >= 0) & (is_often == is_restarting), facts.part_ns("congestion_window"), ranks)


def _senders_lose(facts: Facts) -> Array:
    """Whether each sender lost data, by its row of ``senders``; and False for none."""
    senders, lost = facts.table("senders"), losses(facts.table("recoveries"))
    own, of_losses = (2 * each.raw("connection").astype(np.int64) + each.raw("to_target") for each in (senders, lost))
    return np.append(np.isin(own, of_losses), False)


def _restarts(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, limited)
    times = row["restart_after_idle_count"]
    return Observation(
        f"The {_sender(row)}'s TCP went back to slow start {times:,} times after idle periods.",
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
    condition=f"A sender restarted at least {RESTARTS} times, and congestion window takes {WORTH}.",
    evidence="The first packets after the three longest waits for the window. The share is all waiting for the "
    "congestion window; restarts are the part that a setting avoids.",
    example="The target's TCP went back to slow start 15 times after idle periods.",
    # three seconds of thought between two blocks of 1 MiB; the window is halved again and again meanwhile, or kept
    shown_by="read --block-size 1M --bytes 16M --think-time 3s --one-way-delay 100ms --rate 320Mbit",
    near_miss="read --block-size 1M --bytes 16M --think-time 3s --set slow-start-after-idle=no --one-way-delay "
    "100ms --rate 320Mbit",
    explains=Explains("congestion_window", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "On the sender (for reads: the target) set net.ipv4.tcp_slow_start_after_idle = 0.",
            _no_slow_start,
            touches=WHOLE_HOST,
        ),
    ),
    where=partial(_limited_after_restarts, is_restarting=True),
    tell=_restarts,
)


SENDER: Final = ("connection", "to_target")
"""What names a row of ``senders``."""
CONTROLS: Final = {"reno": "Reno", "cubic": "CUBIC"}


def _congestion_window_small(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, limited)
    recoveries = losses(subject.tables["recoveries"])
    of_sender = (recoveries["connection"] == row["connection"]) & (recoveries["to_target"] == row["to_target"])
    lost = int(of_sender.sum())
    control = row["congestion_control"]
    named = f" ({CONTROLS[control]})" if control else ""
    if lost:
        text = f"The {_sender(row)}'s packets were lost {wording.times(lost)}, and its TCP{named} slowed down."
        text += _capacity(subject, row)
    else:
        text = (
            f"The {_sender(row)} waited for ACKs although the receive window had room and no packet was lost. This is "
            "TCP slow start or a small send buffer: the capture cannot tell them apart."
        )
    return Observation(text, subject.evidence(subject.stretches("congestion_window")))


def loses_packets(case: Case) -> bool:
    """Whether data was lost."""
    return len(losses(case.subject.tables["recoveries"])) > 0


def _sender_loses(case: Case) -> bool:
    """Whether data of the sender that waited was lost."""
    facts = case.subject.facts
    return bool(facts.once(_senders_lose)[case.subject.fact(limited)])


FIX_LOSSES: Final = (
    "Fix the packet loss first: look for errors and drops on both interfaces (ethtool -S, ip -s link) and on the "
    "switch ports between them."
)


def _slows_down_at_losses(case: Case) -> bool:
    """Whether a sender that lost data was seen to reduce its window at each loss."""
    lost = {(row["connection"], row["to_target"]) for row in losses(case.subject.tables["recoveries"]).rows(SENDER)}
    return any(
        row["congestion_control"] in CONTROLS and tuple(row[name] for name in SENDER) in lost
        for row in case.subject.senders
    )


TOLERATE_LOSSES: Final = Advice(
    "If the losses stay, set net.ipv4.tcp_congestion_control = bbr on the sender: cubic and reno slow down at each "
    "loss.",
    only_if=_slows_down_at_losses,
    touches=WHOLE_HOST,
)


def _has_loss(basis: Basis) -> bool:
    return bool(basis.measured.situation.stalls_ns_per_byte.get("loss"))


NO_LOSSES: Final = Change(
    "no losses",
    lambda situation: situation.without("loss").with_setting(loss=0.0),
    ("loss_recovery", "congestion_window"),
)


def no_losses(basis: Basis) -> Iterator[Change]:
    """What the model says without losses, where they cost time."""
    if _has_loss(basis):
        yield NO_LOSSES


def _losses_of_more_connections(basis: Basis) -> Iterator[Change]:
    if _has_loss(basis):
        yield from more_connections(basis)


CONGESTION_WINDOW_SMALL: Final = Problem(
    name="congestion_window_small",
    meaning="The sender has data and the receiver's window is open, but TCP waits for ACKs: its congestion window is "
    "smaller than the bandwidth-delay product, in slow start or after losses.",
    condition=f"Congestion window takes {WORTH}, with fewer than {RESTARTS} restarts after idle periods. A limit where "
    "the sender lost no packets.",
    evidence=_EVIDENCE,
    example="The target's packets were lost 205 times, and its TCP (Reno) slowed down.",
    # Reno that loses one packet in a hundred, or none; slow start takes 30 ms of either
    shown_by=f"read --block-size 256K --bytes 32M --queue-depth 8 --loss 1% --congestion-control reno {WAN}",
    near_miss=f"read --block-size 256K --bytes 32M --queue-depth 8 --congestion-control reno {WAN}",
    limited_by="TCP",
    explains=Explains("congestion_window", least=WORTH_A_CHANGE),
    advice=(
        Advice(FIX_LOSSES, no_losses, only_if=_sender_loses),
        TOLERATE_LOSSES,
        Advice(
            "Capture a longer transfer. Slow start ends by itself, and needs no change. If the wait stays, the send "
            "buffer is small: raise the third value of net.ipv4.tcp_wmem and net.core.wmem_max on the sender.",
            only_if=lambda case: not _sender_loses(case),
            touches=WHOLE_HOST,
        ),
        Advice(SHARE_PATH, _losses_of_more_connections, only_if=gains_by_paths, touches=NEXT_LOGIN),
    ),
    where=partial(_limited_after_restarts, is_restarting=False),
    tell=_congestion_window_small,
)


# --- send_buffer_small


def behind_its_buffer(facts: Facts) -> Array:
    """The sender that waited for room in its send buffer: see :func:`_held`."""
    return _held(facts, "send_buffer", "sndbuf_limited_ns")


def _send_buffer(case: Case) -> Observation:
    subject = case.subject
    row = _row(subject, behind_its_buffer)
    level = row["sndbuf_level_bytes"]
    most = f"stopped at {wording.about(row['owin_max_bytes'])} or less"
    stopped = most if level is None else f"typically stopped at {wording.about(level)}"
    return Observation(
        f"The {_sender(row)}'s send buffer was full: its bytes in flight {stopped}, below the receive window."
        + _capacity(subject, row),
        subject.evidence(subject.stretches("send_buffer")),
    )


SEND_BUFFER_SMALL: Final = Problem(
    name="send_buffer_small",
    meaning="The sender has data, and both windows have room, but its bytes in flight do not grow, or it goes on only "
    "after several ACKs: the send buffer of its socket is full. A congestion window grows, and lets data out with "
    "each ACK (BBR's need not grow).",
    condition=f"Send buffer takes {WORTH}.",
    evidence=_EVIDENCE,
    example="The target's send buffer was full: its bytes in flight typically stopped at 128 KiB, below the receive "
    "window. The bandwidth-delay product is 299 KiB (38.3 MB/s x 8.0 ms).",
    # what fits into 128 KiB, or 6 MiB
    shown_by=f"read --block-size 1M --bytes 32M --queue-depth 4 --set send-buffer=128K {WAN}",
    near_miss=f"read --block-size 1M --bytes 32M --queue-depth 4 {WAN}",
    explains=Explains("send_buffer", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "On the sender (for reads: the target) raise the third value of net.ipv4.tcp_wmem and net.core.wmem_max "
            "to twice the bandwidth-delay product.",
            _larger_buffer,
            touches=WHOLE_HOST,
        ),
        Advice("Remove a fixed SO_SNDBUF from the configuration of the sender.", touches=NEXT_LOGIN),
    ),
    where=lambda facts: Found(facts.once(behind_its_buffer) >= 0, facts.part_ns("send_buffer")),
    tell=_send_buffer,
)
