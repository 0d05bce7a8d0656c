"""Lost connections: a session that ended without a logout, and what it took to have one again; and connections that a
session lost while others of it went on (MC/S, RFC 7143 section 4.4).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings import breaches, logins
from iscsitrace.findings.failures import NOP_TIMEOUT
from iscsitrace.findings.finding import NEXT_LOGIN, Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings, carries_io
from iscsitrace.findings.login_attempts import Attempt, End, attempts, end_of
from iscsitrace.findings.recipes import LAN
from iscsitrace.findings.session_loss import ENDS_BY_LOSS, SessionLoss, losses, may_be_lost
from iscsitrace.measure.capture_health import TARGET, may_lack_pdus
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.measure.intervals import covered_ns
from iscsitrace.measure.violations import Violated
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.rules import pdu_type
from iscsitrace.wording.sentences import capital

Array = NDArray[Any]
Row = Mapping[str, Any]

_CLOSES_SESSION: Final = 0
"""Reason of a Logout Request (RFC 7143 section 11.14.1). The others close one connection, or remove a lost one."""
_CLOSES_CONNECTION: Final = 1
_SILENT: Final = "fell silent on"
_ADDRESS: Final = ("operation", "lun", "lba", "block_count")
"""By which a command that is reissued is known: its tag may be new."""


@dataclass(frozen=True)
class PartialLoss:
    """A connection that ended without a logout while its session went on over another one."""

    session: int
    connection: int
    cid: int | None
    end: End
    left: int
    """Connections that the session still had."""
    resumed_ns: int
    """When I/O went on: at once where the session had another connection."""
    in_flight: int
    """Reads and writes of it without a status."""
    retried: int
    """How many of them had a good status on another connection later."""
    retried_ns: int | None
    """When the last of these had it."""
    again: Attempt | None
    """The login that brought a connection of the same CID back into the session, or else the next connection."""

    @property
    def until_ns(self) -> int:
        """When I/O had gone on, and the last command that was reissued had ended."""
        return max(self.resumed_ns, self.retried_ns or 0)

    @property
    def side(self) -> str:
        """Whose side it points to."""
        return "the path or the target" if self.end.verb == _SILENT else self.end.side

    def sentences(self, history: History) -> Iterator[str]:
        """What became of its commands, and of the connection."""
        count = wording.count(self.in_flight, "command")
        if self.retried_ns is not None:
            lacking = self.in_flight - self.retried
            rest = f", {lacking} did not complete in the capture" if lacking else ""
            yield (
                f"{capital(count)} had no status. The initiator reissued {_them(self.in_flight)} on another "
                f"connection: {self.retried} completed within {wording.time(self.retried_ns - self.end.at_ns)}{rest}."
            )
        elif self.in_flight:
            yield f"{capital(count)} had no status, and no other connection ran {_them(self.in_flight)} in the capture."
        if self.again is not None:
            later = wording.time(self.again.last_ns - self.end.at_ns)
            yield f"The initiator added a connection at {history.since_start(self.again.last_ns)}, {later} later."
        else:
            yield "No connection took its place in the capture."


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def partial_losses(history: History) -> Sequence[PartialLoss]:
    """Those of a story, in order."""
    return history.once(_partial_losses)


def _partial_losses(history: History) -> tuple[PartialLoss, ...]:
    found = []
    for row in history.story.sessions:
        own = history.connections_of[row["session"]]
        if len(own) > 1 and carries_io(row):
            found += list(_of_session(history, row["session"], own))
    return tuple(sorted(found, key=lambda each: each.end.at_ns))


def _of_session(history: History, session: int, own: Sequence[Row]) -> Iterator[PartialLoss]:
    numbers = {row["connection"] for row in own}
    logouts = [row for row in history.rows("logouts").rows() if row["connection"] in numbers]
    joined = [each for each in attempts(history) if each.outcome == "accepted" and each.session["session"] == session]
    for row in own:
        end = end_of(row) or _silence(row)
        if end is None or _is_logged_out(row, end.at_ns, logouts):
            continue
        commands = history.cycles.select(np.isin(history.cycles.raw("connection"), [*numbers]))
        # a command that is issued later: the others end, too, when a session is given up
        is_later = (commands.raw("command_first_ns") > end.at_ns) & (commands.raw("connection") != row["connection"])
        if not is_later.any():
            continue
        others = [each for each in own if each is not row and each["time_first_ns"] < end.at_ns]
        left = sum((ended := end_of(each)) is None or ended.at_ns > end.at_ns for each in others)
        answers = commands.raw("status_ns")[is_later & known(commands, "status_ns")]
        in_flight, done_ns = _retries(commands, row["connection"], end.at_ns)
        if not in_flight and (end.verb == _SILENT or may_lack_pdus(row.__getitem__, TARGET)):
            # nobody waits, or the capture may lack the logout
            continue
        later = [each for each in joined if each.first_ns > end.at_ns]
        same = [each for each in later if each.connection["cid"] == row["cid"]]
        yield PartialLoss(
            session,
            row["connection"],
            row["cid"],
            end,
            left,
            int(answers.min()) if not left and len(answers) else end.at_ns,
            in_flight,
            len(done_ns),
            int(done_ns.max()) if len(done_ns) else None,
            next(iter(same or later), None),
        )


def _silence(connection: Row) -> End | None:
    """The last packet of the target, where it answered none of the initiator's retransmissions for a second or more."""
    last_ns, until_ns = connection["time_last_to_initiator_ns"], connection["time_last_to_target_ns"]
    if last_ns is None or until_ns is None or until_ns - last_ns < OUTAGE_MIN_NS:
        return None
    return End(last_ns, None, "target", _SILENT) if connection["retransmitted_packets_to_target"] else None


def _is_logged_out(connection: Row, end_ns: int, logouts: Sequence[Row]) -> bool:
    """Whether the session, or this connection of it, was logged out before."""
    before = [row for row in logouts if row["request_ns"] is not None and row["request_ns"] <= end_ns]
    return any(
        row["reason"] == _CLOSES_SESSION
        or (
            row["reason"] == _CLOSES_CONNECTION
            and (row["cid"] == connection["cid"] or row["connection"] == connection["connection"])
        )
        for row in before
    )


def _retries(commands: Table, connection: int, end_ns: int) -> tuple[int, Array]:
    """How many commands of a connection had no status, and when those that were reissued on another one ended."""
    is_own = commands.raw("connection") == connection
    is_open = is_own & is_data_command(commands) & ~known(commands, "status_ns") & ~commands.raw("has_capture_gap")
    is_done = ~is_own & (commands.raw("command_first_ns") > end_ns) & known(commands, "status_ns")
    is_done &= commands.raw("status") == 0
    done: dict[tuple[Any, ...], list[int]] = {}
    for row in commands.select(is_done & np.isin(commands.raw("lba"), commands.raw("lba")[is_open])).rows():
        done.setdefault(tuple(row[name] for name in _ADDRESS), []).append(row["status_ns"])
    found = []
    for row in commands.select(is_open & known(commands, "lba")).rows():
        again = done.get(tuple(row[name] for name in _ADDRESS))
        if again:
            found.append(again.pop(0))
    return int(is_open.sum()), np.array(found, dtype=np.int64)


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
        parts = [breaches.told(history, cause), *rejected, *parts]
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
    advice = (*CONNECTION_LOST.advice, *logins.advice_of_statuses(refused)) if refused else None
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
