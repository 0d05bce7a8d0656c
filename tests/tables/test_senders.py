"""How each sender behaved, held against those who know: the simulated TCP, and kernels, recorded or running."""

from __future__ import annotations

import csv
import gzip
import json
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from bench.dynamics import (
    CASES,
    TABLES,
    Errors,
    Estimates,
    Known,
    errors,
    estimates,
    of_probe,
    of_truth,
    real_run,
    sender_of,
    settings_of,
    simulated,
)
from iscsitrace.analysis.measures.budget import of_sessions
from iscsitrace.tables.schema import TABLES as DECLARED
from tests.support.lab import Truth, judge_run, needs_root
from tests.support.recordings import captures_folder

MEDIAN_ERROR_MAX = 0.05
P95_ERROR_MAX = 0.15
# beside the sender every stop is seen; from afar a queue at the line hides those of a full line: see check_told
SHARE_VALID_MIN = {"sender": 0.25, "receiver": 0.0}
TOLD_MIN = 0.6
RATE_BYTES_PER_S = 40_000_000
INITIAL_WINDOW_BYTES = 10 * 1448
# a retransmission that was lost on its way never passed a tap beside the receiver
FOUND_SHARE_MIN = {"sender": 1.0, "receiver": 0.95}
MANY_LOSSES = 20
PORT = 3260
SYN = 0x02


def place_of(tap: str, operation: str) -> str:
    """Whether a tap is beside the sender of the data or beside its receiver."""
    return "sender" if (tap == "initiator") == (operation == "write") else "receiver"


def check_estimate(found: Errors, share_valid_min: float) -> None:
    """The limits of method 5."""
    assert found.share_valid >= share_valid_min
    assert found.median <= MEDIAN_ERROR_MAX
    assert found.p95 <= P95_ERROR_MAX


def check_told(found: Estimates, known: Known, delay_ms: int) -> None:
    """While its window is below half of the bandwidth-delay product, a sender stops in each RTT, and any tap sees it.

    Where losses keep it there for nine tenths of the run, six tenths of the time have an estimate, the aim of the
    method; in slow start, which doubles the window in each round, half of the rounds.
    """
    round_trip_ns = 2 * delay_ms * 1_000_000
    half_bytes = RATE_BYTES_PER_S * round_trip_ns / 1e9 / 2
    is_busy = found.owin_bytes > 0
    is_small = is_busy & (known.at(found.time_ns) < half_bytes)
    busy_ns, small_ns, told_ns = (
        int(found.lasting_ns[which].sum()) for which in (is_busy, is_small, is_small & found.is_valid)
    )
    if small_ns > 0.9 * busy_ns:
        assert told_ns >= TOLD_MIN * small_ns
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
    operation = case["operation"]
    truth, traces = simulated(settings_of(**case), tmp_path)
    end = sender_of(truth, operation)
    again_count = end["retransmitted_segment_count"]
    for tap, trace in traces.items():
        place = place_of(tap, operation)
        to_target = operation == "write"
        known, told = of_truth(end), estimates(trace, to_target=to_target)
        check_estimate(errors(told, known), SHARE_VALID_MIN[place])
        check_told(told, known, case["delay_ms"])
        found = sent_again(trace, to_target=to_target)
        assert FOUND_SHARE_MIN[place] * again_count <= len(found) <= again_count
        assert found.count("unknown") <= 1
        row = sender_row(trace, to_target=to_target)
        assert row["segment_bytes"] == end["snd_mss"]
        # where there are enough losses the congestion control is named; elsewhere it is never another one
        names = {case["control"]} if row["recovery_count"] >= MANY_LOSSES else {case["control"], None}
        assert row["congestion_control"] in names
        causes = ("fast_retransmit_count", "tail_probe_count", "unknown_retransmit_count")
        assert [row[name] for name in causes] == [found.count(word) for word in ("fast", "tail_probe", "unknown")]


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_pause_makes_the_sender_begin_anew(tap: str, tmp_path: Path) -> None:
    restarts = []
    for is_restarting in (True, False):
        settings = settings_of(
            "read",
            delay_ms=8,
            queue_depth=1,
            block_bytes=1 << 20,
            total_bytes=5 << 20,
            slow_start_after_idle=is_restarting,
        )
        settings["client"]["workload"]["think_time_ns"] = 2_000_000_000
        folder = tmp_path / str(is_restarting)
        folder.mkdir()
        _, traces = simulated(settings, folder)
        restarts.append(sender_row(traces[tap], to_target=False)["restart_after_idle_count"])
    # five blocks, four pauses
    assert restarts == [4, 0]


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_small_receive_buffer_is_no_congestion_window(tap: str, tmp_path: Path) -> None:
    truth, traces = simulated(settings_of("read", delay_ms=8, receive_buffer_bytes=64 << 10), tmp_path)
    trace = traces[tap]
    row = sender_row(trace, to_target=False)
    lasted_ns = truth["ended_ns"] - truth["started_ns"]
    assert row["rwnd_max_bytes"] <= 64 << 10
    assert row["window_full_ns"] > 0.8 * lasted_ns
    found = estimates(trace, to_target=False)
    # in slow start only, before the window is full
    assert found.lasting_ns[found.is_valid].sum() < 0.1 * lasted_ns


