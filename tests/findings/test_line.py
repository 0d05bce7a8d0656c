"""A line that is busy at its rate, on stories."""

from __future__ import annotations

import pytest

from iscsitrace.findings import line
from iscsitrace.measure.line import Line
from tests.support.story import Story, names
from tests.support.tables_by_hand import MS

LINE = {
    "line": 4,
    "line_bytes_per_s": 1_200_000,
    "line_wire_bytes_per_s": 2_503_000,
    "line_queue_ns": 38 * MS,
}
BUSY = (("transfer", 80 * MS), ("propagation", 20 * MS))
LOADED = {"rtt_load_median_ns": 100 * MS, "rtt_load_count": 900, "standing_queue_ns": 250 * MS}
"""An RTT of 100 ms while data are in flight; that of the path is 16 ms."""


def story(*parts: tuple[str, int], **sender: int | None) -> Story:
    own: dict[str, int | None] = {"to_target": False, **LINE, **sender}
    made = Story().tasks(10, *parts).add("senders", **own).add("senders", to_target=not own["to_target"])
    # the capture ends soon after the last command
    made.end_ns = made.now + MS
    return made


def shared(made: Story, *, reads: bool = True, after: bool = False) -> Story:
    """Another session has a connection on the same line, and reads meanwhile, or after the first."""
    made.rows["connections"].append({"connection": 5, "session": 7, "is_iscsi": True, "time_first_ns": 999_500 * MS})
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
    assert (found.severity, found.rank, found.share, found.cost_ns) == ("info", "limit", 0.8, 800 * MS)
    assert found.text == (
        "The line to the initiator has been full since 1.00 s, at 1.2 MB/s (20 Mbit/s with headers). Packets "
        "typically wait 38.0 ms in its queue."
    )
    assert found.frames
    assert "line_shared" not in names(story(*BUSY))


@pytest.mark.parametrize(("rtt_to_initiator_ns", "is_found"), [(0, True), (16 * MS, False)])
def test_a_tap_far_from_the_initiator_sees_an_rtt_less_of_its_io_time(rtt_to_initiator_ns: int, is_found: bool) -> None:
    rtts = {"rtt_to_initiator_ns": rtt_to_initiator_ns, "rtt_to_target_ns": 16 * MS - rtt_to_initiator_ns}
    made = Story(**rtts).tasks(10, *BUSY).add("senders", to_target=False, **LINE).add("senders", to_target=True)
    assert ("line_saturated" in names(made)) == is_found


def test_the_headline_is_the_line() -> None:
    headline = story(*BUSY).opinion().headline
    assert (headline.kind, headline.text) == (
        "limited",
        "Session 0 is limited by the line. The line to the initiator has been full since 1.00 s, at 1.2 MB/s (20 "
        "Mbit/s with headers; 80 % of the I/O time). Packets typically wait 38.0 ms in its queue.",
    )


def test_sessions_that_share_a_line_are_named() -> None:
    found = shared(story(*BUSY)).found("line_shared")
    assert found
    assert found.text == (
        "2 sessions (0, 7) share the line to the initiator and have filled it since 1.00 s, at 1.2 MB/s (20 Mbit/s "
        "with headers). Packets typically wait 38.0 ms in its queue."
    )
    assert "line_saturated" not in names(shared(story(*BUSY)))


def test_a_line_is_shared_since_the_second_session_uses_it() -> None:
    made = shared(story(*BUSY))
    made.rows["cycles"][-1]["command_first_ns"] += 500 * MS
    found = made.found("line_shared")
    assert found
    assert "have filled it since 1.50 s, at" in found.text


def test_a_line_is_not_full_from_the_first_blocks_that_both_sessions_read_long_before() -> None:
    made = shared(story(*BUSY))
    for command in list(made.rows["cycles"]):
        early = {"command_first_ns": command["command_first_ns"] - 5_000 * MS, "cycle": 90}
        if command["cycle"] in (0, 99):
            made.rows["cycles"].append({**command, **early, "status_ns": early["command_first_ns"] + MS})
    found = made.found("line_shared")
    assert found
    assert "have filled it since 1.00 s, at" in found.text


