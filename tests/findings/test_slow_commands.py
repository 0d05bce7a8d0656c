"""The findings slow_operation and slow_lun: on sessions by hand, and on recordings of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from tests.support.recordings import captures_folder
from tests.support.story import Story
from tests.support.tables_by_hand import MS

UNMAP: dict[str, Any] = {"operation": "unmap", "is_write": True, "bytes": 24, "data_bytes": 24}


def served(story: Story, count: int, took_ms: float, **columns: Any) -> Story:
    """Commands, one after another, that the target serves in this time; a read has its data with the status."""
    for _ in range(count):
        took_ns = round(took_ms * MS)
        at_end = {"data_first_ns": story.now + took_ns, "data_last_ns": story.now + took_ns}
        story.task(("target_service", took_ns), **at_end | {"lba": 0, "block_count": 32} | columns)
    return story


def unmapping(unmap_ms: float, count: int = 4, read_ms: float = 5) -> Story:
    """Twenty reads, and commands to unmap; the time of these is busy time, too."""
    story = served(Story(rtt_to_target_ns=0), 20, read_ms)
    served(story, count, unmap_ms, **UNMAP)
    for stretch in story.rows["budget"]:
        stretch["in_flight"] = "data"
    return served(story, 1, read_ms)


def test_a_slow_unmap_is_named_beside_the_reads() -> None:
    story = unmapping(600)
    found = story.found("slow_operation")
    assert found
    assert found.text == (
        "UNMAP typically took 600.0 ms, at most 600.0 ms. Reads and writes typically took 5.0 ms, and none had to wait "
        "for it."
    )
    assert found.cost_ns == 2_400 * MS
    assert found.share == pytest.approx(2_400 / (2_400 + 21 * 5))
    assert (found.severity, found.luns) == ("warning", (0,))
    assert story.found("slow_target") is None
    assert story.opinion().headline.name == "slow_operation"
    assert "UNMAP" in story.opinion().headline.text


@pytest.mark.parametrize(
    ("unmap_ms", "read_ms", "is_slow"),
    [
        # a tenth of a second
        (100, 5, True),
        (99.9, 5, False),
        # five times the reads
        (200, 40, True),
        (199, 40, False),
    ],
)
def test_an_operation_is_slow_in_itself_and_beside_others(unmap_ms: float, read_ms: float, is_slow: bool) -> None:
    assert (unmapping(unmap_ms, read_ms=read_ms).found("slow_operation") is not None) == is_slow


def test_an_operation_that_is_rare_is_not_worth_a_word() -> None:
    # 105 ms of 2.1 s, in which 399 reads take 5 ms each, are 5 %
    assert served(unmapping(105, 1), 378, 5).found("slow_operation")
    assert served(unmapping(105, 1), 379, 5).found("slow_operation") is None


def test_reads_that_had_to_wait_are_counted() -> None:
    story = unmapping(600)
    first = next(row for row in story.rows["cycles"] if row["operation"] == "unmap")
    held = {"command_first_ns": first["command_first_ns"] + 10 * MS, "status_ns": first["status_ns"] + 5 * MS}
    story.task(("target_service", 0), **held)
    found = story.found("slow_operation")
    assert found
    assert found.text.endswith(", but 1 issued meanwhile took up to 595.0 ms.")


def test_a_refused_unmap_is_not_slow() -> None:
    story = unmapping(600)
    for row in story.rows["cycles"]:
        row["status"] = 2 if row["operation"] == "unmap" else 0
    assert story.found("slow_operation") is None


def test_slow_reads_beside_fast_unmaps_are_not_an_operation() -> None:
    assert unmapping(1, read_ms=200).found("slow_operation") is None


def volumes(slow_ms: float, others_ms: float = 2, count: int = 8) -> Story:
    """Reads of two LUNs, in turn."""
    story = Story(rtt_to_target_ns=0)
    for _ in range(count):
        served(story, 1, others_ms, lun=0)
        served(story, 1, slow_ms, lun=7)
    return story


def test_a_slow_lun_is_named_beside_the_others() -> None:
    story = volumes(50)
    found = story.found("slow_lun")
    assert found
    assert found.text == ("LUN 7 typically took 50.0 ms, at most 50.0 ms. The other LUNs typically took 2.0 ms.")
    assert (found.luns, found.cost_ns) == ((7,), 400 * MS)
    assert story.found("slow_target") is None
    assert story.opinion().headline.name == "slow_lun"


@pytest.mark.parametrize(
    ("slow_ms", "others_ms", "count", "is_slow"),
    [
        # what healthy storage stays below
        (10, 1, 8, True),
        (9.9, 1, 8, False),
        # five times the others
        (50, 10, 8, True),
        (49, 10, 8, False),
        # eight commands
        (50, 2, 7, False),
    ],
)
def test_a_lun_is_slow_in_itself_and_beside_others(slow_ms: float, others_ms: float, count: int, is_slow: bool) -> None:
    assert (volumes(slow_ms, others_ms, count).found("slow_lun") is not None) == is_slow


def test_the_only_lun_is_not_compared() -> None:
    assert served(Story(), 20, 50).found("slow_lun") is None


def test_a_recorded_slow_unmap() -> None:
    """Its README: 8 UNMAPs of 614 to 651 ms; 8 reads that came behind one took 611 to 644 ms."""
    file = captures_folder() / "35_discard_slow.pcap.gz"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    diagnosis = examine(iscsitrace.read(file, tables=NEEDED).table)
    headline = diagnosis.headline
    assert headline
    assert headline.name == "slow_operation"
    assert "UNMAP typically took 635.4 ms, at most 650.9 ms" in headline.text
    assert "but 8 issued meanwhile took up to 643.8 ms" in headline.text
    assert "slow_target" not in diagnosis.found


@pytest.mark.parametrize(
    ("name", "headline", "kind"),
    [
        # a program that pauses, on storage of 2.4 ms; and storage of 20 ms
        ("41_host_pauses.pcap.gz", "none", "healthy"),
        ("11_slow-storage_dmdelay20ms_read_delay01ms.pcapng.gz", "slow_target", "problem"),
    ],
)
def test_recorded_targets_are_slow_in_absolute_terms(name: str, headline: str, kind: str) -> None:
    file: Path = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    found = examine(iscsitrace.read(file, tables=NEEDED).table).headline
    assert found
    assert (found.name, found.kind) == (headline, kind)
