"""The time that an outage takes in the intervals of a live view, beside what a diagnosis of the whole capture says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.watch import watcher
from tests.support.recordings import captures_folder
from tests.support.tables_by_hand import MS, table

BLACK_OUT = Path(__file__).parents[2] / "samples" / "black-out-and-relogin" / "capture.pcapng.gz"
LEAST_NS = 1_000 * MS
"""Without progress for less, no outage is known yet."""


@pytest.mark.parametrize(("interval", "unknown_ns"), [("200ms", LEAST_NS), ("1s", LEAST_NS), ("20s", 0)])
def test_an_outage_ends_when_the_next_session_goes_on(interval: str, unknown_ns: int) -> None:
    """The connection of the session that was replaced stays open to the end, with its two commands without a status."""
    whole = iscsitrace.read(BLACK_OUT, tables=("budget",)).budget
    wanted_ns = sum(
        row["time_last_ns"] - row["time_first_ns"]
        for row in whole.rows()
        if row["part"] == "outage" and row["session"] == 0
    )
    said = CliRunner().invoke(main, ["watch", "--json", "--no-follow", "--interval", interval, str(BLACK_OUT)])
    documents = [json.loads(line) for line in said.stdout.splitlines()]
    parts = [each["budget"] for one in documents for each in one["sessions"] if one["kind"] == "interval"]
    found_ns = sum((each or {}).get("outage", 0) for each in parts)
    assert wanted_ns > 12 * LEAST_NS
    assert wanted_ns - unknown_ns - MS <= found_ns <= wanted_ns + MS


def test_a_command_is_in_flight_until_its_connection_is_reset_and_the_session_waits_on() -> None:
    """A command of 4.80 s hangs; the initiator resets the connection at 8.84 s, and logs in again at 18.9 s."""
    capture = captures_folder() / "15_reconnect_blackhole_delay04ms.pcap.gz"
    said = CliRunner().invoke(main, ["watch", "--json", "--no-follow", "--interval", "1s", str(capture)])
    documents = [json.loads(line) for line in said.stdout.splitlines()]
    whole = iscsitrace.read(capture)
    (reset_ns,) = whole.connections.raw("rst_to_target_ns")[:1].tolist()
    found = [each | {"to_ns": one["to_ns"]} for one in documents for each in one["sessions"] if "to_ns" in one]
    hanging = [each for each in found if each["session"] == 0 and each["no_progress_ns"] >= LEAST_NS]
    before = [each for each in hanging if each["to_ns"] <= reset_ns]
    after = [each for each in hanging if each["to_ns"] > reset_ns]
    assert [each["open_task_count"] for each in before] == [1] * len(before)
    assert len(before) >= 2
    assert {(each["open_task_count"], each["oldest_command_ns"]) for each in after} == {(0, 0)}
    assert len(after) >= 9
    waits = [each["no_progress_ns"] for each in after]
    assert waits == sorted(waits)
    plain = CliRunner().invoke(main, ["watch", "--no-follow", str(capture)]).stdout
    assert "session 0: no progress for 3.2 s, 1 command in flight, the oldest for 3.2 s" in plain
    assert "session 0: no progress for 4.2 s, its connection was closed" in plain
    # when the next session works, none of the old one is in flight either
    later = [each for each in found if each["session"] == 0 and each["to_ns"] > reset_ns + 10 * LEAST_NS]
    assert later
    assert {each["open_task_count"] for each in later} == {0}


def test_a_command_is_in_flight_while_one_side_alone_has_closed() -> None:
    at_ns = 1_000 * MS
    names = ("fin_to_target_ns", "fin_to_initiator_ns", "rst_to_target_ns", "rst_to_initiator_ns")
    row = {"connection": 3, "session": 0, "open_task_count": 2, "begun_ns": np.array([at_ns, at_ns])}

    def counted(*closed: str, past: tuple[int, ...] = ()) -> tuple[int, int]:
        columns = {name: at_ns if name in closed else None for name in names}
        connections = table("connections", {"connection": 3} | columns)
        view = SimpleNamespace(trace=SimpleNamespace(connections=connections), now=[row])
        found = watcher._now(view, {*past})[3]  # type: ignore[arg-type]
        return found["open_task_count"], len(found["begun_ns"])

    assert counted() == counted("fin_to_target_ns") == counted("fin_to_initiator_ns") == (2, 2)
    assert counted("fin_to_target_ns", "fin_to_initiator_ns") == (0, 0)
    assert counted("rst_to_target_ns") == counted("rst_to_initiator_ns") == (0, 0)
    assert counted(past=(0,)) == (0, 0)
    assert counted(past=(1,)) == (2, 2)
