"""Lines of JSON and text have what is open or had packets in the interval: sessions that are over do not pile up."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.growth.families import REFUSED
from bench.growth.hosts import FAMILIES
from bench.growth.wire import Capture as GrowingCapture
from bench.growth.wire import Connection
from iscsitrace.tables.passes import SECOND_NS, Live
from iscsitrace.tables.trace import read
from iscsitrace.watch.board import lines_of
from iscsitrace.watch.watcher import Report, Watcher
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Capture, Conversation
from tests.support.pdu import Task
from tests.support.transport import Packet
from tests.watch.test_watch import PATIENT

_FLAGS_AT = 14 + 20 + 13
_RST_ACK = 0x14


def reports_of(file: Path, interval_ns: int) -> list[Report]:
    live = Live(file, replace(PATIENT, interval_ns=interval_ns))
    live.stop()
    found: list[Report] = []
    Watcher(live).run(found.append)
    return found


def numbers(document: dict[str, Any], kind: str) -> set[int]:
    return {row[kind] for row in document[f"{kind}s"]}


def test_a_session_that_is_over_has_no_lines_after_its_last_packet(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.session().login().read(count=5).pause(2 * SECOND_NS).logout()
    # open, and quiet for six seconds
    conversation.session().login().read(count=1).pause(6 * SECOND_NS).read(count=1).pause(SECOND_NS).logout()
    capture = conversation.run()
    file = write_pcapng(tmp_path / "over.pcapng", capture.packets, capture.path.link_type)
    rows = {row["connection"]: row for row in read(file).connections.rows()}
    seen = set()
    for report in reports_of(file, SECOND_NS):
        document = report.as_dict()
        present = {number for number, row in rows.items() if row["time_last_ns"] >= report.from_ns}
        assert numbers(document, "connection") == present
        assert numbers(document, "session") == {rows[number]["session"] for number in present}
        text = "\n".join(lines_of(report))
        assert all((f"session {row['session']}" in text) == (number in present) for number, row in rows.items())
        seen.add(len(present))
        # the screen still shows it
        assert len(report.sessions) == 2
    assert seen == {1, 2}


def test_a_session_that_was_reset_with_a_command_in_flight_keeps_its_lines(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.session().login().read(count=2).tasks([Task("read", service_ns=30 * SECOND_NS)])
    capture = conversation.run()
    packets = reset_while_in_flight(capture)
    file = write_pcapng(tmp_path / "reset.pcapng", packets, capture.path.link_type)
    assert read(file).connections["rst_to_target_ns"][0]
    *before, last = reports_of(file, SECOND_NS // 5)
    assert len(before) > 5
    for report in (*before, last):
        (session,) = report.as_dict()["sessions"]
        # the session waits for the next one; the command ended with its connection
        assert session["open_task_count"] == session["oldest_command_ns"] == 0
    assert before[-1].as_dict()["sessions"][0]["no_progress_ns"] > SECOND_NS


def reset_while_in_flight(capture: Capture) -> list[Packet]:
    """Its packets until the last command, a RST a moment later, and eight seconds later one of another connection."""
    times_ns = [packet.time_ns for packet in capture.packets]
    gaps_ns = [later_ns - time_ns for time_ns, later_ns in itertools.pairwise(times_ns)]
    kept = capture.packets[: gaps_ns.index(max(gaps_ns)) + 1]
    initiator = kept[0].data[26:30]
    ack = min((each for each in reversed(kept) if each.data[26:30] == initiator), key=lambda each: len(each.data))
    frame = bytearray(ack.data)
    frame[_FLAGS_AT] = _RST_ACK
    reset = replace(ack, data=bytes(frame), time_ns=kept[-1].time_ns + 1_000_000)
    frame[26 + 8] ^= 1
    return [*kept, reset, replace(ack, data=bytes(frame), time_ns=reset.time_ns + 8 * SECOND_NS)]


def test_a_session_that_another_replaced_has_no_lines_after_it_went_on_there(tmp_path: Path) -> None:
    """Its connection was never closed, and a command on it never ended."""
    file = FAMILIES["replaced_sessions"].write(tmp_path / "replaced.pcap", 4)
    began_ns = dict(
        zip(*(read(file).sessions.raw(name).tolist() for name in ("session", "time_first_ns")), strict=True)
    )
    for report in reports_of(file, SECOND_NS):
        document = report.as_dict()
        went_on = {number - 1 for number, at_ns in began_ns.items() if number and at_ns < report.from_ns}
        busy = {row["session"] for row in document["sessions"] if row["task_count"]}
        assert went_on.isdisjoint(numbers(document, "session") - busy)
        assert went_on.isdisjoint(row["session"] for row in document["sessions"] if row["is_open"])


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_connection_of_a_session_that_another_replaced_is_closed_after_two_minutes(
    tmp_path: Path, is_refused: bool
) -> None:
    """Nothing shows its end. Where the target refused the other login, the session may go on."""
    made = GrowingCapture()
    Connection(made, 0).log_in().read(2)
    Connection(made, 1).log_in(status=REFUSED if is_refused else 0)
    beside = Connection(made, 2).log_in(host="other")
    for tag in range(2, 150):
        made.now_ns += SECOND_NS
        beside.read(tag)
    live = Live(made.write(tmp_path / "two.pcap"), PATIENT)
    live.stop()
    current = []
    while (step := live.advance(10)) != "end":
        if step == "look":
            current.append({row["connection"] for row in live.look().now})
    assert 0 in current[119]
    assert (0 in current[124]) == is_refused
    assert all({1, 2} <= now for now in current)
