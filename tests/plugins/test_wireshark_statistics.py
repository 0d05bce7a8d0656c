"""The plugin's statistics and fields on connections written by hand: every expected number is computed by hand."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from tests.support import hand_timed as by_hand
from tests.support.capture_file import write_pcap
from tests.support.hand_timed import MS, READ, TEST_UNIT_READY, WRITE, Wire, command, data_in, data_out, r2t, response
from tests.support.transport import ETHERNET
from tests.support.wireshark_plugin import PLUGIN, differences, shown, tshark

STATISTICS = ("-q", "-z", "iscsitrace,cycles")


def mixed(folder: Path) -> Path:
    """Four reads, two writes; and one read in another session, which ends first."""
    first, second = Wire(40_000), Wire(40_001)
    # read A: latency 12 ms, first data after 10, transfer 2
    first.send(0, command(0, READ, cmd_sn=1, read=8192))
    first.receive(10, data_in(0, 0, 0, 4096)).receive(12, data_in(0, 1, 4096, 4096, stat_sn=1))
    # read B: idle 8 ms, then latency 9, first data after 4, status 5 later
    first.send(20, command(1, READ, cmd_sn=2, read=4096))
    first.receive(24, data_in(1, 0, 0, 4096)).receive(29, response(1, 2, counted=1))
    # reads C and D overlap: idle 11 ms, then latencies 6 and 10, first data after 5 and 8, transfer 1 and 2
    first.send(40, command(2, READ, cmd_sn=3, read=4096)).send(41, command(3, READ, cmd_sn=4, read=4096))
    first.receive(45, data_in(2, 0, 0, 2048)).receive(46, data_in(2, 1, 2048, 2048, stat_sn=3))
    first.receive(49, data_in(3, 0, 0, 2048)).receive(51, data_in(3, 1, 2048, 2048, stat_sn=4))
    # write E: latency 11 ms, R2T after 3, transfer 1, service 7
    first.send(60, command(4, WRITE, cmd_sn=5, write=4096)).receive(63, r2t(4, 0, 0, 4096))
    first.send(64, data_out(4, 0, 0, 4096)).receive(71, response(4, 5))
    # write F: idle 5 ms, then latency 10, R2T after 4, transfer 3, service 3
    first.send(76, command(5, WRITE, cmd_sn=6, write=8192)).receive(80, r2t(5, 0, 0, 8192))
    first.send(81, data_out(5, 0, 0, 4096)).send(83, data_out(5, 1, 4096, 4096)).receive(86, response(5, 6))
    # the other session: latency 4 ms
    second.send(1, command(0, READ, cmd_sn=1, read=512)).receive(5, data_in(0, 0, 0, 512, stat_sn=1))
    return by_hand.capture(folder, first, second)


def rows(text: str) -> list[list[str]]:
    """The words of each line, without what comes before the first session."""
    lines = text[text.index("session 0:") :].splitlines()
    return [line.split() for line in lines if line]


def test_every_figure_of_the_statistics(tmp_path: Path) -> None:
    # Idle: B 8 / (8 + 9), C 11 / (11 + 6) together 19 / 34; F 5 / 15. E follows two reads in flight, so it has none.
    # Reads are in flight 12 + 9 + 11 = 32 ms and move 20480 bytes; writes 11 + 10 = 21 ms and 12288 bytes.
    assert rows(tshark(mixed(tmp_path), *STATISTICS)) == [
        ["session", "0:", "login", "not", "captured"],
        ["tcp.stream", "0:", "6", "commands"],
        ["latency", "ms", "count", "p50", "p95", "p99", "max", "QD"],
        ["read", "4", "9.000", "-", "-", "12.000", "2"],
        ["write", "2", "10.000", "-", "-", "11.000", "1"],
        ["medians", "ms", "to", "data", "transfer", "status", "idle", "idle", "%", "MB/s"],
        ["read", "5.000", "1.000", "0.000", "8.000", "55.9", "0.640"],
        ["write", "3.000", "1.000", "3.000", "5.000", "33.3", "0.585"],
        ["I/O", "sizes"],
        ["read", "4K", "x3,", "8K", "x1"],
        ["write", "8K", "x1,", "4K", "x1"],
        ["all:", "6", "commands,", "active", "0.053000", "s,", "read", "0.386", "MB/s,", "written", "0.232", "MB/s"],
        ["session", "1:", "login", "not", "captured"],
        ["tcp.stream", "1:", "1", "commands"],
        ["latency", "ms", "count", "p50", "p95", "p99", "max", "QD"],
        ["read", "1", "4.000", "-", "-", "4.000", "1"],
        ["medians", "ms", "to", "data", "transfer", "status", "idle", "idle", "%", "MB/s"],
        ["read", "4.000", "0.000", "0.000", "-", "-", "0.128"],
        ["I/O", "sizes"],
        ["read", "512"],
        ["all:", "1", "commands,", "active", "0.004000", "s,", "read", "0.128", "MB/s,", "written", "0.000", "MB/s"],
    ]


def test_a_filter_of_the_statistics(tmp_path: Path) -> None:
    text = tshark(mixed(tmp_path), "-q", "-z", 'iscsitrace,cycles,iscsitrace.operation == "write"')
    assert 'packets with iscsitrace.operation == "write"' in text.splitlines()[1]
    (line,) = [line for line in text.splitlines() if line.startswith("all: ")]
    # the writes alone: 12288 bytes in 21 ms
    assert line == "all: 2 commands, active 0.021000 s, read 0.000 MB/s, written 0.585 MB/s"


def test_statistics_by_an_argument_of_the_script(tmp_path: Path) -> None:
    file = mixed(tmp_path)
    assert tshark(file, "-q", "-X", "lua_script1:cycles") == tshark(file, *STATISTICS)


def test_statistics_of_a_capture_without_commands(tmp_path: Path) -> None:
    assert tshark(by_hand.capture(tmp_path, Wire().close(0)), *STATISTICS).endswith("\nno commands\n")


def latency_row(file: Path) -> list[str]:
    """Count, median and maximum of the commands."""
    (row,) = [line.split() for line in tshark(file, *STATISTICS).splitlines() if line.startswith("test_unit_ready ")][
        :1
    ]
    return [row[1], row[2], row[5]]


def answered(cmd_sn: int, begin: float, end: float, wire: Wire) -> None:
    wire.send(begin, command(cmd_sn, TEST_UNIT_READY, cmd_sn=cmd_sn)).receive(end, response(cmd_sn, cmd_sn))


@pytest.mark.parametrize(
    ("last", "right"),
    [
        # the capture ends 1 ms after the command: it has just begun
        (31, ["3", "5.000", "10.000"]),
        # or 20 ms after it, longer than any other took
        (50, ["3", "10.000", ">20.000"]),
    ],
)
def test_a_command_in_flight_at_the_end(last: float, right: list[str], tmp_path: Path) -> None:
    wire = Wire()
    answered(1, 0, 5, wire)
    answered(2, 10, 20, wire)
    wire.send(30, command(3, TEST_UNIT_READY, cmd_sn=3)).receive(last)
    assert latency_row(by_hand.capture(tmp_path, wire)) == right


def test_a_command_of_a_closed_connection_ranks_last(tmp_path: Path) -> None:
    """It waited 1 ms, less than the 5 ms of the other command: it never got a status."""
    wire = Wire()
    answered(1, 0, 5, wire)
    wire.send(30, command(2, TEST_UNIT_READY, cmd_sn=2)).close(31, is_reset=True)
    assert latency_row(by_hand.capture(tmp_path, wire)) == ["2", "5.000", ">5.000"]


@pytest.mark.parametrize(("result", "waited"), [(0, ">8.000"), (5, ">70.000")])
def test_a_command_waits_until_it_was_aborted(result: int, waited: str, tmp_path: Path) -> None:
    """From 30 ms until the response to ABORT TASK at 38 ms; if that was refused, to the end of the capture."""
    wire = Wire()
    answered(1, 0, 5, wire)
    wire.send(30, command(2, TEST_UNIT_READY, cmd_sn=2))
    wire.send(35, by_hand.management(9, 1, cmd_sn=3, referenced=2))
    wire.receive(38, by_hand.management_response(9, 2, result=result)).receive(100)
    assert latency_row(by_hand.capture(tmp_path, wire)) == ["2", "5.000", waited]


@pytest.mark.parametrize("is_hole", [False, True])
def test_a_command_whose_status_may_be_missing_does_not_count(is_hole: bool, tmp_path: Path) -> None:
    """Bytes of the target are missing, after which Wireshark shows no PDU; or a StatSN is."""
    wire = Wire()
    answered(1, 0, 5, wire)
    wire.send(10, command(2, TEST_UNIT_READY, cmd_sn=2))
    if is_hole:
        wire.receive(40, response(2, 2))
        del wire.records[-1]
    wire.receive(55, response(7, 3)).close(60)
    assert latency_row(by_hand.capture(tmp_path, wire))[0] == "1"


def test_a_cut_capture_has_no_command_without_a_status(tmp_path: Path) -> None:
    wire = Wire()
    answered(1, 0, 5, wire)
    wire.send(10, command(2, TEST_UNIT_READY, cmd_sn=2))
    wire.receive(20, data_in(9, 0, 0, 512)).receive(40, response(2, 2)).close(90)
    whole = by_hand.capture(tmp_path, wire)
    wire.records[3:5] = [replace(record, data=record.data[:80]) for record in wire.records[3:5]]
    assert latency_row(whole)[0] == "2"
    assert latency_row(write_pcap(tmp_path / "cut.pcap", wire.records, ETHERNET))[0] == "1"


def login(wire: Wire, ms: float, initiator: str) -> None:
    wire.send(ms, by_hand.login_request({"InitiatorName": initiator, "TargetName": "iqn.b", "SessionType": "Normal"}))
    wire.receive(ms + 1, by_hand.login_response({}))


@pytest.mark.parametrize("is_captured", [False, True])
def test_retransmissions_of_captured_bytes_leave_numbers_known(is_captured: bool, tmp_path: Path) -> None:
    """Two sessions; one retransmits a command. If its first copy was captured, no command is shown late."""
    one, two = Wire(40_000), Wire(40_001)
    login(one, 0, "iqn.a")
    login(two, 5, "iqn.c")
    answered(1, 10, 15, two)
    one.send(20, command(1, TEST_UNIT_READY, cmd_sn=1))
    copy = replace(one.records[-1], time_ns=one.records[-1].time_ns + 20 * MS)
    if not is_captured:
        del one.records[-1]
    one.send(22, command(2, TEST_UNIT_READY, cmd_sn=2))
    one.records.append(copy)
    answered(2, 50, 55, two)
    one.receive(60, response(1, 1), response(2, 2))
    file = by_hand.capture(tmp_path, one, two)
    found = shown(file)
    assert list(differences(found, iscsitrace.read(file, tables=("segments",)), is_whole=is_captured)) == []
    # without the first copy Wireshark shows command 1 after command 2, and numbers are left out from there on
    assert sorted(found.cycles) == ([0, 1, 2, 3] if is_captured else [0])
    assert len(found.unnumbered) == (0 if is_captured else 3)


def fields(file: Path) -> dict[int, dict[str, Any]]:
    """The fields of each command; equal to the tables of the reader."""
    found = shown(file)
    assert list(differences(found, iscsitrace.read(file, tables=("segments",)), is_whole=True)) == []
    return found.cycles


def test_every_phase(tmp_path: Path) -> None:
    times = ("latency", "first_data_time", "transfer_time", "status_time", "idle_time")
    # of the other session, which begins second: number 1
    assert {
        number: [row[name] / MS if name in row else None for name in times]
        for number, row in fields(mixed(tmp_path)).items()
    } == {
        0: [12, 10, 2, 0, None],
        1: [4, 4, 0, 0, None],
        2: [9, 4, 0, 5, 8],
        3: [6, 5, 1, 0, 11],
        4: [10, 8, 2, 0, None],
        5: [11, 3, 1, 7, None],
        6: [10, 4, 3, 3, 5],
    }


def test_the_phase_of_every_pdu(tmp_path: Path) -> None:
    wire = Wire()
    # the status comes with the last data, then in a SCSI Response
    wire.send(0, command(0, READ, cmd_sn=1, read=1024))
    wire.receive(1, data_in(0, 0, 0, 512)).receive(2, data_in(0, 1, 512, 512, stat_sn=1))
    wire.send(3, command(1, READ, cmd_sn=2, read=512))
    wire.receive(4, data_in(1, 0, 0, 512)).receive(5, response(1, 2, counted=1))
    wire.send(6, command(2, WRITE, cmd_sn=3, write=1024))
    wire.receive(7, r2t(2, 0, 0, 512)).send(8, data_out(2, 0, 0, 512))
    wire.receive(9, r2t(2, 1, 512, 512)).send(10, data_out(2, 0, 512, 512)).receive(11, response(2, 3))
    wire.send(12, command(3, TEST_UNIT_READY, cmd_sn=4)).receive(13, response(3, 4))
    assert [phase for _, _, phase in shown(by_hand.capture(tmp_path, wire)).pdus] == [
        *("command", "transfer", "transfer"),
        *("command", "transfer", "status_wait"),
        *("command", "grant", "transfer", "transfer", "transfer", "service"),
        *("command", "request"),
    ]


def test_the_item_of_a_command_describes_it(tmp_path: Path) -> None:
    text = tshark(mixed(tmp_path), "-O", "iscsitrace", "-Y", "iscsitrace.latency == 0.009")
    assert "[Cycle: 2: read of 4096 bytes, 9.000 ms]" in text


def test_bytes_in_flight_at_the_command(tmp_path: Path) -> None:
    """From the target for a read, else from the initiator, with the command itself, which is not acknowledged yet."""
    wire = Wire()
    wire.send(0, command(0, READ, cmd_sn=1, read=512))
    wire.receive(5, data_in(0, 0, 0, 512, stat_sn=1))
    # the read's 48 + 512 bytes are not acknowledged yet
    wire.send(6, command(1, READ, cmd_sn=2, read=512), unacknowledged=560)
    wire.receive(8, data_in(1, 0, 0, 512, stat_sn=2), unacknowledged=48)
    # all of the target's are; of the initiator's the last command is not, and this one with its 1024 bytes of data
    wire.send(9, command(2, WRITE, cmd_sn=3, write=1024, immediate=bytes(1024)))
    wire.receive(10, response(2, 3))
    wire.send(11, command(3, TEST_UNIT_READY, cmd_sn=4)).receive(12, response(3, 4))
    found = fields(by_hand.capture(tmp_path, wire))
    # of the first command it is not known: the target has sent nothing yet
    assert [found[number].get("owin") for number in range(4)] == [None, 560, 48 + 48 + 1024, 48]


@pytest.mark.parametrize(
    ("function", "lun", "left"),
    [
        (1, 0, 3),  # ABORT TASK, of tag 0
        (2, 0, 2),  # ABORT TASK SET
        (2, 1, 3),
        (3, 0, 4),  # CLEAR ACA ends none
        (4, 0, 2),  # CLEAR TASK SET
        (5, 0, 2),  # LOGICAL UNIT RESET
        (5, 1, 3),
        (6, 0, 1),  # TARGET WARM RESET
        (7, 0, 1),  # TARGET COLD RESET
    ],
)
@pytest.mark.parametrize("result", [0, 255])
def test_task_management_ends_commands(function: int, lun: int, left: int, result: int, tmp_path: Path) -> None:
    """Two reads of LUN 0 and one of LUN 1 are in flight: the next command's queue depth counts those not ended."""
    wire = Wire()
    for tag, of in enumerate((0, 0, 1)):
        wire.send(tag, command(tag, READ, cmd_sn=1 + tag, read=512, lun=of))
    wire.send(
        10, by_hand.management(9, function, cmd_sn=4, lun=lun, referenced=0 if function == 1 else by_hand.RESERVED)
    )
    wire.receive(20, by_hand.management_response(9, 1, result=result))
    wire.send(30, command(10, TEST_UNIT_READY, cmd_sn=4)).receive(31, response(10, 2))
    # a function that was rejected ends none
    assert fields(by_hand.capture(tmp_path, wire))[3]["queue_depth"] == (4 if result else left)


