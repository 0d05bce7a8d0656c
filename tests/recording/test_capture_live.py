"""Captures on veth and TAP devices under traffic: compared with tcpdump and dumpcap, killed, refused, triggered."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.lab.namespaces import EndSettings, LabNetwork, Namespace, network
from iscsitrace.lab.places import Process
from tests.support.capture_file import Record, read_records
from tests.support.lab import needs_root, plugged_in
from tests.support.programs import running

pytestmark = needs_root

TSHARK = shutil.which("tshark") or "tshark"
CAPINFOS = shutil.which("capinfos") or "capinfos"
MOUNT, UMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"
SETPRIV = shutil.which("setpriv") or "setpriv"
OURS = (sys.executable, "-m", "iscsitrace")
ENDS = {"initiator": EndSettings(), "target": EndSettings()}
MS_NS = 1_000_000
PORT = 3260


@pytest.fixture(scope="module")
def veth() -> Iterator[LabNetwork]:
    with network(ENDS, cable="veth") as made:
        yield made


@contextmanager
def target(made: LabNetwork, *options: str, port: int = PORT) -> Iterator[str]:
    """A target; yields the URL for initiators."""
    place = made["target"]
    words = ("-m", "iscsitrace", "target", "--listen", f"{place.address}:{port}", "--lun", "64M", *options)
    with place.started(sys.executable, *words, package="python3") as process:
        process.wait_until(lambda: "iscsi://" in process.log, "no target")
        found = re.search(r"iscsi://\S+", process.log)
        assert found
        yield found[0]


@pytest.fixture(scope="module")
def url(veth: LabNetwork) -> Iterator[str]:
    """The URL of a shared target."""
    with target(veth) as found:
        yield found


def traffic(made: LabNetwork, url: str, *options: str) -> None:
    words = ("-m", "iscsitrace", "initiator", "read", url, *options)
    made["initiator"].run(sys.executable, *words, package="python3", limit_s=60)


@contextmanager
def capturing(place: Namespace, *options: str | Path, interface: str = "eth0") -> Iterator[Process]:
    """Our capture, once its file is open."""
    words = ("-m", "iscsitrace", "capture", "-i", interface, *map(str, options))
    with place.started(sys.executable, *words, package="python3", stop_signal=signal.SIGINT) as process:
        process.wait_until(lambda: "writing" in process.log, "no capture")
        yield process


def stopped(process: Process, number: signal.Signals = signal.SIGINT) -> str:
    """Ends a capture; returns its last line."""
    os.kill(process.process_id, number)
    end = time.monotonic() + 5
    while process.is_running and time.monotonic() < end:
        time.sleep(0.005)
    assert not process.is_running
    return process.log.strip().splitlines()[-1]


def counts(line: str) -> dict[str, int]:
    found = re.search(r"(\d+) packets seen, (\d+) written, (\d+) dropped; (\d+) bytes in files", line)
    assert found, line
    return dict(zip(("seen", "written", "dropped", "bytes"), map(int, found.groups()), strict=True))


def content(records: list[Record]) -> list[tuple[bytes, int]]:
    """Whole packets, sorted: each socket sees packets of two CPUs in a different order."""
    return sorted((record.data, record.original_length) for record in records)


def frames_of(file: Path) -> subprocess.CompletedProcess[str]:
    """The numbers of the frames, by tshark."""
    command = [TSHARK, "-r", str(file), "-T", "fields", "-e", "frame.number"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def tcpdump(place: Namespace, file: Path) -> Iterator[None]:
    """A parallel tcpdump, which ends when it has all packets."""
    words = ("-i", "eth0", "-w", str(file), "-B", "16384", "-U", "--immediate-mode", "--time-stamp-precision=nano")
    # without its user switch, which may not write here
    with place.started(
        "tcpdump", *words, "-Z", "root", f"tcp port {PORT}", package="tcpdump", stop_signal=signal.SIGINT
    ) as process:
        process.wait_until(lambda: "listening" in process.log, "no tcpdump")
        yield
        time.sleep(0.3)


def test_one_file_and_a_ring_have_the_packets_of_tcpdump(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    place = veth["target"]
    with (
        tcpdump(place, tmp_path / "tcpdump.pcap"),
        capturing(place, "-w", tmp_path / "whole.pcapng") as whole,
        capturing(place, "-w", tmp_path / "ring.pcapng", "-b", "filesize:500", "-b", "packets:300") as ring,
    ):
        traffic(veth, url, "--block-size", "64K", "--bytes", "8M", "--queue-depth", "4")
        time.sleep(0.2)
        told = [counts(stopped(process)) for process in (whole, ring)]
    other, _ = read_records(tmp_path / "tcpdump.pcap")
    ours, link_type = read_records(tmp_path / "whole.pcapng")
    files = sorted(tmp_path.glob("ring_*.pcapng"))
    stitched = [record for file in files for record in read_records(file)[0]]
    assert link_type == 1
    assert len(ours) > 1000
    # byte by byte
    assert content(ours) == content(other)
    assert content(ours) == content(stitched)
    assert len(files) > 3
    for count in told:
        assert count["seen"] == count["written"] == len(ours)
        assert count["dropped"] == 0
    assert told[0]["bytes"] == (tmp_path / "whole.pcapng").stat().st_size
    # each socket timestamps and orders packets separately: everything else is equal
    ring_trace, whole_trace = iscsitrace.read(*files), iscsitrace.read(tmp_path / "whole.pcapng")
    names = ("initiator_task_tag", "cmd_sn", "data_bytes", "lba", "status", "is_complete")
    assert [[row[name] for name in names] for row in ring_trace.cycles.rows()] == [
        [row[name] for name in names] for row in whole_trace.cycles.rows()
    ]
    assert len(list(whole_trace.cycles.rows())) >= 128
    # two CPUs timestamp, then queue for the socket: times may be out of order by some 100 ns
    oddities = [{row["name"] for row in trace.counters.rows()} for trace in (ring_trace, whole_trace)]
    assert all(found <= {"packets_disordered"} for found in oddities)


def test_a_file_has_the_settings_of_its_capture(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    before_ns = time.time_ns()
    with capturing(veth["target"], "-w", file, "-s", "200", "--capture-comment", "why") as process:
        traffic(veth, url, "--bytes", "256K")
        time.sleep(0.2)
        count = counts(stopped(process))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (described,) = iscsitrace.read(file).inputs
    assert described["application"].startswith("iscsitrace ")
    assert described["os"].startswith("Linux ")
    assert described["hardware"]
    assert described["comments"] == ["why"]
    (interface,) = described["interfaces"]
    assert interface["name"] == "eth0"
    assert "tcp port 3260" in interface["filter"]
    assert interface["snaplen"] == 200
    assert interface["time_resolution"] == "10^-9 s"
    assert (interface["received"], interface["dropped"]) == (count["seen"], 0)
    assert before_ns < described["time_first_ns"] < described["time_last_ns"] < time.time_ns()
    records, _ = read_records(file)
    assert max(len(record.data) for record in records) == 200
    # nanoseconds that are none of microseconds
    assert any(record.time_ns % 1000 for record in records)
    # and Wireshark reads it the same
    said = subprocess.run([CAPINFOS, "-M", file], check=True, capture_output=True, text=True).stdout
    assert f"Number of packets:   {count['written']}" in said
    assert "Time precision = nanoseconds (9)" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_soon_and_cleanly(number: signal.Signals, veth: LabNetwork, tmp_path: Path) -> None:
    with capturing(veth["target"], "-w", tmp_path / "x.pcapng") as process:
        begun = time.monotonic()
        line = stopped(process, number)
        # 0.2 s, and a machine with other work
        assert time.monotonic() - begun < 1
    assert counts(line)["written"] == 0
    said = subprocess.run([CAPINFOS, tmp_path / "x.pcapng"], check=False, capture_output=True, text=True)
    assert "cut short" not in said.stderr


def test_after_kill_9_the_file_can_be_read(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    with capturing(veth["target"], "-w", file) as process:
        traffic(veth, url, "--bytes", "4M", "--block-size", "64K")
        # all that passed so far is in the file after 0.2 s, and a machine with other work
        time.sleep(0.6)
        os.kill(process.process_id, signal.SIGKILL)
    trace = iscsitrace.read(file)
    assert not trace.inputs[0]["is_cut_short"]
    cycles = [row for row in trace.cycles.rows() if row["operation"] == "read"]
    assert len(cycles) == 64
    assert all(row["is_complete"] for row in cycles)
    checked = frames_of(file)
    assert checked.returncode == 0
    assert len(checked.stdout.split()) == trace.packet_count


def test_after_kill_9_during_traffic_the_file_can_be_read(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    place = veth["initiator"]
    with capturing(veth["target"], "-w", file) as process:
        options = ("--seconds", "3", "--block-size", "256K", "--queue-depth", "4")
        words = ("-m", "iscsitrace", "initiator", "read", url, *options)
        with place.started(sys.executable, *words, package="python3"):
            process.wait_until(lambda: file.stat().st_size > 20_000_000, "no traffic")
            os.kill(process.process_id, signal.SIGKILL)
    trace = iscsitrace.read(file)
    # at most the last record is incomplete, and that is reported
    assert trace.packet_count > 1000
    tshark = frames_of(file)
    assert len(tshark.stdout.split()) == trace.packet_count


def test_standard_output_can_be_read_during_the_capture(url: str, veth: LabNetwork) -> None:
    command = veth["target"].command(*OURS, "capture", "-i", "eth0", "-w", "-", "-q", package="python3")
    with (
        running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as popen,
    ):
        assert popen.stdout is not None
        assert popen.stderr is not None
        assert select.select([popen.stdout], [], [], 5)[0], "no file header"
        header = os.read(popen.stdout.fileno(), 1 << 16)
        assert header.startswith(b"\x0a\x0d\x0d\x0a")
        traffic(veth, url, "--bytes", "64K")
        assert select.select([popen.stdout], [], [], 1)[0], "nothing within a second"
        got = header + os.read(popen.stdout.fileno(), 1 << 20)
        popen.send_signal(signal.SIGINT)
        got += popen.stdout.read()
        assert popen.wait(5) == 0
        assert popen.stderr.read() == b""
    trace = iscsitrace.read(got)
    assert sum(row["operation"] == "read" for row in trace.cycles.rows()) >= 1
    assert not trace.inputs[0]["is_cut_short"]


def test_a_closed_reader_ends_it(url: str, veth: LabNetwork) -> None:
    command = veth["target"].command(*OURS, "capture", "-i", "eth0", "-w", "-", "-q", package="python3")
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as popen:
        assert popen.stdout is not None
        assert popen.stderr is not None
        popen.stdout.read(16)
        popen.stdout.close()
        traffic(veth, url, "--bytes", "1M")
        assert popen.wait(5) == 0
        assert popen.stderr.read() == b""


def test_a_blocked_reader_does_not_prevent_its_end(url: str, veth: LabNetwork) -> None:
    command = veth["target"].command(*OURS, "capture", "-i", "eth0", "-w", "-", package="python3")
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as popen:
        assert popen.stdout is not None
        popen.stdout.read(16)
        # far more than a pipe holds
        traffic(veth, url, "--bytes", "8M", "--block-size", "64K")
        begun = time.monotonic()
        popen.send_signal(signal.SIGINT)
        popen.wait(5)
        assert time.monotonic() - begun < 1.5


def test_a_fifo_needs_no_force(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ("-m", "iscsitrace", "capture", "-i", "eth0", "-w", str(fifo))
    with veth["target"].started(sys.executable, *words, package="python3") as process:
        with fifo.open("rb") as reader:
            process.wait_until(lambda: "writing" in process.log, "no capture")
            traffic(veth, url, "--bytes", "64K")
            time.sleep(0.3)
            os.kill(process.process_id, signal.SIGTERM)
            got = reader.read()
        process.wait_until(lambda: "packets seen" in process.log, "no end")
    assert sum(row["operation"] == "read" for row in iscsitrace.read(got).cycles.rows()) >= 1


def test_drops_because_of_a_slow_reader_are_reported(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    command = veth["target"].command(*OURS, "capture", "-i", "eth0", "-w", "-", "-B", "1", package="python3")
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as log,
        running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)) as popen,
    ):
        assert popen.stdout is not None
        got = popen.stdout.read(16)
        # without a reader the pipe fills, then the kernel's buffer of 1 MiB
        traffic(veth, url, "--bytes", "16M", "--block-size", "64K")
        time.sleep(0.7)
        popen.send_signal(signal.SIGINT)
        got += popen.stdout.read()
        code = popen.wait(5)
    said = errors.read_text()
    count = counts(said.strip().splitlines()[-1])
    assert code == 1
    assert count["dropped"] > 1000
    assert f"{count['dropped']} in total" in said
    assert count["seen"] >= count["dropped"] + count["written"]


def test_a_full_disk_ends_it_and_its_files_are_valid(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    try:
        file = disk / "x.pcapng"
        words = ("-m", "iscsitrace", "capture", "-i", "eth0", "-w", str(file))
        with veth["target"].started(sys.executable, *words, package="python3") as process:
            process.wait_until(lambda: "writing" in process.log, "no capture")
            traffic(veth, url, "--bytes", "8M", "--block-size", "64K")
            end = time.monotonic() + 5
            while process.is_running and time.monotonic() < end:
                time.sleep(0.01)
            said = process.log
            assert process._popen.returncode == 2
        assert f"cannot write {file}: No space left on device" in said
        trace = iscsitrace.read(file)
        assert not trace.inputs[0]["is_cut_short"]
        assert trace.packet_count == counts(said.strip().splitlines()[-1])["written"] > 100
    finally:
        subprocess.run([UMOUNT, disk], check=True)


def dropped_so_far(capture: bytes) -> int:
    """isb_ifdrop of the last whole Interface Statistics Block of a pcapng file; 0 without one."""
    dropped = at = 0
    while at + 8 <= len(capture):
        kind, length = struct.unpack_from("<II", capture, at)
        if kind == 5 and at + length <= len(capture):
            options = capture[at + 20 : at + length - 4]
            while (code := int.from_bytes(options[:2], "little")) != 0:
                size = int.from_bytes(options[2:4], "little")
                if code == 5:
                    dropped = int.from_bytes(options[4:12], "little")
                options = options[4 + size + -size % 4 :]
        at += length
    return dropped


def test_the_reader_of_a_pipe_learns_of_drops_before_the_end(url: str, veth: LabNetwork) -> None:
    command = veth["target"].command(*OURS, "capture", "-q", "-i", "eth0", "-w", "-", "-B", "1", package="python3")
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)) as popen:
        assert popen.stdout is not None
        got = popen.stdout.read(16)
        # nobody reads: the pipe fills, then the kernel's buffer of 1 MiB
        traffic(veth, url, "--bytes", "16M", "--block-size", "64K")
        os.set_blocking(popen.stdout.fileno(), False)
        end = time.monotonic() + 10
        while not (dropped := dropped_so_far(got)) and time.monotonic() < end:
            got += popen.stdout.read() or b""
            time.sleep(0.05)
        is_running = popen.poll() is None
        popen.kill()
    assert is_running
    assert dropped > 1000


@pytest.mark.parametrize(
    ("options", "count"), [("-c 100", 100), ("-a packets:100", 100), ("-b packets:30 -a files:2", 60)]
)
def test_limits(url: str, options: str, count: int, veth: LabNetwork, tmp_path: Path) -> None:
    with capturing(veth["target"], "-w", tmp_path / "x.pcapng", *options.split()) as process:
        traffic(veth, url, "--bytes", "2M")
        process.wait_until(lambda: "packets seen" in process.log, "no end")
    files = sorted(tmp_path.iterdir())
    assert sum(len(read_records(file)[0]) for file in files) == count


def test_several_interfaces_go_into_one_file(tmp_path: Path) -> None:
    ends = {name: EndSettings() for name in ("initiator", "near", "far")}
    file = tmp_path / "x.pcapng"
    with network(ends, cable="veth", cables=[("initiator", "near"), ("initiator", "far")]) as made:
        place = made["initiator"]
        names = [interface.name for interface in place.interfaces]
        with (
            place.call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw,
            capturing(place, "-i", names[1], "-f", "ether proto 0x88b5", "-w", file, interface=names[0]) as process,
        ):
            for name, content_ in zip(names, (b"first", b"other"), strict=True):
                raw.bind((name, 0))
                raw.send(bytes(12) + b"\x88\xb5" + content_ + bytes(50))
            time.sleep(0.2)
            # one that goes ends the capture, and the file is whole
            place.run("ip", "link", "delete", names[1], package="iproute2")
            end = time.monotonic() + 5
            while process.is_running and time.monotonic() < end:
                time.sleep(0.01)
            said = process.log
    assert len(names) == 2
    assert f"the capture ended: {names[1]}: " in said
    assert counts(said.strip().splitlines()[-1])["written"] == 2
    (described,) = iscsitrace.read(file).inputs
    assert [interface["name"] for interface in described["interfaces"]] == names
    assert [interface["received"] for interface in described["interfaces"]] == [1, 1]
    assert sorted(record.data[14:19] for record in read_records(file)[0]) == [b"first", b"other"]


@pytest.mark.parametrize("interface", ["lo", "any"])
def test_packets_seen_twice_on_the_loopback_device_count_once(interface: str, veth: LabNetwork, tmp_path: Path) -> None:
    place = veth["target"]
    file = tmp_path / "x.pcapng"
    with (
        place.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender,
        capturing(place, "-f", "udp port 7777", "-w", file, interface=interface) as process,
    ):
        for _ in range(300):
            sender.sendto(b"x", ("127.0.0.1", 7777))
        count = counts(stopped(process))
    assert (count["seen"], count["written"], count["dropped"]) == (300, 300, 0)


def test_drops_on_the_loopback_device_count_once(veth: LabNetwork, tmp_path: Path) -> None:
    """Packets that arrive while the capture stands still, and more than its buffer holds."""
    place, sent = veth["target"], 5000
    with (
        place.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender,
        capturing(place, "-f", "udp port 7777", "-B", "1", "-w", tmp_path / "x.pcapng", interface="lo") as process,
    ):
        os.kill(process.process_id, signal.SIGSTOP)
        for _ in range(sent):
            sender.sendto(bytes(1000), ("127.0.0.1", 7777))
        os.kill(process.process_id, signal.SIGCONT)
        time.sleep(0.7)
        count = counts(stopped(process))
    assert count["seen"] == count["written"] + count["dropped"] == sent
    assert 0 < count["written"] < sent


def test_a_duration_ends_it(veth: LabNetwork, tmp_path: Path) -> None:
    begun = time.monotonic()
    with capturing(veth["target"], "-w", tmp_path / "x.pcapng", "-a", "duration:0.5") as process:
        process.wait_until(lambda: "packets seen" in process.log, "no end")
    assert 0.5 < time.monotonic() - begun < 8


def test_tagged_packets_pass_the_default_filter(veth: LabNetwork, tmp_path: Path) -> None:
    """Tagged frames come from a raw socket, because not every kernel has VLAN devices; the receiver strips a tag."""
    file = tmp_path / "x.pcapng"
    initiator, others = veth["initiator"], veth["target"]
    hardware = b"".join(
        bytes.fromhex(place.interfaces[0].hardware_address.replace(":", "")) for place in (others, initiator)
    )
    ends = b"".join(socket.inet_aton(place.address) for place in (initiator, others))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + ends
    frames = [
        hardware + tags + b"\x08\x00" + ip + struct.pack(">HHIIBBHHH", 50_000, port, 1, 1, 0x50, 0x10, 100, 0, 0)
        for tags in (b"", b"\x81\x00\x00\x07", b"\x88\xa8\x00\x09\x81\x00\x00\x07")
        for port in (3260, 860, 5000)
    ]
    with capturing(others, "-w", file) as process:
        with initiator.call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw:
            raw.bind(("eth0", 0))
            for frame in frames:
                raw.send(frame)
        time.sleep(0.2)
        stopped(process)
    found = [
        record.data[: 54 + 4 * tags]
        for record in read_records(file)[0]
        for tags in [record.data.find(b"\x08\x00\x45", 12) // 4 - 3]
    ]
    sent = [frame for frame in frames if frame[-18:-16] != struct.pack(">H", 5000)]
    # resets that the receiver answers with are none of these
    assert [frame for frame in found if frame[:6] == hardware[:6]] == sent


def test_portals_on_other_ports_are_found(veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    with (
        target(veth, port=5000) as url,
        capturing(veth["target"], "-w", file, "--learn-every", "1s") as process,
    ):
        words = ("-m", "iscsitrace", "initiator", "read", url, "--seconds", "3", "--block-size", "4K")
        with veth["initiator"].started(sys.executable, *words, package="python3"):
            portal = f"{veth['target'].address}:5000"
            process.wait_until(lambda: f"found iSCSI at {portal}" in process.log, "no portal", limit_s=10)
            time.sleep(0.5)
        count = counts(stopped(process))
    assert count["written"] > 100
    trace = iscsitrace.read(file)
    (connection,) = trace.connections.rows()
    assert connection["is_iscsi"]
    assert sum(row["is_complete"] for row in trace.cycles.rows()) > 20


def test_a_trigger_keeps_the_time_around_a_delayed_status(veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    fault = ("--fault", "delayed-status,nth=200,operation=read,by=300ms")
    options = ("--trigger", "latency>250ms", "--before", "10ms", "--after", "10ms")
    with target(veth, *fault, port=860) as url, capturing(veth["target"], "-w", file, *options) as process:
        traffic(veth, url, "--block-size", "4K", "--bytes", "16M")
        time.sleep(0.2)
        line = stopped(process)
        said = process.log
    count = counts(line)
    assert "1 command met the trigger" in line
    assert "latency>250ms: read of 4096 bytes at LBA" in said
    assert 0 < count["written"] < count["seen"]
    trace = iscsitrace.read(file)
    slow = [row for row in trace.cycles.rows() if (row["latency_ns"] or 0) > 250 * MS_NS]
    assert len(slow) == 1
    assert next(iter(trace.sessions.rows()))["is_login_captured"]
    # with the time before it and after it
    times = [record.time_ns for record in read_records(file)[0]]
    (row,) = slow
    # a host may stall for some of it: several commands are in each
    assert sum(row["command_first_ns"] - 10 * MS_NS <= at < row["command_first_ns"] for at in times) >= 10
    assert sum(row["status_ns"] < at <= row["status_ns"] + 10 * MS_NS for at in times) >= 10


def test_a_silent_hang_is_found_within_a_second_of_its_limit(veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    fault = ("--fault", "delayed-status,nth=50,operation=read,by=4s")
    options = ("--trigger", "no_progress>1s", "--before", "10ms", "--after", "10ms")
    with target(veth, *fault, port=860) as url, capturing(veth["target"], "-w", file, *options) as process:
        traffic(veth, url, "--block-size", "4K", "--queue-depth", "1", "--bytes", "1M")
        stopped(process)
        said = process.log
    # by the clock, and then by its end
    (open_ms,) = re.findall(r"has not ended after (\d+)\.\d+ ms", said)
    assert 1000 < int(open_ms) < 2000
    (ended_ms,) = re.findall(r"took (\d+)\.\d+ ms, no progress for", said)
    assert 3900 < int(ended_ms) < 5000


def test_on_a_tap(tmp_path: Path) -> None:
    with (
        network(ENDS, cable="tap") as made,
        plugged_in(made.cables[0]),
        target(made) as url,
        tcpdump(made["target"], tmp_path / "tcpdump.pcap"),
        capturing(made["target"], "-w", tmp_path / "x.pcapng") as process,
    ):
        traffic(made, url, "--block-size", "64K", "--bytes", "2M")
        time.sleep(0.2)
        count = counts(stopped(process))
    ours = read_records(tmp_path / "x.pcapng")[0]
    assert content(ours) == content(read_records(tmp_path / "tcpdump.pcap")[0])
    assert count["seen"] == count["written"] == len(ours)


def test_through_dumpcap(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    with capturing(veth["target"], "-w", file, "--dumpcap", "always") as process:
        time.sleep(0.7)  # dumpcap says nothing when it is ready
        traffic(veth, url, "--block-size", "64K", "--bytes", "1M")
        time.sleep(0.7)
        count = counts(stopped(process))
    assert count["seen"] == count["written"] == len(read_records(file)[0]) > 16
    assert sum(row["operation"] == "read" for row in iscsitrace.read(file).cycles.rows()) == 16


def test_one_capability_is_enough(tmp_path: Path) -> None:
    command = [
        *OURS,
        "capture",
        "-i",
        "lo",
        "-a",
        "duration:0.1",
        "-w",
        str(tmp_path / "x.pcapng"),
        "--dumpcap",
        "never",
    ]
    only = ["--bounding-set=-all,+net_raw", "--inh-caps=-all", "--"]
    said = subprocess.run([SETPRIV, *only, *command], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "packets seen" in said.stderr


def test_missing_permission_is_reported_with_advice(veth: LabNetwork, tmp_path: Path) -> None:
    command = [*OURS, "capture", "-i", "lo", "-w", str(tmp_path / "x.pcapng"), "--dumpcap", "never"]
    tmp_path.chmod(0o777)
    said = subprocess.run(
        [SETPRIV, "--bounding-set=-net_raw", "--", *command], capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    assert re.fullmatch(
        r"iscsitrace: no permission to capture on lo: run it as root, .*iscsitrace docs capture permission.*\n",
        said.stderr,
    )
    assert not (tmp_path / "x.pcapng").exists()


def test_the_advice_on_live_traffic_equals_that_on_the_file(url: str, veth: LabNetwork, tmp_path: Path) -> None:
    with capturing(veth["target"], "-w", tmp_path / "x.pcapng") as process:
        words = ("-m", "iscsitrace", "initiator", "read", url, "--seconds", "2", "--block-size", "8K")
        with veth["initiator"].started(sys.executable, *words, package="python3"):
            live = ("-m", "iscsitrace", "capture", "-i", "eth0", "-s", "advise", "-a", "duration:0.5", "--json")
            found = veth["target"].run(sys.executable, *live, package="python3")
        stopped(process)
    advice: dict[str, Any] = json.loads(found.output)
    again = ("-m", "iscsitrace", "capture", "-r", str(tmp_path / "x.pcapng"), "-s", "advise", "--json")
    of_file = json.loads(veth["target"].run(sys.executable, *again, package="python3").output)
    assert advice["pdu_count"] > 100
    # the file has the login, too; both have the same layout
    assert advice["headers_snaplen"] <= of_file["headers_snaplen"]
    assert 14 + 20 + 20 + 48 <= advice["headers_snaplen"] <= 1514


def test_interfaces_shows_where_iscsi_is(url: str, veth: LabNetwork) -> None:
    words = ("-m", "iscsitrace", "initiator", "read", url, "--seconds", "3", "--block-size", "4K")
    with veth["initiator"].started(sys.executable, *words, package="python3"):
        portal = {"address": veth["target"].address, "port": PORT, "is_local": False, "connection_count": 1}
        end = time.monotonic() + 3
        while True:
            asked = ("-m", "iscsitrace", "interfaces", "--json")
            document = json.loads(veth["initiator"].run(sys.executable, *asked, package="python3").output)
            (eth0,) = [each for each in document["interfaces"] if each["name"] == "eth0"]
            if eth0["portals"] or time.monotonic() > end:
                break
        assert eth0["portals"] == [portal]
    assert eth0["can_capture"]
    assert eth0["link_types"][0] == 1
