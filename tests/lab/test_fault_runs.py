"""Faults on demand in the simulated world: what a diagnosis says of them, what the wire shows by tshark, and what the
truth says.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.faults.fault import Fault
from tests.support import tshark
from tests.support.capture_file import read_records
from tests.support.fault_runs import FAULTS, NEAR_MISSES, SETTINGS, TAPS, UNCOUNTED, Run, wrong
from tests.support.lab import needs_root

_MS = 1_000_000
_S = 1000 * _MS
_NEAR_RTT_NS = 2 * _MS
_FULL_FRAME_BYTES = 1514
BLACK_OUTS = {"black-out", "black-out-to-target", "black-out-to-initiator", "black-out-healed"}
_BY_NAME = {run.name: run for run in (*FAULTS, *NEAR_MISSES)}


def _settings(run: Run) -> Iterable[str]:
    """Once if all of a setting are options of the run's own; one status of a refused login stands for the others."""
    is_of_its_own = {*SETTINGS["near"][::2]} <= {*run.more}
    is_another_status = run.name.startswith("login-refused-") and run.name != "login-refused-2-0"
    return ("near",) if is_of_its_own or is_another_status else SETTINGS


_RUNS = [(name, setting) for name, run in _BY_NAME.items() for setting in _settings(run)]


def _simulated(run: Run, folder: Path, setting: str = "near") -> dict[str, Any]:
    result = CliRunner().invoke(main, [*run.words(setting), "-o", str(folder), "--quiet"])
    assert (folder / "truth.json").exists(), result.output
    return dict(json.loads((folder / "truth.json").read_text()))


def _times(capture: Path, display_filter: str) -> list[int]:
    """The times of the frames that tshark finds, in ns since 1970."""
    argv = ["tshark", "-r", str(capture), "-Y", display_filter, "-T", "fields", "-e", "frame.time_epoch"]
    found = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [int(second) * _S + int(rest.ljust(9, "0")) for second, rest in _parts(found.stdout)]


