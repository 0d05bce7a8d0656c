"""The shipped samples against their recipes and their truth.json, which does not come from this project's analysis."""

from __future__ import annotations

import gzip
import json
import re
import struct
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.wireshark import dissect as wireshark
from tests.support.capture_file import read_records
from tools.samples import PDU_TITLES, SAMPLES, SIMULATED, SIZE_MAX_BYTES, simulate

FOLDER = Path(__file__).resolve().parents[2] / "samples"
NAMES = sorted(SAMPLES)
BLOCK_BYTES = 512
LINK_HEADER_BYTES = {1: 14, 113: 16, 276: 20}
"""Link types: Ethernet, and both versions of Linux's "any" device."""
# from RFC 7143 section 11.2.1.2
OPCODES = {
    "NOP-Out": 0x00, "SCSI Command": 0x01, "Task Management Function Request": 0x02, "Login Request": 0x03,
    "SCSI Data-Out": 0x05, "Logout Request": 0x06, "NOP-In": 0x20, "SCSI Response": 0x21,
    "Task Management Function Response": 0x22, "Login Response": 0x23, "SCSI Data-In": 0x25, "Logout Response": 0x26,
    "Ready To Transfer": 0x31,
}  # fmt: skip


def capture_of(name: str) -> Path:
    (file,) = (FOLDER / name).glob("capture.*")
    return file


@cache
def truth_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name / "truth.json").read_text())
    return content


@cache
def read(name: str) -> iscsitrace.Trace:
    return iscsitrace.read(capture_of(name), tables=("pdus",))


def is_whole(name: str) -> bool:
    """Whether every PDU's bytes are in the capture: nothing dropped, nothing cut."""
    return truth_of(name)["dropped_packet_count"] == 0 and name != "snaplen-128"


def cycles_within(name: str, transfer: dict[str, Any]) -> list[dict[str, Any]]:
    """The commands of this operation during the run of a program, if they have a status."""
    return [
        row
        for row in read(name).cycles.rows()
        if row["operation"] == transfer["operation"]
        and transfer["time_from_ns"] <= row["command_first_ns"]
        and row["status_ns"] is not None
        and row["status_ns"] <= transfer["time_to_ns"]
    ]


