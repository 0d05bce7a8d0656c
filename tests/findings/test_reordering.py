"""The finding reordering: on traces by hand, and on recordings of kernels whose cwnd is known."""

from __future__ import annotations

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.recordings import captures_folder
from tests.support.story import SENDER, Story, names
from tests.support.tables_by_hand import MS

START_NS = Story().now


def limited(*, late: int = 0) -> Story:
    """Ten reads of 10 ms, half of which is waiting for the target's congestion window; 1000 packets, some late."""
    story = Story().tasks(10, ("transfer", 5 * MS), ("congestion_window", 5 * MS)).add("senders", **SENDER)
    story.connection |= {"reordered_packets_to_initiator": late}
    if late:
        story.connection |= {"reordered_late_to_initiator_max_ns": 7 * MS}
    return story


def recovery(story: Story, at_ms: int, *, packets: int = 3, spurious: int = 3, cause: str = "fast") -> Story:
    times = {"time_first_ns": START_NS + at_ms * MS, "frame_first": 100 + at_ms, "frame_last": 101 + at_ms}
    counts = {"retransmitted_packets": packets, "spurious_packets": spurious}
    return story.add("recoveries", to_target=False, cause=cause, **times, **counts)


def reordering(story: Story) -> Finding | None:
    return story.found("reordering")


def test_waits_after_a_needless_reduction_are_its_cost() -> None:
    # waits end at 10, 20 ... 100 ms: those from the third on follow it
    found = reordering(recovery(limited(late=200), 25))
    assert found
    assert found.cost_ns == 8 * 5 * MS
    assert found.share == pytest.approx(0.4)
    assert found.frames == (125, 126)
    assert found.text == (
        "The path reorders packets: 200 of 1,000 to the initiator arrived out of order, at most 7.0 ms late. TCP "
        "retransmitted 3 packets without need, and slowed down once because of them."
    )
    headline = recovery(limited(late=200), 25).opinion().headline
    assert headline.name == "reordering"


def test_waits_after_a_loss_are_those_of_the_loss() -> None:
    found = reordering(recovery(recovery(limited(), 25), 45, spurious=2))
    assert found
    # 30 and 40 ms
    assert found.cost_ns == 2 * 5 * MS
    assert found.text.startswith(
        "The path to the initiator reorders packets beyond the tap. TCP retransmitted 3 packets"
    )


@pytest.mark.parametrize(("late", "is_named"), [(0, True), (200, False)])
def test_of_several_taps_the_sentence_names_the_one_that_saw_nothing_out_of_order(late: int, is_named: bool) -> None:
    def tap_of(connection: int, *, to_target: bool) -> str:
        return f"tap {'a' if to_target else 'b'}"

    (opinion,) = examine(recovery(limited(late=late), 25).source(), tap_of=tap_of).sessions.values()
    (found,) = (each for each in opinion.findings if each.name == "reordering")
    # reordered packets are counted at the tap nearest to the initiator, also those that the target sent
    assert ("The path to the initiator reorders packets beyond the tap a." in found.text) == is_named
    assert ("tap" in found.text) == is_named


def test_it_replaces_the_small_window_that_it_causes() -> None:
    assert names(recovery(limited(late=200), 25)) == {"reordering"}
    assert names(recovery(limited(late=200), 85)) == {"reordering", "congestion_window_small"}


@pytest.mark.parametrize("cause", ["timeout", "tail_probe"])
def test_packets_later_than_a_timer_were_not_overtaken(cause: str) -> None:
    assert reordering(recovery(limited(), 25, cause=cause)) is None


def test_a_loss_among_spurious_retransmissions_is_a_loss() -> None:
    assert reordering(recovery(limited(), 25, spurious=2)) is None


@pytest.mark.parametrize(("late", "packets", "is_found"), [(19, 1_000, False), (20, 1_000, True), (20, 2_001, False)])
def test_a_handful_of_packets_out_of_order_is_nothing(late: int, packets: int, is_found: bool) -> None:
    story = limited(late=late)
    story.connection |= {"packets_to_initiator": packets}
    found = reordering(story)
    assert (found is not None) == is_found
    if found:
        assert (found.severity, found.cost_ns) == ("info", 0)
        assert found.text.endswith("TCP retransmitted nothing because of it.")


# --- recordings


def diagnosis(name: str) -> Diagnosis:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    return examine(iscsitrace.read(file, tables=NEEDED).table)


def of_recording(name: str) -> Finding | None:
    return next((each for each in diagnosis(name).sessions[0].findings if each.name == "reordering"), None)


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_reordering_that_halves_the_window_of_a_kernel(tap: str) -> None:
    """Nothing is lost; tcp_probe shows cwnd at 20 segments of 41, and at 33 of 66, after needless retransmissions."""
    headline = diagnosis(f"04_read_reorder_delay08ms.{tap}.pcap.gz").headline
    assert headline
    assert headline.name == "reordering"
    assert "TCP retransmitted 24 packets without need" in headline.text
    # counted with tshark: packets behind higher sequence numbers and later IP identifications, and their delays; at the
    # target's tap the packets are still in order
    late = "1,277 of 3,044 to the initiator arrived out of order, at most 14.6 ms late"
    assert (late in headline.text) == (tap == "initiator")


def test_reordering_by_jitter_is_found_beside_what_else_is_slow() -> None:
    found = of_recording("04_read_dup2pct_jitter_delay04ms.pcap.gz")
    assert found
    # all of its retransmissions: nothing is lost
    assert "63 packets without need" in found.text
    # by tshark, as above
    assert "2,533 of 3,141 to the initiator arrived out of order, at most 23.1 ms late" in found.text


@pytest.mark.parametrize(
    "name",
    ["04_read_loss1pct_delay08ms.initiator.pcap.gz", "04_read_loss1pct_delay08ms.target.pcap.gz"],
)
def test_losses_are_no_reordering(name: str) -> None:
    found = of_recording(name)
    assert found is None or found.severity == "info"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "04_read_ackloss5pct_delay04ms.pcapng.gz",
            "20_capture-drops_delay04ms.pcap.gz",
            "34_shared_line.target.pcap.gz",
        ),
        *("19_rate-limited_20mbit_delay04ms.initiator.pcap.gz", "06_mcs_2-connections_delay04ms.pcapng.gz"),
    ],
)
def test_nothing_is_reordered(name: str) -> None:
    assert of_recording(name) is None
