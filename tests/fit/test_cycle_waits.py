"""What of a cycle the path's delay explains, interval by interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iscsitrace.fit.judgement import CycleWaits, _instants
from iscsitrace.measure.spans import Commands, CycleSpans
from tests.support.tables_by_hand import table


def stretch(first: int, last: int, part: str) -> dict[str, Any]:
    return {"session": 0, "time_first_ns": first, "time_last_ns": last, "part": part}


def reads() -> tuple[Commands, CycleSpans]:
    """Two reads; the next command comes before the status of the first, and after that of the second."""
    names = ("command_first_ns", "command_last_ns", "data_first_ns", "data_last_ns", "status_ns")
    instants = [(0, 0, 10, 20, 40), (100, 100, 110, 120, 130)]
    rows = [
        {"cycle": place, "operation": "read", "bytes": 512} | dict(zip(names, each, strict=True))
        for place, each in enumerate(instants)
    ]
    spans = CycleSpans("read", 512, 1, 1, *(np.array(each) for each in ([0, 1], [1, 2], [0, 100], [30, 150])))
    return Commands(table("cycles", *rows)), spans


def test_the_instants_of_each_span() -> None:
    assert _instants(*reads()).tolist() == [[0, 10, 20, 40, 30], [100, 110, 120, 130, 150]]


def all_propagation(to_target_ns: int = 12, to_initiator_ns: int = 8) -> CycleWaits:
    return CycleWaits(table("budget", stretch(0, 200, "propagation")), to_target_ns, to_initiator_ns)


def test_the_path_explains_one_rtt_for_each_answer() -> None:
    """Intervals of 10, 10, 20 and 0, and of 10, 10, 10 and 20; within the data no answer comes."""
    assert all_propagation().path_ns(*reads()).tolist() == [[10, 0, 20, 0], [10, 0, 10, 8]]
    assert all_propagation(7, 2).path_ns(*reads()).tolist() == [[7, 0, 9, 0], [7, 0, 9, 2]]


def test_commands_issued_together_may_wait_for_one_another() -> None:
    """A later one may be issued when an earlier one is done: one RTT within the data for each command but the first."""
    commands, spans = reads()
    two = CycleSpans("read", 1024, 2, 1, np.array([0]), np.array([2]), np.array([0]), np.array([150]))
    assert all_propagation().path_ns(commands, two).tolist() == [[10, 20, 10, 8]]
    assert len(spans.first) == 2


def test_each_r2t_is_an_answer() -> None:
    instants = {"command_first_ns": 0, "command_last_ns": 5, "r2t_first_ns": 30, "data_last_ns": 90, "status_ns": 110}
    commands = Commands(table("cycles", instants | {"operation": "write", "bytes": 512, "r2t_count": 2}))
    spans = CycleSpans("write", 512, 1, 1, *(np.array([each]) for each in (0, 1, 0, 140)))
    assert all_propagation().path_ns(commands, spans).tolist() == [[12, 40, 12, 8]]


def test_legs_are_means_of_the_path_s_part_in_one_way_delays() -> None:
    path_ns = all_propagation().path_ns(*reads())
    legs = CycleWaits.legs("read", path_ns, np.array([1, 1]), 10)
    assert [(leg.name, leg.delays) for leg in legs] == [
        ("command to data", pytest.approx(1)),
        ("data to status", pytest.approx(1.5)),
        ("status to command", pytest.approx(0.4)),
    ]
    weighted = CycleWaits.legs("read", path_ns, np.array([3, 1]), 10)
    assert [leg.delays for leg in weighted] == pytest.approx([1, 1.75, 0.2])


def test_an_interval_of_less_than_a_twentieth_of_a_delay_is_no_leg() -> None:
    path_ns = all_propagation().path_ns(*reads())
    assert [leg.name for leg in CycleWaits.legs("read", path_ns, np.array([1, 1]), 201)] == ["data to status"]
    assert len(CycleWaits.legs("read", path_ns, np.array([1, 1]), 200)) == 2


def test_of_a_wait_for_an_ack_one_rtt_is_the_path_s() -> None:
    """The first read waits for ACKs in all of its data, for half of an RTT and for more than one."""
    rows = [stretch(0, 10, "target_service"), stretch(10, 25, "ack_wait"), stretch(25, 60, "ack_wait")]
    waits = CycleWaits(table("budget", *rows), 18, 12)
    instants = {"command_first_ns": 0, "command_last_ns": 0, "data_first_ns": 10, "data_last_ns": 60, "status_ns": 60}
    commands = Commands(table("cycles", instants | {"operation": "read", "bytes": 512}))
    spans = CycleSpans("read", 512, 1, 1, *(np.array([each]) for each in (0, 1, 0, 60)))
    assert waits.path_ns(commands, spans).tolist() == [[0, 15 + 30, 0, 0]]
