"""Recorded captures against what is known of how they were made: any capture with a description beside it.

The description (NAME.json) tells what was configured, what the kernels negotiated and counted, what dd and fio read
and wrote, and how many PDUs tshark counts, which is a lower bound wherever packets are missing, doubled, cut or carry
data digests. The folder is not part of the project; without it these tests are skipped.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iscsitrace
from tests.support import tshark
from tests.support.recordings import captures_folder, description_of, recorded_captures
from tests.support.transport import SYN
from tools.samples import KERNEL_KEYS

OPCODES = {
    "Login": 0x03, "LoginResp": 0x23, "Cmd": 0x01, "Resp": 0x21, "DataIn": 0x25, "DataOut": 0x05, "R2T": 0x31,
    "NopOut": 0x00, "NopIn": 0x20, "TMF": 0x02, "TMFResp": 0x22, "Text": 0x04, "TextResp": 0x24,
    "Logout": 0x06, "LogoutResp": 0x26, "Async": 0x32, "Reject": 0x3F, "Snack": 0x10,
}  # fmt: skip

EXACT = {
    # tshark misparses data digests; these were counted by a walk that knows them
    "05_digests_header+data_crc32c_delay01ms": {"Cmd": 50, "DataIn": 42},
}

FILES = recorded_captures()
# of this scope, so that all tests of a file follow one another and read it once
with_files = pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES], scope="module")


@lru_cache(maxsize=1)
def read(file: Path) -> iscsitrace.Trace:
    """A capture with its PDUs."""
    return iscsitrace.read(file, tables=("pdus",))


def describe(file: Path) -> dict[str, Any]:
    """How a capture was made."""
    description = description_of(file)
    assert description is not None
    content: dict[str, Any] = json.loads(description.read_text())
    return content


def by_tshark(file: Path) -> dict[str, Any]:
    """What tshark shows of a capture: ``ops`` counts PDUs; the least round trips are not told of every capture."""
    description = describe(file)
    if "tshark" in description:
        found: dict[str, Any] = description["tshark"][file.name]
        return found
    return {"ops": description["tshark_shows"][file.name]["pdus"], "handshake_rtt_ms": {}, "min_ack_rtt_ms": {}}


def is_lossless(file: Path) -> bool:
    """Whether the capture tool dropped nothing and cut nothing, and no data digests confuse tshark."""
    description = describe(file)
    dropped = [line for line in description["capture_tool_says"] if re.match(r"[1-9]\d* packets dropped", line)]
    return not dropped and not by_tshark(file).get("cut")


def is_from_initiator(file: Path) -> bool:
    """Whether it was captured at the initiator, on whose clock the times of the description are."""
    return ".target." not in file.name


@with_files
def test_pdu_counts(file: Path) -> None:
    description = describe(file)
    pdus = read(file).pdus
    # tshark shows none of which a part never came
    counts = Counter(pdus["opcode"][~np.ma.getmaskarray(pdus["frame_last"])].tolist())
    told = by_tshark(file)
    expected = {OPCODES[name]: count for name, count in told["ops"].items()}
    has_data_digest = any(each["data_digest"] == "1" for each in description["negotiated_as_seen_by_initiator_kernel"])
    if is_lossless(file) and not has_data_digest and not told.get("lost_segment") and not told.get("ooo"):
        assert counts == expected
    else:
        assert {opcode: counts[opcode] for opcode, count in expected.items() if counts[opcode] < count} == {}
    for name, count in EXACT.get(description["name"], {}).items():
        assert counts[OPCODES[name]] == count


@with_files
def test_every_command_has_its_cycle(file: Path) -> None:
    trace = read(file)
    commands = int((trace.pdus["opcode"] == OPCODES["Cmd"]).sum())
    assert len(trace.cycles) == commands
    for row in trace.cycles.rows():
        instants = [row[name] for name in ("command_first_ns", "data_first_ns", "data_last_ns", "status_ns")]
        known = [instant for instant in instants if instant is not None]
        if not row["has_retransmission"]:
            assert known == sorted(known)
    if is_lossless(file):
        # a session that another one replaced ended with its connection, and with it what was in flight
        replaced = {row["session"] for row in trace.sessions.rows() if row["end"] == "reinstated"}
        left = [row for row in trace.cycles.rows() if not row["is_complete"] and not row["is_aborted"]]
        assert [row["cycle"] for row in left if row["session"] not in replaced] == []
        assert trace.coverage[-1].explained_bytes_share == 1.0
        assert trace.coverage[-1].missing_pdu_count == 0


@with_files
def test_digests_are_good(file: Path) -> None:
    trace = read(file)
    for name in ("header_digest_ok", "data_digest_ok"):
        assert not (trace.pdus[name] == 0).any()
    negotiated = describe(file)["negotiated_as_seen_by_initiator_kernel"]
    if is_lossless(file) and any(each["header_digest"] == "1" for each in negotiated):
        # all PDUs but those of the login
        logins = sum(opcode in (0x03, 0x23) for opcode in trace.pdus["opcode"].tolist())
        assert int((trace.pdus["header_digest_ok"] == 1).sum()) == len(trace.pdus) - logins


@with_files
def test_parameters_in_force(file: Path) -> None:
    trace = read(file)
    negotiated = describe(file)["negotiated_as_seen_by_initiator_kernel"]
    if by_tshark(file).get("cut"):
        pytest.skip("the snaplen cut the login's text")
    for each in negotiated:
        sessions = [
            row
            for row in trace.sessions.rows()
            if row["target_name"] == each["targetname"] and row["login_status"] == 0 and row["is_login_captured"]
        ]
        if not sessions:
            assert "Login" not in by_tshark(file)["ops"]
            continue
        rows = {row["key"]: row for row in trace.parameters.rows() if row["session"] == sessions[-1]["session"]}
        for name, (key, words) in KERNEL_KEYS.items():
            value = words[int(each[name])] if words else each[name]
            assert rows[key]["effective_initiator"] == rows[key]["effective_target"] == value, key
        declared = rows["MaxRecvDataSegmentLength"]
        assert declared["effective_initiator"] == each["max_recv_dlength"]
        assert declared["effective_target"] == each["max_xmit_dlength"]


@with_files
def test_login_keys_are_told_and_secrets_are_not(file: Path) -> None:
    trace = read(file)
    text = " ".join(
        str(value) for table in (trace.parameters, trace.texts, trace.logins, trace.sessions)
        for row in table.rows() for value in row.values()
    )  # fmt: skip
    stored = {(row["connection"], row["key"]): row for row in trace.parameters.rows()}
    for said in describe(file).get("login_text_on_the_wire") or []:
        # a value may hold commas, as in HeaderDigest=None,CRC32C
        for key, value in re.findall(r"([A-Za-z0-9_]+)=(.*?)(?=,[A-Za-z0-9_]+=|$)", said["keys"]):
            if key in ("CHAP_C", "CHAP_R"):
                assert value not in text
            elif value and not key.startswith("CHAP_") and not by_tshark(file).get("cut"):
                side = "initiator_value" if "request" in said["pdu"] else "target_value"
                assert stored[int(said["stream"]), key][side] == value


def _blocks_of(step: dict[str, Any]) -> tuple[str, int, int] | None:
    """What dd, fio or qemu-img moved: read or write, first byte, bytes; None for other commands."""
    command = step["cmd"]
    if command.startswith("fio "):
        sizes = re.search(r"--rw=(read|write) .*--size=(\d+)m", command)
        return (sizes[1], 0, int(sizes[2]) << 20) if sizes else None
    words = dict(re.findall(r"(\w+)=(\S+)", command))
    if not re.match(r"(qemu-img )?dd ", command) or not step.get("bytes"):
        return None
    unit = int(words["bs"].rstrip("k")) * 1024
    operation = "read" if words["if"].startswith(("/dev/", "iscsi://")) else "write"
    return operation, int(words.get("skip" if operation == "read" else "seek", 0)) * unit, step["bytes"]


def _target_of(step: dict[str, Any], description: dict[str, Any]) -> str:
    """The name of the target that a command's device or URL leads to."""
    devices: dict[str, str] = dict(re.findall(r"(sd[a-z]) session\d+ (\S+)", " ".join(description["block_devices"])))
    device = re.search(r"/dev/(sd[a-z])", step["cmd"])
    if device is not None:
        return devices[device[1]]
    url = re.search(r"iscsi://[^/]+/([^/]+)/", step["cmd"])
    assert url is not None
    return url[1]


