"""Samples of TCP_INFO in captures: as `ss` shows them, on loopback and veth, in rings, cheap, and read again."""

from __future__ import annotations

import json
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.lab.namespaces import LabNetwork, network
from tests.lab.test_lab_recording import connected, transfer
from tests.recording.test_capture_live import ENDS, TSHARK, capturing, counts, stopped, target, traffic
from tests.support.lab import needs_root
from tests.support.programs import running

pytestmark = needs_root

SS = shutil.which("ss") or "ss"
WHOLE = ("mss", "cwnd", "ssthresh", "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received", "snd_wnd")
TIMES = ("busy", "rwnd_limited", "sndbuf_limited")


@pytest.fixture(scope="module")
def veth() -> Iterator[LabNetwork]:
    with network(ENDS, cable="veth") as made:
        yield made


def values_of(line: str) -> dict[str, float | str]:
    """What a line of `ss` says; what it leaves out is zero."""
    words = dict(re.findall(r"\b(\w+):([\d.]+)", line))
    found: dict[str, float | str] = {name: float(words.get(name, 0)) for name in (*WHOLE, *TIMES, "minrtt", "unacked")}
    rtt = re.search(r" rtt:([\d.]+)/([\d.]+)", line)
    found |= {"rtt": float(rtt[1]) if rtt else "", "rttvar": float(rtt[2]) if rtt else ""}
    retransmitted = re.search(r"retrans:\d+/(\d+)", line)
    rate = re.search(r"delivery_rate (\d+)bps", line)
    # iproute2 has ssthresh only below 65535
    return found | {
        "retrans": retransmitted[1] if retransmitted else "0",
        "delivery_rate": float(rate[1]) // 8 if rate else 0,
        "control": "cubic" if " cubic " in line else "reno" if " reno " in line else "",
    }


def ends_of(line: str) -> tuple[str, str]:
    found = re.findall(r"\[?([\da-f.:]+?)\]?:(\d+)(?=\s)", line)
    return f"{found[0][0]}:{found[0][1]}", f"{found[1][0]}:{found[1][1]}"


def messages(file: Path) -> list[tuple[float, str]]:
    """Time and message of each frame that tshark shows as an entry of the journal."""
    command = [TSHARK, "-r", str(file), "-Y", "systemd_journal", "-T", "fields"]
    command += ["-e", "frame.time_epoch", "-e", "systemd_journal.message"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(float(line.split("\t")[0]), line.split("\t")[1]) for line in lines]


