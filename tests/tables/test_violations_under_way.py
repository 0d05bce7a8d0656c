"""Violations of RFC 7143 in passes without an end: a live view, and the periods of a ring."""

from __future__ import annotations

from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.tables.passes import Live, RingPass
from iscsitrace.tables.table import Table
from tests.conformance.conversations import made

_KEYS = "--key InitialR2T=Yes --key ImmediateData=No"
LOAD = f"write --block-size 32K --one-way-delay 1ms --think-time 100ms --seconds 6 {_KEYS}"
"""It lasts for several intervals."""

Row = tuple[str, str, int, int]


def rows(table: Table) -> set[Row]:
    """Rule, side, frame and count."""
    return {(row["rule"], row["side"], row["frame"], row["count"]) for row in table.rows()}


def live(capture: Path) -> set[Row]:
    """What the recent past has at the end of any interval."""
    view, found = Live(capture), set()
    view.stop()
    while (step := view.advance(1.0)) != "end":
        if step == "look":
            view.look()
            found |= rows(view.recent().violations)
    return found


def period(capture: Path) -> set[Row]:
    """What the period has that the capture begins."""
    ring = RingPass(has_periods=True)
    ring.read(capture)
    current = ring.open_period()
    assert current
    return rows(current.trace.violations)


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize("rule", ["D18,nth=20", "T3,nth=20", "D6,nth=20"])
def test_a_rule_that_is_broken_is_known_before_the_end(rule: str, tap: str, tmp_path: Path) -> None:
    capture = made(f"{LOAD} --fault {rule}", tmp_path / "run") / f"{tap}.pcapng"
    whole = rows(iscsitrace.read(capture, tables=["violations"]).violations)
    assert {name for name, *_ in whole} == {rule.partition(",")[0]}
    assert period(capture) == whole
    assert live(capture) == whole


def test_a_legal_run_has_none(tmp_path: Path) -> None:
    capture = made(LOAD, tmp_path / "run") / "initiator.pcapng"
    assert (period(capture), live(capture)) == (set(), set())
