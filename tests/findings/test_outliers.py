"""The finding latency_outliers: a few commands that the target held for long, and their pattern, on stories."""

from __future__ import annotations

import pytest

from tests.support.story import Story
from tests.support.tables_by_hand import MS


def served(story: Story, *took_ms: float, **columns: int | bool) -> Story:
    """Reads, one after another, that the target serves in these times."""
    for each in took_ms:
        took_ns = round(each * MS)
        at_end = {"data_first_ns": story.now + took_ns, "data_last_ns": story.now + took_ns}
        story.task(("target_service", took_ns), **at_end | {"lba": 0, "block_count": 32} | columns)
    return story


def every(step: int, count: int, slow_ms: float = 400, usual_ms: float = 4) -> list[float]:
    return [slow_ms if number % step == step - 1 else usual_ms for number in range(count)]


def test_every_twentieth_read_that_takes_long_is_named() -> None:
    story = served(Story(rtt_to_target_ns=0), *every(20, 100))
    found = story.found("latency_outliers")
    assert found
    assert found.text == "5 of 100 reads took 400.0 ms or more (typically 4.0 ms): every 20th."
    # five times 400 ms, less what is typical
    assert found.cost_ns == 5 * 396 * MS
    assert (found.rank, found.severity) == ("slowness", "warning")
    headline = story.opinion().headline
    # the target was slow, and this is how
    assert (headline.kind, headline.name) == ("problem", "slow_target")
    assert "every 20th" in headline.text


def test_a_period_in_time_is_named() -> None:
    # stalls a second apart, after 40 or 60 reads
    took: list[float] = []
    for count, usual_ms in ((40, 15.0), (60, 10.0), (40, 15.0), (60, 10.0)):
        took += [*[usual_ms] * count, 400]
    found = served(Story(rtt_to_target_ns=0), *took).found("latency_outliers")
    assert found
    assert found.text == "4 of 204 reads took 400.0 ms or more (typically 10.0 ms): about every 1.0 s."


@pytest.mark.parametrize(
    ("slow_ms", "usual_ms", "is_found"),
    [
        # more than ten times the median
        (60, 6, False),
        (61, 6, True),
        # and 50 ms longer
        (53, 4, False),
        (54, 4, True),
    ],
)
def test_an_outlier_takes_ten_times_the_median_and_50_ms_more(slow_ms: float, usual_ms: float, is_found: bool) -> None:
    story = served(Story(rtt_to_target_ns=0), *every(10, 100, slow_ms, usual_ms))
    assert (story.found("latency_outliers") is not None) == is_found


def test_more_than_a_tenth_are_the_usual() -> None:
    assert served(Story(rtt_to_target_ns=0), *every(10, 100)).found("latency_outliers")
    assert served(Story(rtt_to_target_ns=0), *every(9, 99)).found("latency_outliers") is None


def test_large_reads_are_not_outliers_among_small_ones() -> None:
    story = served(Story(rtt_to_target_ns=0), *[4.0] * 95)
    served(story, *[400.0] * 5, bytes=1 << 20)
    assert story.found("latency_outliers") is None


def test_reads_that_waited_for_a_loss_did_not_wait_for_the_target() -> None:
    story = served(Story(rtt_to_target_ns=0), *[4.0] * 50)
    for _ in range(4):
        story.task(("loss_recovery", 400 * MS))
        served(story, *[4.0] * 10)
    assert story.found("latency_outliers") is None


def test_a_tenth_of_a_second_in_an_hour_of_work_is_not_worth_it() -> None:
    few = served(Story(rtt_to_target_ns=0), *[4.0] * 2_000, 100.0)
    assert few.found("latency_outliers") is None
