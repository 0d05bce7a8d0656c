"""Portals that an initiator cannot reach: no SYN-ACK, or a RST instead of it."""

from __future__ import annotations

import heapq
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.findings.finding import Advice, Observation, Problem
from iscsitrace.findings.history import History, Surroundings, host_questions, listed
from iscsitrace.findings.session_loss import losses
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.relate.portals import Portal, Portals, Unanswered, is_address, portal, targets, written
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

SYN_SILENCE_NS: Final = 1_000_000_000
"""A SYN has no answer after this time: the first retransmission time-out (RFC 6298 section 2)."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Connects to one portal, one after another, that failed."""

    connects: tuple[Row, ...]
    worked_ns: int | None
    """When a later connect of this initiator to it worked; None if none did in the capture."""

    @property
    def portal(self) -> Portal:
        """Its address and port."""
        return _portal(self.connects[0])

    @property
    def from_ns(self) -> int:
        """The first SYN."""
        return int(self.connects[0]["syn_ns"])

    @property
    def until_ns(self) -> int:
        """The connect that worked, else the last packet."""
        return self.worked_ns or max(row["time_last_ns"] for row in self.connects)


def failures(history: History) -> list[Failure]:
    """The failures of a story, without connects to rebuild a lost session: that loss has them."""
    end_ns = history.source.end_ns()
    rebuilding = {row["connection"] for loss in losses(history) for row in loss.rebuilding.connects}
    reported = set(history.rows("icmp_errors").raw("connection").tolist())
    failed: dict[tuple[str, Portal], list[Row]] = {}
    found = []
    for row in history.story.connections:
        place = row["initiator_address"], _portal(row)
        if row["syn_ack_ns"] is not None or _has_data(row):
            if place in failed:
                found.append(Failure(tuple(failed.pop(place)), row["syn_ack_ns"] or row["time_first_ns"]))
        elif (
            row["session"] is None
            and row["connection"] not in rebuilding
            and _has_failed(row, end_ns, is_reported=row["connection"] in reported)
        ):
            failed.setdefault(place, []).append(row)
    return [*found, *(Failure(tuple(rows), None) for rows in failed.values())]


def _portal(row: Row) -> Portal:
    return row["target_address"], row["target_port"]


def _has_failed(row: Row, end_ns: int, *, is_reported: bool) -> bool:
    if row["syn_ns"] is None:
        return False
    if row["is_refused"] or is_reported:
        return True
    # packets of the target without a SYN-ACK: that one is missing from the capture
    return row["time_last_to_initiator_ns"] is None and end_ns - row["syn_ns"] >= SYN_SILENCE_NS


def _has_data(row: Row) -> bool:
    return row["data_last_to_target_ns"] is not None or row["data_last_to_initiator_ns"] is not None


@dataclass(frozen=True)
class _Absent:
    """A portal that a target lists, and whose host did not answer the initiator's ARP requests: so no SYN followed."""

    portal: Portal
    frame: int | None
    """The Text Response that lists it."""
    listed: tuple[Portal, ...]
    """All portals of that list."""
    asked: Unanswered

    @property
    def others(self) -> tuple[Portal, ...]:
        """The other portals of that list."""
        return tuple(other for other in self.listed if other != self.portal)


def _absent(history: History) -> list[_Absent]:
    """The absent portals that SendTargets listed to the initiator of a story, those asked for longest first."""
    questions = history.source.once(host_questions)
    tried = history.source.once(_tried)
    askers = {row["connection"]: row["initiator_address"] for row in history.story.connections}
    found = {}
    for row in history.rows("texts").rows(("connection", "response_text", "response_frame", "response_ns")):
        asker = askers[row["connection"]]
        addresses = [text for _, addresses in targets(row["response_text"] or "") for text in addresses]
        listed = tuple(place for place in map(portal, addresses) if place is not None)
        for place in listed:
            asked = questions.unanswered("neighbor", asker, place[0])
            is_later = asked is not None and asked.to_ns >= (row["response_ns"] or 0) + SYN_SILENCE_NS
            if asked is not None and is_later and (asker, place) not in tried:
                found[place] = _Absent(place, row["response_frame"], listed, asked)
    return sorted(found.values(), key=lambda each: each.asked.from_ns - each.asked.to_ns)


