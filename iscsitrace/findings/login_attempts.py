"""Login attempts: each connection by which an initiator tried to log in, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from iscsitrace.findings.history import History, Surroundings
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.parameters import do_not_agree
from iscsitrace.measure.path import is_reset_of_a_device
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import joined

Row = Mapping[str, Any]

ENDS: Final = (
    # column of connections, who did it, how
    ("rst_to_initiator", "target", "reset"),
    ("rst_to_target", "initiator", "reset"),
    ("fin_to_initiator", "target", "closed"),
    ("fin_to_target", "initiator", "closed"),
)
"""The ways in which a connection ends."""

LOGIN_SILENCE_NS: Final = 5_000_000_000
"""A Login Request without a response at the end of the capture has failed after this time: targets answer within a few
round trips, and initiators give up after 15 s (node.conn[0].timeo.login_timeout)."""

_FULL_FEATURE_PHASE: Final = 3
_AUTHENTICATION_FAILURE: Final = (2, 1)
_ALGORITHMS: Final = {"5": "MD5", "6": "SHA-1", "7": "SHA-256", "8": "SHA3-256"}
"""Of CHAP, as IANA numbers them (PPP Authentication Algorithms)."""

Outcome = Literal["accepted", "redirected", "refused", "algorithm", "disagreed", "unanswered", "unknown"]


@dataclass(frozen=True)
class Attempt:
    """One connection by which a session was to be logged in."""

    session: Row
    connection: Row
    outcome: Outcome
    first_ns: int
    """The first packet of the connection."""
    last_ns: int
    """When the outcome was clear: the last Login Response, the close, or the last packet."""
    status: tuple[int, int] | None
    """Status-Class and Status-Detail of the last Login Response."""
    reason: str
    """Why it failed, or why that does not show, in words."""
    details: str
    """What else the packets show of the failure, as sentences."""
    closed_by: str | None
    """initiator or target, where a close within the login ended it."""
    frames: tuple[int | None, ...]

    @property
    def has_failed(self) -> bool:
        """Whether the session was not logged in by it. A redirect fails only if nobody followed it."""
        return self.outcome in ("refused", "algorithm", "disagreed", "unanswered")


def attempts(history: History) -> Sequence[Attempt]:
    """The login attempts of a story, in order of time."""
    return history.once(_attempts)


def _attempts(history: History) -> tuple[Attempt, ...]:
    logins = history.source.once(_logins)
    sessions = {row["session"]: row for row in history.story.sessions}
    found = [
        _attempt(history, sessions[row["session"]], row, logins[row["connection"]])
        for row in history.story.connections
        if row["session"] is not None and row["connection"] in logins
    ]
    return tuple(sorted(found, key=lambda each: (each.first_ns, each.connection["connection"])))


def _logins(trace: Surroundings) -> dict[int, list[Row]]:
    """The exchanges of each login, by connection, in order of time."""
    found: dict[int, list[Row]] = {}
    for row in trace("logins").rows():
        found.setdefault(row["connection"], []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: row["request_ns"] or row["response_ns"] or 0)
    return found


def _attempt(history: History, session: Row, connection: Row, logins: list[Row]) -> Attempt:
    last = logins[-1]
    answers = [row for row in logins if row["response_ns"] is not None and row["status_class"] is not None]
    status = (answers[-1]["status_class"], answers[-1]["status_detail"]) if answers else None
    frames = (last["request_frame"], last["response_frame"])
    times = [row[name] for row in logins for name in ("request_ns", "response_ns") if row[name] is not None]
    said_ns = max(times, default=connection["time_first_ns"])

    def made(outcome: Outcome, last_ns: int, reason: str = "", details: str = "", end: End | None = None) -> Attempt:
        first_ns, more = connection["time_first_ns"], (end.frame,) if end else ()
        by = end.by if end else None
        return Attempt(session, connection, outcome, first_ns, last_ns, status, reason, details, by, (*frames, *more))

    if status and status[0] == 1:
        return made("redirected", said_ns, _of_status(answers[-1]))
    if status and status[0]:
        keys = _disagreements(history.source, connection)
        details = f"The two sides cannot agree on {_in_words(keys)}." if keys else ""
        algorithms = _refused_algorithms(history.source, connection) if status == _AUTHENTICATION_FAILURE else ""
        if algorithms:
            details = (
                f"The target chose none of the CHAP algorithms that the initiator offered ({algorithms}), and no "
                "secret was sent: the secrets are not the cause."
            )
        return made("algorithm" if algorithms else "refused", said_ns, _of_status(answers[-1]), details)
    end = end_of(connection)
    is_unused = not session["cycle_count"] and connection["pdu_count_to_target"] <= len(logins)
    if is_unused and end:
        keys = _disagreements(history.source, connection)
        if keys:
            how = f"The {end.by} {end.verb} the connection {wording.time(end.at_ns - said_ns)} after the "
            how += "Login Response." if last["response_ns"] is not None else "Login Request, without a Login Response."
            return made("disagreed", end.at_ns, f"the two sides cannot agree on {_in_words(keys)}", how, end)
    if last["response_ns"] is not None and last["is_transit"] and last["next_stage"] in (_FULL_FEATURE_PHASE, None):
        return made("accepted", said_ns)
    if last["response_ns"] is not None and last["status_class"] is None:
        return made("unknown", said_ns, "the snaplen cut off the status of its Login Response")
    is_lacking = may_lack_pdus(connection.__getitem__)
    if not is_unused or is_lacking or (end is None and history.source.end_ns() - said_ns < LOGIN_SILENCE_NS):
        return made("unknown", said_ns)
    if end is None:
        silent_ns = history.source.end_ns() - said_ns
        return made("unanswered", said_ns + silent_ns, f"no Login Response for {wording.time(silent_ns)}")
    how = f"{end.verb} the connection"
    after = wording.time(end.at_ns - said_ns)
    if last["response_ns"] is not None:
        reason = f"the {end.by} {how} {after} after a Login Response, before the login was complete"
    elif end.by == "target":
        reason = f"the target {how} {after} after the Login Request, without a Login Response"
    else:
        reason = f"no Login Response for {after}, then the initiator {how}"
    return made("unanswered", end.at_ns, reason, "", end)


@dataclass(frozen=True)
class End:
    """The first FIN or RST of a connection."""

    at_ns: int
    frame: int | None
    by: str
    """initiator or target."""
    verb: str
    """reset or closed."""
    hop_limits: tuple[int, int] | None = None
    """TTL of a RST that a device between them sent in its name, and that of its packets."""

    @property
    def actor(self) -> str:
        """Who ended it, as the subject of a sentence."""
        return "A device between the hosts" if self.hop_limits else f"The {self.by}"

    @property
    def proof(self) -> str:
        """Why it was a device between them, behind a sentence; else empty."""
        if self.hop_limits is None:
            return ""
        own, others = self.hop_limits
        return f": the RST has TTL {own}, the packets of the {self.by} have {others}, and the {self.by} went on sending"

    @property
    def side(self) -> str:
        """Whose side it points to: a RST may come from a hop between them."""
        if self.hop_limits:
            return "a device between the hosts"
        return f"the {self.by} or a firewall" if self.verb == "reset" else f"the {self.by}"


def end_of(connection: Row, until_ns: int | None = None) -> End | None:
    """How a connection ended, up to a time; None where nobody closed it."""
    ends = [
        End(connection[f"{column}_ns"], connection[f"{column}_frame"], by, verb, _of_a_device(connection, column))
        for column, by, verb in ENDS
        if connection[f"{column}_ns"] is not None and (until_ns is None or connection[f"{column}_ns"] <= until_ns)
    ]
    return min(ends, key=lambda end: end.at_ns, default=None)


def _of_a_device(connection: Row, column: str) -> tuple[int, int] | None:
    """The TTL of a RST and of other packets of its sender, where they differ and those came after it, too."""
    what, _, direction = column.partition("_")
    if what != "rst" or connection[f"{column}_ns"] is None:
        return None
    own, others = connection[f"rst_hop_limit_{direction}"], connection[f"hop_limit_{direction}"]
    if own is None or others is None:
        return None
    last_ns = connection[f"time_last_{direction}_ns"] or 0
    return (own, others) if is_reset_of_a_device(own, others, last_ns, connection[f"{column}_ns"]) else None


def _of_status(row: Row) -> str:
    return f"{row['status_text'] or 'unknown status'} (status 0x{row['status_class']:02x}{row['status_detail']:02x})"


def _disagreements(source: Surroundings, connection: Row) -> list[tuple[str, str, str]]:
    """Each key that the two sides cannot agree on, with the values of initiator and target."""
    rows = source.rows("parameters", [connection["connection"]]).rows(("key", "initiator_value", "target_value"))
    offers = [(row["key"], row["initiator_value"], row["target_value"]) for row in rows]
    return [each for each in offers if do_not_agree(*each)]


def _refused_algorithms(source: Surroundings, connection: Row) -> str:
    """``5 MD5``: the CHAP algorithms that the initiator offered, if the target chose none; else empty.

    The initiator answers a challenge with its secret, and a target that chose an algorithm sends one.
    """
    rows = {row["key"]: row for row in source.rows("parameters", [connection["connection"]]).rows()}
    offer = rows.get("CHAP_A")
    is_refused = offer is not None and offer["target_value"] in (None, "Reject") and "CHAP_C" not in rows
    if offer is None or not is_refused or "CHAP_R" in rows or not offer["initiator_value"]:
        return ""
    names = offer["initiator_value"].split(",")
    return ", ".join(f"{name} {_ALGORITHMS[name]}" if name in _ALGORITHMS else name for name in names)


def _in_words(keys: Sequence[tuple[str, str, str]]) -> str:
    """``HeaderDigest (initiator CRC32C, target None) and ...``."""
    return joined([f"{key} (initiator {ours}, target {theirs})" for key, ours, theirs in keys])
