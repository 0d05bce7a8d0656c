"""The schema: what the core declares of its tables, what Python declares beside them, and that the two fit."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.tables.schema import (
    CATEGORIES,
    DATASET_TABLES,
    DERIVED_CYCLE_COLUMNS,
    DERIVED_TABLES,
    ON_REQUEST,
    TABLES,
    TAP_TABLES,
    Column,
)
from iscsitrace.tables.schema.computed import SIDECAR
from tests.support.tables_by_hand import HEADER_FIELDS

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "sequential-read-4ms" / "capture.pcapng.gz"
DTYPES = {"bool", "uint8", "uint16", "uint32", "uint64", "int64", "str"}
EVERY = {
    **TABLES,
    **DERIVED_TABLES,
    **TAP_TABLES,
    **DATASET_TABLES,
    "sidecar": SIDECAR,
}
COLUMNS = [(name, column) for name, table in EVERY.items() for column in table.columns]


def test_columns_of_the_core_are_as_they_are_used() -> None:
    cycles = TABLES["cycles"]
    assert cycles.row == "one SCSI command on the wire, from its SCSI Command PDU to its status, in order of issue"
    assert cycles.column("r2t_first_ns") == Column(
        "r2t_first_ns", "int64", "completion of the first R2T", "ns", nullable=True, source="method 3"
    )
    assert cycles.column("r2t_count") == Column("r2t_count", "uint32", "R2Ts", "PDUs")
    assert cycles.column("operation").dtype == "category:operation"
    assert TABLES["pdus"].column("cmd_sn").nullable  # by a mask
    assert TABLES["sessions"].column("isid").nullable  # ""
    assert TABLES["senders"].column("line_bytes_per_s").unit == "B/s"
    # a meaning that stands on two lines
    assert TABLES["flights"].row.endswith("without a pause between them, and the pause before it")


def test_tables_on_request_grow_with_packets_or_cost_time() -> None:
    assert {"pdus", "segments", "window", "budget"} < ON_REQUEST < set(TABLES)
    assert ON_REQUEST.isdisjoint({"connections", "sessions", "parameters", "cycles", "rounds", "logins", "counters"})


@pytest.mark.parametrize("name", EVERY)
def test_every_column_has_a_name_of_its_own_a_known_type_and_a_meaning(name: str) -> None:
    columns = [*EVERY[name].columns, *(DERIVED_CYCLE_COLUMNS if name == "cycles" else ())]
    assert len({column.name for column in columns}) == len(columns) > 0
    for column in columns:
        assert column.meaning.strip() == column.meaning != ""
        assert not column.meaning.removesuffix(" ...").endswith(".")
        assert column.dtype.removeprefix("category:") in (CATEGORIES if ":" in column.dtype else DTYPES), column.name
        assert not (column.nullable and column.dtype == "bool"), "a bool has no null value"
    assert EVERY[name].row
    assert not EVERY[name].row.endswith("."), "the docs and the help put one behind it"


def test_what_follows_from_a_status_can_be_null() -> None:
    """A command may have no status in the capture, a skew no cause, and a slow stream no reason."""
    nullable = {
        name: {column.name for column in table.columns if column.nullable} for name, table in DERIVED_TABLES.items()
    }
    assert nullable == {
        "events": {"end_ns", "frame", "session", "connection", "lun", "cycle"},
        "mirrored_writes": {"end_ns", "skew_ns", "first_session", "last_session", "cause_ns"},
        "mirror_legs": {"end_ns", "wait_ns", "status_frame"},
        "streams": {"session", "cause_time_ns", "cause_frame"},
    }
    # a phase is null where one of its two times is
    assert {(column.dtype, column.unit, column.nullable) for column in DERIVED_CYCLE_COLUMNS} == {("int64", "ns", True)}
    assert [column.name for column in SIDECAR.columns if column.nullable] == ["cwnd_estimate_bytes", "violation"]


def test_every_category_has_a_column() -> None:
    assert {column.dtype.partition(":")[2] for _, column in COLUMNS} - {""} == set(CATEGORIES)


def test_the_core_has_masks_of_the_header_fields_that_have_no_null_value() -> None:
    trace = iscsitrace.read(SAMPLE, tables=TABLES)
    masks = {name: list(trace._pass.masks(name)) for name in TABLES}
    assert {name: columns for name, columns in masks.items() if columns} == {"pdus": list(HEADER_FIELDS)}
    for name in HEADER_FIELDS:
        assert TABLES["pdus"].column(name).nullable
    # every other column is filled as declared: the table refuses a missing column and another type
    assert len(list(chain.from_iterable(trace.table(name).columns for name in TABLES))) > 300


def test_without_the_core_reading_says_so_and_the_rest_can_be_imported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['iscsitrace._core'] = None\n"
        "from iscsitrace.tables.schema import DERIVED_TABLES, ON_REQUEST, TABLES\n"
        "assert (TABLES, ON_REQUEST) == ({}, frozenset()) and DERIVED_TABLES\n"
        "from iscsitrace.cli import main; main(['summary', 'a.pcap'])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert "the compiled core is missing" in result.stderr
    assert "Traceback" not in result.stderr
