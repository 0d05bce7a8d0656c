"""The bench of unseen runs: draws repeat, truths of runs that can be computed by hand, and a miss is a miss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.unseen import acceptance, drawing, guests, logs, runs, truth, wire
from bench.unseen.__main__ import rates, reaches
from bench.unseen.acceptance import HEALTHY, LIMITED, PROBLEM
from bench.unseen.drawing import KINDS, MS, Draw
from bench.unseen.judging import BOTH, Said
from bench.unseen.outcome import Outcome, of_simulated
from bench.unseen.truth import Facts
from tests.support.capture_file import read_records

_KIB = 1 << 10
_NUMBERS = range(300)
# of 94 bytes each, 8 microseconds on a line of 94 Mbit/s
_FRAME_BYTES, _FRAME_RATE, _FRAME_NS = 94, 94_000_000, 8_000


def test_the_same_seed_and_number_draw_the_same_run() -> None:
    assert [drawing.of_number(7, number) for number in _NUMBERS] == [drawing.of_number(7, each) for each in _NUMBERS]
    assert drawing.of_number(7, 1) != drawing.of_number(8, 1)


def test_every_kind_is_drawn() -> None:
    assert {drawing.of_number(7, number).kind for number in _NUMBERS} == set(KINDS)


def test_draws_are_small() -> None:
    for draw in (drawing.of_number(7, number) for number in _NUMBERS):
        segment = draw["tcp.mss"] or 1_448
        sent = draw["workload.bytes"]
        assert sent is None or sent <= max(3_600 * segment, 16 * (1 + draw.foreign_count) * draw["workload.block-size"])


def test_a_line_sends_one_packet_after_the_other() -> None:
    came = np.array([0, 0, 1_000, 100_000], np.int64)
    size = np.full(4, _FRAME_BYTES, np.int64)
    dropped = np.array([False, False, True, False])
    starts, ends = wire.on_line(came, size, dropped, _FRAME_RATE)
    assert starts.tolist() == [0, _FRAME_NS, 1_000, 100_000]
    assert ends.tolist() == [_FRAME_NS, 2 * _FRAME_NS, 1_000, 100_000 + _FRAME_NS]


def _draw(**values: Any) -> Draw:
    named: dict[str, Any] = {
        "workload.operation": "read",
        "workload.block-size": 4 * _KIB,
        "workload.bytes": 40 * 4 * _KIB,
        "link.one-way-delay": 10 * MS,
    }
    return Draw(
        1, 0, "by hand", named | {name.replace("__", ".").replace("_", "-"): each for name, each in values.items()}
    )


def _facts(folder: Path, draw: Draw) -> Facts:
    return _known(draw, runs.make(draw, folder))


def _known(draw: Draw, made: runs.Made) -> Facts:
    return truth.facts(draw, logs.of_simulation(draw, made))


def test_a_read_at_a_distance_is_all_delay(tmp_path: Path) -> None:
    facts = _facts(tmp_path, _draw())
    assert facts.shares["propagation"] == pytest.approx(1)
    assert facts.io_ns == pytest.approx(40 * 20 * MS)
    assert acceptance.accepted(facts).label == "distance"


def test_service_is_what_the_target_took(tmp_path: Path) -> None:
    facts = _facts(tmp_path, _draw(target__service_delay=30 * MS))
    assert facts.shares["target_service"] == pytest.approx(0.6)
    assert facts.service_ns == pytest.approx(30 * MS)
    assert set(acceptance.accepted(facts).names) == {"slow_target"}


def test_queued_commands_do_not_add_their_service(tmp_path: Path) -> None:
    facts = _facts(tmp_path, _draw(workload__queue_depth=10, target__service_delay=5 * MS, tcp__initial_window=100))
    # a fifth of each life, though at most times some command is served
    assert facts.shares["target_service"] == pytest.approx(0.2, abs=0.01)


def test_reads_behind_a_closed_window_wait_for_it(tmp_path: Path) -> None:
    draw = _draw(workload__queue_depth=20, target__service_delay=5 * MS, tcp__initial_window=100)
    facts = _facts(tmp_path, draw)
    # 65,160 bytes are the first window: sixteen reads of 4,144 bytes begin in it, and four of 40 wait for an RTT
    lives_ms = 40 * 25 + 4 * 20
    assert facts.life_shares["receive_window"] == pytest.approx(4 * 20 / lives_ms)
    assert facts.life_shares["target_service"] == pytest.approx(40 * 5 / lives_ms)


def test_commands_in_flight_together_share_the_time(tmp_path: Path) -> None:
    draw = _draw(workload__queue_depth=2, workload__bytes=2 * 4 * _KIB)
    draw.storage = [{"fault": "delayed_status", "by_ns": 20 * MS, "nth": 2, "operation": "read"}]
    facts = _facts(tmp_path, draw)
    # lives of 20 and 40 ms; the second waits for storage for 20, in 10 of which the first is in flight, too
    assert facts.io_ns == pytest.approx(40 * MS)
    assert facts.shares["target_service"] == pytest.approx((10 / 2 + 10) / 40)
    assert facts.life_shares["target_service"] == pytest.approx(20 / 60)


def test_a_pause_of_the_program_is_no_io(tmp_path: Path) -> None:
    facts = _facts(tmp_path, _draw(workload__think_time=60 * MS))
    assert facts.think_share == pytest.approx(39 * 60 / (39 * 60 + 40 * 20), abs=0.001)
    assert "initiator_think_time" in acceptance.accepted(facts).names


def test_a_full_line_and_its_queue(tmp_path: Path) -> None:
    draw = _draw(
        workload__block_size=64 * _KIB,
        workload__bytes=4 << 20,
        workload__queue_depth=16,
        link__rate=20_000_000,
        tcp__initial_window=1_000,
    )
    facts = _facts(tmp_path, draw)
    assert facts.line_share > 0.95
    # 16 commands take 16 * 64 KiB * 1.05 / 20 Mbit/s = 440 ms: at most that, less the path
    assert 350 * MS < facts.queue_ns < 440 * MS
    assert "standing_queue" in acceptance.accepted(facts).names
    assert acceptance.accepted(facts).label == "line"


def test_a_small_send_buffer_is_told_from_the_congestion_window(tmp_path: Path) -> None:
    draw = _draw(
        workload__block_size=256 * _KIB,
        workload__bytes=4 << 20,
        workload__queue_depth=4,
        target__tcp__send_buffer=16 * _KIB,
    )
    facts = _facts(tmp_path, draw)
    # a buffer of 16 KiB moves one of its size per round trip
    assert facts.shares["send_buffer"] > 0.8
    assert set(acceptance.accepted(facts).names) == {"send_buffer_small"}


def test_a_small_window_is_told_from_the_congestion_window(tmp_path: Path) -> None:
    draw = _draw(
        workload__block_size=256 * _KIB,
        workload__bytes=4 << 20,
        workload__queue_depth=4,
        initiator__tcp__window=16 * _KIB,
    )
    assert set(acceptance.accepted(_facts(tmp_path, draw)).names) == {"receive_window_small", "receiver_stalled"}


def test_a_black_out_leads(tmp_path: Path) -> None:
    draw = _draw(workload__bytes=None, workload__seconds=3.0)
    del draw.values["workload.bytes"]
    draw.faults = ["black-out,at=0.5s,for=1s"]
    facts = _facts(tmp_path, draw)
    # the retransmission after the end comes at a timer that doubled: 1 to 2 s
    assert 1_000 * MS <= facts.black_out_ns <= 2_100 * MS
    assert acceptance.accepted(facts).label == "black-out"


def test_every_twentieth_command_held_is_an_outlier(tmp_path: Path) -> None:
    draw = _draw()
    draw.storage = [{"fault": "delayed_status", "by_ns": 300 * MS, "nth": 20, "is_repeated": True, "operation": "read"}]
    facts = _facts(tmp_path, draw)
    assert facts.storage_outlier_count == 2
    assert facts.outlier_share == pytest.approx(600 / (600 + 40 * 20), abs=0.01)
    assert facts.outlier_share == acceptance.accepted(facts).causes[-1].share
    assert "latency_outliers" in acceptance.accepted(facts).names
    assert "none" not in acceptance.accepted(facts).names


def test_losses_are_of_the_lost_packets_of_the_link(tmp_path: Path) -> None:
    draw = _draw(workload__block_size=64 * _KIB, workload__bytes=4 << 20, workload__queue_depth=4, link__loss=0.01)
    made = runs.make(draw, tmp_path)
    facts = _known(draw, made)
    lost = sum(each["fate"] == "lost" for way in wire.NEAR for each in made.truth["paths"][0][way]["packets"])
    assert 0 < facts.loss_count <= lost
    assert acceptance.accepted(facts).label == "loss"
    assert "none" not in acceptance.accepted(facts).names


def test_foreign_packets_are_not_shown(tmp_path: Path) -> None:
    draw = _draw(workload__block_size=64 * _KIB, workload__bytes=2 << 20, link__rate=20_000_000)
    draw.foreign_count, draw.snaplen = 1, 96
    made = runs.make(draw, tmp_path)
    records, _ = read_records(made.shown["initiator"])
    assert records
    assert all(runs.is_own(each) and len(each.data) <= 96 for each in records)
    assert len(records) < made.truth["packet_counts"][0]
    facts = _known(draw, made)
    assert facts.shares["foreign_queue"] > 0.1
    assert "capture_poor" in acceptance.accepted(facts).names


def test_captures_that_begin_late_show_later_commands_alone(tmp_path: Path) -> None:
    draw = _draw()
    draw.late_share = 0.25
    made = runs.make(draw, tmp_path)
    facts = _known(draw, made)
    # of three commands of the login's scan and 40 reads, ten had begun
    assert facts.command_count == 40 + 3 - 10
    assert facts.io_ns == pytest.approx(33 * 20 * MS)
    assert read_records(made.shown["initiator"])[0][0].time_ns == made.from_ns


def _probed(**settings: Any) -> dict[str, Any]:
    """A kernel's probe at three ACKs, 10 ms apart: 10 segments in flight, then 4, then none."""
    probe = {
        "src": ["10.0.0.1:5000"] * 3,
        "time_ns": [0, 10 * MS, 20 * MS],
        "snd_nxt": [2**32 - 4_480, 10_000, 14_480],
        "snd_una": [2**32 - 4_480 - 14_480, 10_000 - 4 * 1_448, 14_480],
        "snd_cwnd": [10, 10, 10],
        "snd_wnd": [60_000, 60_000, 60_000],
    }
    return {
        "guests": {"initiator": {"events": {"tcp_probe": probe}}},
        "initiator_ends": [
            {
                "initiator_port": 5_000,
                "snd_mss": 1_448,
                "tcp_info": {"time_ns": [0, 9 * MS, 30 * MS], "sndbuf_limited_ns": [0, 4 * MS, 4 * MS]},
            }
        ],
        "settings": {"world": {"initiator_tcp": settings}},
    }


