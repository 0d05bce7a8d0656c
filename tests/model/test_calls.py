"""System calls in commands, the command window, and data in parts: by hand, and against the simulated world."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.model.prediction import predict
from iscsitrace.model.setting import Setting, Solicitation, in_commands
from iscsitrace.model.transfer import rate_of_line
from iscsitrace.model.what_if import with_values
from iscsitrace.wording.quantities import SIZE
from tests.support.runs import Runs

MS = 1e6
# 100,000 bytes take 10 ms on the line
READ = Setting("read", 100_000, 20 * MS, 10e6)


def rate(setting: Setting) -> float:
    return predict(setting).throughput_bytes_per_s


@pytest.mark.parametrize(
    ("window", "expected_ms"),
    [
        # one after another, each with its RTT
        (1, 4 * (40 + 10)),
        # the third begins when the first is done, at 50 ms, and the fourth at 60
        (2, 60 + 40 + 10),
        # all of them at once: one RTT
        (4, 40 + 4 * 10),
        (None, 40 + 4 * 10),
        (9, 40 + 4 * 10),
    ],
)
def test_a_call_takes_as_long_as_its_commands_by_the_command_window(window: int | None, expected_ms: float) -> None:
    setting = in_commands(READ, 400_000, window)
    assert 400_000 / rate(setting) * 1e3 == pytest.approx(expected_ms, rel=1e-6)


def test_commands_of_unequal_sizes_count_as_their_mean() -> None:
    assert in_commands(READ, 250_000, 1).block_bytes == 250_000 // 3


def test_several_calls_keep_their_commands_in_flight() -> None:
    """Two calls of four commands: up to eight in flight, of which none waits for the end of a call."""
    found = in_commands(replace(READ, operation="write", queue_depth=2), 400_000, 6)
    assert (found.queue_depth, found.call_bytes, found.block_bytes) == (6, None, 100_000)
    # of reads the data of each call comes as one block
    reads = in_commands(replace(READ, queue_depth=2), 400_000, None)
    assert (reads.queue_depth, reads.block_bytes) == (2, 400_000)


def test_the_command_window_is_that_of_the_session() -> None:
    """Of 4 commands on each of 2 connections, 2 are in flight: one on each."""
    found = in_commands(replace(READ, queue_depth=4, connections=2), None, 2)
    assert (found.queue_depth, found.connections) == (1, 2)
    assert in_commands(replace(READ, queue_depth=4, connections=2), None, 1).connections == 1
    assert in_commands(READ, None, 5) == READ
    # a call that is one command, or less, is not split
    assert in_commands(READ, 60_000, None).block_bytes == 60_000


def test_headers_are_those_of_data_pdus_no_longer_than_a_command() -> None:
    long = replace(READ, data_pdu_bytes=1 << 20)
    assert in_commands(long, 400_000, None).data_pdu_bytes == 100_000


# --- a held status


def held_ms(part: int | None, block: int = 400_000, delay_ms: float = 20.0) -> float:
    setting = replace(READ, block_bytes=block, delay_ns=delay_ms * MS, is_status_held=True, part_bytes=part)
    return block / rate(setting) * 1e3


def test_the_end_of_data_in_parts_waits_for_the_ack_of_the_first() -> None:
    """400,000 bytes take 40 ms to send after 20 ms. The ACK of the first 100,000 is back 10 + 40 ms after its start:
    10 ms after the rest was sent.
    """
    assert held_ms(None) == pytest.approx(4 * 20 + 40)
    assert held_ms(400_000) == held_ms(500_000) == held_ms(None)
    assert held_ms(100_000) == pytest.approx(2 * 20 + 40 + 10)
    # over 15 ms the ACK comes while the rest is sent: nothing waits
    assert held_ms(100_000, delay_ms=15.0) == pytest.approx(2 * 15 + 40)
    assert held_ms(100_000, delay_ms=15.1) == pytest.approx(2 * 15.1 + 40 + 0.2)


def test_the_wait_is_a_leg_and_no_other_read_has_it() -> None:
    setting = replace(READ, block_bytes=400_000, is_status_held=True, part_bytes=100_000)
    found = predict(setting)
    assert [(leg.name, leg.delays) for leg in found.legs] == [("command", 1), ("data", 1), ("ack", pytest.approx(0.5))]
    # a delayed ACK is that of the first part, which is long
    assert rate(replace(setting, ack_delay_ns=40 * MS)) == rate(setting)
    for other in ({"queue_depth": 2}, {"is_status_held": False}, {"operation": "write"}):
        assert rate(replace(setting, **other)) == rate(replace(setting, **other, part_bytes=None))


def test_held_statuses_of_a_part_of_the_commands_are_not_covered() -> None:
    held = replace(READ, is_status_held=True)
    with pytest.raises(
        InputInvalid, match="a command window of 2 of 4 commands is not covered where statuses are held"
    ):
        in_commands(held, 400_000, 2)
    # one after another each pays its own ACK: 4 delays and 10 ms
    assert 100_000 / rate(in_commands(held, 400_000, 1)) * 1e3 == pytest.approx(90)
    assert 400_000 / rate(in_commands(held, 400_000, 4)) * 1e3 == pytest.approx(2 * 20 + 40 + 10)


# --- what no login agrees on


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"first_burst_bytes": 131_072, "max_burst_bytes": 65_536}, r"FirstBurstLength \(131072\) is larger than"),
        ({"max_burst_bytes": 32_768}, r"FirstBurstLength \(65536\) is larger than MaxBurstLength \(32768\).*13\.14"),
        ({"first_burst_bytes": 262_145}, r"FirstBurstLength \(262145\) is larger than MaxBurstLength \(262144\)"),
        ({"max_burst_bytes": 1 << 24}, "MaxBurstLength is 16777216; it is 512 to 16777215 .RFC 7143, section 13.13"),
        ({"first_burst_bytes": 511}, "FirstBurstLength is 511; it is 512 to"),
        ({"max_recv_data_segment_bytes": 511}, "MaxRecvDataSegmentLength is 511; it is 512 to 16777215"),
        ({"max_outstanding_r2t": 65_536}, "MaxOutstandingR2T is 65536; it is 1 to 65535"),
        ({"connections": 65_536}, "MaxConnections is 65536; it is 1 to 65535"),
    ],
)
def test_what_no_login_agrees_on_is_refused(values: dict[str, int], why: str) -> None:
    with pytest.raises(InputInvalid, match=why):
        with_values(replace(READ, operation="write"), values)


def test_limits_are_allowed_and_a_capture_may_show_anything() -> None:
    keys = {"first_burst_bytes": 65_536, "max_burst_bytes": 65_536, "max_recv_data_segment_bytes": (1 << 24) - 1}
    assert with_values(READ, keys).solicitation.max_burst_bytes == 65_536
    seen = replace(
        READ, operation="write", solicitation=Solicitation(first_burst_bytes=1 << 20, max_burst_bytes=1 << 16)
    )
    assert with_values(seen, {"delay_ns": MS}).delay_ns == MS
    assert rate(seen) > 0


# --- against the simulated world


@pytest.mark.parametrize(
    ("operation", "delay_ms", "call", "command", "window", "is_held"),
    [
        ("read", 8, "500K", "125K", 1, False),
        ("read", 8, "500K", "125K", 2, False),
        ("read", 8, "500K", "125K", 3, False),
        ("read", 8, "500K", "125K", 4, False),
        ("read", 8, "500K", "125K", 1, True),
        ("read", 8, "500K", "125K", 4, True),
        ("read", 1, "500K", "125K", 4, True),
        ("read", 8, "2M", "2M", 1, True),
        ("write", 8, "1M", "128K", 2, False),
        ("write", 16, "500K", "125K", 1, False),
    ],
)
def test_the_simulated_world_agrees(
    operation: str, delay_ms: int, call: str, command: str, window: int, is_held: bool, tmp_path: Path
) -> None:
    """Within half a percent: only what the model knows takes time there. Our target writes 256 KiB at a time."""
    options = f"{operation} --one-way-delay {delay_ms}ms --rate 320Mbit"
    options += f" --set system-call-size={call} --set max-transfer={command}"
    keys = "--key MaxBurstLength=262144 --key FirstBurstLength=262144 --key InitialR2T=No"
    status = " --set status=apart-held --set delayed-ack=no" if is_held else ""
    run = Runs(tmp_path)(f"{options} --set command-window={window} --bytes 8M {keys}{status}")
    cycles = json.loads((run.folder / "truth.json").read_text())["cycles"]
    pairs = zip(cycles["operation"], cycles["initiator"]["status_ns"], strict=True)
    ends = sorted(status_ns for word, status_ns in pairs if word == operation)
    call_bytes, command_bytes = SIZE.parse(call) or 0, SIZE.parse(command) or 0
    each = ceil(call_bytes / command_bytes)
    # whole calls, without those of the slow start
    first, last = len(ends) // 3 // each * each, len(ends) // each * each
    measured = (last - first) / each * call_bytes / (ends[last - 1] - ends[first - 1]) * 1e9
    values = {
        "block_bytes": command_bytes, "system_call_bytes": call_bytes, "command_window_count": window,
        "is_status_held": is_held, "rate_bps": 320_000_000, "max_recv_data_segment_bytes": 262_144,
        "is_initial_r2t": False, "first_burst_bytes": 262_144, "part_bytes": 262_144,
    }  # fmt: skip
    setting = with_values(Setting(operation, command_bytes, delay_ms * MS), values)
    assert setting.c_bytes_per_s == rate_of_line(320e6, 1_448)
    assert rate(setting) == pytest.approx(measured, rel=0.005)
