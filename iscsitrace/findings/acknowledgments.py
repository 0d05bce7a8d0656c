"""Delayed acknowledgments: TCP holds a status or data back until the preceding data is acknowledged, or a recovery or
slow start waits for the ACK of its only segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from iscsitrace.findings.case import Case, is_worth
from iscsitrace.findings.finding import NEXT_LOGIN, WHOLE_HOST, Advice, Basis, Explains, Found, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import LOSS_SHARE, WORTH, WORTH_A_CHANGE
from iscsitrace.findings.transport import FIX_LOSSES, loses_packets
from iscsitrace.fit.gain import Change
from iscsitrace.measure import all_waits
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.session import Session, Stretches, frames_in
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

MOST_OF_THEM: Final = 0.9
"""Least part of the waits that are of one sender."""


def _is_held(facts: Facts) -> Found:
    waits = all_waits.of_parts(facts, "ack_wait")
    rows = np.unique(waits.row[(waits.row >= 0) & (waits.lengths > 0)])
    counts = np.bincount(facts.places("cycles")[rows] + 1, minlength=len(facts) + 1)[1:]
    return Found(counts >= MIN_TASKS, facts.part_ns("ack_wait"))


def _held(case: Case) -> Observation:
    subject = case.subject
    waits = subject.stretches("ack_wait")
    by_cycle = subject.waits_by_cycle(waits)
    count = int((by_cycle > 0).sum())
    median = f"typically for {wording.time(float(np.median(by_cycle[by_cycle > 0])))}"
    cycles = subject.cycles
    has_status_apart = cycles.each(_is_status_apart)
    if 2 * int(by_cycle[has_status_apart].sum()) > waits.total_ns:
        held = int((by_cycle[has_status_apart] > 0).sum())
        text = (
            f"TCP held back the status of {wording.count(held, 'read')} until the data before it was acknowledged, "
            f"{median}."
        )
        frames = frames_in(cycles, subject.longest_rows(waits), "data_last_frame", "status_frame")
    else:
        whose = "the target's TCP" if _is_of_target(subject, waits) else "TCP"
        text = f"{wording.count(count, 'command')} waited while {whose} held data back until an ACK arrived, {median}."
        frames = subject.evidence(waits)
    return Observation(text, frames)


def _is_of_target(subject: Session, waits: Stretches) -> bool:
    """Whether what was held back followed data of reads."""
    known_rows = waits.cycle >= 0
    rows, cycles = subject.rows_of(waits.cycle[known_rows]), subject.cycles
    follows = cycles.raw("is_read")[rows] & known(cycles, "data_first_ns")[rows]
    follows &= waits.starts[known_rows] >= cycles.raw("data_first_ns")[rows]
    return bool(len(rows)) and bool(follows.mean() >= MOST_OF_THEM)


def _is_status_apart(cycles: Table) -> Array:
    return np.asarray(cycles.raw("is_read") & ~cycles.raw("is_status_in_data") & (cycles.raw("data_bytes") > 0))


def _has_status_apart(case: Case) -> bool:
    return bool(case.subject.cycles.each(_is_status_apart).any())


STATUS_IN_DATA: Final = Change(
    "status in the last Data-In",
    lambda situation: situation.without("ack_wait").with_setting(is_status_held=False),
    ("ack_wait", "propagation"),
)


def _status_in_data(basis: Basis) -> Iterator[Change]:
    if basis.measured.situation.setting.is_status_held:
        yield STATUS_IN_DATA


def _nothing_held(basis: Basis) -> Iterator[Change]:
    if not basis.measured.situation.setting.is_status_held:
        yield Change("no data held back for ACKs", lambda situation: situation.without("ack_wait"), ("ack_wait",))


HELD_FOR_ACK: Final = Problem(
    name="held_for_ack",
    meaning="TCP holds back the status of a read, or the last part of other data, until the preceding data is "
    "acknowledged: Nagle's algorithm, made worse by delayed ACKs. Each read then takes two RTTs instead of one.",
    condition=f"ACK wait takes {WORTH}, in at least {MIN_TASKS} commands.",
    evidence="The last data and the status of the three reads that waited longest, or the frames that ended the "
    "longest waits. The share is the time waited.",
    example="TCP held back the status of 63 reads until the data before it was acknowledged, typically for 48.0 ms.",
    # held by Nagle until the ACK, or sent at once
    shown_by=f"read --block-size 128K --bytes 8M --set status=apart-held {WAN}",
    near_miss=f"read --block-size 128K --bytes 8M --set status=apart {WAN}",
    explains=Explains("ack_wait", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "Have the target send the status in the last Data-In PDU (S bit), as LIO and tgt do: look for an option or "
            "a newer release of the target.",
            _status_in_data,
            only_if=_has_status_apart,
        ),
        Advice(
            "Disable Nagle's algorithm on the sender (TCP_NODELAY): an option of the target or initiator.",
            _nothing_held,
            touches=NEXT_LOGIN,
        ),
        Advice(
            "Disable delayed ACKs on the receiver: `ip route change ... quickack 1` for the sender's network.",
            touches=WHOLE_HOST,
        ),
    ),
    where=_is_held,
    tell=_held,
)

# --- delayed_ack_in_recovery


def _delayed(case: Case) -> Observation | None:
    subject = case.subject
    if not any(row["delayed_ack_wait_count"] for row in subject.senders):
        return None
    senders = subject.tables["senders"]
    both = (_waited(senders, to_target=each) for each in (True, False))
    waited, cost_ns, to_target = max(both, key=lambda each: each[1])
    count = int(waited.raw("delayed_ack_wait_count").sum())
    if not count or not is_worth(subject, cost_ns, LOSS_SHARE):
        return None
    recoveries = subject.tables["recoveries"]
    recoveries = recoveries.select((recoveries.raw("to_target") == to_target) & (recoveries.raw("delayed_ack_ns") > 0))
    longest = np.argsort(-recoveries.raw("delayed_ack_ns"), kind="stable")[:3]
    receiver, sender = ("target", "initiator") if to_target else ("initiator", "target")
    return Observation(
        f"The {receiver} delayed {wording.count(count, 'ACK')} for {wording.time(cost_ns)} in total, while the "
        f"{sender} had one segment in flight, in loss recovery or slow start.",
        [*waited.raw("delayed_ack_wait_frame").tolist(), *frames_in(recoveries, longest, "frame_first", "frame_last")],
        cost_ns,
    )


def _waited(senders: Table, *, to_target: bool) -> tuple[Table, int, bool]:
    """The senders of a direction that waited for delayed ACKs, how long, and the direction."""
    rows = senders.select((senders.raw("to_target") == to_target) & (senders.raw("delayed_ack_wait_count") > 0))
    return rows, int(rows.raw("delayed_ack_wait_ns").sum()), to_target


DELAYED_ACK_IN_RECOVERY: Final = Problem(
    name="delayed_ack_in_recovery",
    meaning="After a retransmission timeout, and in a slow start with a small initial window, TCP has one segment in "
    "flight and waits for its ACK. A receiver with delayed ACKs holds this one back (40 ms on Linux, up to 200 ms on "
    "Windows and ESXi), so each step of the recovery takes that long.",
    condition="Delayed ACKs for which a recovery or slow start waited (iscsitrace docs method 5) cost at least "
    f"{wording.percent(LOSS_SHARE)} of the I/O time.",
    evidence="The ACK that was delayed longest, and first and last frames of such recoveries. The share is the time "
    "for which the ACKs were delayed.",
    example="The initiator delayed 1 ACK for 40.0 ms in total, while the target had one segment in flight, in loss "
    "recovery or slow start.",
    # a whole flight lost, so that an RTO sends one segment, whose ACK is held back for 40 ms or not at all
    shown_by=f"read --block-size 256K --seconds 1.5 --fault black-out,at=0.5s,for=150ms,direction=to-initiator {WAN}",
    near_miss="read --block-size 256K --seconds 1.5 --fault black-out,at=0.5s,for=150ms,direction=to-initiator "
    f"--set delayed-ack=no {WAN}",
    explains=Explains("loss_recovery", specificity=1),
    advice=(
        Advice(
            "Disable delayed ACKs on the receiver. ESXi: DelayedAck in the advanced options of the iSCSI adapter. "
            "Windows: TcpAckFrequency = 1 of the interface (registry, Tcpip\\Parameters\\Interfaces). Linux: `ip route "
            "change ... quickack 1` for the sender's network.",
            touches=WHOLE_HOST,
        ),
        Advice(FIX_LOSSES, only_if=loses_packets),
    ),
    where=lambda columns: columns.total("senders", "delayed_ack_wait_count") > 0,
    tell=_delayed,
)
