"""Phases are differences of instants that add up to the latency and the period."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.tables.phases import LATENCY_PHASES
from tests.support.tables_by_hand import table

PHASES = (*LATENCY_PHASES, "ack_ns", "turnaround_ns", "latency_ns", "period_ns")


def phases(**row: Any) -> dict[str, int]:
    """The phases of one cycle that are not null."""
    found = table("cycles", row).row(0)
    return {name: found[name] for name in PHASES if found[name] is not None}


READ = {"is_read": True, "data_pdu_count": 1, "command_first_ns": 100, "command_last_ns": 101, "data_first_ns": 140}
WRITE = {"is_write": True, "data_pdu_count": 1, "command_first_ns": 100, "command_last_ns": 105, "data_first_ns": 150}


def test_read() -> None:
    assert phases(**READ, data_last_ns=160, status_ns=175, data_acked_ns=161, next_command_ns=180) == {
        "request_ns": 40,
        "transfer_ns": 20,
        "status_wait_ns": 15,
        "ack_ns": 1,
        "turnaround_ns": 5,
        "latency_ns": 75,
        "period_ns": 80,
    }


def test_status_in_the_last_data_waits_for_nothing() -> None:
    assert phases(**READ, data_last_ns=160, status_ns=160)["status_wait_ns"] == 0


def test_write_with_r2t() -> None:
    assert phases(**WRITE, r2t_count=1, r2t_first_ns=130, data_last_ns=170, status_ns=200) == {
        "grant_ns": 30,
        "transfer_ns": 40,
        "service_ns": 30,
        "latency_ns": 100,
    }


def test_write_without_r2t_begins_to_transfer_with_the_command() -> None:
    assert phases(**WRITE, data_last_ns=170, status_ns=200) == {"transfer_ns": 70, "service_ns": 30, "latency_ns": 100}


def test_write_with_immediate_data_only_ends_with_the_command() -> None:
    row = {"is_write": True, "immediate_bytes": 1, "command_first_ns": 100, "command_last_ns": 110, "status_ns": 150}
    assert phases(**row) == {"transfer_ns": 10, "service_ns": 40, "latency_ns": 50}


def test_a_write_without_data_in_the_capture_has_no_transfer() -> None:
    row = {"is_write": True, "r2t_count": 1, "command_first_ns": 100, "command_last_ns": 140, "r2t_first_ns": 130}
    assert phases(**row, status_ns=200) == {"grant_ns": 30, "latency_ns": 100}


def test_immediate_data_that_ends_after_the_data_out_counts() -> None:
    row = WRITE | {"immediate_bytes": 1, "command_last_ns": 180}
    assert phases(**row, data_last_ns=170, status_ns=200)["transfer_ns"] == 80


def test_r2t_unanswered_has_a_grant_but_no_transfer() -> None:
    row = WRITE | {"data_pdu_count": 0, "data_first_ns": None}
    assert phases(**row, r2t_count=1, r2t_first_ns=130, status_ns=200) == {"grant_ns": 30, "latency_ns": 100}


def test_data_before_the_r2t_is_not_the_end_of_its_burst() -> None:
    row = phases(**WRITE, r2t_count=1, r2t_first_ns=180, data_last_ns=170, status_ns=200)
    assert row == {"grant_ns": 80, "latency_ns": 100}


def test_no_data_is_all_request() -> None:
    assert phases(command_first_ns=100, status_ns=130) == {"request_ns": 30, "latency_ns": 30}


def test_a_read_refused_moved_no_data() -> None:
    assert phases(is_read=True, command_first_ns=100, status_ns=130) == {"request_ns": 30, "latency_ns": 30}


def test_data_lost_by_the_capture_is_unknown_not_absent() -> None:
    assert phases(is_read=True, has_capture_gap=True, command_first_ns=100, status_ns=130) == {"latency_ns": 30}


def test_bidirectional_is_told_as_a_read() -> None:
    assert phases(**READ, is_write=True, data_last_ns=160, status_ns=175) == phases(
        **READ, data_last_ns=160, status_ns=175
    )


def test_without_status_there_is_no_latency() -> None:
    assert phases(**READ, data_last_ns=160) == {"request_ns": 40, "transfer_ns": 20}


@given(
    st.lists(st.integers(0, 10**12), min_size=7, max_size=7).map(sorted),
    st.sampled_from(["read", "write", "bidirectional", "none"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 1),
)
def test_phases_of_a_whole_cycle_add_up_exactly(
    instants: list[int], kind: str, data_pdu_count: int, r2t_count: int, immediate_bytes: int
) -> None:
    names = [
        "command_first_ns",
        "command_last_ns",
        "r2t_first_ns",
        "data_first_ns",
        "data_last_ns",
        "status_ns",
        "next_command_ns",
    ]
    row: dict[str, Any] = dict(zip(names, instants, strict=True))
    row["is_read"], row["is_write"] = kind in ("read", "bidirectional"), kind in ("write", "bidirectional")
    # what R2Ts ask for is sent in a whole cycle, and a task that is no write has neither R2Ts nor data of its own
    row["r2t_count"] = r2t_count if row["is_write"] else 0
    row["immediate_bytes"] = immediate_bytes if kind == "write" else 0
    row["data_pdu_count"] = max(data_pdu_count, 1 if row["r2t_count"] else 0) if kind != "none" else 0
    if not row["r2t_count"]:
        row["r2t_first_ns"] = None
    if not row["data_pdu_count"]:
        row["data_first_ns"] = row["data_last_ns"] = None
    found = phases(**row)
    assert sum(found.get(name, 0) for name in LATENCY_PHASES) == found["latency_ns"]
    assert found["latency_ns"] + found["turnaround_ns"] == found["period_ns"]
    assert all(value >= 0 for value in found.values())


def test_where_the_clock_runs_backwards_the_phases_are_unknown() -> None:
    """As several capture queues make it: the data is dated before the command."""
    assert phases(**READ | {"data_first_ns": 90}, data_last_ns=160, status_ns=175) == {"latency_ns": 75}
    assert phases(**READ | {"data_first_ns": 60}, data_last_ns=70, status_ns=70, next_command_ns=180) == {
        "turnaround_ns": 110,
        "period_ns": 80,
    }
    assert phases(**WRITE, r2t_count=1, r2t_first_ns=90, data_last_ns=170, status_ns=200) == {"latency_ns": 100}
    assert phases(**WRITE, data_last_ns=170, status_ns=160) == {"latency_ns": 60}
    # the end of the data was not captured, and its beginning is dated after the status
    assert phases(**READ, status_ns=130) == {"latency_ns": 30}


def test_a_row_whose_clock_runs_backwards_leaves_the_others_alone() -> None:
    rows = table("cycles", READ | {"data_first_ns": 90, "data_last_ns": 160}, READ | {"data_last_ns": 160})
    assert rows["request_ns"].tolist() == [None, 40]
    assert rows.select([1])["request_ns"].tolist() == [40]
