"""Captures have every packet, and TCP_INFO has the same values as `ss`."""

from __future__ import annotations

import random
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iscsitrace.errors import OutputExists, ToolMissing
from iscsitrace.lab.namespaces import EndSettings, LabNetwork, Namespace, network
from iscsitrace.lab.recording import capturing, sampling
from iscsitrace.lab.sock_diag import SockDiag, tcp_info_of, unpack_tcp_info
from tests.support import tshark
from tests.support.lab import needs_root

# a window that the kernel's backlog holds: otherwise a veth pair loses packets
SETTINGS = EndSettings(congestion_control="reno", tcp_rmem_bytes=(4096, 131_072, 524_288))
ENDS = {"initiator": SETTINGS, "target": SETTINGS}
PORT = 3260


@pytest.fixture
def made() -> Iterator[LabNetwork]:
    with network(ENDS, cable="veth") as each:
        yield each


@contextmanager
def connected(near: Namespace, address: str, far: Namespace) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection from one namespace to another, both its sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with far.call(lambda: socket.create_server((address, PORT), family=family)) as server:
        server.settimeout(5)
        with near.call(lambda: socket.create_connection((address, PORT), timeout=5)) as out:
            accepted, _ = server.accept()
            with accepted:
                accepted.settimeout(5)
                yield out, accepted


def transfer(out: socket.socket, into: socket.socket, size: int) -> None:
    """Sends this many bytes, and returns when all have arrived and been acknowledged."""
    thread = threading.Thread(target=out.sendall, args=(bytes(size),))
    thread.start()
    left = size
    while left:
        left -= len(into.recv(min(left, 1 << 20)))
    thread.join()
    time.sleep(0.1)


def packet_count_of(place: Namespace) -> int:
    """Packets that eth0 has sent and received."""
    for line in place.run("cat", "/proc/net/dev", package="coreutils").output.splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split()[2]) + int(line.split()[10])
    raise AssertionError("no eth0")


