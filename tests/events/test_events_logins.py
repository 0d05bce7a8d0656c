"""Events of logins and sessions, on traces by hand."""

from __future__ import annotations

from typing import Any

import pytest

from iscsitrace.measure.parameters import do_not_agree
from iscsitrace.relate.portals import portal, targets
from tests.events.test_events_tcp import events
from tests.support.histories import Told, at

KINDS = ("login", "login_redirected", "login_refused", "login_unfinished", "key_mismatch")


def logged_in(**columns: Any) -> Told:
    told = Told()
    told.session(0, 5, **columns)
    return told


def test_a_login_has_its_target_and_digests() -> None:
    told = logged_in(header_digest="crc32c", data_digest="none")
    told.rows["sessions"][0]["auth_method"] = "CHAP"
    (row,) = events(told, *KINDS)
    assert (row["kind"], row["severity"], row["time_ns"], row["session"]) == ("login", "info", at(0.01), 0)
    assert row["text"] == "10.0.0.1 logged in to iqn.t, CHAP; HeaderDigest CRC32C, DataDigest None"


def test_a_login_for_discovery_names_no_target() -> None:
    told = logged_in(session_type="discovery", target_name=None, header_digest="none", data_digest="none")
    (row,) = events(told, *KINDS)
    assert row["text"] == "10.0.0.1 logged in for discovery; HeaderDigest None, DataDigest None"


@pytest.mark.parametrize("change", [{"is_transit": False}, {"next_stage": 1}])
def test_a_step_of_a_login_is_no_login(change: dict[str, Any]) -> None:
    told = logged_in()
    told.rows["logins"].insert(0, told.rows["logins"][0] | change)
    assert [row["kind"] for row in events(told, *KINDS)] == ["login"]


def refused(status_class: int, detail: int, text: str) -> Told:
    told = Told()
    told.session(0, 5, end="refused", login_status=status_class << 8 | detail)
    told.login(0.5, 0, status_class, detail)
    told.rows["logins"][0]["status_text"] = text
    return told


def test_a_refusal_has_its_words_and_code() -> None:
    (row,) = events(refused(2, 3, "not found"), *KINDS)
    assert (row["kind"], row["severity"], row["time_ns"]) == ("login_refused", "error", at(0.5))
    assert row["text"] == "login to iqn.t refused: not found (0203h)"


@pytest.mark.parametrize(("address", "words"), [("10.0.0.9:3260", "to 10.0.0.9:3260"), (None, "without an address")])
def test_a_redirect_is_no_refusal_and_says_where_to(address: str | None, words: str) -> None:
    told = refused(1, 1, "target moved temporarily")
    if address:
        told.add("parameters", connection=0, session=0, key="TargetAddress", target_value=address)
    (row,) = events(told, *KINDS)
    assert (row["kind"], row["severity"]) == ("login_redirected", "info")
    assert row["text"] == f"login to iqn.t redirected {words}: target moved temporarily"


def unfinished(*, last: float = 5, response: bool = False, **columns: Any) -> Told:
    """A login request at 0.5 s, in a capture of 60 s unless ``last`` says otherwise."""
    told = Told()
    columns = {"packets_to_target": 5, "packets_to_initiator": 5} | columns
    told.session(0, last, login_status=None, **columns)
    row: dict[str, Any] = {"connection": 0, "request_ns": at(0.5), "request_frame": 3}
    if response:
        row |= {"response_ns": at(0.6), "response_frame": 4, "status_class": 0, "next_stage": 1, "is_transit": True}
    told.rows["logins"].append(row)
    return told


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (unfinished(), "nothing followed without a Login Response"),
        (unfinished(last=1.5), "nothing followed without a Login Response"),
        (unfinished(response=True), "nothing followed after a Login Response that does not complete it"),
        (unfinished(last=0.7, fin_to_initiator_ns=0.7), "the connection ended without a Login Response"),
    ],
)
def test_a_login_that_ends_nowhere(told: Told, words: str) -> None:
    (row,) = events(told, *KINDS)
    assert (row["kind"], row["severity"], row["time_ns"], row["frame"]) == ("login_unfinished", "error", at(0.5), 3)
    assert row["text"] == f"login to iqn.t unfinished: {words}"


