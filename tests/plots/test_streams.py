"""Which connections stand side by side, what each carried, and what is known of it from its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.plots import kinds, marks, style
from iscsitrace.plots.kinds import streams
from iscsitrace.plots.marks import Detail, Series
from iscsitrace.plots.view import View, Zoom
from tests.support.capture_file import write_pcap
from tests.support.conversation import Conversation, Session
from tests.support.streams_by_hand import SECOND, Work
from tests.support.tables_by_hand import MS, table
from tests.support.transport import Path as NetworkPath

VIEW = View(origin_ns=0, start_ns=100, end_ns=200, connections=(0, 1))


def segment(time_ns: int, offset: int, length: int, segment_class: str = "new", **columns: Any) -> dict[str, Any]:
    row = {"connection": 0, "time_ns": time_ns, "segment_class": segment_class}
    return row | {"stream_offset_bytes": offset, "payload_bytes": length} | columns


def points(line: Any) -> list[tuple[int, int]]:
    return list(zip(line.times_ns.tolist(), line.values.tolist(), strict=True))


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_a_stream_carries_what_was_sent_in_its_direction(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(marks, "CHUNK_ROWS", rows)
    found = streams.compute(
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


def shown(rows: list[dict[str, Any]], connections: int) -> streams.Streams:
    view = View(origin_ns=0, start_ns=100, end_ns=900, connections=tuple(range(connections)))
    return streams.compute(table("segments", *rows), table("window"), view)


def numbers(found: streams.Streams) -> list[int]:
    return [stream.connection for stream in found.streams]


def test_eight_connections_are_shown_the_busiest_first() -> None:
    found = shown([segment(100 * (1 + number), 0, 1 + number, connection=number) for number in range(8)], 10)
    assert numbers(found) == list(range(7, -1, -1))
    assert (found.connection_count, found.carrying_count) == (10, 8)
    assert (found.view.start_ns, found.view.end_ns) == (100, 900)


def stretch(connection: int | None, first_ns: int, last_ns: int, part: str) -> dict[str, Any]:
    row = {"connection": connection, "session": connection or 0, "part": part, "in_flight": "data"}
    return row | {"time_first_ns": first_ns, "time_last_ns": last_ns}


def test_of_more_connections_those_that_lost_most_time_are_shown_and_the_others_together() -> None:
    rows = [
        segment(at, 100 * at, 10 * (1 + number), connection=number) for number in range(20) for at in (100, 400, 900)
    ]
    # 3 lost 500 ns, 7 lost 400; what 5 lost is before the view, and what 6 took is data transfer
    budget = table(
        "budget",
        stretch(3, 100, 600, "loss_recovery"),
        stretch(5, 0, 100, "loss_recovery"),
        stretch(6, 100, 900, "transfer"),
        stretch(7, 100, 300, "ack_wait"),
        stretch(7, 300, 500, "propagation"),
        stretch(None, 100, 900, "loss_recovery"),
    )
    view = View(origin_ns=0, start_ns=100, end_ns=900, connections=tuple(range(20)))
    segments = table("segments", *rows)
    found = streams.compute(segments, table("window"), view, Detail(top=3), budget=budget)
    assert numbers(found) == [3, 7, 19]
    assert (found.carrying_count, found.at_once_count) == (20, 20)
    others = found.others
    assert others is not None
    assert len(others.connections) == 17
    # of 0 to 18 without 3 and 7: 10 to 190 bytes three times; eight have less than 10, and eight have more
    at = np.searchsorted(others.times_ns, [399, 400, 899, 900], side="right") - 1
    curves = [curve[at].tolist() for curve in (others.least, others.middle, others.most)]
    assert curves == [[10, 20, 20, 30], [110, 220, 220, 330], [190, 380, 380, 570]]
    # without a time breakdown the busiest are
    assert numbers(streams.compute(segments, table("window"), view, Detail(top=3))) == [19, 18, 17]


def test_bytes_again_are_no_progress_of_the_others() -> None:
    rows = [segment(100 + at, at, 10, connection=number) for number in range(3) for at in (0, 50)]
    rows.append(segment(190, 0, 10, "retransmission", connection=2))
    view = View(origin_ns=0, start_ns=100, end_ns=200, connections=(0, 1, 2))
    others = streams.compute(table("segments", *rows), table("window"), view, Detail(top=1)).others
    assert others is not None
    assert (others.least[-1], others.most[-1]) == (20, 20)


def test_of_many_connections_one_after_another_those_beside_the_busiest_are_shown() -> None:
    """Each for 100 ns of its own, 50 ns after the one before: three at a time."""
    rows = [
        segment(100 + 50 * number + at, at, 5 if number == 6 else 1, connection=number)
        for number in range(14)
        for at in (0, 40, 90)
    ]
    found = shown(rows, 14)
    assert sorted(numbers(found)) == [5, 6, 7]
    assert numbers(found)[0] == 6
    assert (found.carrying_count, found.at_once_count) == (14, 3)
    # from the first payload of 5 to the last of 7, and their bytes are complete
    assert (found.view.start_ns, found.view.end_ns) == (350, 540)
    assert [stream.passed_bytes for stream in found.streams] == [15, 3, 3]
    assert all(len(stream.passed) for stream in found.streams)


def test_streams_of_more_than_5000_packets_are_decimated() -> None:
    def is_decimated(count: int) -> bool:
        segments = table("segments", segment(100, 0, 1)).select(np.zeros(count, dtype=np.intp))
        return streams.compute(segments, table("window"), VIEW).is_decimated

    assert not is_decimated(5_000)
    assert is_decimated(5_001)


def test_bytes_in_flight_are_those_of_the_connection_and_direction() -> None:
    def change(time_ns: int, owin: int, **columns: Any) -> dict[str, Any]:
        return {"connection": 0, "time_ns": time_ns, "owin_bytes": owin} | columns

    rows = [change(90, 3), change(120, 7), change(130, 9, connection=1), change(140, 9, to_target=True)]
    (stream,) = streams.compute(table("segments", segment(100, 0, 1)), table("window", *rows), VIEW).streams
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
    outstanding = Series(np.array([1_200, 1_600]) * MS, np.array([70, 30]))
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
    assert streams._of_job(stream, view_of(shown), Series())["losses"] == {}
    assert list(streams._of_job(stream, view_of(shown, 0, 1_500), outstanding)["losses"]["timeout"].values) == [70]


def test_streams_of_436_sessions_are_drawn(tmp_path: Path) -> None:
    """Sessions that begin 3 ms apart and read for some 20 ms each: at most a few dozen work at once."""
    conversation = Conversation(NetworkPath(one_way_delay_ns=2 * MS))
    for number in range(436):
        session = conversation.session(Session()).pause(3 * MS * number).login()
        session.read(count=2 + number % 7, block_bytes=4096).logout()
    capture = write_pcap(tmp_path / "many.pcap", conversation.run().packets, 1)
    kind = kinds.load("streams")
    trace = iscsitrace.read(capture, tables=kind.tables)
    drawing = kind.drawing(trace, Zoom(), 0, Detail())
    with style.applied():
        figure = style.new_figure()
        drawing.draw(figure)
    passed = figure.axes[0]
    low, high = passed.get_xlim()
    moving = [line for line in passed.get_lines() if str(line.get_label()).startswith("connection ")]
    assert len(moving) == 8
    # each of them rises within the time shown, over a part that can be seen
    for line in moving:
        steps = np.flatnonzero(np.diff(np.asarray(line.get_ydata())))
        times = np.asarray(line.get_xdata())[[steps.min(), steps.max() + 1]]
        assert times[1] - times[0] > 0.05 * (high - low)
    (note,) = [note for note in drawing.notes if "of 436 connections with data are drawn" in note]
    assert note.startswith("8 of 436")


def test_of_many_connections_all_are_ranked_by_their_bytes() -> None:
    rows = [
        segment(at, place * (1 + number), 1 + number, connection=number)
        for number in range(5)
        for place, at in enumerate((100, 900))
    ]
    view = View(origin_ns=0, start_ns=100, end_ns=900, connections=tuple(range(5)))
    found = streams.compute(table("segments", *rows), table("window"), view, Detail(top=2))
    assert found.ranked == [(4, 10), (3, 8), (2, 6), (1, 4), (0, 2)]
    assert "connection 4 carried 5.00 times the bytes of connection 0" in streams.notes(found)
    with style.applied():
        figure = style.new_figure()
        streams.draw(figure, found)
    _, ranking = figure.axes
    every, *own = ranking.patches
    assert every.get_data().values.tolist() == [10, 8, 6, 4, 2]  # type: ignore[attr-defined]
    # those with a line on the left stand out, with its mark
    assert [(bar.get_x() + 0.5, bar.get_height()) for bar in own] == [(0, 10), (1, 8)]  # type: ignore[attr-defined]
    assert [line.get_marker() for line in ranking.lines] == ["o", "s"]
    assert ranking.get_xlabel() == "5 connections, the most bytes first"


@pytest.mark.parametrize(("count", "is_mean"), [(3, False), (4, True)])
def test_bytes_in_flight_of_more_than_three_streams_are_means(count: int, is_mean: bool) -> None:
    rows = [segment(0, 0, 1, connection=number) for number in range(count)]
    changes = [
        {"connection": number, "time_ns": at, "owin_bytes": owin}
        for number in range(count)
        for at, owin in ((0, 8), (30, 0), (60, 8), (61, 0))
    ]
    view = View(origin_ns=0, start_ns=0, end_ns=120, connections=tuple(range(count)))
    found = streams.compute(table("segments", *rows), table("window", *changes), view)
    assert found.step_ns == (2 if is_mean else None)
    line = dict(points(found.streams[0].outstanding))
    # in steps of 2 ns: full until 30, and for half of the step from 60 on
    assert [line.get(at) for at in (0, 28, 30, 60, 62)] == ([8, 8, 0, 4, 0] if is_mean else [8, None, 0, 8, None])
    assert ("bytes in flight are the mean of steps of 2 ns" in streams.notes(found)) == is_mean
