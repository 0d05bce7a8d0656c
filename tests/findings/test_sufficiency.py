"""Whether a capture is good enough to diagnose: the same rule as that of the headlines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace import measure
from iscsitrace.diagnosis import headline
from iscsitrace.diagnosis.examination import examine_trace
from iscsitrace.findings import NEEDED
from iscsitrace.tables.table import Source
from tests.support.recordings import captures_folder
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

SAMPLES = Path(__file__).parents[2] / "samples"
GOOD = "The capture is good enough to diagnose."


def told(story: Story) -> tuple[bool, str]:
    return headline.sufficiency(story.source())


def test_a_capture_that_lacks_less_than_matters_is_good_enough() -> None:
    story = Story().tasks(10, ("transfer", 951 * MS // 10), ("unknown", 49 * MS // 10))
    assert told(story) == (True, GOOD)
    story.connection["explained_bytes_to_initiator"] = 980_000
    assert told(story) == (True, GOOD)


def test_what_is_missing_is_said_where_the_limiter_is_still_known() -> None:
    story = Story().tasks(10, ("transfer", 100 * MS))
    story.connection["missing_pdu_count_to_initiator"] = 60
    assert told(story) == (True, f"{GOOD} Some is missing from session 0: only 94 % of the PDUs were captured.")


def test_what_hides_the_limiter_makes_it_not_good_enough() -> None:
    story = Story().tasks(10, ("transfer", 50 * MS), ("unknown", 50 * MS))
    lead = "The capture is not good enough to diagnose session 0: "
    assert told(story) == (False, f"{lead}50 % of the time cannot be attributed.")
    alone = Story(rtt_to_initiator_ns=None).tasks(10, ("transfer", 100 * MS))
    assert told(alone) == (False, f"{lead}the RTT to one side or both was not measured.")


def beside(story: Story, *shares: float) -> Source:
    """Sessions like that of the story, of whose streams these shares are decoded."""
    made = story.source()
    names = ("sessions", "connections", "cycles", "budget")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, share in enumerate(shares):
        for name in names:
            own = {"session": number} | ({} if name == "sessions" else {"connection": number})
            if name == "connections":
                own["explained_bytes_to_initiator"] = round(1_000_000 * share)
            rows[name] += [row | own for row in story.rows[name] if row.get("connection", 3) is not None]
    several = {name: table(name, *rows[name]) for name in names}
    return lambda name: several.get(name) or made(name)


def test_of_several_sessions_the_worst_is_named() -> None:
    story = Story().task(("transfer", 100 * MS))
    good, verdict = headline.sufficiency(beside(story, 1.0, 0.75, 0.5, 0.99))
    assert not good
    assert verdict == (
        "The capture is not good enough to diagnose 2 of 4 sessions. Session 2: only 50 % of the stream bytes are "
        "decoded."
    )


def test_without_a_session_nothing_can_be_diagnosed() -> None:
    story = Story()
    story.rows["sessions"].clear()
    story.connection |= {"session": None, "is_iscsi": False}
    assert told(story) == (False, "The capture has no iSCSI session: there is nothing to diagnose.")


CAPTURES = (*sorted(SAMPLES.glob("*/*.pcap*")), captures_folder() / "15_reconnect_blackhole_delay04ms.pcap.gz")


@pytest.mark.parametrize("file", CAPTURES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_it_agrees_with_the_headlines_of_the_diagnosis(file: Path) -> None:
    is_good, verdict = headline.sufficiency(iscsitrace.read(file, tables=measure.NEEDED).table)
    opinions = examine_trace(iscsitrace.read(file, tables=NEEDED)).sessions
    too_poor = [each for each in opinions.values() if "too poor for a verdict" in each.headline.text]
    assert is_good == (not too_poor)
    assert all(each.headline.text.partition("verdict. ")[2].casefold() in verdict.casefold() for each in too_poor)
