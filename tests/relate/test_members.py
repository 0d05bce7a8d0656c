"""Figures of jobs, which writes belong together, and how groups are named: on values made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from iscsitrace.relate.jobs.runs import Run
from iscsitrace.relate.jobs.streams import Job, Stream, jain
from iscsitrace.relate.mirrors import account, recognition
from iscsitrace.relate.mirrors.account import SideAccount
from iscsitrace.relate.mirrors.pairing import _in_order
from tests.support.mirrors_by_hand import Hosts, Write
from tests.support.tables_by_hand import table


def run(**columns: Any) -> Run:
    """Of 100 ns, with no session and no names."""
    known: dict[str, Any] = {
        "connection": 0, "session": None, "path_ns": 10, "operation": "read", "block_bytes": 4_096, "bytes": 100,
        "busy_ns": 100, "first_ns": 0, "last_ns": 100, "last_row": 0,
    }  # fmt: skip
    return Run(**known | columns)


def test_figures_of_a_run() -> None:
    assert (run().to_target, run(operation="write").to_target) == (False, True)
    assert (run().length_ns, run().bytes_per_s, run(connection=7).label) == (100, 1e9, "connection 7")
    assert run(last_ns=0).bytes_per_s == 100e9


def job(*runs: Run) -> Job:
    nothing: Any = None
    return Job(tuple(Stream(each, each.last_ns - runs[0].last_ns, nothing, None) for each in runs), False)


def test_figures_of_a_job_of_a_nanosecond() -> None:
    short = job(run(last_ns=0), run(last_ns=1))
    assert (short.whole_ns, short.first_to_last_ns, short.alone_share, short.unused_share) == (1, 1, 1.0, 0.5)
    empty = job(run(last_ns=0), run(last_ns=0))
    assert (empty.whole_ns, empty.alone_share, empty.unused_share, empty.jain) == (0, 0.0, 1.0, 1.0)


def test_the_slowest_stream_has_the_least_throughput() -> None:
    found = job(run(bytes=40), run(connection=1, bytes=10), run(connection=2, bytes=30, first_ns=50, last_ns=150))
    assert found.slowest.run.connection == 1
    assert (found.first_ns, found.whole_ns, found.bytes) == (0, 150, 80)


def test_all_or_nothing_is_fair_only_for_nothing() -> None:
    assert (jain([0, 0]), jain([3]), jain([1, 0])) == (1.0, 1.0, 0.5)


# --- pieces of writes


def pairs(*sides: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pieces, number and time, of two sides."""
    one, other = (np.array(side, dtype=np.int64) for side in sides)
    left, right = _in_order(one[:, 0], one[:, 1], other[:, 0], other[:, 1])
    return sorted(zip(left.tolist(), right.tolist(), strict=True))


def test_pieces_are_paired_in_order_where_both_sides_have_as_many() -> None:
    assert pairs([(0, 20), (0, 10), (1, 5)], [(0, 1), (0, 99), (1, 7)]) == [(0, 1), (1, 0), (2, 2)]


def test_other_pieces_are_paired_with_the_nearest_if_that_is_mutual() -> None:
    # of piece 1 the other side has one, near the second; piece 2 and 3 are on one side only
    assert pairs([(1, 10), (1, 30), (2, 5)], [(1, 28), (3, 7)]) == [(1, 0)]
    # a piece of another number is no neighbour however near
    assert pairs([(1, 0), (1, 30), (4, 10), (4, 200)], [(1, 28), (4, 29)]) == [(1, 0), (2, 1)]


def test_the_data_of_two_sides_are_compared_write_by_write() -> None:
    """Both send two writes at once, in another order."""
    near: list[Write] = [(40.0 * (n // 2) + 0.1 * (n % 2), 10_000 + 256 * n, 256, 5.0) for n in range(20)]
    far: list[Write] = [(40.0 * (n // 2) + 0.1 * (1 - n % 2), 10_000 + 256 * n, 256, 5.0) for n in range(20)]
    hosts = Hosts()
    for target, asked in (("iqn.a", near), ("iqn.b", far)):
        hosts.ask(hosts.session(target), asked)
    source = hosts.source()
    lbas = source("cycles").raw("lba").tolist()
    starts = table("write_starts", *({"cycle": n, "bytes": 64, "crc32c": lba} for n, lba in enumerate(lbas)))
    (found,) = recognition.find(lambda name: starts if name == "write_starts" else source(name))
    assert found.is_sure


# --- names


def test_names_of_mirrors_and_sides() -> None:
    def name(*sessions: int) -> str:
        mirror: Any = SimpleNamespace(sessions=sessions)
        return account.name(mirror)

    assert name(4) == "logical units of session 4 are a mirror"
    assert name(4, 5) == "sessions 4 and 5 are a mirror"
    assert name(4, 5, 6) == "sessions 4, 5 and 6 are a mirror"
    sides = [SideAccount(0, sessions, "disk", 0, 0, 0, {}) for sessions in ((3,), (3, 4))]
    assert [(side.label, side.cause) for side in sides] == [("session 3", None), ("sessions 3 and 4", None)]
    assert SideAccount(0, (3,), "disk", 0, 0, 0, {"loss": 9, "line": 1}).cause == "loss"
