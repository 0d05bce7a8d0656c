"""CSV written column by column has the values of the cells."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iscsitrace.show import csv_writer
from iscsitrace.tables.schema import TABLES
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import WORDS, columns_of, table


def written(which: Table) -> str:
    stream = io.BytesIO()
    csv_writer.write_csv(which, stream)
    return stream.getvalue().decode()


def cells_of(which: Table) -> list[list[str]]:
    """The expected cells."""
    return [which.keys(), *([text_of(value) for value in row.values()] for row in which.rows())]


def text_of(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_of(dtype: str, nullable: bool) -> st.SearchStrategy[Any]:
    if dtype == "bool":
        return st.booleans()
    if dtype == "str":
        return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
    limits = np.iinfo(dtype)
    edges = [limits.max - 1, limits.min + 1, *(edge for edge in (0, 9, 9999, 10_000) if edge < limits.max)]
    numbers = st.integers(limits.min + 1, limits.max - 1) | st.sampled_from(edges)
    return numbers | st.none() if nullable else numbers


@st.composite
def tables(draw: st.DrawFn) -> Table:
    name = draw(st.sampled_from(["counters", "segments", "logins", "rounds"]))
    row = st.fixed_dictionaries(
        {
            column.name: values_of(column.dtype, column.nullable)
            for column in TABLES[name].columns
            if not column.dtype.startswith("category:")
        }
    )
    return table(name, *draw(st.lists(row, max_size=5)))


@given(tables())
@settings(max_examples=50)
def test_a_reader_finds_the_cells(which: Table) -> None:
    assert list(csv.reader(io.StringIO(written(which), newline=""))) == cells_of(which)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 10**4, 10**8, 9999, -(2**63)]), min_size=1))
def test_decimal_text_of_any_int64(numbers: list[int]) -> None:
    cells = csv_writer._decimal(np.array(numbers, dtype=np.int64))
    assert [bytes(cell[cell != 0]).decode() for cell in cells] == [str(number) for number in numbers]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_decimal_text_of_any_uint64(numbers: list[int]) -> None:
    cells = csv_writer._decimal(np.array(numbers, dtype=np.uint64))
    assert [bytes(cell[cell != 0]).decode() for cell in cells] == [str(number) for number in numbers]


def test_chunks_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    which = table("counters", *({"name": f"n{number}", "count": number} for number in range(50)))
    whole = written(which)
    monkeypatch.setattr(csv_writer, "_CHUNK_BYTES", 1)
    assert written(which) == whole
    assert whole.count("\n") == 51


def test_nulls_booleans_and_words() -> None:
    lines = written(table("cycles", {"operation": "read", "is_read": True, "lun": 0}, {})).splitlines()
    first, second = (dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:])
    assert (first["operation"], first["is_read"], first["lun"]) == ("read", "true", "0")
    assert (second["operation"], second["is_read"], second["lun"]) == ("", "false", "")


def test_a_code_without_a_word_is_kept() -> None:
    columns = columns_of("cycles", [{}])
    columns["operation"][0] = 200
    assert ",code_200," in written(Table(TABLES["cycles"], columns, words=WORDS))


@pytest.mark.parametrize("mark", [",", '"', "\r", "\n"])
def test_special_characters_are_quoted(mark: str) -> None:
    which = table("counters", {"name": f"a{mark}b"})
    assert f'"a{mark * (1 + (mark == chr(34)))}b"' in written(which)
    assert list(csv.reader(io.StringIO(written(which), newline=""))) == cells_of(which)


def test_a_nul_in_text_is_replaced() -> None:
    assert "a\N{REPLACEMENT CHARACTER}b" in written(table("counters", {"name": "a\0b"}))


def test_an_empty_table_has_only_its_header() -> None:
    assert written(table("snacks")) == ",".join(table("snacks")) + "\n"


# --- text of a stranger


def neutral_cells(texts: list[str]) -> list[str]:
    stream = io.BytesIO()
    csv_writer.write_csv(
        table("logins", *({"status_text": text} for text in texts)), stream, ["status_text"], is_neutral=True
    )
    # a NUL would be a pad
    return [row[0] if row else "" for row in csv.reader(io.StringIO(stream.getvalue().decode(), newline=""))][1:]


@given(
    st.lists(
        st.text(max_size=6) | st.tuples(st.sampled_from("=+-@|%\uff1d\t\r\n \x1b"), st.text(max_size=4)).map("".join)
    )
)
def test_neutral_text_controls_nothing_and_is_no_formula(texts: list[str]) -> None:
    cells = neutral_cells(texts)
    assert len(cells) == len(texts)
    for cell in cells:
        assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in cell)
        assert unicodedata.normalize("NFKC", cell.lstrip()[:1]) not in set("=+-@|%")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("iqn.2026-01.org.example:disk-1", "iqn.2026-01.org.example:disk-1"),
        ("Grüße, 株式会社", "Grüße, 株式会社"),
        ('=HYPERLINK("http://evil/")', '\'=HYPERLINK("http://evil/")'),
        (" +1", "' +1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\u202ecsv.exe", "a\\u202ecsv.exe"),
        ("one\ntwo", "one\\ntwo"),
        ("\0", "\\x00"),
    ],
)
def test_neutral_text_says_what_it_was(text: str, shown: str) -> None:
    assert neutral_cells([text]) == [shown]
