"""Third-party programs start, answer, store what is written, and end; their output is parsed correctly."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab import peers
from iscsitrace.lab.actors import iscsi_perf
from iscsitrace.lab.namespaces import EndSettings, network
from iscsitrace.lab.peers import ChapAccount, Target
from iscsitrace.lab.places import HERE, Place
from tests.support.iscsi_programs import (
    _conformance,
    iscsi_inq,
    iscsi_ls,
    iscsi_readcapacity16,
    iscsi_test_cu,
    qemu_img,
)
from tests.support.lab import needs_peers, needs_root
from tests.support.programs import running

MIB = 1 << 20
TargetMaker = Callable[..., AbstractContextManager[Target]]
# iscsi-ls does not end by itself against istgt
LS_LIMIT_S: dict[TargetMaker, float] = {peers.tgt: 20.0, peers.istgt: 3.0}
VENDORS: dict[TargetMaker, str] = {peers.tgt: "IET", peers.istgt: "FreeBSD"}
targets = pytest.mark.parametrize("make", [peers.tgt, peers.istgt], ids=["tgt", "istgt"])


@needs_peers
@targets
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_target_on_loopback(make: TargetMaker, address: str) -> None:
    with make(HERE, lun_bytes=32 * MIB, address=address) as target:
        (listed,) = iscsi_ls(HERE, target.discovery_url, limit_s=LS_LIMIT_S[make])
        assert (listed.name, listed.portal) == (target.name, target.portal)
        assert any(line.startswith(f"Lun:{target.lun} Type:DIRECT_ACCESS") for line in listed.luns)
        assert iscsi_readcapacity16(HERE, target.url) == (32 * MIB // 512, 512)
        inquiry = iscsi_inq(HERE, target.url)
        assert inquiry["Peripheral Device Type"] == "DIRECT_ACCESS"
        assert inquiry["Vendor"] == VENDORS[make]
        assert target.process.is_running
    assert not target.process.is_running
    assert not target.file.exists()
    assert not HERE.answers(target.address, target.port)


@needs_peers
@targets
def test_written_data_is_in_the_file_and_is_read_back(make: TargetMaker, tmp_path: Path) -> None:
    content = random.Random(7143).randbytes(4 * MIB)  # noqa: S311 -- content, no secret
    image, copy = tmp_path / "image", tmp_path / "copy"
    image.write_bytes(content)
    with make(HERE, lun_bytes=len(content)) as target:
        qemu_img(HERE, "convert", "-n", "-f", "raw", "-O", "raw", str(image), target.url)
        assert hashlib.sha256(target.file.read_bytes()).digest() == hashlib.sha256(content).digest()
        qemu_img(HERE, "convert", "-f", "raw", "-O", "raw", target.url, str(copy))
    assert copy.read_bytes() == content


@needs_peers
@targets
def test_chap(make: TargetMaker) -> None:
    account = ChapAccount("initiator", "secret7143secret")
    with make(HERE, lun_bytes=MIB, account=account) as target:
        assert iscsi_readcapacity16(HERE, target.url)[0] == MIB // 512
        for url in (target.url.replace("%secret7143", "%secret1994"), target.url.replace("initiator%", "other%")):
            with pytest.raises(ToolMissing, match="Authentication failure"):
                iscsi_inq(HERE, url)
        with pytest.raises(ToolMissing, match="iscsi-inq failed"):
            iscsi_inq(HERE, target.url.replace("initiator%secret7143secret@", ""))


RUN = """
import sys, time
from iscsitrace.lab import peers
from iscsitrace.lab.places import HERE
with getattr(peers, sys.argv[1])(HERE, lun_bytes=1 << 20) as target:
    print(target.port, target.file, flush=True)
    time.sleep(60)
