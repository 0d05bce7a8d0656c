"""What a watch holds does not grow with what came and went: tables of past looks, and sessions that are over."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from bench import soak
from iscsitrace.tables.passes import SECOND_NS, Live, Settings
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.watcher import Watcher
from tests.support.conversation import Conversation, Session
from tests.support.measured import usage
from tests.support.transport import Path as NetworkPath

HELD = 1300
"""More than the sessions of two minutes, and the rows of closed connections that are kept."""
GROWTH_MAX_MB = 12
"""Of twice as many sessions; tables of past diagnoses were thirty."""


def short_sessions(to: BinaryIO, count: int) -> None:
    """A pcap file of sessions that log in, read and write once, and log out: one a second."""
    made = Conversation(NetworkPath(one_way_delay_ns=250_000, delayed_ack_ns=1_000_000))
    made.session(Session()).login().read(count=1, block_bytes=1024).write(count=1, block_bytes=512).logout()
    stream = soak.Stream(made.run())
    to.write(soak.FILE_HEADER)
    for number in range(count):
        for _, record in stream.of(number, 1_700_000_000 * SECOND_NS + number * SECOND_NS):
            to.write(record)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.pcap"
    with path.open("wb") as to:
        short_sessions(to, 60)
    return path


def test_tables_of_past_looks_are_freed_without_a_search_for_them(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python searches for objects that refer to each other the less often, the more a watch holds."""
    live = Live(capture, Settings(interval_ns=SECOND_NS))
    live.stop()
    traces: list[weakref.ref[Any]] = []
    diagnosed: list[weakref.ref[Any]] = []
    look, recent = live.look, live.recent

    def noted_look() -> Any:
        view = look()
        traces.append(weakref.ref(view.trace))
        return view

    def noted_recent() -> Any:
        trace = recent()
        diagnosed.append(weakref.ref(trace))
        return trace

    monkeypatch.setattr(live, "look", noted_look)
    monkeypatch.setattr(live, "recent", noted_recent)
    own, exposition = Watcher(live), Exposition()
    gc.collect()
    gc.disable()
    try:
        while not own.is_over:
            report = own.step()
            if report:
                exposition.update(report, own)
                report.as_dict()
            held = [each for each in (*traces, *diagnosed) if each() is not None]
            assert not held
    finally:
        gc.enable()
    assert len(traces) > 50
    assert len(diagnosed) > 5


def peak_mb(path: Path) -> float:
    """The most memory of a watch of this capture."""
    watch = ["watch", "--json", "--no-follow", "--interval", "30s", str(path)]
    used = usage([sys.executable, "-m", "iscsitrace", *watch], stdout=subprocess.DEVNULL)
    assert used.code == 0
    return used.peak_bytes / 1e6


def test_memory_does_not_grow_with_sessions_that_are_over(tmp_path: Path) -> None:
    peaks = []
    for count in (HELD, 2 * HELD):
        path = tmp_path / f"{count}.pcap"
        with path.open("wb") as to:
            short_sessions(to, count)
        peaks.append(peak_mb(path))
    assert peaks[1] - peaks[0] < GROWTH_MAX_MB, peaks
