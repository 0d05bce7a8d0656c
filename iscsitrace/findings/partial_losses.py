"""Partial losses: connections that a session lost while others of it went on (MC/S, RFC 7143 section 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.history import History, carries_io
from iscsitrace.findings.login_attempts import Attempt, End, attempts, end_of
from iscsitrace.measure.capture_health import TARGET, may_lack_pdus
from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
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
