"""The finding portal_unreachable: on traces by hand, and on a recording of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED
from iscsitrace.findings.finding import Finding
from iscsitrace.relate.portals import portal, targets
from tests.support.histories import SECOND, Told, at

LISTED = "TargetName=iqn.t TargetAddress=10.0.0.2:3260,1 TargetAddress=10.0.0.2:3261,1 TargetAddress=[fd77::2]:3262,1"


def found(diagnosis: Diagnosis) -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == "portal_unreachable"]
    assert len(findings) <= 1
    return findings[0] if findings else None


def discovered(text: str = LISTED) -> Told:
    """A discovery, a session that reads until the end at 20 s."""
    told = Told()
    told.session(0, 0.1, session_type="discovery", target_name=None, end="reset", rst_to_target_ns=0.1)
    told.add(
        "texts", connection=0, request_ns=0.02, response_ns=0.03, request_text="SendTargets=All", response_text=text
    )
    told.rows["texts"][0]["response_frame"] = 77
    told.session(0.5, 20)
    told.reads(1, 1.0, 20)
    return told


def test_a_portal_that_answers_no_syn() -> None:
    told = discovered()
    told.connection(2.0, 5.0, syn_ns=2.0, target_port=3261, retransmitted_syns_to_target=2, syn_frame=90)
    told.connection(7.0, 10.0, syn_ns=7.0, target_port=3261, retransmitted_syns_to_target=2)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "Initiator 10.0.0.1 cannot reach the portal 10.0.0.2:3261: 2 connection attempts (6 SYNs) from 2.00 s to 10.00 "
        "s had no answer. SendTargets or a redirect named this portal."
    )
    assert (finding.cost_ns, finding.spans, finding.severity) == (8 * SECOND, ((at(2.0), at(10.0)),), "error")
    assert {77, 90} <= set(finding.frames)
    assert diagnosis.headline
    assert diagnosis.headline.name == "portal_unreachable"
    # the session that works has nothing to do with it
    assert diagnosis.sessions[1].headline.name != "portal_unreachable"


def test_a_portal_that_refuses_by_a_rst() -> None:
    told = discovered()
    told.connection(2.0, 2.1, syn_ns=2.0, target_port=3261, is_refused=True, rst_to_initiator_ns=2.1)
    finding = found(told.diagnosis())
    assert finding
    assert "1 connection attempt from 2.00 s to 2.10 s was refused (RST): nothing listens there" in finding.text


def test_an_ipv6_portal_is_in_brackets() -> None:
    told = discovered()
    told.connection(2.0, 5.0, syn_ns=2.0, initiator_address="fd77::1", target_address="fd77::2", target_port=3262)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.startswith(
        "Initiator fd77::1 cannot reach the portal [fd77::2]:3262: 1 connection attempt (1 SYN)"
    )


@pytest.mark.parametrize(
    ("kind", "code", "address", "words"),
    [
        # RFC 792, RFC 1812
        ("unreachable", 1, "10.0.0.2", "host unreachable"),
        ("unreachable", 3, "10.0.0.2", "port unreachable"),
        ("unreachable", 13, "10.0.0.2", "communication administratively prohibited (a filter)"),
        ("time_exceeded", 0, "10.0.0.2", "time to live exceeded (a routing loop)"),
        # RFC 4443 section 3.1
        ("unreachable", 1, "fd77::2", "communication administratively prohibited (a filter)"),
        ("unreachable", 3, "fd77::2", "host unreachable"),
    ],
)
def test_what_icmp_reports(kind: str, code: int, address: str, words: str) -> None:
    told = discovered("TargetAddress=10.0.0.2:3262,1 TargetAddress=[fd77::2]:3262,1")
    # at once: nobody has to wait for the time-out of the SYN
    number = told.connection(19.9, 19.91, syn_ns=19.9, target_address=address, target_port=3262)
    row = {"to_target": True, "kind": kind, "code": code, "reporter_address": "10.9.9.9", "frame": 55}
    told.add("icmp_errors", connection=number, time_ns=19.91, **row)
    finding = found(told.diagnosis())
    assert finding
    assert f"10.9.9.9 sent an ICMP message: {words}." in finding.text
    assert 55 in finding.frames


def test_a_portal_that_another_initiator_reaches_says_so() -> None:
    told = discovered()
    told.connection(2.0, 5.0, syn_ns=2.0, initiator_address="10.0.0.7")
    told.rows["connections"][1]["syn_ack_ns"] = at(0.5)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.endswith("10.0.0.1 can reach it.")


NEAR_MISSES: dict[str, dict[str, Any]] = {
    "the client closed early": {"syn_ack_ns": 2.01, "rst_to_target_ns": 2.02},
    "a SYN-ACK after a retransmission": {"syn_ack_ns": 3.01, "retransmitted_syns_to_target": 1},
    "the SYN-ACK is missing from the capture": {"data_last_to_target_ns": 2.1, "time_last_to_initiator_ns": 2.2},
    "no portal": {"target_port": 8080},
    "the capture ends before an answer can come": {"syn_ns": 19.5},
    "no SYN was captured": {"has_syn": False},
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    told = discovered()
    columns = {"syn_ns": 2.0, "target_port": 3261} | NEAR_MISSES[name]
    told.connection(columns["syn_ns"], columns["syn_ns"] + 0.4, **columns)
    assert found(told.diagnosis()) is None


def test_a_portal_that_nobody_tried_is_not_reported() -> None:
    assert found(discovered().diagnosis()) is None


def coming_up(worked: float) -> Told:
    """A portal that refuses two connects, from 2.0 s on, and takes the third one."""
    told = discovered()
    for second in (2.0, 2.5):
        told.connection(
            second, second + 0.1, syn_ns=second, target_port=3261, is_refused=True, rst_to_initiator_ns=second + 0.1
        )
    told.session(worked, 20, isid="81", target_port=3261, syn_ns=worked, syn_ack_ns=worked + 0.01)
    return told


def test_a_portal_that_comes_up_later() -> None:
    diagnosis = coming_up(6.0).diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "Initiator 10.0.0.1 could not reach the portal 10.0.0.2:3261: 2 connection attempts from 2.00 s to 2.60 s were "
        "refused (RST): nothing listens there, or a firewall refuses the connection. SendTargets or a redirect named "
        "this portal. The attempt at 6.01 s succeeded."
    )
    assert (finding.cost_ns, finding.is_final) == (4.01 * SECOND, False)
    assert finding.points_to == "the target, or a firewall that answers for it"
    assert diagnosis.headline
    assert diagnosis.headline.name == "portal_unreachable"


def test_a_first_try_that_was_too_early_is_a_note() -> None:
    diagnosis = coming_up(2.9).diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.severity == "info"
    assert diagnosis.headline
    assert diagnosis.headline.name != "portal_unreachable"


def test_a_portal_is_judged_by_what_followed_for_the_same_initiator() -> None:
    told = discovered()
    told.connection(2.0, 5.0, syn_ns=2.0, target_port=3261, initiator_address="10.0.0.7")
    told.session(6.0, 20, isid="81", target_port=3261, syn_ns=6.0, syn_ack_ns=6.01)
    finding = found(told.diagnosis())
    assert finding
    assert finding.is_final


def test_connects_while_a_session_is_rebuilt_belong_to_the_loss() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    told.connection(2.5, 2.6, syn_ns=2.5, is_refused=True, rst_to_initiator_ns=2.6)
    told.connection(4.5, 4.6, syn_ns=4.5, is_refused=True, rst_to_initiator_ns=4.6)
    told.connection(6.5, 9.5, syn_ns=6.5, retransmitted_syns_to_target=2)
    told.session(12.0, 20, replaces=0)
    told.reads(1, 12.1, 20)
    diagnosis = told.diagnosis()
    assert found(diagnosis) is None
    (loss,) = [each for each in diagnosis.stories[0].findings if each.name == "connection_lost"]
    assert "The initiator logged in again" in loss.text
    assert loss.text.endswith(" 2 connection attempts were refused (RST). 1 connection attempt had no answer (3 SYNs).")


def test_a_portal_that_is_gone_after_a_logout() -> None:
    told = Told()
    told.session(0, 5, end="logout", syn_ns=0.0, syn_ack_ns=0.01)
    told.reads(0, 0.1, 20)
    told.connection(8.0, 8.1, syn_ns=8.0, is_refused=True, rst_to_initiator_ns=8.1)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.endswith("The portal was in use before.")


def test_target_addresses() -> None:
    """RFC 7143 section 13.8: an IPv4 address, a bracketed IPv6 address or a name; a port; a portal group tag."""
    text = (
        "TargetName=iqn.TargetAddress=x TargetAddress=10.0.0.2,1 TargetAddress=[fd77:0::2]:860,2 "
        "TargetAddress=A.b:3261,3 TargetName=iqn.none"
    )
    listed = targets(text)
    assert listed == [
        ("iqn.TargetAddress=x", ("10.0.0.2,1", "[fd77:0::2]:860,2", "A.b:3261,3")),
        ("iqn.none", ()),
    ]
    assert [portal(each) for each in listed[0][1]] == [("10.0.0.2", 3260), ("fd77::2", 860), ("a.b", 3261)]


@pytest.mark.parametrize("text", ["10.0.0.2:99999,1", "10.0.0.2:,1", "", ":3260", "[fd77::2", "[fd77::2]3260", "a:b:1"])
def test_what_is_no_portal(text: str) -> None:
    assert portal(text) is None


def test_a_portal_named_by_its_host_name_is_known_by_its_port() -> None:
    told = discovered("TargetName=iqn.t TargetAddress=array.example:3290,1")
    told.connection(2.0, 5.0, syn_ns=2.0, target_address="10.0.0.99", target_port=3290)
    assert found(told.diagnosis())


def test_a_recording_of_kernels() -> None:
    """SendTargets lists a second portal, on port 3261, where packets are dropped."""
    folder = Path(__file__).parents[1] / "vectors" / "guests" / "unreachable-portal-lio"
    for tap in ("initiator", "target"):
        diagnosis = examine(iscsitrace.read(folder / f"{tap}.pcapng.gz", tables=NEEDED).table)
        finding = found(diagnosis)
        assert finding
        assert "10.71.0.2:3261: 1 connection attempt (3 SYNs)" in finding.text
        assert diagnosis.headline
        assert diagnosis.headline.name == "portal_unreachable"


ABSENT = "TargetName=iqn.t TargetAddress=10.0.0.2:3260,1 TargetAddress=10.0.0.60:3260,1 TargetAddress=[fe80::1]:3260,1"


def asked_for(
    address: str, *, count: int = 24, answers: int = 0, first: float = 1.0, last: float = 18.0, asker: str = "10.0.0.1"
) -> Told:
    """A discovery, and ARP requests for an address that it lists."""
    told = discovered(ABSENT)
    told.rows["connections"][1]["syn_ack_ns"] = at(0.5)
    row = {"kind": "neighbor", "asker_address": asker, "asked_address": address, "question_count": count}
    told.add("host_questions", **row, answer_count=answers, frame_first=80, time_first_ns=first, time_last_ns=last)
    return told


def test_a_listed_portal_whose_host_answers_no_arp() -> None:
    diagnosis = asked_for("10.0.0.60").diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "The target lists a portal that does not answer: 10.0.0.60:3260. Initiator 10.0.0.1 sent 24 ARP requests for "
        "10.0.0.60 in 17.0 s, from 1.00 s on; none had an answer, so no SYN followed. The list also has "
        "[fe80::1]:3260, a link-local address. It reached 10.0.0.2:3260."
    )
    assert (finding.cost_ns, finding.spans, finding.frames) == (17 * SECOND, ((at(1.0), at(18.0)),), (77, 80))
    assert diagnosis.headline
    assert diagnosis.headline.name == "portal_unreachable"
    assert diagnosis.headline.first_step.startswith("Remove a portal")


@pytest.mark.parametrize(
    "told",
    [
        asked_for("10.0.0.60", answers=1),
        asked_for("10.0.0.60", count=1),
        # of another host, for another one, before the list came, and too short
        asked_for("10.0.0.60", asker="10.0.0.7"),
        asked_for("10.0.0.61"),
        asked_for("10.0.0.60", first=-9, last=-1),
        asked_for("10.0.0.60", first=0.5, last=0.9),
    ],
)
def test_what_is_not_an_absent_portal(told: Told) -> None:
    assert found(told.diagnosis()) is None


def test_a_portal_that_had_a_syn_is_told_by_that() -> None:
    told = asked_for("10.0.0.60")
    told.connection(2.0, 5.0, syn_ns=2.0, target_address="10.0.0.60", retransmitted_syns_to_target=2)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text.startswith("Initiator 10.0.0.1 cannot reach the portal 10.0.0.60:3260: 1 connection attempt")