@with_files
def test_what_programs_moved_is_in_the_cycles(file: Path) -> None:
    description = describe(file)
    if not is_lossless(file) or not is_from_initiator(file):
        pytest.skip("not all of it was captured, or by another clock")
    trace = read(file)
    targets = {row["session"]: row["target_name"] for row in trace.sessions.rows()}
    for step in description["io"]:
        moved = _blocks_of(step)
        if moved is None:
            continue
        operation, first, length = moved
        rows = [
            row
            for row in trace.cycles.rows()
            if row["operation"] == operation
            and targets[row["session"]] in (_target_of(step, description), None)
            and step["start"] * 1e9 <= row["command_first_ns"]
            and row["status_ns"] is not None
            and row["status_ns"] <= step["end"] * 1e9
            and row["status"] == 0
        ]
        blocks = {block for row in rows for block in range(row["lba"], row["lba"] + row["block_count"])}
        assert blocks >= set(range(first // 512, (first + length) // 512))
        assert sum(row["data_bytes"] for row in rows) >= length


@with_files
def test_round_trip_times(file: Path, tshark_packets: tshark.Packets) -> None:
    description = describe(file)
    told = by_tshark(file)
    delays = description["network"]["one_way_delay_ms"].values()
    # with reordering netem lets some packets skip the delay
    is_delayed = not any("reorder" in str(text) for name, text in description["network"].items() if "netem" in name)
    again = [packet for packet in tshark_packets(file) if packet["tcp.analysis.retransmission"]]
    has_syn_again = any(int(packet["tcp.flags"], 16) & SYN for packet in again)
    for row in read(file).connections.rows():
        if row["rtt_to_target_min_ns"] is None:
            # refused: one packet each way
            assert row["packets_to_target"] == row["packets_to_initiator"] == 1
            continue
        # from SYN to the last of the three packets; which SYN was answered is not known when it was retransmitted
        handshake_ms = told["handshake_rtt_ms"].get(str(row["connection"]))
        both = row["handshake_rtt_to_target_ns"], row["handshake_rtt_to_initiator_ns"]
        if handshake_ms is not None and not has_syn_again:
            assert sum(both) == pytest.approx(handshake_ms * 1e6, abs=1_000)
            assert row["rtt_to_target_min_ns"] <= both[0]
            assert row["rtt_to_initiator_min_ns"] <= both[1]
        if is_delayed and all(isinstance(delay, (int, float)) for delay in delays):
            # nothing is faster than the path
            assert row["rtt_to_target_min_ns"] + row["rtt_to_initiator_min_ns"] >= sum(delays) * 1e6
        if len(told["handshake_rtt_ms"]) <= 1:
            for name, key in (("rtt_to_target", "acks_from_target"), ("rtt_to_initiator", "acks_from_initiator")):
                least_ms = told["min_ack_rtt_ms"].get(key)
                if least_ms is not None:
                    # tshark does not leave out ambiguous samples (Karn), nor counts the handshake here
                    assert row[f"{name}_min_ns"] <= max(least_ms, handshake_ms or 0) * 1e6 + 1_000


@with_files
def test_retransmissions_are_the_kernels(file: Path, tshark_packets: tshark.Packets) -> None:
    """At the sender's own tap every retransmission that its kernel made passes, and no other."""
    if not is_lossless(file):
        pytest.skip("the capture misses packets")
    side, direction = ("initiator", "to_target") if is_from_initiator(file) else ("target", "to_initiator")
    name = describe(file)["name"]
    events = file.parent / f"{name}.{side}.tcp_probe.csv.gz"
    if not events.exists():
        pytest.skip("no kernel events")
    with gzip.open(events, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["event"] == "retransmit"]
    trace = read(file)
    times = (
        [row["time_first_ns"] for row in trace.connections.rows()],
        [row["time_last_ns"] for row in trace.connections.rows()],
    )
    made = [row for row in rows if min(times[0]) <= float(row["time"]) * 1e9 <= max(times[1])]
    # an event may be of several segments, which the kernel counts one by one, over the whole experiment
    total = int(describe(file)["tcp_counters_delta"].get(side, {}).get("TcpRetransSegs", 0))
    segments = total if len(made) == len(rows) else len(made)
    counted = sum(row[f"retransmitted_packets_{direction}"] for row in trace.connections.rows())
    # a SYN or FIN sent again brings no bytes
    port = (f"tcp.{'dst' if side == 'initiator' else 'src'}port", str(describe(file)["target"].get("port", 3260)))
    without_bytes = [
        packet
        for packet in tshark_packets(file)
        if packet["tcp.analysis.retransmission"] and packet["tcp.len"] == "0" and packet[port[0]] == port[1]
    ]
    assert counted == segments - len(without_bytes)


# --- captures that others published

PUBLIC = captures_folder() / "public"
with_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no published captures here")


def _counts(file: str) -> tuple[iscsitrace.Trace, Counter[int]]:
    trace = read(PUBLIC / file)
    return trace, Counter(trace.pdus["opcode"].tolist())


@with_public
def test_cdrom_of_first_segments_only() -> None:
    trace, counts = _counts("iscsi-scsi-data-cdrom.pcap.gz")
    assert counts[OPCODES["Cmd"]] == len(trace.cycles) == 709
    assert counts[OPCODES["DataIn"]] == 1101
    assert counts[OPCODES["Resp"]] == 535
    assert counts[OPCODES["Login"]] == 4
    rows = list(trace.cycles.rows())
    assert all(row["status"] is not None for row in rows)
    assert sum(row["status"] == 2 for row in rows) == 1
    operations = Counter(row["operation"] for row in rows)
    assert operations["read"] == 159
    assert operations["test_unit_ready"] == 532
    assert "discovery" in trace.sessions["session_type"].tolist()
    assert trace.coverage[-1].gap_bytes == pytest.approx(7.9e6, rel=0.02)


@with_public
def test_tape_library() -> None:
    trace, counts = _counts("iscsi-tape-library.pcap")
    assert counts[OPCODES["Cmd"]] == len(trace.cycles) == 83
    assert counts[OPCODES["DataIn"]] == 59
    assert counts[OPCODES["Resp"]] == 24
    rows = list(trace.cycles.rows())
    assert all(row["is_complete"] for row in rows)
    assert sum(row["status"] == 2 for row in rows) == 14
    assert sum(row["has_retransmission"] for row in rows) == 1
    assert max(row["latency_ns"] for row in rows) > 20e9


@with_public
def test_chap_login() -> None:
    trace, counts = _counts("lio-chap-login.pcap")
    assert counts[OPCODES["Login"]] == counts[OPCODES["LoginResp"]] == 3
    assert len(trace.cycles) == 0
    assert trace.inputs[0]["format"] == "pcapng"
    assert trace.sessions.row(0)["auth_method"] == "CHAP"


@with_public
@pytest.mark.parametrize(
    ("file", "connection_count"),
    [
        ("SF20_Trace3.pcapng", 1),
        ("smb3_multichannel.pcap.gz", 4),
        ("TCP_SACK.cap", 1),
        ("200722_win_scale_examples_anon.pcapng", 3),
    ],
)
def test_other_protocols_are_not_iscsi(file: str, connection_count: int) -> None:
    trace, counts = _counts(file)
    assert not counts
    assert len(trace.cycles) == 0
    assert not trace.connections["is_iscsi"].any()
    assert len(trace.connections) == connection_count


def _sum(trace: iscsitrace.Trace, name: str) -> int:
    return sum(
        row[f"{name}_{direction}"] for row in trace.connections.rows() for direction in ("to_target", "to_initiator")
    )


@with_public
def test_one_loss_with_sack() -> None:
    trace, _ = _counts("TCP_SACK.cap")
    assert _sum(trace, "retransmitted_packets") == 1
    assert trace.connections.row(0)["is_sack_permitted"]


@with_public
def test_clean_parallel_connections() -> None:
    trace, _ = _counts("smb3_multichannel.pcap.gz")
    # keep-alives send one old byte again; they are no retransmissions
    assert _sum(trace, "retransmitted_packets") == 0


@with_public
def test_an_outage() -> None:
    trace, _ = _counts("SF20_Trace3.pcapng")
    # tcptrace: 4 retransmitted and 1 out of order; tshark: 4 and 1
    assert _sum(trace, "retransmitted_packets") + _sum(trace, "reordered_packets") in range(4, 7)


@with_public
def test_window_scales() -> None:
    trace, _ = _counts("200722_win_scale_examples_anon.pcapng")
    rows = list(trace.connections.rows())
    scales = [(row["window_scale_to_target"], row["window_scale_to_initiator"]) for row in rows]
    # in use; not in use, for the server does not announce one; unknown, for the client's SYN was not captured
    assert scales == [(8, 7), (8, None), (None, 7)]
