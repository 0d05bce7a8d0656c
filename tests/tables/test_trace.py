"""The trace: what is asked of the core, tables made once, errors of one line."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import iscsitrace
from iscsitrace import api
from iscsitrace.api import Trace
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.tables import trace as trace_module
from iscsitrace.tables.schema import DERIVED_TABLES, ON_REQUEST, SCHEMA_VERSION, TABLES
from tests.support import tables_by_hand as by_hand

EMPTY_PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)
ONE_PACKET = EMPTY_PCAP + struct.pack("<IIII", 1, 0, 60, 60) + bytes(60)


def given_core(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[dict[str, object]]:
    """Puts the core made by hand in place; gives the list of its calls."""
    core = by_hand.core(by_hand.TRACE, error)
    monkeypatch.setattr(trace_module, "_core", core, raising=False)
    monkeypatch.setattr(trace_module, "_core_missing", None)
    calls: list[dict[str, object]] = core.calls
    return calls


def test_what_the_core_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = given_core(monkeypatch)
    iscsitrace.read(Path("a.pcap"), b"\xd4\xc3", capture_filter="port 3260", time_to_ns=5, time_is_relative=True)
    assert calls == [
        {
            "sources": ["a.pcap", b"\xd4\xc3"],
            "capture_filter": "port 3260",
            "packet_limit": None,
            "time_from_ns": None,
            "time_to_ns": 5,
            "time_is_relative": True,
            "tables": ["pdus"],
            "tcp_info_files": [],
            "progress": None,
        }
    ]
    # a time counts from 1970 unless it is said to count from the first packet
    iscsitrace.read("a.pcap", time_from_ns=5)
    assert (calls[1]["time_from_ns"], calls[1]["time_is_relative"]) == (5, False)


@pytest.mark.parametrize("path", [b"a.pcap", b"bad\xff.pcap"])
def test_a_path_object_of_bytes_is_a_path(monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    class PathOfBytes:
        def __fspath__(self) -> bytes:
            return path

    calls = given_core(monkeypatch)
    iscsitrace.read(PathOfBytes())
    assert calls[0]["sources"] == [os.fsdecode(path)]


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bad\xff.pcap")
    path.write_bytes(EMPTY_PCAP)
    assert iscsitrace.read(str(path)).inputs[0]["format"] == "pcap"
    with pytest.raises(CaptureUnreadable, match="not a file name"):
        iscsitrace.read("\ud800.pcap")  # no byte in a name is read as this


def test_the_exception_of_a_file_object_is_raised_though_packets_were_read() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            found = super().read(size)
            if not found:
                raise InterruptedByTest
            return found

    class InterruptedByTest(Exception):
        pass

    with pytest.raises(InterruptedByTest):
        iscsitrace.read(Failing(ONE_PACKET), EMPTY_PCAP)


def test_an_empty_file_of_a_ring_is_counted() -> None:
    trace = iscsitrace.read(ONE_PACKET, b"", EMPTY_PCAP)
    assert trace.packet_count == 1
    assert [each["format"] for each in trace.inputs] == ["pcap", "empty", "pcap"]
    (counter,) = (row for row in trace.counters.rows() if row["name"] == "input_empty")
    assert (counter["count"], counter["severity"]) == (1, "info")
    with pytest.raises(CaptureUnreadable, match="bytes is empty"):
        iscsitrace.read(b"", b"")


def test_tables_that_are_always_filled_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = given_core(monkeypatch)
    iscsitrace.read("a.pcap", tables=["cycles", "segments"])
    assert calls[0]["tables"] == ["segments"]


def test_every_table_is_a_property_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    trace = iscsitrace.read("a.pcap", tables=ON_REQUEST)
    for name in TABLES:
        assert getattr(trace, name) is trace.table(name)
        assert trace.row_count(name) == len(trace.table(name))


def test_row_count_does_not_make_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    trace = iscsitrace.read("a.pcap")
    assert trace.row_count("cycles") == 3
    assert trace._pass.taken == []  # type: ignore[attr-defined]


def test_a_column_leaves_the_core_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    trace = iscsitrace.read("a.pcap")
    rows = trace.cycles.select([2, 0])
    assert (len(trace.cycles), len(rows)) == (3, 2)
    assert trace._pass.taken == []  # type: ignore[attr-defined]
    assert rows["cycle"].tolist() == trace.cycles["cycle"][[2, 0]].tolist()
    assert trace.cycles.raw("cycle") is trace.cycles.raw("cycle")
    assert trace._pass.taken == [("cycles", "cycle")]  # type: ignore[attr-defined]
    assert trace.row_count("cycles") == 3
    with pytest.raises(KeyError, match="no column lumen"):
        trace.cycles.raw("lumen")


def test_a_column_is_taken_once_by_threads_that_use_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    cycles = iscsitrace.read("a.pcap").cycles
    take = cycles._take
    assert take is not None
    together = Barrier(4)

    def slow(name: str) -> Any:
        time.sleep(0.02)
        return take(name)

    def used(_: int) -> list[int]:
        together.wait(10)
        return list(cycles["cycle"].tolist())

    cycles._take = slow
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(used, range(4))) == 4 * [[0, 1, 2]]


def test_a_column_that_an_interrupt_lost_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    cycles = iscsitrace.read("a.pcap").cycles
    take = cycles._take
    assert take is not None

    def interrupted(name: str) -> Any:
        cycles._take = lambda name: by_hand.columns_of("cycles", [])[name]
        take(name)
        raise KeyboardInterrupt

    cycles._take = interrupted
    with pytest.raises(KeyboardInterrupt):
        cycles.raw("lun")
    with pytest.raises(ValueError, match="column lun of table cycles left the core before"):
        cycles.raw("lun")


def test_a_table_that_was_not_asked_for_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    with pytest.raises(InputInvalid, match=r"read\(\.\.\., tables=\['segments'\]\)"):
        iscsitrace.read("a.pcap").segments  # noqa: B018


def test_unknown_table(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = given_core(monkeypatch)
    with pytest.raises(InputInvalid, match="unknown table frames"):
        iscsitrace.read("a.pcap", tables=["frames"])
    assert not calls


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (by_hand.CoreError("a.pcap: not a capture"), CaptureUnreadable),
        # of the caller's own file object or progress
        (OSError("mine"), OSError),
        (ValueError("mine"), ValueError),
        (OverflowError("mine"), OverflowError),
    ],
)
def test_errors_of_the_pass(monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]) -> None:
    given_core(monkeypatch, raised)
    with pytest.raises(expected, match=str(raised)):
        iscsitrace.read("a.pcap")


def test_the_interpreter_does_not_end_while_numpy_is_loaded() -> None:
    program = (
        "import time\n"
        "from iscsitrace.tables import trace\n"
        "from tests.support import tables_by_hand as by_hand\n"
        "trace._core = by_hand.core({}, by_hand.CoreError('no capture')); trace._core_missing = None\n"
        "trace._load = lambda _: (time.sleep(0.3), print('loaded'))\n"
        "trace.read('a.pcap')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "CaptureUnreadable: no capture" in result.stderr
    assert result.stdout == "loaded\n"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"packet_limit": 0}, "packet_limit is 0; it has to be from 1"),
        ({"packet_limit": -1}, "packet_limit is -1;"),
        ({"packet_limit": 2**64}, "packet_limit is 18446744073709551616;"),
        ({"time_from_ns": 2**63}, "time_from_ns is 9223372036854775808;"),
        ({"time_to_ns": -(2**63) - 1}, "time_to_ns is -9223372036854775809;"),
        ({"time_from_ns": 2, "time_to_ns": 1}, r"time_from_ns \(2\) is after time_to_ns \(1\)"),
        ({"capture_filter": "port \udcff"}, "capture_filter is not valid text"),
    ],
)
def test_limits_that_cannot_be_meant(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], message: str) -> None:
    calls = given_core(monkeypatch)
    with pytest.raises(InputInvalid, match=message):
        iscsitrace.read("a.pcap", **limits)
    assert not calls


@pytest.mark.parametrize(
    "limits",
    [
        {"packet_limit": 1},
        {"packet_limit": 2**64 - 1},
        {"time_from_ns": -(2**63), "time_to_ns": 2**63 - 1},
        {"time_from_ns": 1, "time_to_ns": 1},
    ],
)
def test_limits_at_the_edge(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> None:
    calls = given_core(monkeypatch)
    iscsitrace.read("a.pcap", **limits)
    assert limits.items() <= calls[0].items()


def test_coverage_per_direction_and_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    to_target, to_initiator, total = iscsitrace.read("a.pcap").coverage
    assert (to_target.connection, to_target.direction) == (1, "to_target")
    assert to_target.explained_bytes_share == to_target.pdu_share == to_target.captured_bytes_share == 1.0
    assert to_initiator.explained_bytes_share == 0.5
    assert to_initiator.captured_bytes_share == 0.75
    assert to_initiator.pdu_share == 0.75
    assert (total.connection, total.stream_bytes, total.explained_bytes) == (None, 9000, 5000)
    assert total.pdu_share == 6 / 7


def test_coverage_of_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    monkeypatch.setattr(trace_module, "_core", by_hand.core({}), raising=False)
    (total,) = iscsitrace.read("a.pcap").coverage
    assert total.explained_bytes_share is None
    assert total.as_dict()["pdu_share"] is None


def test_provenance(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    provenance = iscsitrace.read("a.pcap", packet_limit=7).provenance
    assert provenance["schema"] == SCHEMA_VERSION
    assert provenance["tool"] == {"name": "iscsitrace", "version": iscsitrace.__version__}
    assert provenance["input"][0]["name"] == "a.pcap"
    assert provenance["options"]["packet_limit"] == 7


def test_a_trace_has_a_property_for_every_table_of_the_schema_and_no_other() -> None:
    for module, names in ((trace_module, TABLES), (api, DERIVED_TABLES)):
        declared = re.findall(r"^        (\w+): Table$", Path(str(module.__file__)).read_text(), re.MULTILINE)
        assert declared == [*names]
    for name, declaration in (TABLES | DERIVED_TABLES).items():
        text = getattr(Trace, name).__doc__
        assert text.startswith(f"A row is {declaration.row.partition(' (only')[0]}")
        assert ("only when read with" in text) == (name in ON_REQUEST or name in DERIVED_TABLES)


def test_a_computed_table_is_a_property_and_asks_for_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = given_core(monkeypatch)
    trace = iscsitrace.read("a.pcap", tables=["events"])
    # the kernel's counters bound the breakdown
    assert calls[0]["tables"] == ["budget", "recoveries", "retransmissions", "tcp_info", "violations"]
    assert trace.events is trace.table("events")
    assert trace.row_count("events") == len(trace.events) > 0
    # two holes, and a command without a status
    assert set(trace.events["kind"]) == {"capture_incomplete", "capture_end"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CHAP_R=0x1234", "CHAP_R=(hidden)"),
        (" CHAP_R =0x1234", " CHAP_R =(hidden)"),
        ("CHAP_R=", "CHAP_R="),
        ("CHAP_N=me", "CHAP_N=me"),
        ("CHAP_R", "CHAP_R"),
    ],
)
def test_the_value_of_a_secret_is_hidden(text: str, shown: str) -> None:
    assert trace_module.hide_secret(text) == shown
