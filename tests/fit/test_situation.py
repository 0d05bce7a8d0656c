"""Measurements of a session as input of the model: waits, queue depth, and which commands count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.compare import sides
from iscsitrace.compare.sides import why_not
from iscsitrace.findings.finding import AdviceGain, Finding
from iscsitrace.fit.gain import OF_A_COMMAND, Change, Gain, of_session
from iscsitrace.fit.situation import Measured, Situation, measure
from iscsitrace.measure import grouping
from iscsitrace.model.setting import Setting, Solicitation
from tests.support.capture_file import write_pcapng
from tests.support.conversation import Conversation, Session
from tests.support.story import Story
from tests.support.tables_by_hand import MS

BLOCK = 131_072


def side_of(story: Story) -> sides.Side:
    (side,) = sides.sides_of(story.source()).values()
    return side


def measured(story: Story) -> Measured | None:
    return measure(grouping.sessions_of(story.source())[0])


def gains(finding: Finding | None) -> dict[str, AdviceGain]:
    assert finding
    return {gain.change: gain for gain in finding.gains}


# --- waits


def test_every_command_in_flight_has_the_wait() -> None:
    """Eight at a time, each with an RTT of 16 ms and 24 ms at the target, which adds 3 ms in each slot of 5 ms."""
    story = Story().kept_filled(56, 8, ("propagation", 2 * MS), ("target_service", 3 * MS))
    # 56 tasks in 55 slots and 40 ms
    side = side_of(story)
    assert side.queue_depth == 8
    assert side.pace_bytes_per_s == pytest.approx(56 * BLOCK / 0.315)
    assert side.as_dict()["model_pace_bytes_per_s"] == pytest.approx(8 * BLOCK / 0.040)
    found = gains(story.found("slow_target"))
    # by the model 40 / 16, but 168 of the 315 ms are all that it can take away
    assert found["zero target service time"].throughput_factor == pytest.approx(315 / 147)
    assert found["queue depth 32"].throughput_factor == pytest.approx(32 / 8)
    # what the model misses (45 ms in fact, not 40) may be there without the target as well
    assert found["zero target service time"].low == pytest.approx(45 / 21)


def test_service_times_deviate_only_where_a_command_is_alone() -> None:
    """20 and 28 ms by turns. In a queue a command's service time includes the wait for the others."""
    alone = Story()
    for _ in range(10):
        for service_ms in (20, 28):
            alone.task(("propagation", 16 * MS), ("target_service", service_ms * MS))
    queued = Story().kept_filled(56, 8, ("propagation", 2 * MS), ("target_service", 3 * MS))
    deviations = [found.situation.service_deviation_ns for story in (alone, queued) if (found := measured(story))]
    assert deviations == [pytest.approx(4 * MS), 0]


def test_stalls_of_a_receiver_are_proportional_to_bytes() -> None:
    """Delays shared by all commands are no wait of each: 4 ms of each 20 ms, at any queue depth."""
    sender = {"to_target": False, "rwnd_min_bytes": 0, "rwnd_max_bytes": 1 << 20, "segment_bytes": 1_448}
    story = Story().tasks(20, ("propagation", 16 * MS), ("receive_window", 4 * MS)).add("senders", **sender)
    found = measured(story)
    assert found
    assert found.situation.stalls_ns_per_byte["receiver"] == pytest.approx(4 * MS / BLOCK)
    assert found.remainder == pytest.approx(1)
    # two at once take an RTT of 8 ms each, and 4 ms for the receiver
    assert found.situation.with_setting(queue_depth=2).throughput() == pytest.approx(BLOCK / 0.012)


def test_cwnd_waits_count_as_losses_from_the_first_loss_on() -> None:
    story = Story()
    for number in range(20):
        if number == 5:
            story.add(
                "recoveries",
                to_target=False,
                retransmitted_packets=1,
                time_first_ns=story.now,
                time_last_ns=story.now + MS,
            )
        story.task(("propagation", 16 * MS), ("congestion_window", 2 * MS))
    found = measured(story)
    assert found
    stalls = found.situation.stalls_ns_per_byte
    assert stalls["slow_start"] * 20 * BLOCK == pytest.approx(5 * 2 * MS)
    assert stalls["loss"] * 20 * BLOCK == pytest.approx(15 * 2 * MS)


