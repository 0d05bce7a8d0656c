"""A line that is busy at its rate, on stories."""

from __future__ import annotations

import pytest

from iscsitrace.findings import line
from iscsitrace.measure.line import Line
from tests.support.story import Story, names
from tests.support.tables_by_hand import MS

LINE = {
    "line": 4,
    "line_bytes_per_s": 2_400_000,
    "line_wire_bytes_per_s": 2_503_000,
    "line_queue_ns": 38 * MS,
}
BUSY = (("transfer", 51 * MS), ("propagation", 49 * MS))


def story(*parts: tuple[str, int], **sender: int | None) -> Story:
    own: dict[str, int | None] = {"to_target": False, **LINE, **sender}
    return Story().tasks(10, *parts).add("senders", **own).add("senders", to_target=not own["to_target"])


def shared(made: Story, *, reads: bool = True, after: bool = False) -> Story:
    """Another session has a connection on the same line, and reads meanwhile, or after the first."""
    made.rows["connections"].append({"connection": 5, "session": 7, "is_iscsi": True})
    first, *_, last = list(made.rows["cycles"])
    from_ns, to_ns = first["command_first_ns"], last["status_ns"]
    times = (to_ns, to_ns + MS) if after else (from_ns, to_ns)
    own = dict(zip(("command_first_ns", "status_ns"), times, strict=True))
    read = {**first, **own, "cycle": 99, "session": 7, "connection": 5}
    if reads:
        made.rows["cycles"].append(read)
    return made.add("senders", connection=5, to_target=False, **LINE)


def test_a_line_that_is_busy_most_of_the_time_is_saturated() -> None:
    found = story(*BUSY).found("line_saturated")
    assert found
    assert (found.severity, found.share, found.cost_ns) == ("warning", 0.51, 510 * MS)
    assert found.text == (
        "the line is busy at its rate of 2.4 MB/s (20 Mbit/s with headers); data waited 38.0 ms in its queue (median)"
    )
    assert found.frames
    assert "line_shared" not in names(story(*BUSY))


def test_the_headline_is_the_line() -> None:
    assert (
        story(*BUSY)
        .opinion()
        .verdict.startswith(
            "Session 0 is line-bound: 51 % of the time is data transfer. The line is busy at its rate of 2.4 MB/s "
            "(20 Mbit/s with headers); data waited 38.0 ms in its queue (median)."
        )
    )


def test_sessions_that_share_a_line_are_named() -> None:
    found = shared(story(*BUSY)).found("line_shared")
    assert found
    assert found.text == (
        "the line is shared by 2 sessions (0, 7), which together fill its rate of 2.4 MB/s (20 Mbit/s with headers); "
        "data waited 38.0 ms in its queue (median)"
    )
    assert "line_saturated" not in names(shared(story(*BUSY)))


def test_a_session_without_io_and_one_after_another_share_nothing() -> None:
    for other in ({"reads": False}, {"after": True}):
        assert names(shared(story(*BUSY), **other)) & {"line_saturated", "line_shared"} == {"line_saturated"}


@pytest.mark.parametrize(
    ("parts", "sender"),
    [
        # half of the time is not most of it
        ((("transfer", 50 * MS), ("propagation", 50 * MS)), {}),
        # the rate was not reached
        (BUSY, {"line": None, "line_bytes_per_s": None}),
        # it was, by the few bytes of the other direction
        (BUSY, {"to_target": True}),
    ],
)
def test_other_lines_are_not_saturated(parts: tuple[tuple[str, int], ...], sender: dict[str, int | None]) -> None:
    assert not {"line_saturated", "line_shared"} & names(story(*parts, **sender))
    assert not {"line_saturated", "line_shared"} & names(shared(story(*parts, **sender)))


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (12_510_000, "1.0 MB/s (100 Mbit/s with headers)"),
        (124_900_000, "1.0 MB/s (999 Mbit/s with headers)"),
        (125_000_000, "1.0 MB/s (1 Gbit/s with headers)"),
        (1_250_000_000, "1.0 MB/s (10 Gbit/s with headers)"),
        (None, "1.0 MB/s"),
    ],
)
def test_a_rate_is_that_of_payload_and_that_of_the_line(wire: int | None, words: str) -> None:
    assert line.rate(Line(0, 1_000_000, 990_000, 1_010_000, wire, 8, MS)) == words
