"""Export: a file per table, never overwritten without --force, the same bytes every time."""

from __future__ import annotations

import csv
import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from iscsitrace.cli import main
from iscsitrace.errors import ExtraMissing, InputInvalid, OutputExists
from iscsitrace.show.export import export
from iscsitrace.tables.schema import DEFAULT_TABLES, ON_REQUEST, SCHEMA_VERSION, TABLES
from iscsitrace.tables.trace import TraceTables
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation
from tests.support.tables_by_hand import TRACE, Pass

OPTIONS = {"tables": ["pdus"]}


def trace() -> TraceTables:
    made: Any = Pass(TRACE)
    return TraceTables(made, OPTIONS)


def test_csv_of_every_default_table(tmp_path: Path) -> None:
    paths = export(trace(), tmp_path / "out")
    assert {path.name for path in paths} == {f"{name}.csv" for name in DEFAULT_TABLES}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in paths}
    with (tmp_path / "out" / "cycles.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["operation"] for row in rows] == ["read", "write", "test_unit_ready"]
    assert [row["latency_ns"] for row in rows] == ["6000000", "43000000", ""]


def test_default_tables_are_all_but_those_on_request_and_pdus() -> None:
    assert set(TABLES) - set(DEFAULT_TABLES) == ON_REQUEST - {"pdus"}


def test_nothing_is_overwritten_and_no_partial_export_is_left(tmp_path: Path) -> None:
    (tmp_path / "counters.csv").write_text("mine")
    with pytest.raises(OutputExists, match=r"counters\.csv exists"):
        export(trace(), tmp_path, tables=["cycles", "counters"])
    assert [path.name for path in tmp_path.iterdir()] == ["counters.csv"]
    export(trace(), tmp_path, tables=["cycles", "counters"], force=True)
    assert (tmp_path / "counters.csv").read_text().startswith("name,")
    assert {path.name for path in tmp_path.iterdir()} == {"counters.csv", "cycles.csv"}


def test_a_folder_in_place_of_a_file_is_reported_before_writing(tmp_path: Path) -> None:
    (tmp_path / "sessions.csv").mkdir()
    (tmp_path / "connections.csv").write_text("mine")
    with pytest.raises(InputInvalid, match=r"sessions\.csv exists and is not a file; nothing was written"):
        export(trace(), tmp_path, tables=["connections", "sessions"], force=True)
    assert (tmp_path / "connections.csv").read_text() == "mine"


def test_an_unwritable_file_is_reported(tmp_path: Path) -> None:
    """As on a full disk: the file can be made, and not written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(InputInvalid, match=r"cannot write .*/sessions\.csv: File too large"):
            export(trace(), tmp_path, tables=["sessions"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_same_trace_same_bytes(tmp_path: Path, file_format: str) -> None:
    for name in ("one", "two"):
        export(trace(), tmp_path / name, file_format)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_parquet_has_units_meanings_and_provenance(tmp_path: Path) -> None:
    (path,) = export(trace(), tmp_path, "parquet", ["cycles"])
    table = parquet.read_table(path)
    assert table.column("operation").to_pylist() == ["read", "write", "test_unit_ready"]
    assert table.column("status_ns").to_pylist()[2] is None
    assert table.schema.field("latency_ns").metadata[b"unit"] == b"ns"
    assert table.schema.metadata[b"iscsitrace.schema"] == str(SCHEMA_VERSION).encode()
    assert json.loads(table.schema.metadata[b"iscsitrace.provenance"])["input"][0]["name"] == "a.pcap"


def test_a_missing_pyarrow_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'iscsitrace\[parquet\]'"):
        export(trace(), tmp_path / "out", "parquet")
    assert not (tmp_path / "out").exists()


def test_unknown_format_and_table(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="no format is called xlsx"):
        export(trace(), tmp_path, "xlsx")
    with pytest.raises(InputInvalid, match="unknown table frames"):
        export(trace(), tmp_path, tables=["frames"])


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputInvalid, match="cannot write to"):
        export(trace(), tmp_path / "out" / "deeper", tables=["cycles"])


def test_csv_safe_is_asked_for_and_is_for_csv(tmp_path: Path) -> None:
    """The name of an initiator that a spreadsheet and a terminal would act on."""
    conversation = Conversation()
    conversation.session().login(texts={"InitiatorAlias": "=1+1\x1b[2J"}).read(count=1).logout()
    capture = conversation.run()
    file = write_pcapng(tmp_path / "a.pcapng", capture.packets, capture.path.link_type)
    aliases = []
    for options in ([], ["--csv-safe"]):
        words = ["export", "-o", str(tmp_path / "out"), "--tables", "sessions", "--force", *options, str(file)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        (row,) = csv.DictReader((tmp_path / "out" / "sessions.csv").read_text().splitlines())
        aliases.append(row["initiator_alias"])
    assert aliases == ["=1+1\x1b[2J", "'=1+1\\x1b[2J"]
    for options in (["--format", "parquet"], ["--sidecar"]):
        refused = CliRunner().invoke(main, ["export", "-o", str(tmp_path), "--csv-safe", *options, str(file)])
        assert (refused.exit_code, "--csv-safe is for --format csv" in refused.output) == (2, True)
