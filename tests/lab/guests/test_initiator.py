"""How a workload becomes settings of open-iscsi and options of fio, and how their words become a truth."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.guests import initiator
from iscsitrace.lab.guests.initiator import Login, TargetPortal
from iscsitrace.lab.peers import ChapAccount
from iscsitrace.lab.places import Finished

TARGET = "iqn.2025-01.org.iscsitrace:memory"


class Answers:
    """A guest that answers programs with given texts."""

    name = "initiator"

    def __init__(self, **of_program: str) -> None:
        self._of_program = of_program

    def run(self, *argv: str, **_: Any) -> Finished:
        return Finished(0, next(text for word, text in self._of_program.items() if word in " ".join(argv)), "")

    def shell(self, script: str, **_: Any) -> str:
        return self.run(script).output


def test_a_login_is_written_as_iscsid_reads_it() -> None:
    login = Login(
        keys={"InitialR2T": "Yes", "HeaderDigest": "CRC32C", "MaxRecvDataSegmentLength": "8192"},
        account=ChapAccount("joe", "twelveletters"),
        own_account=ChapAccount("target", "twelveothers"),
        sessions=2,
        settings={"node.session.timeo.replacement_timeout": "5", "node.startup": "automatic"},
    )
    assert login.lines().splitlines() == [
        "node.startup = automatic",
        "node.session.nr_sessions = 2",
        "node.session.iscsi.InitialR2T = Yes",
        "node.conn[0].iscsi.HeaderDigest = CRC32C",
        "node.conn[0].iscsi.MaxRecvDataSegmentLength = 8192",
        "node.session.auth.authmethod = CHAP",
        "node.session.auth.username = joe",
        "node.session.auth.password = twelveletters",
        "node.session.auth.username_in = target",
        "node.session.auth.password_in = twelveothers",
        "node.session.timeo.replacement_timeout = 5",
    ]


def test_keys_are_spelled_as_in_the_rfc() -> None:
    fields = {
        "initial_r2t": False,
        "immediate_data": True,
        "max_burst_length": 65_536,
        "data_digest": ["None", "CRC32C"],
    }
    assert initiator.keys_of(fields) == {
        "InitialR2T": "No", "ImmediateData": "Yes", "MaxBurstLength": "65536", "DataDigest": "None,CRC32C",
    }  # fmt: skip


def options(**workload: Any) -> dict[str, str]:
    words = initiator.fio_arguments("/dev/sda", workload)
    return dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({}, {"rw": "read", "bs": "65536", "iodepth": "1", "offset": "0", "filename": "/dev/sda", "direct": "1"}),
        ({"operation": "write", "access": "random", "queue_depth": 8}, {"rw": "randwrite", "iodepth": "8"}),
        ({"operation": "mixed", "read_share": 0.7}, {"rw": "rw", "rwmixread": "70"}),
        ({"operation": "mixed", "access": "random"}, {"rw": "randrw", "rwmixread": "50"}),
        ({"block_size_bytes": 4096, "system_call_bytes": 524_288}, {"bs": "524288"}),
        ({"total_bytes": 1 << 20, "span_bytes": 1 << 19}, {"io_size": "1048576", "size": "524288"}),
        ({"start_lba": 8}, {"offset": "4096"}),
        ({"duration_ns": 1_500_000_000}, {"runtime": "1500000us", "time_based": "1"}),
        ({"think_time_ns": 2_000_000}, {"thinktime": "2000us"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_workload_is_what_fio_does(workload: dict[str, Any], expected: dict[str, str]) -> None:
    found = options(**workload)
    assert {name: found[name] for name in expected} == expected


def test_options_that_are_not_set_are_fio_s_own() -> None:
    assert not {"io_size", "runtime", "time_based", "size", "thinktime", "rwmixread"} & set(options())


@pytest.mark.parametrize(
    ("workload", "scripts"),
    [
        ({"block_size_bytes": 65_536}, []),
        ({"block_size_bytes": 131_072, "system_call_bytes": 524_288}, [128, 128]),
        ({"block_size_bytes": 131_072, "system_call_bytes": 524_288, "max_transfer_bytes": 65_536}, [64, 64]),
    ],
)
def test_calls_are_cut_by_the_kernel(workload: dict[str, Any], scripts: list[int]) -> None:
    said: list[str] = []
    guest: Any = SimpleNamespace(shell=said.append)
    initiator.limit_commands(guest, ["/dev/sda", "/dev/sdb"][: len(scripts) or 2], workload)
    paths = ("/sys/block/sda/queue/max_sectors_kb", "/sys/block/sdb/queue/max_sectors_kb")
    assert said == [f"echo {most} > {path}" for most, path in zip(scripts, paths, strict=False)]


def test_connections_are_what_sysfs_says() -> None:
    sysfs = "\n".join(
        [
            "/sys/class/iscsi_session/session3/targetname:iqn.2025-01.org.iscsitrace:memory",
            "/sys/class/iscsi_session/session3/initial_r2t:1",
            "/sys/class/iscsi_session/session3/max_burst_len:262144",
            "/sys/class/iscsi_session/session3/data_pdu_in_order:0",
            "/sys/class/iscsi_connection/connection3:0/address:fd71::2",
            "/sys/class/iscsi_connection/connection3:0/local_port:48466",
            "/sys/class/iscsi_connection/connection3:0/header_digest:1",
            "/sys/class/iscsi_connection/connection3:0/max_recv_dlength:262144",
        ]
    )
    attributes = initiator.negotiated(Answers(grep=sysfs))  # type: ignore[arg-type]
    assert attributes["connection3:0"]["address"] == "fd71::2"
    portals = [TargetPortal("[fd71::9]:3260", "other"), TargetPortal("[fd71::2]:3260", TARGET)]
    assert initiator.connections(attributes, portals) == {
        "connections": [
            {
                "connection": 0, "session": 3, "cid": 0, "target": 1,
                "parameters": {
                    "initial_r2t": True, "max_burst_length": 262_144, "header_digest": "CRC32C",
                    "initiator_max_recv_data_segment_length": 262_144,
                },
            }
        ],
        "ends": [{"connection": 0, "peer_address": "fd71::2", "own_port": 48_466}],
    }  # fmt: skip


def test_disks_are_listed_by_target() -> None:
    guest = Answers(iscsi_session=f"{TARGET} /dev/sda\n{TARGET} /dev/sdb\nother /dev/sdc\n")
    portals = [TargetPortal("", "other"), TargetPortal("", TARGET)]
    assert initiator.disks(guest, portals) == [["/dev/sdc"], ["/dev/sda", "/dev/sdb"]]  # type: ignore[arg-type]
    with pytest.raises(ToolMissing, match="open-iscsi made no 2 disks of each target within 0 s"):
        initiator.disks(guest, portals, each=2, limit_s=0)  # type: ignore[arg-type]


def test_the_results_of_fio() -> None:
    def done(size: int, bandwidth: int, iops: float, runtime_ms: int) -> dict[str, Any]:
        return {"io_bytes": size, "bw_bytes": bandwidth, "iops": iops, "runtime": runtime_ms}

    job = {"read": done(3 << 20, 100, 20.4, 700), "write": done(1 << 20, 30, 6.2, 650), "trim": {}, "error": 5,
           "total_err": 3, "job options": {"bs": "65536"}}  # fmt: skip
    text = "fio: io_u error on file /dev/sda\n" + json.dumps({"jobs": [job]})
    log = "1700000000123, 9400000, 0, 65536, 131072, 0\n1700000000130, 12000000, 1, 4096, 0, 0\n"
    guest = Answers(fio_lat=log, json=text)
    assert initiator._results(guest, "") == {  # type: ignore[arg-type]
        "throughput_bytes_per_s": 130, "iops": 27, "read_bytes": 65_536, "bytes": {"read": 3 << 20, "write": 1 << 20},
        "error": "fio: io_u error on file /dev/sda", "error_count": 3, "elapsed_ns": 700_000_000,
    }  # fmt: skip
    assert initiator._commands(guest) == {  # type: ignore[arg-type]
        "completed_ms": [1_700_000_000_123, 1_700_000_000_130], "operation": ["read", "write"],
        "offset": [131_072, 0], "bytes": [65_536, 4_096], "latency_ns": [9_400_000, 12_000_000],
    }  # fmt: skip
    with pytest.raises(ToolMissing, match="fio wrote no result: out of luck"):
        initiator._results(Answers(json=""), "out of luck\n")  # type: ignore[arg-type]