def test_a_send_buffer_that_is_too_small_is_no_congestion_window(tmp_path: Path) -> None:
    _, traces = simulated(settings_of("read", delay_ms=8, send_buffer_bytes=128 << 10), tmp_path)
    found = estimates(traces["target"], to_target=False)
    assert found.lasting_ns[found.is_valid].sum() < 0.25 * found.lasting_ns.sum()


def test_without_the_handshake_the_window_scale_is_inferred(tmp_path: Path) -> None:
    truth, traces = simulated(settings_of("read", delay_ms=4, receive_buffer_bytes=1 << 20), tmp_path)
    whole = sender_row(traces["target"], to_target=False)
    late = iscsitrace.read(tmp_path / "target.pcapng", tables=TABLES, time_from_ns=truth["started_ns"] + 100_000_000)
    row = sender_row(late, to_target=False)
    assert not whole["is_window_scale_inferred"]
    assert row["is_window_scale_inferred"]
    assert 0 < row["window_scale"] <= whole["window_scale"]
    assert row["owin_max_bytes"] <= row["rwnd_max_bytes"]


@pytest.mark.skipif(not captures_folder().is_dir(), reason="the recorded captures are not there")
@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_a_recorded_run_with_losses(tap: str) -> None:
    name = "04_read_loss1pct_delay08ms"
    trace = iscsitrace.read(captures_folder() / f"{name}.{tap}.pcap.gz", tables=TABLES)
    probe = captures_folder() / f"{name}.target.tcp_probe.csv.gz"
    # the clock of the target is ahead of the initiator's
    offset_ns = 312_500 if tap == "initiator" else 0
    known, again = of_probe(probe, f":{PORT}", segment_bytes=1448, offset_ns=offset_ns)
    check_estimate(errors(estimates(trace, to_target=False), known), 0.4)
    assert len(again) - 1 <= len(sent_again(trace, to_target=False)) <= len(again)


def probed() -> list[Any]:
    """Recorded captures, a side of which a kernel reported its windows, and what to subtract from its clock."""
    found = []
    for file in sorted(captures_folder().glob("*.json")):
        about = json.loads(file.read_text())
        ahead_us = about.get("clock", {}).get("target_minus_initiator_us_before", {}).get("offset_us", 0.0)
        names = [each["file"] for each in about.get("files", ()) if ".pcap" in each["file"]]
        for side in ("target", "initiator"):
            probe = captures_folder() / f"{file.stem}.{side}.tcp_probe.csv.gz"
            for name in names if probe.exists() else ():
                is_beside = (".target." in name) == (side == "target")
                offset_ns = 0 if is_beside else round(ahead_us * 1000) * (1 if side == "target" else -1)
                found.append(pytest.param(captures_folder() / name, probe, side, offset_ns, id=f"{name} {side}"))
    return found