def test_an_idle_gap_is_no_time_of_the_commands() -> None:
    story = Story().tasks(10, ("propagation", 20 * MS)).pause(10_000 * MS).tasks(10, ("propagation", 20 * MS))
    found = measured(story)
    assert found
    assert found.busy_ns == 400 * MS
    assert found.pace_bytes_per_s == pytest.approx(BLOCK / 0.020)
    assert found.situation.waits_ns["initiator_think"] == 0


def test_seven_commands_are_too_few() -> None:
    assert measured(Story().tasks(7, ("propagation", 16 * MS))) is None
    assert measured(Story().tasks(8, ("propagation", 16 * MS)))


def held_reads(held: int, wait_ns: int = 16 * MS) -> Story:
    """Twenty reads at an RTT of 16 ms; this many have their status after the ACK of their data."""
    story = Story().tasks(held, ("propagation", 16 * MS), ("ack_wait", wait_ns), is_status_in_data=False)
    return story.tasks(20 - held, ("propagation", 16 * MS))


@pytest.mark.parametrize(("held", "is_held"), [(10, False), (11, True)])
def test_statuses_are_held_if_more_than_half_of_them_are(held: int, is_held: bool) -> None:
    found = measured(held_reads(held))
    assert found
    assert found.situation.setting.is_status_held == is_held
    # two delays of each are the model's then
    wait_ns = held * 16 * MS / 20
    assert found.situation.waits_ns["ack_wait"] == pytest.approx(0 if is_held else wait_ns)


@pytest.mark.parametrize(("wait_ns", "is_held"), [(7_990_000, False), (8_010_000, True)])
def test_a_status_that_waited_less_than_half_of_the_rtt_was_not_held(wait_ns: int, is_held: bool) -> None:
    found = measured(held_reads(20, wait_ns))
    assert found
    assert found.situation.setting.is_status_held == is_held


def test_the_wait_of_a_held_status_beyond_the_rtt_is_separate() -> None:
    found = measured(held_reads(20, 56 * MS))
    assert found
    assert found.situation.waits_ns["ack_wait"] == 40 * MS
    gain = gains(held_reads(20, 56 * MS).found("held_for_ack"))["status in the last Data-In"]
    # 16 ms of RTT, and 16 + 40 ms for an ACK
    assert gain.throughput_factor == pytest.approx(72 / 16)


@pytest.mark.parametrize(("apart", "is_open"), [(28, False), (29, True)])
def test_with_several_commands_in_flight_held_statuses_are_inferred(apart: int, is_open: bool) -> None:
    """If more than half of them are separate from their data."""
    story = Story().kept_filled(56, 8, ("propagation", 2 * MS))
    for row in story.rows["cycles"][:apart]:
        row["is_status_in_data"] = False
    found = measured(story)
    assert found
    assert ("is_status_held" in found.situation.open_names) == is_open


@pytest.mark.parametrize(
    ("columns", "window_bytes"),
    [
        ({"rwnd_min_bytes": 1_448}, 65_536),
        ({"rwnd_min_bytes": 1_447}, None),
        ({"rwnd_min_bytes": 1_448, "is_window_scale_inferred": True}, None),
    ],
)
def test_a_window_is_known_if_it_never_closed_and_its_scale_was_captured(
    columns: dict[str, int], window_bytes: int | None
) -> None:
    sender = {"to_target": False, "rwnd_max_bytes": 65_536, "segment_bytes": 1_448, "line_bytes_per_s": 10**9}
    # acknowledgments, and what a connection sent that carried less, are not what reads wait for
    story = Story().add("senders", to_target=True, rwnd_max_bytes=1, rwnd_min_bytes=1_448)
    story.rows["connections"].append(story.connection | {"connection": 4, "stream_bytes_to_initiator": 999_999})
    story.add("senders", **sender | {"connection": 4, "rwnd_max_bytes": 2, "rwnd_min_bytes": 1_448})
    found = measured(story.tasks(20, ("propagation", 16 * MS)).add("senders", **sender, **columns))
    assert found
    assert found.situation.setting.window_bytes == window_bytes
    assert found.situation.open_names == frozenset(() if window_bytes else {"window_bytes"})
    assert found.situation.setting.c_bytes_per_s == 10**9


