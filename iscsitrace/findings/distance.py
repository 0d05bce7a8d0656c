"""Latency-bound sessions: the commands in flight do not fill the path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.concurrency import RAISE_QUEUE_DEPTH, hiding_queue_depths
from iscsitrace.findings.finding import Advice, Basis, Explains, Found, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import MILLISECOND_NS, WORTH, WORTH_A_CHANGE
from iscsitrace.fit.gain import OF_A_COMMAND, OF_A_WINDOW, Change
from iscsitrace.fit.situation import Situation
from iscsitrace.measure import all_waits, by_subject, line, system_calls
from iscsitrace.measure.data_commands import is_transfer
from iscsitrace.measure.facts import Array, Facts, path_ns, transfers, workloads
from iscsitrace.measure.session import Session, Stretches
from iscsitrace.measure.workload import MIN_TASKS, MIXED, Workload
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording


def _waits(subject: Session) -> Stretches:
    """Waits of reads and writes for the RTT."""
    found = subject.with_next(subject.stretches("propagation"))
    return found.where(subject.is_of(found, subject.is_transfer))


def _waited(facts: Facts) -> Found:
    """The time in which commands wait for the RTT, of all sessions: where reads and writes wait for it long enough to
    be worth a change, with enough commands and a known RTT.
    """
    found = all_waits.with_next(facts, all_waits.of_parts(facts, "propagation"))
    found = found.where(facts.table("cycles").each(is_transfer)[found.row])
    asked, waited_ns = facts.once(workloads), found.sums_ns(facts)
    has_pattern = np.zeros(len(facts), dtype=bool)
    has_pattern[asked.numbers] = asked.task_counts >= MIN_TASKS
    rtt_ns = facts.once(path_ns)
    is_found = has_pattern & (rtt_ns >= 0) & (facts.share(waited_ns) >= WORTH_A_CHANGE)
    return Found(is_found, facts.part_ns("propagation"))


# --- queue_depth_low

NEAR_NS: Final = 5 * MILLISECOND_NS
"""RTT below which one command at a time is not a problem: the path is a LAN's, or of the length over which arrays
mirror synchronously, and healthy storage takes longer than it."""


MANY: Final = 16
"""Commands in flight from which on the depth is not low: a longer path would need more, but so would any storage."""


def _low_depth(facts: Facts) -> Found:
    found, asked = facts.once(_waited), facts.once(workloads)
    is_low = np.zeros(len(facts), dtype=bool)
    is_low[asked.numbers] = asked.queue_depths < MANY
    return replace(found, is_found=found.is_found & is_low, ranks={"note": facts.once(path_ns) < NEAR_NS})


def _queue_depth(case: Case) -> Observation | None:
    subject = case.subject
    load = _load(subject.workload) if subject.workload else "keeps few commands in flight"
    return Observation(
        f"The initiator {load}, and waits for the network. A round trip takes at least "
        f"{wording.time(subject.path_ns or 0)}.",
        subject.frames_of(subject.longest_rows(case.once(_waits))),
    )


def _load(asked: Workload) -> str:
    """``issues one 128 KiB read at a time``."""
    size, depth = wording.size(asked.block_bytes), asked.queue_depth
    word = "command" if asked.word == MIXED else asked.word
    if depth == 1:
        return f"issues one {size} {word} at a time"
    return f"keeps {depth} {word}s of {size} in flight"


QUEUE_DEPTH_LOW: Final = Problem(
    name="queue_depth_low",
    meaning="The line is idle while all commands in flight wait for the network: they are too few, or too small, for "
    "this RTT. The usual case is queue depth 1.",
    condition=f"Network RTT of reads and writes takes {WORTH}, with at least {MIN_TASKS} reads and writes. A note "
    f"below an RTT of {wording.time(NEAR_NS)}.",
    evidence="The three commands that waited longest for the RTT, from command to status. The share is the time "
    "waited.",
    example="The initiator issues one 128 KiB read at a time, and waits for the network. A round trip takes at least "
    "8.0 ms.",
    # the same reads, one at a time or sixteen: 128 KiB take 3.3 ms on the line, the RTT is 8 ms
    shown_by=f"read --block-size 128K --bytes 16M {WAN}",
    near_miss=f"read --block-size 128K --bytes 16M --queue-depth 16 {WAN}",
    explains=Explains("propagation", 1, WORTH_A_CHANGE),
    rank="limit",
    limited_by="network latency",
    advice=(Advice(RAISE_QUEUE_DEPTH, hiding_queue_depths),),
    where=_low_depth,
    tell=_queue_depth,
)


# --- block_size_small

SEQUENTIAL: Final = 0.5
"""Least share of commands that begin at the LBA where another ended. Random I/O cannot be merged into larger I/O."""

LARGE_BLOCK_BYTES: Final = 1 << 20
"""I/O size that is no longer small: the default limit of a Linux request is 1280 KiB (max_sectors_kb)."""

_PAGE_BYTES: Final = 4096
_BLOCKS_TRIED: Final = (LARGE_BLOCK_BYTES // 4, LARGE_BLOCK_BYTES)


def _small_blocks(facts: Facts) -> Found:
    """Where the waits are those of small sequential commands."""
    may_be = facts.once(_sequential) >= SEQUENTIAL
    is_found = may_be & (facts.once(_passing_ns) < facts.once(path_ns))
    return Found(is_found, facts.once(_waited).cost_ns, {"note": facts.once(path_ns) < NEAR_NS})


def _is_small(facts: Facts) -> Array:
    """Where small commands wait."""
    found, asked = np.zeros(len(facts), dtype=bool), facts.once(workloads)
    found[asked.numbers] = asked.block_bytes < LARGE_BLOCK_BYTES
    return np.asarray(found & facts.once(_waited).is_found)


def _sequential(facts: Facts) -> Array:
    """Share of the commands that are sequential, where small ones wait; else 0."""
    return system_calls.sequential_shares(*_transfers_of(facts, facts.once(_is_small)), len(facts))


def _passing_ns(facts: Facts) -> Array:
    """Time of the commands in flight on the line, where small sequential ones wait; from the transfer times of those of
    the workload's size where the line rate is unknown.
    """
    moved, places = _transfers_of(facts, facts.once(_sequential) >= SEQUENTIAL)
    asked, found, sizes = facts.once(workloads), np.zeros(len(facts)), np.zeros(len(facts), dtype=np.int64)
    sizes[asked.numbers] = asked.block_bytes
    is_known = known(moved, "transfer_ns") & (moved.raw("bytes") >= sizes[places])
    medians_ns = by_subject.medians(places[is_known], moved.raw("transfer_ns")[is_known], len(facts))
    rates, medians_ns = line.rates(facts)[asked.numbers], medians_ns[asked.numbers]
    each_ns = asked.block_bytes * 1e9 / np.maximum(rates, 1)
    found[asked.numbers] = np.where(rates > 0, each_ns, medians_ns) * asked.queue_depths
    return found


def _transfers_of(facts: Facts, which: Array) -> tuple[Table, Array]:
    """The complete reads and writes of these subjects, and the subject of each."""
    moved, places = facts.once(transfers)
    is_own = which[places]
    return moved.select(is_own), places[is_own]


def _block_size(case: Case) -> Observation:
    subject = case.subject
    moved, size = subject.transfers, subject.workload.block_bytes if subject.workload else 0
    call = case.system_call
    shown = list(call.rows[:3]) if call else _one_after_another(subject)
    text = (
        f"The I/O size of {wording.size(size)} is small for this path: {wording.time(subject.fact(_passing_ns))} of "
        f"data, then a round trip of {wording.time(subject.path_ns or 0)}. "
        f"{wording.percent(subject.fact(_sequential))} of the commands are sequential."
    )
    return Observation(
        " ".join(filter(None, (text, _of_target(subject), _of_call(call) if call else ""))),
        subject.frames_of(subject.rows_of(moved.raw("cycle")[shown])),
    )


def _of_target(subject: Session) -> str:
    """What the target says of the size of I/O, if hosts that follow it send none larger than this one's. Else empty."""
    size = subject.workload.block_bytes if subject.workload else 0
    units, is_own = subject.facts.table("logical_units"), subject.facts.places("logical_units") == subject.place
    for row in units.select(is_own).rows(("block_bytes", "optimal_transfer_blocks", "maximum_transfer_blocks")):
        for name in ("optimal", "maximum"):
            blocks_said = row[f"{name}_transfer_blocks"]
            # no host sends less than a page
            if blocks_said and row["block_bytes"] and max(blocks_said * row["block_bytes"], _PAGE_BYTES) == size:
                said = f"{wording.count(blocks_said, 'block')} of {row['block_bytes']} bytes"
                return f"The target asks for it: its {name} transfer length is {said} (VPD page 0xb0)."
    return ""


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
        f"The kernel seems to split system calls of {wording.size(call.bytes)} into {len(call.pieces):,} commands "
        f"({pieces}{more}), {order}."
    )


