"""Unaligned I/O: reads and writes that begin or end within a physical block of the logical unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.finding import Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings
from iscsitrace.findings.thresholds import WORTH_A_CHANGE
from iscsitrace.measure.data_commands import is_operation
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import sentence

Array = NDArray[Any]

_UNIT: Final = ("session", "lun", "block_bytes", "physical_block_bytes", "lowest_aligned_lba")


@dataclass(frozen=True)
class _Unaligned:
    """The reads and writes of one LUN of one session."""

    lun: int
    physical_bytes: int
    cycles: Table
    is_unaligned: Array

    @property
    def count(self) -> int:
        """How many are unaligned."""
        return int(self.is_unaligned.sum())

    def extra_ns(self) -> tuple[float, int, float, float] | None:
        """Cost in all, and for the I/O size with most of it: blocks, median latency unaligned and aligned.

        None where no size of an operation has MIN_TASKS of both.
        """
        latency = np.ma.filled(np.ma.asarray(self.cycles["latency_ns"]), -1)
        sizes = self.cycles.raw("block_count").astype(np.int64) * 2 + self.cycles.raw("is_write")
        found = []
        for size in np.unique(sizes[self.is_unaligned]).tolist():
            of_size = (sizes == size) & (latency >= 0)
            own, others = latency[of_size & self.is_unaligned], latency[of_size & ~self.is_unaligned]
            if min(len(own), len(others)) >= MIN_TASKS:
                slow, fast = float(np.median(own)), float(np.median(others))
                found.append((len(own) * max(slow - fast, 0.0), size // 2, slow, fast))
        if not found:
            return None
        most = max(found)
        # commands in flight together wait at the same time
        depth = max(1.0, float(np.median(self.cycles.raw("queue_depth"))))
        return sum(each[0] for each in found) / depth, *most[1:]


def _large_blocks(trace: Surroundings) -> dict[int, list[dict[str, Any]]]:
    """By session: the logical units whose physical blocks hold several logical ones."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in trace("logical_units").rows(_UNIT):
        if row["block_bytes"] and row["physical_block_bytes"] and row["physical_block_bytes"] > row["block_bytes"]:
            found.setdefault(row["session"], []).append(row)
    return found


def _is_large(units: Table) -> Array:
    is_known = known(units, "physical_block_bytes") & known(units, "block_bytes")
    return is_known & (units.raw("physical_block_bytes") > units.raw("block_bytes"))


def _of_units(history: History) -> Iterator[_Unaligned]:
    units = [row for number in history.sessions for row in history.source.once(_large_blocks).get(number, ())]
    if not units:
        return
    cycles = history.cycles
    is_io = is_operation(cycles, "read", "write") & known(cycles, "lba") & known(cycles, "block_count")
    for row in units:
        logical, physical = row["block_bytes"], row["physical_block_bytes"]
        own = cycles.select(is_io & (cycles.raw("session") == row["session"]) & (cycles.raw("lun") == row["lun"]))
        if not len(own):
            continue
        blocks = physical // logical
        first = own.raw("lba").astype(np.int64) - (row["lowest_aligned_lba"] or 0)
        count = np.maximum(own.raw("block_count").astype(np.int64), 1)
        last = first + count - 1
        # a read of part of a block costs nothing more; a write of part of it reads it first
        touched, needed = last // blocks - first // blocks + 1, -(-count // blocks)
        is_partial = (first % blocks != 0) | ((last + 1) % blocks != 0)
        yield _Unaligned(row["lun"], physical, own, np.where(own.raw("is_write"), is_partial, touched > needed))


def _alignment(history: History) -> Observation | None:
    found = [
        each
        for each in _of_units(history)
        if each.count >= MIN_TASKS and each.count >= WORTH_A_CHANGE * len(each.is_unaligned)
    ]
    if not found:
        return None
    worst = max(found, key=lambda each: each.count)
    own = worst.cycles.select(worst.is_unaligned)
    text = (
        f"{worst.count:,} of {wording.count(len(worst.is_unaligned), 'read or write', 'reads and writes')} of LUN "
        f"{worst.lun} are unaligned: they begin or end inside a physical block of {wording.size(worst.physical_bytes)}"
    )
    extra = worst.extra_ns()
    facts = [sentence(text)]
    if extra:
        blocks, slow, fast = extra[1:]
        facts.append(
            f"I/O of {wording.count(blocks, 'block')} takes {wording.time(slow)} unaligned, {wording.time(fast)} "
            "aligned (medians)."
        )
    else:
        facts.append("The cost is unknown: too few commands of the same size are aligned.")
    return Observation(
        " ".join(facts),
        [frame for row in own.select(slice(0, 3)).rows(("command_frame", "status_frame")) for frame in row.values()],
        None if extra is None else extra[0],
        severity="info" if extra is None else None,
        luns=tuple(sorted({each.lun for each in found})),
    )


UNALIGNED_IO: Final = Problem(
    name="unaligned_io",
    scope="story",
    meaning="Reads and writes begin or end inside a physical block of the logical unit (READ CAPACITY(16)): a read "
    "touches one block more, and a write reads the block before it can write it.",
    condition=f"At least {MIN_TASKS} reads and writes of a LUN, and {wording.percent(WORTH_A_CHANGE)} of them: reads "
    "that touch more physical blocks than their size needs, and writes of parts of physical blocks.",
    evidence="The first of these commands. The cost is the difference of the median latencies of unaligned and aligned "
    f"commands of the same operation and size, where there are {MIN_TASKS} of both, divided by the queue depth; else "
    "it is unknown.",
    example="20 of 20 reads and writes of LUN 0 are unaligned: they begin or end inside a physical block of 4 KiB. The "
    "cost is unknown: too few commands of the same size are aligned.",
    advice=(
        Advice(
            "Align partitions and file systems with the physical block: start at 1 MiB, as parted -a optimal and newer "
            "installers do; mkfs with a block size of at least the physical block."
        ),
        Advice(
            "Check what the LUN reports: lsblk -o NAME,PHY-SEC,LOG-SEC,ALIGNMENT, blockdev --getpbsz --getalignoff. A "
            "virtual disk within it has to be aligned, too (VMFS 5 and later are)."
        ),
    ),
    where=lambda columns: columns.count("logical_units", _is_large) > 0,
    tell=_alignment,
)