# --- which commands


def beside_each_other(reads: int, writes: int) -> Story:
    """Twenty reads and writes, interleaved."""
    story = Story()
    for number in range(reads):
        story.task(("propagation", 16 * MS))
        if number < writes:
            story.task(("propagation", 16 * MS), operation="write")
    return story


def test_reads_with_few_writes_among_them_are_reads() -> None:
    few = side_of(beside_each_other(21, 2))
    assert few.measured
    assert (few.operation, few.task_count, few.bytes) == ("read", 21, 21 * BLOCK)
    assert few.measured.situation.setting.operation == "read"
    # a tenth of what was read, or more, makes the figures of reads those of both
    more = side_of(beside_each_other(20, 2))
    assert (more.operation, more.measured) == ("read", None)
    mixed = side_of(beside_each_other(20, 10))
    assert (mixed.operation, mixed.measured) == ("block", None)
    for side in (more, mixed):
        reason = why_not(side, few) or ""
        assert reason.startswith("session 0 of the first capture mixes reads and writes"), side.operation


def test_earlier_writes_are_not_mixed_with_the_reads() -> None:
    story = Story().tasks(10, ("propagation", 16 * MS), operation="write")
    side = side_of(story.tasks(20, ("propagation", 32 * MS)))
    assert side.measured
    assert (side.task_count, side.jobs_ns) == (20, 640 * MS)
    assert side.pace_bytes_per_s == pytest.approx(BLOCK / 0.032)
    assert side.parts_ns["propagation"] == 640 * MS