@pytest.mark.parametrize(
    ("second", "kind", "operation"),
    [
        (0, 0x00, "seek"),
        (0, 0x01, "locate"),
        (0, 0x08, "position_to_element"),
        (0, 0x21, "locate"),  # with a peripheral qualifier
        (1, 0x01, "seek"),  # vital product data, which may be of any page
    ],
)
def test_an_inquiry_decides_the_meaning_of_an_operation_code(
    second: int, kind: int, operation: str, tmp_path: Path
) -> None:
    wire = Wire()
    wire.send(0, command(0, by_hand.cdb(0x12, second=second), cmd_sn=1, read=36))
    wire.receive(1, by_hand.data_in_with(0, 0, 0, bytes([kind]).ljust(36, b"\0"), stat_sn=1))
    wire.send(2, command(1, by_hand.cdb(0x2B), cmd_sn=2)).receive(3, response(1, 2))
    # another LUN is another device
    wire.send(4, command(2, by_hand.cdb(0x2B), cmd_sn=3, lun=1)).receive(5, response(2, 3))
    found = fields(by_hand.capture(tmp_path, wire))
    assert [found[number]["operation"] for number in range(3)] == ["inquiry", operation, "seek"]


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_closed_connection_ends_its_commands(is_reset: bool, tmp_path: Path) -> None:
    """Two connections of one session: the command that was in flight on the closed one counts no longer."""
    names = {"InitiatorName": "iqn.a", "TargetName": "iqn.b", "SessionType": "Normal"}
    one, two = Wire(40_000), Wire(40_001)
    one.send(0, by_hand.login_request(names)).receive(1, by_hand.login_response({}))
    two.send(5, by_hand.login_request(names, handle=1)).receive(6, by_hand.login_response({}))
    two.send(10, command(1, READ, cmd_sn=1, read=512))
    one.send(11, command(2, TEST_UNIT_READY, cmd_sn=2)).receive(12, response(2, 1))
    two.close(20, is_reset=is_reset)
    one.send(30, command(3, TEST_UNIT_READY, cmd_sn=3)).receive(31, response(3, 2))
    found = shown(by_hand.capture(tmp_path, one, two)).cycles
    assert {number: row["queue_depth"] for number, row in found.items()} == {1: 2, 2: 1}


