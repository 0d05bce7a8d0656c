"""Waits for ACKs, windows and recovery on stories: both sides of each threshold, and the frames."""

from __future__ import annotations

import pytest

from tests.support.story import SECOND, SENDER, Story, names, near
from tests.support.tables_by_hand import MS

# --- held back


@pytest.mark.parametrize(
    ("apart", "text"), [(True, "the status of 10 reads waited"), (False, "10 commands waited while TCP held data back")]
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


# --- TCP


def held(part: str, share: float = 0.3) -> Story:
    transfer, wait = near(share)
    return Story().tasks(10, transfer, (part, wait))


def test_a_receive_window_smaller_than_the_bandwidth_delay_product() -> None:
    found = held("receive_window").add("senders", **SENDER).found("receive_window_small")
    assert found
    assert found.share == pytest.approx(0.3)
    assert "the initiator's receive window" in found.text
    assert "at most 64 KiB; the bandwidth-delay product is 625 KiB (40.0 MB/s x 16.0 ms)" in found.text
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
    assert "the window scale was not captured, so it may be larger" in found.text


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
    assert found.text == "the target's TCP went back to slow start 4 times after idle periods"
    assert "net.ipv4.tcp_slow_start_after_idle" in " ".join(found.advice)
    assert names(held("congestion_window", 0.04).add("senders", **SENDER, restart_after_idle_count=9)) == set()


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
    assert "3 losses (6 retransmissions, 0.6 % of all packets)" in found.text
    assert "at most 30.0 ms at a time; 1 retransmission timeout" in found.text
    assert found.frames == (100, 101, 102, 200, 201, 202)
    assert names(story(0.009)) == set()
