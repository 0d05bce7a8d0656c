"""The line of a session, from hand-made rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import line
from iscsitrace.measure.line import Line
from tests.support.calls import calls_of
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

SENDER = {
    "line": 4,
    "line_bytes_per_s": 2_400_000,
    "line_wire_bytes_per_s": 2_500_000,
    "line_low_bytes_per_s": 2_390_000,
    "line_high_bytes_per_s": 2_420_000,
    "line_stretch_count": 40,
    "line_queue_ns": 38_000_000,
}


def found_of(sent_to_target: int, sent_to_initiator: int, **rates: int | None) -> Line | None:
    """The line of connection 3, which carried these bytes, at these rates."""
    senders = [
        {"connection": number, "to_target": name == "to_target", "line_bytes_per_s": rate and rate + number - 3}
        for number in (2, 3)
        for name, rate in rates.items()
    ]
    sent = {"stream_bytes_to_target": sent_to_target, "stream_bytes_to_initiator": sent_to_initiator}
    connections = table("connections", *({"connection": number} | sent for number in (2, 3)))
    return line.of_one(connections, table("senders", *senders), [3])


def test_the_line_is_that_of_the_direction_with_most_bytes() -> None:
    for to_target, to_initiator, rate in ((5, 6, 10), (6, 5, 20)):
        found = found_of(to_target, to_initiator, to_initiator=10, to_target=20)
        assert found is not None
        assert found.bytes_per_s == rate


def test_a_rate_that_was_not_reached_is_none() -> None:
    assert found_of(5, 6, to_initiator=None, to_target=None) is None
    assert found_of(5, 6) is None
    assert line.of_one(table("connections"), table("senders"), []) is None
    assert line.of_sender(None) is None


def test_the_line_of_half_the_traffic_stands_for_one_that_the_tap_does_not_show() -> None:
    for to_target, rate in ((50, 20), (49, None)):
        found = found_of(to_target, 100, to_initiator=None, to_target=20)
        assert (found and found.bytes_per_s) == rate


def test_a_line_has_every_figure_of_its_sender() -> None:
    assert line.of_sender(SENDER) == line.Line(
        number=4,
        bytes_per_s=2_400_000,
        low_bytes_per_s=2_390_000,
        high_bytes_per_s=2_420_000,
        wire_bytes_per_s=2_500_000,
        stretch_count=40,
        queue_ns=38_000_000,
    )


def test_sessions_share_a_line_whose_number_their_connections_have() -> None:
    story = Story().add("senders", to_target=False, **SENDER).add("senders", connection=5, to_target=False, **SENDER)
    story.add("senders", connection=5, to_target=True)
    story.rows.setdefault("connections", [])
    assert line.times_by_line(story.source()) == {4: {}}
    story.tasks(2, ("transfer", 5 * MS))
    first, second = story.rows["cycles"]
    assert line.times_by_line(story.source()) == {4: {0: (first["command_first_ns"], second["status_ns"])}}


@pytest.mark.parametrize(
    ("second", "spans"),
    [
        # a second later, and less; less than a second later; a second later, and a fifth of the time or more
        ((1_100 * MS, 1_110 * MS), (0, 100 * MS)),
        ((1_099 * MS, 1_110 * MS), (0, 1_110 * MS)),
        ((1_100 * MS, 1_130 * MS), (0, 1_130 * MS)),
    ],
)
def test_the_main_part_of_each_group_is_nearly_all_of_its_time(second: tuple[int, int], spans: tuple[int, int]) -> None:
    group = [(0, 100 * MS), (10 * MS, 20 * MS), second]
    starts, ends = np.array([*group, *group[:2]]).T
    assert line.main_spans(starts, ends, np.array([0, 3])) == [spans, (0, 100 * MS)]


def test_sessions_share_a_line_while_both_read_or_write() -> None:
    times = line.Times({0: (0, 100), 1: (99, 150), 2: (100, 150)})
    assert [times.first(session, 9) for session in (0, 1, 2, 3)] == [[0, 1], [0, 1, 2], [1, 2], []]
    assert [times.count(session) for session in (0, 1, 2, 3)] == [2, 3, 2, 0]
    assert times.first(1, 2) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9))))
def test_sessions_are_counted_as_by_comparing_each_with_each(drawn: list[tuple[int, int]]) -> None:
    times = line.Times({number: (first, first + length) for number, (first, length) in enumerate(drawn)})
    for one in times:
        together = [other for other in times if times.are_together(one, other)]
        assert (times.count(one), times.first(one, len(times))) == (len(together), together)
        others = [other for other in together if other != one]
        if others and one in together:
            assert times.together(one) == (
                min(max(times[one][0], times[other][0]) for other in others),
                max(min(times[one][1], times[other][1]) for other in others),
            )


def test_sessions_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    times = line.Times(dict.fromkeys(range(100), (0, 1)))
    compared = calls_of(monkeypatch, line.Times, "are_together")
    assert all((times.count(number), times.first(number, 8)) == (100, [*range(8)]) for number in times)
    assert len(compared) == 8 * len(times)
