"""Operation, I/O size and queue depth of a workload, weighted by bytes."""

from __future__ import annotations

import pytest

from iscsitrace.analysis.session import workload
from iscsitrace.analysis.session.workload import Workload
from tests.support.tables_by_hand import table


def of(*commands: tuple[bool, int, int, int]) -> Workload | None:
    rows = [
        {"is_read": is_read, "bytes": size, "data_bytes": moved, "queue_depth": depth}
        for is_read, size, moved, depth in commands
    ]
    return workload.of(table("cycles", *rows))


@pytest.mark.parametrize(
    ("read", "word"), [(100, "read"), (90, "read"), (89, "block"), (11, "block"), (9, "write"), (0, "write")]
)
def test_a_workload_is_reads_or_writes_from_nine_tenths_of_the_bytes_on(read: int, word: str) -> None:
    found = of((True, 512, read, 1), (False, 512, 100 - read, 1))
    assert found
    assert found.word == word


def test_half_of_the_bytes_moved_in_ios_no_larger_and_no_deeper() -> None:
    assert of((True, 4_096, 30, 8), (True, 512, 20, 4), (True, 8_192, 50, 1)) == Workload("read", 4_096, 1, 3)
    assert of((True, 4_096, 30, 8), (True, 512, 20, 4), (True, 8_192, 51, 1)) == Workload("read", 8_192, 1, 3)
    assert of((True, 512, 49, 1), (True, 1_024, 51, 2)) == Workload("read", 1_024, 2, 2)
    assert of() is None
