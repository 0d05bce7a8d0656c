"""The kinds of events, declared once: name, severity and meaning. The schema takes its words from here.

An event is what an engineer looks for in the logs of both hosts: it has a time, and one line of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INFO, WARNING, DATA_LOSS, ERROR = "info", "warning", "data_loss", "error"


@dataclass(frozen=True)
class EventKind:
    """One kind of event."""

    name: str
    severity: str
    """The usual one."""
    meaning: str
    may_differ: str = ""
    """When an event of this kind has another severity."""


EVENT_KINDS: Final = (
    EventKind(
        "tcp_open",
        INFO,
        "a TCP connection was opened; it lasts from the SYN to the SYN-ACK",
        "warning: the first SYN had no answer",
    ),
    EventKind("tcp_refused", ERROR, "a RST answered the SYN: nothing listens there, or a firewall refuses it"),
    EventKind(
        "tcp_unanswered",
        ERROR,
        "a SYN to a portal had no answer, though it was retransmitted or the capture went on for 1 s",
    ),
    EventKind(
        "tcp_reset",
        INFO,
        "the first RST of a host on a connection",
        "error: it ended the connection with commands in flight; warning: it ended a session without a logout, and the "
        "target sent it or another session took its place",
    ),
    EventKind("tcp_closed", INFO, "the first FIN of a connection that no RST had ended", "as tcp_reset"),
    EventKind(
        "tcp_silent",
        ERROR,
        "one host sent nothing more on a connection, while the other retransmitted for 1 s or more",
    ),
    EventKind("login", INFO, "a login succeeded"),
    EventKind("login_redirected", INFO, "the target sent the initiator to another portal"),
    EventKind("login_refused", ERROR, "the target refused the login"),
    EventKind(
        "login_unfinished",
        ERROR,
        "a login was neither accepted nor refused: the connection ended, or the target sent nothing for 1 s or more",
    ),
    EventKind("key_mismatch", ERROR, "the two sides offered values of a login key that have none in common"),
    EventKind(
        "session_reinstated",
        WARNING,
        "a login with the same names and ISID ended a session that was still open",
    ),
    EventKind("relogin", INFO, "a session replaced one that had ended without a logout"),
    EventKind("discovery", INFO, "the answer to SendTargets", "warning: it names no target"),
    EventKind("logout", INFO, "a logout", "warning: the target refused it"),
    EventKind("nop_timeout", ERROR, "a NOP had no answer in time: see the finding nop_timeout"),
    EventKind(
        "task_management",
        ERROR,
        "a task management request, until its response",
        "warning: it aborts nothing",
    ),
    EventKind("reject", WARNING, "the target rejected a PDU"),
    EventKind(
        "async_message",
        WARNING,
        "an Asynchronous Message of the target",
        "error: it drops connections; info: it requests a negotiation, or is vendor-specific",
    ),
    EventKind(
        "protocol_violation",
        WARNING,
        "the first violation of a rule of RFC 7143 by one side of a connection, until the last",
        "that of the rule",
    ),
    EventKind("check_condition", WARNING, "a command ended with CHECK CONDITION", "that of the sense data"),
    EventKind("reservation_conflict", WARNING, "a command met a reservation", "error: a read or write"),
    EventKind("busy", WARNING, "a command ended with BUSY"),
    EventKind("task_set_full", WARNING, "a command ended with TASK SET FULL"),
    EventKind(
        "command_failed",
        WARNING,
        "a command ended with another status or service response than GOOD",
        "error: a read or write",
    ),
    EventKind(
        "no_status",
        ERROR,
        "a command, until it was aborted or lost its connection, or until the capture ended after 1 s or more",
    ),
    EventKind(
        "outage",
        ERROR,
        "an outage (iscsitrace docs method 4), until the first progress after it; 1 s or more in which numbers against "
        "RFC 7143 closed the command window (rule S8), until the next command",
    ),
    EventKind(
        "recovery",
        WARNING,
        "TCP recovered from a loss by a timeout, or in 200 ms or more",
        "info: all of its retransmissions were spurious",
    ),
    EventKind("digest_error", ERROR, "the first header or data digest error of a connection"),
    EventKind(
        "capture_incomplete",
        DATA_LOSS,
        "the first packets or bytes that the capture misses, by counter and connection; its time is that of the last "
        "frame before it with a known time",
        "error: the rest of an input could not be read",
    ),
    EventKind("capture_end", INFO, "the capture ended with commands of a session in flight for less than 1 s"),
)
"""In the order of a session's life."""

SEVERITY_OF: Final = {kind.name: kind.severity for kind in EVENT_KINDS}
"""The usual severity of each kind."""
