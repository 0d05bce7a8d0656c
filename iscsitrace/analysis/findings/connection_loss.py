"""Lost connections: a session that ended without a logout, and what it took to have one again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.findings.history import History
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

_ENDS: Final = (
    # column, who did it, how
    ("rst_to_initiator", "target", "reset"),
    ("rst_to_target", "initiator", "reset"),
    ("fin_to_initiator", "target", "closed"),
    ("fin_to_target", "initiator", "closed"),
)


@dataclass(frozen=True)
class Loss:
    """One session that ended without a logout."""

    session: int
    lost_ns: int
    """When its last connection was closed; its last packet, if nobody closed it."""
    by: str | None
    """initiator or target; None if nobody closed it."""
    verb: str
    frame: int | None
    in_flight: int
    """Reads and writes without a status."""
    next_session: int | None
    login_ns: int | None
    """When the session that replaces it was logged in."""
    resumed_ns: int | None
    """The first data or status of a read or write after it."""
    silent_ns: int | None
    """How long a NOP had no answer when the connection was closed."""

    def how(self, history: History) -> str:
        """Who closed the connection, when and why, as a sentence."""
        when = history.since_start(self.lost_ns)
        if self.by is None:
            return f"The connection fell silent at {when}."
        why = "" if self.silent_ns is None else f", {wording.time(self.silent_ns)} after a NOP without an answer"
        return f"The {self.by} {self.verb} the connection at {when}{why}."

    @property
    def side(self) -> str | None:
        """Whose side it points to; None if nobody closed the connection."""
        if self.silent_ns is not None:
            return "the path or the target"
        if self.by is None:
            return None
        return f"the {self.by} or a firewall" if self.verb == "reset" else f"the {self.by}"


def losses(history: History) -> Sequence[Loss]:
    """The losses of a story, in order."""
    return history.once(_losses)


def _losses(history: History) -> tuple[Loss, ...]:
    found = []
    sessions = history.story.sessions
    for place, row in enumerate(sessions):
        after = sessions[place + 1] if place + 1 < len(sessions) else None
        own = [each for each in history.story.connections if each["session"] == row["session"]]
        is_lost = row["end"] in ("closed", "reset", "reinstated")
        if row["session_type"] == "discovery" or row["end"] == "refused" or not own or not is_lost:
            continue
        ends = [
            (each[f"{column}_ns"], each[f"{column}_frame"], by, verb)
            for each in own
            for column, by, verb in _ENDS
            if each[f"{column}_ns"] is not None
        ]
        last_ns = max(each["time_last_ns"] for each in own)
        if after is not None:
            last_ns = min(last_ns, after["time_first_ns"])
            ends = [end for end in ends if end[0] <= _login_ns(history, after, last_ns)]
        lost_ns, frame, by, verb = min(ends, default=(last_ns, None, None, ""), key=lambda end: end[0])
        found.append(
            Loss(
                row["session"],
                lost_ns,
                by,
                verb,
                frame,
                _open_count(history, row["session"]),
                None if after is None else after["session"],
                None if after is None else _login_ns(history, after, None),
                history.progress_after(lost_ns) if after is not None else None,
                _silence(history, own, lost_ns),
            )
        )
    return tuple(found)


def _login_ns(history: History, session: dict[str, Any], default: int | None) -> Any:
    """When a session was logged in: the last successful response; the default if there is none."""
    logins = history.rows("logins")
    numbers = [each["connection"] for each in history.story.connections if each["session"] == session["session"]]
    own = np.isin(logins.raw("connection"), numbers) & (logins.raw("status_class") == 0) & known(logins, "response_ns")
    times = logins.raw("response_ns")[own]
    return int(times.max()) if len(times) else default


def _open_count(history: History, session: int) -> int:
    member = history.members.get(session)
    if member is None:
        return 0
    cycles = member.cycles
    return int((member.is_data & ~known(cycles, "status_ns") & ~cycles.raw("has_capture_gap")).sum())


def _silence(history: History, connections: Sequence[dict[str, Any]], lost_ns: int) -> int | None:
    """How long the first NOP of these connections without an answer had waited."""
    nops = history.rows("nops")
    which = np.isin(nops.raw("connection"), [row["connection"] for row in connections])
    which &= nops.raw("is_ping") & known(nops, "request_ns") & ~known(nops, "response_ns")
    which &= nops.raw("request_ns") < lost_ns
    return lost_ns - int(nops.raw("request_ns")[which].min()) if which.any() else None


def _lost(history: History) -> Observation | None:
    found = losses(history)
    if not found:
        return None
    worst = max(found, key=lambda each: _cost_ns(each) or 0)
    cost_ns = sum(_cost_ns(each) or 0 for each in found)
    is_harmless = all(each.in_flight == 0 and each.next_session is None for each in found)
    times = f" {len(found)} times" if len(found) > 1 else ""
    whose = "its" if len(history.sessions) == 1 else "their"
    parts = [f"{capital(history.label)} lost {whose} connection{times}.", worst.how(history)]
    if worst.in_flight:
        parts.append(f"{capital(wording.count(worst.in_flight, 'command'))} had no status.")
    if worst.login_ns is not None:
        parts.append(f"The initiator logged in again {wording.time(worst.login_ns - worst.lost_ns)} later")
        resumed = worst.resumed_ns
        parts[-1] += "." if resumed is None else f", and I/O resumed after {wording.time(resumed - worst.lost_ns)}."
    elif worst.next_session is None:
        parts.append("No login followed in the capture.")
    text = " ".join(parts)
    return Observation(
        text[:1].lower() + text[1:].rstrip("."),
        [each.frame for each in found],
        float(cost_ns) if cost_ns else None,
        severity="info" if is_harmless else None,
        cause=text,
        spans=tuple((each.lost_ns, each.resumed_ns or each.login_ns or each.lost_ns) for each in found),
        sessions=history.sessions,
        is_final=any(each.in_flight and each.next_session is None for each in found),
        points_to=worst.side,
    )


def _cost_ns(loss: Loss) -> int | None:
    """From the loss to the first I/O after it."""
    until_ns = loss.resumed_ns or loss.login_ns
    return None if until_ns is None else until_ns - loss.lost_ns


CONNECTION_LOST: Final = Problem(
    name="connection_lost",
    meaning="A session's connection ended without a logout: a RST, a close, or a new login in its place.",
    condition="A normal session that ended without a logout. It is only a note where nothing was in flight and no login "
    "followed: many programs end like this.",
    evidence="The RST or FIN of each. The cost is the time from the loss to the first I/O of the next session.",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Find out why the connection ended: the log of the side that closed it, at that time. A RST of the "
            "target is a restart, a failover, a removed portal or a firewall; a close by the initiator often "
            "follows a NOP time-out."
        ),
        Advice(
            "Decide how long I/O may wait for a new login: node.session.timeo.replacement_timeout in open-iscsi "
            "(5 to 15 s with multipath, 120 s without), RecoveryTimeout on ESXi, MaxRequestHoldTime on Windows."
        ),
        Advice(
            "Decide how soon a dead connection is noticed: node.conn[0].timeo.noop_out_interval and "
            "noop_out_timeout in open-iscsi, NoopOutInterval and NoopOutTimeout on ESXi."
        ),
    ),
    observe=_lost,
)

PROBLEMS: Final = (CONNECTION_LOST,)
