"""Events of recorded captures: tshark's dissectors see the same in their frames; healthy captures have no problem."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.events import NEEDED
from tests.support import tshark
from tests.support.capture_file import read_records, write_pcapng
from tests.support.recordings import captures_folder

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "guests"
RECORDED = (
    "14_tmf_abort_storage-hang.pcapng.gz",
    "15_reconnect_blackhole_delay04ms.pcap.gz",
    "16_discovery_sendtargets.pcapng",
    "16_login_chap_wrong-then-right.pcap",
    "16_login_refused_tgt_digest-mismatch.pcap",
    "17_scsi-command-variety.pcap",
    "22_target_restart.pcap.gz",
    "24_path_mtu.initiator.pcap.gz",
    "24_path_mtu.target.pcap.gz",
    "25_reservation_conflict.pcap.gz",
    "26_medium_error_lio.pcap.gz",
    "31_login_not_found.pcap.gz",
    "35_discard_slow.pcap.gz",
    "41_host_pauses.pcap.gz",
)
CAPTURES = [
    *(
        f"{folder.name}/{file.name}"
        for folder in sorted(VECTORS.iterdir())
        for file in sorted(folder.glob("*.pcapng.gz"))
    ),
    *RECORDED,
]
SYN, ACK, FIN, RESET = 0x02, 0x10, 0x01, 0x04
Packets = list[dict[str, str]]


def path_of(name: str) -> Path:
    file = VECTORS / name if "/" in name else captures_folder() / name
    if not file.exists():
        pytest.skip("recorded captures are not there: ISCSITRACE_CAPTURES")
    return file


@cache
def events(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(iscsitrace.read(path_of(name), tables=["events"]).events.rows())


def frames(name: str, *kinds: str) -> Counter[int]:
    return Counter(row["frame"] for row in events(name) if row["kind"] in kinds)


def values(packet: dict[str, str], field: str) -> list[str]:
    """The occurrences of a field."""
    return [each for each in packet[field].split("|") if each]


def has(packet: dict[str, str], flags: int) -> bool:
    return int(packet["tcp.flags"], 16) & flags == flags


def streams(packets: Packets) -> list[Packets]:
    found: dict[str, Packets] = {}
    for packet in packets:
        found.setdefault(packet["tcp.stream"], []).append(packet)
    return list(found.values())


def firsts(stream: Packets, flag: int) -> list[int]:
    """The frame of the first packet with this flag in each direction, in order."""
    found: dict[str, int] = {}
    for packet in stream:
        if has(packet, flag):
            found.setdefault(packet["tcp.srcport"], int(packet["frame.number"]))
    return sorted(found.values())


def of_connections(packets: Packets) -> dict[str, Counter[int]]:
    """The frames of events of TCP, from the flags."""
    found: dict[str, Counter[int]] = {
        kind: Counter() for kind in ("tcp_open", "tcp_refused", "tcp_reset", "tcp_closed")
    }
    for stream in streams(packets):
        syns = [int(each["frame.number"]) for each in stream if has(each, SYN) and not has(each, ACK)]
        is_answered = any(has(each, SYN | ACK) for each in stream)
        resets, fins = firsts(stream, RESET), firsts(stream, FIN)
        if syns and not is_answered and resets:
            found["tcp_refused"].update(resets[:1])
            continue
        found["tcp_open"].update(syns[:1] if is_answered else [])
        found["tcp_reset"].update(resets)
        found["tcp_closed"].update(frame for frame in fins[:1] if not resets or frame < resets[0])
    return found


LOGIN_RESPONSE = 0x23
OPCODES = {0x02: "task_management", 0x06: "logout", 0x3F: "reject", 0x32: "async_message"}
STATUSES = {0x02: "check_condition", 0x08: "busy", 0x18: "reservation_conflict", 0x28: "task_set_full"}


def of_pdus(packets: Packets) -> dict[str, Counter[int]]:
    """The frames of events of logins, exchanges and statuses, from the PDUs."""
    kinds = ("login", "login_refused", "login_redirected", *OPCODES.values(), *STATUSES.values())
    found: dict[str, Counter[int]] = {kind: Counter() for kind in kinds}
    for packet in packets:
        frame = int(packet["frame.number"])
        opcodes = [int(each, 0) for each in values(packet, "iscsi.opcode")]
        for opcode in opcodes:
            if opcode in OPCODES:
                found[OPCODES[opcode]][frame] += 1
        for status in values(packet, "iscsi.scsiresponse.status"):
            if int(status, 0) in STATUSES:
                found[STATUSES[int(status, 0)]][frame] += 1
        if LOGIN_RESPONSE in opcodes:
            login = int(values(packet, "iscsi.login.status")[0], 0)
            is_transit = values(packet, "iscsi.login.T")[-1] in ("1", "True")
            if login >> 8 or (is_transit and int(values(packet, "iscsi.login.nsg")[-1], 0) == 3):
                found["login_refused" if login >> 8 > 1 else "login_redirected" if login else "login"][frame] += 1
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_events_are_in_the_frames_in_which_tshark_sees_them(name: str, tshark_packets: tshark.Packets) -> None:
    packets = tshark_packets(path_of(name))
    expected = of_connections(packets) | of_pdus(packets)
    found = {kind: frames(name, kind) for kind in expected}
    # a login with keys that do not agree is none: one event for each key
    found["login"] += Counter(dict.fromkeys(frames(name, "key_mismatch"), 1))
    assert found == expected


HEALTHY = (
    "07_ipv6_read_delay04ms.pcap.gz",
    "13_libiscsi_qemu-img_read_delay04ms.pcap.gz",
    "09_mid-session_delay04ms_noop1s.pcap.gz",
    "09_any-device_sll2_delay01ms.pcap.gz",
    "06_mcs_2-connections_delay04ms.pcapng.gz",
    "05_digests_header+data_crc32c_delay01ms.pcap.gz",
    "11_slow-storage_dmdelay20ms_read_delay01ms.pcapng.gz",
    "12_tgt_read_delay04ms.pcap.gz",
    "16_discovery_sendtargets.pcapng",
    "35_discard_slow.pcap.gz",
    "41_host_pauses.pcap.gz",
)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_capture_has_information_only(name: str) -> None:
    # kernels and programs break a rule here and there, and nothing comes of it
    rows = [row for row in events(name) if row["kind"] != "protocol_violation"]
    assert [row["text"] for row in rows if row["severity"] != "info"] == []
    assert len(events(name)) > 0


def told(name: str, *kinds: str) -> list[str]:
    return [row["text"] for row in events(name) if row["kind"] in kinds]


def test_both_offers_of_a_key_that_does_not_agree() -> None:
    assert told("16_login_refused_tgt_digest-mismatch.pcap", "login", "key_mismatch") == [
        "no common HeaderDigest: the initiator offers CRC32C, the target None",
        "no common DataDigest: the initiator offers CRC32C, the target None",
    ]


def test_a_command_that_hangs_is_aborted() -> None:
    assert told("14_tmf_abort_storage-hang.pcapng.gz", "no_status", "task_management") == [
        "READ had no status until it was aborted",
        "ABORT TASK of READ after 7.3 s: function complete",
    ]


def test_a_black_hole() -> None:
    name = "15_reconnect_blackhole_delay04ms.pcap.gz"
    rows = {row["kind"]: row for row in events(name) if row["severity"] == "error"}
    assert set(rows) == {"no_status", "outage", "tcp_closed"}
    start_ns = events(name)[0]["time_ns"]
    assert (rows["outage"]["time_ns"] - start_ns) / 1e9 == pytest.approx(4.8, abs=0.05)
    assert (rows["outage"]["end_ns"] - start_ns) / 1e9 == pytest.approx(18.9, abs=0.05)
    assert told(name, "relogin") == ["10.77.0.1 logged in again, replacing session 0"]


def test_the_login_that_ends_a_session_comes_before_what_follows_from_it() -> None:
    """The path is dark from 1.06 to 13.06 s; the Login Request of frame 709 ends session 0, and the target closes its
    connection (frame 714) before it answers (frame 716).
    """
    trace = iscsitrace.read(ROOT / "samples" / "black-out-and-relogin" / "capture.pcapng.gz", tables=NEEDED)
    rows = list(trace.events.rows())
    steps = [(row["kind"], row["frame"], row["severity"]) for row in rows if row["frame"] in range(706, 943)]
    assert steps == [
        ("session_reinstated", 709, "warning"),
        ("tcp_closed", 714, "info"),
        ("login", 716, "info"),
    ]
    waits = [row["end_ns"] for row in rows if row["kind"] == "no_status"]
    request_ns = trace.start_ns + 14_068_284_801
    assert waits == [request_ns, request_ns]
    cycles = trace.cycles
    assert cycles.raw("end_ns")[cycles.raw("is_lost")].tolist() == waits
    assert "cycle_incomplete" not in [row["name"] for row in trace.table("counters").rows() if row["count"]]


def test_two_initiators_with_one_name_end_the_sessions_of_each_other() -> None:
    rows = [row for row in events("duplicate-initiator-lio/target.pcapng.gz") if row["kind"] == "session_reinstated"]
    assert len(rows) == 4
    assert all("one InitiatorName and ISID from two addresses" in row["text"] for row in rows)


def test_a_login_whose_text_is_cut_off_agreed_on_nothing_that_the_capture_shows(tmp_path: Path) -> None:
    """Of each packet 128 bytes: the headers of the PDUs of the login, and 14 bytes of its keys."""
    records, link_type = read_records(Path("samples/sequential-read-4ms/capture.pcapng.gz"))
    cut = write_pcapng(tmp_path / "cut.pcapng", [replace(each, data=each.data[:128]) for each in records], link_type)
    trace = iscsitrace.read(cut, tables=["events"])
    assert not {"default", "negotiated"} & {row["source"] for row in trace.parameters.rows()}
    assert trace.sessions.row(0)["auth_method"] is None
    (text,) = [row["text"] for row in trace.events.rows() if row["kind"] == "login"]
    assert text.startswith("10.77.0.1 logged in to the target; ")
