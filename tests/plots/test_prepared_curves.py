"""What the curves take from the tables: which rows, how many, their names and amounts. The tables are made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import ladder_columns as ladder
from iscsitrace.plots.kind import CommandGroups
from iscsitrace.plots.kinds import cycles, streams, time_breakdown
from iscsitrace.plots.kinds import ladder as ladder_kind
from iscsitrace.plots.view import View
from iscsitrace.tables.schema import CATEGORIES
from tests.support.streams_by_hand import SECOND, Work
from tests.support.tables_by_hand import MS, table, with_waits

VIEW = View(origin_ns=0, start_ns=0, end_ns=10 * SECOND, connections=(0,))

CONNECTION = {"connection": 0, "time_last_ns": 9 * MS}


def commands(latencies_ms: list[int | None]) -> list[dict[str, Any]]:
    """Reads of one connection, 1 ms apart; None: without a status."""
    return [
        {
            "cycle": number,
            "connection": 0,
            "operation": "read",
            "is_read": True,
            "bytes": 4096,
            "command_first_ns": number * MS,
            "status_ns": None if latency is None else (number + latency) * MS,
        }
        for number, latency in enumerate(latencies_ms)
    ]


# --- ladder


def pdu(opcode: int, first_ms: int, last_ms: int | None, **columns: Any) -> dict[str, Any]:
    last_ns = None if last_ms is None else last_ms * MS
    return {"connection": 0, "opcode": opcode, "time_first_ns": first_ms * MS, "time_last_ns": last_ns} | columns


def ladder_of(pdus: list[dict[str, Any]]) -> ladder.Ladder:
    connection = {
        "connection": 0,
        "is_iscsi": True,
        "rtt_to_initiator_min_ns": 2 * MS,
        "rtt_to_target_min_ns": 6 * MS,
    }
    segment = {"connection": 0, "time_ns": MS, "payload_bytes": 48, "segment_class": "new"}
    return ladder.compute(
        table("connections", connection),
        table("cycles", *commands([5])),
        table("segments", segment),
        table("pdus", *pdus),
        table("budget"),
        VIEW,
    )


def test_a_ladder_names_pdus_as_the_rfc_does_and_shows_their_bytes() -> None:
    """Opcodes: RFC 7143, section 11.2.1.2. An R2T asks for bytes, a Data PDU carries them, a command has none here."""
    drawn = ladder_of(
        [
            pdu(0x01, 1, 1, to_target=True, data_segment_length=512, expected_data_transfer_length=8192),
            pdu(0x31, 2, 2, expected_data_transfer_length=7680),
            pdu(0x05, 3, 4, to_target=True, data_segment_length=7680),
            pdu(0x25, 4, 5, data_segment_length=4096, has_status=True),
            pdu(0x21, 5, 5, has_status=True),
            pdu(0x20, 6, 6),
            pdu(0x3E, 7, 7),
        ]
    )
    assert [(each.title, each.data_bytes) for each in drawn.pdus] == [
        ("Command", 0),
        ("R2T", 7680),
        ("Data-Out", 7680),
        ("Data-In", 4096),
        ("Response", 0),
        ("NOP-In", 0),
        ("opcode 0x3e", 0),
    ]
    assert [each.to_target for each in drawn.pdus] == [True, False, True, False, False, False, False]
    assert [each.has_status for each in drawn.pdus] == [False, False, False, True, True, False, False]
    assert [(column.place, column.host) for column in drawn.columns] == [(0, "initiator"), (0.25, ""), (1, "target")]
    # half of the least RTTs: 1 ms to the initiator, 3 ms to the target
    command, r2t = drawn.pdus[:2]
    apart = [[(time_ns or 0) - (each.first_ns[1] or 0) for time_ns in each.first_ns] for each in (command, r2t)]
    assert apart == [[-MS, 0, 3 * MS], [MS, 0, -3 * MS]]
    assert drawn.cycles == ("0 read",)


def test_a_ladder_names_what_opens_and_ends_a_connection() -> None:
    rows = [
        {"connection": 0, "time_ns": (1 + number) * MS, "flags": flags} for number, flags in enumerate((16, 18, 17, 20))
    ]
    connection = {"connection": 0, "is_iscsi": True, "rtt_to_initiator_min_ns": 0, "rtt_to_target_min_ns": 6 * MS}
    tables = table("connections", connection), table("cycles", *commands([5])), table("segments", *rows)
    drawn = ladder.compute(*tables, table("pdus", pdu(0x01, 1, 1, to_target=True)), table("budget"), VIEW)
    shown = [(each.title, each.first_ns[1], each.data_bytes) for each in drawn.pdus]
    assert shown == [("Command", MS, 0), ("SYN", 2 * MS, 0), ("FIN", 3 * MS, 0), ("RST", 4 * MS, 0)]


def test_a_ladder_names_a_command_that_its_initiator_sent_before_the_view() -> None:
    sent = ladder_of([pdu(0x01, 1, 1, to_target=True), pdu(0x01, 0, 0, to_target=True)]).pdus
    # the initiator is 1 ms before the tap
    assert [each.sent_ns for each in sent] == [0, -MS]
    views = [replace(VIEW, start_ns=start_ns) for start_ns in (MS, 5 * MS)]
    assert [ladder_kind._shown_ns(view, sent[0]) for view in views] == [MS, 0]


OPCODES = {
    0x00: "NOP-Out", 0x01: "Command", 0x02: "Task Management", 0x03: "Login Request", 0x04: "Text Request",
    0x05: "Data-Out", 0x06: "Logout Request", 0x10: "SNACK", 0x20: "NOP-In", 0x21: "Response",
    0x22: "Task Management Response", 0x23: "Login Response", 0x24: "Text Response", 0x25: "Data-In",
    0x26: "Logout Response", 0x31: "R2T", 0x32: "Asynchronous Message", 0x3F: "Reject",
}  # fmt: skip
"""RFC 7143, section 11.2.1.2."""


def test_every_opcode_of_the_rfc_has_its_title() -> None:
    drawn = ladder_of([pdu(opcode, 1, 2) for opcode in range(0x40)])
    titles = {opcode: OPCODES.get(opcode, f"opcode 0x{opcode:02x}") for opcode in range(0x40)}
    # of more than 60 PDUs the first and the last are labelled
    assert [each.title for each in drawn.pdus] == [*list(titles.values())[:30], *list(titles.values())[-30:]]
    (last,) = ladder_of([pdu(0x3F, 1, 2)]).pdus
    assert last.title == "Reject"


def test_a_pdu_ends_with_its_last_byte_or_where_its_end_is_missing_with_its_first() -> None:
    drawn = ladder_of([pdu(0x25, 3, 9), pdu(0x25, 10, None)])
    assert [(each.first_ns[1], each.last_ns[1]) for each in drawn.pdus] == [(3 * MS, 9 * MS), (10 * MS, 10 * MS)]


def slowest(*rows: dict[str, Any]) -> int:
    return ladder.slowest(*with_waits(rows, CONNECTION), VIEW)


def test_the_slowest_command_may_have_no_status() -> None:
    # until the last packet of the connection, at 9 ms: 8.9 ms
    assert slowest(*commands([3, None, 9, 4])) == 2
    assert slowest(*commands([3, None, 8, 4])) == 1
    assert slowest(*commands([None, 0])) == 0
    # a read or write before a slower INQUIRY, and that where there is no other
    inquiry = commands([9])[0] | {"cycle": 7, "operation": "inquiry"}
    assert slowest(*commands([3, 4]), inquiry) == 1
    assert slowest(inquiry) == 7
    missing = commands([None])[0] | {"has_capture_gap": True}
    with pytest.raises(InputInvalid, match="no SCSI command of the view has a known latency"):
        slowest(missing)


# --- waterfall


def test_beyond_80_commands_each_row_is_the_slowest_of_its_neighbors() -> None:
    assert cycles.compute(*with_waits(commands([1] * 80), CONNECTION), VIEW).cycles.tolist() == list(range(80))
    drawn = cycles.compute(*with_waits(commands([1, 2] * 80), CONNECTION), VIEW)
    assert drawn.cycles.tolist() == list(range(1, 160, 2))
    assert (drawn.cycle_count, set(drawn.latencies_ns.tolist())) == (160, {2 * MS})


def test_what_is_unknown_of_a_command_has_no_length() -> None:
    # a command that was cut off counts as a data command
    unnamed = commands([None])[0] | {"cycle": 1, "operation": None, "bytes": None, "command_first_ns": 2 * MS}
    known = commands([3])[0]
    drawn = cycles.compute(*with_waits([known, unnamed], CONNECTION), VIEW)
    assert (drawn.latencies_ns.tolist(), drawn.has_status.tolist()) == ([3 * MS, 0], [True, False])
    assert (drawn.operations, drawn.sizes) == (("read", "unknown"), (4096, None))
    # without data the whole latency is the request
    assert {name: lengths.tolist() for name, lengths in drawn.phases.items() if lengths.any()} == {
        "request": [3 * MS, 0]
    }
    # in flight until the last packet of the connection, at 9 ms
    assert drawn.open_ns.tolist() == [3 * MS, 7 * MS]


def test_data_commands_alone_have_rows_unless_there_are_none() -> None:
    operations = ["inquiry", "read", "inquiry", "test_unit_ready", "write", "read"]
    rows = [row | {"operation": word} for row, word in zip(commands([1] * 6), operations, strict=True)]
    drawn = cycles.compute(*with_waits(rows, CONNECTION), VIEW)
    assert (drawn.operations, drawn.cycle_count) == (("read", "write", "read"), 3)
    assert drawn.left_out == {"inquiry": 2, "test_unit_ready": 1}
    drawn = cycles.compute(*with_waits([rows[0], rows[2], rows[3]], CONNECTION), VIEW)
    assert (drawn.operations, drawn.left_out) == (("inquiry", "inquiry", "test_unit_ready"), {})
    # requested by number
    requested = View(origin_ns=0, start_ns=0, end_ns=10 * MS, connections=(0,), cycles=range(3))
    drawn = cycles.compute(*with_waits(rows, CONNECTION), requested)
    assert (drawn.operations, drawn.left_out) == (("inquiry", "read", "inquiry"), {})


# --- time breakdown


def test_the_totals_of_eight_scopes_are_drawn() -> None:
    rows = [
        {"session": number, "connection": number, "time_first_ns": 0, "time_last_ns": 5 * MS, "part": "propagation"}
        for number in range(9)
    ]
    view = View(origin_ns=0, start_ns=0, end_ns=10 * MS, connections=tuple(range(9)))
    drawn = time_breakdown.compute(table("budget", *rows), table("cycles"), np.array([0, 10 * MS]), view)
    assert list(drawn.totals_ns) == [f"connection {number}" for number in range(8)]
    assert (drawn.scope_count, drawn.added) == (9, "9 sessions, added up")


def test_of_more_than_eight_scopes_those_with_the_longest_waits_are_drawn() -> None:
    # each waits for a millisecond more than the one before, but that of most time, which only transfers
    rows = [
        {
            "session": number,
            "connection": number,
            "time_first_ns": 0,
            "time_last_ns": (1 + number) * MS,
            "part": "transfer" if number == 9 else "propagation",
        }
        for number in range(10)
    ]
    view = View(origin_ns=0, start_ns=0, end_ns=10 * MS, connections=tuple(range(10)))
    drawn = time_breakdown.compute(table("budget", *rows), table("cycles"), np.array([0, 10 * MS]), view)
    assert list(drawn.totals_ns) == [f"connection {number}" for number in range(8, 0, -1)]
    assert drawn.scope_count == 10


def test_connections_of_one_session_are_named_as_it() -> None:
    rows = [
        {"session": 3, "connection": number, "time_first_ns": 0, "time_last_ns": 5 * MS, "part": "transfer"}
        for number in (0, 1)
    ]
    view = View(origin_ns=0, start_ns=0, end_ns=10 * MS, connections=(0, 1))
    assert (
        time_breakdown.compute(table("budget", *rows), table("cycles"), np.array([0, 10 * MS]), view).added
        == "session 3"
    )


# --- streams


def test_only_a_job_that_ran_in_the_view_is_named() -> None:
    work = Work()
    shown = [work.stream(1_000, session=0), work.stream(1_000, session=0)]
    (job,) = work.jobs()

    def named(start_ns: int, end_ns: int) -> bool:
        view = View(origin_ns=0, start_ns=start_ns, end_ns=end_ns, connections=tuple(shown))
        return streams._job([job], view, shown) is not None

    # it runs from 1 s to 2 s
    assert named(0, 10 * SECOND)
    assert not named(0, SECOND // 2)
    assert not named(3 * SECOND, 4 * SECOND)


# --- packets of a ladder


def long_ladder(times_ms: list[float], pdus: list[dict[str, Any]] | None = None) -> ladder.Ladder:
    """Every fourth packet is an ACK, every tenth of the others a retransmission; the RTT is 8 ms."""
    packets = [
        {
            "connection": 0,
            "time_ns": int(at * MS),
            "payload_bytes": 0 if number % 4 == 3 else 1448,
            "segment_class": "empty" if number % 4 == 3 else "retransmission" if number % 10 == 0 else "new",
        }
        for number, at in enumerate(times_ms)
    ]
    path = {"connection": 0, "is_iscsi": True, "rtt_to_initiator_min_ns": 2 * MS, "rtt_to_target_min_ns": 6 * MS}
    stretches = [stretch(0, 0, 0, 100 * MS, "congestion_window"), stretch(0, 0, 100 * MS, SECOND, "loss_recovery")]
    return ladder.compute(
        table("connections", path),
        table("cycles", *commands([1_000])),
        table("segments", *packets),
        table("pdus", *(pdus or [])),
        table("budget", *stretches),
        View(0, 0, SECOND, (0,)),
    )


def in_bursts(count: int) -> list[float]:
    """Bursts of four packets every 10 ms."""
    return [10 * burst + 0.1 * number for burst in range(count) for number in range(4)]


def shown_count(found: ladder.Ladder) -> int:
    return sum(len(each.times_ns) for each in (found.data, found.again, found.acks))


def test_of_more_than_16_bursts_a_ladder_shows_the_first_and_the_last_five() -> None:
    whole = long_ladder(in_bursts(16))
    assert (whole.middle, shown_count(whole)) == (None, 64)
    found = long_ladder(in_bursts(17))
    assert found.middle is not None
    # bursts 5 to 11 of 0 to 16: packets 20 to 47
    assert (found.middle.start_ns, found.middle.end_ns) == (50 * MS, 110 * MS + 3 * MS // 10)
    # 7 ACKs; of the others 20, 30 and 40 are retransmissions
    assert (found.middle.data_count, found.middle.again_count, found.middle.ack_count) == (18, 3, 7)
    assert shown_count(found) == 68 - 28
    # until 100 ms, and from there
    assert found.middle.parts_ns == {"congestion_window": 50 * MS, "loss_recovery": 10 * MS + 3 * MS // 10}
    assert [(each.start_ns, each.end_ns, each.part) for each in found.stretches] == [
        (0, 50 * MS, "congestion_window"),
        (found.middle.end_ns, SECOND, "loss_recovery"),
    ]


def test_of_more_than_400_packets_without_a_pause_a_ladder_shows_90_at_either_end() -> None:
    assert long_ladder([0.1 * number for number in range(400)]).middle is None
    found = long_ladder([0.1 * number for number in range(401)])
    assert found.middle is not None
    assert (found.middle.start_ns, found.middle.end_ns) == (9 * MS, 31 * MS)
    counts = found.middle.data_count + found.middle.again_count + found.middle.ack_count
    assert (shown_count(found), counts) == (180, 221)


def test_a_ladder_counts_the_pdus_of_its_middle() -> None:
    pdus = [
        pdu(0x01, 0, 0, to_target=True),
        pdu(0x25, 10, 20),
        pdu(0x25, 40, 60),
        pdu(0x25, 60, 70),
        pdu(0x25, 70, 100),
        pdu(0x31, 100, 100),
        pdu(0x25, 110, 130, has_status=True),
    ]
    found = long_ladder(in_bursts(17), pdus)
    assert found.middle is not None
    assert found.middle.pdus == {"Data-In": 3, "R2T": 1}
    # one that ends after the middle has its status there
    assert [((each.first_ns[1] or 0) // MS, each.has_status) for each in found.pdus] == [
        (0, False), (10, False), (40, False), (110, True),
    ]  # fmt: skip


def test_a_ladder_shows_packets_and_pdus_that_touch_its_view() -> None:
    rows = [(100, 0, "empty"), (110, 1, "new"), (120, 1, "retransmission"), (130, 1, "copy"), (201, 1, "new")]
    segments = [
        {"connection": 0, "time_ns": at, "payload_bytes": length, "segment_class": kind} for at, length, kind in rows
    ]
    pdus = [
        {"connection": on, "opcode": 0x25, "time_first_ns": first, "time_last_ns": last}
        for on, first, last in ((0, 50, 99), (0, 50, 100), (0, 200, 300), (0, 201, 300), (1, 150, 160))
    ]
    path = {"connection": 0, "is_iscsi": True, "rtt_to_initiator_min_ns": 0, "rtt_to_target_min_ns": 8}
    found = ladder.compute(
        table("connections", path),
        table("cycles"),
        table("segments", *segments),
        table("pdus", *pdus),
        table("budget"),
        View(0, 100, 200, (0,)),
    )
    assert [each.times_ns[:, 1].tolist() for each in (found.acks, found.data, found.again)] == [[100], [110], [120]]
    assert [(each.first_ns[1], each.last_ns[1]) for each in found.pdus] == [(50, 100), (200, 300)]
    assert found.middle is None


def test_waits_of_a_ladder_are_those_of_its_connection_cut_to_the_view() -> None:
    def stretch(first: int, last: int, part: str, connection: int | None = 0) -> dict[str, Any]:
        return {"connection": connection, "time_first_ns": first, "time_last_ns": last, "part": part}

    rows = [
        stretch(0, 100, "propagation"),
        stretch(90, 110, "propagation"),
        stretch(110, 120, "transfer"),
        stretch(120, 130, "loss_recovery", None),
        stretch(130, 140, "loss_recovery", 1),
        stretch(190, 250, "target_service"),
        stretch(200, 250, "target_service"),
    ]
    found, _ = ladder._stretches(table("budget", *rows), View(0, 100, 200, (0,)), None)
    assert [(each.start_ns, each.end_ns, each.part) for each in found] == [
        (100, 110, "propagation"),
        (110, 120, "transfer"),
        (190, 200, "target_service"),
    ]


# --- sums of the time breakdown


def stretch(session: int, connection: int | None, first: int, last: int, part: str) -> dict[str, Any]:
    return {"session": session, "connection": connection, "time_first_ns": first, "time_last_ns": last, "part": part}


BUDGET = [
    stretch(0, 0, 0, 10, "transfer"),
    stretch(0, 0, 10, 40, "propagation"),
    stretch(1, 1, 0, 10, "target_service"),
    stretch(1, 1, 20, 40, "transfer"),
]


def test_shares_add_up_the_sessions_of_a_view() -> None:
    edges, both = np.array([0, 20, 40, 60]), View(0, 0, 60, (0, 1))
    found = time_breakdown.compute(table("budget", *BUDGET), table("cycles"), edges, both)
    by_part = {
        part: shares.tolist()
        for part, shares in zip(CATEGORIES["budget_part"], found.shares, strict=True)
        if shares.any()
    }
    # 30 ns are known of the first 20, 40 of the second, none of the third
    assert by_part == {
        "transfer": [10 / 30, 20 / 40, 0],
        "propagation": [10 / 30, 20 / 40, 0],
        "target_service": [10 / 30, 0, 0],
    }
    assert (found.added, found.scope_count) == ("2 sessions, added up", 2)
    alone = time_breakdown.compute(table("budget", *BUDGET), table("cycles"), edges, View(0, 0, 60, (1,)))
    assert (alone.added, list(alone.totals_ns)) == ("", ["connection 1"])
    assert alone.totals_ns["connection 1"].sum() == 30


def test_idle_is_what_is_not_transfer_of_the_measured_time() -> None:
    edges = np.array([0, 20, 40, 60])
    found = time_breakdown.idle_share(table("budget", *BUDGET), table("cycles"), edges, View(0, 0, 60, (1,)))
    assert found is not None
    np.testing.assert_array_equal(found, [1, 0, np.nan])
    assert time_breakdown.idle_share(table("budget"), table("cycles"), edges, View(0, 0, 60, (1,))) is None


def test_a_bin_of_one_nanosecond_has_its_share() -> None:
    edges, first = np.array([0, 1]), View(0, 0, 1, (0,))
    idle = time_breakdown.idle_share(table("budget", *BUDGET), table("cycles"), edges, first)
    assert idle is not None
    assert idle.tolist() == [0]
    shares = time_breakdown.compute(table("budget", *BUDGET), table("cycles"), edges, first).shares
    assert shares[CATEGORIES["budget_part"].index("transfer")].tolist() == [1]


def test_a_session_of_several_connections_has_a_total_of_its_own() -> None:
    rows = [stretch(0, None, 0, 10, "transfer"), stretch(0, 0, 0, 10, "transfer"), stretch(0, 1, 5, 10, "propagation")]
    found = time_breakdown.compute(table("budget", *rows), table("cycles"), np.array([0, 10]), View(0, 0, 10, (0, 1)))
    assert {name: int(totals.sum()) for name, totals in found.totals_ns.items()} == {
        "session 0": 10,
        "connection 0": 10,
        "connection 1": 5,
    }
    alone = time_breakdown.compute(table("budget", *rows), table("cycles"), np.array([0, 10]), View(0, 0, 10, (0,)))
    assert list(alone.totals_ns) == ["connection 0"]


def test_the_time_of_a_lun_is_that_with_its_commands_in_flight() -> None:
    rows = [
        stretch(0, 0, 0, 10, "transfer"),
        stretch(0, 0, 10, 30, "target_service"),
        stretch(0, 0, 30, 40, "propagation"),
        stretch(1, 1, 0, 40, "loss_recovery"),
    ]
    command = {"session": 0, "connection": 0, "operation": "read", "is_read": True, "bytes": 512}
    commands = table(
        "cycles",
        # LUN 0: twice at once, and again; LUN 1 meanwhile; an INQUIRY, and another session
        *({"cycle": number, "command_first_ns": at} | command for number, at in enumerate((0, 4, 32, 8))),
        {"cycle": 4, "command_first_ns": 0} | command | {"operation": "inquiry"},
        {"cycle": 5, "command_first_ns": 0} | command | {"session": 1, "connection": 1},
    )
    told = CommandGroups("lun", ["LUN 0", "LUN 1"], np.array([0, 0, 0, 1, 0, 0]))
    ends_ns = np.array([6, 12, 36, 30, 40, 20])
    view = View(0, 2, 40, (0, 1))
    found = time_breakdown.compute(table("budget", *rows), commands, np.array([2, 40]), view, told=(told, ends_ns))
    parts = {
        name: {CATEGORIES["budget_part"][part]: int(ns) for part, ns in enumerate(totals) if ns}
        for name, totals in found.totals_ns.items()
    }
    assert parts == {
        # from 2 to 12 and from 32 to 36; and from 2 to 20 in session 1
        "LUN 0": {"transfer": 8, "target_service": 2, "propagation": 4, "loss_recovery": 18},
        # from 8 to 30
        "LUN 1": {"transfer": 2, "target_service": 20},
    }
    assert time_breakdown.title(found) == "Time breakdown of 2 sessions, added up, by LUN"
    assert any(
        "counts for each of them: iscsitrace plot latency --by lun" in note for note in time_breakdown.notes(found)
    )