def test_a_capture_of_mixed_io_compared_with_one_of_reads(tmp_path: Path) -> None:
    files = []
    for name, has_writes in (("mixed", True), ("reads", False)):
        conversation = Conversation()
        session = conversation.session(Session()).login()
        for _ in range(12):
            session.read(count=1, block_bytes=65_536)
            if has_writes:
                session.write(count=1, block_bytes=65_536)
        session.logout()
        capture = conversation.run()
        files.append(write_pcapng(tmp_path / f"{name}.pcapng", capture.packets, capture.path.link_type))
    runner = CliRunner()
    result = runner.invoke(main, ["diff", *map(str, files)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "session 0 of the first capture mixes reads and writes" in result.stdout
    comparison = json.loads(runner.invoke(main, ["diff", "--json", *map(str, files)]).stdout)
    assert comparison["gap"] is None
    assert json.loads(runner.invoke(main, ["diff", "--json", str(files[1]), str(files[1])]).stdout)["gap"]


def test_the_block_of_several_sizes_is_their_mean() -> None:
    """The same number of blocks then moves the same bytes: 128 KiB and 64 KiB in turn."""
    story = Story()
    for number in range(20):
        story.task(("propagation", 16 * MS), bytes=BLOCK if number % 2 else BLOCK // 2)
    found = measured(story)
    assert found
    assert found.situation.setting.block_bytes == 96 * 1024
    assert found.remainder == pytest.approx(1)


def written(keys: dict[str, str], rounds: tuple[int, ...] = (), **columns: int) -> Situation:
    """Twenty writes of 256 KiB with these negotiated parameters; the R2Ts of the first one have these sizes."""
    story = Story()
    for key, value in keys.items():
        story.add("parameters", session=0, key=key, effective_target=value)
    for size in rounds:
        story.rows["rounds"].append({"cycle": 0, "desired_data_transfer_length": size})
    found = measured(story.tasks(20, ("propagation", 16 * MS), operation="write", bytes=2 * BLOCK, **columns))
    assert found
    return found.situation


def test_bursts_of_writes_are_those_measured_within_the_keys() -> None:
    keys = {"InitialR2T": "No", "FirstBurstLength": "65536", "MaxBurstLength": "1048576", "MaxOutstandingR2T": "4"}
    found = written(keys, (64 * 1024, 64 * 1024), immediate_bytes=8_192).setting.solicitation
    # bursts are shorter than they may be, and more of the first one could have gone unasked
    assert (found.max_burst_bytes, found.max_outstanding_r2t, found.first_burst_bytes) == (65_536, 4, 65_536)
    assert (found.is_initial_r2t, found.is_immediate_data, found.max_recv_data_segment_bytes) == (True, True, 8_192)
    # as long as what is left of a block: they may be as long as agreed
    assert written(keys, (2 * BLOCK,)).setting.solicitation.max_burst_bytes == 1 << 20
    # all of the first burst went with the command, or unasked after it
    assert not written(keys, (65_536,), immediate_bytes=65_536).setting.solicitation.is_initial_r2t
    assert not written(keys, (65_536,), unsolicited_bytes=65_536).setting.solicitation.is_initial_r2t
    assert written(keys | {"InitialR2T": "Yes"}, immediate_bytes=65_536).setting.solicitation.is_initial_r2t


def test_a_first_burst_that_was_not_negotiated_is_assumed() -> None:
    assert "first_burst_bytes" in written({"MaxBurstLength": "262144"}).open_names
    assert "first_burst_bytes" not in written({"FirstBurstLength": "65536"}).open_names
    # nothing else is known than the line's pace and the window
    assert written({"FirstBurstLength": "65536"}).open_names == {"c_bytes_per_s", "window_bytes"}


def test_r2ts_in_time_save_only_their_lateness() -> None:
    """Writes of 4 ms, 4 ms of RTT, 3 ms late R2T, 5 ms for the status: 13 of 16 ms remain."""
    story = Story(rtt_to_target_ns=4 * MS)
    for number in range(20):
        granted = story.now + 7 * MS
        data = {"data_first_ns": granted, "data_last_ns": granted}
        story.rows["rounds"].append({"cycle": number, "r2t_sn": 0, "r2t_ns": granted} | data)
        parts = (("propagation", 4 * MS), ("target_service", 3 * MS), ("propagation", 4 * MS))
        story.task(*parts, ("target_service", 5 * MS), operation="write")
    gain = gains(story.found("r2t_late"))["no late R2Ts"]
    assert gain.throughput_factor == pytest.approx(16 / 13)


def eight_of(story: Story) -> Gain:
    """The gain of eight commands at once by the model: advice has it only where the application issues several."""
    asked = of_session(grouping.sessions_of(story.source())[0])
    assert asked
    change = Change("queue depth 8", lambda situation: situation.with_setting(queue_depth=8), OF_A_COMMAND)
    gain = asked.gain(change)
    assert gain
    return gain


def test_the_low_and_high_gain_enclose_the_gain() -> None:
    """Writes in four rounds of 16 ms; eight at once just fill the line, and delay each other."""
    story, burst_ns = Story(), 2_857_000
    line = round((65_536 + 48) * 1e9 / burst_ns)
    windows = {"rwnd_min_bytes": 1 << 24, "rwnd_max_bytes": 1 << 24, "segment_bytes": 1_448}
    story.add("senders", to_target=True, line_bytes_per_s=line, **windows)
    keys = {"InitialR2T": "Yes", "FirstBurstLength": "65536", "MaxBurstLength": "65536", "MaxOutstandingR2T": "1"}
    for key, value in keys.items():
        story.add("parameters", session=0, key=key, effective_target=value)
    for number in range(10):
        for place in range(4):
            granted = story.now + 16 * MS + place * (16 * MS + burst_ns)
            data = {"data_first_ns": granted, "data_last_ns": granted + burst_ns, "r2t_ns": granted}
            row = {"cycle": number, "r2t_sn": place, "desired_data_transfer_length": 65_536}
            story.rows["rounds"].append(row | data)
        parts = [("propagation", 16 * MS), ("transfer", burst_ns)] * 4
        story.task(*parts, ("propagation", 16 * MS), operation="write", bytes=2 * BLOCK, data_pdu_bytes_max=65_536)
    gain = eight_of(story)
    assert 4 < gain.throughput_factor < 7.9
    assert gain.low <= gain.throughput_factor <= gain.high
    # the line's pace is known to two hundredths, and of nothing else there is a doubt
    assert gain.high / gain.low < 1.05


# --- queue depth


@pytest.mark.parametrize(("gap_ns", "depth"), [(16 * MS, 1), (12_100_000, 1), (11_900_000, 2)])
def test_at_a_far_tap_a_command_is_in_flight_until_its_status_can_have_arrived(gap_ns: int, depth: int) -> None:
    """Tap beside the target, RTT 16 ms to the initiator: a command that follows a status by less than three quarters of
    that was sent before the status arrived.
    """
    story = Story(rtt_to_target_ns=0, rtt_to_initiator_ns=16 * MS)
    for _ in range(20):
        story.task(("transfer", MS)).pause(gap_ns, "propagation")
    assert side_of(story).queue_depth == depth


@pytest.mark.parametrize(("to_initiator_ns", "depth"), [(2 * MS, 3), (2_100_000, 4)])
def test_commands_queued_beyond_a_far_tap_are_in_flight_too(to_initiator_ns: int, depth: int) -> None:
    """A block each 4 ms at an RTT of 16 ms: a far tap sees three of four in flight, one at the initiator sees all."""
    story = Story(rtt_to_target_ns=16 * MS - to_initiator_ns, rtt_to_initiator_ns=to_initiator_ns)
    assert side_of(story.kept_filled(56, 2, ("propagation", 4 * MS))).queue_depth == depth


# --- random overlap of commands


def eight_at_once(service_ns: tuple[int, int]) -> float:
    """Gain of eight at once over one: reads with these two service times in turn, RTT 16 ms, 4 ms on the line."""
    story = Story()
    windows = {"rwnd_min_bytes": 1 << 24, "rwnd_max_bytes": 1 << 24, "segment_bytes": 1_448}
    # a block goes in one PDU, with a header
    story.add("senders", to_target=False, line_bytes_per_s=(BLOCK + 48) * 250, **windows)
    for number in range(20):
        parts = (("propagation", 16 * MS), ("target_service", service_ns[number % 2]), ("transfer", 4 * MS))
        story.task(*parts, data_pdu_bytes_max=BLOCK)
    return eight_of(story).throughput_factor


def test_service_times_that_differ_by_a_quarter_block_put_commands_out_of_step() -> None:
    # 31 ms alone; eight in step fill the line, at 4 ms a block
    assert eight_at_once((10_010_000, 11_990_000)) == pytest.approx(31 / 4)
    # by chance a task finds on average part of another before it: some of the line stays free
    out_of_step = eight_at_once((9_990_000, 12_010_000))
    assert 31 * 8 / (31 + 7 * 4) < out_of_step < 0.97 * 31 / 4


def test_groups_of_connections_stall_separately() -> None:
    """A loss delays one connection; slow start and the line affect all connections."""
    one = Situation(Setting("read", 100_000, 5 * MS), stalls_ns_per_byte={"loss": 100.0})
    # 10 ms of RTT and 10 ms of losses; four times as many in flight
    assert one.throughput() == pytest.approx(100_000 / 0.020)
    assert one.with_connections(4).throughput() == pytest.approx(4 * 100_000 / 0.020)
    slow = Situation(Setting("read", 100_000, 5 * MS), stalls_ns_per_byte={"slow_start": 100.0})
    # a block each 2.5 ms, and 10 ms for each block
    assert slow.with_connections(4).throughput() == pytest.approx(100_000 / 0.0125)


# --- arithmetic of the throughput


def exactly(value: float) -> object:
    return pytest.approx(value, rel=1e-12)


def test_waits_lengthen_each_command_and_stalls_each_byte() -> None:
    """100 kB in 10 ms of RTT."""
    plain = Situation(Setting("read", 100_000, 5 * MS))
    assert plain.throughput() == exactly(1e7)
    slow = Situation(plain.setting, {"target_service": 6.0 * MS, "ack_wait": 4.0 * MS}, {"loss": 40.0, "unknown": 10.0})
    # 20 ms are 200 ns for each byte
    assert slow.throughput() == exactly(1e9 / 250)
    assert slow.without("target_service").throughput() == exactly(1e9 / 190)
    assert slow.without("ack_wait", 0.5).throughput() == exactly(1e9 / 230)
    assert slow.without("loss", 0.25).throughput() == exactly(1e9 / 240)
    assert slow.without("transfer") == slow
    assert slow.with_setting(queue_depth=2).throughput() == exactly(1e9 / (100 + 50))


def test_a_rough_throughput_is_that_of_one_command_times_the_queue_depth_up_to_the_line() -> None:
    """Writes of 100 kB: a command and two R2Ts take 30 ms, the line 1 ms for each."""
    keys = Solicitation(is_immediate_data=False, max_burst_bytes=50_000)
    setting = Setting("write", 100_000, 5 * MS, 1e8, queue_depth=4, solicitation=keys)
    assert Situation(setting).throughput(is_rough=True) == exactly(4 * 100_000 / 0.031)
    assert Situation(replace(setting, queue_depth=40)).throughput(is_rough=True) == exactly(1e8)
    alone = replace(setting, queue_depth=1)
    assert Situation(alone).throughput(is_rough=True) == exactly(100_000 / 0.031)
    # without a line time there is no line
    free = replace(setting, c_bytes_per_s=None, queue_depth=40)
    assert Situation(free).throughput(is_rough=True) == exactly(40 * 100_000 / 0.030)


def test_reads_and_unsolicited_writes_need_not_be_followed() -> None:
    """20 commands of 100 kB in 11 ms; the line carries 1e8 bytes a second."""
    keys = Solicitation(is_initial_r2t=False, first_burst_bytes=100_000)
    for setting in (Setting("read", 100_000, 5 * MS, 1e8), Setting("write", 100_000, 5 * MS, 1e8, solicitation=keys)):
        found = [Situation(replace(setting, queue_depth=depth)).throughput() for depth in (1, 10, 20)]
        assert found == [exactly(100_000 / 0.011), exactly(10 * 100_000 / 0.011), exactly(1e8)]


def test_the_queue_depth_is_that_of_all_connections() -> None:
    """Eight in flight over four connections are two on each."""
    situation = Situation(Setting("read", 100_000, 5 * MS, queue_depth=8, connections=4))
    assert situation.throughput() == exactly(8 * 100_000 / 0.010)
    assert situation.with_setting(queue_depth=2).throughput() == exactly(2 * 100_000 / 0.010)


def test_groups_share_the_line_and_common_stalls() -> None:
    """A group of two connections, two in flight: 20 MB/s, with 50 ns of losses a byte 10 MB/s; three groups."""
    stalls = {"loss": 50.0, "slow_start": 10.0, "receiver": 0.0, "unknown": 5.0}
    one = Situation(Setting("read", 100_000, 5 * MS, queue_depth=2, connections=2), {}, stalls)
    three = one.with_connections(6)
    assert (three.groups, three.setting.connections, three.setting.queue_depth) == (3, 6, 6)
    assert three.throughput() == exactly(1e9 / (1e9 / 3e7 + 15))
    # a line of 25 MB/s: alone it takes 4 ms for each, then it is full
    narrow = replace(one, setting=replace(one.setting, c_bytes_per_s=2.5e7)).with_connections(6)
    alone = 1e9 / (1e9 / (2 * 100_000 / 0.014) + 50)
    assert narrow.throughput() == exactly(1e9 / (1e9 / min(3 * alone, 2.5e7) + 15))