def _parts(lines: str) -> list[list[str]]:
    return [line.split(".") for line in lines.split()]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For the files of a run; its captures do not stay."""
    yield tmp_path / "run"
    for capture in (tmp_path / "run").glob("*.pcapng"):
        capture.unlink()


@pytest.mark.parametrize(("name", "setting"), _RUNS)
def test_the_headline_is_the_fault_and_the_wire_shows_it(name: str, setting: str, folder: Path) -> None:
    run = _BY_NAME[name]
    truth = _simulated(run, folder, setting)
    for tap in TAPS:
        _check_headline(run, tap, truth, folder / f"{tap}.pcapng")
    # the wire and the truth do not depend on the setting
    if setting == "near":
        _check_wire(run, truth, folder / "initiator.pcapng")


def _check_headline(run: Run, tap: str, truth: dict[str, Any], capture: Path) -> None:
    result = CliRunner().invoke(main, ["diagnose", "--json", str(capture)], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert wrong(run.wanted(tap), document, truth) == []
    if run.name in BLACK_OUTS and tap == "initiator":
        _check_outage(truth, capture, document)


def _check_outage(truth: dict[str, Any], capture: Path, document: dict[str, Any]) -> None:
    """An outage lasts from the last new data to the first after the black-out."""
    (fault,) = truth["faults"]
    middle_ns = (fault["began_ns"] + fault["ended_ns"]) // 2
    arrived = _new_data_ns(capture)
    last_ns, connection = max(each for each in arrived if each[0] < middle_ns)
    first_ns, _ = min(each for each in arrived if each[0] > middle_ns)
    direction = fault["details"]["direction"]
    if direction != "to_target":
        # the link carried nothing to the initiator meanwhile
        way = truth["settings"]["world"]["paths"][0]["to_initiator"]
        busy = truth["paths"][0]["to_initiator"]["line"]["busy_times"]
        on_line_ns = max(end_ns for end_ns in busy["to_ns"] if end_ns < middle_ns)
        assert last_ns == pytest.approx(on_line_ns + way["delay_ns"], abs=_MS)
    headline = document["headline"]
    assert headline["from_ns"] == pytest.approx(last_ns, abs=10 * _MS)
    assert headline["to_ns"] == pytest.approx(first_ns, abs=10 * _MS)
    # the breakdown of the session that had it: until its own data, or the first command of the one that replaced it
    own = [time_ns for time_ns, ports in arrived if ports == connection and time_ns > middle_ns]
    commands = truth["cycles"]["initiator"]["command_first_ns"]
    # a session that was replaced has no more I/O, whatever its host still sends
    is_replaced = len(document["sessions"]) > 1
    later = [time_ns for time_ns in commands if time_ns and time_ns > middle_ns]
    end_ns = min(later if is_replaced or not own else own)
    part_ns = document["sessions"][0]["budget"]["outage"]
    assert part_ns == pytest.approx(end_ns - last_ns, abs=10 * _MS)


def _new_data_ns(capture: Path) -> list[tuple[int, bytes]]:
    """When full segments brought new bytes of the target, by their sequence numbers; with the ports of each."""
    highest: dict[bytes, int] = {}
    times = []
    for record in read_records(capture)[0]:
        ports, sequence = record.data[34:38], int.from_bytes(record.data[38:42], "big")
        if record.original_length < _FULL_FRAME_BYTES or ports[:2] != b"\x0c\xbc":
            continue
        if 0 < (sequence - highest.get(ports, sequence - 1)) % (1 << 32) < 1 << 31:
            highest[ports] = sequence
            times.append((record.time_ns, ports))
    return times


def _check_wire(run: Run, truth: dict[str, Any], capture: Path) -> None:
    if run.seen or run.unseen:
        frames = tshark.frames_of(capture, [*run.seen, *run.unseen])
        assert {each: frames[each] for each, least in run.seen.items() if len(frames[each]) < least} == {}
        assert {each: frames[each] for each in run.unseen if frames[each]} == {}
    wanted = [catalogue.parse(each) for each in run.faults if "nth" not in each]
    assert [(row["name"], row["host"]) for row in truth["faults"]] == [(each.kind.name, each.host) for each in wanted]
    for row, fault in zip(truth["faults"], wanted, strict=True):
        _check_times(truth, row, fault)
        # a pause is one of itself
        assert (row["count"] > 0) == (run.hits or row["name"] == "program-paused") or row["name"] in UNCOUNTED
    assert (truth["results"]["started_ns"] is None) == run.ends
    if not run.ends:
        # after its fault the run goes on to its end, unless the disk is gone
        assert truth["results"]["bytes"] > 0


def _check_times(truth: dict[str, Any], row: dict[str, Any], fault: Fault) -> None:
    if fault.kind.is_timed:
        # from the first I/O, as the host sees it that makes the fault
        began_ns = truth["results"]["started_ns"] + fault.details["at"]
        assert began_ns <= row["began_ns"] <= began_ns + _NEAR_RTT_NS + 7 * _MS
    if not row["count"]:
        return
    assert row["began_ns"] <= row["from_ns"] <= row["to_ns"]
    if fault.details.get("for") and row["name"] != "lun-removed":
        assert row["to_ns"] <= row["ended_ns"] <= row["began_ns"] + fault.details["for"]


def test_no_packet_passes_a_black_out(tmp_path: Path) -> None:
    truth = _simulated(_BY_NAME["black-out-healed"], tmp_path / "run")
    (row,) = truth["faults"]
    for host, peer in (("initiator", "198.18.0.10"), ("target", "198.18.0.1")):
        arrived = _times(tmp_path / "run" / f"{host}.pcapng", f"ip.src == {peer}")
        # what was on the line, or in its queue, arrives: a block of 16 KiB takes 7 ms
        silent = [each for each in arrived if row["began_ns"] + 10 * _MS < each < row["ended_ns"] + _MS]
        assert silent == [], host
        assert arrived[-1] > row["ended_ns"]
    interrupted = [truth["paths"][0][way]["counters"]["interrupted"]["count"] for way in ("to_target", "to_initiator")]
    assert row["count"] == sum(interrupted)
    assert row["from_ns"] - row["began_ns"] < 10 * _MS


def test_one_direction_of_a_black_out_lets_the_other_pass(tmp_path: Path) -> None:
    truth = _simulated(_BY_NAME["black-out-to-target"], tmp_path / "run")
    counters = {way: truth["paths"][0][way]["counters"] for way in ("to_target", "to_initiator")}
    assert counters["to_target"]["interrupted"]["count"] == truth["faults"][0]["count"] > 0
    assert counters["to_initiator"]["interrupted"]["count"] == 0


def test_an_mtu_hole_passes_small_packets_only(tmp_path: Path) -> None:
    _simulated(_BY_NAME["mtu-hole"], tmp_path / "run")
    truth = json.loads((tmp_path / "run" / "truth.json").read_text())
    (row,) = truth["faults"]
    during = _times(tmp_path / "run" / "initiator.pcapng", "ip.src == 198.18.0.10 && ip.len > 1400")
    assert not [each for each in during if row["began_ns"] + 10 * _MS < each < row["ended_ns"]]


def test_a_card_that_is_down_hides_packets_from_its_own_host(tmp_path: Path) -> None:
    truth = _simulated(_BY_NAME["flap"], tmp_path / "run")
    (row,) = truth["faults"]
    inside = [
        each
        for each in _times(tmp_path / "run" / "initiator.pcapng", "tcp")
        if row["began_ns"] < each < row["ended_ns"]
    ]
    assert inside == []
    # the target retransmits meanwhile
    sent = _times(tmp_path / "run" / "target.pcapng", "ip.src == 198.18.0.10")
    assert [each for each in sent if row["began_ns"] < each < row["ended_ns"]]


def test_a_recovered_session_has_the_same_isid(tmp_path: Path) -> None:
    faults = ("rst", "target-restart,at=4s,for=1s")
    run = Run("twice", faults, "connection_lost")
    truth = _simulated(run, tmp_path / "run")
    argv = ["tshark", "-r", str(tmp_path / "run" / "initiator.pcapng"), "-Y", "iscsi.opcode == 0x03", "-T", "fields"]
    found = subprocess.run([*argv, "-e", "iscsi.isid"], capture_output=True, text=True, check=True)
    isids = found.stdout.split()
    assert len(isids) >= 3
    assert len(set(isids)) == 1
    assert [each["connection"] for each in truth["results"]["connections"]][:3] == [0, 1, 2]
    assert truth["results"]["error_count"] == 0


def test_a_stuck_command_escalates_in_order(tmp_path: Path) -> None:
    _simulated(_BY_NAME["stuck-command"], tmp_path / "run")
    capture = tmp_path / "run" / "initiator.pcapng"
    aborts = _times(capture, "iscsi.taskmanfun.function == 1")
    resets = _times(capture, "iscsi.taskmanfun.function == 5")
    logins = _times(capture, "iscsi.opcode == 0x03")
    # 3 s from ABORT TASK to LOGICAL UNIT RESET, 3 s to the end of the session, 2 s to the next connection
    assert resets[0] - aborts[0] == pytest.approx(3 * _S, abs=20 * _MS)
    assert logins[-1] - resets[0] >= 5 * _S


@pytest.mark.parametrize("name", ["black-out", "reordering", "ack-loss", "stuck-command"])
def test_the_same_seed_makes_the_same_bytes(name: str, tmp_path: Path) -> None:
    def digests(folder: str) -> list[str]:
        _simulated(_BY_NAME[name], tmp_path / folder)
        return [hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((tmp_path / folder).iterdir())]

    assert digests("first") == digests("second")


# --- over the kernel's TCP

_NAMESPACES = {
    "flap": ("3", "flap,at=300ms,for=1200ms", "io_outage"),
    "target-restart": ("6", "target-restart,at=300ms,for=3s", "connection_lost"),
    "duplicate-initiator": ("4", "duplicate-initiator,at=300ms,for=2500ms,every=1s", "duplicate_initiator"),
    "unreachable-portal": ("1", "unreachable-portal", "portal_unreachable"),
    "login-redirected": ("1", "login-redirected", "none"),
}
"""Seconds of the workload, the fault and the headline by name."""


@needs_root
def test_faults_of_hosts_and_logins_in_namespaces(tmp_path: Path) -> None:
    """At the same time: they mostly wait."""
    program = (sys.executable, "-m", "iscsitrace", "lab", "run", "read")
    command = (*program, "--one-way-delay", "2ms", "--rate", "20Mbit", "--block-size", "16K")
    # a card that is down shows at the tap only as the command that it interrupts: one with more data than the target
    # sends without an ACK
    options = {name: ("--block-size", "1M") if name == "flap" else ("--think-time", "20ms") for name in _NAMESPACES}
    runs = {
        name: subprocess.Popen(
            [
                *command,
                *options[name],
                "--seconds",
                seconds,
                "--fault",
                fault,
                "-o",
                str(tmp_path / name),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name, (seconds, fault, _) in _NAMESPACES.items()
    }
    said = {name: run.communicate(timeout=60)[0].decode() for name, run in runs.items()}
    assert {name: said[name] for name, run in runs.items() if run.returncode} == {}
    for name, (_, _, wanted) in _NAMESPACES.items():
        truth = json.loads((tmp_path / name / "truth.json").read_text())
        (row,) = truth["faults"]
        assert (row["name"], row["count"] > 0) == (name, True)
        assert truth["results"]["error_count"] == 0
        for tap in ("initiator", "target"):
            result = CliRunner().invoke(main, ["diagnose", "--json", str(tmp_path / name / f"{tap}.pcapng")])
            headline = json.loads(result.stdout)["headline"]
            # without a fault the hosts of a busy machine may still be what limits
            failure = headline["name"] if headline["severity"] in ("error", "data_loss") else "none"
            # what a card that is down interrupts is chance: beside the target it may be ACKs alone
            right = {wanted, "ack_loss"} if (name, tap) == ("flap", "target") else {wanted}
            assert failure in right, (name, tap, headline["text"])
    # a program that is down has no listener
    assert _times(tmp_path / "target-restart" / "initiator.pcapng", "tcp.srcport == 3260 && tcp.flags.reset == 1")
    # a card that is down hides what its host sends
    flap = json.loads((tmp_path / "flap" / "truth.json").read_text())["faults"][0]
    sent = _times(tmp_path / "flap" / "initiator.pcapng", "ip.src == 10.71.0.1")
    assert not [each for each in sent if flap["began_ns"] + _MS < each < flap["ended_ns"]]


# --- the option


def test_an_unknown_fault_is_told_every_name() -> None:
    text = CliRunner().invoke(main, ["target", "--fault", "flood"], terminal_width=4000).output
    assert [name for name in catalogue.KINDS if name not in text] == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("simulate", "read", "--fault", "flood"), "'flood' is not a fault; there are bad-header-digest"),
        (("simulate", "read", "--fault", "rst,by=3"), "rst has no detail by; it has on, at, for"),
        (("simulate", "read", "--fault", "rst,for=long"), "rst: for=long is not"),
        (("simulate", "read", "--fault", "capture-drops"), "capture-drops: not in simulated; it can be made in guests"),
        (("simulate", "read", "--fault", "black-out,on=target-2"), "black-out: there is no host 'target-2'"),
        (("simulate", "read", "--fault", "login-refused,status=1/1"), "status=1/1 is not a class and detail"),
        (("simulate", "read", "--fault", "program-paused,program=iscsid"), "our initiator has no iscsid"),
        (("simulate", "read", "--fault", "storage-errors,sectors=9-1"), "sectors=9-1 is neither all nor a range"),
        (("simulate", "read", "--fault", "storage-errors,disk=1"), "storage-errors: target has 1 disks"),
        (
            ("lab", "run", "read", "--fault", "snaplen"),
            "snaplen: not in namespaces; it can be made in guests",
        ),
        (("target", "--fault", "black-out"), "black-out: not in target"),
    ],
    ids=str,
)
def test_what_a_world_cannot_make_is_a_usage_error(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    folder = () if words[0] == "target" else ("-o", str(tmp_path / "run"))
    result = CliRunner().invoke(main, [*words, *folder])
    assert result.exit_code == 2
    assert line in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()