def test_a_probe_tells_what_held_the_sender_from_its_last_packet_on() -> None:
    sent_ns = np.array([3 * MS, 5 * MS])
    full = guests._full(_probed(), "initiator", 5_000, -MS, sent_ns)
    # nothing is known before the first ACK, and 4 of 10 segments are no full window
    assert {name: spans.tolist() for name, spans in full.items()} == {
        "receive_window": [],
        "congestion_window": [],
        "send_buffer": [],
    }
    # the kernel counts no time of a full buffer after 9 ms
    small = guests._full(_probed(send_buffer_bytes=8_192), "initiator", 5_000, -MS, sent_ns)
    assert small["send_buffer"].tolist() == [[5 * MS, 9 * MS]]
    # one that paces waits between its packets, too
    paced = guests._full(_probed(congestion_control="bbr"), "initiator", 5_000, -MS, sent_ns)
    assert paced["congestion_window"].tolist() == [[3 * MS, 11 * MS]]
    closed = _probed()
    closed["guests"]["initiator"]["events"]["tcp_probe"]["snd_wnd"] = [60_000, 4 * 1_448, 60_000]
    none_sent = np.empty(0, np.int64)
    assert guests._full(closed, "initiator", 5_000, 0, none_sent)["receive_window"].tolist() == [[0, 10 * MS]]


