"""How long commands waited: until their status, their end without one, or the end of the capture."""

from __future__ import annotations

from typing import Any

from iscsitrace.measure import waits
from iscsitrace.measure.waits import Waits
from tests.support.tables_by_hand import MS, table

ENDED = {"connection": 1, "time_last_ns": 900 * MS, "fin_to_target_ns": 890 * MS}
OPEN = {"connection": 2, "time_last_ns": 700 * MS}


def command(number: int, status_ms: int | None = None, **columns: Any) -> dict[str, Any]:
    """Sent at 100 ms."""
    row: dict[str, Any] = {
        "cycle": number,
        "connection": 1,
        "lun": 0,
        "command_first_ns": 100 * MS,
        "command_last_ns": 100 * MS,
    }
    row |= {"status_ns": None if status_ms is None else status_ms * MS, "is_complete": status_ms is not None}
    return row | columns


def ended(number: int, end_ms: int, ended_by: str, **columns: Any) -> dict[str, Any]:
    """Without a status."""
    return command(number, end_ns=end_ms * MS, ended_by=ended_by, is_lost=ended_by != "capture_end", **columns)


def of(*cycles: dict[str, Any]) -> Waits:
    return waits.of(table("cycles", *cycles), table("connections", ENDED, OPEN))


def test_a_command_waits_until_its_end() -> None:
    ends = [(400, "abort"), (500, "reset"), (300, "rejected"), (890, "connection_end"), (650, "session_end")]
    lost = [ended(1 + number, *end) for number, end in enumerate(ends)]
    found = of(command(0, 150), *lost, ended(6, 700, "capture_end", connection=2))
    assert found.least_ns.tolist() == [each * MS for each in (50, 300, 400, 200, 790, 550, 600)]
    assert found.is_open.tolist() == [False, *[True] * 6]
    # what was in flight when the capture ended may still have got its status
    assert found.is_lost.tolist() == [False, *[True] * 5, False]


def test_in_flight_in_a_live_pass_it_waits_until_the_last_packet_of_its_connection() -> None:
    found = of(command(0, 150), command(1), command(2, connection=2))
    assert found.least_ns.tolist() == [50 * MS, 800 * MS, 600 * MS]
    assert found.is_open.tolist() == [False, True, True]
    # that of an open connection may still come
    assert found.is_lost.tolist() == [False, True, False]


def test_what_the_capture_misses_is_unknown() -> None:
    found = of(command(0, has_capture_gap=True), command(1, 150))
    assert found.least_ns.tolist() == [waits.UNKNOWN, 50 * MS]
    assert found.slowest_first().tolist() == [1]


def test_a_status_whose_time_is_unknown_is_a_status() -> None:
    found = of(command(0, is_complete=True, status=0), command(1, status=2), command(2))
    assert found.is_open.tolist() == [False, False, True]
    assert found.least_ns.tolist() == [waits.UNKNOWN, waits.UNKNOWN, 800 * MS]


def test_percentiles_with_those_that_never_got_a_status() -> None:
    """50 ms; 800 ms without a status when its connection was closed; just begun when the capture ended."""
    begun = {"connection": 2, "command_first_ns": 690 * MS}
    found = of(command(0, 150), command(1), command(2, **begun))
    assert found.percentiles == {"n": 2, "p50": 50 * MS, "p95": None, "p99": None, "max": 800 * MS, "open_count": 1}
    # in flight for longer than any took
    longer = of(command(0, 150), command(2, connection=2))
    assert (longer.percentiles["max"], longer.percentiles["open_count"]) == (600 * MS, 1)
    assert found.ends_ns(table("cycles", command(0, 150), command(1), command(2, **begun))).tolist() == [
        150 * MS, 900 * MS, 700 * MS,
    ]  # fmt: skip


def test_lost_commands_come_first_then_the_longest() -> None:
    found = of(
        command(0, 900),
        command(1, 400),
        command(2, connection=2),
        ended(3, 110, "abort", connection=2),
        command(4, connection=2, command_first_ns=690 * MS),
    )
    # an abort after 10 ms; 800 ms; more than 600; 300; more than 10 when the capture ended
    assert found.slowest_first().tolist() == [3, 0, 2, 1, 4]


def test_of_no_commands() -> None:
    assert of().slowest_first().tolist() == []