"""


@needs_root
@pytest.mark.parametrize("peer", ["tgt", "istgt"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_nothing(peer: str, number: signal.Signals) -> None:
    with running(subprocess.Popen([sys.executable, "-c", RUN, peer], stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        port, file = process.stdout.readline().split()
        assert HERE.answers("127.0.0.1", int(port))
        peers.remove_leftovers()
        assert HERE.answers("127.0.0.1", int(port))
        process.send_signal(number)
        process.wait(10)
        is_killed = number == signal.SIGKILL
        assert HERE.answers("127.0.0.1", int(port)) == Path(file).exists() == is_killed
        removed = peers.remove_leftovers()
    assert (Path(file).parent in removed) == is_killed
    time.sleep(0.1)
    assert not HERE.answers("127.0.0.1", int(port))
    assert not Path(file).parent.exists()


@pytest.mark.parametrize("words", [("user", "short"), ("user", "secret with space"), ("us%er", "secretsecret")])
def test_accounts_that_a_url_cannot_hold(words: tuple[str, str]) -> None:
    with pytest.raises(InputInvalid, match="CHAP"):
        ChapAccount(*words)


@needs_peers
def test_several_targets_side_by_side() -> None:
    with (
        peers.tgt(HERE, lun_bytes=1 * MIB) as one,
        peers.tgt(HERE, lun_bytes=2 * MIB) as two,
        peers.istgt(HERE, lun_bytes=3 * MIB) as three,
    ):
        sizes = [iscsi_readcapacity16(HERE, each.url)[0] * 512 for each in (one, two, three)]
        assert sizes == [1 * MIB, 2 * MIB, 3 * MIB]


@needs_root
@targets
def test_a_target_in_a_namespace_read_from_another(make: TargetMaker) -> None:
    with network({"initiator": EndSettings(), "target": EndSettings()}, cable="veth") as made:
        initiator, place = made["initiator"], made["target"]
        assert place.address_v6 is not None
        with make(place, lun_bytes=16 * MIB) as target, make(place, lun_bytes=MIB, address=place.address_v6) as other:
            assert target.portal == f"{place.address}:3260"
            assert other.portal == f"[{place.address_v6}]:3260"
            received = received_bytes(initiator)
            result = iscsi_perf(initiator, target.url, queue_depth=4, block_count=16, seconds=1)
            received = received_bytes(initiator) - received
            assert result.read_bytes == 8192
            # what it read came over this cable, in about a second
            assert received > 0.5 * result.throughput_bytes_per_s > 0
            assert iscsi_readcapacity16(initiator, other.url)[0] == MIB // 512
            # and it is not reachable from outside
            with pytest.raises(ToolMissing, match="iscsi-inq"):
                iscsi_inq(HERE, target.url, limit_s=1)


def received_bytes(place: Place) -> int:
    for line in place.run("cat", "/proc/net/dev", package="coreutils").output.splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split()[1])
    raise AssertionError("no eth0")


@needs_root
def test_iperf3_between_namespaces() -> None:
    ends = {"initiator": EndSettings(congestion_control="reno"), "target": EndSettings()}
    with network(ends, cable="veth") as made, peers.iperf3_server(made["target"]):
        before = received_bytes(made["target"])
        result = peers.iperf3(made["initiator"], made["target"].address, "-b", "80M", seconds=1)
        # 80 Mbit/s for a second, in blocks of 128 KiB
        assert 9_000_000 < result["end"]["sum_sent"]["bytes"] < 11_000_000
        assert received_bytes(made["target"]) - before >= result["end"]["sum_received"]["bytes"]
        assert result["end"]["sender_tcp_congestion"] == "reno"
        with pytest.raises(ToolMissing, match=r"iperf3 failed: .*refused"):
            peers.iperf3(made["initiator"], made["target"].address, port=5202, seconds=1)


@needs_peers
def test_conformance_tests_run_as_listed() -> None:
    command = ["iscsi-test-cu", "--list"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout
    names = {line.strip().rpartition(".")[2] for line in listed.splitlines() if "Read10." in line}
    assert names
    with peers.tgt(HERE, lun_bytes=32 * MIB) as target:
        tests = iscsi_test_cu(HERE, target.url, tests="SCSI.Read10")
        with pytest.raises(ToolMissing, match="did not run to its end"):
            iscsi_test_cu(HERE, target.discovery_url + "/iqn.2001-04.com.example:other/1", tests="SCSI")
    assert {test.suite for test in tests} == {"Read10"}
    assert {test.name for test in tests} == names
    assert all(test.has_passed for test in tests)


CONFORMANCE = """
     CUnit - A unit testing framework for C - Version 2.1-3