def test_a_run_of_busy_guests_is_left_out() -> None:
    delays = {"to_target": (10.0 * MS, 10.0 * MS), "to_initiator": (10.0 * MS, 10.0 * MS)}
    times = {"begin": 0, "at_begin": 11 * MS, "at_end": 20 * MS, "end": 31 * MS}
    commands = {name: np.array([each] * 2, np.int64) for name, each in times.items()} | {"is_read": np.array([1, 0])}
    guests._require_quiet(commands, delays)
    with pytest.raises(RuntimeError, match=r"took 5\.0 ms to_target"):
        guests._require_quiet(commands | {"at_begin": np.array([15 * MS] * 2)}, delays)


def test_draws_of_guests_repeat_and_need_nothing_that_guests_lack() -> None:
    draws = [drawing.of_guests(7, number) for number in _NUMBERS]
    assert draws == [drawing.of_guests(7, number) for number in _NUMBERS]
    assert {draw.kind for draw in draws} == set(drawing.GUEST_KINDS)
    assert not any(draw.storage or draw.foreign_count or "target.service-delay" in draw.values for draw in draws)


@pytest.fixture(name="distance")
def fixture_distance(tmp_path: Path) -> Facts:
    return _facts(tmp_path, _draw())


def _with(facts: Facts, shares: dict[str, float]) -> Facts:
    whole = dict.fromkeys(truth.PARTS, 0.0) | shares
    return replace(facts, shares=whole, life_shares=whole)


