"""How differences are ordered, joined and written, beside the factors themselves (test_diff)."""

from __future__ import annotations

from math import exp, log, prod

import pytest

from iscsitrace.compare.differences import ELSE, Difference, Explanation, explain
from iscsitrace.fit.measurement import Measured, measure
from iscsitrace.fit.situation import Situation
from iscsitrace.measure.grouping import sessions_of
from iscsitrace.model.setting import Setting
from tests.compare.test_diff import measured
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
