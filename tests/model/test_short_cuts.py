"""Short cuts of the model give the numbers of the long way, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iscsitrace.fit.situation import Situation
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation, altered
from iscsitrace.model.transfer import Pipeline, alone_ns, block_of, byte_ns, open_way, way_of

SETTINGS = st.builds(
    Setting,
    operation=st.sampled_from(["read", "write"]),
    block_bytes=st.integers(512, 1 << 20),
    delay_ns=st.floats(0, 2e7),
    c_bytes_per_s=st.floats(1e6, 1e9),
    data_pdu_bytes=st.sampled_from([None, 8_192, 262_144]),
    # below, about and above the block
    window_bytes=st.one_of(st.none(), st.integers(1_448, 1 << 21)),
    start_window_bytes=st.one_of(st.none(), st.just(14_480)),
    queue_depth=st.integers(1, 8),
    connections=st.integers(1, 3),
    solicitation=st.builds(
        Solicitation, is_initial_r2t=st.booleans(), is_immediate_data=st.booleans(), max_burst_bytes=st.just(65_536)
    ),
)


@given(SETTINGS)
def test_a_burst_that_the_window_holds_takes_the_time_of_the_pipeline(setting: Setting) -> None:
    for way in (open_way(setting), way_of(setting)):
        followed = Pipeline(block_of(setting), [way], [range(1)], byte_ns(setting)).run(1)[0]
        assert alone_ns(setting, way) == followed


def test_a_window_holds_a_burst_of_its_size_and_no_byte_more() -> None:
    way = way_of(Setting("read", 14_480, 1e6, 1e8, window_bytes=14_480))
    assert [way.holds(count) for count in (14_480, 14_481)] == [True, False]
    slow = way_of(Setting("read", 14_480, 1e6, 1e8, window_bytes=1 << 20, start_window_bytes=14_480))
    assert [slow.holds(count) for count in (14_480, 14_481)] == [True, False]
    # the byte beyond the window waits for an ACK
    setting = Setting("read", 14_481, 1e6, 1e8, window_bytes=14_480)
    assert alone_ns(setting, way) > alone_ns(setting, open_way(setting)) + 1e6


@given(SETTINGS, st.integers(1, 64))
def test_an_altered_setting_is_a_replaced_one(setting: Setting, depth: int) -> None:
    assert altered(setting, queue_depth=depth) == replace(setting, queue_depth=depth)
    assert hash(altered(setting, queue_depth=depth)) == hash(replace(setting, queue_depth=depth))
    assert altered(setting) is not setting


def test_a_field_that_is_not_there_cannot_be_altered() -> None:
    with pytest.raises(TypeError, match="Setting has no depth"):
        altered(Setting("read", 4_096, 1e6), depth=2)


@settings(max_examples=30)
@given(SETTINGS, st.integers(1, 64), st.floats(0, 1e6), st.floats(0, 100))
def test_a_situation_computed_once_is_that_of_its_values(
    setting: Setting, depth: int, wait: float, stall: float
) -> None:
    """What a situation knows already is of no other one that was made from it."""
    waits, stalls = {"target_service": wait}, {"loss": stall}
    known = Situation(setting, waits, stalls)
    both = [known.throughput(is_rough=is_rough) for is_rough in (False, True)]
    assert [known.throughput(is_rough=is_rough) for is_rough in (False, True)] == both
    changed = {
        "setting": (
            known.with_setting(queue_depth=depth),
            Situation(replace(setting, queue_depth=depth), waits, stalls),
        ),
        "wait": (known.without("target_service"), Situation(setting, {"target_service": 0.0}, stalls)),
        "stall": (known.without("loss"), Situation(setting, waits, {"loss": 0.0})),
    }
    for made, fresh in changed.values():
        assert made == fresh
        assert made.throughput() == fresh.throughput()
        assert made.throughput(is_rough=True) == fresh.throughput(is_rough=True)


def test_a_command_alone_is_predicted_without_its_queue() -> None:
    setting = Setting("read", 65_536, 4e6, 4e7)
    alone = predict(setting).throughput_bytes_per_s
    assert Situation(setting).throughput() == alone
    # the line carries all of these at once
    deep = Situation(replace(setting, queue_depth=4)).throughput()
    assert deep == pytest.approx(4 * alone)
