"""Writes that wait for R2Ts, on synthetic sessions: rounds, late R2Ts, data that could be unsolicited."""

from __future__ import annotations

import pytest

from tests.support.story import names, write_in_rounds, writes
from tests.support.tables_by_hand import MS


def test_rounds_of_r2ts() -> None:
    story = writes(4, 4, immediate=1)
    story.add("parameters", session=0, key="MaxBurstLength", effective_target="65536", source="negotiated")
    found = story.found("r2t_rounds")
    assert found
    # three further R2Ts of 16 ms in each write of 5 * 16 + 4 * 4 ms
    assert found.share == pytest.approx(3 * 16 / 96)
    assert found.text == (
        "a 256 KiB write needs 4 R2Ts, one after another, for bursts of 64 KiB (MaxBurstLength=65536)"
    )
    assert found.frames == (1_000, 1_001, 1_002, 1_003, 3_000, 3_001, 3_002, 3_003)
    assert "MaxBurstLength" in " ".join(found.advice)


def test_one_r2t_per_write_is_no_round_and_seven_are_too_few() -> None:
    assert writes(20, 1, immediate=1).found("r2t_rounds") is None
    # 7 further R2Ts, then 8
    assert writes(7, 2, immediate=1).found("r2t_rounds") is None
    assert writes(8, 2, immediate=1).found("r2t_rounds")


def test_r2ts_that_come_together_cost_nothing() -> None:
    story = writes(8, 4, immediate=1)
    for row in story.rows["rounds"]:
        row["r2t_ns"] -= 20 * MS * row["r2t_sn"]
    assert story.found("r2t_rounds") is None


def test_r2t_late_is_the_time_beyond_the_rtt() -> None:
    assert writes(10, 1, lateness_ns=1 * MS, immediate=1).found("r2t_late") is None
    found = writes(10, 1, lateness_ns=4 * MS, immediate=1).found("r2t_late")
    assert found
    assert found.share == pytest.approx(4 / 40)
    assert "10 of 10 R2Ts were late: median 4.0 ms beyond the RTT, at most 4.0 ms" in found.text
    assert 1_000 in found.frames
    assert writes(7, 1, lateness_ns=4 * MS).found("r2t_late") is None


def test_data_that_could_be_unsolicited() -> None:
    found = writes(10, 1).found("unsolicited_data_unused")
    assert found
    assert found.share == pytest.approx(16 / 36)
    assert found.text == "10 of 10 writes sent no data before the first R2T"
    assert {11, 1_000, 2_000} <= set(found.frames)
    assert writes(10, 1, immediate=8_192).found("unsolicited_data_unused") is None
    # most writes send data at once
    story = writes(9, 1)
    for _ in range(11):
        write_in_rounds(story, 1, immediate=8_192)
    assert story.found("unsolicited_data_unused") is None


def test_r2ts_that_cost_no_idle_time_are_no_problem() -> None:
    """With other commands in flight the line is busy meanwhile: the time breakdown has transfer there."""
    assert names(writes(10, 4, path="transfer")) == set()