@pytest.mark.parametrize(("file", "probe", "side", "offset_ns"), probed())
def test_an_estimate_is_the_window_of_the_kernel(file: Path, probe: Path, side: str, offset_ns: int) -> None:
    trace = iscsitrace.read(file, tables=TABLES)
    for row in trace.connections.rows():
        found = estimates(trace, to_target=side == "initiator", connection=int(row["connection"]))
        # the windows of logins and commands alone tell nothing
        if not found.is_valid.any() or found.owin_bytes.max() < 2 * INITIAL_WINDOW_BYTES:
            continue
        local, peer = (
            f":{row[f'{end}_port']}" for end in ((side, "initiator") if side == "target" else (side, "target"))
        )
        known, _ = of_probe(probe, local, segment_bytes=1448, offset_ns=offset_ns, peer_port=peer)
        if len(known.time_ns) > 1:
            check_estimate(errors(found, known), 0.0)


def counted() -> list[Any]:
    """Every recorded capture, and what both kernels counted as sent again."""
    found = []
    for file in sorted(captures_folder().glob("*.json")):
        about = json.loads(file.read_text())
        kernels = {
            side: int(counters.get("TcpRetransSegs", 0))
            for side, counters in (about.get("tcp_counters_delta") or {}).items()
        }
        names = [each["file"] for each in about.get("files", ()) if ".pcap" in each["file"]]
        found += [pytest.param(captures_folder() / name, kernels, id=name) for name in names if kernels]
    return found


# what the kernel sent again never reached the tap: longer packets than the path lets through
UNSEEN = {("24_path_mtu.initiator.pcap.gz", "target")}


@pytest.mark.parametrize(("file", "kernels"), counted())
def test_as_much_was_sent_again_as_the_kernels_count(file: Path, kernels: dict[str, int]) -> None:
    trace = iscsitrace.read(file, tables=("retransmissions", "segments"))
    segments = trace.segments
    for side, count in kernels.items():
        to_target = side == "initiator"
        # a kernel counts SYNs, too
        is_own = np.asarray(segments["to_target"]) == to_target
        syns = segments["connection"][is_own & ((np.asarray(segments["flags"]) & SYN) != 0)].tolist()
        found = len(sent_again(trace, to_target=to_target)) + len(syns) - len(set(syns))
        if (file.name, side) not in UNSEEN:
            assert abs(found - count) <= max(2, 0.05 * count), side


def timed() -> list[Any]:
    """Recorded captures with a busy sender, what its kernel says of its time, and whether the tap stands beside it."""
    found = []
    for file in sorted(captures_folder().glob("*.json")):
        about = json.loads(file.read_text())
        names = [each["file"] for each in about["files"] if ".pcap" in each["file"]]
        for sender, times in (about.get("sender_time_ms") or {}).items():
            side = sender.split()[0]
            for name in names if times["busy"] >= 100 else ():
                is_beside = (".target.pcap" in name) == (side == "target")
                found.append(pytest.param(captures_folder() / name, sender, times, is_beside, id=f"{name} {sender}"))
    return found


@pytest.mark.parametrize(("file", "sender", "times", "is_beside"), timed())
def test_a_receive_window_holds_a_sender_as_long_as_its_kernel_counts(
    file: Path, sender: str, times: dict[str, int], is_beside: bool
) -> None:
    if not is_beside and file.name.startswith("20_capture-drops"):
        pytest.skip("the capture lacks 2,185 packets")
    side, addresses = sender.split()
    port = int(addresses.split("-")[0 if side == "initiator" else 1].rpartition(":")[2])
    trace = iscsitrace.read(file, tables=("senders",))
    connections = [row["connection"] for row in trace.connections.rows() if row["initiator_port"] == port]
    if not connections:
        pytest.skip("the connection of another initiator, which this tap does not see")
    (row,) = [
        row
        for row in trace.senders.rows()
        if row["connection"] == connections[0] and row["to_target"] == (side == "initiator")
    ]
    if row["rwnd_limited_ns"] is None:
        assert row["is_window_scale_inferred"]
        return
    # both of the time that the kernel had something in flight; five points, far from the sender ten. A kernel counts a full
    # window also while it recovers from a loss
    share = 0.05 if is_beside else 0.1
    least_ms, most_ms = row["rwnd_limited_ns"] / 1e6, (row["rwnd_limited_ns"] + row["recovery_ns"]) / 1e6
    assert least_ms - share * times["busy"] <= times["rwnd_limited"] <= most_ms + share * times["busy"]


