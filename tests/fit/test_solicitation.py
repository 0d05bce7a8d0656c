"""Negotiated parameters as they were used: which of them the packets confirm, and which defaults remain."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.fit import conditions
from iscsitrace.model.setting import Solicitation
from tests.support.tables_by_hand import table

NO_R2T = {"InitialR2T": "No", "FirstBurstLength": "65536"}


def measured(keys: dict[str, str], *bursts: int, **write: Any) -> Solicitation:
    """A write of 256 KiB beside a smaller one, and the lengths that R2Ts ask for."""
    parameters = [{"connection": 0, "key": key, "effective_target": text} for key, text in keys.items()]
    rounds = [{"cycle": 1, "desired_data_transfer_length": each} for each in bursts]
    writes = [{"bytes": 4_096}, {"bytes": 262_144} | write]
    tables = (table("parameters", *parameters), table("cycles", *writes), table("rounds", *rounds))
    return conditions.measure(*tables)[0]


def test_immediate_data_of_one_byte_is_used() -> None:
    assert [measured({}, immediate_bytes=each).is_immediate_data for each in (0, 1)] == [False, True]
    assert [measured({}, unsolicited_bytes=each).is_initial_r2t for each in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("burst", "immediate", "max_burst"),
    [
        # a full burst, one byte less, and all that is left of the write
        (100_000, 0, 100_000),
        (99_999, 0, 99_999),
        (62_144, 200_000, 100_000),
        (62_143, 200_000, 62_143),
        (0, 0, 100_000),
    ],
)
def test_bursts_are_as_long_as_negotiated_unless_r2ts_ask_for_less(burst: int, immediate: int, max_burst: int) -> None:
    keys = {"MaxBurstLength": "100000"}
    bursts = (burst,) if burst else ()
    assert measured(keys, *bursts, immediate_bytes=immediate).max_burst_bytes == max_burst
    split = {"immediate_bytes": immediate - immediate // 4, "unsolicited_bytes": immediate // 4}
    assert measured(keys, *bursts, **split).max_burst_bytes == max_burst


def test_bursts_that_were_not_negotiated_are_as_seen() -> None:
    assert measured({}, 300_000).max_burst_bytes == 300_000
    assert measured({}).max_burst_bytes == 262_144


def test_a_first_burst_that_was_not_negotiated_is_as_seen_where_r2ts_asked_for_the_rest() -> None:
    assert measured({}, 100_000, immediate_bytes=3_000, unsolicited_bytes=4_000).first_burst_bytes == 7_000
    # without an R2T more might have gone, up to the default at least
    assert measured({}, immediate_bytes=3_000, unsolicited_bytes=4_000).first_burst_bytes == 65_536
    assert measured({}, immediate_bytes=3_000, unsolicited_bytes=70_000).first_burst_bytes == 73_000
    assert measured({}, 100_000).first_burst_bytes == 65_536


def test_a_first_burst_that_went_with_the_command_is_unsolicited() -> None:
    assert not measured(NO_R2T, 100_000, immediate_bytes=65_536).is_initial_r2t
    assert measured(NO_R2T, 100_000, immediate_bytes=65_535).is_initial_r2t
    # a write that is shorter than the first burst goes with it as a whole
    assert not measured(NO_R2T | {"FirstBurstLength": "1000000"}, immediate_bytes=262_144).is_initial_r2t
    assert measured(NO_R2T | {"FirstBurstLength": "1000000"}, immediate_bytes=262_143).is_initial_r2t
    assert measured({"FirstBurstLength": "65536"}, 100_000, immediate_bytes=65_536).is_initial_r2t


def test_parameters_are_those_of_the_leading_connection_and_may_be_hexadecimal() -> None:
    rows = [
        {"connection": 4, "key": "MaxBurstLength", "effective_target": "4096"},
        {"connection": 2, "key": "MaxBurstLength", "effective_target": "0x10000"},
        {"connection": 4, "key": "MaxBurstLength", "effective_target": "8192"},
        {"connection": 2, "key": "MaxOutstandingR2T", "effective_target": None},
        {"connection": 2, "key": "TargetAlias", "effective_target": "disk"},
    ]
    found, assumed = conditions.measure(table("parameters", *rows), table("cycles"), table("rounds"))
    assert found == Solicitation(max_burst_bytes=65_536)
    assert assumed == {"first_burst_bytes"}
    rows.append({"connection": 2, "key": "FirstBurstLength", "effective_target": "512"})
    found, assumed = conditions.measure(table("parameters", *rows), table("cycles"), table("rounds"))
    assert (found.first_burst_bytes, assumed) == (512, frozenset())
