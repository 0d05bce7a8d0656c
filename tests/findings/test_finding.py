"""Findings: their parts, order and JSON, and the declaration of every problem."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding, in_order, shown
from iscsitrace.findings.times import FindingSpans
from iscsitrace.measure.grouping import TABLES
from iscsitrace.measure.session import Stretches
from iscsitrace.wording import amounts as wording
from tests.support.calls import calls_of
from tests.support.story import SECOND, Story
from tests.support.tables_by_hand import MS


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12),
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from(("transfer", "propagation", "ack_wait"))), min_size=1, max_size=12
    ),
)
def test_claimed_time_against_counting_nanoseconds(
    intervals: list[tuple[int, int]], stretches: list[tuple[int, str]]
) -> None:
    held, moment, owners = [], 0, []
    for length, part in stretches:
        if part != "transfer":
            held.append((moment, moment + length))
        owners += [part] * length
        moment += length
    waits = Stretches(*np.array(held, dtype=np.int64).reshape(-1, 2).T, *np.full((2, len(held)), -1))
    starts, ends = (np.array([each[side] for each in intervals], dtype=np.int64) for side in (0, 1))
    expected = sum(
        owner != "transfer" and any(first <= moment < last for first, last in intervals)
        for moment, owner in enumerate(owners)
    )
    assert waits.within_ns(starts, ends) == expected


def test_failures_come_first_then_the_largest_share() -> None:
    found = [Finding(PROBLEMS["loss"], "info", 0.1, "", ()), Finding(PROBLEMS["slow_target"], "info", 0.4, "", ())]
    found.append(Finding(PROBLEMS["task_aborts"], "error", None, "", ()))
    assert [each.name for each in in_order(found)] == ["task_aborts", "slow_target", "loss"]
    # what is wrong comes before a limit that takes more
    limit = Finding(PROBLEMS["queue_depth_low"], "info", 0.7, "", ())
    wrong = Finding(PROBLEMS["loss"], "warning", 0.2, "", ())
    note = Finding(PROBLEMS["initiator_think_time"], "info", 0.9, "", ())
    assert [each.name for each in in_order([note, limit, wrong])] == ["loss", "queue_depth_low", "initiator_think_time"]
    assert shown([5, None, 3, 5, *range(20, 40)]) == (3, 5, *range(20, 29))


def test_a_finding_without_a_share_stands_with_those_of_none() -> None:
    found = [
        Finding(PROBLEMS["loss"], "warning", share, text, ()) for share, text in ((None, "a"), (0.0, "b"), (0.1, "c"))
    ]
    assert [each.text for each in in_order(found)] == ["c", "a", "b"]


def test_a_finding_without_frames_has_no_display_filter() -> None:
    assert Finding(PROBLEMS["loss"], "info", 0.1, "", ()).display_filter is None


@pytest.mark.parametrize(
    ("own", "other", "is_explained"), [(0.6, 0.3, True), (0.6, 0.29, False), (0.1, None, False), (None, None, True)]
)
def test_half_of_a_share_explains_it(own: float | None, other: float | None, is_explained: bool) -> None:
    think = Finding(PROBLEMS["initiator_think_time"], "info", own, "", ())
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "info", other, "", ())
    assert think.is_explained_by(waits) == is_explained


def test_the_spans_of_a_story_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = tuple((10 * number, 10 * number + 9) for number in range(1000))
    asked = calls_of(monkeypatch, FindingSpans, "_meet")
    think = Finding(PROBLEMS["initiator_think_time"], "info", 0.1, "", (), spans=spans)
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "info", 0.3, "", (), spans=spans)
    # as each session of the story does
    assert all(think.is_explained_by(waits) for _ in range(1000))
    assert len(asked) == len(spans)


@pytest.mark.parametrize(
    ("spans", "others", "is_explained"),
    [
        ([(5, 9)], [(0, 4), (10, 20)], False),
        ([(5, 9)], [(0, 5), (10, 20)], True),
        ([(5, 10)], [(0, 4), (10, 20)], True),
        # within a long one that began before a short one
        ([(50, 60)], [(0, 100), (10, 20)], True),
        ([(5, 9), (30, 40)], [(0, 20)], False),
        ([(5, 9)], [], True),
        ([], [(0, 20)], True),
    ],
)
def test_a_finding_is_explained_only_where_all_its_spans_meet_the_others(
    spans: list[tuple[int, int]], others: list[tuple[int, int]], is_explained: bool
) -> None:
    think = Finding(PROBLEMS["initiator_think_time"], "info", 0.1, "", (), spans=tuple(spans))
    waits = Finding(PROBLEMS["mirror_waits_for_farthest"], "info", 0.3, "", (), spans=tuple(others))
    assert think.is_explained_by(waits) == is_explained


CONDITIONS = {
    "queue_depth_low": "at least 5 % of the I/O time, with at least 8 reads",
    "block_size_small": "under 1 MiB, and at least 50 % of the commands",
    "r2t_rounds": "for at least 8 further R2Ts",
    "r2t_late": "at least 8 R2Ts are more than 1 ms late",
    "unsolicited_data_unused": "At least 50 % of the writes",
    "restart_after_idle": "at least 4 times",
    "congestion_window_small": "fewer than 4 restarts",
    "loss": "at least 1 % of the I/O time",
    "ack_loss": "at least 1 % of the I/O time",
    "delayed_ack_in_recovery": "cost at least 1 % of the I/O time",
    "uneven_connections": "at least 25 % of the time",
    "command_window_closed": "At least 10 % of the commands, and at least 8, were sent within 1 ms after",
    "nop_timeout": "took 5 s or more",
    "capture_poor": "Less than 98 % of the stream bytes decoded or of the PDUs captured, or at least 5 % of the time",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_states_its_threshold(name: str) -> None:
    assert CONDITIONS[name] in PROBLEMS[name].condition


def test_the_diagnosis_of_an_only_connection_is_that_of_its_session() -> None:
    diagnosis = examine(Story().tasks(8, ("propagation", 16 * MS)).source())
    assert list(diagnosis.separate) == []
    assert (diagnosis.sessions[0].number, diagnosis.connections[3].number) == (0, 3)
    assert diagnosis.connections[3].headline.text.startswith("Connection 3 is limited by network latency. ")
    assert (diagnosis.sessions[0].jobs_ns, Story().opinion().jobs_ns) == (128 * MS, 0)
    assert diagnosis.sessions[0].idle_fraction == 1.0


def test_the_diagnosis_of_a_session_as_json() -> None:
    opinion = (
        Story().tasks(8, ("propagation", 12 * MS), ("transfer", 4 * MS)).pause(SECOND).task(("transfer", 0)).opinion()
    )
    document = opinion.as_dict()
    assert (document["idle_fraction"], document["limiter"], document["jobs_ns"]) == (
        pytest.approx(1 - 32 / 128),
        "propagation",
        128 * MS,
    )
    budget = {"transfer": 32 * MS, "propagation": 96 * MS, "initiator_think": SECOND}
    assert {part: spent for part, spent in document["budget"].items() if spent} == budget
    busy = {part: (spent, document["shares"][part]) for part, spent in document["busy_budget"].items() if spent}
    assert busy == {"transfer": (32 * MS, 0.25), "propagation": (96 * MS, 0.75)}
    assert document["excluded_ns"] == {"idle": SECOND, "scan": 0, "flush": 0}
    assert [each["name"] for each in document["findings"]] == [each.name for each in opinion.findings]
    assert document["verdict"] == document["headline"]["verdict"] == "limited"
    assert document["headline"]["text"] == opinion.headline.text
    nothing = Story().opinion().as_dict()
    assert [nothing[name] for name in ("budget", "idle_fraction", "limiter", "jobs_ns")] == [None, None, None, 0]


def test_one_of_two_connections_has_a_diagnosis_of_its_own() -> None:
    story = Story().tasks(8, ("propagation", 16 * MS))
    story.rows["connections"].append(story.connection | {"connection": 4})
    diagnosis = examine(story.source())
    assert list(diagnosis.separate) == list(diagnosis.connections) == [3, 4]


def test_amounts_in_words() -> None:
    assert [wording.size(each) for each in (512, 130_560, 131_072, 500_000, 1 << 20)] == [
        *("512 bytes", "127.5 KiB", "128 KiB", "500,000 bytes", "1 MiB"),
    ]
    assert [wording.time(each) for each in (999, 1_500, 8 * MS, 2_100 * MS)] == ["999 ns", "2 µs", "8.0 ms", "2.1 s"]
    assert [wording.percent(each) for each in (0.784, 0.0042, 1.0)] == ["78 %", "0.42 %", "100 %"]


def test_every_problem_has_condition_evidence_and_advice() -> None:
    for name, problem in PROBLEMS.items():
        assert problem.name == name
        assert re.fullmatch(r"[a-z0-9_]+", name)
        advice = [each.text for each in problem.advice]
        for text in (problem.meaning, problem.condition, problem.evidence, *advice):
            assert re.fullmatch(r"([A-Z0-9`/]|node\.|open-iscsi|multipath).*\.", text), text
        assert advice
    assert set(NEEDED) < {*TABLES, "write_starts", "retransmissions"}


def test_every_problem_is_tested_on_stories() -> None:
    """By its name, in a file that tests what it means; two have the names of all."""
    files = set(Path(__file__).parent.glob("test_*.py")) - {
        Path(__file__).with_name(f"test_{name}.py") for name in ("every_finding", "diagnosis_captures")
    }
    source = "".join(file.read_text() for file in files)
    assert [name for name in PROBLEMS if f'"{name}"' not in source] == []


def test_a_finding_as_json() -> None:
    found = Story().tasks(8, ("propagation", 16 * MS)).found("block_size_small")
    assert found
    document = json.loads(json.dumps(found.as_dict()))
    assert list(document) == [
        "name",
        "severity",
        "share",
        "cost_ns",
        "spans",
        "sessions",
        "luns",
        "text",
        "frames",
        "display_filter",
        "advice",
        "gain",
        "gains",
    ]
    assert document["gain"] == document["gains"][0]
    # a command waits only for the RTT: one of twice the size has twice the throughput
    assert (document["gain"]["change"], document["gain"]["throughput_factor"]) == ("256 KiB I/O", 2)
    assert document["advice"] == PROBLEMS["block_size_small"].advice[1].text


def test_the_diagnosis_of_a_session_uses_only_its_rows() -> None:
    first, second = Story().tasks(8, ("propagation", 16 * MS)), Story().tasks(8, ("transfer", 16 * MS))
    rows = first.rows
    for name, others in second.rows.items():
        for other in others:
            moved = other | {key: 1 for key in ("session",) if key in other}
            moved |= (
                {"connection": 5 if other["connection"] == 3 else other["connection"]} if "connection" in other else {}
            )
            moved |= {"cycle": other["cycle"] + 8} if other.get("cycle") is not None else {}
            rows[name].append(moved)
    rows["cycles"].sort(key=lambda row: row["cycle"])
    diagnosis = examine(first.source())
    assert [finding.name for finding in diagnosis.sessions[0].findings] == ["queue_depth_low", "block_size_small"]
    assert diagnosis.sessions[1].findings == []
    assert set(diagnosis.connections) == {3, 5}
    assert diagnosis.budget["transfer"] == diagnosis.budget["propagation"] == 128 * MS
    assert diagnosis.found == {"queue_depth_low", "block_size_small"}
