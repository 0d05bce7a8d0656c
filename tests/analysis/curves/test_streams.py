"""Which connections stand side by side, what each carried, and what is known of it from its job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.analysis.curves import decimation, streams
from iscsitrace.analysis.curves.marks import Line
from iscsitrace.analysis.curves.view import View
from tests.support.streams_by_hand import SECOND, Work
from tests.support.tables_by_hand import MS, table

VIEW = View(origin_ns=0, start_ns=100, end_ns=200, connections=(0, 1))


def segment(time_ns: int, offset: int, length: int, segment_class: str = "new", **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": time_ns, "segment_class": segment_class}
    return row | {"stream_offset_bytes": offset, "payload_bytes": length} | columns


def points(line: Any) -> list[tuple[int, int]]:
    return list(zip(line.times_ns.tolist(), line.values.tolist(), strict=True))


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_a_stream_carries_what_was_sent_in_its_direction(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(decimation, "CHUNK_ROWS", rows)
    found = streams.prepare(
        table(
            "segments",
            segment(99, 0, 500),
            segment(100, 1_000, 10),
            segment(110, 1_020, 1),
            segment(120, 1_010, 10, "reordered"),
            segment(130, 1_000, 10, "retransmission"),
            segment(140, 1_021, 1, "probe"),
            segment(150, 1_021, 10, "copy"),
            segment(160, 0, 900, to_target=True),
            segment(170, 2_000, 0, "retransmission"),
            segment(180, 0, 5, connection=1),
            segment(201, 1_021, 10),
        ),
        table("window"),
        VIEW,
    )
    first, other = found.streams
    assert [(each.connection, each.passed_bytes) for each in found.streams] == [(0, 31), (1, 5)]
    assert points(first.passed) == [(100, 10), (110, 21), (120, 21), (130, 21), (200, 21)]
    assert points(other.passed) == [(180, 5), (200, 5)]
    assert (found.connection_count, found.is_decimated, found.job) == (2, False, None)
    assert (first.finish_ns, first.cause, first.losses) == (None, None, {})


def test_the_eight_busiest_connections_are_shown() -> None:
    rows = [segment(100, 0, 1 + number, connection=number) for number in range(9)]
    view = View(origin_ns=0, start_ns=100, end_ns=200, connections=tuple(range(10)))
    found = streams.prepare(table("segments", *rows), table("window"), view)
    assert [stream.connection for stream in found.streams] == list(range(8, 0, -1))
    assert found.connection_count == 10


def test_streams_of_more_than_5000_packets_are_decimated() -> None:
    def is_decimated(count: int) -> bool:
        segments = table("segments", segment(100, 0, 1)).select(np.zeros(count, dtype=np.intp))
        return streams.prepare(segments, table("window"), VIEW).is_decimated

    assert not is_decimated(5_000)
    assert is_decimated(5_001)


def test_bytes_in_flight_are_those_of_the_connection_and_direction() -> None:
    def change(time_ns: int, owin: int, **columns: Any) -> dict[str, Any]:
        return {"connection": 0, "time_ns": time_ns, "owin_bytes": owin} | columns

    rows = [change(90, 3), change(120, 7), change(130, 9, connection=1), change(140, 9, to_target=True)]
    (stream,) = streams.prepare(table("segments", segment(100, 0, 1)), table("window", *rows), VIEW).streams
    assert points(stream.outstanding) == [(100, 3), (120, 7), (200, 7)]


# --- the job of the streams


def view_of(connections: list[int], start_ms: int = 0, end_ms: int = 9_000, *, to_target: bool = False) -> View:
    return View(0, start_ms * MS, end_ms * MS, tuple(connections), to_target=to_target)


def test_the_job_of_most_connections_is_named() -> None:
    work = Work()
    small = [work.stream(1_000, session=0), work.stream(1_000, session=0)]
    large = [work.stream(1_000, start_ms=4_000, session=0) for _ in range(3)]
    jobs = work.jobs()
    assert [len(job.runs) for job in jobs] == [2, 3]

    def named(shown: list[int], **view: Any) -> int | None:
        job = streams._job(jobs, view_of(shown, **view), shown)
        return None if job is None else len(job.runs)

    assert named(small + large) == 3
    assert named(small + large[:1]) == 2
    assert named(large[:2]) == 3
    assert named(large[:1]) is None
    assert named(small + large, to_target=True) is None
    assert named(small + large, end_ms=2_000) == 2
    # the first job ends at 2 s, the second begins at 5 s
    assert named(small, start_ms=2_000) == 2
    assert named(small, start_ms=2_001) is None
    assert named(large, end_ms=5_000) == 3
    assert named(large, end_ms=4_999) is None
    assert streams._job([], view_of(small), small) is None


def test_finish_and_losses_of_a_stream_are_those_in_the_view() -> None:
    work = Work()
    shown = [work.stream(1_000, session=0), work.stream(1_000, session=0)]
    work.lost(0, (100, "fast", 5_000), (400, "timeout", 9_000), (600, "timeout", 9_000), exit_bytes=5_000)
    stream = next(each for each in work.job().streams if each.run.connection == 0)
    assert [loss.kind for loss in stream.evidence.losses] == ["slow_start_exit", "timeout", "timeout"]
    outstanding = Line(np.array([1_200, 1_600]) * MS, np.array([70, 30]))
    everything = streams._of_job(stream, view_of(shown), outstanding)
    assert everything["finish_ns"] == 2 * SECOND
    assert {kind: points(line) for kind, line in everything["losses"].items()} == {
        # before the first change there is only its value
        "slow_start_exit": [(1_100 * MS, 70)],
        "timeout": [(1_400 * MS, 70), (1_600 * MS, 30)],
    }
    assert streams._of_job(stream, view_of(shown, 2_000), outstanding)["finish_ns"] == 2 * SECOND
    assert streams._of_job(stream, view_of(shown, 2_001), outstanding)["finish_ns"] is None
    assert streams._of_job(stream, view_of(shown, 0, 2_000), outstanding)["finish_ns"] == 2 * SECOND
    assert streams._of_job(stream, view_of(shown, 0, 1_999), outstanding)["finish_ns"] is None
    assert streams._of_job(stream, view_of(shown), Line())["losses"] == {}
    assert list(streams._of_job(stream, view_of(shown, 0, 1_500), outstanding)["losses"]["timeout"].values) == [70]