def test_a_missing_status_makes_queue_depths_unknown(tmp_path: Path) -> None:
    """StatSN jumps over 2: which command in flight ended is not known until all have ended or their tags are reused."""
    wire = Wire()
    wire.send(0, command(0, TEST_UNIT_READY, cmd_sn=1)).receive(1, response(0, 1))
    wire.send(10, command(1, TEST_UNIT_READY, cmd_sn=2)).send(11, command(2, TEST_UNIT_READY, cmd_sn=3))
    wire.receive(20, response(2, 3))
    wire.send(30, command(3, TEST_UNIT_READY, cmd_sn=4)).receive(31, response(3, 4))
    # tag 1 returns: now its command is known to have ended
    wire.send(40, command(1, TEST_UNIT_READY, cmd_sn=5)).receive(41, response(1, 5))
    found = shown(by_hand.capture(tmp_path, wire)).cycles
    depths = {number: row.get("queue_depth") for number, row in found.items()}
    assert depths == {0: 1, 2: None, 3: None, 4: 1}
    assert "idle_time" not in found[3]


def test_a_residual_shows_that_no_data_is_missing(tmp_path: Path) -> None:
    """512 of 4096 bytes come: with a residual count of 3584 that is all, without one the last data is missing."""
    wire = Wire()
    for number, underflow in enumerate((3584, 0)):
        wire.send(20 * number, command(number, READ, cmd_sn=1 + number, read=4096))
        wire.receive(20 * number + 5, data_in(number, 0, 0, 512))
        wire.receive(20 * number + 9, response(number, 1 + number, underflow=underflow))
    found = shown(by_hand.capture(tmp_path, wire)).cycles
    assert [found[number].get("transfer_time") for number in (0, 1)] == [0, None]
    assert [found[number].get("status_time") for number in (0, 1)] == [4 * MS, None]


