"""Tables: nulls, categories, rows, selection, pandas and Arrow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from iscsitrace.errors import ExtraMissing
from iscsitrace.tables.schema import TABLES
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import WORDS, columns_of, null_of, table


def test_nullable_columns_are_masked_by_the_null_rule() -> None:
    cycles = table("cycles", {"lun": 0, "status_ns": 5}, {"lun": 3})
    assert cycles["lun"].tolist() == [0, 3]
    assert cycles["status_ns"].tolist() == [5, None]
    assert cycles.raw("status_ns").tolist() == [5, null_of("int64")]
    assert cycles["session"].tolist() == [None, None]


def test_a_column_that_is_never_null_is_the_core_s_own_array() -> None:
    columns = columns_of("cycles", [{"cycle": 0}, {"cycle": 1}])
    assert np.shares_memory(Table(TABLES["cycles"], columns)["cycle"], columns["cycle"])
    assert np.shares_memory(np.ma.getdata(Table(TABLES["cycles"], columns)["status_ns"]), columns["status_ns"])


def test_header_fields_take_the_core_s_mask_and_every_value_is_possible() -> None:
    pdus = table("pdus", {"cmd_sn": 0xFFFFFFFF}, {})
    assert pdus["cmd_sn"].tolist() == [0xFFFFFFFF, None]


def test_text_and_categories_are_shown_as_words() -> None:
    sessions = table("sessions", {"initiator_name": "iqn.a", "end": "logout"}, {})
    assert sessions["initiator_name"].tolist() == ["iqn.a", None]
    assert sessions["end"].tolist() == ["logout", None]
    assert sessions.raw("end").dtype == np.uint8


def test_a_code_without_a_word_is_not_lost() -> None:
    columns = columns_of("cycles", [{}])
    columns["operation"][0] = 200
    cycles = Table(TABLES["cycles"], columns, words=WORDS)
    assert cycles["operation"].tolist() == ["code_200"]
    assert cycles.to_arrow().column("operation").to_pylist() == ["code_200"]
    assert cycles.to_pandas()["operation"].tolist() == ["code_200"]


def test_row_gives_python_values() -> None:
    row = table("cycles", {"operation": "read", "is_read": True, "cycle": 4}).row(-1)
    assert (row["operation"], row["is_read"], row["cycle"], row["lun"]) == ("read", True, 4, None)
    assert type(row["cycle"]) is int
    assert type(row["is_read"]) is bool


def test_row_beyond_the_table_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="1 rows, no row 1"):
        table("cycles", {}).row(1)


def test_rows_of_some_columns() -> None:
    cycles = table("cycles", {"cycle": 0, "lun": 1}, {"cycle": 1})
    assert list(cycles.rows(("lun", "cycle"))) == [{"lun": 1, "cycle": 0}, {"lun": None, "cycle": 1}]


@pytest.mark.parametrize("which", [np.array([False, True, True]), [1, 2], slice(1, None)])
@pytest.mark.parametrize("is_asked_of_all", [False, True])
def test_select_keeps_masks_and_derived_columns(which: object, is_asked_of_all: bool) -> None:
    rows = [{"cycle": number, "command_first_ns": 10, "status_ns": 10 + number} for number in range(3)]
    whole = table("cycles", *rows)
    assert not is_asked_of_all or whole["latency_ns"].tolist() == [0, 1, 2]
    picked = whole.select(which)  # type: ignore[arg-type]
    assert picked["cycle"].tolist() == [1, 2]
    assert picked["latency_ns"].tolist() == [1, 2]
    pdus = table("pdus", {"cmd_sn": 1}, {}, {"cmd_sn": 3}).select(which)  # type: ignore[arg-type]
    assert pdus["cmd_sn"].tolist() == [None, 3]


def test_select_of_a_selection() -> None:
    rows = [{"cycle": number, "lun": number or None, "operation": "read"} for number in range(6)]
    picked = table("cycles", *rows).select([5, 0, 3, 2]).select(slice(1, 3))
    assert picked["cycle"].tolist() == [0, 3]
    assert picked["lun"].tolist() == [None, 3]
    assert picked["operation"].tolist() == ["read", "read"]
    assert len(picked) == 2
    with pytest.raises(KeyError, match="no column lumen"):
        picked["lumen"]


@pytest.mark.parametrize("first", [[False, True, True, True, False, True], [1, 2, 3, 5], slice(1, 6)])
@pytest.mark.parametrize("second", [[0, 3], slice(0, None, 3), np.array([-4, -1])])
def test_a_pick_of_a_pick_is_one_of_the_whole(first: Any, second: Any) -> None:
    rows = [{"cycle": number, "lun": None if number == 5 else number} for number in range(6)]
    picked = table("cycles", *rows).select(first)
    if isinstance(first, slice):
        # the row that the others leave out
        picked = picked.select([row for row in range(5) if row != 3])
    again = picked.select(second)
    assert again["cycle"].tolist() == [1, 5]
    assert again["lun"].tolist() == [1, None]
    assert np.ma.getmaskarray(again["latency_ns"]).tolist() == [True, True]
    assert len(again) == 2


@pytest.mark.parametrize("which", [[True, True], [3], [-4]])
def test_select_what_is_not_there(which: list[Any]) -> None:
    whole = table("cycles", {}, {}, {})
    for rows in (whole, whole.select([2, 1, 0]), whole.select([True, True, True])):
        with pytest.raises(IndexError):
            rows.select(which)


def test_select_nothing() -> None:
    assert len(table("cycles", {}).select([])) == 0
    assert list(table("cycles").rows()) == []


def test_length_counts_rows_and_iteration_names_columns() -> None:
    counters = table("counters", {"name": "a"}, {"name": "b"})
    assert len(counters) == 2
    assert list(counters) == [column.name for column in TABLES["counters"].columns]
    assert dict(counters)["name"].tolist() == ["a", "b"]


def test_a_missing_column_a_wrong_dtype_and_unequal_lengths_are_refused() -> None:
    columns = columns_of("counters", [{"name": "a"}])
    with pytest.raises(ValueError, match="lacks column name"):
        Table(TABLES["counters"], {key: value for key, value in columns.items() if key != "name"})
    with pytest.raises(ValueError, match="count of table counters is int64, not uint64"):
        Table(TABLES["counters"], columns | {"count": np.array([1])})
    with pytest.raises(ValueError, match="lengths"):
        Table(TABLES["counters"], columns | {"name": ["a", "b"]})


def test_unknown_column_is_a_key_error_that_names_it() -> None:
    with pytest.raises(KeyError, match="no column lumen"):
        table("cycles")["lumen"]


def test_to_pandas() -> None:
    frame = table("cycles", {"cycle": 0, "lun": 2**63, "operation": "write"}, {"cycle": 1}).to_pandas()
    assert frame["lun"].isna().tolist() == [False, True]
    assert frame["lun"].iloc[0] == 2**63
    assert frame["operation"].tolist()[0] == "write"
    assert frame["operation"].isna().tolist() == [False, True]
    assert frame["is_complete"].dtype == bool
    assert "latency_ns" in frame


def test_to_arrow_has_units_and_meanings() -> None:
    arrow = table("cycles", {"cycle": 0, "lun": 7, "operation": "read"}, {"cycle": 1}).to_arrow()
    assert arrow.column("lun").to_pylist() == [7, None]
    assert arrow.column("operation").to_pylist() == ["read", None]
    assert arrow.schema.field("status_ns").metadata[b"unit"] == b"ns"
    assert b"completion of the SCSI Response" in arrow.schema.field("status_ns").metadata[b"meaning"]
    assert not arrow.schema.field("cycle").nullable


def test_to_arrow_has_numbers_in_the_memory_that_they_have() -> None:
    rows = [{"cycle": place, "is_read": place % 2 == 1} | ({"lun": place} if place % 3 else {}) for place in range(21)]
    found = table("cycles", *rows)
    for part, places in ((found, range(21)), (found.select(slice(1, 21, 2)), range(1, 21, 2))):
        arrow = part.to_arrow()
        arrow.validate(full=True)
        assert arrow.column("cycle").to_pylist() == list(places)
        assert arrow.column("lun").to_pylist() == [place if place % 3 else None for place in places]
        assert arrow.column("lun").null_count == sum(place % 3 == 0 for place in places)
        assert arrow.column("is_read").to_pylist() == [place % 2 == 1 for place in places]
    held = found.to_arrow().column("lun").chunk(0).buffers()[1]
    assert held.address == found.raw("lun").ctypes.data


@pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, method: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing, match=f"^{method} needs {package}: pip install "):
        getattr(table("senders"), method)()


def test_all_rows_are_the_table_itself() -> None:
    whole = table("senders", {"connection": 1}, {"connection": 2})
    assert whole.select(np.array([True, True])) is whole
    assert whole.select([1, 1]).raw("connection").tolist() == [2, 2]


def test_tables_import_no_extra_and_a_trace_no_numpy() -> None:
    program = (
        "import sys, iscsitrace.tables.trace; print('numpy' in sys.modules)\n"
        "import iscsitrace.tables.table; print({'pandas', 'pyarrow'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\nset()\n"