def test_a_line_that_is_no_longer_full_has_an_end() -> None:
    """The last data pass at 1.98 s, the last status is at 2.00 s; the connection has packets until later."""
    for last_ns, is_over in ((2_970 * MS, False), (3_010 * MS, True)):
        for made, is_alone in ((story(*BUSY), True), (shared(story(*BUSY)), False)):
            # times in sentences count from 999 s on
            made.end_ns = 999_000 * MS + last_ns
            found = made.found("line_saturated" if is_alone else "line_shared")
            assert found
            assert (
                f"from 1.00 s to {'1.98' if is_alone else '2.00'} s, at" if is_over else "since 1.00 s, at"
            ) in found.text
            words = (" was full ", " has been full ") if is_alone else (" and filled it ", " and have filled it ")
            assert words[not is_over] in found.text


@pytest.mark.parametrize(
    ("to_target", "words"),
    [
        (100_000, "The line to the initiator has been full since 1.00 s"),
        (10_000_000, "The line to the target has been full since 1.00 s"),
        (600_000, "The line has been full both ways since 1.00 s"),
    ],
)
def test_the_way_is_that_of_the_data(to_target: int, words: str) -> None:
    made = story(*BUSY, to_target=to_target > 1_000_000, line_bytes_per_s=1_000_000)
    made.connection["stream_bytes_to_target"] = to_target
    found = made.found("line_saturated")
    assert found
    assert found.text.startswith(words)


def test_a_session_without_io_and_one_after_another_share_nothing() -> None:
    for other in ({"reads": False}, {"after": True}):
        assert names(shared(story(*BUSY), **other)) & {"line_saturated", "line_shared"} == {"line_saturated"}


@pytest.mark.parametrize(
    ("parts", "sender"),
    [
        # a line that is not busy for nearly all of the time is not full
        ((("transfer", 79 * MS), ("propagation", 21 * MS)), {}),
        # the rate was not reached
        (BUSY, {"line": None, "line_bytes_per_s": None}),
        # it was, by the few bytes of the other direction
        (BUSY, {"to_target": True}),
    ],
)
def test_other_lines_are_not_saturated(parts: tuple[tuple[str, int], ...], sender: dict[str, int | None]) -> None:
    assert not {"line_saturated", "line_shared"} & names(story(*parts, **sender))
    assert not {"line_saturated", "line_shared"} & names(shared(story(*parts, **sender)))


def test_a_line_that_could_carry_more_than_was_sent_is_not_full() -> None:
    # a million bytes in a second
    assert "line_saturated" in names(story(*BUSY, line_bytes_per_s=1_250_000))
    assert "line_saturated" not in names(story(*BUSY, line_bytes_per_s=1_260_000))


@pytest.mark.parametrize(
    ("rate", "depth", "is_full"), [(1_250_000, 1, True), (1_260_000, 1, False), (1_250_000, 2, True)]
)
def test_reads_and_writes_in_turn_fill_a_line_together(rate: int, depth: int, is_full: bool) -> None:
    own = {"to_target": False, **LINE, "line_bytes_per_s": rate}
    made = Story().tasks(10, *BUSY, queue_depth=depth).add("senders", **own).add("senders", to_target=True)
    made.rows["connections"][0] |= {"stream_bytes_to_target": 500_000, "stream_bytes_to_initiator": 500_000}
    # of several at once each way may be the limit in turn: something is on the line for 80 % of the time
    assert ("line_saturated" in names(made)) == is_full


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


# --- standing_queue


def test_a_round_trip_that_takes_longer_under_load_shows_a_queue() -> None:
    made = Story().tasks(10, ("propagation", 60 * MS), ("transfer", 40 * MS)).add("senders", to_target=False, **LOADED)
    found = made.found("standing_queue")
    assert found
    assert (found.rank, found.severity, found.cost_ns, found.share) == ("limit", "info", None, pytest.approx(84 / 100))
    assert found.text == (
        "The path to the initiator has a standing queue: under load a round trip typically takes 100.0 ms instead of "
        "16.0 ms."
    )
    headline = made.opinion().headline
    assert (headline.name, headline.kind) == ("standing_queue", "limited")
    # the depth is not low, nor a window: the queue makes the round trips long
    assert not {"queue_depth_low", "block_size_small"} & names(made)


