"""Operation, I/O size and queue depth of a workload, weighted by bytes."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.measure import workload
from iscsitrace.measure.workload import Workload
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


def test_the_workloads_of_several_sessions_are_those_of_each_alone() -> None:
    random = np.random.default_rng(7)
    sizes = random.choice([512, 4_096, 65_536, 1 << 31], 400).tolist()
    depths, is_read = random.integers(1, 9, 400).tolist(), (random.random(400) < 0.6).tolist()
    rows = [
        {"is_read": read, "bytes": size, "data_bytes": size, "queue_depth": depth}
        for read, size, depth in zip(is_read, sizes, depths, strict=True)
    ]
    cycles, numbers = table("cycles", *rows), random.choice([3, 5, 11, 70_000], 400)
    found = workload.of_each(cycles, numbers)
    assert sorted(found) == [3, 5, 11, 70_000]
    assert found == {number: workload.of(cycles.select(numbers == number)) for number in found}
