"""Our initiator against tgt and istgt: its writes are in the server's file, and its reads return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import pytest

from iscsitrace.lab import peers
from iscsitrace.lab.peers import ChapAccount, Target
from iscsitrace.lab.places import HERE
from tests.support.lab import needs_peers
from tests.support.traffic import BLOCK_BYTES, initiate, pattern, transfer

pytestmark = needs_peers

MIB = 1 << 20
LUN_BYTES = 64 * MIB
TargetMaker = Callable[..., AbstractContextManager[Target]]
MAKERS: dict[str, TargetMaker] = {"tgt": peers.tgt, "istgt": peers.istgt}
# offers of each server; istgt requires InitialR2T=Yes
SERVER_KEYS = {
    "tgt": {
        "InitialR2T": "No",
        "ImmediateData": "Yes",
        "FirstBurstLength": "65536",
        "MaxBurstLength": "262144",
        "MaxOutstandingR2T": "4",
        "HeaderDigest": "CRC32C,None",
        "DataDigest": "CRC32C,None",
    },
    "istgt": {
        "InitialR2T": "Yes",
        "ImmediateData": "Yes",
        "FirstBurstLength": "262144",
        "MaxBurstLength": "1048576",
        "MaxOutstandingR2T": "16",
    },
}
# each write of the module has a different pattern, so that no test reads the data of another
seeds = count(7143)


@pytest.fixture(scope="module", params=MAKERS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Target]]:
    name = request.param
    with MAKERS[name](HERE, lun_bytes=LUN_BYTES, keys=SERVER_KEYS[name]) as target:
        yield name, target


@pytest.fixture
def target(server: tuple[str, Target]) -> Target:
    return server[1]


def write_and_read_back(target: Target, offers: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    """Writes, checks the server's file, reads back and verifies; returns the negotiated parameters."""
    settings = {"block_size_bytes": 65_536, "queue_depth": 4, "total_bytes": 2 * MIB, **workload}
    seed, total = next(seeds), settings["total_bytes"]
    written = transfer(target.url, "write", offers, pattern_seed=seed, **settings)
    first = settings.get("start_lba", 0)
    with target.file.open("rb") as file:
        file.seek(first * BLOCK_BYTES)
        assert file.read(total) == pattern(seed, first, total // BLOCK_BYTES)
    read = transfer(target.url, "read", offers, pattern_seed=seed, **settings)
    assert written.parameters == read.parameters
    assert written.results["write"]["bytes"] == read.results["read"]["bytes"] == total
    return read.parameters


@pytest.mark.parametrize("initial_r2t", [True, False])
@pytest.mark.parametrize("immediate_data", [True, False])
def test_first_bursts(server: tuple[str, Target], initial_r2t: bool, immediate_data: bool) -> None:
    name, target = server
    found = write_and_read_back(target, {"initial_r2t": initial_r2t, "immediate_data": immediate_data})
    # RFC 7143, sections 13.10 and 13.11: the results are OR and AND
    assert found["initial_r2t"] == (initial_r2t or SERVER_KEYS[name]["InitialR2T"] == "Yes")
    assert found["immediate_data"] == (immediate_data and SERVER_KEYS[name]["ImmediateData"] == "Yes")


@pytest.mark.parametrize(("first", "most"), [(512, 512), (1024, 4096), (8192, 65_536), (262_144, 1_048_576)])
def test_bursts(server: tuple[str, Target], first: int, most: int) -> None:
    name, target = server
    offers = {"first_burst_length": first, "max_burst_length": most, "initial_r2t": False}
    found = write_and_read_back(target, offers, block_size_bytes=131_072)
    # RFC 7143, sections 13.13 and 13.14: the smaller of both
    assert found["max_burst_length"] == min(most, int(SERVER_KEYS[name]["MaxBurstLength"]))
    assert found["first_burst_length"] == min(first, int(SERVER_KEYS[name]["FirstBurstLength"]))


@pytest.mark.parametrize("length", [512, 8192, 262_144, 16_777_215])
def test_data_segments(target: Target, length: int) -> None:
    found = write_and_read_back(target, {"max_recv_data_segment_length": length}, block_size_bytes=MIB)
    assert found["initiator_max_recv_data_segment_length"] == length


@pytest.mark.parametrize("most", [1, 3, 16])
def test_outstanding_r2ts(server: tuple[str, Target], most: int) -> None:
    name, target = server
    offers = {"max_outstanding_r2t": most, "max_burst_length": 65_536, "first_burst_length": 65_536}
    found = write_and_read_back(target, offers, block_size_bytes=MIB)
    assert found["max_outstanding_r2t"] == min(most, int(SERVER_KEYS[name]["MaxOutstandingR2T"]))


@pytest.mark.parametrize(("header", "data"), [(True, False), (False, True), (True, True)])
def test_digests(target: Target, header: bool, data: bool) -> None:
    names = ["None", "CRC32C"]
    offers = {"header_digest": [names[header]], "data_digest": [names[data]]}
    # of no multiple of 4 KiB, so that segments end anywhere
    found = write_and_read_back(target, offers, block_size_bytes=66_048, total_bytes=66_048 * 16)
    assert (found["header_digest"], found["data_digest"]) == (names[header], names[data])


@pytest.mark.parametrize(
    ("block_size", "queue_depth", "total"),
    [
        (512, 1, 128 * 1024),
        (512, 32, 512 * 1024),
        (4096, 8, 2 * MIB),
        (65_536, 64, 8 * MIB),
        (4 * MIB, 4, 32 * MIB),
        (16 * MIB, 2, 48 * MIB),
    ],
)
def test_block_sizes_and_queue_depths(target: Target, block_size: int, queue_depth: int, total: int) -> None:
    write_and_read_back(target, block_size_bytes=block_size, queue_depth=queue_depth, total_bytes=total)


def test_a_span_at_the_end_of_the_disk(target: Target) -> None:
    blocks = MIB // BLOCK_BYTES
    write_and_read_back(target, start_lba=LUN_BYTES // BLOCK_BYTES - blocks, span_bytes=MIB, total_bytes=MIB)
    run = initiate(target.url, workload={"start_lba": LUN_BYTES // BLOCK_BYTES, "total_bytes": MIB})
    assert run.results["errors"] == ["the logical unit ends at block 131072, before the span does"]


def test_random_and_mixed(target: Target) -> None:
    seed, span = next(seeds), 4 * MIB
    workload = {"block_size_bytes": 4096, "queue_depth": 8, "span_bytes": span, "pattern_seed": seed}
    transfer(target.url, "write", total_bytes=span, **workload)
    transfer(target.url, "read", total_bytes=2 * span, access="random", **workload)
    mixed = transfer(target.url, "mixed", total_bytes=2 * span, access="random", read_share=0.7, **workload)
    reads, writes = mixed.results["read"]["commands"], mixed.results["write"]["commands"]
    assert reads + writes == 2 * span // 4096
    # 2048 draws of 0.7: five standard deviations are 104
    assert abs(reads - 0.7 * 2048) < 104
    with target.file.open("rb") as file:
        assert file.read(span) == pattern(seed, 0, span // BLOCK_BYTES)


def test_a_wrong_byte_is_detected(target: Target) -> None:
    seed = next(seeds)
    workload = {"block_size_bytes": 65_536, "total_bytes": MIB, "pattern_seed": seed}
    transfer(target.url, "write", **workload)
    with target.file.open("r+b") as file:
        file.seek(300_000)
        (wrong,) = file.read(1)
        file.seek(300_000)
        file.write(bytes([wrong ^ 1]))
    run = initiate(target.url, workload={"verify": True, "errors_allowed": 100, **workload})
    assert run.results["verify_error_count"] == 1
    assert run.results["first_mismatch"]["byte"] == 300_000
    assert run.results["bytes"] == MIB - 65_536
    (error,) = run.results["errors"]
    assert "wrong data at byte 300000 of the volume" in error


def test_several_sessions(target: Target) -> None:
    write_and_read_back(target, sessions=4, queue_depth=2)
    run = transfer(target.url, "read", sessions=4, total_bytes=2 * MIB, pattern_seed=next(seeds) - 1)
    assert [(each["session"], each["cid"]) for each in run.results["connections"]] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert all(each["commands"] > 0 for each in run.results["connections"])


@pytest.mark.parametrize("server", ["istgt"], indirect=True)
@pytest.mark.parametrize("digest", ["None", "CRC32C"])
def test_8_connections_of_one_session(target: Target, digest: str) -> None:
    offers = {"header_digest": [digest], "data_digest": [digest]}
    found = write_and_read_back(target, offers, connections=8, queue_depth=32, total_bytes=16 * MIB)
    assert found["max_connections"] == 8
    run = initiate(target.url, period_ns=1_000_000, workload={"connections": 8, "queue_depth": 16, "total_bytes": MIB})
    assert run.results["errors"] == []
    assert run.connections_seen == 8
    assert [each["cid"] for each in run.results["connections"]] == list(range(8))
    assert all(each["commands"] > 0 and each["session"] == 0 for each in run.results["connections"])


def test_more_connections_than_the_server_allows(server: tuple[str, Target]) -> None:
    name, target = server
    allowed = {"tgt": 1, "istgt": 8}[name]
    run = initiate(target.url, workload={"connections": allowed + 1, "total_bytes": MIB})
    (error,) = run.results["errors"]
    assert f"the target allows {allowed} connections in a session, {allowed + 1} are requested" in error
    assert run.results["bytes"] == 0


def test_discovery(target: Target) -> None:
    run = initiate(target.discovery_url, mode="discover")
    assert run.results["errors"] == []
    assert run.results["discovered"] == [{"name": target.name, "addresses": [f"{target.portal},1"]}]


def test_pings(target: Target) -> None:
    run = initiate(target.url, mode="ping", ping={"count": 5, "interval_ns": 1_000_000, "bytes": 1000})
    assert run.results["errors"] == []
    times = run.results["ping_ns"]
    assert times["count"] == 5
    assert 0 < times["min"] <= times["p50"] <= times["max"] < 10**9


def only_error(url: str) -> str:
    run = initiate(url, workload={"block_size_bytes": 65_536, "total_bytes": MIB})
    assert run.results["bytes"] == 0
    error: str
    (error,) = run.results["errors"]
    return error


def test_a_missing_target_and_a_missing_logical_unit(target: Target) -> None:
    where = f"at {target.portal}"
    # RFC 7143, section 11.13.5
    refused = only_error(f"{target.discovery_url}/iqn.2001-04.com.example:nobody/0")
    assert (
        refused
        == f"iqn.2001-04.com.example:nobody {where}: login refused: Not Found (0x0203) (RFC 7143 section 11.13.5)"
    )
    # SPC: sense key 5, additional sense code 25h
    error = only_error(f"{target.discovery_url}/{target.name}/77")
    assert error.startswith(f"{target.name} {where}, LUN 77: ")
    assert "ILLEGAL REQUEST, logical unit not supported (5/25/00)" in error


OURS, ITS = ChapAccount("initiator", "secret7143secret"), ChapAccount("target", "otherSecret123")
REFUSED = "login refused: Authentication Failure (0x0201)"


@pytest.fixture(scope="module", params=MAKERS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Target]:
    with MAKERS[request.param](HERE, lun_bytes=4 * MIB, account=OURS) as target:
        yield target


@pytest.fixture(scope="module", params=MAKERS)
def guarded_both_ways(request: pytest.FixtureRequest) -> Iterator[Target]:
    with MAKERS[request.param](HERE, lun_bytes=4 * MIB, account=OURS, own_account=ITS) as target:
        yield target


def test_chap(guarded: Target) -> None:
    write_and_read_back(guarded)
    assert REFUSED in only_error(guarded.url.replace("secret7143", "secret1994"))
    assert REFUSED in only_error(guarded.url.replace("initiator%", "nobody%"))
    # without a name there is no login: each server has its own way to say so
    assert "authentication fail" in only_error(guarded.url.replace("initiator%secret7143secret@", "")).lower()


def test_chap_both_ways(guarded_both_ways: Target) -> None:
    url = guarded_both_ways.url
    wanted = f"{url}?target_user={ITS.user}&target_password={ITS.secret}"
    workload = {"block_size_bytes": 65_536, "total_bytes": MIB, "pattern_seed": next(seeds)}
    transfer(wanted, "write", **workload)
    transfer(wanted, "read", **workload)
    assert REFUSED in only_error(wanted.replace("secret7143", "secret1994"))
    for wrong in (wanted.replace("otherSecret123", "otherSecret124"), wanted.replace("user=target", "user=someone")):
        error = only_error(wrong)
        assert "authentication failed: CHAP_N and CHAP_R are not those of the expected target" in error
        assert "(RFC 7143 section 12.1.3)" in error


def test_a_closed_port() -> None:
    port = HERE.free_port("127.0.0.1")
    error = only_error(f"iscsi://127.0.0.1:{port}/iqn.2001-04.com.example:lab/0")
    assert error.startswith(f"iqn.2001-04.com.example:lab at 127.0.0.1:{port}: cannot connect: Connection refused")
