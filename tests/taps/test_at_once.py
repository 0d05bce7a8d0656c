"""Captures read at the same time are those read one after another; failures and Ctrl-C end all of them."""

from __future__ import annotations

import threading
import time
from io import BytesIO
from typing import Any

import pytest

import iscsitrace
from iscsitrace.errors import CaptureUnreadable
from iscsitrace.tables.schema import TABLES
from iscsitrace.taps import reading
from iscsitrace.taps.reading import read_each
from tests.support.runs import Runs

WAIT_S = 20.0
READS = "read --one-way-delay 4ms --block-size 64K --bytes 4M --seed 5"


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def endless(progress: Any) -> None:
    """A pass that ends only if its progress raises."""
    for _ in range(int(WAIT_S / 0.01)):
        progress(1, 10)
        time.sleep(0.01)
    raise AssertionError("nobody ended it")


def test_traces_are_in_order_and_those_of_single_reads(runs: Runs) -> None:
    run = runs(READS)
    files = [run.capture(), run.capture("target")]
    tables = ("budget", "retransmissions")
    together = read_each([(file,) for file in files], tables=tables)
    for file, trace in zip(files, together, strict=True):
        alone = iscsitrace.read(file, tables=tables)
        assert trace.options == alone.options
        assert trace.inputs == alone.inputs
        for name in TABLES:
            assert trace.row_count(name) == alone.row_count(name)
        for name in ("cycles", "budget", "retransmissions", "rounds"):
            assert all((trace.table(name).raw(each) == alone.table(name).raw(each)).all() for each in alone.table(name))


def test_files_are_read_at_the_same_time_and_the_caller_tells_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=WAIT_S)
    told = []

    def read(source: str, *, progress: Any) -> str:
        progress(5, 10)
        both.wait()
        progress(*((10, 10) if source == "a" else (30, 30)))
        return source

    monkeypatch.setattr(reading, "read", read)
    caller = threading.get_ident()
    found = read_each([("a",), ("b",)], progress=lambda *each: told.append((each, threading.get_ident())))
    assert found == ["a", "b"]
    assert told[-1] == ((40, 40), caller)
    assert {ident for _, ident in told} == {caller}


def test_a_total_is_unknown_as_long_as_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read", lambda source, *, progress: progress(7, None if source == "b" else 9))
    told: list[tuple[int, int | None]] = []
    read_each([("a",), ("b",)], progress=lambda *each: told.append(each))
    assert told[-1] == (14, None)


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_capture_that_fails_ends_the_other(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    ended = []

    def read(source: str, *, progress: Any) -> None:
        if source == bad:
            raise CaptureUnreadable(source)
        try:
            endless(progress)
        finally:
            ended.append(source)

    monkeypatch.setattr(reading, "read", read)
    with pytest.raises(CaptureUnreadable, match=bad):
        read_each([("a",), ("b",), ("c",), ("d",)])
    # those that had not begun never do
    assert len(ended) <= 2


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_the_caller_raises_ends_all(monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]) -> None:
    def fail(_done: int, _total: int | None) -> None:
        raise raised

    monkeypatch.setattr(reading, "read", lambda _, *, progress: endless(progress))
    begun = time.monotonic()
    with pytest.raises(raised):
        read_each([("a",), ("b",)], progress=fail)
    assert time.monotonic() - begun < WAIT_S / 2


@pytest.mark.parametrize("sources", [("a", "-"), ("a", BytesIO()), (b"1", b"2")])
def test_other_sources_are_read_by_the_caller_in_order(monkeypatch: pytest.MonkeyPatch, sources: Any) -> None:
    monkeypatch.setattr(reading, "read", lambda source, **_: (source, threading.get_ident()))
    caller = threading.get_ident()
    assert read_each([(each,) for each in sources]) == [(each, caller) for each in sources]
