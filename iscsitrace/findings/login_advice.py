"""What to do about a login that failed, by its status (RFC 7143 section 11.13.5), in the words of the programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from iscsitrace.findings.finding import NEXT_LOGIN, Advice

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
PING: Final = Advice(
    "Let the target's pings (ICMP echo requests) reach the initiator, and the answers get back: check the firewall of "
    "the host and of the path, and the route back to the target. Some arrays answer a login only after that."
)
LOG: Final = Advice("Read the target's log at that time: it may give a reason that the Login Response does not give.")

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

ALL: Final = (
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
    LOG,
)
"""Every advice, the most frequent reasons first."""


def of(statuses: Iterable[tuple[int, int]]) -> tuple[Advice, ...]:
    """The advice for these statuses, each once."""
    found = [_BY_STATUS.get(status, _TARGET_STATE if status[0] == 3 else LOG) for status in statuses]
    return tuple(dict.fromkeys((*found, LOG)))


def of_outcomes(outcomes: Iterable[tuple[str, tuple[int, int] | None]]) -> tuple[Advice, ...]:
    """The advice for outcomes of login attempts with their statuses, each once."""
    return tuple(dict.fromkeys((*(_of_outcome(*each) for each in outcomes), LOG)))


def side(outcome: str, status: tuple[int, int] | None) -> str | None:
    """Whose side a login attempt points to; None where the packets cannot tell."""
    return _SIDES.get(_of_outcome(outcome, status))


def _of_outcome(outcome: str, status: tuple[int, int] | None) -> Advice:
    if outcome == "refused" and status:
        return of([status])[0]
    return {"disagreed": _KEYS, "algorithm": _ALGORITHM}.get(outcome, _SILENCE)