@needs_root
def test_a_capture_has_all_packets_up_to_its_end(made: LabNetwork, tmp_path: Path) -> None:
    file = tmp_path / "ping.pcapng"
    with capturing(made["target"], "eth0", file, capture_filter="icmp") as capture:
        before = packet_count_of(made["target"])
        words = ("-q", "-c", "100", "-i", "0.005", made["target"].address)
        said = made["initiator"].run("ping", *words, package="iputils-ping").output
        # an IPv6 announcement may pass, too
        assert packet_count_of(made["target"]) - before >= 200
    assert "100 received" in said
    assert (capture.packet_count, capture.dropped_count) == (200, 0)
    assert len(tshark.frame_numbers(file, "icmp")) == 200
    command = ["capinfos", str(file)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "nanoseconds (9)" in shown
    with pytest.raises(OutputExists), capturing(made["target"], "eth0", file):
        pass


@needs_root
def test_captures_at_both_ends_of_a_transfer(made: LabNetwork, tmp_path: Path) -> None:
    size = 8 << 20
    initiator, target = made["initiator"], made["target"]
    with (
        capturing(initiator, "eth0", tmp_path / "initiator.pcapng", capture_filter="tcp", snaplen_bytes=96) as near,
        capturing(target, "eth0", tmp_path / "target.pcapng", capture_filter="tcp") as far,
        connected(initiator, target.address, target) as (out, into),
    ):
        transfer(out, into, size)
        # a tail loss probe at most
        info = tcp_info_of(out.fileno())
    for capture in (near, far):
        assert capture.dropped_count == 0
        fields = tshark.run(
            *(capture.file, "-Y", f"tcp.dstport == {PORT}", "-T", "fields"),
            *("-e", "tcp.len", "-e", "frame.len", "-e", "frame.cap_len"),
        )
        rows = [tuple(map(int, line.split())) for line in fields.splitlines()]
        assert sum(row[0] for row in rows) == size + int(info["bytes_retrans"])
        # what a wire carries, nothing that a kernel has put together
        assert max(row[1] for row in rows) == 1514
        assert max(row[2] for row in rows) == (96 if capture is near else 1514)
    assert near.packet_count == far.packet_count


@needs_root
def test_a_capture_that_fails(made: LabNetwork, tmp_path: Path) -> None:
    with (
        pytest.raises(ToolMissing, match="dumpcap ended with exit code"),
        capturing(made["target"], "eth7", tmp_path / "one.pcapng"),
    ):
        pass
    with (
        pytest.raises(ToolMissing, match="dumpcap ended with exit code"),
        capturing(made["target"], "eth0", tmp_path / "two.pcapng", capture_filter="no such filter"),
    ):
        pass

    def run() -> None:
        with capturing(made["target"], "eth0", tmp_path / "three.pcapng"):
            assert dumpcaps() == 1
            raise RuntimeError("in the middle of it")

    def dumpcaps() -> int:
        listed = ["ip", "netns", "pids", str(made["target"].namespace)]
        running = subprocess.run(listed, check=True, capture_output=True, text=True, timeout=10).stdout
        return len(running.split())

    with pytest.raises(RuntimeError, match="middle"):
        run()
    assert dumpcaps() == 0


def ss(place: Namespace, *options: str) -> str:
    """What ss shows of the one established connection there."""
    return place.run("ss", "-Htinm", "state", "established", *options, package="iproute2").output


SS_WORDS = {
    "rto": ("rto_ns", 1e6),
    "mss": ("snd_mss_bytes", 1),
    "rcvmss": ("rcv_mss_bytes", 1),
    "advmss": ("advmss_bytes", 1),
    "pmtu": ("pmtu_bytes", 1),
    "cwnd": ("snd_cwnd_segments", 1),
    "bytes_sent": ("bytes_sent", 1),
    "bytes_acked": ("bytes_acked", 1),
    "bytes_received": ("bytes_received", 1),
    "segs_out": ("segs_out", 1),
    "segs_in": ("segs_in", 1),
    "data_segs_out": ("data_segs_out", 1),
    "minrtt": ("min_rtt_ns", 1e6),
    "rcv_space": ("rcv_space_bytes", 1),
    "rcv_ssthresh": ("rcv_ssthresh_bytes", 1),
    "delivered": ("delivered_segments", 1),
    "ato": ("ato_ns", 1e6),
    "snd_wnd": ("snd_wnd_bytes", 1),
}
"""Name in ss -> our name, and the factor to our unit (ss has milliseconds)."""


@needs_root
@pytest.mark.parametrize("is_v6", [False, True], ids=["IPv4", "IPv6"])
def test_tcp_info_equals_the_output_of_ss(is_v6: bool, made: LabNetwork) -> None:
    initiator, target = made["initiator"], made["target"]
    address = target.address_v6 if is_v6 else target.address
    assert address is not None
    with connected(initiator, address, target) as (out, into):
        transfer(out, into, 300_000)
        transfer(into, out, 7_000)
        for place, connection in ((initiator, out), (target, into)):
            with SockDiag(place) as diagnosis:
                (asked,) = diagnosis.connections()
            shown = ss(place)
            info = tcp_info_of(connection.fileno())
            values = dict(re.findall(r"\b(\w+):([\d.]+)", shown))
            compared = 0
            for word, (name, factor) in SS_WORDS.items():
                if word in values:
                    assert info[name] == round(float(values[word]) * factor), word
                    assert asked[name] == info[name], word
                    compared += 1
            assert compared >= len(SS_WORDS) - 3
            rtt, rttvar = values["rtt"], shown.split(" rtt:")[1].split()[0].split("/")[1]
            assert info["rtt_ns"] == round(float(rtt) * 1e6)
            assert info["rttvar_ns"] == round(float(rttvar) * 1e6)
            assert (info["state"], asked["congestion_control"]) == ("established", "reno")
            assert f"wscale:{info['snd_wscale']},{info['rcv_wscale']}" in shown
            # skmem:(r<rmem_alloc>,rb<rcv_buf>,t<wmem_alloc>,tb<snd_buf>,...
            assert f"rb{asked['receive_buffer_bytes']}," in shown
            assert f"tb{asked['send_buffer_bytes']}," in shown
            local, remote = connection.getsockname(), connection.getpeername()
            assert (asked["local_address"], asked["local_port"]) == local[:2]
            assert (asked["remote_address"], asked["remote_port"]) == remote[:2]
        # and what was really sent: a late ACK makes the kernel probe with a segment it has sent before
        sent = tcp_info_of(out.fileno())
        assert int(sent["bytes_sent"]) - int(sent["bytes_retrans"]) == 300_000
        assert tcp_info_of(into.fileno())["bytes_received"] == 300_000
        assert tcp_info_of(into.fileno())["bytes_acked"] == 7_000


KERNEL_NAMES = {
    **{name: name for name in ("state", "ca_state", "retransmits", "probes", "backoff", "options")},
    **{name: name for name in ("segs_out", "segs_in", "data_segs_in", "data_segs_out", "dsack_dups", "reord_seen")},
    **{name: name for name in ("bytes_acked", "bytes_received", "bytes_sent", "bytes_retrans", "notsent_bytes")},
    **{f"{name}_bytes": name for name in ("snd_mss", "rcv_mss", "pmtu", "rcv_ssthresh", "advmss", "rcv_space")},
    **{f"{name}_segments": name for name in ("unacked", "sacked", "lost", "retrans", "fackets", "snd_ssthresh")},
    **{f"{name}_segments": name for name in ("snd_cwnd", "reordering", "total_retrans", "delivered", "delivered_ce")},
    **{f"{name}_bytes_per_s": name for name in ("pacing_rate", "max_pacing_rate", "delivery_rate")},
    "snd_wnd_bytes": "snd_wnd",
    "rcv_ooopack_segments": "rcv_ooopack",
}
MICROSECONDS = ("rto", "ato", "rtt", "rttvar", "rcv_rtt", "min_rtt", "busy_time", "rwnd_limited", "sndbuf_limited")
MILLISECONDS = ("last_data_sent", "last_ack_sent", "last_data_recv", "last_ack_recv")


def test_every_field_has_the_offset_of_the_kernels_header(tmp_path: Path) -> None:
    names = KERNEL_NAMES | {f"{name}_ns": name for name in (*MICROSECONDS, *MILLISECONDS)}
    source = tmp_path / "layout.c"
    printed = "\n".join(
        f'printf("%zu %zu\\n", offsetof(struct tcp_info, tcpi_{name}), sizeof(((struct tcp_info *)0)->tcpi_{name}));'
        for name in names.values()
    )
    includes = "#include <linux/tcp.h>\n#include <stddef.h>\n#include <stdio.h>\n"
    source.write_text(f"{includes}int main(void) {{\n{printed}\nreturn 0; }}\n")
    program = tmp_path / "layout"
    command = ["gcc", "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=60)
    shown = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=10).stdout
    random.seed(7143)
    data = bytearray(512)
    expected: dict[str, int | str] = {}
    for (ours, kernels), line in zip(names.items(), shown.splitlines(), strict=True):
        offset, size = map(int, line.split())
        value = 8 if kernels == "state" else random.randrange(1, 100)  # noqa: S311 -- content, no secret
        struct.pack_into({1: "=B", 4: "=I", 8: "=Q"}[size], data, offset, value)
        factor = 1_000 if kernels in MICROSECONDS else 1_000_000 if kernels in MILLISECONDS else 1
        expected[ours] = "close_wait" if kernels == "state" else value * factor
    read = unpack_tcp_info(bytes(data))
    assert {name: read.get(name) for name in expected} == expected
    # of these every one is compared but the two window scales, one flag, and what headers of 2022 have not
    assert set(read) - set(expected) == {"snd_wscale", "rcv_wscale", "is_delivery_rate_app_limited", "rcv_wnd_bytes"}
    # an older kernel's struct is a beginning of it: nothing else changes
    for length in range(len(data)):
        part = unpack_tcp_info(bytes(data[:length]))
        assert part.items() <= read.items()
    assert unpack_tcp_info(b"") == {}
    assert "min_rtt_ns" not in unpack_tcp_info(b"\xff" * 512)


def test_a_descriptor_of_the_caller_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tcp_info_of(server.fileno())["state"] == "listen"
        assert server.getsockname()[0] == "127.0.0.1"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        pytest.raises(OSError, match=r"not supported|not available"),
    ):
        tcp_info_of(other.fileno())


@needs_root
def test_samples_of_both_ends(made: LabNetwork) -> None:
    initiator, target = made["initiator"], made["target"]
    begin_ns = time.time_ns()
    with (
        sampling(initiator) as near,
        sampling(target) as far,
        connected(initiator, target.address, target) as (out, into),
    ):
        for _ in range(10):
            transfer(out, into, 100_000)
    end_ns = time.time_ns()
    for samples, total in ((near, "bytes_sent"), (far, "bytes_received")):
        rows = samples.rows
        assert all(PORT in (row["local_port"], row["remote_port"]) for row in rows)
        times = [int(row["time_ns"]) for row in rows]
        assert times == sorted(times)
        assert begin_ns <= times[0] <= times[-1] <= end_ns
        # ten times a tenth of a second, every 20 ms
        assert len(rows) + samples.missed_count >= 40
        assert len(rows) >= 25
        counts = [int(row[total]) for row in rows]
        assert counts == sorted(counts)
        # a probe for a lost tail sends some of them again
        resent = int(rows[-1]["bytes_retrans"]) if total == "bytes_sent" else 0
        assert counts[-1] - resent == 1_000_000
        assert len(set(counts)) >= 8
