"""The headline of every recorded capture, against what is known of how it was made and what the kernels counted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import examine
from iscsitrace.diagnosis.opinions import Opinion
from iscsitrace.findings import NEEDED
from tests.support.capture_file import read_records, write_pcap
from tests.support.recordings import description_of, recorded_captures

KNOWN: dict[str, tuple[str, str]] = {
    # recording -> the headline, and what it follows from: the settings, and how long the sender was busy and held by a
    # window that was full (tcp_info for rwnd, tcp_probe for cwnd)
    "01_seqread_qd1_delay00ms_tso-off": (
        "none",
        "24 of 432 ms receive-window-limited: slow CPUs",
    ),
    "01_seqread_qd1_delay04ms_tso-off": ("receive_window_small", "236 of 516 ms"),
    "01_seqread_qd1_delay04ms_tso-on": ("receive_window_small", "220 of 376 ms"),
    "01_seqread_qd1_delay08ms_tso-off": ("receive_window_small", "348 of 700 ms"),
    "01_seqread_qd1_delay16ms_tso-off": ("receive_window_small", "620 of 1,124 ms"),
    "02_seqread_qd8_64k_delay04ms": ("receive_window_small", "392 of 572 ms"),
    "03_seqwrite_256k_delay04ms_R2T-yes_Imm-no_burst64k": ("r2t_rounds", "four R2Ts a command, by its settings"),
    "03_seqwrite_256k_delay04ms_defaults": ("queue_depth_low", "dd, one at a time, RTT 9 ms; no window limits"),
    "04_read_ackloss5pct_delay04ms": ("receive_window_small", "272 of 536 ms; the lost ACKs cost nothing"),
    "04_read_dup2pct_jitter_delay04ms": ("receive_window_small", "384 of 652 ms"),
    "04_read_loss1pct_delay08ms": ("loss", "netem loss 1 %: 36 losses, which keep cwnd full in 76 % of the time"),
    "04_read_reorder_delay08ms": ("reordering", "netem reorder; 24 retransmissions for nothing, cwnd at most 66"),
    "05_digests_header+data_crc32c_delay01ms": ("none", "neither window nor send buffer; CRC32C on emulated CPUs"),
    "06_mcs_2-connections_delay04ms": (
        "queue_depth_low",
        "neither window; of the 2.5 s that its commands take, R2Ts wait 0.16 s for a program in Python; RTT 9 ms",
    ),
    "06_two-targets_delay01ms-and-08ms": (
        "congestion_window_small",
        "cwnd full in 197 of 612 ms, rwnd never",
    ),
    "07_ipv6_read_delay04ms": ("receive_window_small", "120 of 292 ms; cwnd full in 20 ms"),
    "08_read_control_default-buffers_delay08ms": ("receive_window_small", "428 of 604 ms"),
    "08_read_rwnd-limited_64k_delay08ms": ("receive_window_small", "1,244 of 1,376 ms"),
    "08_read_small-wmem_64k_delay08ms": ("send_buffer_small", "tcp_wmem of 64 KB at the sender"),
    "09_any-device_sll2_delay01ms": ("congestion_window_small", "cwnd full in 55 of 204 ms, rwnd never"),
    "09_mid-session_delay04ms_noop1s": (
        "congestion_window_small",
        "cwnd full in 74 of 356 ms, rwnd never",
    ),
    "09_snaplen128_read+write_delay01ms": ("congestion_window_small", "cwnd full in 98 of 296 ms, rwnd never"),
    "09_vlan100_delay01ms": ("congestion_window_small", "cwnd full in 97 of 284 ms, rwnd never"),
    "11_slow-storage_dmdelay20ms_read_delay01ms": ("slow_target", "dm-delay of 20 ms"),
    "12_tgt_read_delay04ms": ("receive_window_small", "292 of 524 ms"),
    "13_libiscsi_qemu-img_read_delay04ms": (
        "congestion_window_small",
        "cwnd full in 200 of 600 ms, rwnd never",
    ),
    "14_tmf_abort_storage-hang": ("task_timeout", "the storage hangs for 9 s, the initiator aborts"),
    "15_reconnect_blackhole_delay04ms": ("io_outage", "one direction drops everything for 10 s"),
    "16_discovery_sendtargets": ("discovery_only", "nothing else was done"),
    "16_login_chap_wrong-then-right": ("login_failed", "a wrong password, then the right one"),
    "16_login_refused_tgt_digest-mismatch": ("login_failed", "CRC32C against None"),
    "17_scsi-command-variety": ("command_errors", "a read beyond the end; all else probes"),
    "19_asymmetric_delay02ms-out_12ms-back": ("queue_depth_low", "dd, one at a time, RTT 15 ms; rwnd 148 of 660 ms"),
    "19_rate-limited_20mbit_delay04ms": ("line_saturated", "netem rate"),
    "20_capture-drops_delay04ms": ("capture_poor", "the capture lacks 2,185 packets"),
}

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
RECORDED = recorded_captures()
FILES = [*RECORDED, *sorted(SAMPLES.glob("*/capture.*"))]


def wanted(file: Path) -> set[str]:
    """The names that a headline may have: of the recording's description, or of the table."""
    description = description_of(file)
    assert description
    expected = json.loads(description.read_text()).get("expected")
    # "slow_operation (and it names UNMAP)"
    return {each.split()[0] for each in expected["headline"]} if expected else {KNOWN[description.stem][0]}


