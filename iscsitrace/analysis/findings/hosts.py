"""Problems of the two hosts: a target or an initiator that takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.concurrency import more_connections, next_queue_depth
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import WORTH
from iscsitrace.analysis.measures.budget import longest_think_ns
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session.situation import Situation
from iscsitrace.analysis.session.subject import Subject, frames_in
from iscsitrace.analysis.session.workload import MIN_TASKS
from iscsitrace.wording import amounts as wording

# --- slow_target


def _target(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("target_service")
    by_cycle = subject.waits_by_cycle(waits)
    if int((by_cycle > 0).sum()) < MIN_TASKS or not is_worth(subject, waits.total_ns):
        return None
    longest = wording.time(float(waits.lengths.max()))
    return Observation(
        f"the target kept all that was outstanding waiting for {wording.time(waits.total_ns)} beyond the path, at most "
        f"{longest} at a time{_median_service(subject)}",
        subject.frames_of(subject.longest_rows(waits)),
        waits.total_ns,
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


def _no_service(basis: Basis) -> Iterator[Change]:
    yield Change("a target that takes no time", partial(Situation.without, name="target_service"))


SLOW_TARGET: Final = Problem(
    name="slow_target",
    meaning="The target takes its time: first data, R2T or status come later than the path explains.",
    condition=f"`target_service` takes {WORTH}, over {MIN_TASKS} tasks or more.",
    evidence="The three tasks that the target held longest, command to status. The share is that waiting.",
    explains=Explains("target_service"),
    advice=(
        Advice(
            "Look at the backing device on the target (iostat -x there), its cache mode, its controller, its CPU.",
            _no_service,
        ),
        Advice(
            "More tasks outstanding let a target with many disks work on them at once: node.session.queue_depth; a "
            "single disk only queues them.",
            next_queue_depth,
        ),
        Advice(
            "Several connections with a task each do the same: node.session.nr_sessions with multipath, or a session "
            "of several connections (MC/S).",
            more_connections,
        ),
    ),
    observe=_target,
)


# --- initiator_think_time


def _think_time(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("initiator_think")
    if not len(waits.lengths):
        return None
    waits = waits.where(waits.lengths <= longest_think_ns(waits.lengths))
    if len(waits.lengths) < MIN_TASKS or not is_worth(subject, waits.total_ns):
        return None
    return Observation(
        f"the initiator asked for nothing {len(waits.lengths)} times, half of them for over "
        f"{wording.time(float(np.median(waits.lengths)))}, while it was at work",
        frames_in(subject.cycles, subject.next_rows(waits.longest()), "command_frame"),
        waits.total_ns,
    )


def _no_think_time(basis: Basis) -> Iterator[Change]:
    yield Change("no think time", partial(Situation.without, name="initiator_think"))


INITIATOR_THINK_TIME: Final = Problem(
    name="initiator_think_time",
    meaning="The initiator asks for nothing although it is at work: time without any task, but for pauses between "
    "jobs.",
    condition=f"`initiator_think` of that kind takes {WORTH}, {MIN_TASKS} times or more.",
    evidence="The commands after the three longest waits. The share is that time.",
    explains=Explains("initiator_think"),
    advice=(
        Advice(
            "Ask ahead: asynchronous I/O (io_uring, libaio) or more threads in the program; for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            _no_think_time,
        ),
        Advice("Look at the initiator's CPU, and at the I/O scheduler: /sys/block/DEVICE/queue/scheduler = none."),
    ),
    observe=_think_time,
)


# --- slow_initiator


def _initiator(case: Case) -> Observation | None:
    subject = case.subject
    waits = subject.stretches("initiator_service")
    if not is_worth(subject, waits.total_ns):
        return None
    rounds = subject.tables["rounds"]
    is_known = known(rounds, "r2t_ns") & known(rounds, "data_first_ns")
    took = np.where(is_known, rounds.raw("data_first_ns") - rounds.raw("r2t_ns"), 0)
    latest = np.argsort(-took, kind="stable")[:3]
    median = wording.time(float(np.median(took[is_known]))) if is_known.any() else "some time"
    frames = frames_in(rounds, latest, "r2t_frame", "data_first_frame")
    return Observation(
        f"the initiator sent half of the data that R2Ts asked for {median} after them, or later",
        frames or subject.evidence(waits),
        waits.total_ns,
    )


def _no_initiator_service(basis: Basis) -> Iterator[Change]:
    yield Change("an initiator that answers at once", partial(Situation.without, name="initiator_service"))


SLOW_INITIATOR: Final = Problem(
    name="slow_initiator",
    meaning="The initiator sends data late that the target has asked for.",
    condition=f"`initiator_service` takes {WORTH}.",
    evidence="R2T and first data of the three latest bursts. The share is that waiting.",
    explains=Explains("initiator_service"),
    advice=(
        Advice(
            "Look at the initiator's CPU and its iscsi_q or kworker threads; node.session.xmit_thread_priority = -20.",
            _no_initiator_service,
        ),
        Advice("More buffer to send from: net.ipv4.tcp_wmem, net.core.wmem_max."),
    ),
    observe=_initiator,
)

PROBLEMS: Final = (SLOW_TARGET, INITIATOR_THINK_TIME, SLOW_INITIATOR)