Suite: GetLBAStatus
  Test: Simple ...passed
  Test: BeyondEol ...    [FAILED] GET_LBA_STATUS successful but should have failed
FAILED
    1. test_get_lba_status_beyond_eol.c:38  - CU_ASSERT_EQUAL(_r,0)
  Test: UnmapSingle ...    [SKIPPED] Logical unit is fully provisioned. Skipping test
    [SKIPPED] Logical unit is fully provisioned. Skipping test
passed
Suite: Read6
  Test: Simple ...passed
Suite: Reserve6
  Test: LUNReset ...    [FAILED] RESERVE6 command: failed with sense. SENSE KEY:UNIT_ATTENTION(6)
passed    [FAILED] PRIN command: failed with sense. SENSE KEY:UNIT_ATTENTION(6)

Run Summary:    Type  Total    Ran Passed Failed Inactive
"""


def test_conformance_results_are_parsed() -> None:
    simple, beyond, unmap, other, reset = _conformance(CONFORMANCE)
    assert (simple.suite, simple.name, simple.has_passed, simple.skipped) == ("GetLBAStatus", "Simple", True, ())
    assert (beyond.name, beyond.has_passed) == ("BeyondEol", False)
    assert beyond.failed == ("GET_LBA_STATUS successful but should have failed",)
    assert unmap.has_passed
    assert unmap.skipped == ("Logical unit is fully provisioned. Skipping test",)
    assert (other.suite, other.name, other.has_passed) == ("Read6", "Simple", True)
    # it asked again, and what came after the verdict is none
    assert (reset.suite, reset.name, reset.has_passed) == ("Reserve6", "LUNReset", True)


@needs_peers
@targets
def test_a_port_in_use(make: TargetMaker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InputInvalid, match=f"127.0.0.1:{port} is taken"), make(HERE, lun_bytes=MIB, port=port):
            pass


@needs_peers
def test_a_target_that_cannot_listen_reports_the_cause() -> None:
    # 192.0.2.0/24 is not assigned to any host (RFC 5737)
    with (
        pytest.raises(ToolMissing, match=r"tgtd|istgt"),
        peers.istgt(HERE, lun_bytes=MIB, address="192.0.2.1", port=3260),
    ):
        pass


def test_no_server_on_the_port() -> None:
    port = HERE.free_port("127.0.0.1")
    with pytest.raises(ToolMissing, match=r"found no target at iscsi://user@127.0.0.1:\d+: .*refused"):
        iscsi_ls(HERE, f"iscsi://user%secretsecret@127.0.0.1:{port}")
    with pytest.raises(ToolMissing, match="iscsi-perf failed"):
        iscsi_perf(HERE, f"iscsi://127.0.0.1:{port}/iqn.2001-04.com.example:lab/1", seconds=1)
    with pytest.raises(ToolMissing, match=r"qemu-img failed: .*connect"):
        qemu_img(HERE, "info", f"iscsi://127.0.0.1:{port}/iqn.2001-04.com.example:lab/1")


@pytest.mark.parametrize(
    ("start", "package"),
    [
        (lambda: peers.tgt(HERE, lun_bytes=MIB).__enter__(), "tgt"),
        (lambda: peers.istgt(HERE, lun_bytes=MIB).__enter__(), "istgt"),
        (lambda: peers.iperf3_server(HERE).__enter__(), "iperf3"),
        (lambda: iscsi_ls(HERE, "iscsi://127.0.0.1"), "libiscsi-bin"),
        (lambda: iscsi_perf(HERE, "iscsi://127.0.0.1/iqn/1"), "libiscsi-bin"),
        (lambda: qemu_img(HERE, "info", "iscsi://127.0.0.1/iqn/1"), "qemu-utils"),
    ],
    ids=["tgt", "istgt", "iperf3", "iscsi-ls", "iscsi-perf", "qemu-img"],
)
def test_a_missing_program_is_reported_with_its_package(
    start: Callable[[], object], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path=os.defpath: None)
    with pytest.raises(ToolMissing, match=f"is not installed: apt install {package}$"):
        start()
