"""The finding login_failed: on traces by hand, and on recordings of kernels with a known fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.diagnosis.examination import Diagnosis, examine
from iscsitrace.findings import NEEDED, logins
from iscsitrace.findings.finding import Finding
from tests.support.histories import SECOND, Told, at
from tests.support.recordings import captures_folder
from tests.support.tables_by_hand import MS

VECTORS = Path(__file__).parents[1] / "vectors" / "guests"
TEXTS = {(2, 1): "authentication failure", (2, 3): "not found", (3, 1): "service unavailable", (1, 1): "moved"}


def found(diagnosis: Diagnosis, name: str = "login_failed") -> Finding | None:
    findings = [each for opinion in diagnosis.stories for each in opinion.findings if each.name == name]
    return findings[0] if findings else None


def refused(told: Told, first: float, status: tuple[int, int] = (2, 1), **columns: Any) -> int:
    """A session whose login is refused 10 ms after its first packet."""
    given: dict[str, Any] = {"end": "refused", "fin_to_initiator_ns": first + 0.02}
    number = told.session(first, first + 0.1, login_status=status[0] << 8 | status[1], **given | columns)
    connection = len(told.rows["connections"]) - 1
    told.login(first + 0.01, connection, *status, status_text=TEXTS[status])
    return number


def unfinished(told: Told, response: float | None = None, **columns: Any) -> None:
    """A session whose Login Request at 10 ms has no response, or one that does not end the login."""
    told.session(0, columns.pop("last", 20), login_status=None, **columns)
    row: dict[str, Any] = {"connection": 0, "request_ns": at(0.01), "request_frame": 7, "current_stage": 1}
    if response is not None:
        row |= {"response_ns": at(response), "response_frame": 8, "status_class": 0, "status_detail": 0}
    told.rows["logins"].append(row)


def test_a_refused_login_has_its_status_and_its_advice() -> None:
    told = Told()
    refused(told, 1.0)
    diagnosis = told.diagnosis()
    finding = found(diagnosis)
    assert finding
    assert finding.text == (
        "The login of session 0 to iqn.t failed at 0.01 s: authentication failure (status 0x0201). "
        "No later login succeeded in the capture."
    )
    assert (finding.severity, finding.is_final, finding.sessions) == ("error", True, (0,))
    assert finding.spans == ((at(1.0), at(1.01)),)
    assert "node.session.auth.password" in finding.advice[0]
    assert set(finding.frames) == {
        row[f"{name}_frame"] for row in told.rows["logins"] for name in ("request", "response")
    }
    assert diagnosis.headline
    assert diagnosis.headline.name == "login_failed"


def test_a_later_login_of_another_isid_is_of_the_same_story() -> None:
    told = Told()
    refused(told, 0.0, isid="80")
    told.session(2.0, 20, isid="81")
    told.reads(1, 3.0, 20)
    diagnosis = told.diagnosis()
    (story,) = diagnosis.stories
    assert story.story.numbers == (0, 1)
    finding = found(diagnosis)
    assert finding
    assert finding.text.endswith("The login at 2.01 s succeeded (session 1).")
    assert (finding.cost_ns, finding.spans) == (2_010 * MS, ((at(0), at(2.01)),))
    assert diagnosis.headline
    assert diagnosis.headline.name == "login_failed"


@pytest.mark.parametrize(
    "other", [{"target_name": "iqn.other"}, {"initiator_name": "iqn.other"}, {"target_address": "9"}]
)
def test_a_login_of_another_name_or_portal_is_another_story(other: dict[str, Any]) -> None:
    told = Told()
    refused(told, 0.0)
    told.session(2.0, 20, isid="81", **other)
    told.reads(1, 3.0, 20)
    diagnosis = told.diagnosis()
    assert len(diagnosis.stories) == 2
    finding = found(diagnosis)
    assert finding
    assert finding.text.endswith("No later login succeeded in the capture.")


def test_many_logins_are_one_finding_with_each_reason() -> None:
    told = Told()
    for number in range(3):
        refused(told, number * 3.0, (3, 1), replaces=number - 1 if number else None)
    refused(told, 9.0, (2, 3), replaces=2)
    finding = found(told.diagnosis())
    assert finding
    assert finding.text == (
        "4 logins of sessions 0 to 3 to iqn.t failed from 0.01 s to 9.01 s: 3 times service unavailable (status "
        "0x0301); 1 time not found (status 0x0203). No later login succeeded in the capture."
    )
    assert finding.cost_ns == 9.01 * SECOND
    assert len(finding.advice) == 3


def parameter(told: Told, key: str, ours: str | None, theirs: str | None) -> None:
    told.add("parameters", connection=0, session=0, key=key, initiator_value=ours, target_value=theirs)


def disagreed(ours: str | None, theirs: str | None, key: str = "HeaderDigest", **columns: Any) -> Told:
    """A login that succeeds by its status, on a connection that the initiator closes 30 ms later."""
    told = Told()
    given: dict[str, Any] = {"end": "closed", "fin_to_target_ns": 0.04}
    told.session(0, 0.1, **given | columns)
    parameter(told, key, ours, theirs)
    return told


def test_a_key_without_a_common_value_names_both_offers() -> None:
    finding = found(disagreed("CRC32C", "None").diagnosis())
    assert finding
    assert finding.text == (
        "The login of session 0 to iqn.t failed at 0.04 s: the two sides cannot agree on HeaderDigest (initiator "
        "CRC32C, target None). The initiator closed the connection 30.0 ms after the Login Response. No later login "
        "succeeded in the capture."
    )
    assert "node.conn[0].iscsi.HeaderDigest" in finding.advice[0]


@pytest.mark.parametrize(
    ("ours", "theirs", "key", "is_found"),
    [
        ("CRC32C,None", "None", "HeaderDigest", False),
        ("none, crc32c", "CRC32C", "DataDigest", False),
        ("None", "CHAP", "AuthMethod", True),
        ("None,CHAP", "CHAP", "AuthMethod", False),
        # numbers and truths are negotiated by a rule, not picked from a list
        ("262144", "65536", "MaxBurstLength", False),
        ("No", "Yes", "InitialR2T", False),
        ("65536", "Reject", "MaxBurstLength", True),
        ("RFC3720", "NotUnderstood", "TaskReporting", False),
        ("Yes", "Irrelevant", "DataDigest", False),
        ("CRC32C", None, "HeaderDigest", False),
        (None, "None", "HeaderDigest", False),
    ],
)
def test_which_values_disagree(ours: str | None, theirs: str | None, key: str, is_found: bool) -> None:
    assert (found(disagreed(ours, theirs, key).diagnosis()) is not None) == is_found


@pytest.mark.parametrize(
    "columns",
    [
        # the session was used, is open, or was logged out: the key mattered to nobody
        {"pdu_count_to_target": 5},
        {"end": "open", "fin_to_target_ns": 20},
    ],
)
def test_a_rejected_key_of_a_session_that_works_is_no_failure(columns: dict[str, Any]) -> None:
    told = disagreed("CRC32C", "Reject", **columns)
    if columns.get("end") == "open":
        del told.rows["connections"][0]["fin_to_target_ns"]
    assert found(told.diagnosis()) is None


def test_a_refused_login_names_the_key_too() -> None:
    told = Told()
    refused(told, 0.0, (2, 1))
    parameter(told, "AuthMethod", "None", "CHAP")
    finding = found(told.diagnosis())
    assert finding
    assert "(status 0x0201). The two sides cannot agree on AuthMethod (initiator None, target CHAP)." in finding.text


@pytest.mark.parametrize(
    ("columns", "response", "words"),
    [
        (
            {"end": "closed", "fin_to_initiator_ns": 0.06},
            None,
            "the target closed the connection 50.0 ms after the Login Request, without a Login Response",
        ),
        (
            {"end": "reset", "rst_to_target_ns": 15.01},
            None,
            "no Login Response for 15.0 s, then the initiator reset the connection",
        ),
        (
            {"end": "closed", "fin_to_target_ns": 0.06},
            0.03,
            "the initiator closed the connection 30.0 ms after a Login Response, before the login was complete",
        ),
        ({"end": "open"}, None, "no Login Response for 20.0 s"),
    ],
)
def test_a_close_or_silence_within_the_login(columns: dict[str, Any], response: float | None, words: str) -> None:
    told = Told()
    unfinished(told, response, **columns)
    finding = found(told.diagnosis())
    assert finding
    assert f": {words}. No later login succeeded in the capture." in finding.text


@pytest.mark.parametrize(
    "columns",
    [
        # the capture ends within the login, or lacks bytes of it, or the session goes on
        {"end": "open", "last": 4.0},
        {"end": "closed", "fin_to_target_ns": 0.06, "gap_bytes_to_initiator": 48},
        {"end": "closed", "fin_to_target_ns": 0.06, "missing_pdu_count_to_initiator": 1},
        {"end": "closed", "fin_to_target_ns": 9, "pdu_count_to_target": 9},
    ],
)
def test_what_the_packets_cannot_tell_is_no_failure(columns: dict[str, Any]) -> None:
    told = Told()
    unfinished(told, **columns)
    assert found(told.diagnosis()) is None


def test_a_status_that_a_snaplen_cut_off_is_no_failure() -> None:
    for status, is_found in ((0, True), (None, False)):
        told = Told()
        unfinished(told, 0.03, end="closed", fin_to_target_ns=0.06)
        told.rows["logins"][-1]["status_class"] = status
        assert (found(told.diagnosis()) is not None) == is_found


def test_a_session_without_a_captured_login_has_not_failed() -> None:
    told = Told()
    told.session(0, 1, end="reset")
    told.rows["logins"].clear()
    told.reads(0, 0, 20)
    assert found(told.diagnosis()) is None


def redirected(*, followed: bool) -> Told:
    told = Told()
    refused(told, 0.0, (1, 1))
    if followed:
        told.session(1.0, 20, replaces=0, target_address="10.0.0.9")
        told.reads(1, 2.0, 20)
    return told


def test_a_redirect_that_was_followed_is_no_failure() -> None:
    assert found(redirected(followed=True).diagnosis()) is None


def test_a_redirect_that_nobody_followed_is_one() -> None:
    finding = found(redirected(followed=False).diagnosis())
    assert finding
    assert "moved (status 0x0101)" in finding.text


def test_a_redirect_to_a_portal_that_is_unreachable_is_that_failure() -> None:
    told = redirected(followed=False)
    parameter(told, "TargetAddress", None, "10.0.0.9:3261,1")
    told.connection(1.0, 8.0, syn_ns=1.0, target_address="10.0.0.9", target_port=3261, retransmitted_syns_to_target=2)
    diagnosis = told.diagnosis()
    assert found(diagnosis) is None
    assert found(diagnosis, "portal_unreachable")


def test_a_refused_login_while_a_session_is_rebuilt_belongs_to_the_loss() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    refused(told, 1.0, (3, 1), replaces=0)
    told.session(4.0, 20, replaces=1)
    told.reads(2, 4.2, 20)
    diagnosis = told.diagnosis()
    assert found(diagnosis) is None
    loss = found(diagnosis, "connection_lost")
    assert loss
    assert "The initiator logged in again 3.5 s later" in loss.text
    assert loss.text.endswith(" 1 login failed: service unavailable (status 0x0301).")


def test_a_session_that_is_never_accepted_again_has_the_advice_of_the_status() -> None:
    told = Told()
    told.session(0, 0.5, end="reset", rst_to_initiator_ns=0.5)
    told.reads(0, 0.0, 20)
    refused(told, 3.0, (2, 1), replaces=0)
    refused(told, 6.0, (2, 1), replaces=1)
    diagnosis = told.diagnosis()
    assert found(diagnosis) is None
    loss = found(diagnosis, "connection_lost")
    assert loss
    assert "2 logins failed: authentication failure (status 0x0201). No login followed in the capture." in loss.text
    assert (loss.severity, loss.is_final, loss.cost_ns) == ("error", True, 5.51 * SECOND)
    assert any("node.session.auth.password" in each for each in loss.advice)


def test_every_status_of_the_rfc_has_its_advice() -> None:
    """RFC 7143 section 11.13.5: initiator errors 1 to 11, target errors 1 and 2."""
    statuses = [*((2, detail) for detail in range(1, 11)), (3, 1), (3, 2)]
    assert all(logins.advice_of_statuses([status])[0] is not logins.LOG_ADVICE for status in statuses)
    assert logins.advice_of_statuses([(2, 11)]) == (logins.LOG_ADVICE,)
    assert set(logins.advice_of_statuses(statuses)) < set(logins.ALL_ADVICE)


def test_the_order_of_the_logins_is_that_of_time_not_of_the_table() -> None:
    told = Told()
    refused(told, 0.0, isid="80")
    told.session(2.0, 20, isid="81")
    told.reads(1, 3.0, 20)
    before = found(told.diagnosis())
    for name in ("sessions", "connections", "logins"):
        told.rows[name].reverse()
    after = found(told.diagnosis())
    assert before
    assert after
    assert (after.text, after.spans, after.cost_ns) == (before.text, before.spans, before.cost_ns)


RECORDED = [
    ("no-acl-lio", "authorization failure (status 0x0202)"),
    ("wrong-chap-lio", "authentication failure (status 0x0201)"),
]


@pytest.mark.parametrize("tap", ["initiator", "target"])
@pytest.mark.parametrize(("name", "words"), RECORDED)
def test_recordings_of_kernels(name: str, words: str, tap: str) -> None:
    trace = iscsitrace.read(VECTORS / name / f"{tap}.pcapng.gz", tables=NEEDED)
    diagnosis = examine(trace.table)
    finding = found(diagnosis)
    assert finding
    assert words in finding.text
    assert diagnosis.headline
    assert diagnosis.headline.name == "login_failed"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "16_login_refused_tgt_digest-mismatch.pcap",
            # its README: the initiator insists on CRC32C, tgt has None only
            "agree on HeaderDigest (initiator CRC32C, target None) and DataDigest (initiator CRC32C, target None)",
        ),
        (
            "16_login_chap_wrong-then-right.pcap",
            "authentication failure (status 0x0201). The login at 2.98 s succeeded",
        ),
        ("31_login_not_found.pcap.gz", "3 logins of sessions 0 to 2"),
    ],
)
def test_captures_of_kernels(name: str, words: str) -> None:
    file = captures_folder() / name
    if not file.exists():
        pytest.skip("the recorded captures are not there")
    diagnosis = examine(iscsitrace.read(file, tables=NEEDED).table)
    assert diagnosis.headline
    assert diagnosis.headline.name == "login_failed"
    assert words in diagnosis.headline.text


def asked(
    told: Told, kind: str, asker: str, asked: str, count: int, first: float, last: float, answers: int = 0
) -> None:
    """Questions of one host for another one."""
    row = {"kind": kind, "asker_address": asker, "asked_address": asked, "question_count": count, "frame_first": 70}
    told.add("host_questions", **row, answer_count=answers, time_first_ns=first, time_last_ns=last)


@pytest.mark.parametrize(
    ("asker", "to", "count", "answers", "first", "is_said"),
    [
        ("10.0.0.2", "10.0.0.1", 5, 0, 0.02, True),
        # it got an answer, asked once, asked another host, or long before; and it is asked itself
        ("10.0.0.2", "10.0.0.1", 5, 1, 0.02, False),
        ("10.0.0.2", "10.0.0.1", 1, 0, 0.02, False),
        ("10.0.0.2", "10.0.0.7", 5, 0, 0.02, False),
        ("10.0.0.2", "10.0.0.1", 5, 0, -9.0, False),
        ("10.0.0.1", "10.0.0.2", 5, 0, 0.02, False),
    ],
)
def test_pings_of_a_target_that_does_not_answer_the_login(
    asker: str, to: str, count: int, answers: int, first: float, is_said: bool
) -> None:
    told = Told()
    unfinished(told, end="closed", fin_to_target_ns=15.01)
    asked(told, "echo", asker, to, count, first, first + 8, answers)
    finding = found(told.diagnosis())
    assert finding
    said = "The target pinged the initiator 5 times meanwhile (ICMP echo requests) and had no answer."
    assert (said in finding.text) == is_said
    assert (finding.points_to == "the path to the initiator, or its firewall") == is_said
    assert finding.advice[0].startswith("Let the target's pings") == is_said
    # where a filter may have hidden them, this is said
    assert "a capture filter on the TCP port hides that" in " ".join(finding.advice)


def test_an_algorithm_that_the_target_refused_is_no_wrong_secret() -> None:
    told = Told()
    refused(told, 1.0)
    parameter(told, "CHAP_A", "5", None)
    finding = found(told.diagnosis())
    assert finding
    assert (
        "The target chose none of the CHAP algorithms that the initiator offered (5 MD5), and no secret" in finding.text
    )
    assert finding.points_to == "the CHAP algorithms of the two sides"
    assert finding.advice[0].startswith("Allow the same CHAP algorithms")


@pytest.mark.parametrize(
    "more",
    [
        # the secret was wrong: it was challenged, and answered
        [("CHAP_A", "5,7", "7"), ("CHAP_C", None, "(hidden)"), ("CHAP_R", "(hidden)", None)],
        # the target chose one, and the rest is not in the capture
        [("CHAP_A", "5,7", "7")],
        # no algorithm was offered
        [("AuthMethod", "None", "CHAP")],
    ],
)
def test_a_refusal_behind_the_choice_of_an_algorithm_is_one_of_credentials(more: list[tuple[str, Any, Any]]) -> None:
    told = Told()
    refused(told, 1.0)
    for key, ours, theirs in more:
        parameter(told, key, ours, theirs)
    finding = found(told.diagnosis())
    assert finding
    assert "CHAP algorithms" not in finding.text
