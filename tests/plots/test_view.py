"""Which connections, commands and time a view shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.plots import view
from iscsitrace.plots.kinds import ladder
from iscsitrace.plots.view import View, Zoom
from iscsitrace.tables.table import Table
from tests.support.tables_by_hand import MS, table


def connection(number: int, session: int, to_target: int, to_initiator: int) -> dict[str, Any]:
    amounts = {"captured_bytes_to_target": to_target, "captured_bytes_to_initiator": to_initiator}
    times = {"time_first_ns": 100 * number, "time_last_ns": 10_000 + number}
    return {"connection": number, "session": session, "is_iscsi": True} | amounts | times


CONNECTIONS = table(
    "connections",
    connection(0, 0, 50, 40),
    connection(1, 0, 10, 90),
    connection(2, 1, 60, 30),
    {"connection": 3, "captured_bytes_to_target": 999},
)


def command(number: int, on: int, start: int, status: int | None, **columns: Any) -> dict[str, Any]:
    row = {"cycle": number, "connection": on, "command_first_ns": start, "status_ns": status}
    return row | {"operation": "inquiry"} | columns


CYCLES = table(
    "cycles",
    command(0, 0, 1_000, 1_100),
    command(1, 0, 1_200, 1_300, data_acked_ns=1_400),
    command(2, 1, 1_250, None, next_command_ns=1_500),
    command(3, 2, 2_000, None),
)


def shown(**zoom: Any) -> View:
    return view.of_connection(CONNECTIONS, CYCLES, Zoom(**zoom), 7)


def test_the_busiest_connection_is_shown_from_its_first_to_its_last_packet() -> None:
    assert shown() == View(7, 100, 10_001, (1,), None, to_target=False)
    assert shown(session=1) == View(7, 200, 10_002, (2,), 1, to_target=True)
    assert shown(connection=0) == View(7, 0, 10_000, (0,), None, to_target=True)
    assert shown(connection=0, to_target=False).to_target is False
    even = view.of_connection(table("connections", connection(0, 0, 5, 5)), CYCLES, Zoom(), 0)
    assert even.to_target is False
    more = view.of_connection(table("connections", connection(0, 0, 6, 5)), CYCLES, Zoom(), 0)
    assert more.to_target is True


def test_the_busiest_connection_is_one_of_the_requested_time() -> None:
    rows = [connection(0, 0, 10, 90), connection(1, 0, 10, 20), connection(2, 1, 10, 30)]
    rows = [
        row | {"time_first_ns": 100 * row["connection"], "time_last_ns": 100 * row["connection"] + 99} for row in rows
    ]
    connections = table("connections", *rows)

    def found(**zoom: int) -> int:
        return view.of_connection(connections, CYCLES, Zoom(**zoom), 0).connection  # type: ignore[arg-type]

    assert found() == 0
    assert (found(time_to_ns=150), found(time_from_ns=99), found(time_from_ns=100)) == (0, 0, 2)
    assert (found(time_from_ns=120, time_to_ns=199), found(time_from_ns=300, time_to_ns=400)) == (1, 0)
    assert found(time_from_ns=120, time_to_ns=199, connection=0) == 0
    with pytest.raises(InputInvalid, match=r"^nothing to draw: no packets after --from and before --to$"):
        found(time_from_ns=300)


def test_commands_bring_their_connection_and_a_margin_of_a_twenty_fifth() -> None:
    # 1000 to 1400, and 16 and 1 more on either side
    assert shown(cycles=range(2)) == View(7, 983, 1_417, (0,), None, to_target=True, cycles=range(2))
    # until the next command, where there is no status
    assert (shown(cycles=range(2, 3)).start_ns, shown(cycles=range(2, 3)).end_ns) == (1_239, 1_511)
    # a command after which nothing is known is 1 ns long
    assert (shown(cycles=range(3, 4)).start_ns, shown(cycles=range(3, 4)).end_ns) == (1_999, 2_002)
    odd = view.of_connection(CONNECTIONS, table("cycles", command(0, 0, 2_001, None)), Zoom(cycles=range(1)), 7)
    assert (odd.start_ns, odd.end_ns) == (2_000, 2_003)
    # another connection than that of the commands was requested
    assert shown(cycles=range(2), connection=1).connections == (1,)
    assert shown(cycles=range(2), session=1).connections == (2,)


def test_requested_times_narrow_those_of_commands_and_replace_all_others() -> None:
    def times(**zoom: Any) -> tuple[int, int]:
        found = shown(**zoom)
        return found.start_ns, found.end_ns

    assert times(time_from_ns=5, time_to_ns=90_000) == (5, 90_000)
    assert times(time_from_ns=500) == (500, 10_001)
    assert times(time_to_ns=500) == (100, 500)
    assert times(cycles=range(2), time_from_ns=5, time_to_ns=90_000) == (983, 1_417)
    assert times(cycles=range(2), time_from_ns=1_000, time_to_ns=1_100) == (1_000, 1_100)
    # an instant is 1 ns long
    assert times(time_from_ns=500, time_to_ns=500) == (500, 501)
    with pytest.raises(InputInvalid, match="no packets after --from and before --to"):
        shown(time_from_ns=501, time_to_ns=500)


def test_tasks_are_shown_from_the_first_command_to_the_last_status_or_command() -> None:
    def tasks(cycles: Table = CYCLES, **zoom: Any) -> View:
        return view.of_tasks(CONNECTIONS, cycles, Zoom(**zoom), 7)

    # what is left out is longer than what is shown
    assert tasks() == View(7, 1_000, 2_000, (0, 1, 2), None, to_target=False, left_out_ns=(0, 8_002))
    assert tasks(time_from_ns=5).left_out_ns == (0, 0)
    assert tasks(session=0) == View(7, 1_000, 1_300, (0, 1), 0, to_target=False, left_out_ns=(1_000, 8_701))
    found = tasks(connection=2)
    assert found == View(7, 2_000, 2_001, (2,), None, to_target=True, left_out_ns=(1_800, 8_001))
    for zoom, scope in (({}, "the capture"), ({"session": 1}, "session 1"), ({"connection": 2}, "connection 2")):
        with pytest.raises(InputInvalid, match=f"^nothing to draw: {scope} has no SCSI commands$"):
            tasks(table("cycles"), **zoom)


SECOND = 1_000_000_000


def data_command(number: int, start_s: float, length_s: float = 1, size: int = 65_536) -> dict[str, Any]:
    start, end = int(start_s * SECOND), int((start_s + length_s) * SECOND)
    return command(number, 0, start, end, operation="read", bytes=size)


def of_data(*rows: dict[str, Any], **zoom: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """The view of a connection from 0 to 100 s, and what it leaves out before and after; in seconds."""
    ends = {"time_first_ns": 0, "time_last_ns": 100 * SECOND}
    found = view.of_connection(
        table("connections", connection(0, 0, 5, 5) | ends), table("cycles", *rows), Zoom(**zoom), 0
    )
    before, after = found.left_out_ns
    return (found.start_ns / SECOND, found.end_ns / SECOND), (before / SECOND, after / SECOND)


def test_a_connection_is_shown_while_it_reads_and_writes() -> None:
    work = [data_command(number, 40 + number) for number in range(20)]
    # 40 to 60 s, and a twenty-fifth more on either side
    assert of_data(*work) == ((39.2, 60.8), (39.2, 39.2))
    # requested times stand
    assert of_data(*work, time_from_ns=0) == ((0, 100), (0, 0))
    assert of_data(*work, time_to_ns=50 * SECOND) == ((0, 50), (0, 0))
    assert of_data(*work, is_whole=True) == ((0, 100), (0, 0))
    # commands that transfer nothing, or were cut off, add nothing to what moved
    empty = [command(each, 0, each * SECOND, (each + 1) * SECOND, operation="write", bytes=0) for each in (40, 90)]
    assert of_data(*empty) == ((0, 100), (0, 0))
    cut = command(98, 0, 10 * SECOND, 11 * SECOND, operation=None)
    assert of_data(cut, *work) == ((39.2, 60.8), (39.2, 39.2))
    # few bytes long before and long after
    few = [data_command(98, 10, size=512), data_command(99, 95, size=512)]
    assert of_data(*few, *work) == ((39.2, 60.8), (39.2, 39.2))
    # as many as a tenth of the bytes are not few
    many = [data_command(98, 10, size=2 * 65_536), data_command(99, 95, size=2 * 65_536)]
    assert of_data(*many, *work)[0] == (pytest.approx(10 - 86 * 0.04), 100)
    # short of a tenth of the time before and after
    assert of_data(data_command(0, 8, 84)) == ((0, 100), (0, 0))
    # non-I/O commands do not count, and without others all is shown
    assert of_data(command(0, 0, 50 * SECOND, None, operation="inquiry", bytes=36)) == ((0, 100), (0, 0))
    # without a status it may be in flight until the end: its stall is shown
    stalled = command(99, 0, 60 * SECOND, None, operation="read", bytes=512)
    assert of_data(*work, stalled) == ((40 - 60 * 0.04, 100), (40 - 60 * 0.04, 0))
    # as the last packet of all, alone, it does not last
    assert of_data(stalled | {"command_first_ns": 100 * SECOND}) == ((0, 100), (0, 0))


@pytest.mark.parametrize(
    ("zoom", "message"),
    [
        ({"session": 2}, "there is no session 2; there are 0, 1"),
        ({"session": 0, "connection": 2}, "there is no iSCSI connection 2; there are 0, 1"),
        ({"cycles": range(3, 5)}, "there is no cycle 4; the capture has 4 commands, counted from 0"),
    ],
)
def test_what_was_requested_and_is_not_there(zoom: dict[str, Any], message: str) -> None:
    with pytest.raises(InputInvalid, match=f"^{message}$"):
        shown(**zoom)


def test_a_capture_without_commands_or_iscsi() -> None:
    with pytest.raises(InputInvalid, match=r"^there is no cycle 0; the capture has none$"):
        view.of_connection(CONNECTIONS, table("cycles"), Zoom(cycles=range(1)), 0)
    with pytest.raises(InputInvalid, match=r"^nothing to draw: the capture has no iSCSI connection$"):
        view.of_connection(table("connections", {"connection": 3}), CYCLES, Zoom(), 0)


def test_commands_are_picked_by_number_and_connection() -> None:
    def picked(*connections: int, cycles: range | None = None) -> list[int]:
        chosen = view.picked_cycles(CYCLES, View(0, 0, 0, connections, cycles=cycles))
        return np.flatnonzero(chosen).tolist()

    assert picked(0, 2) == [0, 1, 3]
    assert picked(0, 1, 2, cycles=range(1, 3)) == [1, 2]


def test_a_view_includes_both_ends_and_commands_in_flight_there() -> None:
    assert View(0, 5, 9).covers(np.array([4, 5, 9, 10])).tolist() == [False, True, True, False]

    def seen(start: int, end: int) -> list[int]:
        numbers: list[int] = CYCLES.select(view.seen_cycles(CYCLES, View(0, start, end, (0, 1)))).raw("cycle").tolist()
        return numbers

    assert seen(1_100, 1_200) == [0, 1]
    assert seen(1_101, 1_199) == []
    # one without a status is there at its command
    assert seen(1_250, 1_250) == [1, 2]
    assert seen(1_251, 1_260) == [1]


@pytest.mark.parametrize(
    ("rtt_ms", "zoom", "shown_ms"),
    [
        # a command of 100 ms has margins of 4 ms, and of a round trip at most
        (10, {}, (6, 114)),
        (3, {}, (7, 113)),
        (None, {}, (6, 114)),
        # what is asked for stays
        (3, {"time_from_ns": 2 * MS}, (6, 114)),
    ],
)
def test_a_ladder_shows_a_round_trip_around_its_command_at_most(
    rtt_ms: int | None, zoom: dict[str, Any], shown_ms: tuple[int, int]
) -> None:
    rtts = {"rtt_to_initiator_min_ns": MS, "rtt_to_target_min_ns": None if rtt_ms is None else (rtt_ms - 1) * MS}
    row = connection(1, 0, 0, 1) | rtts | {"time_first_ns": 0, "time_last_ns": 500 * MS}
    read = {"cycle": 0, "connection": 1, "command_first_ns": 10 * MS, "status_ns": 110 * MS, "operation": "read"}
    tables = {"connections": table("connections", row), "cycles": table("cycles", read)}
    trace = SimpleNamespace(**tables, table=lambda name: tables.get(name, table(name)))
    seen = ladder.KIND.view(cast(Any, trace), Zoom(cycles=range(1), **zoom), 0)
    assert (seen.start_ns, seen.end_ns) == pytest.approx([each * MS for each in shown_ms], abs=2)


def test_a_ladder_shows_times_that_are_asked_for_without_a_command() -> None:
    """Where no command was in flight, too: pings."""
    row = connection(1, 0, 0, 1) | {"time_first_ns": 0, "time_last_ns": 500 * MS}
    read = {"cycle": 0, "connection": 1, "command_first_ns": 10 * MS, "status_ns": 110 * MS, "operation": "read"}
    tables = {"connections": table("connections", row), "cycles": table("cycles", read)}
    trace = SimpleNamespace(**tables, table=lambda name: tables.get(name, table(name)))
    for from_ms, to_ms in ((50, 300), (200, 400)):
        zoom = Zoom(time_from_ns=from_ms * MS, time_to_ns=to_ms * MS)
        seen = ladder.KIND.view(cast(Any, trace), zoom, 0)
        assert (seen.start_ns, seen.end_ns, seen.cycles) == (from_ms * MS, to_ms * MS, None)