@pytest.mark.parametrize(
    "told",
    [
        unfinished(last=1.499),  # the capture ends
        unfinished(gap_bytes_to_initiator=1),  # the answer can be missing from the capture
        unfinished(packets_to_initiator=0),  # only one direction
    ],
)
def test_a_login_whose_answer_cannot_be_known(told: Told) -> None:
    assert events(told, *KINDS) == []


def test_a_connection_with_commands_was_logged_in() -> None:
    told = unfinished()
    told.read(0, 1, 1.1)
    assert events(told, *KINDS) == []


def test_keys_without_a_common_value_are_named_with_both_offers_and_are_no_login() -> None:
    told = logged_in()
    told.add("parameters", connection=0, session=0, key="HeaderDigest", initiator_value="CRC32C", target_value="None")
    told.add(
        "parameters", connection=0, session=0, key="DataDigest", initiator_value="None,CRC32C", target_value="None"
    )
    (row,) = events(told, *KINDS)
    assert (row["kind"], row["severity"], row["time_ns"], row["frame"]) == (
        "key_mismatch",
        "error",
        at(0.01),
        told.rows["logins"][0]["response_frame"],
    )
    assert row["text"] == "no common HeaderDigest: the initiator offers CRC32C, the target None"


@pytest.mark.parametrize(
    ("key", "initiator", "target", "is_mismatch"),
    [
        ("HeaderDigest", "CRC32C", "None", True),
        ("HeaderDigest", "CRC32C,None", "None", False),
        ("AuthMethod", "None", "CHAP", True),
        ("AuthMethod", "CHAP,None", "CHAP", False),
        ("MaxBurstLength", "262144", "65536", False),  # a number: the smaller one counts
        ("InitialR2T", "Yes", "No", False),
        ("MaxBurstLength", "262144", "Reject", True),
        ("InitiatorName", "iqn.a", "iqn.b", False),
        ("HeaderDigest", "crc32c", "CRC32C", False),
        ("CHAP_A", "5, 7", "7", False),
        ("CHAP_A", "5", "7", True),
        # the key was left out of the negotiation
        ("TaskReporting", "FastAbort", "NotUnderstood", False),
        ("DataDigest", "CRC32C", None, False),
    ],
)
def test_which_values_do_not_agree(key: str, initiator: str, target: str, is_mismatch: bool) -> None:
    assert do_not_agree(key, initiator, target) is is_mismatch


REPLACED = ("session_reinstated", "relogin")


@pytest.mark.parametrize(
    ("closed", "kind", "text"),
    [
        (None, "session_reinstated", "the login of 10.0.0.1 ended session 0, whose connection was still open"),
        # the target closes the old connection because of the new login
        (8.5, "session_reinstated", "the login of 10.0.0.1 ended session 0, whose connection was still open"),
        (5.0, "relogin", "10.0.0.1 logged in again, replacing session 0"),
    ],
)
def test_a_session_in_the_place_of_another(closed: float | None, kind: str, text: str) -> None:
    told = Told()
    columns: dict[str, Any] = {} if closed is None else {"fin_to_initiator_ns": closed}
    told.session(0, 9, end="reinstated", **columns)
    told.session(8, 20, replaces=0)
    (row,) = events(told, *REPLACED)
    assert (row["kind"], row["text"]) == (kind, text)
    # the Login Request ends a session, and the login after its end is complete with its response
    assert (row["session"], row["connection"]) == (1, 1)
    assert row["time_ns"] == at(8.009 if kind == "session_reinstated" else 8.01)
    assert row["severity"] == ("info" if kind == "relogin" else "warning")


def test_two_initiators_with_one_name() -> None:
    told = Told()
    told.session(0, 9, end="reinstated")
    told.session(8, 20, replaces=0, initiator_address="10.0.0.7")
    (row,) = events(told, *REPLACED)
    expected = "the login of 10.0.0.7 ended session 0 of 10.0.0.1: one InitiatorName and ISID from two addresses"
    assert row["text"] == expected


