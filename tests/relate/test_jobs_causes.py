"""Streams, runs and causes: both sides of each threshold, on tables made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from iscsitrace.relate.jobs import runs, streams
from iscsitrace.relate.jobs.runs import Run
from iscsitrace.relate.jobs.streams import Evidence, Job, Loss, Stream
from iscsitrace.tables.numbers import ByConnection
from tests.support.streams_by_hand import SECOND, Work, connections
from tests.support.tables_by_hand import MS, table

KB = 1_000


def slow_beside(prepare: Callable[[Work, int], object], **slow: Any) -> Stream:
    """A stream of 2 s and one of 1 s at an RTT of 10 ms, with these events in the slow one."""
    work = Work()
    work.stream(1_000)
    number = work.stream(2_000, **slow)
    prepare(work, number)
    stream = work.job().slowest
    assert stream.run.connection == number
    return stream


def cause_of(prepare: Callable[[Work, int], object], **slow: Any) -> tuple[str, int | None] | None:
    cause = slow_beside(prepare, **slow).cause
    return (cause.name, cause.frame) if cause else None


# --- runs


def runs_of(work: Work) -> list[Run]:
    made = {name: table(name, *rows) for name, rows in work.rows.items()}
    return [*runs.of_trace(made.__getitem__)]


@pytest.mark.parametrize(("size", "is_work"), [(16_384, True), (15_872, False)])
def test_commands_below_a_quarter_of_the_usual_block_do_not_count(size: int, is_work: bool) -> None:
    work = Work()
    number = work.stream(1_000)
    # a tail behind it
    tail = work.rows["cycles"][-1] | {"cycle": 20, "bytes": size, "data_bytes": size}
    work.rows["cycles"].append(tail | {"command_first_ns": 2 * SECOND, "status_ns": 2 * SECOND + 50 * MS})
    (run,) = runs_of(work)
    assert (run.connection, run.block_bytes) == (number, 65_536)
    assert run.bytes == 20 * 65_536 + (size if is_work else 0)
    assert run.length_ns == (1_050 if is_work else 1_000) * MS
    assert run.busy_ns == run.length_ns


def test_a_run_is_of_the_operation_with_most_bytes() -> None:
    work = Work()
    work.stream(1_000)
    for row in work.rows["cycles"][:10]:
        row |= {"operation": "write", "is_read": False, "is_write": True}
    # of as much of both it is the reads, which ended last
    (run,) = runs_of(work)
    assert (run.operation, run.bytes, run.first_ns) == ("read", 10 * 65_536, SECOND + 500 * MS)
    work.rows["cycles"][10] |= {"operation": "write", "is_read": False, "is_write": True}
    (run,) = runs_of(work)
    assert (run.operation, run.bytes, run.to_target) == ("write", 11 * 65_536, True)


@pytest.mark.parametrize(("gap_ms", "count"), [(100, 1), (101, 2)])
def test_a_pause_of_more_than_100_ms_ends_a_run(gap_ms: int, count: int) -> None:
    work = Work()
    work.stream(1_000)
    for row in work.rows["cycles"][10:]:
        row["command_first_ns"] += gap_ms * MS
        row["status_ns"] += gap_ms * MS
    assert len(runs_of(work)) == count


def test_each_pause_counts_from_the_last_status_before_it() -> None:
    """Two pauses of 60 ms."""
    work = Work()
    work.stream(1_000)
    for first in (7, 14):
        for row in work.rows["cycles"][first:]:
            row["command_first_ns"] += 60 * MS
            row["status_ns"] += 60 * MS
    (run,) = runs_of(work)
    assert (run.length_ns, run.busy_ns) == (1_120 * MS, 1_000 * MS)


def test_busy_time_counts_parallel_commands_once() -> None:
    work = Work()
    work.stream(1_000)
    for row in work.rows["cycles"]:
        # a task of 50 ms has 30 of its own
        row["command_first_ns"] += 20 * MS
    (run,) = runs_of(work)
    assert (run.busy_ns, run.length_ns) == (20 * 30 * MS, 980 * MS)
    assert run.bytes_per_s == pytest.approx(20 * 65_536 / 0.98)


def test_only_complete_reads_and_writes_with_data_are_work() -> None:
    work = Work()
    work.stream(1_000, tasks=4)
    rows = work.rows["cycles"]
    rows[0]["is_complete"] = False
    rows[3]["data_bytes"] = 0
    rows.append(rows[1] | {"connection": 7})
    rows.append(rows[1] | {"operation": "inquiry", "is_read": False, "command_first_ns": 0})
    (run,) = runs_of(work)
    assert (run.first_ns, run.last_ns, run.bytes, run.last_row) == (
        SECOND + 250 * MS, SECOND + 750 * MS, 2 * 65_536, 2,
    )  # fmt: skip
    for row in rows:
        row["data_bytes"] = 1
    assert [run.bytes for run in runs_of(work)] == [3]
    for row in rows:
        row["data_bytes"] = 0
    assert runs_of(work) == []


def test_runs_have_the_same_nodes_by_names_or_by_their_session() -> None:
    work = Work()
    for target in ("iqn.disk", "iqn.disk", "iqn.other"):
        work.stream(1_000, target=target)
    work.stream(1_000, target="iqn.disk", host="iqn.another")
    # a session without a login, and one without the name of its target
    work.stream(1_000, session=9)
    work.stream(1_000, session=9)
    work.stream(1_000)
    work.stream(1_000)
    for row in work.rows["sessions"][4:]:
        row["target_name"] = None
    # connections of no session, and one without iSCSI
    for _ in range(2):
        work.stream(1_000, session=10)
        work.rows["connections"][-1]["session"] = None
    work.rows["connections"].append({"connection": 10})
    work.rows["cycles"].append(work.rows["cycles"][0] | {"connection": 10})
    found = runs.of_trace({name: table(name, *rows) for name, rows in work.rows.items()}.__getitem__)
    assert [run.session for run in found] == [0, 1, 2, 3, 9, 9, 6, 7, None, None]
    same = {frozenset(np.flatnonzero(found.nodes == each).tolist()) for each in found.nodes if each >= 0}
    assert same == {frozenset(own) for own in ({0, 1}, {2}, {3}, {4, 5}, {6}, {7})}
    assert found.nodes.tolist()[8:] == [-1, -1]


def test_the_block_of_a_run_is_the_size_that_moved_most() -> None:
    """Three of 128 KiB are more than five of 64 KiB; the last status is that of the longest command."""
    work = Work()
    work.stream(1_000, tasks=5)
    number = len(work.rows["cycles"])
    for place in range(3):
        row = work.rows["cycles"][place] | {"cycle": number + place, "data_bytes": 131_072}
        work.rows["cycles"].append(row)
    work.rows["cycles"][2]["status_ns"] = SECOND + 1_001 * MS
    (run,) = runs_of(work)
    assert (run.block_bytes, run.bytes, run.last_row) == (131_072, 3 * 131_072 + 5 * 65_536, 2)
    assert (run.last_ns, run.path_ns) == (SECOND + 1_001 * MS, 10 * MS)


# --- streams of one job


@pytest.mark.parametrize(("start_ms", "is_job"), [(750, True), (751, False)])
def test_streams_have_to_overlap_for_half_of_the_shorter_one(start_ms: int, is_job: bool) -> None:
    work = Work()
    work.stream(1_000, target="iqn.a")
    work.stream(500, target="iqn.a", start_ms=start_ms)
    assert bool(work.jobs()) == is_job


@pytest.mark.parametrize(("size", "is_job"), [(131_072, True), (131_584, False)])
def test_block_sizes_of_parallel_streams_differ_twofold_at_most(size: int, is_job: bool) -> None:
    work = Work()
    work.stream(1_000)
    work.stream(1_000, size=size)
    assert bool(work.jobs()) == is_job


@pytest.mark.parametrize(("length_ms", "is_slow"), [(1_111, False), (1_112, True)])
def test_a_stream_is_slow_below_nine_tenths_of_the_fastest(length_ms: int, is_slow: bool) -> None:
    """1000 / 1111 is 0.9001."""
    work = Work()
    work.stream(1_000)
    work.stream(length_ms)
    assert [stream.is_slow for stream in work.job().streams] == [False, is_slow]


def test_the_longest_stream_forms_a_group_and_the_rest_another() -> None:
    work = Work()
    work.stream(1_000, size=4_096)
    work.stream(2_000)
    work.stream(1_900)
    work.stream(1_000, size=4_096)
    assert [connections(job) for job in work.jobs()] == [[0, 3], [2, 1]]


def test_the_table_of_streams() -> None:
    work = Work()
    work.stream(1_000, session=None, sent_again=20)
    number = work.stream(2_000, sent_again=50)
    work.lost(number, (100, "fast", 100 * KB), (900, "timeout", 50 * KB))
    job: Job = work.job()
    rows = list(streams.streams([job]).rows())
    assert [row["bytes_per_s"] for row in rows] == [round(20 * 65_536 / 1.0), round(20 * 65_536 / 2.0)]
    assert [row["behind_ns"] for row in rows] == [0, 1_000 * MS]
    assert [(row["retransmitted_packets"], row["packets"]) for row in rows] == [(20, 1_000), (50, 1_000)]
    assert [(row["loss_count"], row["timeout_count"]) for row in rows] == [(0, 0), (2, 1)]
    assert [row["cause_frame"] for row in rows] == [None, 1_900]
    assert [row["cause_time_ns"] for row in rows] == [None, SECOND + 900 * MS]
    document = job.as_dict(0)
    assert [each["retransmission_rate"] for each in document["streams"]] == [0.02, 0.05]
    # of 2 s one stream used half
    assert document["unused_share"] == pytest.approx(0.25)
    assert (document["whole_ns"], document["bytes"]) == (2_000 * MS, 40 * 65_536)


# --- causes


@pytest.mark.parametrize(("beyond_ms", "is_timeout"), [(180, False), (189, False), (190, True), (200, True)])
def test_a_recovery_with_a_long_silence_ended_by_timeout(beyond_ms: int, is_timeout: bool) -> None:
    """200 ms is the usual minimum RTO; the sender's timer started a little before the tap saw the silence. The RTT of
    10 ms is not part of it.
    """
    silence = lambda work, number: work.waited(number, "loss_recovery", 500, 510 + beyond_ms)  # noqa: E731
    assert cause_of(silence) == (("timeout", 7) if is_timeout else None)
    assert slow_beside(silence).evidence.timeout_count == is_timeout


def test_a_silence_before_a_known_timeout_counts_once() -> None:
    def known(work: Work, number: int) -> object:
        work.waited(number, "loss_recovery", 500, 900)
        return work.lost(number, (600, "timeout", 50 * KB))

    stream = slow_beside(known)
    assert stream.evidence.timeout_count == 1
    assert stream.cause
    assert (stream.cause.name, stream.cause.frame) == ("timeout", 1_600)

    def another(work: Work, number: int) -> object:
        work.waited(number, "loss_recovery", 1_200, 1_600)
        return known(work, number)

    assert slow_beside(another).evidence.timeout_count == 2


@pytest.mark.parametrize(("at", "count"), [(499, 2), (500, 1), (900, 1), (901, 2)])
def test_a_known_timeout_at_either_end_of_a_silence_is_the_same(at: int, count: int) -> None:
    def known(work: Work, number: int) -> object:
        work.waited(number, "loss_recovery", 500, 900)
        return work.lost(number, (at, "timeout", 50 * KB))

    assert slow_beside(known).evidence.timeout_count == count


def test_a_silence_with_a_frame_is_shown_by_it() -> None:
    def silent(work: Work, number: int) -> object:
        work.rows["retransmissions"] = [
            {"connection": number, "time_ns": SECOND + 950 * MS, "frame": 9, "cause": "fast"}
        ]
        return work.waited(number, "loss_recovery", 500, 900)

    assert cause_of(silent) == ("timeout", 7)


def test_a_silence_without_a_frame_shows_the_next_retransmission() -> None:
    def silent(work: Work, number: int) -> object:
        work.rows["retransmissions"] = [
            {"connection": number, "time_ns": SECOND + at * MS, "frame": 3_000 + at, "cause": "fast"}
            for at in (910, 900, 505, 300)
        ]
        work.waited(number, "loss_recovery", 500, 900)
        work.rows["budget"][-1]["frame"] = None
        return work

    assert cause_of(silent) == ("timeout", 3_900)


def test_a_timeout_within_a_recovery_counts_once() -> None:
    """The recovery began with a fast retransmission and had two timeouts; a third timeout was outside any recovery."""

    def within(work: Work, number: int) -> object:
        work.lost(number, (400, "fast", 100 * KB))
        work.rows["recoveries"][-1]["time_last_ns"] = SECOND + 1_000 * MS
        work.rows["retransmissions"] = [
            {"connection": number, "time_ns": SECOND + at * MS, "frame": 3_000 + at, "cause": "timeout"}
            for at in (700, 900, 1_100)
        ]
        return work

    stream = slow_beside(within)
    assert (stream.evidence.loss_count, stream.evidence.timeout_count) == (1, 1)
    assert stream.cause
    assert (stream.cause.name, stream.cause.frame) == ("timeout", 3_700)


@pytest.mark.parametrize(("spurious", "losses"), [(1, 2), (2, 1)])
def test_a_recovery_without_a_loss_is_no_cause(spurious: int, losses: int) -> None:
    """The first of two recoveries; it ended slow start, and then no loss did."""

    def needless(work: Work, number: int) -> object:
        work.lost(number, (200, "fast", 100 * KB), (400, "fast", 100 * KB), exit_bytes=100 * KB)
        work.rows["recoveries"][-2]["spurious_packets"] = spurious
        return work

    stream = slow_beside(needless)
    assert stream.evidence.loss_count == losses
    assert stream.cause
    assert stream.cause.name == ("slow_start_exit" if losses == 2 else "low_equilibrium")


def test_timeouts_are_at_least_those_that_the_sender_counted() -> None:
    def counted(work: Work, number: int) -> object:
        work.lost(number, (400, "timeout", 100 * KB))
        work.rows["senders"][-1]["timeout_count"] = 3
        return work

    assert slow_beside(counted).evidence.timeout_count == 3


def test_the_costliest_timeout_and_the_first_loss_are_shown() -> None:
    timeouts = [(200, "timeout", KB), (400, "timeout", KB), (1_500, "timeout", KB)]
    assert cause_of(lambda work, number: work.lost(number, *timeouts)) == ("timeout", 1_400)
    losses = [(200, "fast", KB), (400, "fast", KB), (1_500, "fast", KB)]
    assert cause_of(lambda work, number: work.lost(number, *losses)) == ("low_equilibrium", 1_200)


def test_losses_outside_the_run_do_not_count() -> None:
    losses = [(-1, "fast", KB), (2_001, "fast", KB)]
    assert cause_of(lambda work, number: work.lost(number, *losses)) is None
    assert cause_of(lambda work, number: work.lost(number, (0, "fast", KB))) == ("low_equilibrium", 1_000)


@pytest.mark.parametrize(("rtt_ms", "is_cause"), [(15, True), (16, False)])
def test_a_loss_is_the_cause_if_rtts_are_similar(rtt_ms: int, is_cause: bool) -> None:
    """15 ms still counts as similar to 10 ms; at a longer RTT, a loss without a wait is no cause."""
    lost = lambda work, number: work.lost(number, (500, "fast", 50 * KB))  # noqa: E731
    assert cause_of(lost, rtt_ms=rtt_ms) == (("low_equilibrium", 1_500) if is_cause else None)


@pytest.mark.parametrize(("wait_ms", "is_cause"), [(99, False), (100, True)])
def test_at_a_longer_rtt_a_loss_is_the_cause_from_a_twentieth_of_waits_on(wait_ms: int, is_cause: bool) -> None:
    def lost(work: Work, number: int) -> object:
        work.waited(number, "congestion_window", 500, 500 + wait_ms)
        return work.lost(number, (500, "fast", 50 * KB))

    assert cause_of(lost, rtt_ms=20) == (("low_equilibrium", 1_500) if is_cause else None)


@pytest.mark.parametrize(("again", "cause"), [(2, ("slow_start_exit", 1_100)), (3, ("low_equilibrium", 1_800))])
def test_up_to_two_more_losses_still_count_as_slow_start(again: int, cause: tuple[str, int]) -> None:
    """From the third on, at 800 ms of 2000, these losses keep the window small, for longer than the first one did."""
    later = [(400 + 200 * place, "fast", 110 * KB) for place in range(again)]
    assert cause_of(lambda work, n: work.lost(n, (100, "fast", 100 * KB), *later, exit_bytes=100 * KB)) == cause


def test_the_receive_window_is_the_cause_if_it_costs_more_than_losses() -> None:
    def both(window_ms: int, loss_ms: int) -> tuple[str, int | None] | None:
        def waits(work: Work, number: int) -> object:
            work.lost(number, (500, "fast", 50 * KB))
            work.waited(number, "loss_recovery", 500, 500 + loss_ms)
            return work.waited(number, "receive_window", 1_000, 1_000 + window_ms)

        return cause_of(waits)

    assert both(150, 150) == ("window", 7)
    assert both(150, 151) == ("low_equilibrium", 1_500)


@pytest.mark.parametrize(("at", "count"), [(399, 0), (400, 1), (1_000, 1), (1_001, 0)])
def test_only_timeouts_within_a_recovery_are_counted(at: int, count: int) -> None:
    def within(work: Work, number: int) -> object:
        work.lost(number, (400, "fast", 100 * KB))
        work.rows["recoveries"][-1]["time_last_ns"] = SECOND + 1_000 * MS
        row = {"connection": number, "time_ns": SECOND + at * MS, "frame": 9}
        work.rows["retransmissions"] = [
            row | {"cause": "timeout"},
            row | {"cause": "fast", "time_ns": SECOND + 600 * MS},
        ]
        return work

    evidence = slow_beside(within).evidence
    assert (evidence.timeout_count, evidence.loss_count, len(evidence.losses)) == (count, 1, 1 + count)


def test_a_recovery_without_an_end_lasts_until_the_end_of_the_run() -> None:
    def within(work: Work, number: int) -> object:
        work.lost(number, (400, "fast", 100 * KB))
        row = {"connection": number, "time_ns": SECOND + 2_000 * MS, "frame": 9, "cause": "timeout"}
        work.rows["retransmissions"] = [row]
        return work

    assert slow_beside(within).evidence.timeout_count == 1


def test_at_an_unknown_rtt_a_silence_of_190_ms_is_a_timeout() -> None:
    for silence_ns, count in ((190 * MS, 1), (190 * MS - 1, 0)):

        def silent(work: Work, number: int, silence_ns: int = silence_ns) -> object:
            work.rows["connections"][number]["rtt_to_target_min_ns"] = None
            work.waited(number, "loss_recovery", 500, 600)
            work.rows["budget"][-1]["time_last_ns"] = SECOND + 500 * MS + silence_ns
            return work

        stream = slow_beside(silent)
        assert stream.evidence.timeout_count == count
        # 5 % of the run waited
        assert (stream.cause is not None) is bool(count)


def test_a_loss_is_no_cause_where_an_rtt_is_unknown() -> None:
    for unknown in (0, 1):

        def lost(work: Work, number: int, unknown: int = unknown) -> object:
            work.rows["connections"][unknown]["rtt_to_target_min_ns"] = None
            return work.lost(number, (500, "fast", 50 * KB))

        assert cause_of(lost) is None


def test_waits_of_other_connections_and_other_times_do_not_count() -> None:
    def waits(*spans: tuple[int, int]) -> Callable[[Work, int], object]:
        def prepare(work: Work, number: int) -> object:
            for begin, end in spans:
                work.waited(number, "receive_window", begin, end)
            return work.waited(0, "receive_window", 0, 1_000)

        return prepare

    assert cause_of(waits()) is None
    assert cause_of(waits((-200, 0), (2_000, 2_400))) is None
    # a stretch that begins or ends outside counts as a whole
    assert cause_of(waits((-99, 1))) == ("window", 7)
    assert cause_of(waits((1_999, 2_098))) is None
    assert cause_of(waits((1_999, 2_099))) == ("window", 7)


def test_the_longest_wait_for_a_window_is_shown() -> None:
    def waits(work: Work, number: int) -> object:
        for begin, end in ((100, 200), (300, 450), (500, 600)):
            work.waited(number, "receive_window", begin, end)
            work.rows["budget"][-1]["frame"] = begin
        return work

    stream = slow_beside(waits)
    assert stream.cause
    assert (stream.cause.time_ns, stream.cause.frame) == (SECOND + 300 * MS, 300)
    assert stream.cause.words == "it was receive-window-limited"


SLOW_START, LOW, TIMEOUT = "slow_start_exit", "low_equilibrium", "timeout"


@pytest.mark.parametrize(
    ("losses", "causes"),
    [
        ([(LOW, 10), (LOW, 10)], [LOW, LOW]),
        ([(SLOW_START, 10), (LOW, 19), (LOW, 19), (LOW, 19)], [SLOW_START, SLOW_START, SLOW_START, LOW]),
        ([(SLOW_START, 10), (LOW, 20), (LOW, 10)], [SLOW_START, LOW, LOW]),
        ([(SLOW_START, 10), (LOW, 21), (LOW, 10)], [SLOW_START, LOW, LOW]),
        ([(SLOW_START, 10), (TIMEOUT, 0), (LOW, 10)], [SLOW_START, TIMEOUT, LOW]),
        ([(TIMEOUT, 0), (SLOW_START, 10), (LOW, 15)], [TIMEOUT, SLOW_START, SLOW_START]),
        # a new slow start counts from its own window
        ([(SLOW_START, 10), (SLOW_START, 40), (LOW, 79)], [SLOW_START, SLOW_START, SLOW_START]),
        ([(SLOW_START, 10), (SLOW_START, 40), (LOW, 80)], [SLOW_START, SLOW_START, LOW]),
    ],
)
def test_a_small_window_after_slow_start_has_its_cause(losses: list[tuple[str, int]], causes: list[str]) -> None:
    evidence: Any = Evidence(runs_of_one(), ByConnection(table))
    evidence.losses = [Loss(at, kind, None, pipe) for at, (kind, pipe) in enumerate(losses)]
    assert evidence._regimes == causes


def runs_of_one() -> Run:
    work = Work()
    work.stream(1_000)
    (run,) = runs_of(work)
    return run


def test_the_cause_is_the_kind_of_loss_after_which_most_time_passed() -> None:
    """Timeouts at 100 and 900 ms of 2 s, a loss between them from 200 on: 1200 ms against 700."""

    def mixed(*losses: tuple[int, str, int]) -> tuple[str, int | None] | None:
        return cause_of(lambda work, number: work.lost(number, *losses))

    assert mixed((100, "timeout", KB), (200, "fast", KB), (900, "timeout", KB)) == ("timeout", 1_900)
    assert mixed((100, "timeout", KB), (200, "fast", KB), (1_300, "timeout", KB)) == ("low_equilibrium", 1_200)
    # of equal times the first kind
    assert mixed((0, "timeout", KB), (1_000, "fast", KB)) == ("timeout", 1_000)
    assert mixed((0, "fast", KB), (1_000, "timeout", KB)) == ("low_equilibrium", 1_000)
