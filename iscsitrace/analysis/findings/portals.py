"""Portals that an initiator cannot reach: no SYN-ACK, or a RST instead of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from iscsitrace.analysis.findings.finding import Advice, Observation, Problem
from iscsitrace.analysis.findings.history import History
from iscsitrace.analysis.findings.session_loss import losses
from iscsitrace.analysis.findings.surroundings import Surroundings
from iscsitrace.analysis.groups.stories import Portals
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

SYN_SILENCE_NS: Final = 1_000_000_000
"""A SYN has no answer after this time: the first retransmission time-out (RFC 6298 section 2)."""

Row = Mapping[str, Any]


def failed_connects(history: History) -> Sequence[Row]:
    """The connects to a portal that failed, without those to rebuild a lost session, and without those after which one
    worked.
    """
    end_ns = history.source.end_ns()
    rebuilding = {row["connection"] for loss in losses(history) for row in loss.rebuilding.connects}
    reported = set(history.rows("icmp_errors").raw("connection").tolist())
    worked_ns = {
        _portal(row): row["time_first_ns"]
        for row in history.story.connections
        if row["syn_ack_ns"] is not None or _has_data(row)
    }
    return [
        row
        for row in history.story.connections
        if row["session"] is None
        and row["connection"] not in rebuilding
        and _has_failed(row, end_ns, is_reported=row["connection"] in reported)
        and row["time_first_ns"] > worked_ns.get(_portal(row), -1)
    ]


def _portal(row: Row) -> tuple[str, int]:
    return row["target_address"], row["target_port"]


def _has_failed(row: Row, end_ns: int, *, is_reported: bool) -> bool:
    if row["syn_ns"] is None or row["syn_ack_ns"] is not None or _has_data(row):
        return False
    if row["is_refused"] or is_reported:
        return True
    # packets of the target without a SYN-ACK: that one is missing from the capture
    return row["time_last_to_initiator_ns"] is None and end_ns - row["syn_ns"] >= SYN_SILENCE_NS


def _has_data(row: Row) -> bool:
    return row["data_last_to_target_ns"] is not None or row["data_last_to_initiator_ns"] is not None


def _unreachable(history: History) -> Observation | None:
    found = failed_connects(history)
    if not found:
        return None
    first = found[0]
    portal = _portal(first)
    found = [row for row in found if _portal(row) == portal]
    errors = history.source.rows("icmp_errors", (row["connection"] for row in found))
    refused = sum(row["is_refused"] for row in found)
    syns = sum(1 + row["retransmitted_syns_to_target"] for row in found)
    last_ns = max(row["time_last_ns"] for row in found)
    start = history.since_start(first["syn_ns"])
    when = f"at {start}" if last_ns == first["syn_ns"] else f"from {start} to {history.since_start(last_ns)}"
    connects = wording.count(len(found), "connect")
    if refused == len(found):
        was = "was" if refused == 1 else "were"
        what = f"{connects} {when} {was} refused (RST): nothing listens there, or a firewall refuses it."
    else:
        also = f", {refused} refused by a RST" if refused else ""
        what = f"{connects} ({wording.count(syns, 'SYN')}) {when}: no answer{also}."
    text = " ".join(
        filter(
            None,
            (
                f"{first['initiator_address']} cannot reach the portal {_in_words(portal)}: {what}",
                _reported(errors, is_ipv6=":" in portal[0]),
                _named(history, portal),
                _others(history, portal),
            ),
        )
    )
    named_by = history.source.once(_portals).named.get(portal)
    return Observation(
        text.rstrip("."),
        (
            named_by or None,
            *errors.raw("frame")[:2].tolist(),
            *(frame for row in found for frame in (row["syn_frame"], row["rst_to_initiator_frame"])),
        ),
        float(last_ns - first["syn_ns"]),
        cause=text,
        spans=((first["syn_ns"], last_ns),),
        is_final=True,
    )


def _in_words(portal: tuple[str, int]) -> str:
    address, port = portal
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


_UNREACHABLE: Final = {
    # code of ICMP (RFC 792, RFC 1812), and of ICMPv6 (RFC 4443 section 3.1)
    False: {0: "network", 1: "host", 3: "port", 6: "network", 7: "host", 9: "", 10: "", 13: ""},
    True: {0: "network", 1: "", 3: "host", 4: "port", 5: "", 6: "network"},
}
"""What is unreachable; nothing where a filter prohibits it."""


def _reported(errors: Table, *, is_ipv6: bool) -> str:
    """What routers or the host report by ICMP: the first error."""
    for row in errors.select(slice(0, 1)).rows(("kind", "code", "reporter_address")):
        what = _UNREACHABLE[is_ipv6].get(row["code"], "destination")
        words = {
            "unreachable": f"{what} unreachable" if what else "communication administratively prohibited (a filter)",
            "time_exceeded": "time to live exceeded (a routing loop)",
        }
        said = words.get(row["kind"], row["kind"].replace("_", " "))
        return f"{row['reporter_address']} reported by ICMP: {said}."
    return ""


def _named(history: History, portal: tuple[str, int]) -> str:
    if portal in history.source.once(_portals).named:
        return "SendTargets or a redirect named this portal."
    return "The portal was in use before." if portal in history.source.once(_portals).used else ""


def _others(history: History, portal: tuple[str, int]) -> str:
    """Whether other initiators reach it: then it is the path or a filter, not the portal."""
    own = history.story.connections[0]["initiator_address"]
    others = sorted(history.source.once(_reached).get(portal, set()) - {own})
    return f"{others[0]} reaches it." if others else ""


def _portals(trace: Surroundings) -> Portals:
    return Portals.of(trace, list(trace("connections").rows(("is_iscsi", "target_address", "target_port"))))


def _reached(trace: Surroundings) -> dict[tuple[str, int], set[str]]:
    columns = ("target_address", "target_port", "initiator_address", "syn_ack_ns")
    found: dict[tuple[str, int], set[str]] = {}
    for row in trace("connections").rows(columns):
        if row["syn_ack_ns"] is not None:
            found.setdefault((row["target_address"], row["target_port"]), set()).add(row["initiator_address"])
    return found


PORTAL_UNREACHABLE: Final = Problem(
    name="portal_unreachable",
    points_to="the path, a firewall or the target",
    meaning="An initiator tried to connect to a portal and never could: no SYN-ACK, or a RST instead of it.",
    condition="A connect to port 3260 or 860, to a portal of another connection, or to one named by SendTargets or "
    f"a redirect; without a SYN-ACK {SYN_SILENCE_NS / 1e9:g} s after the SYN, refused by a RST, or reported by "
    "ICMP; and no later connect of this initiator to it worked. Connects between the loss of a session and the "
    "next one belong to `connection_lost`. A portal that nobody tried is not reported.",
    evidence="The PDU that named the portal, the ICMP errors, and the first SYNs with the RSTs that answered them. "
    "The cost is the time from the first SYN to the last packet.",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Without an answer: check the route, the VLAN, and firewalls that drop (`ip route get ADDRESS`, `nc -zv "
            "ADDRESS PORT` from the initiator); a capture at the target shows whether the SYNs arrive. Refused: "
            "check that the target listens on this address and port (`ss -tln`, `portals/` of the TPG in targetcli, "
            "`tgtadm --op show --mode portal`)."
        ),
        Advice(
            "Remove a portal that this initiator is not meant to reach: at the target from what SendTargets lists, "
            "at the initiator by `iscsiadm -m node -p ADDRESS:PORT -o delete`, from the static or dynamic targets "
            "on ESXi, or the favorite targets on Windows."
        ),
    ),
    observe=_unreachable,
)

PROBLEMS: Final = (PORTAL_UNREACHABLE,)