def blocks(size: int) -> Change:
    """I/O of this size."""
    change = partial(Situation.with_setting, block_bytes=size)
    return Change(f"{wording.size(size)} I/O", change, (*OF_A_COMMAND, *OF_A_WINDOW))


def _larger_blocks(basis: Basis) -> Iterator[Change]:
    block = basis.measured.situation.setting.block_bytes
    yield from (blocks(size) for size in _BLOCKS_TRIED if size >= 2 * block)


def _whole_system_calls(basis: Basis) -> Iterator[Change]:
    call = basis.case.system_call
    if call and call.bytes > basis.measured.situation.setting.block_bytes:
        yield blocks(call.bytes)


BLOCK_SIZE_SMALL: Final = Problem(
    name="block_size_small",
    meaning="Sequential I/O of a small size: each command moves little data and waits a full RTT. The I/O size is the "
    "command's Expected Data Transfer Length. Where the sizes show that the kernel split larger system calls, the "
    "finding reports their size and pieces.",
    condition="As queue_depth_low, and the commands in flight (median I/O size times median queue depth) take less "
    f"time on the line than the RTT; the median I/O size is under {wording.size(LARGE_BLOCK_BYTES)}, and at least "
    f"{wording.percent(SEQUENTIAL)} of the commands begin at the LBA where another ended.",
    evidence="Three consecutive commands, from command to status; where a system call was split, the commands of one "
    "call. The share is that of queue_depth_low: the same time can be saved in two ways.",
    example="The I/O size of 32 KiB is small for this path: 856 µs of data, then a round trip of 8.0 ms. 99.21 % of "
    "the commands are sequential.",
    # in order, or anywhere
    shown_by=f"read --block-size 32K --bytes 4M {WAN}",
    near_miss=f"read --block-size 32K --bytes 4M --random {WAN}",
    explains=Explains("propagation", least=WORTH_A_CHANGE),
    rank="limit",
    limited_by="network latency",
    advice=(
        Advice(
            "Correct the block limits page (VPD page 0xb0) of the target: hosts send no larger I/O than its maximum "
            "transfer length, and Linux makes it no larger than its optimal transfer length. Until then raise "
            "/sys/block/DEVICE/queue/max_sectors_kb, up to max_hw_sectors_kb.",
            only_if=lambda case: bool(_of_target(case.subject)),
        ),
        Advice(
            "Use larger I/O: the application's block size (bs=), and for buffered reads "
            "/sys/block/DEVICE/queue/read_ahead_kb.",
            _larger_blocks,
        ),
        Advice(
            "Stop the kernel from splitting it: raise /sys/block/DEVICE/queue/max_sectors_kb, up to max_hw_sectors_kb.",
            _whole_system_calls,
            is_tried_first=True,
            only_if=lambda case: case.system_call is not None,
        ),
    ),
    where=_small_blocks,
    tell=_block_size,
)
