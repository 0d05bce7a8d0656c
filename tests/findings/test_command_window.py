"""Waits for the command window, against a count from the definition by two loops; and where nothing is searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.findings import command_window
from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.busy import BUSY
from iscsitrace.measure.facts import Facts
from iscsitrace.tables.nulls import numbers_of
from tests.support.tables_by_hand import MS, table

Row = dict[str, Any]
SESSIONS = 2
NULL = (None, 2**32 - 1)
"""The largest number is null in the table, too."""


def columns_of(rows: list[Row], rtt_ns: int) -> Facts:
    """Those of SESSIONS sessions with these commands, and that RTT to the initiator."""
    tables = {
        "cycles": table("cycles", *({"cycle": number} | row for number, row in enumerate(rows))),
        "connections": table(
            "connections",
            *({"connection": each, "session": each, "rtt_to_initiator_min_ns": rtt_ns} for each in range(SESSIONS)),
        ),
        "senders": table("senders"),
    }

    def places(name: str) -> Any:
        return numbers_of(tables[name], "connection" if name == "senders" else "session")

    return Facts(tables.__getitem__, places, np.zeros((SESSIONS, BUSY + 1, len(PARTS)), dtype=np.int64))


def distance(number: int, first: int) -> int:
    return (number - first + 2**31) % 2**32 - 2**31


def waited(rows: list[Row], session: int, rtt_ns: int) -> tuple[int, int]:
    """How many commands of a session waited, and how many have a CmdSN, by the words of the finding."""
    own = [row for row in rows if row["session"] == session]
    sent = sorted((row for row in own if row["cmd_sn"] not in NULL), key=lambda row: row["command_first_ns"])
    known = [row for row in own if row["max_cmd_sn"] not in NULL and row["status_ns"] is not None]
    count = 0
    for row in sent:
        first, before = sent[0]["cmd_sn"], row["command_first_ns"] - MS
        allowed = [distance(one["max_cmd_sn"], first) for one in known if one["status_ns"] <= before - rtt_ns]
        asked = [distance(one["cmd_sn"], first) for one in sent if one["command_first_ns"] <= before]
        number = distance(row["cmd_sn"], first)
        count += bool(allowed and asked and max(allowed) <= max(asked) and max(allowed) < number)
    return count, len(sent)


def sessions(random: np.random.Generator, window: int, answered_after_ns: int) -> list[Row]:
    """Commands of two sessions, one about every millisecond; order, room and answers vary, and some are missing."""
    rows: list[Row] = []
    for session in range(SESSIONS):
        now, first = 100 * MS, int(random.choice([1, 2**31 - 15, 2**32 - 15]))
        number = 0
        # after a burst the session may be slow
        burst, pace = int(random.integers(2, 8)), int(random.choice([1, 30]))
        for place in range(40):
            # a jump where commands are missing from the capture
            number += int(random.choice([1] * 19 + [30]))
            now += int(random.choice([0, MS // 2, MS, MS, 2 * MS])) * (pace if place >= burst else 1)
            late_ns, room = (int(random.choice(each)) for each in ([0, 0, 1, MS // 2, MS], [0, 0, 0, 1, 3, -1]))
            row: Row = {"session": session, "connection": session, "command_first_ns": now}
            row |= {"cmd_sn": (first + number) % 2**32, "max_cmd_sn": (first + number + window + room) % 2**32}
            row |= {"status_ns": now + answered_after_ns + late_ns}
            if random.random() < 0.003:
                row[str(random.choice(["cmd_sn", "max_cmd_sn", "status_ns"]))] = None
            rows.append(row)
    # captured in another order
    return [*rows[1::2], *rows[::2]] if random.random() < 0.3 else rows


@pytest.mark.parametrize("window", [1, 4, 8, 16])
@pytest.mark.parametrize("rtt_ns", [0, MS // 2, 4 * MS])
def test_commands_and_sessions_that_waited_are_those_by_the_definition(window: int, rtt_ns: int) -> None:
    seen = set()
    for seed in range(80):
        random = np.random.default_rng(seed)
        rows = sessions(random, window, int(window * MS * random.choice([0.1, 0.3, 0.8, 1.5])))
        seen |= {*checked(rows, rtt_ns)}
    # some sessions are left out, some searched in vain
    assert seen >= {(False, 0), (True, 0)} if window == 16 else {(True, 0)}
    assert any(count for _, count in seen)


def checked(rows: list[Row], rtt_ns: int) -> list[tuple[bool, int]]:
    """Whether each session was searched, and how many of its commands waited, compared with the definition."""
    facts, rtts_ns = columns_of(rows, rtt_ns), np.full(SESSIONS, rtt_ns)
    counts = [waited(rows, session, rtt_ns) for session in range(SESSIONS)]
    found = command_window._window(facts.table("cycles"), facts.places("cycles"), rtts_ns)
    assert np.bincount(found.place[found.waited], minlength=SESSIONS).tolist() == [count for count, _ in counts]
    # none is left out before the search
    may_close = command_window._may_close(facts, rtts_ns).tolist()
    assert [may or not count for may, (count, _) in zip(may_close, counts, strict=True)] == [True] * SESSIONS
    weighed = command_window._has_waited(facts).is_found.tolist()
    assert weighed == [count >= 8 and count >= 0.1 * sent for count, sent in counts]
    return [(may, count) for may, (count, _) in zip(may_close, counts, strict=True)]


def steady(answered_after_ns: int) -> list[Row]:
    """A command every millisecond, in a window of four."""
    return [
        {"session": 0, "connection": 0, "cmd_sn": number, "command_first_ns": (100 + number) * MS}
        | {"max_cmd_sn": number + 4, "status_ns": (100 + number) * MS + answered_after_ns}
        for number in range(20)
    ]


def test_an_open_window_is_seen_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: Any) -> Any:
        raise AssertionError("a search")

    monkeypatch.setattr(command_window, "_window", search)
    # the command four before was answered a millisecond before at the latest
    assert not command_window._has_waited(columns_of(steady(3 * MS), 0)).is_found.any()
    for late in (columns_of(steady(3 * MS + 1), 0), columns_of(steady(3 * MS), 1)):
        with pytest.raises(AssertionError, match="a search"):
            command_window._has_waited(late)


def test_a_wait_is_not_overlooked_where_numbers_are_missing_or_the_first_window_is_small() -> None:
    """Beside a session whose window is open, which stands before it in order."""
    beside = [row | {"max_cmd_sn": 99} for row in steady(3 * MS)]
    for first, after in ((1, 60), (30, 60)):
        # the second command has the last number that the first status allows, the third waits for the second status
        numbers = (0, first, first + 1, *range(first + 2, first + 8))
        rows = [
            {"session": 1, "connection": 1, "cmd_sn": number, "command_first_ns": (100 + 50 * place) * MS}
            | {"max_cmd_sn": after if place else first, "status_ns": (110 + 50 * place) * MS}
            for place, number in enumerate(numbers)
        ]
        rows[1]["status_ns"] = rows[2]["command_first_ns"] - MS // 2
        assert checked([*beside, *rows], 0) == [(False, 0), (True, 1)]


def test_commands_outside_of_all_sessions_count_for_none() -> None:
    rows = [row | {"session": None} for row in steady(4 * MS)]
    assert not command_window._has_waited(columns_of(rows, 0)).is_found.any()
