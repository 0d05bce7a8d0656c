"""How each sender behaved, held against those who know: the simulated TCP, and kernels, recorded or running."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from bench.budget import runs
from bench.budget.cases import Case
from bench.recordings import Recording, recordings
from bench.senders import (
    TABLES,
    Errors,
    Estimates,
    Known,
    end_of,
    errors,
    estimates,
    of_truth,
    resent_count,
)
from iscsitrace.lab import simulation
from iscsitrace.measure.budget import of_sessions
from iscsitrace.tables.schema import TABLES as DECLARED
from tests.support.lab import Truth, judge_run, needs_root
from tests.support.recordings import captures_folder

MEDIAN_ERROR_MAX = 0.05
P95_ERROR_MAX = 0.15
# beside the sender every stop is seen; from afar a queue at the line hides those of a full line: see check_told
SHARE_VALID_MIN = {"sender": 0.25, "receiver": 0.0}
TOLD_MIN = 0.6
LEAST_BYTES = 7 * 1448
RATE_BYTES_PER_S = 40_000_000
INITIAL_WINDOW_BYTES = 10 * 1448
# a retransmission that was lost on its way never passed a tap beside the receiver
FOUND_SHARE_MIN = {"sender": 1.0, "receiver": 0.95}
MANY_LOSSES = 20
READS = Case(
    *("senders", "read", 8, 8, 256 << 10),
    window_bytes=6 << 20,
    send_buffer_bytes=6 << 20,
    queue_packets=1000,
    total_bytes=16 << 20,
)
CASES = {
    f"{operation} {control} {delay_ms} ms {loss:.1%}": replace(
        READS, operation=operation, congestion_control=control, delay_ms=delay_ms, loss=loss
    )
    for way, operation in enumerate(("read", "write"))
    for number, control in enumerate(("reno", "cubic"))
    for place, (delay_ms, loss) in enumerate(product((1, 4, 16), (0.0, 0.001, 0.01)))
    if (way + number + place) % 2 == 0
}
"""Every second of all combinations: each delay with each loss, in one direction by Reno and in the other by Cubic."""


def run(case: Case, folder: Path, world: str = "simulated") -> tuple[Truth, dict[str, iscsitrace.Trace]]:
    """The truth of a run, and the results at either tap."""
    made = runs.make(case, world, folder)
    return made.truth, {tap: iscsitrace.read(file, tables=TABLES) for tap, file in made.files.items()}


def place_of(tap: str, operation: str) -> str:
    """Whether a tap is beside the sender of the data or beside its receiver."""
    return "sender" if (tap == "initiator") == (operation == "write") else "receiver"


def check_estimate(found: Errors, share_valid_min: float) -> None:
    """The limits of method 5."""
    assert found.share_valid >= share_valid_min
    assert found.median <= MEDIAN_ERROR_MAX
    assert found.p95 <= P95_ERROR_MAX


def check_told(found: Estimates, known: Known, delay_ms: float) -> None:
    """While its window is below half of the bandwidth-delay product, a sender stops in each RTT, and any tap sees it.

    Where losses keep it there for nine tenths of the run, six tenths of the time with seven segments or more have an
    estimate, the aim of the method; in slow start, which doubles the window in each round, half of the rounds.
    """
    round_trip_ns = 2 * delay_ms * 1_000_000
    half_bytes = RATE_BYTES_PER_S * round_trip_ns / 1e9 / 2
    is_busy = found.owin_bytes > 0
    window_bytes = known.at(found.time_ns)
    is_small = is_busy & (window_bytes < half_bytes)
    is_judged = is_small & (window_bytes >= LEAST_BYTES)
    busy_ns, small_ns, judged_ns, told_ns = (
        int(found.lasting_ns[which].sum()) for which in (is_busy, is_small, is_judged, is_judged & found.is_valid)
    )
    if small_ns > 0.9 * busy_ns:
        assert told_ns >= TOLD_MIN * judged_ns
    assert told_ns >= ceil(log2(half_bytes / INITIAL_WINDOW_BYTES)) / 2 * round_trip_ns


def sent_again(trace: iscsitrace.Trace, *, to_target: bool) -> list[str]:
    """The causes of what one side sent again."""
    rows = trace.retransmissions
    return [str(cause) for cause, way in zip(rows["cause"], rows["to_target"], strict=True) if way == to_target]


def sender_row(trace: iscsitrace.Trace, *, to_target: bool) -> dict[str, Any]:
    """The row of one direction of the only connection."""
    senders = trace.senders
    (place,) = np.flatnonzero(np.asarray(senders["to_target"]) == to_target)
    return {column.name: senders[column.name][place] for column in DECLARED["senders"].columns}


@pytest.mark.parametrize("name", CASES)
def test_simulated_runs(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    operation = case.operation
    truth, traces = run(case, tmp_path)
    end = end_of(truth, *case.senders)
    again_count = end["retransmitted_segment_count"]
    for tap, trace in traces.items():
        place = place_of(tap, operation)
        to_target = operation == "write"
        known, told = of_truth(end), estimates(trace, to_target=to_target)
        check_estimate(errors(told, known), SHARE_VALID_MIN[place])
        check_told(told, known, case.delay_ms)
        found = sent_again(trace, to_target=to_target)
        assert FOUND_SHARE_MIN[place] * again_count <= len(found) <= again_count
        assert found.count("unknown") <= 1
        row = sender_row(trace, to_target=to_target)
        assert row["segment_bytes"] == end["snd_mss"]
        # where there are enough losses the congestion control is named; elsewhere it is never another one
        control = case.congestion_control
        names = {control} if row["recovery_count"] >= MANY_LOSSES else {control, None}
        assert row["congestion_control"] in names
        causes = ("fast_retransmit_count", "tail_probe_count", "unknown_retransmit_count")
        assert [row[name] for name in causes] == [found.count(word) for word in ("fast", "tail_probe", "unknown")]


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_pause_makes_the_sender_begin_anew(tap: str, tmp_path: Path) -> None:
    restarts = []
    for is_restarting in (True, False):
        case = replace(READS, queue_depth=1, block_bytes=1 << 20, total_bytes=5 << 20, think_ns=2_000_000_000)
        settings = case.settings()
        settings["world"]["target_tcp"]["slow_start_after_idle"] = is_restarting
        folder = tmp_path / str(is_restarting)
        simulation.run(settings, folder, lambda *_: False)
        trace = iscsitrace.read(folder / f"{tap}.pcapng", tables=TABLES)
        restarts.append(sender_row(trace, to_target=False)["restart_after_idle_count"])
    # five blocks, four pauses
    assert restarts == [4, 0]


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_small_receive_buffer_is_no_congestion_window(tap: str, tmp_path: Path) -> None:
    truth, traces = run(replace(READS, window_bytes=64 << 10), tmp_path)
    trace = traces[tap]
    row = sender_row(trace, to_target=False)
    lasted_ns = truth["ended_ns"] - truth["started_ns"]
    assert row["rwnd_max_bytes"] <= 64 << 10
    assert row["window_full_ns"] > 0.8 * lasted_ns
    found = estimates(trace, to_target=False)
    # in slow start only, before the window is full
    assert found.lasting_ns[found.is_valid].sum() < 0.1 * lasted_ns


def test_a_send_buffer_that_is_too_small_is_no_congestion_window(tmp_path: Path) -> None:
    _, traces = run(replace(READS, send_buffer_bytes=128 << 10), tmp_path)
    found = estimates(traces["target"], to_target=False)
    assert found.lasting_ns[found.is_valid].sum() < 0.25 * found.lasting_ns.sum()


def test_without_the_handshake_the_window_scale_is_inferred(tmp_path: Path) -> None:
    truth, traces = run(replace(READS, delay_ms=4, window_bytes=1 << 20), tmp_path)
    whole = sender_row(traces["target"], to_target=False)
    late = iscsitrace.read(tmp_path / "target.pcapng", tables=TABLES, time_from_ns=truth["started_ns"] + 100_000_000)
    row = sender_row(late, to_target=False)
    assert not whole["is_window_scale_inferred"]
    assert row["is_window_scale_inferred"]
    assert 0 < row["window_scale"] <= whole["window_scale"]
    assert row["owin_max_bytes"] <= row["rwnd_max_bytes"]


RECORDINGS = {each.name: each for each in recordings(captures_folder())}
TAPPED = [pytest.param(each, tap, id=file.name) for each in RECORDINGS.values() for tap, file in each.captures.items()]
recorded = pytest.mark.skipif(not RECORDINGS, reason="the recorded captures are not there")


@recorded
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_recorded_run_with_losses(tap: str) -> None:
    recording = RECORDINGS["04_read_loss1pct_delay08ms"]
    trace = iscsitrace.read(recording.captures[tap], tables=TABLES)
    (sender,) = [each for each in recording.senders if each.side == "target"]
    known, again_count = sender.windows(recording.ahead_ns("target", tap)), recording.resent_counts["target"]
    assert known
    check_estimate(errors(estimates(trace, to_target=False), known), 0.4)
    assert again_count - 1 <= len(sent_again(trace, to_target=False)) <= again_count


@pytest.mark.parametrize(("recording", "tap"), TAPPED)
def test_an_estimate_is_the_window_of_the_kernel(recording: Recording, tap: str) -> None:
    trace = iscsitrace.read(recording.captures[tap], tables=TABLES)
    connections = {row["initiator_port"]: row["connection"] for row in trace.connections.rows()}
    for sender in recording.senders:
        if sender.initiator_port not in connections:
            continue
        number = connections[sender.initiator_port]
        found = estimates(trace, to_target=sender.side == "initiator", connection=number)
        known = sender.windows(recording.ahead_ns(sender.side, tap))
        # the windows of logins and commands alone tell nothing
        if known and found.is_valid.any() and found.is_busy:
            check_estimate(errors(found, known), 0.0)


# what the kernel sent again never reached the tap: longer packets than the path lets through
UNSEEN = {("24_path_mtu.initiator.pcap.gz", "target")}


@pytest.mark.parametrize(("recording", "tap"), TAPPED)
def test_as_much_was_sent_again_as_the_kernels_count(recording: Recording, tap: str) -> None:
    trace = iscsitrace.read(recording.captures[tap], tables=("retransmissions", "segments"))
    for side, count in recording.resent_counts.items():
        found = resent_count(trace, to_target=side == "initiator")
        if (recording.captures[tap].name, side) not in UNSEEN:
            assert abs(found - count) <= max(2, 0.05 * count), side


@pytest.mark.parametrize(("recording", "tap"), TAPPED)
def test_a_receive_window_holds_a_sender_as_long_as_its_kernel_counts(recording: Recording, tap: str) -> None:
    trace = iscsitrace.read(recording.captures[tap], tables=("senders",))
    ports = {row["connection"]: row["initiator_port"] for row in trace.connections.rows()}
    rows = {(ports[row["connection"]], row["to_target"]): row for row in trace.senders.rows()}
    for sender in recording.senders:
        row = rows.get((sender.initiator_port, sender.side == "initiator"))
        # a tap does not see the connections of another initiator
        if row is None or sender.times_ms["busy"] < 100:
            continue
        if sender.side != tap and recording.name.startswith("20_capture-drops"):
            # the capture lacks 2,185 packets
            continue
        if row["rwnd_limited_ns"] is None:
            assert row["is_window_scale_inferred"]
            continue
        # both of the time that the kernel had something in flight; five points, far from the sender ten
        share = 0.05 if sender.side == tap else 0.1
        off_ms = share * sender.times_ms["busy"]
        # a kernel counts a full window also while it recovers from a loss
        least_ms, most_ms = row["rwnd_limited_ns"] / 1e6, (row["rwnd_limited_ns"] + row["recovery_ns"]) / 1e6
        assert least_ms - off_ms <= sender.times_ms["rwnd_limited"] <= most_ms + off_ms, sender


@recorded
@pytest.mark.parametrize(("name", "tap"), [("35_discard_slow", "initiator"), ("04_read_loss1pct_delay08ms", "target")])
def test_a_sender_waits_for_its_congestion_window_while_that_holds_it(name: str, tap: str) -> None:
    """For a slow target almost never, with losses for most of the time."""
    recording = RECORDINGS[name]
    trace = iscsitrace.read(recording.captures[tap], tables=("senders",))
    (sender,) = [each for each in recording.senders if each.side == "target"]
    assert sender.cwnd_limited_ns
    held_ns, busy_ns = sender.cwnd_limited_ns
    row, off_ns = sender_row(trace, to_target=False), 0.05 * busy_ns
    assert abs(row["cwnd_limited_ns"] - held_ns) <= off_ns


@recorded
def test_a_recorded_send_buffer_is_no_congestion_window() -> None:
    trace = iscsitrace.read(captures_folder() / "08_read_small-wmem_64k_delay08ms.pcap.gz", tables=TABLES)
    row = sender_row(trace, to_target=False)
    # of 1760 ms with something in flight; the sender was never held by the receive window
    assert row["sndbuf_limited_ns"] > 1_300_000_000
    assert row["rwnd_limited_ns"] == 0
    found = estimates(trace, to_target=False)
    assert found.lasting_ns[found.is_valid].sum() < 0.1 * found.lasting_ns[found.owin_bytes > 0].sum()


CAPTURES = sorted(file.name for file in captures_folder().glob("*.pcap*"))


@pytest.mark.parametrize("name", CAPTURES)
def test_without_the_handshake_a_receive_window_is_still_one(name: str) -> None:
    """But for a twentieth of the busy time."""
    whole = iscsitrace.read(captures_folder() / name, tables=("budget", "segments"))
    after_login_ns = sorted(whole.segments["time_ns"])[12]
    late = iscsitrace.read(captures_folder() / name, tables=("budget",), time_from_ns=after_login_ns)
    there, here = of_sessions(whole.budget), of_sessions(late.budget)
    for session in there.keys() & here.keys() if len(there) == len(here) else ():
        waits_ns = [budget[session].parts_ns["receive_window"] for budget in (here, there)]
        assert abs(waits_ns[0] - waits_ns[1]) <= 0.05 * there[session].jobs_ns


@recorded
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_small_receive_window_is_the_limiter_at_either_tap_and_without_the_handshake(tap: str) -> None:
    """Of 1376 ms with something in flight the kernel was receive-window-limited for 1244 ms."""
    file = captures_folder() / f"08_read_rwnd-limited_64k_delay08ms.{tap}.pcap.gz"
    whole = iscsitrace.read(file, tables=("senders", "budget", "segments"))
    after_login_ns = sorted(whole.segments["time_ns"])[12]
    late = iscsitrace.read(file, tables=("senders", "budget"), time_from_ns=after_login_ns)
    assert sender_row(late, to_target=False)["is_window_scale_inferred"]
    for trace in (whole, late):
        assert of_sessions(trace.budget)[0].limiter == "receive_window"
        assert of_sessions(trace.budget)[0].parts_ns["receive_window"] > 1_000_000_000


@recorded
@pytest.mark.parametrize("name", CAPTURES)
def test_no_more_is_in_flight_than_the_receive_window_allows(name: str) -> None:
    trace = iscsitrace.read(captures_folder() / name, tables=("window", "senders"))
    window = trace.window
    owin, rwnd = (np.ma.filled(np.ma.asarray(window[column]), 0) for column in ("owin_bytes", "rwnd_bytes"))
    inferred = {
        (row["connection"], row["to_target"]) for row in trace.senders.rows() if row["is_window_scale_inferred"]
    }
    keys = list(zip(window["connection"].tolist(), window["to_target"].tolist(), strict=True))
    is_known = np.asarray([key not in inferred for key in keys], dtype=bool) & (rwnd > 0)
    assert int(((owin > rwnd) & is_known).sum()) == 0


@needs_root
@pytest.mark.parametrize(
    "case",
    [
        replace(READS, loss=0.01, congestion_control="reno"),
        replace(READS, operation="write", loss=0.01),
        replace(READS, delay_ms=16),
    ],
    ids=["reads with losses", "writes with losses", "reads"],
)
def test_runs_over_the_kernels_tcp(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    to_target = case.operation == "write"

    def made() -> tuple[Truth, dict[str, iscsitrace.Trace]]:
        return run(replace(case, total_bytes=4 << 20), tmp_path_factory.mktemp("run"), "real")

    def judge(truth: Truth, traces: dict[str, iscsitrace.Trace]) -> None:
        end = end_of(truth, *case.senders)
        assert end["windows"]["cwnd"] is not None, "a stalled machine took no samples of the kernel's window"
        for tap, trace in traces.items():
            found = errors(estimates(trace, to_target=to_target), of_truth(end), is_sampled=True)
            check_estimate(found, 0.1)
            named = sender_row(trace, to_target=to_target)["congestion_control"]
            assert named in {case.congestion_control, None}
            again, place = len(sent_again(trace, to_target=to_target)), place_of(tap, case.operation)
            assert FOUND_SHARE_MIN[place] * end["retransmitted_segment_count"] - 1 <= again
            assert again <= end["retransmitted_segment_count"]

    judge_run(made, judge)
