"""How differences are ordered, joined and written, beside the factors themselves (test_diff); and by place."""

from __future__ import annotations

import json
from math import exp, log, prod
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.compare.differences import ELSE, Difference, Explanation, explain
from iscsitrace.fit.situation import Measured, Situation, measure
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.model.setting import Setting
from tests.compare.test_diff import measured
from tests.support.runs import Run, Runs
from tests.support.story import Story

MS = 1_000_000


def difference(name: str, factor: float, share: float | None = None) -> Difference:
    return Difference(name, "ns", 1, 2, factor, share)


def test_factors_of_less_than_a_hundredth_are_small() -> None:
    large = [difference("queue_depth", exp(0.0101)), difference("loss", exp(-0.0101))]
    small = [difference("delay_ns", exp(0.0099), 0.25), difference("unknown", exp(-0.005), 0.125)]
    found = Explanation(2.0, 1.0, (*large, *small))
    assert found.large == tuple(large)
    rest = found.small
    assert rest
    assert (rest.name, rest.unit, rest.a, rest.b, rest.share) == (ELSE, "", None, None, 0.375)
    assert log(rest.factor) == pytest.approx(0.0049)
    assert Explanation(2.0, 1.0, tuple(large)).small is None
    # a factor of exactly one has a share of nothing
    none = Explanation(2.0, 1.0, (difference("loss", 1.0, 0.0), difference("unknown", 1.0, 0.0))).small
    assert none
    assert (none.factor, none.share) == (1.0, 0.0)
    without_gap = Explanation(1.0, 1.0, (difference("loss", 1.001),)).small
    assert without_gap
    assert without_gap.share is None


def test_the_unexplained_factor_is_measured_over_model() -> None:
    found = Explanation(3.0, 2.0, ())
    assert found.unexplained_factor == 1.5
    assert found.unexplained_share == pytest.approx(log(1.5) / log(3))
    assert found.as_dict() == {
        "throughput_factor": 3.0,
        "model_throughput_factor": 2.0,
        "differences": [],
        "unexplained_throughput_factor": 1.5,
        "unexplained_share": pytest.approx(log(1.5) / log(3)),
    }


def test_labels_are_words_and_login_keys_keep_their_names() -> None:
    assert [difference(name, 1).label for name in ("queue_depth", "InitialR2T", ELSE)] == [
        "queue depth",
        "InitialR2T",
        "all else",
    ]


def test_differences_have_both_values_and_their_unit_the_largest_first() -> None:
    a = Situation(Setting("write", 65_536, 4 * MS, 4e7), {}, {"loss": 5.0})
    b = Situation(Setting("write", 65_536, 1 * MS, 4e7), {"target_service": 2e5}, {"loss": 4.0})
    b = b.with_keys(max_outstanding_r2t=2, max_burst_bytes=16_384, is_immediate_data=False)
    found = {each.name: each for each in explain(measured(a), measured(b)).differences}
    first, *_ = found.values()
    assert (first.name, first.unit, first.a, first.b) == ("delay_ns", "ns", 4 * MS, 1 * MS)
    factors = [abs(log(each.factor)) for each in found.values() if each.name != ELSE]
    assert factors == sorted(factors, reverse=True)
    units = {name: (each.unit, each.a, each.b) for name, each in found.items() if name != ELSE}
    assert units["target_service"] == ("ns", 0.0, 2e5)
    assert units["loss"] == ("ns/B", 5.0, 4.0)
    assert units["MaxBurstLength"] == ("bytes", 262_144, 16_384)
    # lower waits and stalls are faster
    assert found["loss"].factor > 1 > found["target_service"].factor


def read_slowly(rtt_ms: int) -> Measured:
    """512 KiB that stop twice at a window of 146 segments, read by a host that takes 15 ms for them; a few of 4 KiB."""
    story = Story(rtt_to_target_ns=rtt_ms * MS)
    story.tasks(3, ("propagation", rtt_ms * MS), bytes=4_096)
    story.tasks(8, ("propagation", rtt_ms * MS), ("receive_window", (2 * rtt_ms + 15) * MS), bytes=524_288)
    sender = {"to_target": False, "rwnd_min_bytes": 1_448, "rwnd_max_bytes": 146 * 1_448, "segment_bytes": 1_448}
    found = measure(sessions_of(story.add("senders", **sender).source())[0])
    assert found
    return found


@pytest.mark.parametrize("longer_ms", [16, 32])
def test_a_slow_receiver_on_both_sides_leaves_the_gap_to_the_rtt(longer_ms: int) -> None:
    found = explain(read_slowly(8), read_slowly(longer_ms))
    first = found.differences[0]
    assert first.name == "delay_ns"
    assert first.share == pytest.approx(1, abs=0.01)
    assert found.unexplained_share == pytest.approx(0, abs=0.01)


def test_the_sizes_of_commands_are_one_difference_also_with_equal_means() -> None:
    """Half of 16 and half of 112 KiB, against 64 KiB: the mean is the same, and only the larger stop at the window."""
    setting = Setting("read", 65_536, 4 * MS, window_bytes=46 * 1_448)
    a, b = Situation(setting), Situation(setting, sizes=((16_384, 0.5), (114_688, 0.5)))
    for one, other, factor in ((a, b, 2 / 3), (b, a, 3 / 2)):
        found = explain(measured(one), measured(other))
        assert [each.name for each in found.differences] == ["block_bytes"]
        assert found.model_factor == pytest.approx(found.differences[0].factor) == pytest.approx(factor)


