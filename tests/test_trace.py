"""The trace: what is asked of the core, tables made once, errors of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace import trace as trace_module
from iscsitrace.errors import CaptureUnreadable, InputInvalid
from iscsitrace.schema import ON_REQUEST, TABLES
from tests import tables_by_hand as by_hand


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
            "progress": None,
        }
    ]


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


def test_a_table_that_was_not_asked_for_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    given_core(monkeypatch)
    with pytest.raises(InputInvalid, match=r"read\(\.\.\., tables=\['segments'\]\)"):
        iscsitrace.read("a.pcap").segments  # noqa: B018


def test_unknown_table(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = given_core(monkeypatch)
    with pytest.raises(InputInvalid, match="no table is called frames"):
        iscsitrace.read("a.pcap", tables=["frames"])
    assert not calls


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (by_hand.CoreError("a.pcap: not a capture"), CaptureUnreadable),
        (FileNotFoundError(2, "No such file", "a.pcap"), CaptureUnreadable),
        (ValueError("time_from_ns is after time_to_ns"), InputInvalid),
    ],
)
def test_errors_of_the_core(monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]) -> None:
    given_core(monkeypatch, raised)
    with pytest.raises(expected):
        iscsitrace.read("a.pcap")


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
    assert provenance["schema"] == iscsitrace.schema.SCHEMA_VERSION
    assert provenance["tool"] == {"name": "iscsitrace", "version": iscsitrace.__version__}
    assert provenance["input"][0]["name"] == "a.pcap"
    assert provenance["options"]["packet_limit"] == 7