def test_a_loss_of_a_second_is_right_beside_a_full_line(distance: Facts) -> None:
    shares = {"transfer": 0.97, "loss_recovery": 0.03}
    full = replace(_with(distance, shares), line_share=0.97, loss_count=9, has_losses=True)
    assert set(acceptance.accepted(replace(full, loss_ns=1_500 * MS)).names) > {"line_saturated", "loss"}
    assert "loss" not in acceptance.accepted(replace(full, loss_ns=200 * MS)).names


def test_a_window_that_no_loss_made_small_is_a_cause_of_its_own(distance: Facts) -> None:
    # a retransmission of what had arrived came before all of it
    shares = {"congestion_window": 0.4, "transfer": 0.4, "propagation": 0.2}
    small = replace(_with(distance, shares), after_loss=0.4, life_after_loss=0.4)
    found = acceptance.accepted(small)
    assert "congestion_window_small" in found.names
    assert "loss" not in found.names
    assert "loss" in acceptance.accepted(replace(small, loss_count=3, has_losses=True)).names


def test_a_queue_before_a_fast_target_is_no_slow_one(distance: Facts) -> None:
    served = _with(distance, {"target_service": 0.9, "propagation": 0.1})
    for service_ms, is_fast in ((31, True), (33, False)):
        slow = replace(served, depth=32, service_ns=service_ms * MS, mean_service_ns=service_ms * MS)
        names = acceptance.accepted(slow).names
        assert "slow_target" in names
        assert ("none" in names) == is_fast


def test_what_either_share_says_is_right(distance: Facts) -> None:
    whole = dict.fromkeys(truth.PARTS, 0.0)
    windows = {"receive_window": 0.6, "congestion_window": 0.4}
    turned = {"receive_window": 0.4, "congestion_window": 0.6}
    names = acceptance.accepted(replace(distance, shares=whole | windows, life_shares=whole | turned)).names
    assert {"receive_window_small", "congestion_window_small"} <= names.keys()


