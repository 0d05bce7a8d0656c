"""Sessions that ended without a logout: who ended them, what failed afterwards, and the session that replaced each."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.history import History, carries_io
from iscsitrace.findings.login_attempts import Attempt, End, attempts, end_of
from iscsitrace.findings.statuses import retried
from iscsitrace.measure.capture_health import may_lack_pdus
from iscsitrace.measure.facts import Facts
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.relate.stories import LoginRequest, replacements
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]

_END_OF_TIME: Final = (1 << 63) - 1

ENDS_BY_LOSS: Final = ("closed", "reset", "reinstated")
"""Ends of sessions without a logout."""

FAILOVER_NS: Final = 150_000_000_000
"""Longest time until a command is reissued over another path: open-iscsi's replacement_timeout is 120 s without
multipath's short one, and it may begin after a NOP without an answer."""

_REPEATED_MIN: Final = 2
"""Retransmissions in vain that show a dead connection: one may be lost like what it repeats."""
_DOUBLED_MAX: Final = 8
"""So often a time-out is doubled: Linux's longest is 120 s."""


@dataclass(frozen=True)
class FirstUnanswered:
    """The first that had no answer when the connection was closed."""

    at_ns: int
    what: str
    """``NOP``, ``Logout Request`` or ``retransmission``."""
    side: str
    """Whose side it points to."""


@dataclass(frozen=True)
class SessionLoss:
    """One session that ended without a logout."""

    session: int
    lost_ns: int
    """When its last connection was closed; when it fell silent, if nobody closed it."""
    end: End | None
    """Who closed it, and how; None if nobody did."""
    in_flight: int
    """Reads and writes without a status."""
    next_session: int | None
    """The session that replaces it."""
    login_ns: int | None
    """When that one was logged in."""
    resumed_ns: int | None
    """The first data or status of a read or write after it."""
    unanswered: FirstUnanswered | None
    """A NOP or a Logout Request; else, where nothing was in flight, what TCP retransmitted."""
    rebuilding: Rebuilding
    """What failed until then."""
    has_io: bool
    """Whether it carried reads or writes."""
    failover: Failover | None
    """What became of its commands over another path; None where there is none, or it ran none of them."""

    @property
    def from_ns(self) -> int:
        """Since when the session was of no use: something had no answer, or the loss itself."""
        return self.lost_ns if self.unanswered is None else min(self.lost_ns, self.unanswered.at_ns)

    @property
    def until_ns(self) -> int:
        """The first I/O after it; else the new login, else the last try. With another path, when its commands ended."""
        if self.failover is not None and self.failover.count == self.in_flight:
            return self.failover.until_ns
        return self.resumed_ns or self.login_ns or max(self.rebuilding.last_ns or 0, self.lost_ns)

    @property
    def is_recovered(self) -> bool:
        """Whether another session took its place, or another path all of its commands."""
        return self.next_session is not None or (self.failover is not None and self.failover.count == self.in_flight)

    @property
    def is_like_an_end(self) -> bool:
        """Whether it may be how a program ends: by the initiator, without anything in flight or a login after it.

        A target ends what no one uses, too: a session without I/O.
        """
        is_by_target = self.has_io and self.end is not None and self.end.by == "target"
        return not (self.in_flight or self.is_recovered or is_by_target or self.unanswered)

    def how(self, history: History) -> str:
        """Who closed the connection, when and why, as a sentence."""
        when = history.since_start(self.lost_ns)
        if self.end is None:
            return f"The connection fell silent at {when}."
        why = ""
        if self.unanswered and self.from_ns < self.lost_ns:
            what = self.unanswered.what
            first = f"the first unanswered {what}" if what == "retransmission" else f"an unanswered {what}"
            why = f", {wording.time(self.lost_ns - self.from_ns)} after {first}"
        return f"{self.end.actor} {self.end.verb} the connection at {when}{why}{self.end.proof}."

    @property
    def side(self) -> str | None:
        """Whose side it points to; None if nobody closed the connection."""
        if self.unanswered and self.unanswered.at_ns < self.lost_ns:
            return self.unanswered.side
        if self.end is None:
            return None
        return self.end.side


