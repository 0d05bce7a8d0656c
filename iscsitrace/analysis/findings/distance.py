"""Problems of distance: what is outstanding does not fill the path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.concurrency import next_queue_depths
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import WORTH
from iscsitrace.analysis.findings.transport import line_bytes_per_s
from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.session import system_calls
from iscsitrace.analysis.session.situation import Situation
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.subject import Subject
from iscsitrace.analysis.session.workload import MIN_TASKS, Workload
from iscsitrace.wording import amounts as wording


def _waits(subject: Subject) -> Stretches | None:
    """Waits of reads and writes for the path; None where these are too few, or it is not worth a change."""
    asked = subject.workload
    if asked is None or asked.task_count < MIN_TASKS or subject.path_ns is None:
        return None
    waits = subject.with_next(subject.stretches("propagation"))
    waits = waits.where(subject.is_of(waits, subject.is_transfer))
    return waits if is_worth(subject, waits.total_ns) else None


# --- queue_depth_low


def _queue_depth(case: Case) -> Observation | None:
    subject, waits = case.subject, case.once(_waits)
    asked, path_ns = subject.workload, subject.path_ns
    if waits is None or asked is None or path_ns is None:
        return None
    phrase = _asked(asked)
    return Observation(
        f"{phrase} over a path of {wording.time(path_ns)} there and back",
        subject.frames_of(subject.longest_rows(waits)),
        waits.total_ns,
        cause=phrase,
    )


def _asked(asked: Workload) -> str:
    """``one 128 KiB read at a time (queue depth 1) leaves the line idle``."""
    size, depth = wording.size(asked.block_bytes), asked.queue_depth
    if depth == 1:
        return f"one {size} {asked.word} at a time (queue depth 1) leaves the line idle"
    return f"{depth} {asked.word}s of {size} at a time (queue depth {depth}) leave the line idle"


QUEUE_DEPTH_LOW: Final = Problem(
    name="queue_depth_low",
    meaning="Everything that is outstanding waits for the path at once, and the line stays idle: too few tasks, or too "
    "small ones, for the distance. The classic is queue depth 1.",
    condition=f"`propagation` of data tasks takes {WORTH}, over {MIN_TASKS} data tasks or more.",
    evidence="The three tasks that waited longest for the path, command to status. The share is that waiting.",
    explains=Explains("propagation", 1),
    advice=(
        Advice(
            "Keep more tasks outstanding: more threads or a higher I/O depth in the program; for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            next_queue_depths,
        ),
        Advice(
            "Let them through: node.session.queue_depth and, at least as large, node.session.cmds_max in open-iscsi, "
            "/sys/block/DEVICE/queue/nr_requests, and `targetcli /iscsi/IQN/tpg1 set attribute "
            "default_cmdsn_depth=128` on LIO."
        ),
        Advice(
            "Larger blocks do the same for sequential work; several sessions (node.session.nr_sessions, with "
            "multipath) do it for a file system that waits for each write."
        ),
    ),
    observe=_queue_depth,
)


# --- block_size_small

SEQUENTIAL: Final = 0.5
"""Share of the tasks that begin where another ended, from which larger blocks can carry the same: blocks anywhere on
the disk cannot be joined."""

LARGE_BLOCK_BYTES: Final = 1 << 20
"""A PDU block that is no longer called small: Linux's own default is 1280 KiB a request (max_sectors_kb)."""

