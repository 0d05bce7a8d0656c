"""The path MTU: large segments that never arrive, while smaller packets do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from iscsitrace.findings.connection_loss import CONNECTION_LOST
from iscsitrace.findings.failures import NOP_TIMEOUT
from iscsitrace.findings.finding import INTERFACE, WHOLE_HOST, Advice, Observation, Problem
from iscsitrace.findings.history import Blocked, History
from iscsitrace.findings.loss import LOSS
from iscsitrace.findings.outages import IO_OUTAGE
from iscsitrace.findings.recipes import LAN
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.intervals import Span
from iscsitrace.tables.nulls import known
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital


def _has_blocked(facts: Facts) -> Array:
    return facts.count("senders", lambda senders: known(senders, "blocked_bytes")) > 0


def _blocked(history: History) -> Observation | None:
    if not history.blocked:
        return None
    reports = list(history.rows("icmp_errors").rows())
    found = _by_size(history, reports)
    if not found:
        return None
    to_target = found[0].to_target
    ends = [each for each in history.outages if any(_overlap(each.from_ns, each.to_ns, one) for one in found)]
    spans = _joined([*((each.from_ns, each.to_ns) for each in ends), *((one.from_ns, one.to_ns) for one in found)])
    facts = [f"{capital(fact)}." for fact in _facts(history, found, reports)]
    cost_ns = sum(last - first for first, last in spans)
    side = "target" if to_target else "initiator"
    size = f"{min(one.bytes for one in found):,} bytes"
    what = f"segments of {size} to the {side}" if found[0].is_retransmitted else f"{size} to the {side}"
    text = f"{history.label}: {what} did not get through for {wording.time(cost_ns)}, but smaller packets did"
    return Observation(
        " ".join((f"MTU problem of {text}.", "The path MTU is too small, or a hop drops long packets.", *facts)),
        [one.frame for one in found],
        float(cost_ns),
        spans=spans,
        is_final=any(not each.is_over for each in ends),
        points_to=_side(reports, to_target=to_target),
    )


def _side(reports: Sequence[dict[str, Any]], *, to_target: bool) -> str:
    """Whose side it points to: smaller packets passed both hosts."""
    for row in reports:
        if row["kind"] == "too_big" and row["to_target"] == to_target:
            return f"the path: {row['reporter_address']} reports it"
    return "the path"


def _by_size(history: History, reports: Sequence[dict[str, Any]]) -> list[Blocked]:
    """The blocked segments of one direction, if their size explains them; empty else.

    It does where a retransmission was lost after smaller packets had passed, where a router reports it, or where it
    happens again on the next connection to segments larger than any that arrives.
    """
    for to_target in (False, True):
        found = [one for one in history.blocked if one.to_target == to_target]
        told = {row["connection"] for row in reports if row["kind"] == "too_big" and row["to_target"] == to_target}
        again = [one for one in found if one.bytes > one.arrived_bytes]
        if any(one.is_by_size or one.connection in told for one in found) or len(again) > 1:
            return found
    return []


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans that overlap, as one."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _overlap(from_ns: int, to_ns: int, one: Blocked) -> bool:
    return from_ns <= one.to_ns and one.from_ns <= to_ns


def _facts(history: History, found: Sequence[Blocked], reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What else the packets show."""
    to_target, least = found[0].to_target, min(one.bytes for one in found)
    told = [row for row in reports if row["kind"] == "too_big" and row["to_target"] == to_target]
    if told:
        mtu = told[0]["mtu_bytes"]
        yield f"{told[0]['reporter_address']} reports an MTU" + (f" of {mtu}" if mtu else " that is too small")
    else:
        yield "no ICMP message reported it"
    repeated = sum(one.retransmissions for one in found)
    connections = wording.count(len(found), "connection")
    if repeated:
        yield f"TCP retransmitted them at least {repeated} times on {connections}"
    else:
        tap = history.source.tap_of(found[0].connection, to_target=True)
        yield f"the {tap} never saw these bytes on {connections}, and the receiver never acknowledged them"
    if all(one.arrived_bytes < least for one in found):
        largest = max(one.arrived_bytes for one in found)
        yield f"the largest segment that got through had {wording.count(largest, 'byte')}"
    numbers = {one.connection for one in found}
    rows = [row for row in history.story.connections if row["connection"] in numbers]
    sizes = [{row[f"mss_bytes_to_{side}"] for row in rows} for side in ("initiator", "target")]
    if all(len(each) == 1 and None not in each for each in sizes):
        (of_target,), (of_initiator,) = sizes
        if of_target == of_initiator:
            yield f"both sides announced an MSS of {of_target}"
        else:
            yield f"the initiator announced an MSS of {of_initiator}, the target one of {of_target}"


PATH_MTU: Final = Problem(
    name="path_mtu",
    scope="story",
    meaning="Long packets are lost on the path and short ones are not: a hop has a smaller MTU than the hosts, "
    "and its ICMP "
    "messages are lost, too. Logins and small commands work, the first large read or write hangs.",
    condition="A segment is blocked for a second or more while smaller packets pass (iscsitrace docs method 5), "
    "and its "
    "size explains it: a retransmission was lost after a smaller packet had passed, ICMP reports the MTU, or it "
    "happens on a second connection to segments larger than any that arrives. Else it may be a black-out.",
    evidence="The first retransmission of each, or the small packet that passed. The cost is the time in which it was "
    "blocked, with the outages that it caused.",
    example="MTU problem of sessions 0 to 2: 15,928 bytes to the initiator did not get through for 26.2 s, but smaller "
    "packets did. The path MTU is too small, or a hop drops long packets. No ICMP message reported it.",
    # long packets only, or all
    shown_by=f"read {LAN} --fault mtu-hole,for=20s",
    near_miss=f"read {LAN} --fault black-out,for=3s",
    severity="error",
    rank="failure",
    accounts_for=(IO_OUTAGE, CONNECTION_LOST, NOP_TIMEOUT, LOSS),
    advice=(
        Advice(
            "Find the hop: ping with DF and the full size, from both sides. Linux: ping -M do -s 8972 ADDRESS "
            "(1472 for an MTU of 1500); ESXi: vmkping -d -s 8972; Windows: ping -f -l 8972."
        ),
        Advice(
            "Set the same MTU on both hosts and on every switch port, bond, VLAN and tunnel between them; jumbo frames "
            "need all of them. Else use an MTU of 1500 on both hosts (ip link set dev DEVICE mtu 1500).",
            touches=INTERFACE,
        ),
        Advice(
            "Let ICMP type 3 code 4 (ICMPv6 type 2) pass every firewall. On Linux net.ipv4.tcp_mtu_probing = 1 "
            "finds the size without ICMP.",
            touches=WHOLE_HOST,
        ),
    ),
    where=_has_blocked,
    tell=_blocked,
)
