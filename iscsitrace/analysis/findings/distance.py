"""Latency-bound sessions: the commands in flight do not fill the path."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from iscsitrace.analysis.findings.case import Case, is_worth
from iscsitrace.analysis.findings.concurrency import RAISE_QUEUE_DEPTH, next_queue_depths
from iscsitrace.analysis.findings.finding import Advice, Basis, Change, Explains, Observation, Problem
from iscsitrace.analysis.findings.thresholds import MILLISECOND_NS, WORTH, WORTH_A_CHANGE
from iscsitrace.analysis.measures.data_commands import is_whole_transfer
from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.analysis.session import line, system_calls
from iscsitrace.analysis.session.columns import Array, Columns, has_path
from iscsitrace.analysis.session.session import Session
from iscsitrace.analysis.session.situation import Situation
from iscsitrace.analysis.session.stretches import Stretches
from iscsitrace.analysis.session.workload import MIN_TASKS, MIXED, Workload
from iscsitrace.wording import amounts as wording


def _has_pattern(columns: Columns) -> Array:
    """Where there are enough reads and writes, and the RTT is known."""
    return (columns.count("cycles", is_whole_transfer) >= MIN_TASKS) & columns.once(has_path)


def _waits(subject: Session) -> Stretches | None:
    """Waits of reads and writes for the RTT; None for too few commands, or below the threshold."""
    asked = subject.workload
    if asked is None or asked.task_count < MIN_TASKS or subject.path_ns is None:
        return None
    waits = subject.with_next(subject.stretches("propagation"))
    waits = waits.where(subject.is_of(waits, subject.is_transfer))
    return waits if is_worth(subject, waits.total_ns) else None


# --- queue_depth_low

NEAR_NS: Final = 5 * MILLISECOND_NS
"""RTT below which one command at a time is no problem: the path is a LAN's, or of the length over which arrays mirror
synchronously, and healthy storage takes longer than it."""


def _queue_depth(case: Case) -> Observation | None:
    subject, waits = case.subject, case.once(_waits)
    asked, path_ns = subject.workload, subject.path_ns
    if waits is None or asked is None or path_ns is None:
        return None
    load = _load(asked)
    return Observation(
        f"the initiator {load}; RTT {wording.time(path_ns)}",
        subject.frames_of(subject.longest_rows(waits)),
        waits.total_ns,
        severity="info" if path_ns < NEAR_NS else None,
        cause=f"It {load}.",
    )


def _load(asked: Workload) -> str:
    """``issues one 128 KiB read at a time (queue depth 1)``."""
    size, depth = wording.size(asked.block_bytes), asked.queue_depth
    word = "command" if asked.word == MIXED else asked.word
    if depth == 1:
        return f"issues one {size} {word} at a time (queue depth 1)"
    return f"keeps {depth} {word}s of {size} in flight (queue depth {depth})"


QUEUE_DEPTH_LOW: Final = Problem(
    name="queue_depth_low",
    meaning="All commands in flight wait for the RTT at the same time, and the line is idle: there are too few "
    "commands in flight, or they are too small, for this RTT. The usual case is queue depth 1.",
    condition=f"`propagation` of reads and writes takes {WORTH}, with at least {MIN_TASKS} reads and writes. "
    f"A note below an RTT of {wording.time(NEAR_NS)}.",
    evidence="The three commands that waited longest for the RTT, from command to status. The share is the time "
    "waited.",
    explains=Explains("propagation", 1, WORTH_A_CHANGE),
    advice=(
        Advice(RAISE_QUEUE_DEPTH, next_queue_depths),
        Advice(
            "Allow that queue depth: node.session.queue_depth and, at least as large, node.session.cmds_max in "
            "open-iscsi, /sys/block/DEVICE/queue/nr_requests, and `targetcli /iscsi/IQN/tpg1 set attribute "
            "default_cmdsn_depth=128` on LIO."
        ),
        Advice(
            "Larger I/O helps sequential work in the same way. Several sessions (node.session.nr_sessions, with "
            "multipath) help a file system that waits for each write."
        ),
    ),
    observe=_queue_depth,
    needs=_has_pattern,
)


# --- block_size_small

SEQUENTIAL: Final = 0.5
"""Least share of commands that begin at the LBA where another ended. Random I/O cannot be merged into larger I/O."""

LARGE_BLOCK_BYTES: Final = 1 << 20
"""I/O size that is no longer small: the default limit of a Linux request is 1280 KiB (max_sectors_kb)."""

_BLOCKS_TRIED: Final = (LARGE_BLOCK_BYTES // 4, LARGE_BLOCK_BYTES)


def _block_size(case: Case) -> Observation | None:
    subject, waits = case.subject, case.once(_waits)
    asked, path_ns = subject.workload, subject.path_ns
    if waits is None or asked is None or path_ns is None:
        return None
    passing_ns = _passing_ns(case, asked)
    share = system_calls.sequential_share(subject.transfers)
    if passing_ns >= path_ns or asked.block_bytes >= LARGE_BLOCK_BYTES or share < SEQUENTIAL:
        return None
    call = case.system_call
    shown = list(call.rows[:3]) if call else _one_after_another(subject)
    text = (
        f"the commands in flight take {wording.time(passing_ns)} on the line, the RTT is {wording.time(path_ns)}: "
        f"{wording.size(asked.block_bytes)} I/O is small for this path, and {wording.percent(share)} of the commands "
        "are sequential"
    )
    return Observation(
        text + (f"; {_of_call(call)}" if call else ""),
        subject.frames_of(subject.rows_of(subject.transfers.raw("cycle")[shown])),
        waits.total_ns,
    )


def _passing_ns(case: Case, asked: Workload) -> float:
    """Time of the commands in flight on the line; from their transfer times where the line rate is unknown."""
    subject = case.subject
    found = line.of(subject)
    if found:
        return asked.block_bytes * asked.queue_depth * 1e9 / found.bytes_per_s
    transfers = subject.transfers
    times_ns = transfers.raw("transfer_ns")[known(transfers, "transfer_ns")]
    return (percentiles(times_ns)["p50"] or 0) * asked.queue_depth


def _one_after_another(subject: Session) -> list[int]:
    """Rows in ``transfers`` of three commands, each of which begins where the one before it ended."""
    cycles = subject.transfers
    continued = system_calls.is_continued(cycles)
    runs = np.flatnonzero(continued[1:-1] & continued[2:])
    first = int(runs[0]) if len(runs) else 0
    return list(range(first, min(first + 3, len(cycles))))


def _of_call(call: system_calls.SystemCall) -> str:
    pieces = " + ".join(wording.size(piece) for piece in call.pieces[:6])
    more = " + ..." if len(call.pieces) > 6 else ""
    order = "issued together" if call.is_at_once else "issued one after another"
    return (
        f"inferred system calls of {wording.size(call.bytes)}, each split into {len(call.pieces)} commands "
        f"({pieces}{more}), {order}"
    )


def _blocks(size: int) -> Change:
    return Change(f"{wording.size(size)} I/O", partial(Situation.with_setting, block_bytes=size))


def _larger_blocks(basis: Basis) -> Iterator[Change]:
    block = basis.measured.situation.setting.block_bytes
    yield from (_blocks(size) for size in _BLOCKS_TRIED if size >= 2 * block)


def _whole_system_calls(basis: Basis) -> Iterator[Change]:
    call = basis.case.system_call
    if call and call.bytes > basis.measured.situation.setting.block_bytes:
        yield _blocks(call.bytes)


BLOCK_SIZE_SMALL: Final = Problem(
    name="block_size_small",
    meaning="Sequential I/O of a small size: each command moves little data and waits a full RTT. The I/O size is the "
    "PDU block size, the command's Expected Data Transfer Length. Where the sizes show that the kernel split larger "
    "system calls, the finding reports their size and pieces.",
    condition="As queue_depth_low, and the commands in flight (median I/O size times median queue depth) take less "
    f"time on the line than the RTT; the median I/O size is under {wording.size(LARGE_BLOCK_BYTES)}, and at least "
    f"{wording.percent(SEQUENTIAL)} of the commands begin at the LBA where another ended.",
    evidence="Three consecutive commands, from command to status; where a system call was split, the commands of one "
    "call. The share is that of queue_depth_low: the same time can be saved in two ways.",
    explains=Explains("propagation", least=WORTH_A_CHANGE),
    advice=(
        Advice(
            "Use larger I/O: the program's block size (bs=), and for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            _larger_blocks,
        ),
        Advice(
            "Stop the kernel from splitting it: raise /sys/block/DEVICE/queue/max_sectors_kb, up to max_hw_sectors_kb.",
            _whole_system_calls,
            is_tried_first=True,
        ),
        Advice(
            "Set node.session.iscsi.MaxBurstLength and node.conn[0].iscsi.MaxRecvDataSegmentLength to at least the "
            "I/O size, so that each command needs few PDUs."
        ),
    ),
    observe=_block_size,
    needs=_has_pattern,
)

PROBLEMS: Final = (QUEUE_DEPTH_LOW, BLOCK_SIZE_SMALL)
