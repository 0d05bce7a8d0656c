"""Old days go, whole; the day on which an open session began stays, and the next run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.fleet import history
from iscsitrace.fleet.rows import DAY_NS
from iscsitrace.fleet.store import prune
from iscsitrace.tables.schema import DEFAULT_TABLES
from tests.support import rings


def days_of(dataset: Path) -> set[str]:
    return {path.name.removeprefix("day=") for path in dataset.glob("*/tap=a/day=*")}


def test_days_that_are_over_are_removed_and_new_captures_are_added(tmp_path: Path) -> None:
    packets = rings.traffic(1, has_open=False)
    later = rings.traffic(2, start_ns=rings.MIDNIGHT_NS + 5 * DAY_NS, has_open=False)
    ring, data = tmp_path / "ring", tmp_path / "data"
    rings.cut(ring, packets, rings.random_borders(packets, 3, 1))
    rings.read_ring(data, ring)
    assert days_of(data) == {"2023-11-14", "2023-11-15"}
    # a day is removed when all of it is old enough
    assert [each.days for each in prune(data, DAY_NS, rings.MIDNIGHT_NS + DAY_NS - 1)] == [()]
    (pruned,) = prune(data, DAY_NS, rings.MIDNIGHT_NS + DAY_NS)
    assert (pruned.days, pruned.kept) == (("2023-11-14",), ())
    assert days_of(data) == {"2023-11-15"}
    assert not list((data / "_fleet" / "a" / "staging").iterdir())
    # the files of the day that was removed are still in the ring: they are not read again, and not called late
    assert rings.read_ring(data, ring, "again") == []
    rings.cut(ring, later, [], ring="eth0_00100")
    (outcome,) = rings.read_ring(data, ring, "new")
    assert outcome.statuses == {history.READ: 1}
    assert "2023-11-20" in days_of(data)
    rows = [each for name in ("cycles", "pdus") for each in rings.rows_of(data, name, "a")]
    both = rings.whole(tmp_path, [*packets, *later])
    expected = [each for name in ("cycles", "pdus") for each in rings.rows_expected(both, name)]
    assert set(rows) <= set(expected)


def test_the_day_on_which_an_open_session_began_stays(tmp_path: Path) -> None:
    packets = rings.traffic(1)
    rings.cut(tmp_path / "ring", packets, rings.random_borders(packets, 3, 1))
    rings.read_ring(tmp_path / "data", tmp_path / "ring")
    (pruned,) = prune(tmp_path / "data", DAY_NS, rings.MIDNIGHT_NS + 100 * DAY_NS)
    assert (pruned.days, pruned.kept) == (("2023-11-15",), ("2023-11-14",))
    trace = rings.whole(tmp_path, packets)
    for name in DEFAULT_TABLES:
        found, expected = rings.rows_of(tmp_path / "data", name, "a"), rings.rows_expected(trace, name)
        assert set(found) <= set(expected)
        assert bool(found) == any(expected) or name in ("counters", "logouts", "rounds", "logical_units")


@pytest.mark.parametrize("text", ["30", "30h", "-1d", "d", "1.5d"])
def test_a_number_of_days_is_needed(text: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["fleet", "prune", str(tmp_path), "--older", text])
    assert result.exit_code == 2
    assert "is not a number of days such as 30d" in result.stderr
