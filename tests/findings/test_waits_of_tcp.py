"""Waits for ACKs, windows and recovery on stories: both sides of each threshold, and the frames."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.findings import acknowledgments, transport
from iscsitrace.findings.finding import Finding
from iscsitrace.fit.situation import Situation
from iscsitrace.model.setting import Setting
from tests.support.story import SECOND, SENDER, Story, names, near
from tests.support.tables_by_hand import MS

# --- held back


@pytest.mark.parametrize(
    ("apart", "text"),
    [(True, "TCP held back the status of 10 reads "), (False, "10 commands waited while TCP held data back")],
)
def test_data_held_until_an_ack(apart: bool, text: str) -> None:
    name = "held_for_ack"
    transfer, wait = near(0.06)
    columns = {"is_status_in_data": not apart, "data_last_frame": 7}
    story = Story(rtt_to_target_ns=0).tasks(10, transfer, ("ack_wait", wait), **columns)
    assert names(story) == {name}
    found = story.found(name)
    assert found
    assert found.share == pytest.approx(0.06)
    assert found.text.startswith(text)
    assert (7 in found.frames) == apart
    transfer, wait = near(0.04)
    assert names(Story().tasks(10, transfer, ("ack_wait", wait), **columns)) == set()
    transfer, wait = near(0.4)
    assert names(Story().tasks(7, transfer, ("ack_wait", wait), **columns)) == set()


@pytest.mark.parametrize(("early", "whose"), [(1, "the target's TCP"), (2, "TCP")])
def test_the_sender_is_named_where_the_waits_follow_data_of_reads(early: int, whose: str) -> None:
    """Nine in ten are of one sender."""
    story = Story().tasks(10, ("transfer", MS), ("ack_wait", 40 * MS))
    for number, cycle in enumerate(story.rows["cycles"]):
        waits_ns = min(
            row["time_first_ns"]
            for row in story.rows["budget"]
            if row["part"] == "ack_wait" and row["cycle"] == cycle["cycle"]
        )
        cycle["data_first_ns"] = waits_ns + (1 if number < early else 0)
    found = story.found("held_for_ack")
    assert found
    assert found.text.startswith(f"10 commands waited while {whose} held data back until an ACK arrived")


def waiting_for_acks(apart: int, others: int, **columns: Any) -> Finding:
    """Reads of 40 ms each: this many with a late status, this many with late data, and four that do not wait."""
    story = Story().tasks(apart, ("transfer", MS), ("ack_wait", 40 * MS), is_status_in_data=False, **columns)
    story.tasks(others, ("transfer", MS), ("ack_wait", 40 * MS))
    found = story.tasks(4, ("transfer", MS), is_status_in_data=False).found("held_for_ack")
    assert found
    return found


def test_most_of_the_wait_decides_whether_statuses_or_data_were_held() -> None:
    assert waiting_for_acks(5, 4).text == (
        "TCP held back the status of 5 reads until the data before it was acknowledged, typically for 40.0 ms."
    )
    text = "commands waited while TCP held data back until an ACK arrived, typically for 40.0 ms."
    assert waiting_for_acks(4, 4).text == f"8 {text}"
    # a write has no status in its data, and a read without data has none to wait for
    for columns in ({"operation": "write"}, {"data_bytes": 0}):
        assert waiting_for_acks(8, 1, **columns).text == f"9 {text}"


def delayed(cost_ms: float, *, to_target: bool = False) -> Finding | None:
    """Reads of 100 ms for a second; a sender that waited three times for delayed ACKs, this long in all."""
    story = Story().tasks(10, ("transfer", 60 * MS), ("loss_recovery", 40 * MS))
    waited = {"delayed_ack_wait_count": 3, "delayed_ack_wait_ns": round(cost_ms * MS), "delayed_ack_wait_frame": 77}
    story.add("senders", **SENDER | waited | {"to_target": to_target})
    story.add("senders", **SENDER | {"to_target": not to_target})
    times = {"to_target": to_target, "time_first_ns": story.now, "time_last_ns": story.now, "retransmitted_packets": 1}
    for frame, held_ms in ((30, 0), (40, 80), (50, 10)):
        held = {"frame_first": frame, "frame_last": frame + 1, "delayed_ack_ns": held_ms * MS}
        story.add("recoveries", **times | held)
    return story.found("delayed_ack_in_recovery")


def test_delayed_acks_in_recoveries() -> None:
    found = delayed(120)
    assert found
    assert (found.cost_ns, found.share) == (120 * MS, pytest.approx(0.12))
    # the ACK that was held back longest, and the recoveries that waited
    assert found.frames == (40, 41, 50, 51, 77)
    assert found.text == (
        "The initiator delayed 3 ACKs for 120.0 ms in total, while the target had one segment in flight, in loss "
        "recovery or slow start."
    )
    other = delayed(120, to_target=True)
    assert other
    assert other.text.startswith("The target delayed 3 ACKs for 120.0 ms in total, while the initiator had one")
    assert delayed(10)
    assert delayed(9.9) is None


SITUATION = Situation(Setting("read", 65_536, 4.0 * MS, is_status_held=True), {"ack_wait": 5.0}, {"loss": 2.0})


def basis(situation: Situation) -> Any:
    return SimpleNamespace(measured=SimpleNamespace(situation=situation, pace_bytes_per_s=1e6))


def test_without_held_statuses_other_data_is_no_longer_held() -> None:
    (change,) = acknowledgments._status_in_data(basis(SITUATION))
    after = change.apply(SITUATION)
    assert (change.words, after.setting.is_status_held) == ("status in the last Data-In", False)
    assert not after.waits_ns["ack_wait"]
    assert list(acknowledgments._nothing_held(basis(SITUATION))) == []
    other = SITUATION.with_setting(is_status_held=False)
    assert list(acknowledgments._status_in_data(basis(other))) == []
    (change,) = acknowledgments._nothing_held(basis(other))
    assert (change.words, change.apply(other).waits_ns["ack_wait"]) == ("no data held back for ACKs", 0)


# --- TCP


def held(part: str, share: float = 0.3) -> Story:
    transfer, wait = near(share)
    return Story().tasks(10, transfer, (part, wait))


def test_a_receive_window_smaller_than_the_bandwidth_delay_product() -> None:
    found = held("receive_window").add("senders", **SENDER).found("receive_window_small")
    assert found
    assert found.share == pytest.approx(0.3)
    assert found.text == (
        "The initiator's TCP receive window (64 KiB) was full for 300.0 ms. The bandwidth-delay product is 625 KiB "
        "(40.0 MB/s x 16.0 ms)."
    )
    assert names(held("receive_window", 0.04).add("senders", **SENDER)) == set()


def test_a_zero_window_is_another_problem() -> None:
    assert names(held("receive_window").add("senders", **SENDER | {"rwnd_min_bytes": 1_447})) == {"receiver_stalled"}
    assert names(held("receive_window").add("senders", **SENDER | {"rwnd_min_bytes": 1_448})) == {
        "receive_window_small"
    }
    # without the window scale its size is unknown
    unscaled = SENDER | {"rwnd_min_bytes": 501, "is_window_scale_inferred": True}
    found = held("receive_window").add("senders", **unscaled).found("receive_window_small")
    assert found
    assert found.text == (
        "The initiator's TCP receive window was full for 300.0 ms. Its scale was not captured, but the target "
        "repeatedly stopped at 64 KiB."
    )


def test_the_reported_window_is_that_of_the_waiting_data() -> None:
    other = SENDER | {"to_target": True, "rwnd_min_bytes": 0, "rwnd_max_bytes": 1_000, "window_full_ns": SECOND}
    assert names(held("receive_window").add("senders", **other).add("senders", **SENDER)) == {"receive_window_small"}
    transfer, wait = near(0.3)
    story = Story().tasks(10, transfer, ("receive_window", wait), operation="write")
    assert names(story.add("senders", **other).add("senders", **SENDER)) == {"receiver_stalled"}


def test_a_small_congestion_window_and_one_reset_after_idle() -> None:
    story = held("congestion_window").add("senders", **SENDER, restart_after_idle_count=3)
    assert names(story) == {"congestion_window_small"}
    story = held("congestion_window").add("senders", **SENDER, restart_after_idle_count=4)
    assert names(story) == {"restart_after_idle"}
    found = story.found("restart_after_idle")
    assert found
    assert found.text == "The target's TCP went back to slow start 4 times after idle periods."
    assert "net.ipv4.tcp_slow_start_after_idle" in " ".join(found.advice)
    assert names(held("congestion_window", 0.04).add("senders", **SENDER, restart_after_idle_count=9)) == set()


def test_a_full_send_buffer() -> None:
    story = held("send_buffer").add("senders", **SENDER, owin_max_bytes=64 << 10)
    found = story.found("send_buffer_small")
    assert found
    assert found.text == (
        "The target's send buffer was full: its bytes in flight stopped at 64 KiB or less, below "
        "the receive window. The bandwidth-delay product is 625 KiB (40.0 MB/s x 16.0 ms)."
    )
    # far from the sender the most in flight may be too much
    story = held("send_buffer").add("senders", **SENDER, owin_max_bytes=64 << 10, sndbuf_level_bytes=50 << 10)
    found = story.found("send_buffer_small")
    assert found
    assert "its bytes in flight typically stopped at 50 KiB, below" in found.text
    assert names(held("send_buffer", 0.04).add("senders", **SENDER)) == set()


def test_losses_and_their_recovery_time() -> None:
    def story(share: float) -> Story:
        made = held("loss_recovery", share)
        for number, cause in enumerate(("fast", "timeout", "fast")):
            start = 1_000 * SECOND + number * 100 * MS
            repair = {"time_first_ns": start, "time_last_ns": start + (number + 1) * 10 * MS}
            frames = {"frame_first": 100 + number, "frame_last": 200 + number}
            made.add("recoveries", to_target=False, cause=cause, retransmitted_packets=2, **repair, **frames)
        return made

    found = story(0.012).found("loss")
    assert found
    # each read waited a tenth of it; the longest recovery took 30 ms, and other data passed in it
    assert found.text == (
        "I/O waited 12.0 ms for retransmissions, at most 1.2 ms at a time. Packets to the initiator were lost 3 times "
        "(0.6 % of the packets were retransmitted). TCP noticed 1 of these losses only by a retransmission time-out."
    )
    assert found.frames == (100, 101, 102, 200, 201, 202)
    assert names(story(0.009)) == set()


def test_the_longest_wait_begins_before_the_retransmission_and_goes_on_for_the_next_command() -> None:
    story = Story().tasks(10, ("transfer", 60 * MS))
    # the time-out: its recovery begins with the retransmission
    story.task(("loss_recovery", 400 * MS))
    story.task(("loss_recovery", 100 * MS), ("transfer", 60 * MS), ("loss_recovery", 300 * MS))
    start = 1_000 * SECOND + 1_000 * MS
    span = {"time_first_ns": start, "time_last_ns": start + 100 * MS}
    story.add("recoveries", **span, cause="timeout", retransmitted_packets=1)
    found = story.found("loss")
    assert found
    assert found.text.startswith("I/O waited 800.0 ms for retransmissions, at most 500.0 ms at a time. ")


def test_a_loss_without_an_end_lasts_until_the_end_of_its_connection() -> None:
    story = held("loss_recovery")
    story.connection["packets_to_initiator"] = 0
    story.add(
        "recoveries",
        time_first_ns=1_010 * SECOND - 7 * MS,
        frame_first=100,
        cause="timeout",
        retransmitted_packets=1,
    )
    found = story.found("loss")
    assert found
    assert found.text == (
        "I/O waited 300.0 ms for retransmissions, at most 30.0 ms at a time. Packets to the initiator were lost once "
        "(0 % of the packets were retransmitted). TCP noticed 1 of these losses only by a retransmission time-out."
    )


def test_a_recovery_whose_retransmissions_were_all_unnecessary_is_no_loss() -> None:
    story = held("loss_recovery")
    for start_ms, spurious in ((0, 2), (100, 1)):
        start = story.now + start_ms * MS
        packets = {"retransmitted_packets": 2, "spurious_packets": spurious}
        story.add("recoveries", time_first_ns=start, time_last_ns=start + 5 * MS, **packets)
    found = story.found("loss")
    assert found
    # 2 of 1000 packets
    assert "Packets to the initiator were lost once (0.2 % of the packets were retransmitted)." in found.text


def test_where_nothing_was_lost_there_is_no_loss() -> None:
    story = held("loss_recovery")
    for _ in range(2):
        story.add("recoveries", time_first_ns=story.now, retransmitted_packets=2, spurious_packets=2)
    assert story.found("loss") is None
    story.add("recoveries", time_first_ns=story.now, retransmitted_packets=2, spurious_packets=1)
    assert story.found("loss")


def test_the_three_longest_recoveries_are_shown() -> None:
    story = held("loss_recovery")
    for number, length_ms in enumerate((1, 5, 4, None, 3)):
        frames = {"frame_first": 100 + number, "frame_last": 200 + number}
        end_ns = None if length_ms is None else story.now + length_ms * MS
        story.add("recoveries", time_first_ns=story.now, time_last_ns=end_ns, retransmitted_packets=1, **frames)
    found = story.found("loss")
    assert found
    # one without an end lasts as long as its connection
    assert found.frames == (101, 102, 103, 201, 202, 203)


@pytest.mark.parametrize(
    ("ways", "words"),
    [
        ([False], "to the initiator were lost once (3 % of the packets were retransmitted)"),
        ([True], "to the target were lost once (6 % of the packets were retransmitted)"),
        ([True, False], "to the initiator and the target were lost 2 times (4 % of the packets were retransmitted)"),
    ],
)
def test_retransmissions_are_a_share_of_the_packets_that_went_the_same_way(ways: list[bool], words: str) -> None:
    story = held("loss_recovery")
    for way in ways:
        story.add("recoveries", time_first_ns=0, retransmitted_packets=30, to_target=way)
    # 1000 went to the initiator
    story.connection["packets_to_target"] = 500
    found = story.found("loss")
    assert found
    assert words in found.text


@pytest.mark.parametrize(
    ("least", "segment", "name"),
    [
        # a window that was never seen, and one without a known segment
        (None, 1_448, "receiver_stalled"),
        (0, None, "receiver_stalled"),
        (1, None, "receive_window_small"),
    ],
)
def test_a_window_closes_below_a_segment_of_one_byte_at_least(
    least: int | None, segment: int | None, name: str
) -> None:
    sender = SENDER | {"rwnd_min_bytes": least, "segment_bytes": segment}
    assert names(held("receive_window").add("senders", **sender)) == {name}


def test_the_window_is_that_of_the_sender_that_it_held_longest() -> None:
    story = held("receive_window")
    for held_ms, most in ((100, 10 << 20), (300, 20 << 20), (200, 30 << 20)):
        story.add("senders", **SENDER | {"rwnd_limited_ns": held_ms * MS, "rwnd_max_bytes": most})
    found = story.found("receive_window_small")
    assert found
    assert found.text.startswith("The initiator's TCP receive window (20 MiB) was full for 300.0 ms.")


def test_where_reads_and_writes_wait_alike_the_target_is_the_sender() -> None:
    def receiver(reads: int, writes: int) -> str:
        story = Story().tasks(reads, ("transfer", MS), ("receive_window", 10 * MS))
        story.tasks(writes, ("transfer", MS), ("receive_window", 10 * MS), operation="write")
        unscaled = SENDER | {"is_window_scale_inferred": True, "line_bytes_per_s": None}
        found = (
            story.add("senders", **unscaled)
            .add("senders", **unscaled | {"to_target": True})
            .found("receive_window_small")
        )
        assert found
        return found.text.partition("'s TCP receive window")[0]

    assert receiver(5, 5) == "The initiator"
    assert receiver(5, 6) == "The target"


@pytest.mark.parametrize(("line", "rtt_ns"), [(None, 16 * MS), (40_000_000, 0)])
def test_the_bandwidth_delay_product_needs_line_and_rtt(line: int | None, rtt_ns: int) -> None:
    subject: Any = SimpleNamespace(path_ns=rtt_ns)
    assert transport._capacity(subject, {"line_bytes_per_s": line}) == ""


@pytest.mark.parametrize(("line", "product"), [(12_800, "12 KiB"), (13_824, "14 KiB")])
def test_a_product_of_half_a_unit_is_rounded_to_the_even_one(line: int, product: str) -> None:
    """12.5 and 13.5 KiB in a second."""
    subject: Any = SimpleNamespace(path_ns=SECOND)
    words = f" The bandwidth-delay product is {product} (0.0 MB/s x 1.0 s)."
    assert transport._capacity(subject, {"line_bytes_per_s": line}) == words


def test_a_sender_that_lost_packets_and_slowed_down_is_a_problem() -> None:
    story = held("congestion_window").add("senders", **SENDER)
    for way, spurious in ((False, 0), (False, 1), (True, 0)):
        # the loss is the last of them
        packets = {"retransmitted_packets": 1, "spurious_packets": spurious}
        story.add("recoveries", to_target=way, time_first_ns=2 - spurious, **packets)
    found = story.found("congestion_window_small")
    assert found
    assert (found.rank, found.severity) == ("slowness", "warning")
    assert found.text == (
        "The target's packets were lost once, and its TCP slowed down. The bandwidth-delay product is 625 "
        "KiB (40.0 MB/s x 16.0 ms)."
    )
    # its congestion control is unknown: another one may not help
    (advice,) = found.advice
    assert advice.startswith("Fix the packet loss first: ")
    named = held("congestion_window").add("senders", **SENDER, congestion_control="reno")
    named.add("recoveries", to_target=False, retransmitted_packets=1, spurious_packets=0)
    found = named.found("congestion_window_small")
    assert found
    assert found.text.startswith("The target's packets were lost once, and its TCP (Reno) slowed down. ")
    assert [step.touches for step in found.steps] == ["", "affects every new connection of the host"]
    assert "net.ipv4.tcp_congestion_control = bbr" in found.advice[1]


@pytest.mark.parametrize(("slowed", "leads"), [(60, "loss"), (2, "none")])
def test_losses_lead_before_the_window_that_they_keep_small(slowed: int, leads: str) -> None:
    """Recovery takes 2 %: with what the window takes after the first loss it is worth a warning, or not."""
    waits = ("loss_recovery", 2 * MS), ("congestion_window", slowed * MS), ("transfer", (98 - slowed) * MS)
    story = Story().tasks(10, *waits).add("senders", **SENDER)
    story.add("recoveries", to_target=False, retransmitted_packets=1, spurious_packets=0)
    assert story.opinion().headline.name == leads
    found = story.found("loss")
    assert found
    assert (" TCP slowed down after them, for another " in found.text) == (leads == "loss")


def test_lost_packets_of_which_the_tap_shows_no_recovery() -> None:
    found = held("loss_recovery", 0.5).found("loss")
    assert found
    assert found.text.endswith(" The lost packets never passed the tap.")


@pytest.mark.parametrize("losses_of_the_initiator", [0, 3])
def test_a_sender_that_waits_for_acks_without_losses_is_a_limit(losses_of_the_initiator: int) -> None:
    """Slow start or a small send buffer: losses of the other direction do not keep its window small."""
    story = held("congestion_window", 0.6).add("senders", **SENDER)
    for number in range(losses_of_the_initiator):
        story.add("recoveries", to_target=True, time_first_ns=number, retransmitted_packets=1, spurious_packets=0)
    found = story.found("congestion_window_small")
    assert found
    assert (found.rank, found.severity, found.leads) == ("limit", "info", True)
    assert found.text == (
        "The target waited for ACKs although the receive window had room and no packet was lost. This is TCP slow "
        "start or a small send buffer: the capture cannot tell them apart."
    )
    (advice,) = found.advice
    assert advice.startswith("Capture a longer transfer.")
    assert story.opinion().headline.kind == "limited"


def test_more_connections_are_advised_only_where_several_commands_are_in_flight() -> None:
    def advice(depth: int) -> str:
        transfer, wait = near(0.3)
        story = Story().tasks(10, transfer, ("congestion_window", wait), queue_depth=depth).add("senders", **SENDER)
        found = story.found("congestion_window_small")
        assert found
        return " ".join(found.advice)

    assert "paths" not in advice(1)
    assert "Use 2 to 4 paths" in advice(2)


def test_the_sender_that_restarted_most_often_is_named() -> None:
    story = held("congestion_window")
    for times in (1, 9, 5):
        story.add("senders", **SENDER, restart_after_idle_count=times)
    found = story.found("restart_after_idle")
    assert found
    assert "slow start 9 times" in found.text


# --- what-ifs


@pytest.mark.parametrize(
    ("line", "window", "words"),
    [
        # 4 ms one way at 40 MB/s: twice 320,000 bytes
        (4e7, 639_999, ["receive window 625 KiB"]),
        (4e7, 640_000, []),
        (None, 65_536, []),
        (4e7, None, []),
    ],
)
def test_a_window_of_twice_the_bandwidth_delay_product_is_tried(
    line: float | None, window: int | None, words: list[str]
) -> None:
    situation = Situation(Setting("read", 65_536, 4.0 * MS, line, window_bytes=window))
    changes = list(transport._larger_window(basis(situation)))
    assert [change.words for change in changes] == words
    assert [change.apply(situation).setting.window_bytes for change in changes] == [640_000] * len(words)
    # more connections help only where the window is what limits them
    assert bool(list(transport._windows_of_more_connections(basis(situation)))) == (
        line is not None and window is not None
    )


def test_losses_can_only_be_removed_where_there_are_some() -> None:
    lossy = SITUATION.with_setting(loss=0.01)
    (change,) = transport.no_losses(basis(lossy))
    after = change.apply(lossy)
    assert (change.words, after.setting.loss, after.stalls_ns_per_byte["loss"]) == ("no losses", 0.0, 0)
    assert list(transport._losses_of_more_connections(basis(lossy)))
    for without in (Situation(SITUATION.setting), Situation(SITUATION.setting, {}, {"loss": 0.0})):
        assert list(transport.no_losses(basis(without))) == []
        assert list(transport._losses_of_more_connections(basis(without))) == []


def test_without_slow_start_there_is_no_start_window() -> None:
    before = Situation(Setting("read", 65_536, 4.0 * MS, start_window_bytes=14_480), {}, {"slow_start": 3.0})
    (change,) = transport._no_slow_start(basis(before))
    after = change.apply(before)
    assert (after.setting.start_window_bytes, after.stalls_ns_per_byte["slow_start"]) == (None, 0)
