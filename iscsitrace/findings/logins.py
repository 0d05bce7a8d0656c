"""Failed logins: refused by a status, over keys that the two sides cannot agree on, by a close, or by silence. What to
do about each is said in the words of the programs, by its status (RFC 7143 section 11.13.5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from iscsitrace.findings import breaches
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings, host_questions
from iscsitrace.findings.login_attempts import LOGIN_SILENCE_NS, Attempt, attempts
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.session_loss import losses
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.relate.portals import Unanswered
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

_CREDENTIALS: Final = Advice(
    "Compare the CHAP names and secrets of both sides: node.session.auth.username, node.session.auth.password and "
    "node.session.auth.authmethod in open-iscsi (username_in and password_in for mutual CHAP), `auth` of the ACL or "
    "of the TPG in targetcli, `tgtadm --mode account`; the adapter's CHAP settings on ESXi, `Set-IscsiChapSecret` "
    "on Windows (12 to 16 characters)."
)
_ACL: Final = Advice(
    "Allow this InitiatorName: an ACL in targetcli (`acls/ create`), `tgtadm --op bind` in tgt, the host's IQN in its "
    "host group on an array. Compare it with `/etc/iscsi/initiatorname.iscsi`, `esxcli iscsi adapter get` or "
    "`iscsicli`."
)
_NAME: Final = Advice(
    "Compare the TargetName with what SendTargets lists (`iscsiadm -m discovery -t sendtargets -p PORTAL`): a typing "
    "error, a renamed or removed target, a target that is not at this portal, or (tgt) one that does not allow this "
    "initiator. Delete outdated records: `iscsiadm -m node -T NAME -o delete`."
)
_RELEASE: Final = Advice(
    "Check that both sides support the same version and session types, and that the login has all keys: update the "
    "initiator or the target."
)
_SESSIONS: Final = Advice(
    "Check the limits of connections and sessions: node.session.nr_sessions and node.session.iscsi.MaxConnections in "
    "open-iscsi, MaxConnections and the session limit of the target. Old sessions of a host that restarted count until "
    "they time out."
)
_TARGET_STATE: Final = Advice(
    "Check the TargetName and the state of the target: LIO answers like this if it has no such target, or while the "
    "TPG is disabled (targetcli: `enable`). Arrays do during a failover."
)
_RESOURCES: Final = Advice(
    "Free resources of the target: sessions, connections or memory; look for hosts that log in again and again."
)
_KEYS: Final = Advice(
    "Set the key alike on both sides: node.conn[0].iscsi.HeaderDigest and node.conn[0].iscsi.DataDigest in "
    "open-iscsi (`CRC32C,None` accepts both), `set parameter HeaderDigest=` of the TPG in targetcli, the digest "
    "settings of ESXi's adapter, of the Windows initiator's connection, and of the array.",
    touches=NEXT_LOGIN,
)
_ALGORITHM: Final = Advice(
    "Allow the same CHAP algorithms on both sides: node.session.auth.chap_algs in open-iscsi (`SHA3-256,SHA256,SHA1,"
    "MD5`), the CHAP settings of the array. A host with an older initiator, or in FIPS mode, may lack what the target "
    "wants.",
    touches=NEXT_LOGIN,
)
_SILENCE: Final = Advice(
    "Check that the target program runs and is not overloaded: the kernel accepts connections even if the program does "
    "not answer. open-iscsi waits for node.conn[0].timeo.login_timeout (15 s). Some arrays ping the initiator before "
    "they answer a login; a capture filter on the TCP port hides that."
)
_PING: Final = Advice(
    "Let the target's pings (ICMP echo requests) reach the initiator, and the answers get back: check the firewall of "
    "the host and of the path, and the route back to the target. Some arrays answer a login only after that."
)
LOG_ADVICE: Final = Advice(
    "Read the target's log at that time: it may give a reason that the Login Response does not give."
)

_BY_STATUS: Final = {
    (2, 1): _CREDENTIALS,
    (2, 2): _ACL,
    (2, 3): _NAME,
    (2, 4): _NAME,
    (2, 5): _RELEASE,
    (2, 6): _SESSIONS,
    (2, 7): _RELEASE,
    (2, 8): _SESSIONS,
    (2, 9): _RELEASE,
    (2, 10): _SESSIONS,
    (3, 1): _TARGET_STATE,
    (3, 2): _RESOURCES,
}

_SIDES: Final = {
    _CREDENTIALS: "the CHAP names and secrets of the two sides",
    _ACL: "the target's access list, or the initiator's name",
    _NAME: "the target name that the initiator uses, or the target",
    _RELEASE: "what the two sides support",
    _SESSIONS: "the limits of the target, or too many logins of the initiator",
    _TARGET_STATE: "the target",
    _RESOURCES: "the target",
    _ALGORITHM: "the CHAP algorithms of the two sides",
    _KEYS: "the settings of the two sides",
}
"""Whose side a failed login points to."""

ALL_ADVICE: Final = (
    _CREDENTIALS,
    _ALGORITHM,
    _ACL,
    _NAME,
    _KEYS,
    _TARGET_STATE,
    _RESOURCES,
    _SESSIONS,
    _RELEASE,
    _SILENCE,
    LOG_ADVICE,
)
"""Every advice, the most frequent reasons first."""


def advice_of_statuses(statuses: Iterable[tuple[int, int]]) -> tuple[Advice, ...]:
    """The advice for these statuses, each once."""
    found = [_BY_STATUS.get(status, _TARGET_STATE if status[0] == 3 else LOG_ADVICE) for status in statuses]
    return tuple(dict.fromkeys((*found, LOG_ADVICE)))


def _advice_of_outcomes(outcomes: Iterable[tuple[str, tuple[int, int] | None]]) -> tuple[Advice, ...]:
    """The advice for outcomes of login attempts with their statuses, each once."""
    return tuple(dict.fromkeys((*(_of_outcome(*each) for each in outcomes), LOG_ADVICE)))


def _side_of_outcome(outcome: str, status: tuple[int, int] | None) -> str | None:
    """Whose side a login attempt points to; None where the packets cannot tell."""
    return _SIDES.get(_of_outcome(outcome, status))


def _of_outcome(outcome: str, status: tuple[int, int] | None) -> Advice:
    if outcome == "refused" and status:
        return advice_of_statuses([status])[0]
    return {"disagreed": _KEYS, "algorithm": _ALGORITHM}.get(outcome, _SILENCE)


def failures(history: History) -> Sequence[Attempt]:
    """The attempts that failed, without those to rebuild a lost session: that loss has them."""
    rebuilding = {each.connection["connection"] for loss in losses(history) for each in loss.rebuilding.logins}
    return [
        each
        for each in attempts(history)
        if (each.has_failed or _is_astray(history, each)) and each.connection["connection"] not in rebuilding
    ]


def _is_astray(history: History, attempt: Attempt) -> bool:
    """Whether a redirect came to nothing: no login to the target followed, and no connect that failed either."""
    if attempt.outcome != "redirected":
        return False
    names = (attempt.session["initiator_name"], attempt.session["target_name"])
    later_ns = history.source.once(_last_logins).get(names)
    if later_ns is not None and later_ns >= attempt.first_ns:
        return False
    # a portal that does not answer is the failure, not the redirect to it
    return not history.source.once(_has_failed_connect)


def _last_logins(trace: Surroundings) -> dict[tuple[str | None, str | None], int]:
    """The start of the last session that was logged in, by names of initiator and target."""
    columns = ("initiator_name", "target_name", "login_status", "time_first_ns")
    found: dict[tuple[str | None, str | None], int] = {}
    for row in trace("sessions").rows(columns):
        if row["login_status"] == 0:
            names = (row["initiator_name"], row["target_name"])
            found[names] = max(found.get(names, row["time_first_ns"]), row["time_first_ns"])
    return found


def _has_failed_connect(trace: Surroundings) -> bool:
    table = trace("connections")
    is_silent = table.raw("has_syn") & ~table.raw("is_iscsi") & ~known(table, "syn_ack_ns")
    return bool(is_silent.any())


def _may_fail(facts: Facts) -> Array:
    """Where a Login Response has another status than success, or where a session carried nothing."""
    is_unused = facts.count("sessions", lambda sessions: sessions.raw("cycle_count") == 0) > 0
    return is_unused | (facts.count("logins", _is_refused) > 0)


def _is_refused(logins: Table) -> Array:
    return np.asarray(known(logins, "status_class") & (logins.raw("status_class") != 0))


def _failed(history: History) -> Observation | None:
    found = failures(history)
    if not found:
        return None
    accepted = [each for each in attempts(history) if each.outcome == "accepted"]
    later = next((each for each in accepted if each.last_ns > found[-1].first_ns), None)
    reasons = Counter(each.reason for each in found)
    worst = reasons.most_common(1)[0][0]
    shown = [each for each in found if each.reason == worst]
    names = sorted({each.session["session"] for each in found})
    first, last = history.since_start(found[0].last_ns), history.since_start(found[-1].last_ns)
    if len(found) == 1:
        what = f"the login of {history.label_of(names)} {_where(found[0])} failed at {first}"
    else:
        what = f"{len(found):,} logins of {history.label_of(names)} {_where(found[0])} failed from {first} to {last}"
    why = "; ".join(
        reason if len(reasons) == 1 else f"{wording.count(count, 'time')} {reason}"
        for reason, count in reasons.most_common()
    )
    end = "No later login succeeded in the capture."
    if later is not None:
        again = f" (session {later.session['session']})" if later.session["session"] not in names else ""
        end = f"The login at {history.since_start(later.last_ns)} succeeded{again}."
    fact = f"{what}: {why}"
    until_ns = max(each.last_ns for each in found) if later is None else later.last_ns
    pings = _pings(history, found)
    cause = breaches.of_login(history, [each.connection["connection"] for each in found], found[-1].last_ns)
    broken = breaches.sentence_of(cause, history.start_ns) if cause else ""
    return Observation(
        " ".join(filter(None, (broken, f"{capital(fact)}.", shown[0].details, _of_pings(pings), end))),
        (frame for each in (*shown[:2], found[-1], *([later] if later else [])) for frame in each.frames),
        float(until_ns - found[0].first_ns),
        spans=((found[0].first_ns, until_ns),),
        sessions=tuple(names) if later is None else tuple(sorted({*names, later.session["session"]})),
        is_final=True,
        advice=(breaches.advice(cause),)
        if cause
        else ((_PING,) if pings else ()) + _advice_of_outcomes((each.outcome, each.status) for each in found),
        points_to=f"the {cause.side}"
        if cause
        else "the path to the initiator, or its firewall"
        if pings
        else _side(found),
    )


def _pings(history: History, found: Sequence[Attempt]) -> Unanswered | None:
    """The pings of a target that does not answer logins, if the initiator did not answer them."""
    questions = history.source.once(host_questions)
    for each in found:
        target, initiator = each.connection["target_address"], each.connection["initiator_address"]
        pings = questions.unanswered("echo", target, initiator)
        if each.outcome == "unanswered" and pings and pings.from_ns <= each.last_ns and each.first_ns <= pings.to_ns:
            return pings
    return None


def _of_pings(pings: Unanswered | None) -> str:
    if pings is None:
        return ""
    return f"The target pinged the initiator {pings.count:,} times meanwhile (ICMP echo requests) and had no answer."


def _side(found: Sequence[Attempt]) -> str | None:
    """Whose side they point to, if all point to the same one."""
    sides = {_of_attempt(each) for each in found}
    return sides.pop() if len(sides) == 1 else None


def _of_attempt(attempt: Attempt) -> str | None:
    if attempt.outcome == "redirected":
        return "the target, which redirected the login"
    if attempt.outcome == "unanswered":
        # an initiator that closes has waited in vain
        return "the target" if attempt.closed_by == "target" else "the path or the target"
    return _side_of_outcome(attempt.outcome, attempt.status)


def _where(attempt: Attempt) -> str:
    """``to iqn.t``; the portal, where the login names no target: discovery."""
    if attempt.session["target_name"]:
        return f"to {attempt.session['target_name']}"
    return f"(discovery) to {attempt.connection['target_address']} port {attempt.connection['target_port']}"


LOGIN_FAILED: Final = Problem(
    name="login_failed",
    scope="story",
    meaning="An initiator could not log in: the target refused it with a status, the two sides could not agree on a "
    "key, or the connection ended or fell silent during the login.",
    condition="A last Login Response whose status class is not 0 (a redirect that was followed by a login is not a "
    "failure); keys with no common value, or answered by Reject, on a connection that was then closed unused; a close "
    f"during the login; or no Login Response for {LOGIN_SILENCE_NS / 1e9:g} s. Failed logins between the loss of a "
    "session and the next one belong to `connection_lost`.",
    evidence="The last Login Request and Login Response of the first failed logins and of the last one, and of the "
    "login that succeeded after them. The cost is the time from the first try to that login, else to the end of the "
    "last try.",
    example="The login of session 0 to iqn.2025-01.org.iscsitrace:memory failed at 0.00 s: authorization failure "
    "(status 0x0202). No later login succeeded in the capture.",
    shown_by=f"read {LAN} --fault no-acl",
    near_miss=f"read {LAN} --fault login-redirected --seconds 3",
    severity="error",
    rank="failure",
    advice=ALL_ADVICE,
    where=_may_fail,
    tell=_failed,
)