@dataclass(frozen=True)
class Failover:
    """Commands of a lost session that ended well over another path to their volume."""

    count: int
    until_ns: int
    """The last of their statuses."""
    label: str
    """The session of that path."""


@dataclass(frozen=True)
class Rebuilding:
    """The connects and logins that failed between a loss and the login after it."""

    connects: tuple[dict[str, Any], ...]
    logins: tuple[Attempt, ...]

    @property
    def last_ns(self) -> int | None:
        """The end of the last of them."""
        ends = (*(row["time_last_ns"] for row in self.connects), *(each.last_ns for each in self.logins))
        return max(ends, default=None)

    def sentences(self) -> Iterator[str]:
        """Each kind of failure, such as ``2 connection attempts were refused (RST).`` as a sentence."""
        refused = [row for row in self.connects if row["is_refused"]]
        silent = [row for row in self.connects if not row["is_refused"] and row["syn_ack_ns"] is None]
        if refused:
            yield f"{wording.count(len(refused), 'connection attempt was', 'connection attempts were')} refused (RST)."
        if silent:
            count = sum(1 + row["retransmitted_syns_to_target"] for row in silent)
            yield f"{wording.count(len(silent), 'connection attempt')} had no answer ({wording.count(count, 'SYN')})."
        reasons = Counter(each.reason for each in self.logins)
        for reason, count in reasons.most_common():
            yield f"{wording.count(count, 'login')} failed: {reason}."


_LOGOUT: Final = ("connection", "request_ns")


def may_be_lost(facts: Facts) -> Array:
    """Which stories may have losses: they have several sessions, or one that was ended without a logout."""
    return (facts.count("sessions") > 1) | (facts.count("sessions", _is_ended) > 0)


def _is_ended(sessions: Table) -> Array:
    """Which sessions ended without a logout."""
    return np.isin(sessions["end"].astype(str), ENDS_BY_LOSS)


def losses(history: History) -> Sequence[SessionLoss]:
    """The losses of a story, in order."""
    return history.once(_losses)


def _losses(history: History) -> tuple[SessionLoss, ...]:
    tried = attempts(history)
    logged_in = {each.session["session"]: each.last_ns for each in tried if each.outcome == "accepted"}
    failed = {each.session["session"] for each in tried if each.outcome != "accepted"}
    failed -= {each.session["session"] for each in tried if each.outcome in ("accepted", "unknown")}
    # a session whose login failed was never there to be lost
    sessions = [row for row in history.story.sessions if row["session"] not in failed]
    connects = [row for row in history.story.connections if row["session"] is None]
    connect_times = [row["time_first_ns"] for row in connects]
    logins = [each for each in tried if each.has_failed]
    login_times = [each.first_ns for each in logins]
    outage_times = [each.from_ns for each in history.outages]
    pings = _pings(history)
    replaced = history.source.once(replacements)
    found = []
    for row, after in zip_longest(sessions, sessions[1:]):
        own = history.connections_of[row["session"]]
        is_lost = row["end"] in ENDS_BY_LOSS or (after is not None and row["end"] == "open")
        if not carries_io(row) or not own or not is_lost:
            continue
        may_lack = any(may_lack_pdus(each.__getitem__) for each in own)
        # the logout may be among the PDUs that the capture lacks
        if after is None and row["end"] == "closed" and may_lack:
            continue
        # a session that carried nothing and that no login of its ISID replaced was not missed
        if after is not None and after["replaces"] is None and not row["cycle_count"]:
            continue
        login_ns = None if after is None else logged_in.get(after["session"])
        until_ns = login_ns if login_ns is not None or after is None else after["time_first_ns"]
        by_login = replaced.get(row["session"])
        lost_ns, end = max((_end(each, until_ns, by_login) for each in own), key=lambda each: each[0])
        open_rows = _open_rows(history, row["session"])
        own_pings = [pings.get(each["connection"], ()) for each in own]
        if (
            end is None
            and row["end"] == "reinstated"
            and by_login is not None
            and is_there(own, by_login.at_ns)
            and not _is_waiting(history, open_rows, own_pings, by_login.at_ns)
        ):
            # nothing was wrong with it until then
            lost_ns = by_login.at_ns
        elif end is None:
            # it costs no more than the outage that it is
            begun = bisect_left(outage_times, lost_ns)
            if begun < len(outage_times) and outage_times[begun] - lost_ns < OUTAGE_MIN_NS:
                lost_ns = outage_times[begun]
        limit_ns = _END_OF_TIME if until_ns is None else until_ns
        between = [bisect_left(times, edge) for times in (connect_times, login_times) for edge in (lost_ns, limit_ns)]
        is_idle = not len(open_rows) and not may_lack
        found.append(
            SessionLoss(
                row["session"],
                lost_ns,
                end,
                len(open_rows),
                None if after is None else after["session"],
                login_ns,
                None if until_ns is None else history.progress_beside(row["session"], until_ns),
                _unanswered_ping(history, own_pings, lost_ns)
                or _unanswered_logout(history, own, lost_ns)
                or (_unanswered_data(history, own, lost_ns) if end and is_idle else None),
                Rebuilding(tuple(connects[between[0] : between[1]]), tuple(logins[between[2] : between[3]])),
                row["session"] in history.members and bool(history.members[row["session"]].is_data.any()),
                _failover(history, open_rows),
            )
        )
    return tuple(found)


