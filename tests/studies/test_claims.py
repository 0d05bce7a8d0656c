"""Claims of a study, checked against known numbers."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.studies import definition, repeats, verdicts
from iscsitrace.studies.definition import Definition
from iscsitrace.studies.repeats import Row

BASE = """
title = "two arms"
source = "a test"

[workload]
operation = "read"
block-size = "64K"
calls = 8

[grid.link]
one-way-delay = ["0ms", "5ms"]

[[arms]]
name = "one"

[[arms]]
name = "two"
workload.queue-depth = 2
"""
MEASURED = {("one", 0): 10.0, ("two", 0): 11.5, ("one", 5): 2.5, ("two", 5): 5.0}


def written(folder: Path, text: str) -> Definition:
    file = folder / "study.toml"
    file.write_text(BASE + text)
    return definition.load(file)


def claim(*checks: str) -> str:
    return '[[claims]]\nname = "a"\ntext = "it holds"\nnote = "because"\n' + "".join(
        f'[[claims.checks]]\nquantity = "throughput"\n{check}\n' for check in checks
    )


def row(arm: str, delay_ms: int, *values: float) -> Row:
    estimates = {"throughput": repeats.mean(values)}
    return Row(arm, {}, {"link.one-way-delay": delay_ms * 1_000_000}, len(values), 0, estimates, {}, None)


ROWS = [row(arm, delay_ms, value) for (arm, delay_ms), value in MEASURED.items()]
NEAR, FAR = 'link.one-way-delay = "0ms"', 'link.one-way-delay = "5ms"'


@pytest.mark.parametrize(
    ("check", "value", "unit"),
    [
        (f'of = {{ arm = "two", {NEAR} }}', 11.5, "MB/s"),
        (f'of = {{ arm = "two", {FAR} }}\nover = {{ arm = "one", {FAR} }}', 2.0, "times"),
        (f'of = {{ arm = "two", {NEAR} }}\nminus = {{ arm = "one", {NEAR} }}', 1.5, "MB/s"),
        # (10 - 2.5) / (11.5 - 5)
        (f'of = {{ arm = "one", {NEAR} }}\nminus = {{ arm = "one", {FAR} }}\n'
         f'over = {{ arm = "two", {NEAR} }}\nover-minus = {{ arm = "two", {FAR} }}', 7.5 / 6.5, "times"),
        # (10 / 2.5) / (11.5 / 5)
        (f'of = {{ arm = "one", {NEAR} }}\nover = {{ arm = "one", {FAR} }}\n'
         f'beside = {{ arm = "two", {NEAR} }}\nbeside-over = {{ arm = "two", {FAR} }}', 4 / 2.3, "times"),
    ],
)  # fmt: skip
def test_a_check_is_a_number_or_compares_places(tmp_path: Path, check: str, value: float, unit: str) -> None:
    for between, is_met in (([value - 1, value], True), ([value + 0.1, value + 1], False)):
        (judged,) = verdicts.judge(written(tmp_path, claim(f"{check}\nbetween = {between}")).claims, ROWS)
        (found,) = judged.checks
        assert (found.value, found.unit, found.is_met) == (pytest.approx(value), unit, is_met)
        assert judged.verdict == (verdicts.REPRODUCED if is_met else verdicts.NOT_REPRODUCED)
        assert judged.why == ("" if is_met else "because")


def test_a_claim_holds_when_all_its_checks_do(tmp_path: Path) -> None:
    of = f'of = {{ arm = "one", {NEAR} }}'
    good, bad = (f"{of}\nbetween = {between}" for between in ([9, 11], [1, 2]))
    elsewhere = f'of = {{ arm = "one", {NEAR}, workload.queue-depth = 7 }}\nbetween = [1, 2]'
    for checks, verdict in (
        ((good, good), verdicts.REPRODUCED),
        ((good, bad), verdicts.PARTLY),
        ((bad, bad), verdicts.NOT_REPRODUCED),
        ((good, elsewhere), verdicts.NOT_RUN),
        ((), verdicts.NOT_TESTABLE),
    ):
        (judged,) = verdicts.judge(written(tmp_path, claim(*checks)).claims, ROWS)
        assert judged.verdict == verdict


def test_repeats_whose_interval_has_a_limit_in_it_decide_nothing(tmp_path: Path) -> None:
    """85.92 against 86: no failure where the repeats scatter by more, and one where they do not."""
    text = claim(f'of = {{ arm = "one", {NEAR} }}\nbetween = [86, 96]')
    for values, verdict in (
        ((84.92, 85.92, 86.92), verdicts.UNDECIDED),
        ((85.91, 85.92, 85.93), verdicts.NOT_REPRODUCED),
        ((85.92,), verdicts.NOT_REPRODUCED),
        ((90.9, 91.0, 91.1), verdicts.REPRODUCED),
    ):
        (judged,) = verdicts.judge(written(tmp_path, text).claims, [row("one", 0, *values)])
        assert (judged.verdict, judged.checks[0].run_count) == (verdict, len(values))
        assert judged.why == ("" if verdict == verdicts.REPRODUCED else "because")


def test_a_difference_from_zero_is_known_and_a_ratio_to_zero_is_not(tmp_path: Path) -> None:
    rows = [row("one", 0, 0.0), row("two", 0, 3.0)]
    for key, verdict in (("minus", verdicts.REPRODUCED), ("over", verdicts.NOT_RUN)):
        text = f'of = {{ arm = "two", {NEAR} }}\n{key} = {{ arm = "one", {NEAR} }}\nbetween = [2, 4]'
        (judged,) = verdicts.judge(written(tmp_path, claim(text)).claims, rows)
        assert judged.verdict == verdict


def test_a_ratio_of_two_differences_scatters_like_its_four_places(tmp_path: Path) -> None:
    """By hand: 8 / 4, relative variances 2 (1/3) / 8^2 and 2 (1/3) / 4^2, and Student's t."""
    values = {"one": ((11.0, 12.0, 13.0), (3.0, 4.0, 5.0)), "two": ((6.0, 7.0, 8.0), (2.0, 3.0, 4.0))}
    rows = [row(arm, delay, *found) for arm, both in values.items() for delay, found in zip((0, 5), both, strict=True)]
    text = (
        f'of = {{ arm = "one", {NEAR} }}\nminus = {{ arm = "one", {FAR} }}\n'
        f'over = {{ arm = "two", {NEAR} }}\nover-minus = {{ arm = "two", {FAR} }}\nbetween = [1.9, 2.1]'
    )
    (judged,) = verdicts.judge(written(tmp_path, claim(text)).claims, rows)
    (check,) = judged.checks
    error = 2 * sqrt(2 / 3 / 8**2 + 2 / 3 / 4**2)
    freedom = (2 / 3 / 8**2 + 2 / 3 / 4**2) ** 2 / ((2 / 3 / 8**2) ** 2 / 4 + (2 / 3 / 4**2) ** 2 / 4)
    assert int(freedom) == 5
    half = 2.5706 * error  # the 97.5 % quantile with five degrees of freedom, from a table
    assert check.interval == pytest.approx((2 - half, 2 + half), rel=1e-3)
    assert (check.value, judged.verdict) == (2.0, verdicts.UNDECIDED)
    assert check.of == "one, one-way-delay 0ms minus one, one-way-delay 5ms"
    assert check.beside == "two, one-way-delay 0ms minus two, one-way-delay 5ms"
    (found,) = written(tmp_path, claim(text)).claims[0].checks
    assert found.text(lambda spot: spot.arm) == "(one - one) / (two - two)"
    flat = [*rows[:2], row("two", 0, 5.0), row("two", 5, 5.0)]
    (judged,) = verdicts.judge(written(tmp_path, claim(text)).claims, flat)
    assert judged.verdict == verdicts.NOT_RUN


