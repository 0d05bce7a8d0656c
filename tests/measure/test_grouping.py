"""Which rows belong to which session and connection."""

from __future__ import annotations

import numpy as np
import pytest

from iscsitrace.measure import grouping
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

ROWS = {
    "sessions": [{"session": 0}, {"session": 1}],
    "connections": [
        {"connection": 0, "session": 0, "is_iscsi": True},
        {"connection": 1},
        {"connection": 2, "is_iscsi": True},
        {"connection": 3, "session": 1, "is_iscsi": True},
        {"connection": 4, "session": 1, "is_iscsi": True},
    ],
    "nops": [{"connection": 3}, {"connection": 4}],
    "senders": [{"connection": number, "rtt_count": number} for number in (3, 0, 1, 2, 4, 7)],
}


def test_rows_of_connections_without_a_session_are_in_none() -> None:
    made = {name: table(name, *ROWS.get(name, [])) for name in (*grouping.TABLES, "sessions", "connections")}
    found = grouping.Grouping(made.__getitem__)
    sessions, connections = found.sessions, found.connections
    owned = {number: session.tables["senders"].raw("connection").tolist() for number, session in sessions.items()}
    assert owned == {0: [0], 1: [3, 4]}
    assert list(connections) == [0, 2, 3, 4]
    assert connections[2].tables["senders"].raw("connection").tolist() == [2]
    assert connections[3].tables["senders"].raw("connection").tolist() == [3]
    assert [row["connection"] for row in sessions[1].connections] == [3, 4]
    assert [len(sessions[number].tables["nops"]) for number in (0, 1)] == [0, 2]
    assert [connections[number].label for number in (0, 3)] == ["connection 0", "connection 3"]
    assert [connections[number].is_session for number in (0, 3)] == [False, False]
    assert [session.label for session in sessions.values()] == ["session 0", "session 1"]
    # without a time breakdown
    assert (sessions[0].jobs_ns, sessions[0].part_ns("transfer"), sessions[0].share(5)) == (0, 0, 0)
    with pytest.raises(KeyError):
        sessions[0].tables["segments"]


def test_commands_that_did_not_wait_are_not_among_those_that_waited_longest() -> None:
    story = Story().task(("propagation", 5 * MS)).task(("target_service", 2 * MS)).task(("target_service", 3 * MS))
    session = grouping.sessions_of(story.source())[0]
    waits = session.stretches("target_service")
    assert session.longest_rows(waits) == [2, 1]
    assert session.longest_rows(waits, 1) == [2]
    assert session.waits_by_cycle(waits).tolist() == [0, 2 * MS, 3 * MS]


def test_a_wait_without_a_command_is_of_none() -> None:
    story = Story().task(("transfer", MS)).answered(4 * MS).task(("transfer", MS))
    session = grouping.sessions_of(story.source())[0]
    waits = session.stretches("propagation")
    assert waits.cycle.tolist() == [-1]
    assert session.is_of(waits, np.array([True, True])).tolist() == [False]
    assert session.waits_by_cycle(waits).tolist() == [0, 0]
    assert session.with_next(waits).cycle.tolist() == [1]


def test_transfers_are_complete_reads_and_writes_with_data() -> None:
    story = Story().task(("transfer", MS)).task(("transfer", MS), operation="write")
    story.task(("transfer", MS), data_bytes=0).task(("transfer", MS), operation="inquiry")
    story.task(("transfer", MS), is_complete=False)
    session = grouping.sessions_of(story.source())[0]
    assert session.is_transfer.tolist() == [True, True, False, False, True]
    assert session.transfers.raw("cycle").tolist() == [0, 1]


def test_shares_are_of_the_busy_time() -> None:
    """40 ms of commands, of which 12 are transfer; an idle gap of a second does not count."""
    story = Story().tasks(4, ("transfer", MS), ("propagation", 4 * MS)).pause(1_000 * MS)
    story.tasks(4, ("transfer", 2 * MS), ("propagation", 3 * MS))
    session = grouping.sessions_of(story.source())[0]
    assert (session.jobs_ns, session.part_ns("transfer"), session.part_ns("initiator_think")) == (40 * MS, 12 * MS, 0)
    assert (session.share(10 * MS), session.share(0)) == (0.25, 0)
    begun = story.rows["cycles"][0]["command_first_ns"]
    starts, ends = (np.array([begun + at * MS for at in each]) for each in ((2, 3, 1_000), (6, 8, 1_023)))
    # from 2 to 5 and from 6 to 8, of which a millisecond is transfer; then from 1020 on
    assert session.stretches("propagation").within_ns(starts, ends) == (3 + 2 + 1) * MS
    assert session.stretches("propagation", "transfer").within_ns(starts, ends) == (6 + 3) * MS


def test_frames_show_the_longest_waits() -> None:
    """A wait that ended with a frame is shown by it; else the commands that waited longest are."""
    story = Story().task(("target_service", 2 * MS)).task(("target_service", 4 * MS)).task(("transfer", MS))
    session = grouping.sessions_of(story.source())[0]
    waits = session.stretches("target_service")
    assert session.evidence(waits) == waits.frame.tolist()[::-1]
    for row in story.rows["budget"]:
        row["frame"] = None
    session = grouping.sessions_of(story.source())[0]
    waits = session.stretches("target_service")
    frames = [(row["command_frame"], None, None, row["status_frame"]) for row in story.rows["cycles"]]
    assert session.evidence(waits) == [*frames[1], *frames[0]]


def test_the_next_command_is_the_one_that_begins_at_the_end_of_a_wait_or_later() -> None:
    story = Story().task(("transfer", MS)).answered(4 * MS).task(("transfer", MS)).answered(MS).task(("transfer", MS))
    story.answered(2 * MS)
    session = grouping.sessions_of(story.source())[0]
    # after the last wait no command follows: it is the last one's
    assert session.next_rows(session.stretches("propagation")).tolist() == [1, 2, 2]
    assert session.next_rows(session.stretches("transfer")).tolist() == [1, 2, 2]
