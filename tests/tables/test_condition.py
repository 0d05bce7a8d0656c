"""Conditions on rows: against a naive evaluation of each row, missing values, and texts that are wrong."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iscsitrace.errors import InputInvalid, IscsitraceError
from iscsitrace.events.selection import COLUMNS, HEADINGS
from iscsitrace.measure.selection import CYCLE_HEADINGS, cycles_columns
from iscsitrace.measure.selection import pick as pick_commands
from iscsitrace.tables.condition import Condition
from tests.support.tables_by_hand import MS, table, with_waits

SIGNS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
START_NS = 5 * 10**9
ROWS: list[dict[str, Any]] = [
    {
        "cycle": number,
        "connection": number % 3,
        "lun": number % 2,
        "lba": None if number % 4 == 0 else number * 7 % 5,
        "block_count": number % 3,
        "bytes": (None, 4096, 65_536)[number % 3],
        "operation": ("read", "write", "inquiry")[number // 3 % 3],
        "status": (0, 2, None, 8)[number % 4],
        "is_read": number // 3 % 3 == 0,
        "command_first_ns": START_NS + number * 10**6,
        "idle_ns": None if number % 5 == 0 else number * 10**5,
    }
    for number in range(60)
]
CYCLES = table("cycles", *ROWS)


def met(text: str) -> list[int]:
    chosen = CYCLES.select(Condition(text, cycles_columns()).rows(CYCLES, START_NS))
    return [int(number) for number in chosen["cycle"]]


def expected(holds: Any) -> list[int]:
    return [row["cycle"] for row in ROWS if holds(row)]


def made(chance: random.Random, depth: int) -> tuple[str, Any]:
    """A condition as a text, and as a function of a row."""
    kind = chance.randrange(9 if depth else 6)
    name = chance.choice(["lun", "lba", "bytes", "connection", "cycle"])
    if kind < 2:
        sign, value = chance.choice(list(SIGNS)), chance.choice([0, 1, 2, 3, 4096, 65_536])
        written = {4096: "4K", 65_536: "64K"}.get(value, str(value)) if name == "bytes" else hex(value)
        return f"{name} {sign} {written}", lambda row: row[name] is not None and SIGNS[sign](row[name], value)
    if kind == 2:
        words = chance.sample(["read", "write", "inquiry"], chance.randrange(1, 4))
        return f"operation in {{{', '.join(words)}}}", lambda row: row["operation"] in words
    if kind == 3:
        low, high = sorted(chance.choices(range(6), k=2))
        return (
            f"lba in {{{low}..{high}, 4}}",
            lambda row: row["lba"] is not None and (low <= row["lba"] <= high or row["lba"] == 4),
        )
    if kind == 4:
        return chance.choice(["is_read", "is_read == true"]), lambda row: row["is_read"]
    if kind == 5:
        return name, lambda row: row[name] is not None
    left, of_left = made(chance, depth - 1)
    right, of_right = made(chance, depth - 1)
    if kind == 6:
        return f"{chance.choice(['!', 'not '])}({left})", lambda row: not of_left(row)
    if kind == 7:
        return f"({left}) {chance.choice(['&&', 'and'])} ({right})", lambda row: of_left(row) and of_right(row)
    return f"({left}) {chance.choice(['||', 'or'])} ({right})", lambda row: of_left(row) or of_right(row)


@pytest.mark.parametrize("seed", range(300))
def test_the_rows_are_those_of_a_naive_evaluation(seed: int) -> None:
    text, holds = made(random.Random(seed), 4)  # noqa: S311
    assert met(text) == expected(holds), text


def test_and_binds_more_than_or_and_not_more_than_and() -> None:
    assert met("lun == 0 || lun == 1 && lba == 3") == expected(lambda row: row["lun"] == 0 or row["lba"] == 3)
    assert met("!lun == 0 && lba") == expected(lambda row: row["lun"] != 0 and row["lba"] is not None)


def test_a_missing_value_meets_no_comparison() -> None:
    is_missing = [row["cycle"] for row in ROWS if row["lba"] is None]
    for sign in SIGNS:
        assert not set(met(f"lba {sign} 3")) & set(is_missing)
    assert set(is_missing) <= set(met("!(lba == 3)"))
    assert not set(met("lba != block_count")) & set(is_missing)


def test_units_words_and_columns_without_their_unit() -> None:
    assert met("idle > 1.5ms") == met("idle_ns > 1500us") == expected(lambda row: (row["idle_ns"] or 0) > 1_500_000)
    assert met("status == check_condition") == met('status == "CHECK CONDITION"') == met("status == 2")
    assert met("status == 2") == expected(lambda row: row["status"] == 2)
    assert met("tcp.stream == 1") == met("stream == 1") == met("connection == 1")
    assert met('operation contains "rit"') == met("operation == write")


def test_instants_count_from_the_first_packet() -> None:
    assert met("time in {10ms..12ms}") == met("command_first_ns >= 10ms && command_first_ns <= 12ms") == [10, 11, 12]


def test_two_columns_are_compared_as_numbers() -> None:
    assert met("lba < block_count") == expected(lambda row: row["lba"] is not None and row["lba"] < row["block_count"])


def test_a_command_without_a_status_is_slower_than_it_waited_and_never_faster() -> None:
    """The first took 4 ms; the second had waited 8 ms when its connection ended."""
    cycles, waited = with_waits(
        [
            {"cycle": 0, "command_first_ns": 0, "status_ns": 4 * MS, "is_complete": True, "status": 0},
            {"cycle": 1, "command_first_ns": 0, "status_ns": None, "end_ns": 8 * MS, "is_lost": True},
        ]
    )
    said = {
        "latency > 3ms": [0, 1], "latency >= 8ms": [1], "latency > 8ms": [], "latency < 9ms": [0], "latency == 8ms": [],
        "latency != 5ms": [0, 1], "latency != 9ms": [0], "latency in {1ms..20ms}": [0], "latency": [0, 1],
    }  # fmt: skip
    for text, numbers in said.items():
        chosen, of_chosen = pick_commands(cycles, waited, Condition(text, cycles_columns()), 0)
        assert chosen["cycle"].tolist() == numbers, text
        assert len(of_chosen.least_ns) == len(numbers)


def test_severities_have_an_order() -> None:
    kinds = ("info", "warning", "data_loss", "error")
    events = table("events", *({"event": place, "severity": word, "text": word} for place, word in enumerate(kinds)))
    for text, numbers in (("severity >= warning", [1, 2, 3]), ("text contains 'r'", [1, 3]), ("text == info", [0])):
        assert events.select(Condition(text, COLUMNS).rows(events))["event"].tolist() == numbers


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("latncy > 1ms", "cycles has no column latncy; did you mean latency?"),
        ("I/O size > 64K", "did you mean bytes?"),
        ("lun == 0 && i/o size in {4K}", "did you mean bytes?"),
        ("QD >= 4", "cycles has no column QD; did you mean queue_depth?"),
        ("Latency > 1ms", "cycles has no column Latency; did you mean latency?"),
        ("status wait > 1ms", "did you mean status_wait?"),
        ("frame.number == 68", "no column frame.number; did you mean command_frame or data_first_frame or "),
        ("scsi.lun == 0", "no column scsi.lun; did you mean lun?"),
        (
            "QD > 1 && foo == 2 && LUN in {0}",
            "cycles has no columns QD (did you mean queue_depth?), foo, LUN (did you mean lun?)",
        ),
        ("status wait > 1ms && I/O size == 4K", "did you mean bytes and status_wait?"),
        ("operation == xyzzy", ", write_filemarks and "),
        ("latency > 10", "latency_ns: '10' is not a time like \"8ms\" (ns, us, ms, s)"),
        ("bytes > 5ms", "bytes: '5ms' is not a size like"),
        ("lun == 1.5", "lun: '1.5' is not a whole number"),
        ("operation == raed", "operation has no value raed; did you mean read?"),
        ("operation < read", "operation has no order: compare it by ==, != or in"),
        ("is_read == maybe", "is_read has no value maybe; there are true, false, 1, 0"),
        ("lun = 0", "= is not a comparison: write == after lun"),
        ("lba > latency", "lba and latency_ns cannot be compared: they are different quantities"),
        ("time > latency", "command_first_ns and latency_ns cannot be compared"),
        ("lun == 0 lun", "unexpected lun after lun == 0"),
        ("(lun == 0", "expected ) and found the end after lun == 0"),
        ("lun ==", "expected a value after lun =="),
        ("lun in 3", "expected { after lun in 3"),
        ("lun in {3", "expected , or }"),
        ("lun contains 3", "lun holds numbers: contains is for text"),
        ("5 == lun", "expected a column and found 5"),
        ("lun == $x", "unexpected $x"),
        ("lun == 'x", "unexpected 'x"),
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("(" * 100 + "lun" + ")" * 100, "too many parentheses"),
        ("lun or " * 2000 + "lun", "longer than 10,000 characters"),
    ],
)
def test_a_wrong_filter_is_one_line_with_the_way_out(text: str, why: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        Condition(text, cycles_columns())
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


_PARTS = st.sampled_from(
    ["lun", "latency", "operation", "==", "<", "in", "{", "}", "..", "(", ")", "!", "&&", "or", "5", "10ms", "read",
     "contains", "'x'", "-1", ",", "time", "status", "is_read", "0x10", "é", "\n", "9" * 40]
)  # fmt: skip


@given(st.lists(_PARTS, max_size=12).map(" ".join))
def test_any_text_is_a_condition_or_one_error(text: str) -> None:
    try:
        condition = Condition(text, cycles_columns())
    except IscsitraceError:
        return
    assert len(condition.rows(CYCLES)) == len(CYCLES)


def test_every_heading_has_a_column() -> None:
    for headings, columns in ((CYCLE_HEADINGS, cycles_columns()), (HEADINGS, COLUMNS)):
        for column in headings.values():
            assert columns.find(column).name == column
    for text in ("event == outage", 'event == "outage"', "event in {outage}"):
        with pytest.raises(InputInvalid, match=r"did you mean kind == outage\?"):
            Condition(text, COLUMNS)
    assert Condition("frame.number == 68", COLUMNS)
    with pytest.raises(InputInvalid, match=r"event holds numbers: contains is for text; did you mean text\?"):
        Condition("event contains reset", COLUMNS)
