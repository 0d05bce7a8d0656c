"""Duplicate initiators: two hosts with one InitiatorName and ISID, whose logins end each other's sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from iscsitrace.findings.connection_loss import CONNECTION_LOST
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History, listed
from iscsitrace.findings.login_attempts import attempts
from iscsitrace.findings.outages import IO_OUTAGE
from iscsitrace.findings.session_loss import SessionLoss, is_there, losses
from iscsitrace.measure.intervals import Span, covered_ns, joined
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.relate.stories import first_requests
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

LEAST_TAKEOVERS: Final = 2
"""One takeover is also the failover of a host's address, or a host that starts again elsewhere. A second one shows that
the first session was still wanted."""


@dataclass(frozen=True)
class Takeover:
    """A login that ended a healthy session of the same InitiatorName and ISID."""

    loss: SessionLoss
    before: str
    """The address whose session ended."""
    after: str
    """The address that logged in."""
    frame: int | None
    """Of the Login Request, or of the close."""


def _takeovers(history: History) -> list[Takeover]:
    """Sessions that were healthy until the next login of the same name, which the capture shows."""
    lost = losses(history)
    if not lost:
        return []
    requests = history.source.once(first_requests)
    found = []
    for loss in lost:
        after = history.connections_of.get(loss.next_session, ()) if loss.next_session is not None else ()
        own = history.connections_of[loss.session]
        login = next((requests[row["connection"]] for row in after if row["connection"] in requests), None)
        if login is None or not own or not _is_healthy(history, loss, login.at_ns):
            continue
        # the initiator had not closed it, and was there to close it after the login
        was_open = all(_first(row, "fin_to_target_ns", "rst_to_target_ns") >= login.at_ns for row in own)
        is_closed_after = all(_first(row, "fin_to_initiator_ns", "rst_to_initiator_ns") >= login.at_ns for row in own)
        if was_open and is_closed_after and is_there(own, login.at_ns):
            found.append(Takeover(loss, own[0]["initiator_address"], after[0]["initiator_address"], login.frame))
    return found


def _first(row: dict[str, Any], *names: str) -> int:
    return min((row[name] for name in names if row[name] is not None), default=(1 << 63) - 1)


def _is_healthy(history: History, loss: SessionLoss, until_ns: int) -> bool:
    """Whether nothing had waited for a second when it ended: no NOP, no command."""
    if loss.unanswered and until_ns - loss.unanswered.at_ns >= OUTAGE_MIN_NS:
        return False
    member = history.members.get(loss.session)
    if member is None:
        return True
    issued = member.cycles.raw("command_first_ns")[~known(member.cycles, "status_ns")]
    return not len(issued) or until_ns - int(issued.min()) < OUTAGE_MIN_NS


def _alternate(takeovers: Sequence[Takeover]) -> list[Takeover]:
    """Those of places that come back: A loses its session to B, and B to A; behind one address, each to the other."""
    if len({each.before for each in takeovers} | {each.after for each in takeovers}) == 1:
        return list(takeovers)
    gains, lost = {each.after for each in takeovers}, {each.before for each in takeovers}
    return [each for each in takeovers if each.before in gains and each.after in lost]


def _duplicates(history: History) -> Observation | None:
    found = _alternate(_takeovers(history))
    if len(found) >= LEAST_TAKEOVERS:
        return _seen(history, found)
    return _suspected(history)


def _seen(history: History, found: Sequence[Takeover]) -> Observation:
    names = history.story.sessions[0]
    places = sorted({each.before for each in found} | {each.after for each in found})
    which = listed(places) if len(places) > 1 else f"two initiators behind {places[0]}"
    who = f"{capital(which)} log in"
    first, last = history.since_start(found[0].loss.lost_ns), history.since_start(found[-1].loss.lost_ns)
    out = _out(history, found)
    spans = joined(span for own in out.values() for span in own)
    times = [(host, wording.time(covered_ns(own))) for host, own in out.items()]
    text = (
        f"{who} with the same InitiatorName {names['initiator_name']} and ISID {names['isid']}: {len(found):,} times "
        f"from {first} to {last} a login of one ended the healthy session of the other."
    )
    if times:
        (host, time), *rest = times
        text += (
            f" {capital(f'{host} had no session for {time}')}{''.join(f', {each} for {own}' for each, own in rest)}."
        )
    return Observation(
        text,
        [frame for each in found for frame in (each.frame, each.loss.end.frame if each.loss.end else None)],
        float(covered_ns(spans)),
        spans=spans,
        sessions=history.sessions,
        is_final=True,
        points_to=which,
    )


def _out(history: History, takeovers: Sequence[Takeover]) -> Mapping[str, Sequence[Span]]:
    """When each host was out: from each loss of its session to its next finished login. One that never logs in again
    may not want to, and one that waits for its next try at the end of the capture cannot be told from it.
    """
    ended = {each.loss.session: each for each in takeovers}
    logged_in = {each.next_session: each.login_ns for each in losses(history)}
    is_one_address = len({each.before for each in takeovers}) == 1
    out: dict[str, list[Span]] = {}
    lost_ns: dict[str, int] = {}
    host = _ORDINALS[0]
    for before, after in pairwise(history.sessions):
        if before in ended:
            took = ended[before]
            lost_ns[host if is_one_address else took.before] = took.loss.lost_ns
            host = _ORDINALS[host == _ORDINALS[0]]
        own = history.connections_of[after]
        name = host if is_one_address or not own else own[0]["initiator_address"]
        if (login_ns := logged_in.get(after)) is not None and name in lost_ns:
            out.setdefault(name, []).append((lost_ns.pop(name), login_ns))
    return out


_ORDINALS: Final = ("the first", "the second")
"""Two hosts behind one address."""


def _suspected(history: History) -> Observation | None:
    """One side only: the target closes healthy sessions, accepts each login at once, and gave out TSIHs meanwhile."""
    sessions = {row["session"]: row for row in history.story.sessions}
    first_try = {each.session["session"] for each in attempts(history) if each.outcome == "accepted"}
    found = []
    for loss in losses(history):
        if loss.next_session is None or loss.end is None or loss.end.by != "target" or loss.end.verb != "closed":
            continue
        before, after = sessions[loss.session]["tsih"], sessions[loss.next_session]["tsih"]
        is_skipped = before is not None and after is not None and after > before + 1
        is_first_try = loss.next_session in first_try and loss.rebuilding.last_ns is None
        if is_skipped and is_first_try and _is_healthy(history, loss, loss.lost_ns):
            found.append((loss, before, after))
    if len(found) < LEAST_TAKEOVERS or len(history.rows("asyncs")):
        return None
    names = history.story.sessions[0]
    spans = joined((each.from_ns, each.until_ns) for each in losses(history))
    numbers = listed(dict.fromkeys(tsih for _, before, after in found for tsih in (before, after)))
    text = (
        f"a second host may use the InitiatorName {names['initiator_name']} and ISID {names['isid']} of "
        f"{history.label}: the target closed a healthy connection {len(found):,} times, accepted the next login at "
        f"once, and had assigned other TSIHs in between (here: {numbers}). This capture shows only one host. A capture "
        "at the target shows the other one, too."
    )
    return Observation(
        capital(text),
        [loss.end.frame for loss, _, _ in found if loss.end],
        float(covered_ns(spans)),
        spans=spans,
        sessions=history.sessions,
        severity="warning",
        is_final=True,
        points_to="a second initiator of this name, which the capture does not show",
    )


DUPLICATE_INITIATOR: Final = Problem(
    name="duplicate_initiator",
    scope="story",
    meaning="Two hosts log in with the same InitiatorName and ISID. To the target they are one initiator, so each "
    "login ends the session of the other host (session reinstatement, RFC 7143 section 6.3.5).",
    condition=f"At least {LEAST_TAKEOVERS} times a login ended a healthy session of the same names and ISID: no "
    "command had waited for a second, and its initiator had not closed it and stayed active. The logins come from two "
    "addresses in turn, or from behind one address. Where the capture shows only one host, it is a suspicion: the "
    "target closed healthy connections, accepted each next login at once, and skipped TSIHs.",
    evidence="The Login Request that ended each session, and its FIN or RST. The cost is the time in which one "
    "of the hosts had no session: from each loss until its next login was finished. Of one host it is the time until "
    "its next I/O.",
    example="A second host may use the InitiatorName iqn.2025-01.org.iscsitrace:guest and ISID 00023d000001 of "
    "sessions 1 to 3: the target closed a healthy connection 2 times, accepted the next login at once, and had "
    "assigned other TSIHs in between (here: 1, 3 and 5). This capture shows only one host. A capture at the target "
    "shows the other one, too.",
    severity="error",
    rank="failure",
    accounts_for=(CONNECTION_LOST, IO_OUTAGE),
    advice=(
        Advice(
            "Give each host a name of its own: cloned machines share `/etc/iscsi/initiatorname.iscsi` (make a new "
            "one with `iscsi-iname`, restart iscsid, and correct the ACL); `esxcli iscsi adapter set --name` on "
            "ESXi, `iscsicli NodeName` or the initiator's properties on Windows.",
            touches=NEXT_LOGIN,
        ),
        Advice(
            "Behind one name, give each interface or process its own ISID: separate ifaces in open-iscsi; in libiscsi "
            "(QEMU, backup programs) another `initiator-name`."
        ),
    ),
    where=lambda columns: columns.count("sessions") > LEAST_TAKEOVERS,
    tell=_duplicates,
)
