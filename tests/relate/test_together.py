"""Which runs are streams of one job: both sides of each threshold, and columns against a search through all pairs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.relate.jobs import runs as subject
from iscsitrace.relate.jobs.runs import Runs

Row = dict[str, Any]


def run(**columns: Any) -> Row:
    """Of 100 ns, with no session and no names."""
    known: Row = {
        "connection": 0, "session": -1, "path_ns": -1, "nodes": -1, "is_write": False, "block_bytes": 4_096,
        "bytes": 100, "busy_ns": 100, "first_ns": 0, "last_ns": 100, "last_row": 0,
    }  # fmt: skip
    return known | columns


def runs_of(rows: list[Row]) -> Runs:
    dtypes = {"is_write": bool}
    names = run()
    return Runs(**{name: np.array([row[name] for row in rows], dtype=dtypes.get(name, int)) for name in names})


def mirror(*sides: tuple[int, ...]) -> Any:
    return SimpleNamespace(sides=[SimpleNamespace(sessions=sessions) for sessions in sides])


def are_together(longest: Row, other: Row, *mirrors: Any) -> bool:
    found = list(subject.groups_of_streams(runs_of([longest, other | {"connection": 1}]), mirrors))
    assert found in ([], [[0, 1]])
    return bool(found)


@pytest.mark.parametrize(
    ("columns", "is_together"),
    [
        ({"first_ns": 10, "last_ns": 110}, True),
        ({"first_ns": 11, "last_ns": 110}, False),
        ({"block_bytes": 8_192}, True),
        ({"block_bytes": 8_193}, False),
        ({"block_bytes": 2_048}, True),
        ({"block_bytes": 2_047}, False),
        ({"is_write": True}, False),
        # half of the shorter one's time
        ({"nodes": 0, "first_ns": 90, "last_ns": 110}, True),
        ({"nodes": 0, "first_ns": 91, "last_ns": 111}, False),
        ({"nodes": 0, "first_ns": -50, "last_ns": 50}, True),
        ({"nodes": 0, "first_ns": -51, "last_ns": 49}, False),
        ({"nodes": 0, "is_write": True, "block_bytes": 9_999}, True),
        # nodes that are not known are not the same
        ({"nodes": 1, "is_write": True}, False),
        ({"nodes": -1, "is_write": True}, False),
    ],
)
def test_streams_of_one_program(columns: Row, is_together: bool) -> None:
    longest = run(nodes=max(columns["nodes"] - columns["nodes"] % 2, -1)) if "nodes" in columns else run()
    assert are_together(longest, run(**columns)) == is_together


@pytest.mark.parametrize(("apart_ns", "is_together"), [(0, True), (1, False)])
def test_streams_of_a_nanosecond_have_to_overlap(apart_ns: int, is_together: bool) -> None:
    """Half of the time of the shorter one, at least half a nanosecond."""
    short = run(first_ns=100 + apart_ns - 1, last_ns=100 + apart_ns, nodes=0)
    assert are_together(run(nodes=0), short) is is_together
    # one without a length has no time in common with another
    assert not are_together(run(nodes=0), run(first_ns=50, last_ns=50, nodes=0))


def test_sides_of_one_mirror_are_no_job() -> None:
    mirrors = [mirror((0, 3), (1,)), mirror((4,), (2,))]

    def is_mirrored(one: int, other: int) -> bool:
        found = {not are_together(run(session=a), run(session=b), *mirrors) for a, b in ((one, other), (other, one))}
        assert len(found) == 1
        return found.pop()

    assert is_mirrored(0, 1)
    # of two mirrors, of one side, of none
    assert [is_mirrored(*pair) for pair in ((0, 2), (0, 3), (0, 9), (-1, 1), (-1, -1))] == [False] * 5


def test_a_job_has_one_run_of_each_connection_the_longest() -> None:
    long, short = run(connection=1, first_ns=50, last_ns=90), run(connection=1, last_ns=39)
    related = [each | {"nodes": 0} for each in (run(), short, long)]
    assert list(subject.groups_of_streams(runs_of(related))) == [[0, 2]]


def test_related_runs_have_the_same_known_nodes() -> None:
    runs = runs_of([run(nodes=nodes) for nodes in (0, 0, 1, -1, -1)])
    assert [subject.are_related(runs, own) for own in ([0, 1], [0, 2], [3, 4], [0, 3])] == [
        True,
        False,
        False,
        False,
    ]


RUNS = st.lists(
    st.tuples(
        *(st.integers(0, 4), st.integers(-1, 1), st.booleans(), st.sampled_from([1, 2, 3, 5])),
        *(st.integers(0, 40), st.integers(0, 40)),
    ),
    max_size=14,
)


@given(RUNS, st.sampled_from([1, 3, 1 << 18]))
def test_columns_against_a_search_through_all(drawn: list[tuple[int, int, bool, int, int, int]], at_once: int) -> None:
    rows = [
        run(connection=connection, session=connection, nodes=nodes, is_write=is_write, block_bytes=size) | times
        for connection, nodes, is_write, size, first_ns, length_ns in drawn
        for times in ({"first_ns": first_ns, "last_ns": first_ns + length_ns},)
    ]
    mirrors = [mirror((0,), (1,))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "_PAIRS", at_once)
        found = list(subject.groups_of_streams(runs_of(rows), mirrors))
    assert found == naive(rows)


def naive(rows: list[Row]) -> list[list[int]]:
    found = []
    rest = sorted(
        range(len(rows)), key=lambda each: (rows[each]["first_ns"] - rows[each]["last_ns"], rows[each]["connection"])
    )
    while rest:
        longest, *others = rest
        members = {rows[longest]["connection"]: longest}
        for other in others:
            if rows[other]["connection"] not in members and is_stream(rows[longest], rows[other]):
                members[rows[other]["connection"]] = other
        rest = [each for each in others if each not in members.values()]
        if len(members) > 1:
            found.append([*members.values()])
    return found


def is_stream(longest: Row, other: Row) -> bool:
    """Sessions 0 and 1 are the sides of a mirror."""
    if {longest["session"], other["session"]} == {0, 1}:
        return False
    overlap = min(longest["last_ns"], other["last_ns"]) - max(longest["first_ns"], other["first_ns"])
    if overlap < max(other["last_ns"] - other["first_ns"], 1) / 2:
        return False
    if longest["nodes"] == other["nodes"] >= 0:
        return True
    small, large = sorted((longest["block_bytes"], other["block_bytes"]))
    apart = abs(longest["first_ns"] - other["first_ns"])
    is_alike = longest["is_write"] == other["is_write"] and large <= 2 * small
    return bool(is_alike and 10 * apart <= longest["last_ns"] - longest["first_ns"])