_BLOCKS_TRIED: Final = (LARGE_BLOCK_BYTES // 4, LARGE_BLOCK_BYTES)


def _block_size(case: Case) -> Observation | None:
    subject, waits = case.subject, case.once(_waits)
    asked, path_ns = subject.workload, subject.path_ns
    if waits is None or asked is None or path_ns is None:
        return None
    passing_ns = _passing_ns(subject, asked)
    share = system_calls.sequential_share(subject.transfers)
    if passing_ns >= path_ns or asked.block_bytes >= LARGE_BLOCK_BYTES or share < SEQUENTIAL:
        return None
    call = case.system_call
    shown = list(call.rows[:3]) if call else _one_after_another(subject)
    text = (
        f"what is outstanding passes in {wording.time(passing_ns)}, the path takes {wording.time(path_ns)}: blocks of "
        f"{wording.size(asked.block_bytes)} are small for it, and {wording.percent(share)} of them follow one another"
    )
    return Observation(
        text + (f"; {_of_call(call)}" if call else ""),
        subject.frames_of(subject.rows_of(subject.transfers.raw("cycle")[shown])),
        waits.total_ns,
    )


def _passing_ns(subject: Subject, asked: Workload) -> float:
    """How long what is outstanding takes on the line; by the pace of tasks, where that of the line is not known."""
    rate = line_bytes_per_s(subject)
    if rate:
        return asked.block_bytes * asked.queue_depth * 1e9 / rate
    return (percentiles(subject.transfers["transfer_ns"])["p50"] or 0) * asked.queue_depth


def _one_after_another(subject: Subject) -> list[int]:
    """Places in ``transfers`` of three tasks, each of which begins where the one before it ended."""
    cycles = subject.transfers
    continued = system_calls.is_continued(cycles)
    runs = np.flatnonzero(continued[1:-1] & continued[2:])
    first = int(runs[0]) if len(runs) else 0
    return list(range(first, min(first + 3, len(cycles))))


def _of_call(call: system_calls.SystemCall) -> str:
    pieces = " + ".join(wording.size(piece) for piece in call.pieces[:6])
    more = " + ..." if len(call.pieces) > 6 else ""
    together = "sent at once" if call.is_at_once else "sent one after another"
    return (
        f"they are pieces of system calls of {wording.size(call.bytes)}, each cut into {len(call.pieces)} "
        f"({pieces}{more}), {together}"
    )


def _blocks(size: int) -> Change:
    return Change(f"blocks of {wording.size(size)}", partial(Situation.with_setting, block_bytes=size))


def _larger_blocks(basis: Basis) -> Iterator[Change]:
    block = basis.measured.situation.setting.block_bytes
    yield from (_blocks(size) for size in _BLOCKS_TRIED if size >= 2 * block)


def _whole_system_calls(basis: Basis) -> Iterator[Change]:
    call = basis.case.system_call
    if call and call.bytes > basis.measured.situation.setting.block_bytes:
        yield _blocks(call.bytes)


BLOCK_SIZE_SMALL: Final = Problem(
    name="block_size_small",
    meaning="Sequential work in PDU blocks that pass faster than the path answers: each pays the whole delay for "
    "little data. Where the sizes tell, so is said which system call was cut, and how.",
    condition="As queue_depth_low, and what is outstanding (median block size times median queue depth) takes less "
    f"time on the line than the round trip; the median block is under {wording.size(LARGE_BLOCK_BYTES)}, and "
    f"{wording.percent(SEQUENTIAL)} of the tasks or more begin where another ended.",
    evidence="Three tasks one after another, command to status; of a cut system call, one whole. The share is that of "
    "queue_depth_low: the same time, won in another way.",
    explains=Explains("propagation", 0),
    advice=(
        Advice(
            "Ask for more at once: the program's block size (bs=), and for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            _larger_blocks,
        ),
        Advice(
            "Let the kernel send it whole: /sys/block/DEVICE/queue/max_sectors_kb, up to max_hw_sectors_kb there.",
            _whole_system_calls,
            is_tried_first=True,
        ),
        Advice(
            "node.session.iscsi.MaxBurstLength and node.conn[0].iscsi.MaxRecvDataSegmentLength no smaller than a "
            "block, so that it travels in few PDUs."
        ),
    ),
    observe=_block_size,
)

PROBLEMS: Final = (QUEUE_DEPTH_LOW, BLOCK_SIZE_SMALL)
