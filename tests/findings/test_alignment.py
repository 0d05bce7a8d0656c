"""The finding unaligned_io: on traces by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.diagnosis.examination import Diagnosis
from iscsitrace.findings.finding import Finding
from tests.support.histories import Told
from tests.support.tables_by_hand import MS

UNIT = {"session": 0, "lun": 0, "block_bytes": 512, "physical_block_bytes": 4096, "lowest_aligned_lba": 0}


def found(diagnosis: Diagnosis) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == "unaligned_io"]
    return findings[0] if findings else None


def told(unaligned: int, aligned: int, *, lba: int = 7, unit: dict[str, Any] = UNIT, **io: Any) -> Told:
    """Reads of 8 blocks from 1 s on, 20 ms apart: the unaligned ones of 9 ms first, then the aligned ones of 3 ms."""
    made = Told()
    made.session(0, 60)
    made.rows["logical_units"].append(unit)
    for number in range(unaligned + aligned):
        is_aligned = number >= unaligned
        first = 1 + 0.02 * number
        block = {"lba": 8 * number + (0 if is_aligned else lba), "block_count": 8, "queue_depth": 1}
        made.read(0, first, first + (0.003 if is_aligned else 0.009), **block | io)
    return made


def test_unaligned_reads_have_their_share_and_cost() -> None:
    finding = found(told(10, 30).diagnosis())
    assert finding
    assert finding.text == (
        "10 of 40 reads and writes of LUN 0 are unaligned: they begin or end inside a physical block of 4 KiB. I/O of "
        "8 blocks takes 9.0 ms unaligned, 3.0 ms aligned (medians)."
    )
    # ten times 6 ms of 180 ms of busy time
    assert finding.cost_ns == pytest.approx(60 * MS)
    assert finding.share == pytest.approx(1 / 3)
    assert (finding.severity, finding.luns) == ("warning", (0,))


def test_commands_that_wait_together_cost_less() -> None:
    finding = found(told(10, 30, queue_depth=4).diagnosis())
    assert finding
    assert finding.cost_ns == pytest.approx(15 * MS)


def test_without_aligned_ones_the_cost_cannot_be_told() -> None:
    finding = found(told(10, 7).diagnosis())
    assert finding
    assert (finding.cost_ns, finding.severity) == (None, "info")
    assert finding.text.endswith("The cost is unknown: too few commands of the same size are aligned.")


@pytest.mark.parametrize(
    ("count", "of", "columns", "is_found"),
    [
        # eight, and a twentieth
        (8, 40, {}, True),
        (7, 40, {}, False),
        (10, 200, {}, True),
        (10, 201, {}, False),
        # a part of a block: a read gets it for nothing, a write has to read the rest
        (10, 10, {"lba": 1, "block_count": 2}, False),
        (10, 10, {"lba": 1, "block_count": 2, "operation": "write", "is_read": False, "is_write": True}, True),
        # no larger blocks, another LUN, or nothing known
        (10, 40, {"unit": UNIT | {"physical_block_bytes": 512}}, False),
        (10, 40, {"unit": UNIT | {"lun": 1}}, False),
        (10, 40, {"unit": UNIT | {"physical_block_bytes": None}}, False),
        # the first physical block begins at LBA 7, as behind a shifted partition table
        (10, 10, {"unit": UNIT | {"lowest_aligned_lba": 7}}, False),
    ],
)
def test_what_counts_as_unaligned(count: int, of: int, columns: dict[str, Any], is_found: bool) -> None:
    assert (found(told(count, of - count, **columns).diagnosis()) is not None) == is_found
