"""Packet loss, and black-outs of the path: transfers stall until TCP has retransmitted what was lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from iscsitrace.findings import ack_loss, black_outs
from iscsitrace.findings.case import Case, is_worth
from iscsitrace.findings.finding import LEAST_COST_NS, WHOLE_HOST, Advice, Explains, Observation, Problem
from iscsitrace.findings.outages import PATH
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import LOSS_SHARE, WORTH
from iscsitrace.findings.transport import FIX_LOSSES, SENDER, TOLERATE_LOSSES, limited, no_losses
from iscsitrace.measure.losses import losses
from iscsitrace.measure.session import Session, frames_in
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording


def _loss(case: Case) -> Observation | None:
    subject = case.subject
    waits = ack_loss.other_waits(subject)
    lost_ns = waits.total_ns
    if not is_worth(subject, lost_ns, LOSS_SHARE):
        return None
    recoveries = losses(subject.tables["recoveries"])
    down = black_outs.of(subject.tables["recoveries"], waits)
    if not down and not len(recoveries) and len(subject.tables["recoveries"]):
        # no data was lost; waits among needless recoveries: findings reordering and ack_loss
        return None
    ends = {row["connection"]: row["time_last_ns"] for row in subject.connections}
    unended_ns = np.array([ends[connection] for connection in recoveries["connection"].tolist()], dtype=np.int64)
    ended_ns = np.where(known(recoveries, "time_last_ns"), recoveries.raw("time_last_ns"), unended_ns)
    lengths = ended_ns - recoveries.raw("time_first_ns")
    # of two taps, the recoveries that only the other one saw have no frame
    longest = np.argsort(np.where(known(recoveries, "frame_first"), -lengths, 0), kind="stable")[:3]
    timeouts = recoveries["cause"].tolist().count("timeout")
    resent = int(recoveries.raw("retransmitted_packets").sum())
    sides = ["target" if each else "initiator" for each in np.unique(recoveries.raw("to_target")).tolist()]
    packets = sum(row[f"packets_to_{side}"] for row in subject.connections for side in sides)
    share = wording.percent(resent / packets if packets else 0)
    noticed = f" TCP noticed {timeouts:,} of these losses only by a retransmission time-out." if timeouts else ""
    told = "The lost packets never passed the tap."
    if sides:
        told = f"Packets to the {' and the '.join(sides)} were lost {wording.times(len(recoveries))} "
        told += f"({share} of the packets were retransmitted)."
    slowed_ns = _slowed_ns(subject, recoveries)
    slowed = (
        f" TCP slowed down after them, for another {wording.percent(subject.share(slowed_ns))} of the I/O time."
        if is_worth(subject, slowed_ns)
        else ""
    )
    why = "for retransmissions"
    if down:
        why, told, noticed = f"because {down.side} was down", down.in_words(case.groups.start_ns), ""
    text = (
        f"I/O waited {wording.time(lost_ns)} {why}, at most {wording.time(waits.unbroken_ns)} at a time. "
        f"{told}{slowed}{noticed}"
    )
    is_noticed = is_worth(subject, lost_ns + slowed_ns) or lost_ns >= LEAST_COST_NS
    frames = frames_in(recoveries, longest, "frame_first", "frame_last")
    return Observation(
        text,
        frames,
        lost_ns,
        severity="warning" if is_noticed else None,
        advice=(replace(PATH, what_if=no_losses),) if down else None,
        points_to=down.side if down else None,
    )


def _slowed_ns(subject: Session, recoveries: Table) -> int:
    """The time in which the sender that waited most for its congestion window did so after its first loss."""
    row = subject.fact(limited)
    if row < 0:
        return 0
    sender = next(subject.facts.table("senders").select(slice(row, row + 1)).rows(SENDER))
    is_own = (recoveries["connection"] == sender["connection"]) & (recoveries["to_target"] == sender["to_target"])
    waits = subject.stretches("congestion_window")
    first_ns = recoveries.raw("time_first_ns")[is_own].min(initial=np.iinfo(np.int64).max)
    return waits.where(waits.starts >= first_ns).total_ns


def _has_timeouts(case: Case) -> bool:
    return "timeout" in losses(case.subject.tables["recoveries"])["cause"].tolist()


LOSS: Final = Problem(
    name="loss",
    meaning="Packets are lost on the path or dropped by a host, or none passes for less than a second (a black-out), "
    "and transfers stall until TCP has retransmitted them.",
    condition=f"Loss recovery takes at least {wording.percent(LOSS_SHARE)} of the I/O time, without recoveries of "
    "finding `ack_loss`. A warning if that, and waits for the congestion window after the first loss, take "
    f"{WORTH}, or recovery takes {wording.time(LEAST_COST_NS)}.",
    evidence="First and last frame of the longest recoveries. The share is the time that the losses cost.",
    example="I/O waited 725.6 ms for retransmissions, at most 8.4 ms at a time. Packets to the initiator were lost 46 "
    "times (0.83 % of the packets were retransmitted). TCP slowed down after them, for another 74 % of the I/O time.",
    # lost, or only late
    shown_by=f"read --block-size 128K --bytes 8M --queue-depth 4 --set to-initiator-loss=1% {WAN}",
    near_miss=f"read --block-size 128K --bytes 8M --queue-depth 4 --set reorder=1%,0.2ms {WAN}",
    explains=Explains("loss_recovery", least=LOSS_SHARE),
    advice=(
        Advice(FIX_LOSSES, no_losses),
        Advice(
            "Keep net.ipv4.tcp_sack = 1 on both sides: without SACK TCP waits for time-outs.",
            only_if=_has_timeouts,
            touches=WHOLE_HOST,
        ),
        TOLERATE_LOSSES,
    ),
    tell=_loss,
)
