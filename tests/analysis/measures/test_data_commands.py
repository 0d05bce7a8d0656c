"""Which commands read or write the medium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iscsitrace
from iscsitrace.analysis.measures.data_commands import OPERATIONS, is_data_command
from tests.support.tables_by_hand import table

SAMPLES = Path(__file__).resolve().parents[3] / "samples"


def test_a_data_command_reads_or_writes_the_medium_and_expects_data() -> None:
    rows: list[dict[str, Any]] = [
        {"operation": "read", "bytes": 4096},
        {"operation": "write", "bytes": 512},
        {"operation": "read", "bytes": 0},
        {"operation": "write", "bytes": None},
        {"operation": "inquiry", "bytes": 36},
        {"operation": "test_unit_ready"},
        {"operation": None, "bytes": 4096},
    ]
    assert is_data_command(table("cycles", *rows)).tolist() == [True, True, *[False] * 5]


def test_every_data_operation_is_one_of_the_core() -> None:
    (capture,) = (SAMPLES / "sequential-read-4ms").glob("capture.*")
    assert set(OPERATIONS) <= set(iscsitrace.read(capture, tables=()).cycles.words("operation"))
