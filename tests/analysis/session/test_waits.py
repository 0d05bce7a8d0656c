"""What of a cycle the path's delay explains, interval by interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.analysis.session.spans import Commands, Spans
from iscsitrace.analysis.session.waits import Waits, _instants
from tests.support.tables_by_hand import table


def stretch(first: int, last: int, part: str) -> dict[str, Any]:
    return {"session": 0, "time_first_ns": first, "time_last_ns": last, "part": part}


def reads() -> tuple[Commands, Spans]:
    """Two reads; the next command comes before the status of the first, and after that of the second."""
    names = ("command_first_ns", "command_last_ns", "data_first_ns", "data_last_ns", "status_ns")
    instants = [(0, 0, 10, 20, 40), (100, 100, 110, 120, 130)]
    rows = [
        {"cycle": place, "operation": "read", "bytes": 512} | dict(zip(names, each, strict=True))
        for place, each in enumerate(instants)
    ]
    spans = Spans("read", 512, 1, 1, *(np.array(each) for each in ([0, 1], [1, 2], [0, 100], [30, 150])))
    return Commands(table("cycles", *rows)), spans


def test_the_instants_of_each_span() -> None:
    assert _instants(*reads()).tolist() == [[0, 10, 20, 40, 30], [100, 110, 120, 130, 150]]


def test_legs_are_means_of_the_path_s_part_in_one_way_delays() -> None:
    waits = Waits(table("budget", stretch(0, 200, "propagation")), 20)
    legs = waits.legs(*reads(), np.array([1, 1]), 10)
    # the last interval of the first read is empty: what comes before its status is counted already
    assert [(leg.name, leg.delays) for leg in legs] == [
        ("command to data", pytest.approx(1)),
        ("data", pytest.approx(1)),
        ("data to status", pytest.approx(1.5)),
        ("status to command", pytest.approx(1)),
    ]
    weighted = waits.legs(*reads(), np.array([3, 1]), 10)
    assert [leg.delays for leg in weighted] == pytest.approx([1, 1, 1.75, 0.5])


def test_an_interval_of_less_than_a_twentieth_of_a_delay_is_no_leg() -> None:
    waits = Waits(table("budget", stretch(0, 200, "propagation")), 20)
    assert [leg.name for leg in waits.legs(*reads(), np.array([1, 1]), 201)] == ["data to status"]
    assert len(waits.legs(*reads(), np.array([1, 1]), 200)) == 4


def test_of_a_wait_for_an_ack_one_rtt_is_the_path_s() -> None:
    rows = [stretch(0, 100, "ack_wait"), stretch(100, 150, "propagation"), stretch(150, 160, "target_service")]
    waits = Waits(table("budget", *rows), 30)
    starts, ends = np.array([0, 20, 40, 100, 0]), np.array([100, 40, 100, 200, 10])
    assert waits.path_ns(starts, ends).tolist() == [30, 10, 0, 50, 10]