def assert_equal_to(shown: str, file: Path) -> None:
    """The last sample of each socket says what `ss` said of it after its last byte."""
    sockets = [line for line in shown.splitlines() if line.startswith("ESTAB")]
    assert sockets
    samples = {ends_of(f"{text} "): text for _, text in messages(file)}
    for line in sockets:
        assert values_of(samples[ends_of(line)]) == values_of(line)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_samples_on_loopback_equal_those_of_ss(address: str, tmp_path: Path) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        words = ("-i", "lo", "-f", f"tcp port {port}", "-w", tmp_path / "lo.pcapng", "--tcp-info", "20ms")
        process = subprocess.Popen(
            [sys.executable, "-m", "iscsitrace", "capture", *map(str, words)], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert "writing" in process.stderr.readline()
        with socket.create_connection((address, port)) as out, server.accept()[0] as into:
            for _ in range(50):
                out.sendall(bytes(20_000))
                left = 20_000
                while left:
                    left -= len(into.recv(left))
            time.sleep(0.8)
            shown = subprocess.run(
                [SS, "-tinOH", f"sport = :{port} or dport = :{port}"], capture_output=True, text=True, check=True
            )
            process.terminate()
            _, told = process.communicate(timeout=10)
    assert "samples of TCP_INFO" in told
    assert_equal_to(shown.stdout, tmp_path / "lo.pcapng")


@pytest.mark.parametrize("is_v6", [False, True], ids=["IPv4", "IPv6"])
def test_samples_on_veth_equal_those_of_ss(is_v6: bool, veth: LabNetwork, tmp_path: Path) -> None:
    initiator, far = veth["initiator"], veth["target"]
    address = far.address_v6 if is_v6 else far.address
    assert address is not None
    # the default filter: TCP ports 3260 and 860
    with capturing(far, "-w", tmp_path / "veth.pcapng", "--tcp-info", "20ms") as process:
        with connected(initiator, address, far) as (out, into):
            transfer(out, into, 3_000_000)
            transfer(into, out, 700_000)
            time.sleep(0.8)
            shown = far.run("ss", "-tinOH", package="iproute2").output
        stopped(process)
    assert_equal_to(shown, tmp_path / "veth.pcapng")


def test_samples_are_read_with_the_packets_beside_them(veth: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "veth.pcapng"
    with target(veth) as url, capturing(veth["target"], "-s", "200", "-w", file, "--tcp-info", "5ms") as process:
        # a new socket is found within half a second
        traffic(veth, url, "--block-size", "64K", "--bytes", "400M")
        told = stopped(process)
    assert "samples of TCP_INFO" in told
    trace = iscsitrace.read(file, tables=("tcp_info", "senders", "budget"))
    samples = trace.tcp_info
    # the target's socket sends to the initiator; the initiator's is in another namespace
    assert len(samples) >= 5
    assert not samples["to_target"].any()
    assert (samples["source"] == 0).all()
    assert int(samples["bytes_sent"].max()) > 8 << 20
    row = next(row for row in trace.senders.rows() if not row["to_target"])
    assert 0 < row["kernel_busy_ns"] <= samples["busy_ns"].max()
    # frames are numbered as Wireshark does
    fields = subprocess.run(
        [TSHARK, "-r", str(file), "-Y", "iscsi.opcode == 0x01", "-T", "fields", "-e", "frame.number"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {int(each) for each in fields.stdout.split()} == set(trace.cycles["command_frame"].tolist())


def test_the_files_of_a_ring_have_the_samples_of_their_time(veth: LabNetwork, tmp_path: Path) -> None:
    initiator, far = veth["initiator"], veth["target"]
    assert far.address is not None
    words = ("-w", tmp_path / "r.pcapng", "-b", "filesize:200", "--tcp-info", "10ms")
    with capturing(far, *words) as process:
        with connected(initiator, far.address, far) as (out, into):
            # a new socket is found within half a second
            time.sleep(0.7)
            for _ in range(100):
                transfer_quickly(out, into, 20_000)
                time.sleep(0.02)
        seen = counts(stopped(process))
    files = sorted(tmp_path.glob("r_*.pcapng"))
    assert len(files) > 5
    assert seen["dropped"] == 0
    times = [[at for at, _ in messages(file)] for file in files]
    assert sum(map(len, times)) > 50
    # every file has those of its time: the last one may have been about to begin
    assert all(times[:-1])
    joined = [at for each in times for at in each]
    assert joined == sorted(joined)
    # no sample of the 2 s is missing between files
    assert max(second - first for first, second in pairwise(joined)) < 1.2


def transfer_quickly(out: socket.socket, into: socket.socket, size: int) -> None:
    """Sends this many bytes, and returns when all have arrived."""
    out.sendall(bytes(size))
    left = size
    while left:
        left -= len(into.recv(left))


def test_a_look_at_a_hundred_busy_sockets_costs_less_than_a_third_of_what_ss_does(tmp_path: Path) -> None:
    """Twenty looks a second: about a hundredth of a core."""
    seconds = 8

    def cpu_s(interval: str | None) -> tuple[float, int]:
        """CPU time of a capture while bytes flow on every connection, and its samples."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ("capture", "-i", "lo", "-f", f"tcp port {port}", "-w", str(tmp_path / "x.pcapng"), "--force", "--json")
        command = [sys.executable, "-m", "iscsitrace", *words, "-a", f"duration:{seconds}"]
        command += ["--tcp-info", interval] if interval else []
        with running(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ) as process:
            while process.poll() is None:
                for out, into in pairs:
                    transfer_quickly(out, into, 100)
                time.sleep(0.03)
            assert process.stdout is not None
            told = json.loads(process.stdout.read())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return spent, told["progress"]["tcp_info_count"]

    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        port = server.getsockname()[1]
        pairs = []
        # both sockets of a connection are on this host
        for _ in range(50):
            out = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            pairs.append((out, stack.enter_context(server.accept()[0])))
        # the start of Python and the packets cost many times what the samples do: so it is the slope from 50 to 10 ms
        runs = [(cpu_s("50ms"), cpu_s("10ms")) for _ in range(3)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(100):
            words = ["ss", "-tinOH", f"sport = :{port}"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ss_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 100
    # each socket changed in each round of traffic
    assert all(often[1] > seldom[1] > 100 * 10 * (seconds - 1) for seldom, often in runs)
    look_s = [(often[0] - seldom[0]) / seconds / (100 - 20) for seldom, often in runs]
    assert sorted(look_s)[1] < ss_s / 3, (look_s, ss_s)