def _of_absent(history: History, found: Sequence[_Absent]) -> Observation:
    worst = found[0]
    asked, lasted_ns = worst.asked, worst.asked.to_ns - worst.asked.from_ns
    asker = history.story.connections[0]["initiator_address"]
    named = listed([written(*each.portal) for each in found])
    requests = "neighbor solicitations" if ":" in worst.portal[0] else "ARP requests"
    reached = [place for place in worst.others if asker in history.source.once(_reached).get(place, ())]
    local = [place for place in worst.others if _is_link_local(place[0])]
    sentences = [
        f"The target lists {'portals that do' if len(found) > 1 else 'a portal that does'} not answer: {named}.",
        f"Initiator {asker} sent {asked.count:,} {requests} for {worst.portal[0]} in {wording.time(lasted_ns)}, from "
        f"{history.since_start(asked.from_ns)} on; none had an answer, so no SYN followed.",
        f"The list also has {written(*local[0])}, a link-local address." if local else "",
        f"It reached {written(*reached[0])}." if reached else "",
    ]
    return Observation(
        " ".join(filter(None, sentences)),
        (worst.frame, asked.frame),
        float(lasted_ns),
        spans=((asked.from_ns, asked.to_ns),),
        is_final=True,
        points_to="the target's list of portals, or the network of this initiator",
        # nothing answers: what a SYN would find is not known
        advice=PORTAL_UNREACHABLE.advice[::-1],
    )


def _is_link_local(host: str) -> bool:
    return is_address(host) and ipaddress.ip_address(host).is_link_local


def _unreachable(history: History) -> Observation | None:
    found = failures(history)
    if not found:
        absent = _absent(history)
        return _of_absent(history, absent) if absent else None
    # one that lasts, else the longest
    worst = max(found, key=lambda each: (each.worked_ns is None, each.until_ns - each.from_ns))
    portal, connects = worst.portal, worst.connects
    errors = history.source.rows("icmp_errors", (row["connection"] for row in connects))
    refused = sum(row["is_refused"] for row in connects)
    syns = sum(1 + row["retransmitted_syns_to_target"] for row in connects)
    last_ns = max(row["time_last_ns"] for row in connects)
    start = history.since_start(worst.from_ns)
    when = f"at {start}" if last_ns == worst.from_ns else f"from {start} to {history.since_start(last_ns)}"
    count = wording.count(len(connects), "connection attempt")
    if refused == len(connects):
        was = "was" if refused == 1 else "were"
        what = f"{count} {when} {was} refused (RST): nothing listens there, or a firewall refuses the connection."
    else:
        also = f", {refused} refused by a RST" if refused else ""
        what = f"{count} ({wording.count(syns, 'SYN')}) {when} had no answer{also}."
    cannot = "cannot" if worst.worked_ns is None else "could not"
    text = " ".join(
        filter(
            None,
            (
                f"Initiator {connects[0]['initiator_address']} {cannot} reach the portal {written(*portal)}: {what}",
                _reported(errors, is_ipv6=":" in portal[0]),
                _named(history, portal),
                _others(history, portal),
                "" if worst.worked_ns is None else f"The attempt at {history.since_start(worst.worked_ns)} succeeded.",
            ),
        )
    )
    lasted_ns = worst.until_ns - worst.from_ns
    return Observation(
        text,
        (
            history.source.once(_portals).named.get(portal),
            *errors.raw("frame")[:2].tolist(),
            *(frame for row in connects for frame in (row["syn_frame"], row["rst_to_initiator_frame"])),
        ),
        float(lasted_ns),
        # a first try that is too early for a host that starts is no fault
        severity="info" if worst.worked_ns is not None and lasted_ns < SYN_SILENCE_NS else None,
        spans=((worst.from_ns, worst.until_ns),),
        is_final=worst.worked_ns is None,
        points_to=_side(connects, errors, has_other=bool(_others(history, portal))),
    )


