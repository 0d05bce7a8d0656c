"""The finding path_mtu: on traces by hand, and on recordings of kernels with a path that drops long packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"


def found(diagnosis: Diagnosis, name: str = "path_mtu") -> Finding | None:
    return next((each for opinion in diagnosis.stories for each in opinion.findings if each.name == name), None)


def hung(count: int = 1, **columns: Any) -> Told:
    """Sessions in which small reads are answered and one hangs for 7.9 s; a segment of 4096 bytes is blocked in it."""
    told = Told()
    for number in range(count):
        start = 10.0 * number
        told.session(start, start + 8.5, replaces=number - 1 if number else None, mss_bytes_to_target=8960)
        told.rows["connections"][-1] |= {"mss_bytes_to_initiator": 8960}
        told.reads(number, start, 20)
        told.read(number, start + 0.1, None)
        told.time(number, start + 0.1, start + 8.0, "outage")
        blocked: dict[str, float] = {"blocked_bytes": 4096, "blocked_retransmissions": 5, "blocked_frame": 77 + number}
        blocked |= {"blocked_first_ns": start + 0.3, "blocked_last_ns": start + 8.0, "arrived_segment_bytes": 488}
        told.add("senders", connection=number, to_target=False, **blocked | columns)
    return told


def test_a_segment_that_is_blocked_by_its_size() -> None:
    diagnosis = hung(is_blocked_by_size=True).diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.spans == ((at(0.1), at(8.0)),)
    assert (finding.cost_ns, finding.frames, finding.is_final) == (7.9 * SECOND, (77,), True)
    assert finding.text == (
        "MTU problem of session 0: segments of 4,096 bytes to the initiator did not get through for 7.9 s, but smaller "
        "packets did. The path MTU is too small, or a hop drops long packets. No ICMP message reported it. TCP "
        "retransmitted them at least 5 times on 1 connection. The largest segment that got through had 488 bytes. "
        "Both sides announced an MSS of 8960."
    )
    headline = diagnosis.headline
    assert headline
    assert headline.name == "path_mtu"
    # its consequences are not reported beside it
    assert found(diagnosis, "io_outage") is None


def test_what_may_be_a_black_out_stays_an_outage_and_says_so() -> None:
    diagnosis = hung(is_blocked_by_size=False).diagnosis()
    assert found(diagnosis) is None
    outage = found(diagnosis, "io_outage")
    assert outage
    assert "less than 4,096 bytes got through, so the cause may also be a path MTU that is too small." in outage.text


@pytest.mark.parametrize(("arrived", "is_found"), [(4095, True), (4096, False)])
def test_the_same_on_the_next_connection_is_no_black_out(arrived: int, is_found: bool) -> None:
    diagnosis = hung(2, is_blocked_by_size=False, arrived_segment_bytes=arrived).diagnosis()
    assert (found(diagnosis) is not None) == is_found


@pytest.mark.parametrize(
    ("kind", "to_target", "is_found"), [("too_big", False, True), ("too_big", True, False), ("other", False, False)]
)
def test_a_router_that_reports_it(kind: str, to_target: bool, is_found: bool) -> None:
    told = hung(is_blocked_by_size=False)
    report = {"mtu_bytes": 1500, "reporter_address": "10.0.0.9", "frame": 80, "time_ns": 1.0}
    told.add("icmp_errors", connection=0, to_target=to_target, kind=kind if kind == "too_big" else None, **report)
    finding = found(told.diagnosis())
    assert (finding is not None) == is_found
    if finding:
        assert " 10.0.0.9 reports an MTU of 1500. " in finding.text


def test_bytes_that_never_reach_the_tap() -> None:
    finding = found(hung(2, is_blocked_by_size=False, blocked_retransmissions=0).diagnosis())
    assert finding
    assert "4,096 bytes to the initiator did not get through for 17.8 s, but smaller packets did" in finding.text
    assert "The tap never saw these bytes on 2 connections, and the receiver never acknowledged" in finding.text


def shared(name: str) -> Diagnosis:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    return examine(iscsitrace.read(file, tables=NEEDED).table)


@pytest.mark.parametrize("tap", ["target", "initiator"])
def test_a_link_of_1500_bytes_between_hosts_of_9000(tap: str) -> None:
    """Its README: the 4 KiB reads of three sessions hang until the link gets an MTU of 9000, and no ICMP is sent."""
    headline = shared(f"24_path_mtu.{tap}.pcap.gz").headline
    assert headline
    assert headline.finding
    text = headline.finding.text
    assert headline.name == "path_mtu"
    assert headline.sessions == (0, 1, 2, 3)
    assert " 4,096 bytes to the initiator did not get through" in headline.text
    assert headline.text.endswith("a hop drops long packets. No ICMP message reported it.")
    assert ("TCP retransmitted them at least 12 times on 3 connections" in text) == (tap == "target")
    assert "Both sides announced an MSS of 8960." in text


@pytest.mark.parametrize("tap", ["target", "initiator"])
def test_a_hole_of_four_seconds_may_be_a_black_out(tap: str) -> None:
    """Packets above 1000 bytes were dropped for 4 s; the first packet after that, a NOP, shows nothing "
    "of their size.
    """
    diagnosis = examine(iscsitrace.read(VECTORS / "mtu-hole-lio" / f"{tap}.pcapng.gz", tables=NEEDED).table)
    assert found(diagnosis) is None
    outage = found(diagnosis, "io_outage")
    assert outage
    assert "the cause may also be a path MTU that is too small" in outage.text


@pytest.mark.parametrize("name", ["black-out-lio", "flap-lio", "target-paused-tgt", "target-restart-lio"])
@pytest.mark.parametrize("tap", ["target", "initiator"])
def test_black_outs_and_stopped_targets_are_something_else(name: str, tap: str) -> None:
    assert found(examine(iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED).table)) is None


@pytest.mark.parametrize("tap", ["target", "initiator"])
def test_the_hung_reads_of_that_link_have_no_status(tap: str) -> None:
    """One of each of three sessions; at the initiator's tap the header of its Data-In, with a status, arrived."""
    file = captures_folder() / f"24_path_mtu.{tap}.pcap.gz"
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    rows = [row for row in iscsitrace.read(file).cycles.rows() if row["operation"] == "read" and row["session"] < 3]
    assert {row["has_capture_gap"] for row in rows} == {False}
    assert tap == "target" or sum(row["status"] is None for row in rows) == 3