@pytest.mark.parametrize(
    ("rtt_ns", "loaded_ns", "is_found"),
    [
        # at least 10 ms: a busy host takes packets late
        (4 * MS, 14 * MS, True),
        (4 * MS, 13.9 * MS, False),
        # and half of the path's RTT
        (40 * MS, 60 * MS, True),
        (40 * MS, 59 * MS, False),
    ],
)
def test_a_short_queue_is_not_reported(rtt_ns: int, loaded_ns: float, is_found: bool) -> None:
    made = Story(rtt_to_target_ns=rtt_ns).tasks(10, ("propagation", 60 * MS), ("transfer", 40 * MS))
    made.add("senders", to_target=False, **LOADED | {"rtt_load_median_ns": round(loaded_ns)})
    assert ("standing_queue" in names(made)) == is_found


def test_the_queue_of_a_full_line_is_told_with_the_line() -> None:
    made = story(*BUSY, **LOADED)
    assert {"line_saturated", "standing_queue"} & names(made) == {"line_saturated"}


def test_a_full_line_whose_rate_no_queue_shows_apart_needs_a_longer_round_trip() -> None:
    unknown = {"line": None, "line_bytes_per_s": None, "line_wire_bytes_per_s": None}
    found = story(*BUSY, **unknown, **LOADED).found("line_saturated")
    assert found
    assert found.text == (
        "The line to the initiator has been full since 1.00 s, at 1.2 MB/s. Packets typically wait 84.0 ms in its "
        "queue."
    )
    # a target that takes the same time for each command looks like a line, but no queue grows
    flat = LOADED | {"rtt_load_median_ns": 17 * MS}
    assert "line_saturated" not in names(story(*BUSY, **unknown, **flat))


LOSING = (("transfer", 80 * MS), ("loss_recovery", 10 * MS), ("propagation", 10 * MS))
LOST = {"to_target": False, "retransmitted_packets": 2, "spurious_packets": 1}


@pytest.mark.parametrize(
    ("wait_ms", "loaded_ms", "others", "name"),
    [
        # what a full queue drops is retransmitted a round trip later
        (199, 100, 0, "line_saturated"),
        # nothing was answered until a timer fired
        (200, 100, 0, "loss"),
        # two round trips through the queue take as long
        (299, 150, 10, "line_saturated"),
        (300, 150, 10, "loss"),
        # one such wait in many is no cause: at most 5 % of the time
        (200, 100, 28, "line_saturated"),
        (200, 100, 27, "loss"),
    ],
)
def test_losses_lead_before_a_full_line_where_waits_are_longer_than_its_queue(
    wait_ms: int, loaded_ms: int, others: int, name: str
) -> None:
    # the story sends the same bytes, however long it is
    loaded = LOADED | {"rtt_load_median_ns": loaded_ms * MS, "line_bytes_per_s": 300_000}
    made = story(("transfer", 100 * MS), **loaded)
    made.tasks(1, ("loss_recovery", wait_ms * MS)).tasks(others, ("transfer", 100 * MS))
    made.end_ns = made.now + MS
    made.add("recoveries", cause="timeout", time_first_ns=1_000 * MS, time_last_ns=(1_000 + wait_ms) * MS, **LOST)
    assert made.opinion().headline.name == name


@pytest.mark.parametrize(("down_ns", "name"), [(None, "line_saturated"), (41 * MS, "loss")])
def test_losses_lead_before_a_full_line_where_the_path_was_down(down_ns: int | None, name: str) -> None:
    made = story(*LOSING, **LOADED)
    times = {"time_first_ns": 40 * MS, "time_last_ns": 50 * MS}
    made.add("recoveries", cause="timeout", black_out_first_ns=down_ns, **times, **LOST)
    assert made.opinion().headline.name == name


