"""Delayed acknowledgments: TCP holds a status or data back until the preceding data is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import WORTH
from iscsitrace.analysis.session.session import frames_in
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording


def _held(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("ack_wait")
    by_cycle = subject.waits_by_cycle(waits)
    count = int((by_cycle > 0).sum())
    if count < MIN_TASKS or not is_worth(subject, waits.total_ns):
        return None
    median = f"median {wording.time(float(np.median(by_cycle[by_cycle > 0])))}"
    cycles = subject.cycles
    has_status_apart = cycles.raw("is_read") & ~cycles.raw("is_status_in_data") & (cycles.raw("data_bytes") > 0)
    if 2 * int(by_cycle[has_status_apart].sum()) > waits.total_ns:
        held = int((by_cycle[has_status_apart] > 0).sum())
        text = f"the status of {wording.count(held, 'read')} waited for the ACK of the preceding data, {median}"
        frames = frames_in(cycles, subject.longest_rows(waits), "data_last_frame", "status_frame")
    else:
        text = f"{wording.count(count, 'command')} waited while TCP held data back until an ACK arrived, {median}"
        frames = subject.evidence(waits)
    return Observation(text, frames, waits.total_ns)


def _status_in_data(basis: Basis) -> Iterator[Change]:
    if basis.measured.situation.setting.is_status_held:
        yield Change(
            "status in the last Data-In",
            lambda situation: situation.without("ack_wait").with_setting(is_status_held=False),
        )


def _nothing_held(basis: Basis) -> Iterator[Change]:
    if not basis.measured.situation.setting.is_status_held:
        yield Change("no data held back for ACKs", lambda situation: situation.without("ack_wait"))


HELD_FOR_ACK: Final = Problem(
    name="held_for_ack",
    meaning="TCP holds back the status of a read, or the last part of other data, until the preceding data is "
    "acknowledged: Nagle's algorithm, made worse by delayed ACKs. Each read then takes two RTTs instead of one.",
    condition=f"`ack_wait` takes {WORTH}, in at least {MIN_TASKS} commands.",
    evidence="The last data and the status of the three reads that waited longest, or the frames that ended the "
    "longest waits. The share is the time waited.",
    explains=Explains("ack_wait"),
    advice=(
        Advice(
            "Have the target send the status in the last Data-In PDU (S bit), as LIO and tgt do: look for an option or "
            "a newer release of the target.",
            _status_in_data,
        ),
        Advice("Disable Nagle's algorithm on the sender (TCP_NODELAY).", _nothing_held),
        Advice("Enable quick ACKs on the receiver: `ip route change ... quickack 1` for the sender's network."),
    ),
    observe=_held,
)

PROBLEMS: Final = (HELD_FOR_ACK,)
