"""The finding on mirrors: which mirror is reported, with which time, figures and frames."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from iscsitrace.findings.finding import Observation
from iscsitrace.findings.parallel import MIRROR_WAITS_FOR_FARTHEST
from tests.support.tables_by_hand import MS, table

CYCLES = table("cycles", *({"cycle": row, "command_frame": 100 + row, "status_frame": 200 + row} for row in range(30)))


def account(
    alone_ms: int, *sessions: int, writes: int = 8, cause: str | None = None, doubt: str | None = None, worst: int = 4
) -> Any:
    """A mirror of two sides. Write n is command 3n of the near side, and commands 3n + 1 and 3n + 2 of the far one."""
    rows = 3 * np.arange(worst)
    far = SimpleNamespace(alone_ns=alone_ms * MS, label="session 1", lun=4, target="iqn.far", last_count=6, cause=cause)
    found = SimpleNamespace(
        side_rows=np.column_stack([rows, rows + 1]), side_last_rows=np.column_stack([rows, rows + 2])
    )
    mirror = SimpleNamespace(sessions=sessions, is_sure=doubt is None, sides=("near", "far"))
    skews = {"p50": 3 * MS, "max": 7 * MS}
    return SimpleNamespace(
        name="sessions 0 and 1 are a mirror", mirror=mirror, known_count=writes, farthest=far, found=found,
        skews=skews, doubt=doubt, worst=np.arange(worst)[::-1],
    )  # fmt: skip


def observed(*accounts: Any, session: int | None = 0, jobs_ms: int = 100) -> Observation | None:
    jobs_ns = jobs_ms * MS
    subject = SimpleNamespace(
        connections=[] if session is None else [{"session": session}],
        jobs_ns=jobs_ns,
        share=lambda amount_ns: amount_ns / jobs_ns,
    )
    case: Any = SimpleNamespace(subject=subject, groups=SimpleNamespace(mirrors=accounts, cycles=CYCLES))
    return MIRROR_WAITS_FOR_FARTHEST.tell(case)


FIGURES = "for 20.0 ms it alone had writes in flight"
SKEWS = ". It acknowledged 6 of 8 writes last, typically 3.0 ms after the first side, at most 7.0 ms."


def test_the_farthest_side_is_named_with_its_figures() -> None:
    found = observed(account(20, 0, 1))
    assert found
    assert found.text == f"Sessions 0 and 1 are a mirror whose writes wait for session 1: {FIGURES}{SKEWS}"
    assert (found.cost_ns, found.rank) == (20 * MS, None)


def test_cause_and_doubt_are_named() -> None:
    found = observed(account(20, 0, 1, cause="loss", doubt="or a stripe"))
    assert found
    assert found.text.endswith(f"{FIGURES}, mostly because it lost packets{SKEWS} It is a mirror, or a stripe.")
    assert found.rank == "note"


def test_of_a_split_write_the_first_command_and_the_last_status_are_shown() -> None:
    found = observed(account(20, 0, 1, worst=4))
    assert found
    # writes 3, 2 and 1 waited longest
    expected = [109, 209, 110, 211, 106, 206, 107, 208, 103, 203, 104, 205]
    assert list(found.frames) == expected


@pytest.mark.parametrize(("alone_ms", "cost_ms"), [(4, None), (5, 5), (100, 100), (101, 100)])
def test_the_cost_is_at_least_a_twentieth_of_the_busy_time_and_at_most_all(alone_ms: int, cost_ms: int | None) -> None:
    found = observed(account(alone_ms, 0, 1))
    assert (found.cost_ns if found else None) == (None if cost_ms is None else cost_ms * MS)


def test_the_worst_mirror_of_the_session_with_known_writes_is_reported() -> None:
    others = [account(90, 1, 2), account(80, 0, 2, writes=0)]
    found = observed(*others, account(20, 0, 1), account(30, 0, 3), account(25, 3, 0))
    assert found
    assert found.cost_ns == 30 * MS
    assert observed(*others) is None
    assert observed(*others, session=None) is None