def full_ns(probe: Path, port: str, segment_bytes: int) -> tuple[int, int]:
    """How long tcp_probe shows a sender with less than a segment of room in its congestion window, and with data."""
    with gzip.open(probe, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["event"] != "retransmit" and row["local"].endswith(port)]
    full = busy = 0
    for before, row in pairwise(rows):
        # a row has the state before its ACK is processed: that since the row before
        flight_bytes = (int(row["snd_nxt"]) - int(row["snd_una"])) % (1 << 32)
        lasted_ns = (int(row["time"].replace(".", "")) - int(before["time"].replace(".", ""))) * 1000
        is_full = flight_bytes + segment_bytes > int(row["snd_cwnd_segs"]) * segment_bytes
        busy += lasted_ns if flight_bytes > 0 else 0
        full += lasted_ns if flight_bytes > 0 and is_full else 0
    return full, busy


@pytest.mark.skipif(not captures_folder().is_dir(), reason="the recorded captures are not there")
@pytest.mark.parametrize("name", ["35_discard_slow", "04_read_loss1pct_delay08ms.target"])
def test_a_sender_waits_for_its_congestion_window_while_that_is_full(name: str) -> None:
    """For a slow target almost never, with losses for most of the time. It is full in recoveries, too, which are apart."""
    trace = iscsitrace.read(captures_folder() / f"{name}.pcap.gz", tables=("senders",))
    probe = captures_folder() / f"{name.removesuffix('.target')}.target.tcp_probe.csv.gz"
    full, busy = full_ns(probe, f":{PORT}", 1448)
    row = sender_row(trace, to_target=False)
    assert row["cwnd_limited_ns"] - 0.05 * busy <= full <= row["cwnd_limited_ns"] + row["recovery_ns"] + 0.05 * busy


@pytest.mark.skipif(not captures_folder().is_dir(), reason="the recorded captures are not there")
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


@pytest.mark.skipif(not captures_folder().is_dir(), reason="the recorded captures are not there")
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


@pytest.mark.skipif(not captures_folder().is_dir(), reason="the recorded captures are not there")
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
        {"operation": "read", "delay_ms": 8, "loss": 0.01, "control": "reno"},
        {"operation": "write", "delay_ms": 8, "loss": 0.01, "control": "cubic"},
        {"operation": "read", "delay_ms": 16, "loss": 0.0, "control": "cubic"},
    ],
    ids=["reads with losses", "writes with losses", "reads"],
)
def test_runs_over_the_kernels_tcp(case: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    to_target = case["operation"] == "write"

    def run() -> tuple[Truth, dict[str, iscsitrace.Trace]]:
        return real_run(settings_of(**case, total_bytes=4 << 20), tmp_path_factory.mktemp("run"))

    def judge(truth: Truth, traces: dict[str, iscsitrace.Trace]) -> None:
        end = sender_of(truth, case["operation"])
        assert end["windows"]["cwnd"] is not None, "a stalled machine took no samples of the kernel's window"
        for tap, trace in traces.items():
            found = errors(estimates(trace, to_target=to_target), of_truth(end), is_sampled=True)
            check_estimate(found, 0.1)
            named = sender_row(trace, to_target=to_target)["congestion_control"]
            assert named in {case["control"], None}
            again, place = len(sent_again(trace, to_target=to_target)), place_of(tap, case["operation"])
            assert FOUND_SHARE_MIN[place] * end["retransmitted_segment_count"] - 1 <= again
            assert again <= end["retransmitted_segment_count"]

    judge_run(run, judge)
