"""Delayed ACKs as a term of the fit: the read study's default initiator, whose statuses wait for them at odd sizes.

A call of 500 KB is three reads of 127.5 KB, 91 segments each, and one of 117.5 KB, 84 segments. The last segment of an
odd number waits 40 ms for its ACK.
"""

from __future__ import annotations

import pytest

from iscsitrace.fit.points import Fit, Point, fitted_from_document
from iscsitrace.fit.regression import fit
from iscsitrace.fit.steady import NEEDED, points
from iscsitrace.model.prediction import changed
from iscsitrace.model.uncertainty import FittedPlace, predict_with
from iscsitrace.tables.trace import read
from tests.support.runs import Run, Runs
from tests.support.tables_by_hand import MS

KIB = 1 << 10
SPLIT = "read --block-size 130560 --set system-call-size=500K --set command-window=1 --bytes 10M --rate 320Mbit"
HELD = "--set status=apart-held"
DELAYS = (1, 4, 16)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def points_of(run: Run, tap: str = "initiator") -> list[Point]:
    return points(read(str(run.capture(tap)), tables=NEEDED).table, tap)


def fitted(runs: Runs, tap: str = "initiator") -> Fit:
    made = [runs(f"{SPLIT} {HELD} --one-way-delay {delay}ms") for delay in DELAYS]
    return fit([point for run in made for point in points_of(run, tap)])


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_the_fit_finds_the_delay_of_the_acks(runs: Runs, tap: str) -> None:
    found = fitted(runs, tap)
    assert found.ack_delay_ns is not None
    assert found.ack_delay_ns.value == pytest.approx(40 * MS, rel=0.01)
    assert found.k.value == pytest.approx(4, rel=0.01)
    assert found.s_ns.value < 0.1 * MS
    assert max(map(abs, found.residuals)) < 0.01
    assert found.scatter < 0.05
    sizes = {point.setting.block_bytes: point.seen.ack_delay is not None for point in found.points}
    assert sizes == {130_560: True, 120_320: False}


def test_a_prediction_knows_odd_sizes_and_is_right_about_others(runs: Runs) -> None:
    """60 KiB are 43 segments, 64 KiB 46."""
    found = fitted_from_document(fitted(runs).as_dict())
    for size, is_delayed in ((60, True), (64, False)):
        expected = predict_with(changed(found.setting, {"block_bytes": size * KIB, "delay_ns": 4.0 * MS}), found)
        assert (expected.prediction.stall_ns > 0) == is_delayed
        run = runs(f"read --block-size {size}K --bytes 3M --one-way-delay 4ms --rate 320Mbit {HELD}")
        (point,) = points_of(run)
        measured = point.throughput_bytes_per_s
        assert expected.prediction.throughput_bytes_per_s == pytest.approx(measured, rel=0.02)
        assert expected.low_bytes_per_s <= measured <= expected.high_bytes_per_s


def test_without_delayed_acks_there_is_no_such_term(runs: Runs) -> None:
    run = runs(f"{SPLIT} {HELD} --one-way-delay 4ms --set delayed-ack=no")
    assert [point.seen.ack_delay for point in points_of(run)] == [None, None]


@pytest.mark.parametrize("others", ["--service-delay 30ms", "--think-time 30ms"])
def test_a_slow_host_is_no_delayed_ack(runs: Runs, others: str) -> None:
    run = runs(f"read --block-size 64K --bytes 2M --one-way-delay 4ms --rate 320Mbit {HELD} {others}")
    (point,) = points_of(run)
    assert point.setting.is_status_held
    assert point.seen.ack_delay is None
    assert point.seen.service_ns is not None
    assert point.seen.service_ns.value == pytest.approx(30 * MS, rel=0.05)


def test_a_status_with_the_data_waits_for_no_ack(runs: Runs) -> None:
    (run,) = (runs(f"{SPLIT} --one-way-delay 4ms --set status=in-data"),)
    assert [point.seen.ack_delay for point in points_of(run)] == [None, None]


def place(block_bytes: int, ack_delay_ns: float, **values: int) -> FittedPlace:
    return FittedPlace(block_bytes, 4.0 * MS, values.get("queue_depth", 1), True, True, 60.0 * MS, "cycle", 0.0,
                 ack_delay_ns=ack_delay_ns)  # fmt: skip


@pytest.mark.parametrize(
    ("places", "delays_ms", "is_doubted"),
    [
        # delayed at odd numbers only: known everywhere
        ([place(60 * KIB, 40.0 * MS), place(64 * KIB, 0.0)], {60: 40, 64: 0, 62: 0, 32: 40}, False),
        # one size alone shows one of them, and the rule is a guess for others
        ([place(60 * KIB, 40.0 * MS)], {60: 40, 32: 40, 62: 0}, True),
        # delayed at an even number: the nearest size counts
        ([place(64 * KIB, 40.0 * MS), place(16 * KIB, 0.0)], {64: 40, 128: 40, 24: 0, 8: 0}, True),
    ],
)
def test_whether_the_ack_of_another_size_is_delayed(
    runs: Runs, places: list[FittedPlace], delays_ms: dict[int, int], is_doubted: bool
) -> None:
    """32, 60, 62 and 64 KiB are 23, 43, 44 and 46 segments."""
    fit_of = fitted_from_document(fitted(runs).as_dict())
    known = {each.block_bytes // KIB for each in places}
    object.__setattr__(fit_of, "places", tuple(places))
    for size, delay_ms in delays_ms.items():
        found = predict_with(changed(fit_of.setting, {"block_bytes": size * KIB}), fit_of)
        assert found.prediction.setting.ack_delay_ns == delay_ms * MS, size
        has_doubt = any("the ACK of this one" in doubt for doubt in found.doubts)
        assert has_doubt == (is_doubted and size not in known), size
    given = predict_with(changed(fit_of.setting, {"ack_delay_ns": 7.0 * MS}), fit_of, {"ack_delay_ns"})
    assert given.prediction.setting.ack_delay_ns == 7 * MS
