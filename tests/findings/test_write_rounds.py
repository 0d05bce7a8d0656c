"""Writes that wait for R2Ts, on synthetic sessions: rounds, late R2Ts, data that could be unsolicited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iscsitrace.findings import writes as problems
from iscsitrace.findings.writes import _grants
from iscsitrace.fit.situation import Situation
from iscsitrace.model.setting import Setting, Solicitation
from tests.support.story import Story, names, write_in_rounds, writes
from tests.support.tables_by_hand import MS, table


def test_rounds_of_r2ts() -> None:
    story = writes(4, 4, immediate=1)
    story.add("parameters", session=0, key="MaxBurstLength", effective_target="65536", source="negotiated")
    found = story.found("r2t_rounds")
    assert found
    # three further R2Ts of 16 ms in each write of 5 * 16 + 4 * 4 ms
    assert found.share == pytest.approx(3 * 16 / 96)
    assert found.text == (
        "A 256 KiB write needs 4 R2Ts, one after another, for bursts of 64 KiB (MaxBurstLength=65536)."
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
    assert found.text == "The target sent 10 of 10 R2Ts late: typically 4.0 ms after they were due, at most 4.0 ms."
    assert 1_000 in found.frames
    assert writes(7, 1, lateness_ns=4 * MS).found("r2t_late") is None


def test_data_that_could_be_unsolicited() -> None:
    found = writes(10, 1).found("unsolicited_data_unused")
    assert found
    assert found.share == pytest.approx(16 / 36)
    assert found.text == "10 of 10 writes waited for an R2T before they sent data."
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


def test_of_an_r2t_all_that_it_waited_for_has_to_be_known() -> None:
    """Times of R2T, first and last data, by command and number: the second line of each has what is missing."""
    times: dict[tuple[int, int], tuple[int | None, int | None, int | None]] = {
        (0, 0): (110, 120, 130), (0, 1): (140, 150, 160),
        # before the data that it had to wait for
        (0, 2): (159, 170, 180),
        (1, 0): (200, 210, 220),
        # without an R2T, without data, after data whose end is missing
        (1, 1): (None, 225, 230), (1, 2): (240, None, None), (1, 3): (250, 260, 270),
        # the first R2T is missing
        (2, 1): (310, 320, 330),
        # the command is missing
        (3, 0): (410, 420, 430),
    }  # fmt: skip
    rounds = [
        {"cycle": cycle, "r2t_sn": number, "r2t_ns": r2t, "data_first_ns": first, "data_last_ns": last}
        for (cycle, number), (r2t, first, last) in times.items()
    ]
    commands = [{"cycle": cycle, "command_last_ns": at} for cycle, at in enumerate((100, 200, 300, None))]
    subject: Any = SimpleNamespace(
        tables={"rounds": table("rounds", *reversed(rounds))},
        cycles=table("cycles", *commands),
        rows_of=lambda cycles: cycles.astype(np.intp),
    )
    found = _grants(subject)
    assert found is not None
    assert found.is_first.tolist() == [number == 0 or cycle == 2 for cycle, number in times]
    assert found.is_whole.tolist() == [True, True, False, True, False, False, False, False, False]
    assert found.asked[:4].tolist() == [100, 130, 160, 200]
    assert found.row.tolist() == [cycle for cycle, _ in times]


def test_the_writes_that_waited_longest_for_their_first_r2t_are_shown() -> None:
    story = Story()
    for number in range(12):
        write_in_rounds(story, 1, lateness_ns=MS if number in (5, 7, 9) else 0)
    finding = story.found("unsolicited_data_unused")
    assert finding is not None
    frames = [row["command_frame"] for row in story.rows["cycles"]]
    assert [number for number, frame in enumerate(frames) if frame in finding.frames] == [5, 7, 9]


def test_the_three_latest_r2ts_are_shown() -> None:
    story = Story()
    for late_ms in (0, 2, 6, 4, 9, 3, 2, 5, 2):
        write_in_rounds(story, 1, lateness_ns=late_ms * MS, immediate=1)
    for number, row in enumerate(story.rows["rounds"]):
        row["r2t_frame"] = 5_000 + number
    found = story.found("r2t_late")
    assert found
    # of 2, 2, 2, 3, 4, 5, 6 and 9 ms
    assert found.text == ("The target sent 8 of 9 R2Ts late: typically 3.5 ms after they were due, at most 9.0 ms.")
    commands = [row["command_frame"] for row in story.rows["cycles"]]
    assert found.frames == (*(commands[number] for number in (2, 4, 7)), 5_002, 5_004, 5_007)


def test_the_write_with_most_r2ts_is_named_with_its_negotiated_parameters() -> None:
    story = Story()
    for rounds in (2, 2, 5, 3, 3):
        write_in_rounds(story, rounds, immediate=1)
    for key, value in (("MaxOutstandingR2T", "1"), ("MaxBurstLength", None), ("InitialR2T", "Yes")):
        story.add("parameters", session=0, key=key, effective_target=value)
    found = story.found("r2t_rounds")
    assert found
    assert found.text == (
        "A 320 KiB write needs 5 R2Ts, one after another, for bursts of 64 KiB (MaxOutstandingR2T=1)."
    )
    story.add("parameters", session=0, key="MaxBurstLength", effective_target="65536")
    found = story.found("r2t_rounds")
    assert found
    assert found.text.endswith(" (MaxBurstLength=65536, MaxOutstandingR2T=1).")


def test_writes_without_data_or_with_unsolicited_data_do_not_wait_for_an_r2t() -> None:
    story = writes(10, 1)
    for place, columns in ((0, {"data_bytes": 0}), (1, {"unsolicited_bytes": 1})):
        story.rows["cycles"][place] |= columns
    found = story.found("unsolicited_data_unused")
    assert found
    assert found.text == "8 of 9 writes waited for an R2T before they sent data."


# --- what-ifs


def basis(keys: Solicitation, *, block_bytes: int = 65_536, cost_ns: float | None = 0, asked: int | None = None) -> Any:
    situation = Situation(Setting("write", block_bytes, 8.0 * MS, solicitation=keys), {"target_service": 8.0})
    measured = SimpleNamespace(situation=situation, parts_ns={"target_service": 400})
    workload = None if asked is None else SimpleNamespace(block_bytes=asked)
    case = SimpleNamespace(subject=SimpleNamespace(workload=workload))
    return SimpleNamespace(measured=measured, case=case, finding=SimpleNamespace(cost_ns=cost_ns))


def keys_after(change: Any, given: Any) -> Solicitation:
    found: Solicitation = change.apply(given.measured.situation).setting.solicitation
    return found


@pytest.mark.parametrize(("outstanding", "tried"), [(1, 8), (8, 8), (9, 9)])
def test_eight_outstanding_r2ts_are_tried_and_never_fewer_than_there_are(outstanding: int, tried: int) -> None:
    given = basis(Solicitation(max_outstanding_r2t=outstanding))
    (change,) = problems._more_r2ts(given)
    assert change.words == f"MaxOutstandingR2T={tried}"
    assert keys_after(change, given).max_outstanding_r2t == tried
    (change,) = problems._larger_bursts(given)
    # the most whole KiB within the 2^24 - 1 bytes that RFC 7143, section 13.13, allows
    assert keys_after(change, given).max_burst_bytes == (2**24 - 1) // 1024 * 1024


@pytest.mark.parametrize(("cost_ns", "left"), [(0, 8.0), (None, 8.0), (100, 6.0), (400, 0.0), (900, 0.0)])
def test_without_late_r2ts_their_part_of_the_service_time_is_gone(cost_ns: float | None, left: float) -> None:
    """Of 400 ns of service time in all, and of 8 ns in each command."""
    given = basis(Solicitation(), cost_ns=cost_ns)
    (change,) = problems._in_time(given)
    assert change.apply(given.measured.situation).waits_ns["target_service"] == pytest.approx(left)


def test_a_larger_first_burst_is_tried_for_writes_that_are_larger() -> None:
    keys = Solicitation(is_initial_r2t=True, is_immediate_data=False, first_burst_bytes=65_536, max_burst_bytes=131_072)
    assert list(problems._larger_first_burst(basis(keys, block_bytes=65_536))) == []
    assert list(problems._larger_first_burst(basis(keys, block_bytes=1 << 20, asked=65_536))) == []
    for size, burst in ((65_537, 131_072), (262_144, 262_144)):
        for given in (basis(keys, block_bytes=size), basis(keys, block_bytes=512, asked=size)):
            (change,) = problems._larger_first_burst(given)
            assert change.words == f"ImmediateData=Yes, InitialR2T=No and FirstBurstLength={size}"
            after = keys_after(change, given)
            assert (after.first_burst_bytes, after.max_burst_bytes) == (size, burst)
            assert (after.is_initial_r2t, after.is_immediate_data) == (False, True)
