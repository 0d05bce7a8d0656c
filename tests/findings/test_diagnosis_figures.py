"""Figures in findings and headlines: medians, counts and shares of commands whose times are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.compare import sides
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings.finding import Finding
from iscsitrace.measure import grouping, workload
from tests.support.story import Story
from tests.support.tables_by_hand import MS, table

KIB = 1024
BLOCK = 128 * KIB


def found(story: Story, name: str) -> Finding:
    finding = story.found(name)
    assert finding
    return finding


# --- RTT


def test_the_rtt_of_a_session_is_that_of_its_busiest_connection() -> None:
    story = Story(rtt_to_target_ns=16 * MS, rtt_to_initiator_ns=MS)
    busier = {"connection": 4, "stream_bytes_to_initiator": 1_000_001, "rtt_to_target_min_ns": 30 * MS}
    story.rows["connections"].append(story.connection | busier)
    found = grouping.Grouping(story.tasks(8, ("propagation", 16 * MS)).source())
    sessions, connections = found.sessions, found.connections
    assert (sessions[0].rtt_ns("target"), sessions[0].path_ns) == (30 * MS, 31 * MS)
    assert connections[3].path_ns == 17 * MS


# --- the workload


def test_the_workload_is_the_median_by_bytes_not_by_commands() -> None:
    """Dozens of small reads when a device is scanned, and a few large ones."""

    def of(*counts: tuple[int, int, int]) -> tuple[int, int]:
        rows = [
            {"is_read": True, "operation": "read", "bytes": size, "data_bytes": size, "queue_depth": depth}
            for count, size, depth in counts
            for _ in range(count)
        ]
        asked = workload.of(table("cycles", *rows))
        assert asked
        return asked.block_bytes, asked.queue_depth

    assert of((30, 4 * KIB, 1), (10, BLOCK, 8)) == (BLOCK, 8)
    assert of((31, 4 * KIB, 1), (1, BLOCK, 8)) == (BLOCK, 8)
    # half of the bytes went in blocks no larger
    assert of((32, 4 * KIB, 1), (1, BLOCK, 8)) == (4 * KIB, 1)


def test_blocks_in_flight_together_pass_one_after_another() -> None:
    """If the line rate is unknown, by the median time: twice 9 ms is longer than an RTT of 16 ms."""

    def story(depth: int) -> Story:
        made = Story()
        for number in range(16):
            data = {"data_first_ns": made.now + 16 * MS, "data_last_ns": made.now + (25 if number % 8 else 20) * MS}
            made.task(("propagation", 16 * MS), ("transfer", 9 * MS), queue_depth=depth, **data)
        return made

    assert story(1).found("block_size_small")
    assert story(2).found("block_size_small") is None


# --- hosts


def test_the_median_wait_of_reads_for_the_target() -> None:
    """Tap between the hosts: RTT 16 ms to the target, and 8 ms to the initiator, which is no wait for the target."""
    story = Story(rtt_to_target_ns=16 * MS, rtt_to_initiator_ns=8 * MS)
    for number in range(12):
        service_ns = (7 if number < 9 else 95) * MS
        first = story.now + 16 * MS + service_ns
        data = {"data_first_ns": first, "data_last_ns": first + MS}
        story.task(("propagation", 16 * MS), ("target_service", service_ns), ("transfer", MS), **data)
    text = found(story, "slow_target").text
    # 9 * 7 + 3 * 95
    assert "348.0 ms" in text
    assert "95.0 ms" in text
    assert "typically takes 7.0 ms per read" in text


def test_r2t_and_status_of_a_write_both_count_beyond_the_rtt() -> None:
    story = Story(rtt_to_target_ns=16 * MS)
    for _ in range(12):
        granted, done = story.now + 18 * MS, story.now + 22 * MS
        instants = {"r2t_count": 1, "r2t_first_ns": granted, "data_first_ns": granted, "data_last_ns": done}
        parts = [("propagation", 16 * MS), ("target_service", 2 * MS), ("transfer", 4 * MS)]
        parts += [("propagation", 16 * MS), ("target_service", 3 * MS)]
        story.task(*parts, operation="write", **instants)
    # 2 ms beyond the RTT for the R2T, and 3 ms for the status
    assert "typically takes 5.0 ms per write" in found(story, "slow_target").text


def test_the_median_think_time_of_a_job() -> None:
    story = Story()
    for number in range(12):
        story.task(("transfer", 10 * MS)).pause((40 if number < 9 else 90) * MS)
    finding = found(story.task(("transfer", 10 * MS)), "initiator_think_time")
    assert "12 times" in finding.text
    assert "40.0 ms" in finding.text
    # 9 * 40 and 3 * 90 of that and 13 * 10
    assert finding.share == pytest.approx(630 / 760)


def test_missing_data_out_does_not_count_as_a_prompt_initiator() -> None:
    story = Story()
    for number in range(20):
        r2t = {"cycle": number, "r2t_sn": 0, "r2t_ns": story.now, "r2t_frame": 1_000 + number}
        seen = {"data_first_ns": story.now + 3 * MS} if number < 8 else {}
        story.rows["rounds"].append(r2t | seen)
        story.task(("initiator_service", 3 * MS), ("transfer", 3 * MS), operation="write")
    assert "3.0 ms" in found(story, "slow_initiator").text


# --- writes


def write_in_bursts(story: Story, bursts: list[int]) -> None:
    """A write at an RTT of 16 ms with R2Ts for these sizes, one after another, 4 ms each."""
    number, parts = len(story.rows["cycles"]), []
    for r2t_sn, size in enumerate(bursts):
        granted = story.now + 16 * MS + r2t_sn * 20 * MS
        story.rows["rounds"].append(
            {"cycle": number, "r2t_sn": r2t_sn, "desired_data_transfer_length": size, "r2t_ns": granted}
            | {"data_first_ns": granted, "data_last_ns": granted + 4 * MS}
        )
        parts += [("propagation", 16 * MS), ("transfer", 4 * MS)]
    story.task(*parts, operation="write", bytes=sum(bursts), immediate_bytes=1)


def test_the_reported_burst_is_the_most_frequent() -> None:
    story = Story()
    for _ in range(8):
        write_in_bursts(story, [64 * KIB, 64 * KIB, 64 * KIB, 512 * KIB])
    text = found(story, "r2t_rounds").text
    assert "704 KiB" in text
    assert "bursts of 64 KiB" in text
    assert "4 R2Ts" in text


def test_an_r2t_is_late_only_by_the_time_beyond_the_rtt() -> None:
    """1 ms of service time, then the RTT, then 3 ms until the R2T."""
    story = Story(rtt_to_target_ns=4 * MS)
    for number in range(10):
        granted = story.now + 7 * MS
        data = {"data_first_ns": granted, "data_last_ns": granted + MS}
        story.rows["rounds"].append({"cycle": number, "r2t_sn": 0, "r2t_ns": granted} | data)
        parts = (("target_service", MS), ("propagation", 3 * MS), ("target_service", 3 * MS), ("transfer", MS))
        story.task(*parts, operation="write", immediate_bytes=1)
    assert found(story, "r2t_late").share == pytest.approx(3 / 8)


def test_an_r2t_round_costs_the_delays_of_the_r2t_and_of_the_data() -> None:
    """Tap between the hosts: the R2T comes after 8 ms, and its data 6 ms later."""
    story = Story(rtt_to_target_ns=8 * MS, rtt_to_initiator_ns=6 * MS)
    for number in range(10):
        granted = story.now + 8 * MS
        data = {"data_first_ns": granted + 6 * MS, "data_last_ns": granted + 10 * MS}
        story.rows["rounds"].append({"cycle": number, "r2t_sn": 0, "r2t_ns": granted} | data)
        story.task(("propagation", 14 * MS), ("transfer", 4 * MS), ("propagation", 8 * MS), operation="write")
    assert found(story, "unsolicited_data_unused").share == pytest.approx(14 / 26)


def test_only_statuses_that_waited_for_an_ack_are_counted() -> None:
    story = Story().tasks(8, ("transfer", MS), ("ack_wait", 40 * MS), is_status_in_data=False)
    story.tasks(4, ("transfer", MS), is_status_in_data=False)
    finding = found(story, "held_for_ack")
    assert "8 reads" in finding.text
    assert "40.0 ms" in finding.text
    assert finding.share == pytest.approx(320 / 332)


# --- headlines


def test_inquiries_do_not_change_the_cause_of_the_reads_waits() -> None:
    """Eight reads and forty INQUIRYs wait for the RTT: the headline is that of the reads."""
    story = Story().tasks(8, ("propagation", 16 * MS))
    story.tasks(40, ("propagation", 16 * MS), operation="inquiry", data_bytes=36, bytes=36)
    opinion = story.opinion()
    assert (opinion.findings[0].name, opinion.findings[0].share) == ("queue_depth_low", 1.0)
    assert (opinion.headline.name, opinion.headline.cost_ns) == ("queue_depth_low", 8 * 16 * MS)
    assert opinion.time
    assert opinion.time.uses_ns["scan"] == 40 * 16 * MS


def test_a_capture_with_mostly_unknown_time_gets_no_headline() -> None:
    def is_too_poor(unknown_ns: int) -> bool:
        verdict = Story().tasks(10, ("propagation", 16 * MS), ("unknown", unknown_ns)).opinion().headline.text
        return "too poor" in verdict

    assert is_too_poor(16 * MS)
    assert not is_too_poor(16 * MS - 1)


def test_a_command_window_opens_when_the_initiator_learns_of_it() -> None:
    """At a tap with an RTT of 4 ms to the initiator, a delayed command comes 4 ms after the MaxCmdSN that allows it."""

    def waited(after_ns: int) -> bool:
        story = Story(rtt_to_target_ns=8 * MS, rtt_to_initiator_ns=4 * MS)
        at = story.now
        for number in range(40):
            story.rows["cycles"].append(
                {"cycle": number, "session": 0, "connection": 3, "operation": "read", "queue_depth": 1}
                | {"command_first_ns": at, "status_ns": at + 8 * MS, "cmd_sn": number, "max_cmd_sn": number + 1}
            )
            at += 8 * MS + after_ns
        return story.found("command_window_closed") is not None

    assert waited(4_900_000)
    assert not waited(5_100_000)


# --- connections used together


def used_together(*streams: tuple[int, int]) -> Finding | None:
    """Connections of one session that start together; of each (commands, nanoseconds per command)."""
    story = Story()
    story.rows["connections"].append(story.connection | {"connection": 4})
    for connection, (tasks, length_ns) in enumerate(streams, start=3):
        for number in range(tasks):
            at = story.now + number * length_ns
            row: dict[str, Any] = {"session": 0, "connection": connection, "operation": "read", "is_read": True}
            row |= {"cycle": len(story.rows["cycles"]), "bytes": 65_536, "data_bytes": 65_536, "is_complete": True}
            story.rows["cycles"].append(row | {"command_first_ns": at, "status_ns": at + length_ns})
    findings = examine(story.source()).sessions[0].findings
    return next((finding for finding in findings if finding.name == "uneven_connections"), None)


def test_the_share_of_uneven_connections_is_the_gain_of_an_even_load() -> None:
    # 40 and 10 tasks in the same time: 25 each would take 25 of 40
    by_bytes = used_together((40, 10 * MS), (10, 40 * MS))
    assert by_bytes
    assert by_bytes.share == pytest.approx(1 - 25 / 40)
    assert "2.6 MB" in by_bytes.text
    assert "0.7 MB" in by_bytes.text
    # the same bytes in 400 ms and in 200: 300 of 400
    by_time = used_together((20, 20 * MS), (20, 10 * MS))
    assert by_time
    assert by_time.share == pytest.approx(1 - 300 / 400)
    assert "400.0 ms" in by_time.text
    assert "200.0 ms" in by_time.text
    assert used_together((20, 20 * MS), (20, 10 * MS + 100_000)) is None


# --- compared with another capture


def test_figures_of_a_session_compared_with_another() -> None:
    story = Story().tasks(20, ("propagation", 16 * MS), ("transfer", 4 * MS), data_pdu_bytes_max=BLOCK)
    story.connection |= {"packets_to_target": 500, "retransmitted_packets_to_target": 100}
    story.connection |= {"packets_to_initiator": 2_000, "retransmitted_packets_to_initiator": 20}
    story.rows["connections"].append(
        story.connection | {"connection": 4, "packets_to_initiator": 1_000, "retransmitted_packets_to_initiator": 10}
    )
    for connection, window in ((3, 1 << 20), (4, 1 << 16)):
        story.add("senders", connection=connection, to_target=False, rwnd_max_bytes=window, recovery_count=2)
    story.add("senders", to_target=True, rwnd_max_bytes=1 << 22, recovery_count=7)
    (side,) = sides.sides_of(story.source()).values()
    document = side.as_dict()
    # of the direction of the data alone
    assert (document["packet_count"], document["retransmitted_packet_count"]) == (3_000, 30)
    assert side.retransmitted_packet_count / side.packet_count == 0.01
    assert (document["loss_count"], document["window_bytes"]) == (4, 1 << 20)
    propagation = document["budget"]["propagation"]
    assert (propagation["ns"], propagation["share"]) == (320 * MS, 0.8)
    # a megabyte is 10^6 bytes: 7.63 blocks
    assert propagation["ns_per_megabyte"] == pytest.approx(16 * MS / 0.131072)
    assert document["pace_bytes_per_s"] == pytest.approx(BLOCK / 0.020)
    assert document["one_way_delay_ns"] == 8 * MS
