"""The facts in the footer of a plot."""

from __future__ import annotations

from typing import Any

from iscsitrace.plots import picture
from iscsitrace.plots.view import View
from iscsitrace.tables.coverage import measure
from tests.support.tables_by_hand import table

FIRST = {
    "connection": 0,
    "is_iscsi": True,
    "initiator_address": "fd00::1",
    "initiator_port": 40_000,
    "target_address": "10.0.0.2",
    "target_port": 3260,
    "rtt_to_initiator_min_ns": 20,
    "rtt_to_target_min_ns": 80,
    "stream_bytes_to_target": 100,
    "explained_bytes_to_target": 60,
    "pdu_count_to_target": 6,
    "missing_pdu_count_to_target": 2,
}
SECOND = FIRST | {"connection": 1, "rtt_to_initiator_min_ns": 40, "stream_bytes_to_initiator": 20}
OTHER = FIRST | {"connection": 2, "rtt_to_initiator_min_ns": 1}


def described(connections: tuple[int, ...], *rows: dict[str, Any]) -> picture.PlotSubject:
    made = table("connections", *rows)
    view = View(origin_ns=7, start_ns=10, end_ns=20, connections=connections)
    return picture.subject_of_view(["/data/lab/run/a.pcap", "b.pcap"], made, measure(made), view)


def test_one_connection_has_its_rtts_and_tap() -> None:
    found = described((0,), FIRST, SECOND, OTHER)
    assert found == picture.PlotSubject(
        captures=("run/a.pcap", "b.pcap"),
        origin_ns=7,
        connections=("0: [fd00::1]:40000 - 10.0.0.2:3260",),
        rtt_to_initiator_ns=20,
        rtt_to_target_ns=80,
        tap_position="between",
        explained_bytes_share=0.6,
        pdu_share=0.75,
    )


def test_several_connections_have_a_tap_where_they_agree_and_their_coverage_together() -> None:
    found = described((0, 1), FIRST, SECOND, OTHER)
    assert len(found.connections) == 2
    assert (found.rtt_to_initiator_ns, found.rtt_to_target_ns, found.tap_position) == (None, None, "between")
    # 60 of 100 and 60 of 120 bytes
    assert found.explained_bytes_share == 120 / 220
    assert described((0, 2), FIRST, OTHER).tap_position is None


def test_a_connection_without_an_rtt_leaves_the_tap_where_the_others_have_it() -> None:
    refused = {"connection": 3, "is_iscsi": False}
    assert described((0, 3), FIRST, refused).tap_position == "between"
    assert described((3,), FIRST, refused).tap_position is None


def test_nothing_to_decode_has_no_share() -> None:
    found = described((3,), {"connection": 3, "is_iscsi": True})
    assert (found.explained_bytes_share, found.pdu_share, found.tap_position) == (None, None, None)
    none = described((9,), FIRST)
    assert (none.connections, none.rtt_to_initiator_ns, none.rtt_to_target_ns) == ((), None, None)
