"""Lost connections: a session that ended without a logout, and what it took to have one again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from iscsitrace.findings import breaches, login_advice
from iscsitrace.findings.failures import NOP_TIMEOUT
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History
from iscsitrace.findings.login_attempts import end_of
from iscsitrace.findings.partial_losses import partial_losses
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.session_loss import ENDS_BY_LOSS, SessionLoss, losses, may_be_lost
from iscsitrace.findings.surroundings import Surroundings
from iscsitrace.measure.intervals import covered_ns
from iscsitrace.measure.violations import Violated
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.rules import pdu_type
from iscsitrace.wording.sentences import capital

_DEVICE: Final = Advice(
    "Find the device on the path that sent the RST: a firewall or load balancer that forgot the connection (an idle or "
    "state time-out), or an intrusion prevention system. It is as many hops away as its TTL is below 64, 128 or 255."
)


_OF_A_LOGIN: Final = (0x03, 0x23)
"""Opcodes of Login Request and Login Response."""
_WITH_DATA: Final = (0x05, 0x25)
"""Opcodes of SCSI Data-Out and SCSI Data-In."""


def _lost(history: History) -> Observation | None:
    found = losses(history)
    if not found:
        return _lost_in_part(history)
    worst = max(found, key=lambda each: each.until_ns - each.from_ns)
    spans = tuple((each.from_ns, each.until_ns) for each in found)
    cost_ns = covered_ns(spans)
    in_vain = [each for each in found if not each.is_recovered and each.rebuilding.last_ns is not None]
    is_harmless = all(each.is_like_an_end for each in found) and not in_vain
    ended = [each for each in found if not each.is_recovered and not each.is_like_an_end]
    # a session that took the place of another lost nothing
    lost = {each.session for each in found}
    fact = f"{history.label_of(lost)} lost {_how_long(history, found, worst)}"
    parts = [f"{capital(fact)}.", worst.how(history)]
    is_of_a_device = worst.end is not None and worst.end.hop_limits is not None
    if is_of_a_device:
        # it says whose fault it is not
        parts.reverse()
    cause = _cause(history, worst)
    reject = _reject(history, cause, worst) if cause else None
    rejects = [reject] if reject else []
    if cause:
        rejected = [f"The target rejected that PDU ({each['reason_text']})." for each in rejects]
        parts = [breaches.sentence_of(cause, history.start_ns), *rejected, *parts]
    parts += filter(None, (_with_others(history, worst), _same_wait(found), _last_pdu(history, worst)))
    in_vain_words = list(worst.rebuilding.sentences())
    # what a headline leaves out comes last: of a session that is back what failed until then
    parts += [] if worst.is_recovered else in_vain_words
    without = [f"{capital(wording.count(worst.in_flight, 'command'))} had no status."] if worst.in_flight else []
    if worst.failover:
        over = worst.failover
        them = (
            "it" if worst.in_flight == over.count == 1 else f"{over.count:,} of them" if worst.in_flight > 1 else "it"
        )
        parts += without
        parts.append(
            f"The initiator reissued {them} over another path ({over.label}); the last completed "
            f"{wording.time(over.until_ns - worst.from_ns)} after the loss."
        )
    if worst.login_ns is not None:
        # counted from what had no answer, if there is such: the connection was dead from then on
        since = f" after that {worst.unanswered.what}" if worst.unanswered and worst.from_ns < worst.lost_ns else ""
        login = wording.time(worst.login_ns - worst.from_ns)
        parts.append(f"The initiator logged in again {login}{since or ' later'}")
        if worst.resumed_ns is not None:
            parts[-1] += ", and I/O resumed"
            if worst.until_ns != worst.resumed_ns:
                parts[-1] += f" after {wording.time(worst.resumed_ns - worst.from_ns)}"
        parts[-1] += "."
    elif not worst.is_recovered:
        parts.append("No login followed in the capture.")
    parts += [] if worst.failover else without
    parts += in_vain_words if worst.is_recovered else []
    refused = [each.status for loss in found for each in loss.rebuilding.logins if each.status and each.status[0] > 1]
    advice = (*CONNECTION_LOST.advice, *login_advice.of(refused)) if refused else None
    if is_of_a_device:
        advice = (_DEVICE, *(advice or CONNECTION_LOST.advice)[1:])
    return Observation(
        " ".join(parts),
        [*(cause.frames[:2] if cause else ()), *(each["frame"] for each in rejects), *_frames(found)],
        float(cost_ns) if cost_ns else None,
        severity="info" if is_harmless else None,
        spans=spans,
        sessions=history.sessions,
        is_final=bool(ended or in_vain),
        advice=(breaches.advice(cause),) if cause else advice,
        points_to=f"the {cause.side}" if cause else worst.side,
    )


_SAME_WAIT_NS: Final = 50_000_000
"""Waits of one timer differ by no more: its ticks, and the path."""
_CLOSED_UPON_NS: Final = 1_000_000_000
"""A connection that was closed so soon after a PDU may have been closed upon it."""
_AT_ONCE_NS: Final = 1_000_000_000
"""Losses of one cause are no further apart."""


def _same_wait(found: Sequence[SessionLoss]) -> str:
    """``Each time the initiator closed it 5.0 s after an unanswered NOP: a timer of the initiator.``; else empty."""
    waits = [
        (each.lost_ns - each.from_ns, each.end.by, each.unanswered.what)
        for each in found
        if each.end and each.unanswered and each.from_ns < each.lost_ns
    ]
    times = [wait for wait, _, _ in waits]
    is_same = len({(by, what) for _, by, what in waits}) == 1 and len(waits) == len(found) > 1
    if not is_same or max(times) - min(times) > _SAME_WAIT_NS:
        return ""
    _, by, what = waits[0]
    return f"Each time the {by} closed it {wording.time(min(times))} after an unanswered {what}: a timer of the {by}."


def _last_pdu(history: History, loss: SessionLoss) -> str:
    """The PDU upon which the connection may have been closed: the first of its type on it. Else empty."""
    if loss.end is None or loss.unanswered or loss.end.hop_limits:
        return ""
    sender = {"initiator": "target", "target": "initiator"}[loss.end.by]
    for row in history.connections_of[loss.session]:
        at_ns, opcode = row[f"last_pdu_to_{loss.end.by}_ns"], row[f"last_pdu_opcode_to_{loss.end.by}"]
        is_upon = at_ns is not None and 0 <= loss.lost_ns - at_ns <= _CLOSED_UPON_NS
        if is_upon and row[f"is_last_pdu_new_to_{loss.end.by}"] and opcode not in _OF_A_LOGIN:
            digest = ", with a data digest" if opcode in _WITH_DATA and row["data_digest"] == "crc32c" else ""
            return (
                f"The last PDU before it was the {sender}'s first {pdu_type(opcode)}{digest} (frame "
                f"{row[f'last_pdu_to_{loss.end.by}_frame']}), {wording.time(loss.lost_ns - at_ns)} earlier."
            )
    return ""


def _with_others(history: History, loss: SessionLoss) -> str:
    """``3 other sessions of this target lost their connections at the same time: one cause.``; else empty."""
    if loss.end is None:
        return ""
    row = history.connections_of[loss.session][0]
    place, ends = (row["target_address"], loss.end.by), history.source.once(_ends)
    own = sorted(at_ns for number in history.sessions for at_ns in ends.by_session.get((*place, number), ()))
    others = _count_at(ends.every.get(place, ()), loss.lost_ns) - _count_at(own, loss.lost_ns)
    if not others:
        return ""
    count = wording.count(others, "other session")
    lost = "its connection" if others == 1 else "their connections"
    return f"{capital(count)} of this target lost {lost} at the same time: one cause."


def _count_at(times_ns: Sequence[int], at_ns: int) -> int:
    """How many of these times, which are in order, are at the same time."""
    return bisect_right(times_ns, at_ns + _AT_ONCE_NS) - bisect_left(times_ns, at_ns - _AT_ONCE_NS)


class _Ends(NamedTuple):
    """When connections of sessions ended without a logout, by the address of their target and who ended them."""

    every: dict[tuple[str, str], list[int]]
    """In order."""
    by_session: dict[tuple[str, str, int], list[int]]


def _ends(trace: Surroundings) -> _Ends:
    sessions = trace("sessions")
    is_lost = np.isin(sessions["end"].astype(str), ENDS_BY_LOSS)
    lost = {*sessions.raw("session")[is_lost].tolist()}
    found = _Ends({}, {})
    for row in trace("connections").rows():
        end = end_of(row) if row["session"] in lost else None
        if end is not None:
            found.every.setdefault((row["target_address"], end.by), []).append(end.at_ns)
            found.by_session.setdefault((row["target_address"], end.by, row["session"]), []).append(end.at_ns)
    for times_ns in found.every.values():
        times_ns.sort()
    return found


def _cause(history: History, loss: SessionLoss) -> Violated | None:
    """The violation of RFC 7143 upon which the connection was closed."""
    return breaches.of_loss(history, _connections_of(history, loss), loss.lost_ns)


def _connections_of(history: History, loss: SessionLoss) -> list[int]:
    return [row["connection"] for row in history.connections_of[loss.session]]


def _reject(history: History, cause: Violated, loss: SessionLoss) -> dict[str, Any] | None:
    """The Reject that followed upon a violation of the initiator, a row of ``rejects``; None where there is none."""
    if cause.side != "initiator" or cause.time_ns is None:
        return None
    for row in history.rows("rejects").rows():
        is_after = row["time_ns"] is not None and cause.time_ns <= row["time_ns"] <= loss.lost_ns
        if is_after and row["connection"] == cause.connection:
            return row
    return None


def _how_long(history: History, found: Sequence[SessionLoss], worst: SessionLoss) -> str:
    """``its connection for 7.0 s, from 4.70 s to 11.70 s``."""
    start, length = history.since_start(worst.from_ns), wording.time(worst.until_ns - worst.from_ns)
    if worst.until_ns == worst.from_ns:
        when = f"at {start}"
    elif worst.is_recovered:
        when = f"for {length}, from {start} to {history.since_start(worst.until_ns)}"
    else:
        when = f"for more than {length}, from {start} on"
    connection = f"{'its' if len({each.session for each in found}) == 1 else 'their'} connection"
    if len(found) == 1:
        return f"{connection} {when}"
    return f"{connection} {len(found):,} times, the {'longest' if worst.until_ns > worst.from_ns else 'first'} {when}"


def _lost_in_part(history: History) -> Observation | None:
    """Of connections whose session went on over another one (MC/S)."""
    found = partial_losses(history)
    if not found:
        return None
    worst = max(found, key=lambda each: (each.in_flight - each.retried, each.until_ns - each.end.at_ns))
    spans = tuple((each.end.at_ns, each.until_ns) for each in found)
    cost_ns = covered_ns(spans)
    number = f"connection {worst.connection}" + ("" if worst.cid is None else f" (CID {worst.cid})")
    times = f"; it lost connections {len(found):,} times in total" if len(found) > 1 else ""
    others = wording.count(worst.left, "other connection") if worst.left else "a new connection"
    fact = f"session {worst.session} lost {number} and continued on {others}{times}"
    story = " ".join(
        (
            f"{capital(fact)}.",
            f"{worst.end.actor} {worst.end.verb} it at {history.since_start(worst.end.at_ns)}, without a logout.",
            *worst.sentences(history),
        )
    )
    return Observation(
        story,
        [each.end.frame for each in found],
        float(cost_ns) if cost_ns else None,
        severity=None if any(each.in_flight for each in found) else "warning",
        spans=spans,
        sessions=tuple(dict.fromkeys(each.session for each in found)),
        is_final=any(each.in_flight > each.retried for each in found),
        points_to=worst.side,
    )


def _frames(found: Iterable[SessionLoss]) -> Iterator[int | None]:
    for loss in found:
        yield loss.end.frame if loss.end else None
        yield from (row["syn_frame"] for row in loss.rebuilding.connects[:1])
        yield from (frame for each in loss.rebuilding.logins[:1] for frame in each.frames)


CONNECTION_LOST: Final = Problem(
    name="connection_lost",
    scope="story",
    meaning="A session's connection ended without a logout: a RST, a close, or a new login in its place.",
    condition="A normal session that ended without a logout. It is only a note where the initiator closed it with "
    "nothing in flight, and no login followed: many programs end like this. Also a connection of a session that "
    "continued on another one (MC/S), where neither was logged out.",
    evidence="The RST or FIN of each, and the first connect and login that failed after it. The cost is the time until "
    "the first I/O of the next session, or until the last try. It starts at the loss, or at an unanswered NOP or "
    "Logout Request before it; where nothing was in flight, at an unanswered retransmission. Where the session "
    "continued on another connection, or the volume on another path, it ends when the commands of the lost connection "
    "completed there. Where a side broke RFC 7143 (iscsitrace docs conformance), and no later "
    "command had a status, the text begins with that.",
    example="Session 0 lost its connection for 2.0 s, from 1.00 s to 3.00 s. The target reset the "
    "connection at 1.00 s. The initiator logged in again 2.0 s later, and I/O resumed.",
    shown_by=f"read {LAN} --fault rst,on=target",
    near_miss=f"read {LAN} --seconds 3",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Find out why the connection ended: read the log of the side that closed it. A RST from the target means a "
            "restart, a failover, a removed portal or a firewall. A close by the initiator often follows a NOP "
            "time-out. If the target closes healthy connections again and again, a second host may use the same "
            "InitiatorName and ISID."
        ),
        Advice(
            "Decide how long I/O may wait for a new login: node.session.timeo.replacement_timeout in open-iscsi "
            "(5 to 15 s with multipath, 120 s without), RecoveryTimeout on ESXi, MaxRequestHoldTime on Windows.",
            touches=NEXT_LOGIN,
        ),
        Advice(
            "Decide how soon a dead connection is noticed: node.conn[0].timeo.noop_out_interval and "
            "noop_out_timeout in open-iscsi, NoopOutInterval and NoopOutTimeout on ESXi.",
            touches=NEXT_LOGIN,
        ),
    ),
    tell=_lost,
    # a session of several connections may lose one of them
    where=lambda columns: may_be_lost(columns) | (columns.count("connections") > 1),
    accounts_for=(NOP_TIMEOUT,),
)
