"""The time that an outage takes in the intervals of a live view, beside what a diagnosis of the whole capture says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from tests.support.tables_by_hand import MS

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
