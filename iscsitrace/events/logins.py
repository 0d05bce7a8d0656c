"""Events of logins and sessions: logins and what became of them, discovery, reinstatement, logout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from iscsitrace.events.capture import ENDS, LONG_NS, NULL_UINT32, Batch, EventSource, distinct, is_closed, texts
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.parameters import do_not_agree, is_rejected
from iscsitrace.relate import portals
from iscsitrace.relate.stories import LoginRequest
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording import amounts

_NEVER: Final = np.iinfo(np.int64).max
_FULL_FEATURE: Final = 3
"""The stage that a login ends with (RFC 7143 section 11.12.3)."""
_REDIRECTION: Final = 1
"""Its status class (RFC 7143 section 11.13.5)."""
_PORTALS_SHOWN: Final = 8
"""Portals of one answer to SendTargets that are listed."""


def events(capture: EventSource) -> Iterator[Batch]:
    """All of them."""
    mismatches = _mismatches(capture)
    yield from _answered(capture, without=mismatches.connection)
    yield _unfinished(capture)
    yield mismatches
    yield from _replaced(capture)
    yield _discovered(capture)
    yield _logouts(capture)


def _own(capture: EventSource, table: Table) -> dict[str, Array]:
    connections = table.raw("connection")
    return {"session": capture.session_of(connections), "connection": connections}


def _answered(capture: EventSource, *, without: Array | None) -> Iterator[Batch]:
    """Logins that the target accepted, redirected or refused.

    An initiator does not take a login with keys that do not agree: ``without`` are these connections.
    """
    logins = capture.table("logins")
    logins = logins.select(known(logins, "response_ns") & known(logins, "status_class"))
    classes = logins.raw("status_class")
    is_last = logins.raw("is_transit") & (logins.raw("next_stage") == _FULL_FEATURE)
    accepted = logins.select(
        (classes == 0) & is_last & ~np.isin(logins.raw("connection"), without if without is not None else ())
    )
    yield _batch(capture, "login", accepted, _accepted(capture, accepted))
    redirected = logins.select(classes == _REDIRECTION)
    yield _batch(capture, "login_redirected", redirected, _redirected(capture, redirected))
    refused = logins.select(classes > _REDIRECTION)
    names = capture.of_session("target_name", capture.session_of(refused.raw("connection")))
    columns = (names, *(refused.raw(name) for name in ("status_class", "status_detail", "status_text")))
    yield _batch(capture, "login_refused", refused, texts(_refusal, *columns))


def _batch(capture: EventSource, kind: str, logins: Table, text: Array) -> Batch:
    return Batch(kind, logins.raw("response_ns"), text, frame=logins.raw("response_frame"), **_own(capture, logins))


def _accepted(capture: EventSource, logins: Table) -> Array:
    connections = logins.raw("connection")
    sessions = capture.session_of(connections)
    columns = [capture.of_session(name, sessions) for name in ("target_name", "auth_method", "session_type")]
    columns += [capture.of_connection("initiator_address", connections)]
    columns += [capture.of_connection(name, connections) for name in ("header_digest", "data_digest")]
    words = [word.upper() if word == "crc32c" else word.capitalize() for word in CATEGORIES["digest"]]

    discovery = CATEGORIES["session_type"].index("discovery")

    def word(target: str, method: str, session_type: int, initiator: str, header: int, data: int) -> str:
        where = "for discovery" if session_type == discovery else f"to {target or 'the target'}"
        how = f", {method}" if method and method != "None" else ""
        digests = [words[code] if code < len(words) else "unknown" for code in (header, data)]
        return f"{initiator} logged in {where}{how}; HeaderDigest {digests[0]}, DataDigest {digests[1]}"

    return texts(word, *columns)


def _redirected(capture: EventSource, logins: Table) -> Array:
    parameters = capture.table("parameters")
    rows = parameters.select((parameters.raw("key") == "TargetAddress") & known(parameters, "target_value"))
    addresses = dict(zip(rows.raw("connection").tolist(), rows.raw("target_value").tolist(), strict=True))
    to = np.array([addresses.get(number, "") for number in logins.raw("connection").tolist()], dtype=object)
    names = capture.of_session("target_name", capture.session_of(logins.raw("connection")))

    def word(target: str, text: str, address: str) -> str:
        where = f"to {address}" if address else "without an address"
        return f"login to {target or 'the target'} redirected {where}: {text}"

    return texts(word, names, logins.raw("status_text"), to)


def _refusal(target: str, status_class: int, detail: int, text: str) -> str:
    return f"login to {target or 'the target'} refused: {text} ({status_class:02X}{detail:02X}h)"


def _unfinished(capture: EventSource) -> Batch:
    """The last login exchange of each connection that was neither accepted, redirected nor refused."""
    logins = capture.table("logins")
    is_answered = known(logins, "response_ns") & known(logins, "status_class")
    is_final = is_answered & (logins.raw("status_class") != 0)
    is_final |= is_answered & logins.raw("is_transit") & (logins.raw("next_stage") == _FULL_FEATURE)
    final = np.unique(logins.raw("connection")[is_final])
    # a connection that carried commands was logged in, even if packets of its login are missing
    final = np.union1d(final, capture.table("cycles").raw("connection"))
    # a snaplen may cut off the status of a response
    is_cut = known(logins, "response_ns") & ~known(logins, "status_class")
    final = np.union1d(final, logins.raw("connection")[is_cut])
    rows = np.flatnonzero(known(logins, "request_ns") & ~np.isin(logins.raw("connection"), final))
    # the last row of each connection
    numbers, from_end = np.unique(logins.raw("connection")[rows][::-1], return_index=True)
    rows = rows[::-1][from_end]
    places = capture.row_of(numbers)
    connections = capture.connections
    has_ended = is_closed(capture)[places]
    requests = logins.raw("request_ns")[rows]
    keep = (has_ended | (capture.end_ns - requests >= LONG_NS)) & ~may_lack_pdus(connections.raw)[places]
    # where only one direction was captured, the answers are missing
    keep &= (connections.raw("packets_to_initiator")[places] > 0) & (connections.raw("packets_to_target")[places] > 0)
    last = logins.select(rows[keep])
    names = capture.of_session("target_name", capture.session_of(last.raw("connection")))

    def word(target: str, has_response: bool, is_over: bool) -> str:
        how = "the connection ended" if is_over else "nothing followed"
        what = "after a Login Response that does not complete it" if has_response else "without a Login Response"
        return f"login to {target or 'the target'} unfinished: {how} {what}"

    return Batch(
        "login_unfinished",
        last.raw("request_ns"),
        texts(word, names, known(last, "response_ns"), has_ended[keep]),
        frame=last.raw("request_frame"),
        **_own(capture, last),
    )


def _mismatches(capture: EventSource) -> Batch:
    """Keys of which the offers of both sides have no value in common, or that one side rejected."""
    parameters = capture.table("parameters")
    both = known(parameters, "initiator_value") & known(parameters, "target_value")
    both &= np.asarray(parameters.raw("initiator_value") != parameters.raw("target_value"), dtype=bool)
    rows = parameters.select(both)
    columns = [rows.raw(name) for name in ("key", "initiator_value", "target_value")]
    is_mismatch = np.zeros(len(rows), dtype=bool)
    if len(rows):
        combinations, codes = distinct(*columns)
        is_mismatch = np.array([do_not_agree(*each) for each in combinations])[codes]
    rows = rows.select(is_mismatch)
    connections = rows.raw("connection")
    logins = capture.table("logins")
    # the last exchange of each connection
    last = {number: row for row, number in enumerate(logins.raw("connection").tolist())}
    places = np.array([last.get(number, -1) for number in connections.tolist()], dtype=np.int64)
    columns = [rows.raw(name) for name in ("key", "initiator_value", "target_value")]
    times, frames = (_last_of(logins, places, name) for name in ("ns", "frame"))
    return Batch(
        "key_mismatch",
        np.where(places >= 0, times, capture.of_connection("time_last_ns", connections)),
        texts(_mismatch, *columns),
        frame=np.where(places >= 0, frames, capture.of_connection("frame_last", connections)).astype(np.uint64),
        **_own(capture, rows),
    )


def _last_of(logins: Table, places: Array, unit: str) -> Array:
    """Of these exchanges the response, or the request where there is none."""
    if not len(logins):
        return np.zeros(len(places), dtype=np.int64)
    values = np.where(known(logins, f"response_{unit}"), logins.raw(f"response_{unit}"), logins.raw(f"request_{unit}"))
    return values[places]


def _mismatch(key: str, initiator: str, target: str) -> str:
    if is_rejected(target):
        return f"the target rejects {key}={initiator} of the initiator"
    if is_rejected(initiator):
        return f"the initiator rejects {key}={target} of the target"
    return f"no common {key}: the initiator offers {initiator}, the target {target}"


def _replaced(capture: EventSource) -> Iterator[Batch]:
    """Sessions that took the place of another: of one still open, and of one that had ended."""
    sessions = capture.table("sessions")
    is_refused = sessions.raw("end") == CATEGORIES["session_end"].index("refused")
    refused = {row["session"]: row["replaces"] for row in sessions.select(is_refused).rows(("session", "replaces"))}
    after = sessions.select(known(sessions, "replaces") & ~is_refused)
    connections = _connections_of_sessions(capture)
    logged_in = _logged_in(capture)
    columns: dict[str, dict[str, list[Any]]] = {}
    for row in after.rows(("session", "replaces", "time_first_ns")):
        old = row["replaces"]
        # logins that were refused in between took no place
        while refused.get(old) is not None:
            old = refused[old]
        own, before = connections.get(row["session"], ()), connections.get(old, ())
        first = (row["time_first_ns"], own[0]["frame_first"] if own else 0)
        login = capture.replacements.get(old, LoginRequest(*first))
        # who connects again after a close is not the one that closes
        was_open = all(each["ended_ns"] > login.at_ns for each in before)
        time_ns, frame = (login.at_ns, login.frame) if was_open else logged_in.get(row["session"]) or first
        kept = columns.setdefault("session_reinstated" if was_open else "relogin", {})
        for name, value in (
            ("time_ns", time_ns),
            ("frame", frame),
            ("session", row["session"]),
            ("connection", own[0]["connection"] if own else NULL_UINT32),
            ("text", _replacement(old, own, before, was_open=was_open)),
        ):
            kept.setdefault(name, []).append(value)
    for kind, kept in columns.items():
        yield Batch(
            kind,
            np.array(kept["time_ns"], dtype=np.int64),
            np.array(kept["text"], dtype=object),
            frame=np.array(kept["frame"], dtype=np.uint64),
            session=np.array(kept["session"], dtype=np.uint32),
            connection=np.array(kept["connection"], dtype=np.uint32),
        )


def _replacement(old: int, own: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]], *, was_open: bool) -> str:
    by = own[0]["initiator_address"] if own else "the initiator"
    if not was_open:
        return f"{by} logged in again, replacing session {old}"
    other = before[0]["initiator_address"] if before else by
    if by != other:
        return f"the login of {by} ended session {old} of {other}: one InitiatorName and ISID from two addresses"
    return f"the login of {by} ended session {old}, whose connection was still open"


def _connections_of_sessions(capture: EventSource) -> dict[int, list[dict[str, Any]]]:
    """The connections of each session in order, each with the time of its first FIN or RST."""
    rows = capture.connections
    ends = [np.where(known(rows, name), rows.raw(name), _NEVER) for name in ENDS]
    ended = np.minimum.reduce(ends)
    found: dict[int, list[dict[str, Any]]] = {}
    has_session = known(rows, "session")
    names = ("session", "connection", "initiator_address", "frame_first")
    for row, ended_ns in zip(rows.select(has_session).rows(names), ended[has_session].tolist(), strict=True):
        found.setdefault(row["session"], []).append(row | {"ended_ns": ended_ns})
    return found


def _logged_in(capture: EventSource) -> dict[int, tuple[int, int]]:
    """Time and frame of the first successful login of each session."""
    logins = capture.table("logins")
    own = logins.select(
        known(logins, "response_ns")
        & (logins.raw("status_class") == 0)
        & logins.raw("is_transit")
        & (logins.raw("next_stage") == _FULL_FEATURE)
    )
    found: dict[int, tuple[int, int]] = {}
    columns = (capture.session_of(own.raw("connection")), own.raw("response_ns"), own.raw("response_frame"))
    for session, time_ns, frame in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(session, (time_ns, frame))
    return found


def _discovered(capture: EventSource) -> Batch:
    exchanges = capture.table("texts")
    has_answer = known(exchanges, "response_ns")
    requests, responses = exchanges.raw("request_text"), exchanges.raw("response_text")
    # a long answer comes in pieces: only the first follows the key
    is_list = np.array(
        [
            "SendTargets=" in request or "TargetName=" in response
            for request, response in zip(requests, responses, strict=True)
        ],
        dtype=bool,
    )
    rows = exchanges.select(has_answer & is_list)
    connections = rows.raw("connection")
    lacking = [capture.of_connection(f"{name}_bytes_to_initiator", connections) for name in ("cut", "gap")]
    is_cut = (lacking[0] > 0) | (lacking[1] > 0)
    is_empty = np.array(["Target" not in text for text in rows.raw("response_text")], dtype=bool)
    return Batch(
        "discovery",
        rows.raw("response_ns"),
        texts(_listed, rows.raw("response_text"), is_cut),
        frame=rows.raw("response_frame"),
        severity=np.where(is_empty & ~is_cut, "warning", "info"),
        **_own(capture, rows),
    )


def _listed(response: str, is_cut: bool) -> str:
    targets = portals.targets(response)
    if not targets:
        return "SendTargets: the answer is not in the capture" if is_cut else "SendTargets: the target names no target"
    shown, left = [], _PORTALS_SHOWN
    for name, addresses in targets:
        if not left:
            break
        own = addresses[:left]
        left -= max(1, len(own))
        shown.append(f"{name or 'more portals'} at {' and '.join(own)}" if own else name)
    all_portals = sum(max(1, len(addresses)) for _, addresses in targets)
    more = f" and {all_portals - _PORTALS_SHOWN} more" if all_portals > _PORTALS_SHOWN else ""
    so_far = ", as far as captured" if is_cut else ""
    return f"SendTargets: {amounts.count(len(targets), 'target')}{so_far}: {'; '.join(shown)}{more}"


_REASONS: Final = ("closes the session", "closes the connection", "removes the connection for recovery")
"""RFC 7143 section 11.14.1."""
_RESPONSES: Final = ("success", "CID not found", "connection recovery is not supported", "cleanup failed")
"""RFC 7143 section 11.15.1."""


def _logouts(capture: EventSource) -> Batch:
    rows = capture.table("logouts")
    rows = rows.select(known(rows, "request_ns"))
    has_answer = known(rows, "response_ns") & known(rows, "response")
    refused = has_answer & (rows.raw("response") != 0)

    def word(reason: int, has_response: bool, response: int) -> str:
        text = f"logout: the initiator {_REASONS[reason] if reason < len(_REASONS) else f'sends reason {reason}'}"
        if not has_response:
            return f"{text}; no Logout Response"
        meaning = _RESPONSES[response] if response < len(_RESPONSES) else f"response {response}"
        return f"{text}; refused: {meaning}" if response else text

    return Batch(
        "logout",
        rows.raw("request_ns"),
        texts(word, rows.raw("reason"), has_answer, rows.raw("response")),
        frame=rows.raw("request_frame"),
        end_ns=rows.raw("response_ns"),
        severity=np.where(refused, "warning", "info"),
        **_own(capture, rows),
    )
