"""Which sessions are one story: on tables made by hand."""

from __future__ import annotations

from iscsitrace.relate import stories
from tests.support.histories import Told


def numbers_of(told: Told) -> list[tuple[int, ...]]:
    return [story.numbers for story in stories.find(told.source())]


def test_only_a_login_after_one_that_failed_is_of_its_story() -> None:
    told = Told()
    told.session(0, 0.1, end="refused", login_status=0x0202, initiator_name="iqn.a")
    # while that one has not come back, another one works, ends and logs in again
    told.session(1, 5, end="closed")
    told.rows["sessions"][1]["cycle_count"] = 3
    told.session(6, 20, isid="81")
    told.session(7, 20, initiator_name="iqn.a", isid="81")
    assert numbers_of(told) == [(0, 3), (1,), (2,)]
    # had it carried nothing, the next one would be its second try
    told.rows["sessions"][1]["cycle_count"] = 0
    assert numbers_of(told) == [(0, 3), (1, 2)]


def test_stories_are_in_order_of_their_sessions_and_then_of_connections_without_one() -> None:
    told = Told()
    told.connection(0, 0.1, syn_ns=0.0, target_address="10.0.0.9")
    told.session(5, 20)
    told.session(1, 20, isid="81")
    told.connection(2, 2.1, syn_ns=2.0, target_address="10.0.0.8")
    found = stories.find(told.source())
    members = [(story.numbers, [row["connection"] for row in story.connections]) for story in found]
    assert members == [((0,), [1]), ((1,), [2]), ((), [0]), ((), [3])]