@pytest.mark.parametrize(("to_target", "name"), [(False, "line_saturated"), (True, "loss")])
def test_losses_against_the_data_lead_before_a_full_line(to_target: bool, name: str) -> None:
    # reads: the commands have no queue that could drop them
    made = story(*LOSING, **LOADED)
    times = {"time_first_ns": 40 * MS, "time_last_ns": 50 * MS}
    made.add("recoveries", cause="fast", **times, **LOST | {"to_target": to_target})
    assert made.opinion().headline.name == name


@pytest.mark.parametrize(
    ("cause", "packets", "lasted_ms", "name"),
    [
        # the ACK of the command took no longer than the queue
        ("tail_probe", 1, 150, "line_saturated"),
        ("tail_probe", 1, 151, "loss"),
        ("tail_probe", 2, 150, "loss"),
        ("fast", 1, 150, "loss"),
    ],
)
def test_a_probe_that_a_round_trip_through_the_queue_answers_is_no_loss_against_the_data(
    cause: str, packets: int, lasted_ms: int, name: str
) -> None:
    made = story(*LOSING, **LOADED | {"rtt_load_p95_ns": 150 * MS})
    times = {"time_first_ns": 40 * MS, "time_last_ns": (40 + lasted_ms) * MS}
    again = {"to_target": True, "retransmitted_packets": packets, "spurious_packets": 0}
    made.add("recoveries", cause=cause, **times, **again)
    assert made.opinion().headline.name == name


@pytest.mark.parametrize(
    ("count", "standing_ns", "is_found"),
    [
        # half of 2 s, without what is not whole at both ends
        (20, 750 * MS, True),
        (20, 749 * MS, False),
        (5, 0, False),
        (5, 250 * MS, True),
    ],
)
def test_a_queue_that_empties_between_bursts_is_no_standing_one(count: int, standing_ns: int, is_found: bool) -> None:
    """Nor is a path whose delay varies."""
    made = Story().tasks(count, ("propagation", 40 * MS), ("transfer", 60 * MS))
    made.add("senders", to_target=False, **LOADED | {"standing_queue_ns": standing_ns})
    assert ("standing_queue" in names(made)) == is_found


@pytest.mark.parametrize(
    ("path_ns", "loaded_ns", "is_found"),
    [
        # by half
        (16 * MS, 24 * MS, True),
        (16 * MS, 23.9 * MS, False),
        # of a long path by 10 ms
        (70 * MS, 80 * MS, True),
        (70 * MS, 79.9 * MS, False),
        # and by more than hosts take to answer
        (0.2 * MS, 0.7 * MS, True),
        (0.2 * MS, 0.69 * MS, False),
    ],
)
def test_a_line_without_a_rate_is_full_where_the_rtt_grows(path_ns: float, loaded_ns: float, is_found: bool) -> None:
    made = Story(rtt_to_target_ns=round(path_ns)).tasks(10, *BUSY)
    made.add("senders", to_target=False, rtt_load_median_ns=round(loaded_ns), rtt_load_count=900)
    assert ("line_saturated" in names(made)) == is_found


@pytest.mark.parametrize(
    ("rtt_to_target_ns", "service_ms", "severity"),
    [
        # the queue takes 84 ms
        (16 * MS, 80, "info"),
        (16 * MS, 90, "warning"),
        # beside the target no queue comes between
        (0, 80, "warning"),
    ],
)
def test_behind_a_standing_queue_a_target_is_slow_from_the_time_in_it_on(
    rtt_to_target_ns: int, service_ms: int, severity: str
) -> None:
    rtts = {"rtt_to_target_ns": rtt_to_target_ns, "rtt_to_initiator_ns": 16 * MS - rtt_to_target_ns}
    made = Story(**rtts).tasks(20, ("target_service", service_ms * MS), ("transfer", 20 * MS))
    made.add("senders", to_target=False, **LOADED | {"standing_queue_ns": 2_000 * MS})
    found = made.found("slow_target")
    assert found
    assert found.severity == severity
