"""The idle time of each command, against the log of a simulated line, times of packets, and the time breakdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from bench.budget import link, spans
from bench.budget import runs as making
from bench.budget.cases import Case
from iscsitrace.cli import main
from iscsitrace.measure import budget
from iscsitrace.tables.passes import RingPass
from tests.support import tshark
from tests.support.runs import Runs

SAMPLES = Path(__file__).parents[2] / "samples"
MS = 1_000_000
LINE = "--rate 320Mbit --queue 10000"
"""The queue holds all, so that no packet is lost."""
HELD = "--set status=apart-held --set delayed-ack=no"
ONE_BY_ONE = {
    "reads": f"read --bytes 4M --block-size 128K --one-way-delay 4ms {LINE}",
    "held statuses": f"read --bytes 4M --block-size 128K --one-way-delay 1ms {HELD} {LINE}",
    "writes with R2T": f"write --bytes 4M --block-size 256K --one-way-delay 1ms --key InitialR2T=Yes {LINE}",
    "think time": f"read --bytes 2M --block-size 64K --one-way-delay 1ms --think-time 3ms {LINE}",
}
AT_ONCE = {
    "reads": f"read --bytes 8M --block-size 64K --queue-depth 8 --one-way-delay 4ms {LINE}",
    "writes": f"write --bytes 8M --block-size 64K --queue-depth 8 --one-way-delay 4ms {LINE}",
    "connections": f"read --bytes 8M --block-size 64K --queue-depth 4 --connections 2 --one-way-delay 4ms {LINE}",
}
OVER_A_LINE = {
    f"{operation}s, {status}, {depth} at once": Case(
        "idle", operation, 4, depth, size << 10, status=status, burst_bytes=burst, total_bytes=total << 20,
        initiator_host_ns=0,
    )
    for operation, status, depth, size, burst, total in (
        ("read", "in_data", 1, 128, None, 4), ("read", "in_data", 8, 64, None, 8), ("read", "apart", 1, 64, None, 4),
        ("write", "in_data", 1, 256, 64 << 10, 4), ("write", "in_data", 8, 64, None, 8),
    )
}  # fmt: skip
OPTIONS = {f"{name}, one by one": each for name, each in ONE_BY_ONE.items()} | {
    f"{name}, at once": each for name, each in AT_ONCE.items()
}


def spans_of(cycles: Any) -> tuple[Any, Any]:
    """First packet and end of each command."""
    return cycles.raw("command_first_ns"), cycles.raw("end_ns")


def covered_ns(busy: Any, starts: Any, ends: Any) -> Any:
    """Of each span, the time that disjoint intervals cover."""
    overlaps = np.minimum(busy[:, 1], ends[:, None]) - np.maximum(busy[:, 0], starts[:, None])
    return np.maximum(overlaps, 0).sum(axis=1)


def reads_and_writes(trace: iscsitrace.Trace) -> Any:
    return trace.cycles[np.isin(trace.cycles["operation"], ("read", "write"))]


@pytest.mark.parametrize("case", OVER_A_LINE.values(), ids=OVER_A_LINE)
def test_the_line_of_a_simulated_path_was_idle_for_so_long(tmp_path: Path, case: Case) -> None:
    made = making.make(case, "simulated", tmp_path)
    for tap, file in made.files.items():
        busy = spans.union(*(link.payload_times(made.truth, direction, tap) for direction in link.NEAR))
        cycles = reads_and_writes(iscsitrace.read(file, tables=("budget",)))
        assert len(cycles) > 10
        starts, ends = spans_of(cycles)
        true_ns = ends - starts - covered_ns(busy, starts, ends)
        # the start of the first bursts, and the end of the last ones, may be off by a packet or two
        assert cycles.raw("idle_ns") == pytest.approx(true_ns, abs=0.1 * MS)
        assert cycles.raw("idle_ns").sum() == pytest.approx(true_ns.sum(), rel=0.005)


@pytest.mark.parametrize("options", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_packets_in_a_naive_model_take_the_rest(runs: Runs, options: str) -> None:
    """Each packet with payload keeps the line busy for its bytes before it passes the tap at the receiver."""
    capture = runs(options).capture("target" if options.startswith("write") else "initiator")
    fields = ("frame.time_epoch", "frame.len", "tcp.len")
    printed = tshark.run(
        capture, "-Y", "tcp.len>0", "-T", "fields", *(word for name in fields for word in ("-e", name))
    )
    packets = [line.split("\t") for line in printed.splitlines()]
    ends = np.array([int(time.replace(".", "")) for time, *_ in packets])
    took = np.array([int(length) * 8e9 / 320e6 for _, length, _ in packets]).astype(np.int64)
    busy = spans.union(np.column_stack([ends - took, ends]))
    cycles = reads_and_writes(iscsitrace.read(capture, tables=("budget",)))
    starts, ends = spans_of(cycles)
    naive_ns = ends - starts - covered_ns(busy, starts, ends)
    assert cycles.raw("idle_ns") == pytest.approx(naive_ns, rel=0.01, abs=0.1 * MS)


def test_a_sequential_read_waits_for_the_delays(runs: Runs) -> None:
    """Two one-way delays with the status in the data, four where it waits for the ACK: the rest is on the line."""
    for name, delays_ns in (("reads", 2 * 4 * MS), ("held statuses", 4 * MS)):
        cycles = reads_and_writes(iscsitrace.read(runs(ONE_BY_ONE[name]).capture(), tables=("budget",)))
        assert np.median(cycles.raw("idle_ns")) == pytest.approx(delays_ns, rel=0.02), name


@pytest.mark.parametrize("options", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_commands_one_by_one_and_the_time_between_them_are_the_breakdown(runs: Runs, options: str) -> None:
    trace = iscsitrace.read(runs(options).capture(), tables=("budget",))
    check_sums(trace, trace.cycles)
    if "--think-time" in options:
        return
    # beside the initiator, which sends the next command at once, that is the idle fraction of the I/O time
    found = budget.of_connections(trace.budget)[0]
    idle = reads_and_writes(trace).raw("idle_ns").sum() / found.jobs_ns
    assert idle == pytest.approx(found.idle_fraction, abs=0.002)


@pytest.mark.parametrize("name", ["sequential-read-4ms", "sequential-read-16ms", "write-r2t-rounds"])
def test_so_are_those_of_kernels(name: str) -> None:
    trace = iscsitrace.read(SAMPLES / name / "capture.pcapng.gz", tables=("budget",))
    check_sums(trace, reads_and_writes(trace))


def check_sums(trace: iscsitrace.Trace, cycles: Any) -> None:
    """Of commands of a connection that do not overlap: their idle time, and that between them, are all but transfer."""
    starts, ends = spans_of(cycles)
    assert len(cycles) > 5
    assert (starts[1:] >= ends[:-1]).all()
    assert not np.ma.getmaskarray(cycles["idle_ns"]).any()
    rows = budget.rows_of(trace.budget, connection=0)
    is_idle = np.arange(len(budget.PARTS)) != budget.PARTS.index("transfer")
    between_ns, whole_ns = (
        budget.of_cycles(rows, *both)[:, is_idle].sum() for both in ((ends[:-1], starts[1:]), (starts[:1], ends[-1:]))
    )
    assert cycles.raw("idle_ns").sum() + between_ns == whole_ns


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def test_each_command_has_the_idle_time_of_its_connection(sample: str) -> None:
    """Losses, snaplen, a start in the middle, several connections: by the stretches of the connection, one by one."""
    (capture,) = (SAMPLES / sample).glob("capture.*")
    trace = iscsitrace.read(capture, tables=("budget",))
    stretches = [row for row in trace.budget.rows() if row["connection"] is not None]
    for row in trace.cycles.rows(("connection", "command_first_ns", "end_ns", "idle_ns")):
        start, end = row["command_first_ns"], row["end_ns"]
        own = [each for each in stretches if each["connection"] == row["connection"]]
        is_covered = bool(own) and own[0]["time_first_ns"] <= start and end <= own[-1]["time_last_ns"]
        idle = sum(
            max(0, min(each["time_last_ns"], end) - max(each["time_first_ns"], start))
            for each in own
            if each["part"] != "transfer"
        )
        assert row["idle_ns"] == (idle if is_covered else None)


def test_without_the_time_breakdown_it_is_null(runs: Runs) -> None:
    trace = iscsitrace.read(runs(ONE_BY_ONE["reads"]).capture())
    assert np.ma.getmaskarray(trace.cycles["idle_ns"]).all()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_period_of_a_ring_has_that_of_one_pass(runs: Runs, options: str) -> None:
    capture = runs(options).capture()
    one = iscsitrace.read(capture, tables=("budget",)).cycles
    ring = RingPass(has_periods=True)
    ring.read(str(capture))
    period = ring.open_period()
    assert period is not None
    found = period.trace.cycles
    assert found["idle_ns"].tolist() == one["idle_ns"].tolist()
    assert found["data_packet_count"].tolist() == one["data_packet_count"].tolist()


def test_commands_show_it(runs: Runs, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capture = runs(ONE_BY_ONE["reads"]).capture()
    idle = iscsitrace.read(capture, tables=("budget",)).cycles["idle_ns"].tolist()
    main(["cycles", "--json", str(capture)], standalone_mode=False)
    assert [row["idle_ns"] for row in json.loads(capsys.readouterr().out)["cycles"]] == idle
    main(["export", "--tables", "cycles", "-o", str(tmp_path), str(capture)], standalone_mode=False)
    header, *lines = (tmp_path / "cycles.csv").read_text().splitlines()
    place = header.split(",").index("idle_ns")
    assert [int(line.split(",")[place]) for line in lines] == idle