def test_login_keys_of_reads_are_no_difference() -> None:
    a = Situation(Setting("read", 65_536, 4 * MS, 4e7))
    assert explain(measured(a), measured(a.with_keys(max_burst_bytes=16_384))).differences == ()


def test_a_difference_without_effect_is_all_else() -> None:
    """A window that is wide enough on both sides."""
    a = Situation(Setting("read", 4_096, 4 * MS, 4e7, window_bytes=1 << 20))
    (found,) = explain(measured(a), measured(a.with_setting(window_bytes=1 << 21))).differences
    assert (found.name, found.factor, found.share) == (ELSE, pytest.approx(1), None)


def test_eight_differences_have_factors_of_their_own_of_nine_only_seven() -> None:
    a = Situation(Setting("read", 65_536, 4 * MS, 4e7))
    waits = {"target_service": 1e6, "initiator_think": 2e6, "ack_wait": 5e5}
    stalls = {"loss": 5.0, "slow_start": 3.0, "receiver": 2.0, "unknown": 1.0}
    b = Situation(Setting("read", 65_536, 6 * MS, 4e7), waits, stalls)
    eight = explain(measured(a), measured(b))
    assert {each.name for each in eight.differences} == {"delay_ns", *waits, *stalls}
    nine = explain(measured(a), measured(b.with_setting(block_bytes=131_072)))
    names = [each.name for each in nine.differences]
    assert (len(names), names[-1], "block_bytes" in names) == (8, ELSE, True)
    # the two of least effect are joined
    assert not {"unknown", "receiver"} & set(names)
    for found in (eight, nine):
        assert prod(each.factor for each in found.differences) == pytest.approx(found.model_factor)
    assert nine.differences[-1].factor < 1


def test_the_gap_is_that_of_the_measured_throughputs() -> None:
    a = Situation(Setting("read", 65_536, 4 * MS, 4e7))
    found = explain(measured(a, 2.0), measured(a, 3.0))
    assert (found.factor, found.model_factor, found.unexplained_share) == (pytest.approx(1.5), 1, pytest.approx(1))


def test_a_value_that_one_side_does_not_show_is_that_of_the_other() -> None:
    a = Situation(Setting("read", 65_536, 4 * MS, 4e7, window_bytes=8_192))
    b = Situation(Setting("read", 65_536, 4 * MS, 8e7), open_names=frozenset({"window_bytes"}))
    (found,) = explain(measured(a), measured(b)).differences
    assert found.name == "c_bytes_per_s"
    (back,) = explain(measured(b), measured(a)).differences
    assert back.name == "c_bytes_per_s"


FAR = "read --one-way-delay 8ms --block-size 16K --bytes 2M --service-delay 1ms --seed 5"
BUSY = "read --one-way-delay 2ms --block-size 16K --bytes 2M --service-delay 5ms --seed 5"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("places"))


def diff(a: Run, b: Run, *options: object) -> Result:
    arguments = ["diff", str(a.capture()), str(b.capture()), *map(str, options)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_the_difference_is_where_it_was_put(runs: Runs) -> None:
    """Twice 6 ms of delay less on the network, 4 ms of service more in the target."""
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", a.capture("target"), "--tap-b", b.capture("target"), "--json")
    places = json.loads(result.stdout)["places"]
    assert places["a"]["parts_ns"]["network"] == pytest.approx(16 * MS, rel=0.01)
    assert places["b"]["parts_ns"]["target"] == pytest.approx(5 * MS, rel=0.01)
    difference = places["parts_ns"]
    assert difference["network"] == pytest.approx(-12 * MS, rel=0.01)
    assert difference["target"] == pytest.approx(4 * MS, rel=0.01)
    assert difference["initiator"] == 0
    assert sum(difference.values()) == places["latency_ns"]
    assert [each["name"] for each in places["findings"]["b"]] == ["slow_at_target"]


def test_the_table_and_the_findings(runs: Runs) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", a.capture("target"), "--tap-b", b.capture("target"))
    lines = result.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("By place"))
    assert lines[head + 1].startswith("B: slow_at_target (warning): The target takes ")
    rows = {line[:17].strip(): line[17:].split() for line in lines[head + 2 : head + 7]}
    assert rows["network"][:3] == ["16.000", "4.000", "-12.000"]
    assert rows["target"][:3] == ["1.000", "5.000", "4.000"]
    assert rows["median latency"][:3] == ["17.000", "9.000", "-8.000"]


@pytest.mark.parametrize("option", ["--tap-a", "--tap-b"])
def test_one_side_with_two_taps_is_not_compared_by_place(runs: Runs, option: str) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, option, (a if option == "--tap-a" else b).capture("target"), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["places"] is None


def test_other_traffic_is_no_tap(runs: Runs) -> None:
    a, b = runs(FAR), runs(BUSY)
    result = diff(a, b, "--tap-a", b.capture("target"))
    assert result.exit_code == 2
    assert "are not taps of the same traffic" in result.stderr


def test_samples_are_those_of_their_side(runs: Runs, tmp_path: Path) -> None:
    a, b = runs(FAR), runs(BUSY)
    samples = tmp_path / "a.ss"
    samples.write_text("1700000000.5 ESTAB 0 0 198.18.0.10:3260 198.18.0.1:40000 cubic mss:1448 cwnd:10 busy:5ms\n")
    document = json.loads(diff(a, b, "--tcp-info-a", samples, "--json").stdout)
    assert document["a"]["options"]["tcp_info"] == [str(samples)]
    assert not document["b"]["options"].get("tcp_info")