def test_two_ratios_are_compared_with_their_scatter(tmp_path: Path) -> None:
    values = {"one": ([7.0, 8.0, 9.0], [2.0]), "two": ([8.0], [4.0])}
    rows = [row(arm, delay, *found) for arm, both in values.items() for delay, found in zip((0, 5), both, strict=True)]
    text = (
        f'of = {{ arm = "one", {NEAR} }}\nover = {{ arm = "one", {FAR} }}\n'
        f'beside = {{ arm = "two", {NEAR} }}\nbeside-over = {{ arm = "two", {FAR} }}\nbetween = [1.9, 2.1]'
    )
    (judged,) = verdicts.judge(written(tmp_path, claim(text)).claims, rows)
    (check,) = judged.checks
    # one place alone scatters: 4.303 is the 97.5 % quantile with two degrees of freedom, from a table
    half = 4.303 * sqrt(1 / 3) / 2 / 2
    assert check.interval == pytest.approx((2 - half, 2 + half), rel=1e-3)
    assert (check.value, judged.verdict) == (2.0, verdicts.UNDECIDED)
    assert check.of == "one, one-way-delay 0ms / one, one-way-delay 5ms"
    assert check.beside == "two, one-way-delay 0ms / two, one-way-delay 5ms"
    (found,) = written(tmp_path, claim(text)).claims[0].checks
    assert found.text(lambda spot: spot.arm) == "(one / one) / (two / two)"
    (judged,) = verdicts.judge(written(tmp_path, claim(text)).claims, [*rows[:3], row("two", 5, 0.0)])
    assert judged.verdict == verdicts.NOT_RUN