def is_there(connections: Iterable[dict[str, Any]], at_ns: int) -> bool:
    """Whether the initiator acts on one of these connections at a time or later.

    A RST does not count: it may be of a host that has forgotten the connection.
    """
    names = ("fin_to_target_ns", "data_last_to_target_ns")
    return any(row[name] is not None and row[name] >= at_ns for row in connections for name in names)


def _is_waiting(history: History, rows: Array, pings: Iterable[Iterable[tuple[int, int | None]]], at_ns: int) -> bool:
    """Whether one of these commands, or a NOP, has waited for a second by then."""
    unanswered = _unanswered_ping(history, pings, at_ns)
    begun = history.cycles.raw("command_first_ns")[rows].tolist()
    waits = [at_ns - begun_ns for begun_ns in (*begun, *(() if unanswered is None else (unanswered.at_ns,)))]
    return max(waits, default=0) >= OUTAGE_MIN_NS


def _end(connection: dict[str, Any], until_ns: int | None, by_login: LoginRequest | None) -> tuple[int, End | None]:
    """When a connection of a lost session ended: a close after the next login is no loss, the silence before it is.

    Nor is it one that the target closes because the next login has ended its session.
    """
    end = end_of(connection, until_ns)
    if end is not None and end.by == "target" and by_login is not None and end.at_ns > by_login.at_ns:
        end, until_ns = None, by_login.at_ns
    if end is not None:
        return end.at_ns, end
    kind = "time"
    if until_ns is not None and connection["time_last_ns"] >= until_ns:
        # a host that has missed the silence repeats and closes what is over: its peer's last data were before
        kind = "data"
    lasts = (connection[f"{kind}_last_to_target_ns"], connection[f"{kind}_last_to_initiator_ns"])
    known_lasts = [last for last in (*lasts, until_ns) if last is not None]
    return min((connection["time_last_ns"], *known_lasts)), None


def _open_rows(history: History, session: int) -> Array:
    """The reads and writes of a session without a status, as rows of the story's commands."""
    rows, sessions = history.once(_open)
    return np.asarray(rows[np.searchsorted(sessions, session) : np.searchsorted(sessions, session, "right")])


def _open(history: History) -> tuple[Array, Array]:
    """All of them by session, and the session of each."""
    cycles = history.cycles
    # a status may be among the PDUs that the capture lacks
    is_unsure = cycles.raw("has_capture_gap") | history.may_lack_answers
    rows = np.flatnonzero(history.is_data & ~known(cycles, "status_ns") & ~is_unsure)
    order = np.argsort(cycles.raw("session")[rows], kind="stable")
    return rows[order], cycles.raw("session")[rows][order]


def _failover(history: History, rows: Array) -> Failover | None:
    over = retried(history, rows, history.cycles.raw("command_first_ns")[rows], FAILOVER_NS)
    done = over.status_ns[over.status_ns >= 0]
    return Failover(len(done), int(done.max()), over.label) if len(done) else None