def test_missing_unsolicited_data(tmp_path: Path) -> None:
    """Of three unsolicited Data-Out PDUs of 512 bytes the second is missing: the last one still bounds the transfer."""
    wire = Wire()
    wire.send(0, command(0, WRITE, cmd_sn=1, write=1536))
    wire.send(2, data_out(0, 0, 0, 512, transfer_tag=by_hand.RESERVED))
    wire.send(4, data_out(0, 2, 1024, 512, transfer_tag=by_hand.RESERVED))
    wire.receive(9, response(0, 1))
    row = shown(by_hand.capture(tmp_path, wire)).cycles[0]
    assert (row["transfer_time"], row["status_time"]) == (4 * MS, 5 * MS)


@pytest.mark.parametrize(("answer", "first_ms"), [("No", 5), ("Yes", None)])
def test_data_in_any_order_begins_with_its_first_number(answer: str, first_ms: int | None, tmp_path: Path) -> None:
    """The second half of a read comes first, as DataSequenceInOrder=No allows; else the first half is missing."""
    wire = Wire()
    wire.send(-2, by_hand.login_request({"InitiatorName": "iqn.a", "DataSequenceInOrder": "No"}))
    wire.receive(-1, by_hand.login_response({"DataSequenceInOrder": answer}))
    wire.send(0, command(0, READ, cmd_sn=1, read=1024))
    wire.receive(5, data_in(0, 0, 512, 512)).receive(7, data_in(0, 1, 0, 512, stat_sn=1))
    row = shown(by_hand.capture(tmp_path, wire)).cycles[0]
    assert row.get("first_data_time") == (None if first_ms is None else first_ms * MS)


def test_times_of_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """The response is captured 1.25 s before its command by the clock, the next one 250 ms."""
    wire = Wire()
    wire.send(2000, command(0, TEST_UNIT_READY, cmd_sn=1)).receive(750, response(0, 1))
    wire.send(1000, command(1, TEST_UNIT_READY, cmd_sn=2)).receive(750, response(1, 2))
    file = write_pcap(tmp_path / "capture.pcap", wire.records, ETHERNET)
    assert [row["latency"] for row in shown(file).cycles.values()] == [-1250 * MS, -250 * MS]


def test_the_readme_lists_every_field() -> None:
    command = ["tshark", "-G", "fields", "-X", f"lua_script:{PLUGIN}"]
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": "/nonexistent"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\tiscsitrace." in line]
    # expert notes are fields, too, of Wireshark's kind
    known = {row[2] for row in rows if not row[2].endswith(("_refused", "_unknown"))}
    readme = (PLUGIN.parent / "README.md").read_text()
    table = readme.split("| field | column of `cycles` | meaning |\n|---|---|---|\n")[1].split("\n\n")[0]
    assert {line.split("`")[1] for line in table.splitlines()} == known
    assert len(known) == 18