def test_claims_of_our_own_are_marked(tmp_path: Path) -> None:
    text = claim(f'of = {{ arm = "one", {NEAR} }}\nbetween = [9, 11]')
    own = text.replace('name = "a"', 'name = "b"\nown = true')
    judged = list(verdicts.judge(written(tmp_path, text + own).claims, ROWS))
    assert [(each.name, each.is_own) for each in judged] == [("a", False), ("b", True)]


def captured(of: Row, shares: dict[str, float]) -> Row:
    return replace(of, limiter=max(shares, key=shares.__getitem__), shares=shares)


def test_a_failed_claim_shows_causes_from_the_captures(tmp_path: Path) -> None:
    near, _, far, other = ROWS
    rows = [captured(near, {"line_busy": 90.0, "turnaround": 10.0}), captured(far, {"propagation": 100.0}), other]
    text = claim(
        f'of = {{ arm = "one", {NEAR} }}\nover = {{ arm = "one", {FAR} }}\nbetween = [1, 2]',
        f'of = {{ arm = "one", {NEAR} }}\nbetween = [1, 2]',
        # taken without a capture
        f'of = {{ arm = "two", {FAR} }}\nbetween = [1, 2]',
    )
    (judged,) = verdicts.judge(written(tmp_path, text).claims, rows)
    assert [(each.of, each.limiter, each.means) for each in judged.evidence] == [
        ("one, one-way-delay 0ms", "line_busy", {"throughput": 10.0}),
        ("one, one-way-delay 5ms", "propagation", {"throughput": 2.5}),
    ]
    assert judged.evidence[0].shares == {"line_busy": 90.0, "turnaround": 10.0}
    named = text + f'[[claims.evidence]]\narm = "one"\n{FAR}\n'
    (judged,) = verdicts.judge(written(tmp_path, named).claims, rows)
    assert [each.of for each in judged.evidence] == ["one, one-way-delay 5ms"]
    (judged,) = verdicts.judge(
        written(tmp_path, claim(f'of = {{ arm = "one", {NEAR} }}\nbetween = [9, 11]')).claims, rows
    )
    assert judged.evidence == ()


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ('of = { arm = "three" }\nbetween = [1, 2]', "claims[0].checks[0].of.arm: 'three' is none of one, two"),
        (
            'of = { arm = "one" }\nbetween = [2, 1]',
            "between: expected the lower and the upper limit, like [1.8, 2.2] - at `$.claims[0].checks[0]`",
        ),
        ('of = { arm = "one" }', "missing required field `between` - at `$.claims[0].checks[0]`"),
        (
            'of = { arm = "one" }\nover = { arm = "two" }\nminus = { arm = "two" }\nbetween = [1, 2]',
            "over-minus: a ratio of two differences needs over, minus and over-minus - at `$.claims[0].checks[0]`",
        ),
        (
            'of = { arm = "one" }\nover-minus = { arm = "two" }\nbetween = [1, 2]',
            "over-minus: a ratio of two differences needs over, minus and over-minus - at `$.claims[0].checks[0]`",
        ),
        *(
            (
                f'of = {{ arm = "one" }}\n{more}\nbetween = [1, 2]',
                "beside: a ratio of two ratios needs over, beside and beside-over, and no minus",
            )
            for more in (
                'beside = { arm = "two" }\nbeside-over = { arm = "two" }',
                'over = { arm = "two" }\nbeside = { arm = "two" }',
                'over = { arm = "two" }\nbeside-over = { arm = "two" }',
                'over = { arm = "two" }\nminus = { arm = "two" }\nover-minus = { arm = "two" }\n'
                'beside = { arm = "two" }\nbeside-over = { arm = "two" }',
            )
        ),
        ('of = { arm = "one", link.rate = "1Mbit" }\nbetween = [1, 2]', "link.rate: no point has this setting"),
    ],
)
def test_a_mistake_is_a_one_line_error(tmp_path: Path, check: str, line: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        written(tmp_path, claim(check))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
