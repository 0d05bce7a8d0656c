"""Our target under libiscsi's programs, its conformance tests, QEMU, and many connections of our own initiator."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.actors import iscsi_perf
from iscsitrace.lab.places import HERE
from tests.support.iscsi_programs import (
    ConformanceTest,
    iscsi_inq,
    iscsi_ls,
    iscsi_readcapacity16,
    iscsi_test_cu,
    qemu_img,
)
from tests.support.traffic import NAME, initiate, our_target, transfer

MIB = 1 << 20
CHAP = {"initiators": [{"name": "initiator", "secret": "secret7143secret"}]}
LOGIN = "initiator%secret7143secret@"


def with_login(url: str) -> str:
    return url.replace("iscsi://", f"iscsi://{LOGIN}")


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_options_of_libiscsi(address: str) -> None:
    units: list[dict[str, Any]] = [
        {"size_bytes": 64 * MIB},
        {"size_bytes": 32 * MIB, "block_bytes": 4096, "medium": "ram"},
    ]
    with our_target(*units, listen=[f"{address}:0"], device={"vendor": "EXAMPLE", "product": "TEST DISK"}) as target:
        (listed,) = iscsi_ls(HERE, target.discovery_url)
        assert (listed.name, listed.portal) == (NAME, target.listening[0])
        assert [line.split(" (")[0] for line in listed.luns] == [
            "Lun:0 Type:DIRECT_ACCESS",
            "Lun:1 Type:DIRECT_ACCESS",
        ]
        inquiry = iscsi_inq(HERE, target.url)
        assert inquiry["Peripheral Device Type"] == "DIRECT_ACCESS"
        assert (inquiry["Vendor"], inquiry["Product"]) == ("EXAMPLE", "TEST DISK")
        assert iscsi_readcapacity16(HERE, target.url) == (64 * MIB // 512, 512)
        assert iscsi_readcapacity16(HERE, target.url_of(1)) == (32 * MIB // 4096, 4096)
    assert target.log["counters"]["rejects"] == target.log["counters"]["refused_logins"] == 0


EVERY = "0.0.0.0"  # noqa: S104 - what is tested


@pytest.mark.parametrize(("wildcard", "asked_at"), [(EVERY, "127.0.0.1"), ("[::]", "[::1]"), ("[::]", "127.0.0.1")])
def test_a_target_at_every_address_reports_the_address_of_the_request(wildcard: str, asked_at: str) -> None:
    with our_target(listen=[f"{wildcard}:0"]) as target:
        portal = target.listening[0].replace(wildcard, asked_at)
        (listed,) = iscsi_ls(HERE, f"iscsi://{portal}")
        assert (listed.name, listed.portal) == (NAME, portal)


def test_chap() -> None:
    with our_target(chap=CHAP) as target:
        assert iscsi_readcapacity16(HERE, with_login(target.url))[1] == 512
        (listed,) = iscsi_ls(HERE, with_login(target.discovery_url))
        assert listed.name == NAME
        for wrong in (LOGIN.replace("7143", "1994"), LOGIN.replace("initiator", "nobody")):
            with pytest.raises(ToolMissing, match="Authentication failure"):
                iscsi_inq(HERE, target.url.replace("iscsi://", f"iscsi://{wrong}"))
    assert target.log["counters"]["refused_logins"] == 2


@pytest.mark.parametrize(("block_count", "queue_depth"), [(1, 32), (2048, 4)])
def test_iscsi_perf_and_the_target_count_the_same_reads(block_count: int, queue_depth: int) -> None:
    with our_target({"size_bytes": 64 * MIB}) as target:
        read = iscsi_perf(HERE, target.url, queue_depth=queue_depth, block_count=block_count, seconds=1)
    assert read.read_bytes == block_count * 512
    tasks = [task for task in target.log["tasks"] if task["command"].startswith("READ(")]
    assert {task["expected_data_transfer_length"] for task in tasks} == {read.read_bytes}
    assert {task["status"] for task in tasks} == {0}
    # it divides by the time until it looked, which is a second and a little
    assert 0.8 * len(tasks) <= read.iops <= 1.1 * len(tasks)
    assert target.log["counters"]["data_in_bytes"] >= len(tasks) * read.read_bytes


# every two of them together
@pytest.mark.parametrize(
    ("digest", "initial_r2t", "block_bytes"),
    [("none", True, 512), ("none", False, 4096), ("crc32c", True, 4096), ("crc32c", False, 512)],
)
def test_qemu_writes_and_reads_back(digest: str, initial_r2t: bool, block_bytes: int, tmp_path: Path) -> None:
    """Header digests only: libiscsi, which QEMU uses, has no data digests."""
    content = random.Random(7143).randbytes(8 * MIB)  # noqa: S311 -- content, no secret
    image, copy = tmp_path / "image", tmp_path / "copy"
    image.write_bytes(content)
    unit = {"size_bytes": len(content), "block_bytes": block_bytes}
    with our_target(unit, keys={"header_digest": ["CRC32C", "None"], "initial_r2t": initial_r2t}) as target:
        places = f"portal={target.listening[0]},target={NAME},lun=0"
        disk = f"driver=iscsi,transport=tcp,{places},header-digest={digest}"
        qemu_img(HERE, "convert", "-n", "--target-image-opts", "-f", "raw", str(image), disk)
        qemu_img(HERE, "convert", "--image-opts", disk, "-O", "raw", str(copy))
    assert copy.read_bytes() == content
    counters = target.log["counters"]
    assert counters["data_in_bytes"] >= len(content)
    assert counters["data_out_bytes"] >= len(content)
    # a write of QEMU's is longer than the first burst, whether that comes unasked or not
    assert counters["r2ts"] > 0
    assert counters["rejects"] == 0


NOT_ANSWERED = {
    "EXTENDED COPY and RECEIVE COPY RESULTS, which the target does not answer": """
        ExtendedCopy.Simple ExtendedCopy.ParamHdr ExtendedCopy.DescrLimits ExtendedCopy.DescrType
        ExtendedCopy.ValidTgtDescr ExtendedCopy.ValidSegDescr ReceiveCopyResults.CopyStatus
        ReceiveCopyResults.OpParams
    """,
    "SANITIZE, which the target does not answer": """
        Sanitize.BlockErase Sanitize.BlockEraseReserved Sanitize.CryptoErase Sanitize.CryptoEraseReserved
        Sanitize.ExitFailureMode Sanitize.InvalidServiceAction Sanitize.Overwrite Sanitize.OverwriteReserved
        Sanitize.Readonly Sanitize.Reservations Sanitize.Reset
    """,
    "WRITE ATOMIC(16), which the target does not answer": """
        WriteAtomic16.Simple WriteAtomic16.BeyondEol WriteAtomic16.ZeroBlocks WriteAtomic16.WriteProtect
        WriteAtomic16.DpoFua WriteAtomic16.VPD
    """,
    "several logical blocks in a physical one, which the target has not": """
        CompareAndWrite.InvalidDataOutSize WriteSame10.UnmapUnaligned WriteSame10.InvalidDataOutSize
        WriteSame16.UnmapUnaligned WriteSame16.InvalidDataOutSize
    """,
    "WRITE SAME of 0 blocks, which the target refuses and says so (WSNZ of the Block Limits VPD page)": """
        WriteSame10.ZeroBlocks WriteSame16.ZeroBlocks
    """,
}
"""Tests that iscsi-test-cu skips on every disk, by subject."""
OF_ANOTHER_DISK = {
    "a removable disk": """
        PreventAllow.Simple PreventAllow.Eject PreventAllow.ITNexusLoss PreventAllow.Logout PreventAllow.WarmReset
        PreventAllow.ColdReset PreventAllow.LUNReset PreventAllow.2ITNexuses StartStopUnit.Simple
    """,
    "a write-protected disk": "ReadOnly.ReadOnlySBC",
    "two paths": """
        MultipathIO.Simple MultipathIO.Reset MultipathIO.CompareAndWrite MultipathIO.CompareAndWriteAsync
    """,
}
"""Tests that it skips on the first disk, and runs on another."""


def names(tests: dict[str, str]) -> set[str]:
    return {name for words in tests.values() for name in words.split()}


def skipped(tests: list[ConformanceTest]) -> set[str]:
    assert [(test.suite, test.name, test.failed) for test in tests if not test.has_passed] == []
    return {f"{test.suite}.{test.name}" for test in tests if test.skipped}


@pytest.mark.parametrize(
    "unit", [{"size_bytes": 1 << 30}, {"size_bytes": 1 << 30, "block_bytes": 4096}], ids=["512", "4096"]
)
def test_every_conformance_test(unit: dict[str, int]) -> None:
    with our_target(unit) as target:
        tests = iscsi_test_cu(HERE, target.url)
    assert skipped(tests) == names(NOT_ANSWERED) | names(OF_ANOTHER_DISK)
    # as many as version 1.19 has
    assert len(tests) >= 230


def test_conformance_tests_of_other_disks() -> None:
    units: list[dict[str, Any]] = [{}, {"is_removable": True}, {"is_write_protected": True}]
    with our_target(*units, listen=("127.0.0.1:0", "127.0.0.1:0")) as target:
        found = []
        for suite in ("PreventAllow", "StartStopUnit", "NoMedia"):
            found += iscsi_test_cu(HERE, target.url_of(1), tests=f"ALL.{suite}")
        found += iscsi_test_cu(HERE, target.url_of(2), tests="ALL.ReadOnly")
        found += iscsi_test_cu(HERE, target.url, tests="ALL.MultipathIO", second_path=target.url_of(0, 1))
    assert skipped(found) == set()
    assert names(OF_ANOTHER_DISK) <= {f"{test.suite}.{test.name}" for test in found}


def test_conformance_tests_with_header_digests_and_chap() -> None:
    with our_target(chap=CHAP) as target:
        url = f"{with_login(target.url)}?header_digest=crc32c"
        for suite in ("SCSI.Read16", "SCSI.Write16", "iSCSI.iSCSIcmdsn", "iSCSI.iSCSIdatasn"):
            assert skipped(iscsi_test_cu(HERE, url, tests=suite)) == set()


@pytest.mark.parametrize("digest", ["None", "CRC32C"])
def test_64_connections_of_our_own_initiator(digest: str) -> None:
    offers = {"header_digest": [digest], "data_digest": [digest]}
    workload = {"connections": 64, "queue_depth": 128, "block_size_bytes": 65_536, "total_bytes": 64 * MIB}
    with our_target({"size_bytes": 64 * MIB}) as target:
        transfer(target.url, "write", offers, **workload)
        run = transfer(target.url, "read", offers, **workload)
        assert run.parameters["max_connections"] == 64
        assert (run.parameters["header_digest"], run.parameters["data_digest"]) == (digest, digest)
        assert [each["cid"] for each in run.results["connections"]] == list(range(64))
        assert all(each["commands"] > 0 for each in run.results["connections"])
        # and 64 sessions of one each, which see the same disk
        transfer(target.url, "read", offers, **workload | {"connections": 1, "sessions": 64, "queue_depth": 2})
    connections = target.log["connections"]
    assert len(connections) == 3 * 64
    # RFC 7143, section 4.4.3: those of a session share its TSIH, and tell themselves apart by their CID
    sessions = [{tuple(each["session"]) for each in connections[first : first + 64]} for first in (0, 64, 128)]
    assert [len({tsih for tsih, _ in each}) for each in sessions] == [1, 1, 64]
    assert {cid for _, cid in sessions[0]} == set(range(64))
    counters = target.log["counters"]
    assert (counters["logins"], counters["refused_logins"], counters["rejects"]) == (3 * 64, 0, 0)


def test_two_targets_behind_one_portal_are_both_found() -> None:
    devices = [{"target_name": f"{NAME}.{number}"} for number in range(2)]
    with our_target(targets=devices) as target:
        found = iscsi_ls(HERE, target.discovery_url)
        # libiscsi lists the last first
        assert sorted(each.name for each in found) == [f"{NAME}.0", f"{NAME}.1"]
        run = initiate(target.discovery_url, mode="discover")
        assert [each["name"] for each in run.results["discovered"]] == [f"{NAME}.0", f"{NAME}.1"]