def _side(connects: Sequence[Row], errors: Table, *, has_other: bool) -> str | None:
    """Whose side it points to."""
    if len(errors):
        return f"the path: {errors['reporter_address'][0]} reports it"
    if all(row["is_refused"] for row in connects):
        return "the target, or a firewall that answers for it"
    if has_other:
        return "the path of this initiator, or a firewall"
    return None


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
        return f"{row['reporter_address']} sent an ICMP message: {said}."
    return ""


def _named(history: History, portal: Portal) -> str:
    if portal in history.source.once(_portals).named:
        return "SendTargets or a redirect named this portal."
    return "The portal was in use before." if portal in history.source.once(_portals).used else ""


def _others(history: History, portal: Portal) -> str:
    """Whether other initiators reach it: then it is the path or a filter, not the portal."""
    own = history.story.connections[0]["initiator_address"]
    other = next((each for each in history.source.once(_first_to_reach).get(portal, ()) if each != own), None)
    return f"{other} can reach it." if other else ""


def _tried(trace: Surroundings) -> set[tuple[str, Portal]]:
    """Initiators, and the portals to which they sent a SYN."""
    columns = ("initiator_address", "target_address", "target_port")
    return {(row["initiator_address"], _portal(row)) for row in trace("connections").rows(columns)}


def _portals(trace: Surroundings) -> Portals:
    return Portals.of(trace)


def _reached(trace: Surroundings) -> dict[Portal, set[str]]:
    columns = ("target_address", "target_port", "initiator_address", "syn_ack_ns")
    found: dict[Portal, set[str]] = {}
    for row in trace("connections").rows(columns):
        if row["syn_ack_ns"] is not None:
            found.setdefault((row["target_address"], row["target_port"]), set()).add(row["initiator_address"])
    return found


def _first_to_reach(trace: Surroundings) -> dict[Portal, list[str]]:
    """The first two by name of the initiators that reached a portal: one of them is another one."""
    return {place: heapq.nsmallest(2, reached) for place, reached in trace.once(_reached).items()}


def _may_be_unreachable(facts: Facts) -> Array:
    """Where a connection has no session, or a target listed portals."""
    return (facts.count("connections", lambda table: ~known(table, "session")) > 0) | (facts.count("texts") > 0)


PORTAL_UNREACHABLE: Final = Problem(
    name="portal_unreachable",
    scope="story",
    meaning="An initiator tried to connect to a portal and could not: no SYN-ACK, or a RST instead of it.",
    condition="A connection attempt to port 3260 or 860, to a portal of another connection, or to one named by "
    f"SendTargets or a redirect; without a SYN-ACK {SYN_SILENCE_NS / 1e9:g} s after the SYN, refused by a RST, or "
    f"reported by ICMP. A note where a later attempt of this initiator succeeded within {SYN_SILENCE_NS / 1e9:g} s. "
    "Attempts between the loss of a session and the next one belong to `connection_lost`. Also a portal that "
    "SendTargets lists, if the initiator asked for its address by ARP and had no answer. A portal that nobody tried is "
    "not reported.",
    evidence="The PDU that named the portal, the ICMP errors, and the first SYNs with the RSTs that answered them. The "
    "cost is the time from the first SYN to the attempt that succeeded, else to the last packet.",
    example="Initiator 10.71.0.1 cannot reach the portal 10.71.0.2:3261: 1 connection attempt (3 SYNs) from 2.12 s to "
    "5.16 s had no answer. SendTargets or a redirect named this portal.",
    severity="error",
    rank="failure",
    advice=(
        Advice(
            "Without an answer: check the route, the VLAN, and firewalls that drop packets (`ip route get ADDRESS`, "
            "`nc -zv ADDRESS PORT` from the initiator); a capture at the target shows whether the SYNs arrive. "
            "Refused: check that the target listens on this address and port (`ss -tln`, `portals/` of the TPG in "
            "targetcli, `tgtadm --op show --mode portal`)."
        ),
        Advice(
            "Remove a portal that this initiator is not meant to reach: at the target from what SendTargets lists, "
            "at the initiator by `iscsiadm -m node -p ADDRESS:PORT -o delete`, from the static or dynamic targets "
            "on ESXi, or the favorite targets on Windows."
        ),
    ),
    where=_may_be_unreachable,
    tell=_unreachable,
)
