"""Diseases of the two hosts: a target or an initiator that takes its time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iscsitrace.analysis.findings.finding import Finding
from iscsitrace.analysis.findings.thresholds import MIN_TASKS
from iscsitrace.analysis.measures.budget import longest_think_ns
from iscsitrace.analysis.session.subject import Subject, frames_in, known
from iscsitrace.wording import amounts as wording


def find(subject: Subject) -> Iterator[Finding]:
    """slow_target, initiator_think_time and slow_initiator."""
    yield from _target(subject)
    yield from _think_time(subject)
    yield from _initiator(subject)


def _target(subject: Subject) -> Iterator[Finding]:
    waits = subject.stretches("target_service")
    by_cycle = subject.waits_by_cycle(waits)
    if int((by_cycle > 0).sum()) < MIN_TASKS or not subject.is_worth(waits.total_ns):
        return
    longest = wording.time(float(waits.lengths.max()))
    yield subject.finding(
        "slow_target",
        waits.total_ns,
        f"the target kept all that was outstanding waiting for {wording.time(waits.total_ns)} beyond the path, at most "
        f"{longest} at a time{_median_service(subject)}",
        subject.frames_of(subject.longest_rows(waits)),
    )


def _median_service(subject: Subject) -> str:
    """How long the target took for half of the tasks, or longer; with several outstanding, they wait for each other."""
    asked = subject.workload
    if asked is None or asked.queue_depth > 1:
        return ""
    path_ns = subject.rtt_ns("target") or 0
    said = []
    for word, phases in (("read", ("request_ns", "status_wait_ns")), ("write", ("grant_ns", "service_ns"))):
        cycles = subject.transfers.select(subject.transfers.raw(f"is_{word}"))
        if len(cycles):
            # the status of a read follows its data, everything else an answer to the initiator
            waits = [np.ma.filled(np.ma.asarray(cycles[phase]), 0) for phase in phases]
            beyond = np.maximum(waits[0] - path_ns, 0) + np.maximum(waits[1] - (path_ns if word == "write" else 0), 0)
            said.append(f"{wording.time(float(np.median(beyond)))} for half of {wording.count(len(cycles), word)}")
    return f"; over {' and '.join(said)}"


def _think_time(subject: Subject) -> Iterator[Finding]:
    waits = subject.stretches("initiator_think")
    if not len(waits.lengths):
        return
    waits = waits.where(waits.lengths <= longest_think_ns(waits.lengths))
    if len(waits.lengths) < MIN_TASKS or not subject.is_worth(waits.total_ns):
        return
    text = (
        f"the initiator asked for nothing {len(waits.lengths)} times, half of them for over "
        f"{wording.time(float(np.median(waits.lengths)))}, while it was at work"
    )
    commands = frames_in(subject.cycles, subject.next_rows(waits.longest()), "command_frame")
    yield subject.finding("initiator_think_time", waits.total_ns, text, commands)


def _initiator(subject: Subject) -> Iterator[Finding]:
    waits = subject.stretches("initiator_service")
    if not subject.is_worth(waits.total_ns):
        return
    rounds = subject.tables["rounds"]
    is_known = known(rounds, "r2t_ns") & known(rounds, "data_first_ns")
    took = np.where(is_known, rounds.raw("data_first_ns") - rounds.raw("r2t_ns"), 0)
    latest = np.argsort(-took, kind="stable")[:3]
    median = wording.time(float(np.median(took[is_known]))) if is_known.any() else "some time"
    frames = frames_in(rounds, latest, "r2t_frame", "data_first_frame")
    yield subject.finding(
        "slow_initiator",
        waits.total_ns,
        f"the initiator sent half of the data that R2Ts asked for {median} after them, or later",
        frames or subject.evidence(waits),
    )
