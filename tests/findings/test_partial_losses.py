"""Connections that a session lost while others of it went on (MC/S), on traces by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at


def found(told: Told) -> Finding | None:
    findings = [each for opinion in told.diagnosis().stories for each in opinion.findings]
    return next((each for each in findings if each.name == "connection_lost"), None)


def sharing(*, first: float = 0.0, last: float = 5.0, **end: float) -> Told:
    """A session of two connections; reads on the first one all the time, and on the second (CID 1) until it ends."""
    told = Told()
    told.session(0, 20, cid=0)
    told.connection(first, last, session=0, is_iscsi=True, cid=1, **end)
    told.login(first + 0.01, 1)
    told.reads(0, 0.0, 20)
    read(told, 1, 4.8, 4.9)
    read(told, 0, 5.2, 5.3)
    return told


def read(told: Told, connection: int, first: float, status: float | None, lba: int = 0) -> None:
    """A read of 32 blocks on one of the connections."""
    told.read(0, first, status, lba=lba, block_count=32)
    told.rows["cycles"][-1]["connection"] = connection


def test_a_command_that_was_issued_again_on_another_connection() -> None:
    told = sharing(rst_to_initiator_ns=5.0)
    read(told, 1, 4.95, None, lba=640)
    read(told, 0, 7.0, 7.1, lba=640)
    told.connection(8.0, 20, session=0, is_iscsi=True, cid=1)
    told.login(8.01, 2)
    finding = found(told)
    assert finding
    assert finding.text == (
        "Session 0 lost connection 1 (CID 1) and continued on 1 other connection. The target reset it at 5.00 s, "
        "without a logout. 1 command had no status. The initiator reissued it on another connection: 1 completed "
        "within 2.1 s. The initiator added a connection at 8.01 s, 3.0 s later."
    )
    assert (finding.cost_ns, finding.spans) == (2.1 * SECOND, ((at(5.0), at(7.1)),))
    assert (finding.severity, finding.is_final, finding.points_to) == ("error", False, "the target or a firewall")
    assert told.rows["connections"][1]["rst_to_initiator_frame"] in finding.frames
    headline = told.diagnosis().headline
    assert headline
    assert (headline.name, headline.sessions) == ("connection_lost", (0,))


def test_a_command_that_nobody_issued_again_is_an_error() -> None:
    told = sharing(fin_to_initiator_ns=5.0)
    read(told, 1, 4.95, None, lba=640)
    finding = found(told)
    assert finding
    assert "1 command had no status, and no other connection ran it in the capture." in finding.text
    assert finding.text.endswith("No connection took its place in the capture.")
    assert (finding.severity, finding.is_final, finding.cost_ns) == ("error", True, None)


def test_an_idle_connection_that_is_lost_does_not_lead() -> None:
    finding = found(sharing(rst_to_initiator_ns=5.0))
    assert finding
    assert (finding.severity, finding.leads) == ("warning", False)


def _logged_out(told: Told, **columns: Any) -> None:
    told.add("logouts", **({"request_ns": 4.99, "response_ns": 5.0, "reason": 1, "cid": 1, "connection": 0} | columns))


@pytest.mark.parametrize("columns", [{}, {"connection": 1}, {"reason": 0, "cid": None}])
def test_a_connection_that_was_logged_out_is_not_lost(columns: dict[str, Any]) -> None:
    told = sharing(fin_to_target_ns=5.0)
    _logged_out(told, **columns)
    assert found(told) is None


@pytest.mark.parametrize(
    "columns",
    [
        # the other connection
        {"cid": 0},
        # too late: it was gone
        {"request_ns": 5.5, "response_ns": 5.6},
        # what an initiator sends when it recovers a lost connection
        {"reason": 2},
    ],
)
def test_another_logout_does_not_excuse_it(columns: dict[str, Any]) -> None:
    told = sharing(rst_to_initiator_ns=5.0)
    _logged_out(told, **columns)
    assert found(told)


def test_a_session_that_is_given_up_with_both_connections() -> None:
    """A status may still come on the second one: no command is issued after the first end."""
    told = sharing(rst_to_target_ns=5.0)
    told.rows["cycles"].pop()
    told.rows["budget"].pop()
    read(told, 0, 4.99, 5.05)
    assert found(told) is None


def test_the_only_connection_of_a_session_that_another_one_carried_on() -> None:
    told = Told()
    told.session(0, 5, cid=0, rst_to_initiator_ns=5.0)
    told.reads(0, 0.0, 20)
    told.connection(6, 20, session=0, is_iscsi=True, cid=0)
    told.login(6.01, 1)
    read(told, 1, 7.0, 7.1)
    finding = found(told)
    assert finding
    assert finding.text.startswith("Session 0 lost connection 0 (CID 0) and continued on a new connection. ")
    assert (finding.cost_ns, finding.spans) == (2.1 * SECOND, ((at(5.0), at(7.1)),))


@pytest.mark.parametrize(("retransmissions", "until", "is_found"), [(3, 8.0, True), (3, 5.9, False), (0, 8.0, False)])
def test_a_connection_on_which_the_target_falls_silent(retransmissions: int, until: float, is_found: bool) -> None:
    told = sharing(last=until)
    told.rows["connections"][1] |= {
        "time_last_to_initiator_ns": at(5.0),
        "time_last_to_target_ns": at(until),
        "retransmitted_packets_to_target": retransmissions,
    }
    read(told, 1, 4.95, None, lba=640)
    finding = found(told)
    assert (finding is not None) == is_found
    if finding:
        assert "The target fell silent on it at 5.00 s, without a logout. 1 command had no status" in finding.text
        assert (finding.points_to, finding.is_final) == ("the path or the target", True)


def test_a_logout_that_the_capture_may_lack() -> None:
    told = sharing(fin_to_target_ns=5.0)
    told.rows["connections"][1] |= {"gap_bytes_to_target": 48}
    assert found(told) is None