def test_a_refused_login_takes_no_place() -> None:
    told = Told()
    told.session(0, 5, end="reset", rst_to_initiator_ns=5)
    told.session(6, 7, end="refused", login_status=0x0301, replaces=0)
    told.session(8, 20, replaces=1)
    assert [(row["session"], row["text"]) for row in events(told, *REPLACED)] == [
        (2, "10.0.0.1 logged in again, replacing session 0")
    ]


def discovered(response: str, request: str = "SendTargets=All", **columns: Any) -> list[dict[str, Any]]:
    told = logged_in(session_type="discovery", **columns)
    told.add("texts", connection=0, response_ns=1.0, response_frame=9, request_text=request, response_text=response)
    return events(told, "discovery")


def test_discovery_lists_targets_and_portals() -> None:
    (row,) = discovered(
        "TargetName=iqn.a TargetAddress=10.0.0.2:3260,1 TargetAddress=[fd00::2]:3260,1 TargetName=iqn.b"
    )
    assert (row["time_ns"], row["frame"], row["severity"]) == (at(1), 9, "info")
    assert row["text"] == "SendTargets: 2 targets: iqn.a at 10.0.0.2:3260,1 and [fd00::2]:3260,1; iqn.b"


def test_discovery_of_nothing_and_of_many() -> None:
    (row,) = discovered("")
    assert (row["severity"], row["text"]) == ("warning", "SendTargets: the target names no target")
    many = " ".join(f"TargetName=iqn.{n} TargetAddress=10.0.0.{n}:3260,1" for n in range(1, 13))
    (row,) = discovered(many)
    assert row["text"].startswith("SendTargets: 12 targets: iqn.1 at 10.0.0.1:3260,1; ")
    assert row["text"].endswith("iqn.8 at 10.0.0.8:3260,1 and 4 more")
    assert discovered("X-example=1", "X-example=?") == []


@pytest.mark.parametrize("name", ["cut_bytes_to_initiator", "gap_bytes_to_initiator"])
def test_an_answer_to_discovery_that_was_not_captured_whole(name: str) -> None:
    (row,) = discovered("", "SendTargets=All", **{name: 1})
    assert (row["severity"], row["text"]) == ("info", "SendTargets: the answer is not in the capture")
    (row,) = discovered("TargetName=iqn.a", "SendTargets=All", **{name: 1})
    assert row["text"] == "SendTargets: 1 target, as far as captured: iqn.a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2:3260,1", ("10.0.0.2", 3260)),
        ("10.0.0.2:4000", ("10.0.0.2", 4000)),
        ("10.0.0.2", ("10.0.0.2", 3260)),
        ("[fd00::2]:3261,7", ("fd00::2", 3261)),
        ("[fd00::2]", ("fd00::2", 3260)),
        ("storage.example:3260,1", ("storage.example", 3260)),
        ("10.0.0.2:port", None),
    ],
)
def test_portals(text: str, expected: tuple[str, int] | None) -> None:
    assert portal(text) == expected


def test_addresses_that_go_on_in_the_next_answer() -> None:
    assert targets("TargetAddress=10.0.0.2:3260,1 TargetName=iqn.b") == [("", ("10.0.0.2:3260,1",)), ("iqn.b", ())]


@pytest.mark.parametrize(
    ("response", "severity", "text"),
    [
        (0, "info", "logout: the initiator closes the session"),
        (1, "warning", "logout: the initiator closes the session; refused: CID not found"),
        (None, "info", "logout: the initiator closes the session; no Logout Response"),
    ],
)
def test_logouts(response: int | None, severity: str, text: str) -> None:
    told = logged_in()
    answer = {} if response is None else {"response_ns": 4.1, "response": response}
    told.add("logouts", connection=0, request_ns=4.0, request_frame=8, reason=0, **answer)
    (row,) = events(told, "logout")
    assert (row["severity"], row["text"], row["frame"]) == (severity, text, 8)
    assert row["end_ns"] == (None if response is None else at(4.1))
