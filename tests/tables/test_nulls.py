"""Columns that the core fills with null values are declared nullable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import iscsitrace
from iscsitrace.tables.schema import ON_REQUEST, TABLES
from iscsitrace.tables.schema.computed import DERIVED_CYCLE_COLUMNS
from tests.support.recordings import SUFFIXES
from tests.support.tables_by_hand import null_of

SAMPLES = Path(__file__).parents[2] / "samples"
CAPTURES = sorted(each for each in SAMPLES.glob("*/capture*") if each.name.endswith(SUFFIXES))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.parent.name)
def test_a_column_that_is_not_declared_nullable_has_no_null_value(capture: Path) -> None:
    trace = iscsitrace.read(capture, tables=ON_REQUEST)
    found = []
    for name, declaration in TABLES.items():
        for column in declaration.columns:
            # categories have a code of their own for null
            if column.nullable or column.dtype == "bool" or column.dtype.startswith("category:"):
                continue
            null = "" if column.dtype == "str" else null_of(column.dtype)
            if np.any(trace.table(name).raw(column.name) == null):
                found.append(f"{name}.{column.name}")
    assert found == []


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.parent.name)
def test_nor_has_one_that_is_computed(capture: Path) -> None:
    cycles = iscsitrace.read(capture).cycles
    for column in DERIVED_CYCLE_COLUMNS:
        assert column.nullable or None not in cycles[column.name].tolist(), column.name


def test_there_are_samples() -> None:
    assert CAPTURES
