"""Verdicts on claims and on printed values."""

from __future__ import annotations

import pytest

from iscsitrace.studies import verdicts
from iscsitrace.studies.repeats import MeasuredValue
from iscsitrace.studies.results import JudgedCheck


def check(lies: bool | None, value: float | None = 1.0, *, is_met: bool = True) -> JudgedCheck:
    return JudgedCheck("throughput", "MB/s", "one", "", value, 0, 2, is_met if lies is None else lies, lies is None)


@pytest.mark.parametrize(
    ("lies", "verdict"),
    [
        ((True, True), "reproduced"),
        ((True, None), "undecided"),
        ((None, None), "undecided"),
        ((True, False), "partly"),
        # what is too close to tell may hold, and then it is partly
        ((None, False), "undecided"),
        ((True, None, False), "partly"),
        ((False, False), "not reproduced"),
        ((), "not testable here"),
    ],
)
def test_the_verdict_on_a_claim(lies: tuple[bool | None, ...], verdict: str) -> None:
    for is_met in (True, False):
        # on which side of the limit the number itself is does not count where the limit is in its interval
        assert verdicts.of_checks([check(each, is_met=is_met) for each in lies]) == verdict


def test_a_claim_with_an_untested_part_is_partly_reproduced_at_best() -> None:
    for lies, verdict in (
        ((True, True), "partly"),
        ((True, None), "undecided"),
        ((False, True), "partly"),
        ((False, False), "not reproduced"),
        ((), "not testable here"),
    ):
        assert verdicts.of_checks([check(each) for each in lies], "the other half") == verdict


def test_a_claim_with_a_missing_number_is_not_run() -> None:
    assert verdicts.of_checks([check(True), check(False, None)]) == "not run"


@pytest.mark.parametrize(
    ("printed", "unit", "room"),
    [
        # 5 % of it
        (11.9, "MB/s", 0.595),
        # half of the last digit
        (2, "times", 0.5),
        (2.0, "times", 0.1),
        (1.3, "MB/s", 0.065),
        (0.4, "MB/s", 0.05),
        # 5 % of the 9 % that are busy, and at least the rounding of the print
        (91, "%", 0.5),
        (57, "%", 2.15),
        (41.2, "%", 2.06),
        (94.1, "%", 0.295),
    ],
)
def test_the_tolerance_is_a_share_but_at_least_the_rounding(printed: float, unit: str, room: float) -> None:
    assert verdicts.tolerance(printed, unit) == pytest.approx(room)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (MeasuredValue(11.5), "reproduced"),
        (MeasuredValue(11.2), "not reproduced"),
        (MeasuredValue(11.2, 3, 10.9, 11.5), "undecided"),
        (MeasuredValue(11.2, 3, 11.15, 11.25), "not reproduced"),
        (None, "not run"),
    ],
)
def test_the_verdict_on_a_printed_value(ours: MeasuredValue | None, verdict: str) -> None:
    assert verdicts.of_printed("throughput", "MB/s", 11.9, ours) == verdict


def test_a_value_in_another_unit_is_judged_in_ours() -> None:
    """11.9 MiB/s are 12.48 MB/s; half of the last digit of 0.4 MiB/s are 0.05 x 1.05 MB/s."""
    mib = 2**20 / 1e6
    assert verdicts.of_printed("throughput", "MB/s", 11.9, MeasuredValue(11.952), mib) == "reproduced"
    assert verdicts.of_printed("throughput", "MB/s", 11.9, MeasuredValue(11.8), mib) == "not reproduced"
    assert verdicts.of_printed("throughput", "MB/s", 0.4, MeasuredValue(0.47), mib) == "reproduced"
    assert verdicts.of_printed("throughput", "MB/s", 0.4, MeasuredValue(0.475), mib) == "not reproduced"


def test_errors_of_two_models_are_not_compared() -> None:
    assert verdicts.of_printed("model_error", "%", 9, MeasuredValue(0.0)) == "not compared"
