"""The conditions of the reads, or writes, of a session: senders, windows, segments and queue depth, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from iscsitrace.fit.conditions import Conditions
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.model.setting import Solicitation
from tests.support.runs import Run, Runs
from tests.support.story import Story
from tests.support.tables_by_hand import MS

READ = ("propagation", 16 * MS)


def conditions(story: Story, operation: str = "read") -> Conditions:
    return Conditions(sessions_of(story.source())[0], operation)


def with_senders(*senders: dict[str, Any]) -> Conditions:
    """Reads of connection 3, with these senders of their data."""
    story = Story().tasks(8, READ)
    for sender in senders:
        story.add("senders", to_target=False, **sender)
    return conditions(story)


def test_a_session_without_commands_has_one_connection_and_one_command_in_flight() -> None:
    found = conditions(Story(rtt_to_target_ns=None))
    assert (found.connection_count, found.queue_depth) == (1, 1)
    assert (found.window_bytes, found.segment_bytes, found.start_window_bytes) == (None, 1_448, None)
    assert (found.busiest_sender, found.is_window_shut, found.is_status_held) == ({}, False, False)
    setting = found.setting(4_096, 2)
    assert (setting.operation, setting.block_bytes, setting.delay_ns, setting.queue_depth) == ("read", 4_096, 0, 2)


def test_the_queue_depth_is_the_median_of_complete_commands_of_the_operation() -> None:
    """Depths 1, 2, 3, 3, ...; those before are writes, one at a time, and one read at a time that was cut off."""
    story = Story().tasks(9, READ, operation="write").tasks(9, READ, is_complete=False).kept_filled(5, 3, READ)
    assert [conditions(story, operation).queue_depth for operation in ("read", "write")] == [3, 1]


def test_the_busiest_sender_is_that_of_most_data_in_the_direction_of_the_operation() -> None:
    story = Story().tasks(8, READ).tasks(8, READ, operation="write")
    story.connection |= {"stream_bytes_to_target": 5}
    other = {"connection": 4, "stream_bytes_to_target": 9, "stream_bytes_to_initiator": 999_999}
    story.rows["connections"].append(story.connection | other)
    for row in story.rows["cycles"][::2]:
        row["connection"] = 4
    for connection in (3, 4):
        for to_target in (False, True):
            story.add("senders", connection=connection, to_target=to_target)
    found = {operation: conditions(story, operation).busiest_sender for operation in ("read", "write")}
    assert [(row["connection"], row["to_target"]) for row in found.values()] == [(3, False), (4, True)]


def test_only_connections_with_commands_of_the_operation_count() -> None:
    story = Story().tasks(8, READ).tasks(8, READ, operation="write")
    story.rows["connections"].append(story.connection | {"connection": 4})
    for row in story.rows["cycles"][8:]:
        row["connection"] = 4
    for connection, window in ((3, 1_000), (4, 2_000)):
        for to_target in (False, True):
            story.add("senders", connection=connection, to_target=to_target, rwnd_max_bytes=window)
    assert [conditions(story, operation).window_bytes for operation in ("read", "write")] == [1_000, 2_000]
    # without such a sender all of the direction count
    story.rows["senders"] = [row for row in story.rows["senders"] if row["connection"] == 4]
    assert conditions(story).window_bytes == 2_000


@pytest.mark.parametrize(
    ("sender", "is_shut"),
    [
        ({"rwnd_min_bytes": 1_448, "segment_bytes": 1_448}, False),
        ({"rwnd_min_bytes": 1_447, "segment_bytes": 1_448}, True),
        # a segment of unknown size has at least a byte, and a window that was never seen is shut
        ({"rwnd_min_bytes": 1}, False),
        ({"rwnd_min_bytes": 0}, True),
        ({}, True),
    ],
)
def test_a_window_below_a_segment_is_shut(sender: dict[str, Any], is_shut: bool) -> None:
    assert with_senders(sender).is_window_shut is is_shut
    assert with_senders({"rwnd_min_bytes": 9_000, "segment_bytes": 9_000}, sender).is_window_shut is is_shut


def test_a_full_segment_is_the_largest_one() -> None:
    assert with_senders({}, {"segment_bytes": 1_400}, {"segment_bytes": 8_948}).segment_bytes == 8_948
    assert with_senders({"segment_bytes": 1}).segment_bytes == 1
    assert with_senders({}).segment_bytes == 1_448


def test_a_sender_that_restarts_after_idle_time_begins_with_ten_segments() -> None:
    """RFC 6928."""
    restarted = {"segment_bytes": 1_000, "restart_after_idle_count": 1}
    assert with_senders({"segment_bytes": 1_000}, restarted).start_window_bytes == 10_000
    assert with_senders(restarted | {"restart_after_idle_count": 0}).start_window_bytes is None


def test_a_window_of_zero_bytes_is_unknown() -> None:
    assert with_senders({"rwnd_max_bytes": 0}, {"rwnd_max_bytes": 1}).window_bytes == 1
    assert with_senders({"rwnd_max_bytes": 0}).window_bytes is None


def test_a_send_buffer_that_held_its_sender_longest_is_the_window() -> None:
    def window(**columns: Any) -> int | None:
        return with_senders(
            {"rwnd_max_bytes": 200_000, "cwnd_limited_ns": 30, "rwnd_limited_ns": 10} | columns
        ).window_bytes

    level = {"sndbuf_level_bytes": 50_000}
    assert window(**level, sndbuf_limited_ns=41) == 50_000
    assert window(**level, sndbuf_limited_ns=40) == 200_000, "windows held it as long"
    assert window(sndbuf_limited_ns=41) == 200_000, "too few stops to know its size"
    assert window(**level, sndbuf_limited_ns=41, rwnd_max_bytes=20_000) == 20_000


def test_statuses_of_writes_are_not_held() -> None:
    story = Story().tasks(8, READ, ("ack_wait", 16 * MS), operation="write", is_status_in_data=False)
    assert not conditions(story, "write").is_status_held
    held = Story().tasks(8, READ, ("ack_wait", 16 * MS), is_status_in_data=False)
    assert conditions(held).is_status_held
    # without a known RTT nothing shows it
    held.connection["rtt_to_target_min_ns"] = None
    assert not conditions(held).is_status_held


def test_incomplete_writes_do_not_show_how_data_is_sent() -> None:
    story = Story().task(READ, operation="write", immediate_bytes=4_096)
    story.task(READ, operation="write", immediate_bytes=9_000, is_complete=False)
    assert conditions(story, "write").solicitation.max_recv_data_segment_bytes == 8_192
    story.rows["cycles"][1]["is_complete"] = True
    assert conditions(story, "write").solicitation.max_recv_data_segment_bytes == 9_000
    assert conditions(Story().task(READ)).solicitation == Solicitation()


SIXTEEN = "--block-size 256K --queue-depth 16 --bytes 16M --one-way-delay 1ms --rate 320Mbit"


def depths(run: Run, operation: str) -> tuple[int, int]:
    """The queue depth that the capture shows, and the truth: the median of the commands in flight just before the next
    one ends after each was sent.
    """

    def source(name: str) -> Any:
        return iscsitrace.read(run.capture(), tables=[name]).table(name)

    truth = json.loads((run.folder / "truth.json").read_text())["cycles"]
    is_own = np.array(truth["operation"]) == operation
    sent, ended = (
        np.array(truth["initiator"][name], dtype=float)[is_own] for name in ("command_first_ns", "status_ns")
    )
    next_ends = [ended[ended > instant].min() for instant in sent]
    in_flight = [int(((sent < instant) & (ended >= instant)).sum()) for instant in next_ends]
    return Conditions(sessions_of(source)[0], operation).queue_depth, int(np.median(in_flight))


def test_writes_behind_the_data_of_others_are_not_in_flight_yet(tmp_path: Path) -> None:
    """The program submits 16; a command waits in the send buffer while TCP sends the data of those before it."""
    runs = Runs(tmp_path)
    shown, sent = depths(runs(f"write {SIXTEEN}"), "write")
    assert shown == sent < 16
    shown, sent = depths(runs(f"read {SIXTEEN}"), "read")
    assert shown == sent == 16


def test_writes_that_wait_for_r2ts_are_all_in_flight(tmp_path: Path) -> None:
    """Several of them complete together, and the next ones are issued together."""
    shown, sent = depths(Runs(tmp_path)(f"write {SIXTEEN} --key InitialR2T=Yes --key ImmediateData=No"), "write")
    assert shown == sent == 16