def test_every_recording_without_a_description_of_its_fault_is_in_the_table() -> None:
    assert all(wanted(file) for file in RECORDED)


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.name}" for file in FILES])
def test_every_recording_gets_its_headline(file: Path) -> None:
    """And no error: frames exist in the capture, shares are from 0 to 1, and every session has a headline."""
    trace = iscsitrace.read(file, tables=NEEDED)
    diagnosis = examine(trace.table)
    assert set(diagnosis.sessions) == set(trace.sessions["session"].tolist())
    for opinion in (*diagnosis.sessions.values(), *diagnosis.connections.values()):
        assert opinion.headline.text.endswith(".")
        assert "  " not in opinion.headline.text
        # three sentences at most: the others are details
        assert opinion.headline.text.count(". ") < 3
        _check(opinion, trace.packet_count)
    if file not in RECORDED:
        return
    description = description_of(file)
    assert description
    assert diagnosis.headline
    expected = json.loads(description.read_text()).get("expected", {})
    assert diagnosis.headline.name in wanted(file) - set(expected.get("not_headline", ()))
    assert expected.get("must_name", "") in diagnosis.headline.text


WINDOWS = [file for file in RECORDED if wanted(file) == {"receive_window_small"}]


@pytest.mark.parametrize("file", WINDOWS, ids=lambda file: file.name)
def test_a_receive_window_stays_one_where_the_file_has_packets_out_of_order(file: Path, tmp_path: Path) -> None:
    """By up to 20 us, as where a capture joins several queues."""
    records, link_type = read_records(file)
    chance = random.Random(7143)  # noqa: S311 (repeatable, not secret)
    order = sorted(records, key=lambda record: record.time_ns + chance.randrange(20_000))
    trace = iscsitrace.read(write_pcap(tmp_path / "out_of_order.pcap", order, link_type), tables=NEEDED)
    headline = examine(trace.table).headline
    assert headline
    assert headline.name == "receive_window_small"


def _check(opinion: Opinion, packet_count: int) -> None:
    for finding in opinion.findings:
        assert finding.text
        assert not finding.frames or 1 <= finding.frames[0] <= finding.frames[-1] <= packet_count
        assert finding.share is None or 0 <= finding.share <= 1
    names = [finding.name for finding in opinion.findings]
    assert len(names) == len(set(names))
