"""The sections after the plots, from tables made by hand: what is counted, left out, shortened and put in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.diagnosis.headline import Headline, Verdict
from iscsitrace.diagnosis.subject import Subject
from iscsitrace.errors import InputInvalid
from iscsitrace.report import captures
from iscsitrace.report.captures import Entry
from iscsitrace.report.sections import _connections, _making, _parameters, _slowest, _traffic
from iscsitrace.show.document import Document, FoundProblem, Opening, Section, TimeShare
from iscsitrace.show.markdown import code, prose
from tests.support.tables_by_hand import MS, table


def trace(**rows: list[dict[str, Any]]) -> Any:
    names = ("connections", "sessions", "parameters", "cycles", "task_management")
    return SimpleNamespace(start_ns=90 * MS, **{name: table(name, *rows.get(name, [])) for name in names})


# --- slowest commands


def command(number: int, latency_ms: int | None, **columns: Any) -> dict[str, Any]:
    start = (100 + 30 * number) * MS
    status_ns = None if latency_ms is None else start + latency_ms * MS
    frames = {"command_frame": 10 * number, "status_frame": None if latency_ms is None else 10 * number + 1}
    times = {"command_first_ns": start, "command_last_ns": start, "status_ns": status_ns}
    own = {"cycle": number, "session": 0, "connection": 1, "operation": "read"} | {
        "is_complete": latency_ms is not None
    }
    return own | times | frames | columns


def slowest(*cycles: dict[str, Any]) -> Section:
    connections = [{"connection": 0, "time_first_ns": 90 * MS}, {"connection": 1, "time_first_ns": 95 * MS}]
    connections[1]["time_last_ns"] = 5_000 * MS
    return _slowest(
        trace(connections=connections, cycles=list(cycles)), Subject("session 0", (0,), Headline(""), (), None)
    )


def test_times_count_from_the_first_packet_and_flags_follow_the_frames() -> None:
    flags = {"is_aborted": True, "has_capture_gap": True, "is_complete": False}
    found = slowest(command(0, 5, lba=7, bytes=4_096, queue_depth=2), command(1, 9, **flags), command(2, 99, session=1))
    first, second = found.grids[0].rows
    assert found.grids[0].caption == "Slowest 2 of 2 commands"
    assert (first[0], first[1], first[7], first[-2]) == ("1", "0.040000", "9.000", "10")
    assert first[-1] == "aborted missing incomplete"
    assert second[:3] + second[4:8] == ("0", "0.010000", "1", "read", "7", "4K", "5.000")
    assert (second[14], second[-1]) == ("2", "")


@pytest.mark.parametrize(
    ("missing", "noun"),
    [(1, "1 command has"), (2, "2 commands have")],
)
def test_commands_without_a_status_come_first(missing: int, noun: str) -> None:
    """The connection goes on to 5 s: commands 20 and 21 were sent at 700 and 730 ms."""
    cycles = [command(number, number + 1) for number in range(13)]
    found = slowest(*cycles, *(command(20 + number, None) for number in range(missing)))
    assert found.lines[1:] == (
        f"{noun} no status: > is the time until the abort, or the end of connection or capture.",
    )
    assert found.grids[0].caption == f"Slowest 12 of {13 + missing} commands"
    rows = [(row[0], row[7]) for row in found.grids[0].rows]
    opened = [("20", ">4300.000"), ("21", ">4270.000")][:missing]
    assert rows == [*opened, *((str(number), f"{number + 1}.000") for number in range(12, missing, -1))]
    assert [row[0] for row in found.grids[1].rows] == [number for number, _ in rows]


def test_a_story_shows_the_commands_of_all_its_sessions() -> None:
    story = Subject("sessions 0 and 1", (0, 1), Headline(""), (), None)
    rows = [command(0, 5), command(1, 9, session=1), command(2, 99, session=2)]
    found = _slowest(trace(connections=[{"connection": 1}], cycles=rows), story)
    assert [row[0] for row in found.grids[0].rows] == ["1", "0"]
    traffic = _traffic(trace(connections=[{"connection": 1}], cycles=rows), story)
    assert traffic.lines[0].startswith("Commands of sessions 0 and 1.")
    assert traffic.grids[0].rows[0][:3] == ("read", "2", "2")


def test_a_status_that_the_capture_misses_is_unknown() -> None:
    found = slowest(command(0, 1), command(20, None, has_capture_gap=True))
    assert found.lines[1:] == ("The latency of 1 command is unknown: packets are missing from the capture.",)
    assert found.grids[0].caption == "Slowest 1 of 1 commands"


# --- login parameters and connections


def parameter(connection: int, **columns: Any) -> dict[str, Any]:
    values = {"initiator_value": "8", "target_value": "4", "effective_initiator": "4", "effective_target": "4"}
    own = {"connection": connection, "session": 0, "key": "MaxConnections", "source": "negotiated"}
    return own | values | columns


@pytest.mark.parametrize(
    ("count", "shown"), [(8, "0 1 2 3 4 5 6 7"), (9, "0 1 2 3 4 5 6 7 and 1 more"), (10, "0 1 2 3 4 5 6 7 and 2 more")]
)
def test_connections_with_the_same_parameters_share_a_row(count: int, shown: str) -> None:
    rows = [parameter(number) for number in range(count)]
    others = [parameter(20, session=1), parameter(21, source="offered")]
    assert len(_parameters(trace(parameters=[*rows, parameter(20, session=1, key="X")]), (0, 1)).grids[0].rows) == 2
    found = _parameters(trace(parameters=rows + others), (0,))
    assert found.grids[0].rows == (("MaxConnections", "4", "8", "4", "negotiated", shown),)
    assert found.lines == ()


def test_without_a_login_there_are_no_parameters() -> None:
    found = _parameters(trace(parameters=[parameter(0, source="offered")]), (0,))
    assert (found.lines, found.grids) == (("The capture has no login, so the parameters are unknown.",), ())


def test_sixty_parameters_are_listed() -> None:
    rows = [parameter(0, key=f"X-{number}") for number in range(61)]
    (grid,) = _parameters(trace(parameters=rows), (0,)).grids
    assert (len(grid.rows), grid.notes) == (60, ("1 more row is not shown.",))


def test_connections_of_the_session_come_first() -> None:
    rows = [
        {"connection": 1, "session": 1, "is_iscsi": True}, {"connection": 2, "session": 0, "is_iscsi": True},
        {"connection": 3, "is_iscsi": False}, {"connection": 0, "session": 0, "is_iscsi": True},
    ]  # fmt: skip
    found = _connections(trace(connections=rows), (0,))
    assert [row[:2] for row in found.grids[0].rows] == [("0", "0"), ("2", "0"), ("1", "1")]
    assert found.lines == ("TCP connections that are not iSCSI: 1",)
    assert _connections(trace(connections=rows[:2]), (0,)).lines == ()
    refused = [*rows, {"connection": 4, "is_iscsi": False, "is_refused": True}]
    lines = _connections(trace(connections=refused), (0,)).lines
    assert lines == ("TCP connections that are not iSCSI: 2 (1 refused with a RST)",)
    many = [{"connection": number, "is_iscsi": True} for number in range(25)]
    assert _connections(trace(connections=many), (0,)).grids[0].notes == ("1 more row is not shown.",)


# --- how it was made


def test_the_input_and_the_options_that_were_given() -> None:
    source = {"name": "a.pcap", "format": "pcap", "packet_count": 1_234}
    inputs = [
        source | {"time_first_ns": 10**9, "time_last_ns": 3 * 10**9 + 5_000, "is_cut_short": True},
        source | {"time_first_ns": None, "time_last_ns": None},
        source | {"time_first_ns": 10**9, "time_last_ns": None},
    ]
    options = {"tables": ["pdus"], "packet_limit": 5, "time_to_ns": None, "is_x": False, "capture_filter": "tcp"}
    made: Any = SimpleNamespace(
        provenance={"tool": {"version": "1.2"}, "schema": 7, "options": options, "input": inputs},
        packet_count=1_235, tcp_packet_count=1_000,
    )  # fmt: skip
    found = _making(made)
    assert found.lines[:5] == (
        "a.pcap: pcap, 1,234 packets, 2.000005 s from 1970-01-01T00:00:01.000000000Z, truncated at its end",
        "a.pcap: pcap, 1,234 packets, - s from -",
        "a.pcap: pcap, 1,234 packets, - s from 1970-01-01T00:00:01.000000000Z",
        "iscsitrace 1.2, schema 7, from 1,235 packets (1,000 TCP).", "Options: packet_limit: 5; capture_filter: tcp.",
    )  # fmt: skip
    made.provenance["options"] = {"tables": ["pdus"]}
    assert _making(made).lines[4] == "No filters."
    made.provenance["input"] = [inputs[0]] * 26
    assert _making(made).lines[24] == "2 more captures"


# --- the head of a report


def test_sessions_are_in_the_order_of_their_bytes_then_commands_then_numbers() -> None:
    moved = {0: [5], 1: [5, 0], 2: [9], 3: [], 4: [], 5: [2, 4]}
    cycles = [{"session": number, "data_bytes": size} for number, sizes in moved.items() for size in sizes]
    diagnosis: Any = SimpleNamespace(sessions=dict.fromkeys(reversed(moved)))
    # what belongs to no session counts for none
    found = captures._by_weight(trace(cycles=[*cycles, {"session": None, "data_bytes": 99}]), diagnosis)
    assert found == [2, 5, 1, 0, 3, 4]
    assert captures._by_weight(trace(), SimpleNamespace(sessions={})) == []  # type: ignore[arg-type]


def test_a_session_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, known in ((0, "none"), (2, "0, 1"), (25, ", ".join(str(number) for number in range(24)))):
        diagnosis = SimpleNamespace(sessions=dict.fromkeys(range(count)))
        monkeypatch.setattr(captures, "examine_trace", lambda trace, diagnosis=diagnosis: diagnosis)
        made = trace()
        with pytest.raises(InputInvalid, match=f"^there is no session 99; there are {known}$"):
            captures.describe(made, session=99)


def headed(*inputs: dict[str, Any], sessions: int = 0, commands: int = 0) -> tuple[str, str]:
    made: Any = SimpleNamespace(
        inputs=inputs, sessions=range(sessions), cycles=range(commands), packet_count=1_234
    )  # fmt: skip
    return captures._title(made), captures._subtitle(made)


def test_title_and_subtitle() -> None:
    one = {"name": "/captures/a.pcap", "time_first_ns": 2 * 10**9, "time_last_ns": 4_500_000_000}
    two = {"name": "b.pcap", "time_first_ns": 10**9, "time_last_ns": 2 * 10**9}
    empty = {"name": "c.pcap", "time_first_ns": None, "time_last_ns": None}
    start = "2.5 s from 1970-01-01 00:00:02.000 UTC; 1,234 packets"
    assert headed(one, sessions=1, commands=2) == ("a.pcap", f"{start}, 1 iSCSI session, 2 SCSI commands")
    title, subtitle = headed(one, two, empty, sessions=2, commands=1)
    assert title == "a.pcap and 2 more"
    start = "3.5 s from 1970-01-01 00:00:01.000 UTC; 1,234 packets"
    assert subtitle == f"{start}, 2 iSCSI sessions, 1 SCSI command"
    assert headed(empty)[1] == "no packet; 1,234 packets, 0 iSCSI sessions, 0 SCSI commands"
    assert headed()[0] == "capture"


def entry(number: int) -> Entry:
    """A session that lost as many seconds as its number, of 40 s of busy time; its sentences are not asked for."""
    name, severity = ("loss", "warning") if number else ("none", "info")
    verdict = Verdict(
        number,
        name,
        "problem" if number else "healthy",
        severity,
        number * 1e9 if number else None,
        "propagation",
        40 * 10**9,
    )
    return Entry(f"session {number}", (number,), verdict, lambda: pytest.fail("told"))


def others(connections: list[dict[str, Any]], *rest: int, lead: int | None = 0) -> list[tuple[str, ...]]:
    sessions = [{"session": number, "target_name": f"disk{number}"} for number in range(3)]
    known: dict[int, Any] = {number: SimpleNamespace(headline=Headline(f"verdict {number}")) for number in range(40)}
    diagnosis: Any = SimpleNamespace(
        connections={number: known[number] for number in (1, 2, 3)},
        separate=SimpleNamespace(verdicts={number: entry(number).verdict for number in (1, 2)}),
    )
    told = [Subject(f"session {number}", (number,), Headline(f"verdict {number}"), (), None) for number in rest]
    listed = [entry(number) for number in rest]
    first = None if lead is None else Subject(f"session {lead}", (lead,), Headline(""), (), None)
    found = captures._others(trace(connections=connections, sessions=sessions), diagnosis, first, listed, told)
    grids = [grid for section in found for grid in section.grids]
    return [row for grid in grids for row in (*grid.rows, *((note,) for note in grid.notes))]


def test_other_sessions_and_the_connections_of_the_first_if_it_has_several() -> None:
    one, two, three = (
        {"connection": number, "session": session, "is_iscsi": True} for number, session in ((1, 0), (2, 0), (3, 1))
    )
    assert others([one, three]) == []
    assert others([one, two, three, {"connection": 9, "session": 0, "is_iscsi": True}], 2) == [
        ("connection 1", "disk0", "verdict 1"), ("connection 2", "disk0", "verdict 2"),
        ("session 2", "disk2", "verdict 2"),
    ]  # fmt: skip
    # one that is not iSCSI is no second connection
    assert others([one, two | {"is_iscsi": False}], 30) == [("session 30", "-", "verdict 30")]
    assert [row[2] for row in others([], *range(24))] == [f"verdict {number}" for number in range(24)]


def test_more_sessions_than_a_person_reads_are_rows_of_names_and_times_the_worst_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = others([], *range(25))
    assert [row[0] for row in found] == [f"session {number}" for number in reversed(range(25))]
    assert found[0] == ("session 24", "-", "loss", "latency-bound", "24.000000", "40.000000")
    assert found[-1] == ("session 0", "disk0", "healthy", "latency-bound", "-", "40.000000")
    two = [{"connection": number, "session": 0, "is_iscsi": True} for number in (1, 2)]
    found = others(two, *range(25))
    assert [row[:3] for row in found[:2]] == [(f"connection {number}", "disk0", "loss") for number in (1, 2)]
    assert (found[2][0], len(found)) == ("session 24", 27)
    # those that do not fit are counted, and are the least severe
    monkeypatch.setattr(captures, "ROWS", 24)
    found = others([], *range(25))
    assert (found[-2][0], found[-1]) == ("session 1", ("1 more row is not shown.",))


# --- a document


def problem(name: str) -> FoundProblem:
    return FoundProblem(name, "warning", "", "text", ())


def test_what_a_document_says_first() -> None:
    opening = Opening("Diagnosis of session 0", "Slow. Very.")
    assert opening.lines == ("Slow.", "Very.")
    assert problem("small_r2t_rounds").title == "Small R2T rounds"
    assert problem("r2t_late").title == "R2T late"
    assert problem("nop_timeout").title == "NOP timeout"
    assert [problem(name).title for name in ("io_outage", "no_io", "slow_ratio")] == [
        "I/O outage",
        "No I/O",
        "Slow ratio",
    ]
    assert TimeShare("transfer", "", 0.256, "1", "#000").percent == "26 %"
    section = Section("Mirrors", identity="mirrors")
    document = Document("t", "s", opening, (section,))
    assert (document.section("mirrors"), document.section("heat")) == (section, None)


def test_code_in_markdown_has_a_fence_that_is_longer_than_any_in_it() -> None:
    texts = ("a", "a`b", "a``b`c", "`a", "a`", "a|b")
    assert [str(code(text)) for text in texts] == ["`a`", "``a`b``", "```a``b`c```", "`` `a ``", "`` a` ``", "`a\\|b`"]
    assert str(prose("use `a_b` or *c*, d_e and _f")) == "use `a_b` or \\*c\\*, d_e and \\_f"
