"""The summary of many sessions as text: the busiest of them, and how many there are more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from iscsitrace.measure import throughput, waits
from iscsitrace.show import summary
from iscsitrace.show.document import Section
from tests.support.histories import Told


def document(count: int) -> dict[str, Any]:
    """Sessions that read for 1, 2, 3 ... times 5 ms, with a connection of the same number each."""
    told = Told()
    for number in range(count):
        told.session(0, 30, isid=f"{number:02}")
        told.reads(number, 1.0, number + 1)
    source = told.source()
    part: dict[str, Any] = {"stream_bytes": 1, "explained_bytes_share": 1.0, "captured_bytes_share": 1.0}
    part |= {"pdu_count": 1, "missing_pdu_count": 0, "pdu_share": 1.0, "direction": None}
    return {
        "input": [],
        "packet_count": 0,
        "sessions": list(source("sessions").rows()),
        "connections": list(source("connections").rows()),
        "mirrors": [],
        "parameters": [
            {
                "connection": number,
                "key": "MaxBurstLength",
                "source": "login",
                "effective_initiator": "1",
                "effective_target": "1",
            }
            for number in range(count)
        ],
        "volumes": [asdict(each) for each in throughput.measure(source("cycles"), waits.of_trace(source))],
        "queue_depth": {"p50": None},
        "block_sizes": [],
        "latency": [],
        "coverage": [part | {"connection": number} for number in [*range(count), None]],
        "counters": [],
    }


def tables(sections: list[Section]) -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """The first cells and the notes of each table."""
    return {
        grid.caption.partition(" (")[0].partition(":")[0]: ([row[0] for row in grid.rows], grid.notes)
        for each in sections
        for grid in each.grids
    }


def test_few_sessions_are_all_shown_in_order() -> None:
    found = tables(list(summary.sections(document(3), 3)))
    assert found["Sessions"] == (["0", "1", "2"], ())
    assert found["iSCSI connections"] == (["0", "1", "2"], ())
    assert found["Throughput"] == (["0", "1", "2", "all"], ())
    assert found["Coverage"] == (["0", "1", "2", "all"], ())


def test_of_many_the_busiest_are_shown_and_the_others_counted() -> None:
    sections = list(summary.sections(document(40), 3))
    found = tables(sections)
    more = ("37 more rows are not shown; --top COUNT shows more.",)
    assert found["Sessions"] == (["39", "38", "37"], more)
    assert found["iSCSI connections"] == (["39", "38", "37"], more)
    assert found["Throughput"] == (["39", "38", "37", "all"], more)
    assert found["Coverage"] == (["37", "38", "39", "all"], ("37 more rows are not shown.",))
    (parameters,) = (grid for each in sections for grid in each.grids if grid.caption == "Negotiated parameters")
    assert parameters.rows == (("MaxBurstLength", "1", "0 1 2 and 37 more"),)
