"""The lines of quiet connections stay as they were: what is shown is the same as if all were made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.growth.hosts import FAMILIES
from iscsitrace.tables.passes import Live, Settings
from iscsitrace.watch.figures import Quiet
from iscsitrace.watch.watcher import Watcher

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*/capture.*"))
MS_NS = 1_000_000


def intervals(capture: Path, interval_ns: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """The report of each interval as JSON, and the counts of all paths after it."""
    live = Live(capture, Settings(interval_ns=interval_ns, clock_after_ns=None))
    live.stop()
    watcher = Watcher(live)
    while not watcher.is_over:
        report = watcher.step()
        if report:
            document = report.as_dict()
            del document["lag_s"], document["waiting_bytes"]
            # their arrays have no equality
            yield document, repr(sorted(watcher.meters.paths.items()))


def captures() -> Iterator[Any]:
    for sample in SAMPLES:
        yield pytest.param(sample, 1000, id=sample.parent.name)
    # a program that pauses for less than an interval, and longer
    for name, interval_ms in (("sessions", 30), ("sessions", 200), ("connections_of_a_session", 50)):
        yield pytest.param(name, interval_ms, id=f"{name} {interval_ms}")
    for name in ("lost_sessions", "hangs", "clock_jumps", "sessions_in_turn", "paths_lost", "mirrored_writes"):
        yield pytest.param(name, 500, id=name)


@pytest.mark.parametrize(("source", "interval_ms"), list(captures()))
def test_lines_that_stay_are_those_that_would_be_made_anew(
    source: Path | str, interval_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = source if isinstance(source, Path) else FAMILIES[source].write(tmp_path / "capture.pcap", 20)
    quiet = list(intervals(capture, interval_ms * MS_NS))
    monkeypatch.setattr(Quiet, "update", lambda *_: frozenset())
    assert quiet == list(intervals(capture, interval_ms * MS_NS))


def test_an_idle_connection_is_made_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = FAMILIES["sessions"].write(tmp_path / "capture.pcap", 100)
    found: list[int] = []
    update = Quiet.update

    def counted(quiet: Quiet, *arguments: Any) -> frozenset[int]:
        numbers = update(quiet, *arguments)
        found.append(len(numbers))
        return numbers

    monkeypatch.setattr(Quiet, "update", counted)
    assert len(list(intervals(capture, 20 * MS_NS))) == len(found)
    # each is idle for 200 ms between its commands
    assert max(found) > 75
