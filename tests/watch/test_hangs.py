"""Hangs in `watch`: while the source is silent, at both sides of each limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iscsitrace.tables.passes import SECOND_NS, Live, Settings
from iscsitrace.watch.exposition import Exposition
from iscsitrace.watch.figures import Hang, hang_of
from iscsitrace.watch.findings import CurrentFindings
from iscsitrace.watch.watcher import Report, Watcher
from tests.support.hangs import cut_in_a_read

_LIMIT_S = 30.0


def row(begun_s: int | list[int] | None, oldest_io_s: int | None, progress_s: int | None) -> dict[str, Any]:
    """A row of ``PassView.now``; a list of starts where several commands are in flight."""
    begun = begun_s if isinstance(begun_s, list) else [] if begun_s is None else [begun_s]
    times = {"oldest_io_ns": oldest_io_s, "progress_ns": progress_s}
    return {
        "begun_ns": np.array(begun, dtype=np.int64) * SECOND_NS,
        **{name: None if value is None else value * SECOND_NS for name, value in times.items()},
    }


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], Hang(0, 0)),
        # idle since 5 s
        ([row(None, None, 5)], Hang(0, 0)),
        # before any progress
        ([row(4, 4, None)], Hang(6, 6, (6,))),
        ([row(4, 4, 7)], Hang(6, 3, (6,))),
        # all that wait count, but those issued less than a second ago
        ([row([7, 4, 10, 9, 7], 4, 4)], Hang(6, 6, (3, 6, 1, 3))),
        # issued after the last progress
        ([row(4, 4, 2)], Hang(6, 6, (6,))),
        # only an INQUIRY waits
        ([row(4, None, 2)], Hang(6, 0, (6,))),
        # two connections of a session: the other one progresses
        ([row(4, 4, 2), row(None, None, 9)], Hang(6, 1, (6,))),
        # both wait
        ([row([4, 5], 4, 2), row(3, 3, 2)], Hang(7, 7, (6, 5, 7))),
        # after the end of the interval
        ([row(12, 12, 11)], Hang(0, 0)),
        # progress of before the clock was set back
        ([row(4, 4, 3600)], Hang(6, 6, (6,))),
    ],
)
def test_the_age_of_the_oldest_command_and_the_time_without_progress(
    rows: list[dict[str, Any]], expected: Hang
) -> None:
    found = hang_of(rows, 10 * SECOND_NS)
    old_ns = tuple(age_s * SECOND_NS for age_s in expected.old_ns)
    assert found == Hang(expected.oldest_ns * SECOND_NS, expected.no_progress_ns * SECOND_NS, old_ns)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A pipe that delivers a capture up to the middle of a read, and then nothing."""
    file, pipe = tmp_path / "source.pcapng", tmp_path / "pipe"
    cut_in_a_read(file)
    os.mkfifo(pipe)
    # both directions: opening does not wait for a reader, and the pipe stays open
    end = os.open(pipe, os.O_RDWR)
    os.set_blocking(end, False)
    content = file.read_bytes()
    import threading

    def feed() -> None:
        rest = content
        while rest:
            try:
                rest = rest[os.write(end, rest[:65536]) :]
            except BlockingIOError:
                time.sleep(0.01)

    thread = threading.Thread(target=feed)
    thread.start()
    yield pipe
    thread.join()
    os.close(end)


def test_a_hang_is_shown_while_it_lasts_also_if_longer_than_the_recent_past(silent: Path) -> None:
    settings = Settings(interval_ns=SECOND_NS // 4, settle_ns=0, keep_ns=SECOND_NS, clock_after_ns=SECOND_NS // 4)
    live = Live(silent, settings)
    watcher = Watcher(live)
    watcher.findings = CurrentFindings(every_ns=SECOND_NS // 2)
    exposition = Exposition()
    reports: list[Report] = []
    until_s = time.monotonic() + _LIMIT_S
    lengths: list[int] = []
    while time.monotonic() < until_s and max(lengths, default=0) <= 4 * SECOND_NS:
        report = watcher.step()
        if report:
            reports.append(report)
            lengths += [line.hang.no_progress_ns for line in report.sessions]
            exposition.update(report, watcher)
    live.stop(is_abrupt=True)
    last = reports[-1]
    hang = last.sessions[0].hang
    assert 4 * SECOND_NS < hang.no_progress_ns <= hang.oldest_ns + SECOND_NS
    # it grows with the clock, without a packet
    silent_for = [length for length in lengths if length >= SECOND_NS]
    assert silent_for == sorted(silent_for)
    assert len(silent_for) > 8
    # the diagnosis has its whole length, four times what is kept, and says that it is not over
    assert last.headline is not None
    assert (last.headline.name, last.headline.severity) == ("io_outage", "error")
    assert last.headline.cost_ns is not None
    assert last.headline.cost_ns > 3 * SECOND_NS
    assert "did not resume" in last.headline.text
    assert last.as_dict()["headline"]["name"] == "io_outage"
    assert [each["sessions"] for each in last.as_dict()["stories"]] == [[0]]
    samples = {sample.name: sample.value for metric in exposition.collect() for sample in metric.samples}
    assert samples["iscsitrace_no_progress_seconds"] == hang.no_progress_ns / 1e9
    assert samples["iscsitrace_oldest_command_seconds"] == hang.oldest_ns / 1e9
    assert samples["iscsitrace_outages_total"] == 1
    assert samples["iscsitrace_headline_cost_seconds"] == last.headline.cost_ns / 1e9


def test_a_capture_that_ends_has_no_hang_of_its_own_making(tmp_path: Path) -> None:
    file = tmp_path / "source.pcapng"
    cut_in_a_read(file)
    live = Live(file, replace(Settings(), clock_after_ns=None))
    live.stop()
    watcher = Watcher(live)
    watcher.run(lambda report: None)
    assert watcher.last is not None
    assert watcher.last.sessions[0].open_task_count == 1
    assert not watcher.last.sessions[0].hang.is_shown