def test_beside_pauses_of_the_program_a_line_may_be_full_or_not(distance: Facts) -> None:
    busy = replace(_with(distance, {"transfer": 0.95, "propagation": 0.05}), line_share=0.95)
    for think_share, is_full in ((0.0, True), (0.05, True), (0.06, False)):
        names = acceptance.accepted(replace(busy, think_share=think_share)).names
        assert "line_saturated" in names
        assert ("none" not in names) == is_full


def test_parts_within_five_points_are_both_right(distance: Facts) -> None:
    near = {"propagation": 0.46, "receive_window": 0.5}
    facts = _with(distance, near)
    names = acceptance.accepted(facts).names
    assert {"receive_window_small", "queue_depth_low"} <= names.keys()
    far = {"propagation": 0.44, "receive_window": 0.5}
    facts = _with(distance, far)
    assert "queue_depth_low" not in acceptance.accepted(facts).names


def test_no_problem_is_wrong_beside_a_problem(distance: Facts) -> None:
    names = acceptance.accepted(_with(distance, {"propagation": 0.7, "send_buffer": 0.3})).names
    assert "send_buffer_small" in names
    assert "queue_depth_low" in names
    assert "none" not in names
    assert "none" in acceptance.accepted(_with(distance, {"propagation": 0.9, "send_buffer": 0.1})).names


def test_a_wrong_headline_and_a_wrong_verdict_are_misses(distance: Facts) -> None:
    accepted = acceptance.accepted(distance)
    assert Said("queue_depth_low", LIMITED).is_in(accepted)
    assert not Said("queue_depth_low", PROBLEM).is_in(accepted)
    assert not Said("none", HEALTHY).is_in(accepted)
    assert not Said("loss", PROBLEM).is_in(accepted)
    # a document without a verdict
    assert Said("queue_depth_low", "").is_in(accepted)
    assert not Said("loss", "").is_in(accepted)


def test_the_bench_can_fail(distance: Facts) -> None:
    accepted = acceptance.accepted(distance)
    right, wrong = Said("queue_depth_low", LIMITED), Said("slow_target", PROBLEM)
    good = Outcome("simulated", 1, 0, "by hand", accepted, dict.fromkeys(("initiator", "target", BOTH), right))
    bad = replace(good, said=dict(good.said) | {"target": wrong})
    assert rates([good, bad]) == {"initiator": 1, "target": 0.5, BOTH: 1, "equal": 0.5}
    assert reaches([good], 1, 1)
    assert not reaches([good, bad], 0.97, 0.99)
    assert "target slow_target (problem) !" in bad.miss()
    assert "--only 0" in bad.miss()


def test_names_of_one_cause_are_equal(distance: Facts) -> None:
    accepted = acceptance.accepted(distance)
    said = {"initiator": Said("queue_depth_low", LIMITED), "target": Said("block_size_small", LIMITED)}
    assert Outcome("simulated", 1, 0, "", accepted, said | {BOTH: said["target"]}).is_equal
    said["target"] = Said("loss", PROBLEM)
    assert not Outcome("simulated", 1, 0, "", accepted, said | {BOTH: said["target"]}).is_equal


def test_a_queue_of_foreign_packets_stands_at_both_taps(tmp_path: Path) -> None:
    outcome = of_simulated(770001, 36, tmp_path)
    assert outcome.shares["foreign_queue"] > 0.4
    assert all(outcome.is_right(tap) for tap in ("initiator", "target", BOTH))


def test_a_drawn_run_is_judged_whole(tmp_path: Path) -> None:
    outcome = of_simulated(7, 0, tmp_path)
    assert sum(outcome.shares.values()) == pytest.approx(1)
    assert all(outcome.said[tap].name for tap in ("initiator", "target", BOTH))
    assert any("true" in line for line in outcome.story())