def _pings(history: History) -> dict[int, list[tuple[int, int | None]]]:
    """Request and answer of the NOPs of each connection."""
    nops = history.rows("nops")
    if not len(nops):
        return {}
    nops = nops.select(nops.raw("is_ping") & known(nops, "request_ns"))
    found: dict[int, list[tuple[int, int | None]]] = {}
    for row in nops.rows(("connection", "request_ns", "response_ns")):
        found.setdefault(row["connection"], []).append((row["request_ns"], row["response_ns"]))
    return found


def _unanswered_ping(
    history: History, pings: Iterable[Iterable[tuple[int, int | None]]], lost_ns: int
) -> FirstUnanswered | None:
    """The first NOP without an answer after the last sign of life; None where every NOP had one."""
    nops = [each for of_connection in pings for each in of_connection if each[0] < lost_ns]
    alive = [answer for _, answer in nops if answer is not None and answer < lost_ns]
    alive += [progress] if (progress := history.progress_before(lost_ns)) is not None else []
    # the last data may still arrive after a NOP was sent
    alive_ns = max(alive, default=0) - OUTAGE_MIN_NS
    unanswered = [asked for asked, answer in nops if (answer is None or answer >= lost_ns) and asked >= alive_ns]
    return FirstUnanswered(min(unanswered), "NOP", "the path or the target") if unanswered else None


def _unanswered_logout(history: History, connections: Iterable[dict[str, Any]], lost_ns: int) -> FirstUnanswered | None:
    """A Logout Request that had no answer for an outage or more: its initiator did nothing else."""
    asked = history.once(_unanswered_logouts)
    asked_ns = [ns for each in connections for ns in asked.get(each["connection"], ()) if ns <= lost_ns - OUTAGE_MIN_NS]
    return FirstUnanswered(min(asked_ns), "Logout Request", "the path or the target") if asked_ns else None


def _unanswered_logouts(history: History) -> dict[int, list[int]]:
    """When each connection asked for a logout without an answer."""
    logouts = history.rows("logouts")
    found: dict[int, list[int]] = {}
    for row in logouts.select(known(logouts, "request_ns") & ~known(logouts, "response_ns")).rows(_LOGOUT):
        found.setdefault(row["connection"], []).append(row["request_ns"])
    return found


def _unanswered_data(history: History, connections: Iterable[dict[str, Any]], lost_ns: int) -> FirstUnanswered | None:
    """What was retransmitted again and again, and not acknowledged before its connection was closed.

    At the target's tap of a path that went dark, it is a status, and the initiator's next command is not seen.
    """
    repeated = history.once(_repeated)
    # of one direction alone no ACK can be seen
    lasts = ("time_last_to_target_ns", "time_last_to_initiator_ns")
    own = [each["connection"] for each in connections if all(each[last] is not None for last in lasts)]
    # TCP doubles its time-out; where it is silent for longer, the answer is not in the capture
    found = [
        (row["time_first_ns"], row["to_target"])
        for number in own
        for row in repeated.get(number, ())
        if OUTAGE_MIN_NS
        <= lost_ns - row["time_first_ns"]
        <= OUTAGE_MIN_NS << min(row["retransmitted_packets"], _DOUBLED_MAX)
    ]
    if not found:
        return None
    first_ns, to_target = min(found)
    return FirstUnanswered(first_ns, "retransmission", f"the path or the {'target' if to_target else 'initiator'}")


def _repeated(history: History) -> dict[int, list[dict[str, Any]]]:
    """The recoveries of each connection that never ended, with several retransmissions."""
    recoveries = history.rows("recoveries")
    is_open = ~known(recoveries, "time_last_ns") & (recoveries.raw("retransmitted_packets") >= _REPEATED_MIN)
    found: dict[int, list[dict[str, Any]]] = {}
    for row in recoveries.select(is_open).rows(("connection", "to_target", "time_first_ns", "retransmitted_packets")):
        found.setdefault(row["connection"], []).append(row)
    return found
