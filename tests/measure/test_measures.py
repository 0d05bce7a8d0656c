"""Analysis: percentiles, intervals, volumes, operations, health, selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.measure import capture_health as health
from iscsitrace.measure import distribution, intervals, selection, throughput, workload
from iscsitrace.measure.parameters import connections_by_value, negotiated
from iscsitrace.measure.path import initiator_share, tap_position
from tests.support.tables_by_hand import MS, TRACE, table, with_waits

CYCLES = TRACE["cycles"]


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=130))
def test_percentiles_by_nearest_rank(values: list[int]) -> None:
    found = distribution.percentiles(np.array(values))
    for name, share in (("p50", 50), ("p95", 95), ("p99", 99), ("max", 100)):
        value = found[name]
        if name in ("p95", "p99") and len(values) * (100 - share) < 100:
            # no value would be above it
            assert value is None
            continue
        assert value in values
        at_or_below = sum(each <= value for each in values)
        below = sum(each < value for each in values)
        assert at_or_below * 100 >= share * len(values) > below * 100


def test_percentiles_leave_nulls_out() -> None:
    found = distribution.percentiles(np.ma.MaskedArray([1, 99], mask=[False, True]))
    assert (found["n"], found["max"]) == (1, 1)
    nothing = distribution.percentiles(np.array([], dtype=np.int64))
    assert nothing == {"n": 0, "p50": None, "p95": None, "p99": None, "max": None}


def test_percentiles_of_commands_without_a_status_say_so() -> None:
    rows = [{"operation": "read", "status_ns": 4 * MS if number < 146 else None} for number in range(38_293)]
    (latency,) = workload.latencies(*with_waits([*rows, {"operation": "read", "status_ns": None}]))
    assert (latency["cycle_count"], latency["latency_ns"]["n"]) == (38_294, 146)
    assert list(workload.without_status([latency])) == [
        "Percentiles of 146 of 38,294 read commands: the others have no status in the capture."
    ]
    assert list(workload.without_status([latency | {"cycle_count": 146}])) == []
    for count, words in ((1, "1 read command without a status ranks"), (2, "2 read commands without a status rank")):
        row = {"operation": "read", "cycle_count": 9, "latency_ns": {"n": 9, "open_count": count}}
        assert list(workload.without_status([row])) == [f"{words} above all others: > is a lower bound."]


def test_what_never_got_a_status_ranks_above_all() -> None:
    # of 100 values the p99 is the 99th: the first of two without a status
    found = distribution.percentiles(np.arange(1, 99), np.array([7, 500]))
    assert found == {"n": 100, "p50": 50, "p95": 95, "p99": 98, "max": 500, "open_count": 2}
    # the one that was aborted after 7 would have taken longer than 98
    assert [distribution.is_bound(found, name) for name in ("p50", "p95", "p99", "max")] == [False, False, True, True]
    alone = distribution.percentiles(np.array([], dtype=np.int64), np.array([9]))
    assert alone == {"n": 1, "p50": 9, "p95": None, "p99": None, "max": 9, "open_count": 1}
    assert [distribution.is_bound(alone, name) for name in ("p50", "p95", "max")] == [True, False, True]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_union_length_against_counting_instants(pairs: list[tuple[int, int]]) -> None:
    starts, ends = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    covered = sum(any(start <= instant < end for start, end in pairs) for instant in range(41))
    assert intervals.union_length(starts, ends) == covered


pairs_in_time = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6)


def ends_of(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    starts, ends = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    return starts, ends


def instants_of(pairs: list[tuple[int, int]]) -> set[int]:
    return {instant for start, end in pairs for instant in range(start, end)}


def in_order(instants: set[int]) -> list[tuple[int, int]]:
    """The same time as intervals that do not touch."""
    begins = sorted(each for each in instants if each - 1 not in instants)
    return list(zip(begins, sorted(each + 1 for each in instants if each + 1 not in instants), strict=True))


@given(pairs_in_time, pairs_in_time)
def test_merged_and_common_time_against_counting_instants(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    starts, ends = intervals.merged(*ends_of(one))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == in_order(instants_of(one))
    common = intervals.intersection(starts, ends, *intervals.merged(*ends_of(other)))
    found = list(zip(common[0].tolist(), common[1].tolist(), strict=True))
    assert instants_of(found) == instants_of(one) & instants_of(other)
    assert all(start < end for start, end in found)
    moments = np.arange(22)
    before = [sum(each < moment for each in instants_of(one)) for moment in range(22)]
    assert intervals.covered_until(starts, ends, moments).tolist() == before


def test_volumes_over_the_active_time() -> None:
    first, total = throughput.measure(*with_waits(CYCLES))
    assert (first.session, total.session) == (0, None)
    assert (total.cycle_count, total.complete_cycle_count) == (3, 2)
    assert (total.read_bytes, total.write_bytes) == (65_536, 262_144)
    assert total.active_ns == 6 * MS + 43 * MS
    assert total.iops == pytest.approx(2 / 0.049)
    assert total.read_bytes_per_s == pytest.approx(65_536 / 0.049)
    assert total.queue_depth_max == 2


def test_volumes_of_a_bidirectional_command_count_in_both_directions() -> None:
    row = {"is_read": True, "is_write": True, "data_bytes": 1000, "solicited_bytes": 400}
    (total,) = throughput.measure(*with_waits([row]))
    assert (total.read_bytes, total.write_bytes) == (600, 400)
    # of data that was sent twice no more than there was
    (total,) = throughput.measure(*with_waits([row | {"solicited_bytes": 1_200}]))
    assert (total.read_bytes, total.write_bytes) == (0, 1_000)


def test_commands_without_data_are_neither_reads_nor_writes() -> None:
    rows = [
        {"operation": word, f"is_{word}": True, "data_bytes": moved, "command_first_ns": 0, "status_ns": 4 * MS}
        for word, moved in (("read", 1), ("read", 0), ("write", 1), ("write", 0), ("write", 0))
    ]
    (total,) = throughput.measure(*with_waits(rows))
    assert (total.cycle_count, total.read_cycle_count, total.write_cycle_count) == (5, 1, 1)
    assert (total.read_bytes_per_s, total.write_bytes_per_s) == (1 / 0.004, 1 / 0.004)
    # they still have a command and a status
    assert total.iops == 5 / 0.004


def test_volumes_without_cycles() -> None:
    (total,) = throughput.measure(*with_waits([]))
    assert (total.active_ns, total.iops, total.queue_depth_max) == (0, None, None)


def test_latencies_by_operation() -> None:
    found = {row["operation"]: row for row in workload.latencies(*with_waits([*CYCLES, *CYCLES[1:2]]))}
    assert next(iter(found)) == "write"
    assert found["write"]["cycle_count"] == 2
    assert found["write"]["latency_ns"] == {"n": 2, "p50": 43 * MS, "p95": None, "p99": None, "max": 43 * MS}
    assert found["read"]["status_wait_ns"]["p50"] == 0
    assert found["test_unit_ready"]["latency_ns"]["max"] is None
    assert {name: row["complete_cycle_count"] for name, row in found.items()} == {
        "write": 2,
        "read": 1,
        "test_unit_ready": 0,
    }


def test_block_sizes_leave_out_commands_without_data() -> None:
    assert workload.block_sizes(table("cycles", *CYCLES)) == [
        {"operation": "read", "bytes": 65_536, "cycle_count": 1},
        {"operation": "write", "bytes": 262_144, "cycle_count": 1},
    ]


def test_the_commonest_sizes_are_shown_and_the_others_summed() -> None:
    counts = {"read": {512: 3, 4_096: 9, 8_192: 3, 65_536: 1}, "write": {512: 2}}
    rows = [
        {"operation": operation, "bytes": size, "cycle_count": count}
        for operation, sizes in counts.items()
        for size, count in sizes.items()
    ]
    found = workload.largest_counts(rows, 2)
    # of equal counts the smaller size
    assert [row["bytes"] for row in found["read"].shown] == [4_096, 512]
    assert (found["read"].other_count, found["read"].other_cycle_count) == (2, 4)
    assert (len(found["write"].shown), found["write"].other_count, found["write"].other_cycle_count) == (1, 0, 0)


def test_queue_depths_are_counted() -> None:
    rows = [{"cycle": number, "queue_depth": depth} for number, depth in enumerate((1, 2, 2, 8))]
    found = throughput.queue_depths(table("cycles", *rows))
    assert found == {"n": 4, "p50": 2, "p95": None, "p99": None, "max": 8, "cycles_by_queue_depth": {1: 1, 2: 2, 8: 1}}


def test_commands_without_a_session_count_in_the_total_alone() -> None:
    rows = [{"cycle": number, "session": session} for number, session in enumerate((5, None, 2, 5))]
    found = [(each.session, each.cycle_count) for each in throughput.measure(*with_waits(rows))]
    assert found == [(2, 1), (5, 2), (None, 4)]


@pytest.mark.parametrize(
    ("initiator", "target", "value"),
    [
        ("Yes", "Yes", "Yes"),
        (None, None, None),
        ("8192", "4096", "initiator 8192, target 4096"),
        ("8192", None, "initiator 8192"),
        (None, "4096", "target 4096"),
    ],
)
def test_a_parameter_has_one_value_or_one_of_each_side(
    initiator: str | None, target: str | None, value: str | None
) -> None:
    assert negotiated({"effective_initiator": initiator, "effective_target": target}) == value


def test_connections_with_the_same_parameter_stand_together() -> None:
    def row(connection: int, value: str, source: str = "negotiated") -> dict[str, Any]:
        both = {"effective_initiator": value, "effective_target": value}
        return {"connection": connection, "key": "InitialR2T", "source": source} | both

    rows = [row(1, "Yes"), row(2, "No", "default"), row(3, "Yes", "offered"), row(4, "Yes")]
    assert connections_by_value(rows) == {("InitialR2T", "Yes"): [1, 4], ("InitialR2T", "No"): [2]}


def counter(name: str, severity: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "severity": severity, "count": count, **more}


def test_counters_are_summed_over_connections_and_the_worst_come_first() -> None:
    entries = health.by_name(
        table(
            "counters",
            counter("not_tcp", "info", 1),
            counter("capture_gap", "data_loss", 2, connection=0, first_frame=9),
            counter("capture_gap", "data_loss", 3, connection=4, first_frame=5),
        )
    )
    assert [entry["name"] for entry in entries] == ["capture_gap", "not_tcp"]
    assert (entries[0]["count"], entries[0]["first_frame"], entries[0]["connections"]) == (5, 5, [0, 4])


@pytest.mark.parametrize(("limit", "expected"), [("info", 4), ("warning", 3), ("data_loss", 2), ("error", 1)])
def test_health_reaching_a_severity(limit: str, expected: int) -> None:
    rows = [counter(name, name, 1) for name in ("info", "warning", "data_loss", "error")]
    assert len(health.reaching(health.by_name(table("counters", *rows)), limit)) == expected


def test_health_ignores_a_counter_of_zero() -> None:
    assert health.reaching(health.by_name(table("counters", counter("sync_lost", "data_loss", 0))), "info") == []


def test_display_filter() -> None:
    cycles = table("cycles", *CYCLES)
    own = "iscsi.initiatortasktag==0x00000011"
    assert selection.display_filter(cycles.row(1) | {"has_retransmission": False}) == (
        f"tcp.stream==1 && {own} && frame.number>=22 && frame.number<=210"
    )
    # with its retransmitted packets
    assert selection.display_filter(cycles.row(1)) == (
        f"tcp.stream==1 && ({own} || tcp.analysis.retransmission) && frame.number>=22 && frame.number<=210"
    )
    assert selection.frames_filter([9, 3, 12]) == "frame.number in {3, 9, 12}"
    # data before its command and after its status
    row = cycles.row(1) | {"data_first_frame": 7, "data_last_frame": 300}
    assert selection.display_filter(row).endswith("frame.number>=7 && frame.number<=300")
    # without a status its end is unknown
    assert selection.display_filter(cycles.row(2)).endswith("frame.number>=220")


@pytest.mark.parametrize(
    ("initiator_ns", "target_ns", "share", "position"),
    [
        (199, 801, 0.199, "initiator"),
        (200, 800, 0.2, "between"),
        (799, 201, 0.799, "between"),
        (801, 199, 0.801, "target"),
        (0, 0, None, None),
        (None, 5, None, None),
        (5, None, None, None),
    ],
)
def test_a_tap_is_near_the_end_with_less_than_a_fifth_of_the_rtt(
    initiator_ns: int | None, target_ns: int | None, share: float | None, position: str | None
) -> None:
    assert initiator_share(initiator_ns, target_ns) == share
    assert tap_position(initiator_ns, target_ns) == position