def blocks(transfer: dict[str, Any]) -> set[int]:
    first = transfer["first_byte"] // BLOCK_BYTES
    return set(range(first, first + transfer["bytes"] // BLOCK_BYTES))


def test_every_sample_is_known_and_complete() -> None:
    assert sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()) == sorted([*NAMES, *SIMULATED])
    assert set(OPCODES) == set(PDU_TITLES.values())
    for name in NAMES:
        assert capture_of(name).stat().st_size < SIZE_MAX_BYTES
        recipe = tomllib.loads((FOLDER / name / "recipe.toml").read_text())
        assert (
            recipe["network"]["one_way_delay_to_target_ms"] == truth_of(name)["one_way_delay_ms"]["initiator_to_target"]
        )
        assert f"samples/{name}/{capture_of(name).name}" in (FOLDER / name / "README.md").read_text()


def test_the_sample_of_both_ends_places_its_losses() -> None:
    folder = FOLDER / "loss-1-percent"
    trace = iscsitrace.read_taps({"target": folder / "target.pcap.gz", "initiator": folder / "capture.pcap.gz"})
    row = trace.table("taps").row(0)
    assert (folder / "target.pcap.gz").stat().st_size < SIZE_MAX_BYTES
    # each loss was retransmitted once
    counted = truth_of("loss-1-percent")["kernel_retransmitted_segments"]
    assert row["lost_a_to_b_packets"] == counted["to_target"]
    assert row["lost_b_to_a_packets"] == counted["to_initiator"]


# the headline of each simulated sample, and whom it names
HEADLINES = {
    "black-out-and-relogin": ("io_outage", "The initiator logged in again"),
    "login-not-authorized": ("login_failed", "0x0202"),
    "medium-error": ("command_errors", "unrecovered read error"),
    "reordering": ("reordering", "The path reorders packets"),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_sample_is_made_by_its_recipe(name: str, tmp_path: Path) -> None:
    recipe = tomllib.loads((FOLDER / name / "recipe.toml").read_text())["simulation"]
    assert recipe["command"] == f"iscsitrace simulate {SIMULATED[name]} -o DIR"
    assert f"samples/{name}/capture.pcapng.gz" in (FOLDER / name / "README.md").read_text()
    truth = simulate(name, tmp_path)
    # the header of the file names the version that wrote it
    assert read_records(tmp_path / "initiator.pcapng") == read_records(capture_of(name))
    assert truth["faults"] == truth_of(name)["faults"]
    assert (truth["packet_counts"][0], truth["ended_ns"]) == (
        truth_of(name)["packet_count"],
        truth_of(name)["ended_ns"],
    )


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_sample_shows_its_fault(name: str) -> None:
    trace, truth = iscsitrace.read(capture_of(name), tables=NEEDED), truth_of(name)
    assert (trace.packet_count, len(trace.connections)) == (truth["packet_count"], truth["connection_count"])
    headline = examine(trace.table).headline
    assert headline is not None
    wanted, words = HEADLINES[name]
    assert headline.name == wanted
    assert words in headline.text


@pytest.mark.parametrize("name", NAMES)
def test_packets_connections_and_sessions(name: str) -> None:
    trace, truth = read(name), truth_of(name)
    assert trace.packet_count == truth["packet_count"]
    assert len(trace.connections) == truth["connection_count"]
    assert all(trace.connections["is_iscsi"])
    assert len(trace.sessions) == truth.get("session_count", truth["connection_count"])


@pytest.mark.parametrize("name", [name for name in NAMES if truth_of(name)["pdu_count"]])
def test_pdus(name: str) -> None:
    counts = Counter(read(name).pdus["opcode"].tolist())
    for title, count in truth_of(name)["pdu_count"].items():
        assert counts[OPCODES[title]] == count, title
    assert len(read(name).cycles) == truth_of(name)["pdu_count"]["SCSI Command"]
    if truth_of(name)["is_pdu_count_tsharks"]:
        assert counts.total() == sum(truth_of(name)["pdu_count"].values())


@pytest.mark.parametrize("name", [name for name in NAMES if is_whole(name)])
def test_all_bytes_are_decoded(name: str) -> None:
    trace = read(name)
    assert trace.coverage[-1].explained_bytes_share == trace.coverage[-1].pdu_share == 1.0
    incomplete = sum(not row["is_complete"] for row in trace.cycles.rows())
    assert incomplete == truth_of(name).get("aborted_task_count", 0)


@pytest.mark.parametrize("name", [name for name in NAMES if is_whole(name)])
def test_bytes_moved_by_programs(name: str) -> None:
    for transfer in truth_of(name)["transfers"]:
        rows = [row for row in cycles_within(name, transfer) if row["status"] == 0]
        assert sum(row["data_bytes"] for row in rows) >= transfer["bytes"]
        if "first_byte" not in transfer:
            continue
        of_transfer = [
            row for row in rows if row["lba"] in blocks(transfer) and row["bytes"] == transfer["block_bytes"]
        ]
        # direct I/O: one task per block of dd, each block once
        assert len(of_transfer) == transfer["bytes"] // transfer["block_bytes"]
        touched = [block for row in of_transfer for block in range(row["lba"], row["lba"] + row["block_count"])]
        assert sorted(touched) == sorted(blocks(transfer))
        # dd waited for each, one after another
        assert sum(row["latency_ns"] for row in of_transfer) <= transfer["seconds"] * 1e9


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_faster_than_the_rtt(name: str) -> None:
    delays = truth_of(name)["one_way_delay_ms"]
    there_and_back_ns = sum(delays.values()) * 1e6
    for row in read(name).connections.rows():
        assert row["rtt_to_target_min_ns"] + row["rtt_to_initiator_min_ns"] >= there_and_back_ns
    for row in read(name).cycles.rows():
        if row["latency_ns"] is not None:
            assert row["latency_ns"] >= there_and_back_ns


def handshakes(name: str) -> dict[int, tuple[int, int]]:
    """By the initiator's port: time from SYN to SYN-ACK, and from there to the ACK, if each was sent once."""
    seen: dict[int, list[tuple[str, int]]] = {}
    records, link_type = read_records(capture_of(name))
    for record in records:
        packet = record.data[LINK_HEADER_BYTES[link_type] :]
        header_bytes = (packet[0] & 0xF) * 4
        if packet[9] != 6:
            continue
        source, port = struct.unpack_from(">HH", packet, header_bytes)
        flags, is_answer = packet[header_bytes + 13], source == 3260
        kind = {0x02: "SYN", 0x12: "SYN-ACK"}.get(flags & 0x17, "to initiator" if is_answer else "to target")
        seen.setdefault(port if is_answer else source, []).append((kind, record.time_ns))
    found = {}
    for initiator_port, packets in seen.items():
        first = [kind for kind, _ in packets[:3]]
        if first == ["SYN", "SYN-ACK", "to target"] and not {"SYN", "SYN-ACK"} & {kind for kind, _ in packets[3:]}:
            asked, answered, ended = (time_ns for _, time_ns in packets[:3])
            found[initiator_port] = answered - asked, ended - answered
    return found


@pytest.mark.parametrize("name", NAMES)
def test_rtts_agree_with_the_packets_and_with_ping(name: str) -> None:
    """At least the set delays, and at most the minimum ping RTT plus the scatter of emulated CPUs."""
    truth, known = truth_of(name), handshakes(name)
    assert bool(known) == (name != "mid-session")
    for row in read(name).connections.rows():
        both = row["handshake_rtt_to_target_ns"], row["handshake_rtt_to_initiator_ns"]
        least = row["rtt_to_target_min_ns"], row["rtt_to_initiator_min_ns"]
        if row["initiator_port"] in known:
            assert both == known[row["initiator_port"]]
            assert least[0] <= both[0]
            assert least[1] <= both[1]
        assert sum(truth["one_way_delay_ms"].values()) * 1e6 <= sum(least) <= (truth["ping_rtt_min_ms"] + 0.5) * 1e6


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mid-session", "snaplen-128")])
def test_negotiated_parameters(name: str) -> None:
    trace = read(name)
    for expected in truth_of(name)["keys_in_force"]:
        sessions = [row for row in trace.sessions.rows() if row["target_name"] == expected["target_name"]]
        (session,) = [row["session"] for row in sessions if row["login_status"] == 0]
        rows = {row["key"]: row for row in trace.parameters.rows() if row["session"] == session}
        for key, value in expected.items():
            if key != "target_name":
                assert rows[key]["effective_initiator"] == rows[key]["effective_target"] == value, key


@pytest.mark.parametrize("name", [name for name in NAMES if is_whole(name)])
def test_retransmissions_equal_the_kernels_counts(name: str) -> None:
    told = truth_of(name)["kernel_retransmitted_segments"]
    row_sum = {
        direction: sum(row[f"retransmitted_packets_{direction}"] for row in read(name).connections.rows())
        for direction in told
    }
    # at the initiator's tap all its own pass; retransmissions of the target that the network dropped do not
    with_bytes = told["to_initiator"] - truth_of(name).get("retransmitted_fin_count", 0)
    assert row_sum["to_target"] == told["to_target"]
    assert 0.9 * with_bytes <= row_sum["to_initiator"] <= with_bytes


def test_rounds_follow_from_the_keys() -> None:
    """Without immediate and unsolicited data every MaxBurstLength of a write takes one R2T."""
    name = "write-r2t-rounds"
    (keys,), (transfer,) = truth_of(name)["keys_in_force"], truth_of(name)["transfers"]
    assert (keys["InitialR2T"], keys["ImmediateData"]) == ("Yes", "No")
    burst = int(keys["MaxBurstLength"])
    rounds = list(read(name).rounds.rows())
    assert len(rounds) == transfer["bytes"] // burst
    assert {row["bytes"] for row in rounds} == {row["desired_data_transfer_length"] for row in rounds} == {burst}
    written = {row["cycle"] for row in rounds}
    for row in read(name).cycles.rows():
        if row["cycle"] in written:
            assert row["r2t_count"] == transfer["block_bytes"] // burst
            assert row["immediate_bytes"] == row["unsolicited_bytes"] == 0
            assert row["latency_ns"] >= row["r2t_count"] * 2 * 4_000_000


def test_a_longer_rtt_adds_to_each_cycle() -> None:
    """A read without other waits takes the RTT measured by ping plus the service time of the target, which is the same
    at either RTT.
    """

    def waits(name: str) -> tuple[list[int], float]:
        (transfer,) = truth_of(name)["transfers"]
        rows = [row for row in cycles_within(name, transfer) if row["bytes"] == transfer["block_bytes"]]
        return sorted(row["request_ns"] for row in rows), truth_of(name)["ping_rtt_min_ms"] * 1e6

    (far, far_ping_ns), (near, near_ping_ns) = waits("sequential-read-16ms"), waits("sequential-read-4ms")
    assert (len(far), len(near)) == (8, 8)
    assert far[0] > far_ping_ns > 32e6
    assert near[0] > near_ping_ns > 8e6
    # the scatter of emulated CPUs, some milliseconds, only adds time: the minimum has little of it
    assert far[0] - near[0] == pytest.approx(far_ping_ns - near_ping_ns, abs=0.5e6)


def test_the_hung_read_was_aborted_after_the_timeout() -> None:
    name = "task-abort-storage-hang"
    (row,) = read(name).task_management.rows()
    assert row["function_text"] == "ABORT TASK"
    (aborted,) = [cycle for cycle in read(name).cycles.rows() if cycle["is_aborted"]]
    assert row["referenced_cycle"] == aborted["cycle"]
    hung = truth_of(name)["transfers"][1]
    assert aborted["lba"] in blocks(hung)
    # the SCSI layer gave it 3 s; its timer ticks every 4 ms, and error handling starts within a second or two
    waited_ns = row["request_ns"] - aborted["command_first_ns"]
    assert 3e9 <= waited_ns <= hung["seconds"] * 1e9


def test_one_login_was_refused_and_no_secret_is_shown() -> None:
    name = "chap-refused-then-accepted"
    trace, truth = read(name), truth_of(name)
    refused = [row for row in trace.logins.rows() if row["status_class"]]
    assert [[row["status_class"], row["status_detail"]] for row in refused] == [truth["refused_login_status"]]
    assert [row["end"] for row in trace.sessions.rows()] == ["refused", "logout"]
    assert trace.sessions["auth_method"].tolist() == ["CHAP", "CHAP"]
    methods = [row for row in trace.parameters.rows() if row["key"] == "AuthMethod"]
    assert [row["target_value"] for row in methods] == ["CHAP", "CHAP"]
    secrets = re.findall(rb"CHAP_[CR]=(0x[0-9a-f]+)", capture_of(name).read_bytes())
    assert len(secrets) == 4  # challenge and response of two logins
    told = json.dumps([list(trace.table(table).rows()) for table in ("parameters", "texts", "logins", "sessions")])
    assert not [secret for secret in secrets if secret.decode() in told]


def test_digests_are_good() -> None:
    pdus = read("header-and-data-digests").pdus
    is_login = [opcode in (0x03, 0x23) for opcode in pdus["opcode"].tolist()]
    assert [ok == 1 for ok in pdus["header_digest_ok"].tolist()] == [not each for each in is_login]
    assert {ok for ok in pdus["data_digest_ok"].tolist() if ok is not None} == {1}


def test_a_start_in_mid_session_is_reported() -> None:
    trace = read("mid-session")
    assert not any(trace.sessions["is_login_captured"])
    assert "login_not_captured" in trace.counters["name"].tolist()
    assert not any(trace.connections["has_syn"])


def test_a_snaplen_loses_no_command() -> None:
    """Every command is found, with its times; a Data-In whose header was cut off is inferred."""
    name = "snaplen-128"
    trace, truth = read(name), truth_of(name)
    assert gzip.decompress(capture_of(name).read_bytes())[16:20] == (128).to_bytes(4, "little")
    total = trace.coverage[-1]
    assert total.cut_bytes > 0
    assert total.gap_bytes == 0
    declared = truth["max_recv_data_segment_length"]["initiator"]
    reads = next(transfer for transfer in truth["transfers"] if transfer["operation"] == "read")
    found = [row for row in trace.cycles.rows() if row["operation"] == "read" and row["lba"] in blocks(reads)]
    found = [row for row in found if row["bytes"] == reads["block_bytes"]]
    assert sorted(block for row in found for block in range(row["lba"], row["lba"] + row["block_count"])) == sorted(
        blocks(reads)
    )
    assert sum(row["data_pdu_count"] for row in found) == reads["bytes"] // declared
    assert sum(row["data_bytes"] for row in found) == reads["bytes"]
    # of each block the second header and with it the status was not read
    assert total.missing_pdu_count == len(found)
    assert total.explained_bytes == total.stream_bytes
    for row in found:
        assert row["status"] is None
        assert not row["is_complete"]
        assert row["command_first_ns"] < row["data_first_ns"] < row["data_last_ns"] <= row["status_ns"]
    assert all(row["is_complete"] for row in trace.cycles.rows() if row["operation"] == "write")


def test_packets_missing_from_the_capture_are_no_network_losses() -> None:
    """tcpdump's kernel buffer dropped packets; the kernels retransmitted none."""
    name = "capture-drops"
    trace, truth = read(name), truth_of(name)
    assert truth["kernel_retransmitted_segments"] == {"to_target": 0, "to_initiator": 0}
    assert all(
        row["retransmitted_packets_to_target"] == row["retransmitted_packets_to_initiator"] == 0
        for row in trace.connections.rows()
    )
    (transfer,) = truth["transfers"]
    total = trace.coverage[-1]
    assert 0 < total.gap_bytes < truth["dropped_packet_count"] * 1448
    # what was captured and what was not make up at least what dd read
    assert total.stream_bytes == total.captured_bytes + total.gap_bytes >= transfer["bytes"]
    found = {
        row["lba"]
        for row in trace.cycles.rows()
        if row["operation"] == "read" and row["bytes"] == transfer["block_bytes"]
    }
    assert found <= blocks(transfer)
    names = trace.counters["name"].tolist()
    assert "capture_gap" in names
    assert all(row["has_capture_gap"] for row in trace.cycles.rows() if not row["is_complete"])


def test_data_longer_than_declared_is_counted() -> None:
    """The initiator's declaration is made smaller in a recorded login, so that the target's Data-In violate it."""
    recorded = gzip.decompress(capture_of("sequential-read-4ms").read_bytes())
    key = b"MaxRecvDataSegmentLength="
    trace = iscsitrace.read(recorded)
    too_long = sum(row["data_segment_length"] > 8192 for row in trace.pdus.rows() if not row["to_target"])
    assert "data_segment_too_long" not in trace.counters["name"]
    changed = iscsitrace.read(recorded.replace(key + b"262144", key + b"0x2000", 1))
    counts = {row["name"]: row["count"] for row in changed.counters.rows()}
    assert counts["data_segment_too_long"] == too_long == 16


def test_no_secret_of_a_login_is_shown() -> None:
    """Challenges and responses of the capture are in no table, nor in the comparison with Wireshark."""
    name = "chap-refused-then-accepted"
    trace = read(name)
    secrets = [
        text.partition(b"=")[2].decode()
        for text in capture_of(name).read_bytes().split(b"\0")
        if text.startswith((b"CHAP_C=", b"CHAP_R="))
    ]
    assert len(secrets) == 4
    tables = " ".join(
        str(row) for table in ("parameters", "sessions", "texts", "logins") for row in trace.table(table).rows()
    )
    frames = sorted({row["frame_last"] for row in trace.pdus.rows() if row["opcode"] in (0x03, 0x23)})
    shown = str(list(wireshark.show_frames(str(capture_of(name)), frames, [3260])))
    assert "CHAP_N=labuser" in shown
    for secret in secrets:
        assert secret not in tables
        assert secret not in shown
