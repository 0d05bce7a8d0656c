"""Portals: the addresses and ports at which targets are reached, as the packets name them.

A portal is where a connection carried iSCSI, what SendTargets or a redirect named, and the ports of RFC 7143 anywhere.
Of one that was named by its host name only the port is known: no packet shows the address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Source

Portal = tuple[str, int]
"""Address or host name, and port."""

PORTS: Final = (3260, 860)
"""Ports of portals (RFC 7143 section 15): a connection to one of them is a try, even if nothing answered it. The first
is that of an address without a port (section 13.8)."""

_LAST_PORT: Final = 65_535


@dataclass(frozen=True)
class Portals:
    """The portals of a trace, as far as the capture shows them."""

    used: frozenset[Portal]
    """Of connections that carried iSCSI."""
    named: Mapping[Portal, int | None]
    """By SendTargets or a redirect (TargetAddress): the frame that named it first."""
    ports_of_names: frozenset[int]
    """Ports of portals that were named by a host name."""

    @staticmethod
    def of(source: Source) -> Portals:
        """The portals of a trace that was read with any tables."""
        connections = source("connections")
        own = connections.select(connections.raw("is_iscsi"))
        used = zip(own.raw("target_address").tolist(), own.raw("target_port").tolist(), strict=True)
        named: dict[Portal, int | None] = {}
        ports = set()
        for text, frame in _addresses(source):
            place = portal(text)
            if place is None:
                continue
            if is_address(place[0]):
                named.setdefault(place, frame)
            else:
                ports.add(place[1])
        return Portals(frozenset(used), named, frozenset(ports))

    def has(self, address: str, port: int) -> bool:
        """Whether a connection to this address and port is one to a portal."""
        place = (address, port)
        return port in PORTS or place in self.used or place in self.named or port in self.ports_of_names


def _addresses(source: Source) -> Iterator[tuple[str, int | None]]:
    """Each TargetAddress of SendTargets and of redirects, with its frame."""
    for row in source("texts").rows(("response_text", "response_frame")):
        for _, addresses in targets(row["response_text"] or ""):
            yield from ((address, row["response_frame"]) for address in addresses)
    parameters = source("parameters")
    redirects = parameters.select((parameters.raw("key") == "TargetAddress") & known(parameters, "target_value"))
    if len(redirects):
        logins = source("logins").rows(("connection", "response_frame"))
        # the keys of a login have no frame: that of its last response
        frames = {row["connection"]: row["response_frame"] for row in logins}
        for row in redirects.rows(("connection", "target_value")):
            yield row["target_value"], frames.get(row["connection"])


def targets(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The targets of an answer to SendTargets, with their addresses as they stand there (RFC 7143 appendix C)."""
    listed: list[tuple[str, list[str]]] = []
    for each in text.split():
        key, _, value = each.partition("=")
        if key == "TargetName":
            listed.append((value, []))
        elif key == "TargetAddress":
            # the addresses of a target may go on in the next answer
            if not listed:
                listed.append(("", []))
            listed[-1][1].append(value)
    return [(name, tuple(addresses)) for name, addresses in listed]


def portal(text: str) -> Portal | None:
    """``10.0.0.2:3260,1``, ``[fd00::2]`` or ``array.example`` as host and port, an IP address as the tables spell it.

    None for what is no portal (RFC 7143 section 13.8).
    """
    place, _, _ = text.partition(",")
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        _, colon, digits = rest.partition(":")
        is_whole = bool(bracket) and rest[:1] in ("", ":")
    else:
        host, colon, digits = place.partition(":")
        is_whole = True
    port = digits if colon else str(PORTS[0])
    if not host or not is_whole or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        return None
    return (str(ipaddress.ip_address(host)) if is_address(host) else host.lower()), int(port)


def is_address(host: str) -> bool:
    """Whether it is an IP address; else it is a host name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def written(address: str, port: int) -> str:
    """``10.0.0.2:3260``, ``[fd00::2]:3260``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


Kind = Literal["neighbor", "echo"]

LEAST: Final = 2
"""Questions that show silence: one of them, or its answer, may be lost."""


@dataclass(frozen=True)
class Unanswered:
    """Questions of one host for another one that had no answer."""

    count: int
    frame: int
    from_ns: int
    to_ns: int
    """The last question."""


class HostQuestions:
    """The questions of a trace."""

    def __init__(self, source: Source) -> None:
        """From the tables of a trace that was read with any tables."""
        self._rows = {
            (row["kind"], row["asker_address"], row["asked_address"]): row for row in source("host_questions").rows()
        }

    def unanswered(self, kind: Kind, asker: str, asked: str) -> Unanswered | None:
        """Those of one host for another one, if none of them had an answer."""
        row = self._rows.get((kind, asker, asked))
        if row is None or row["answer_count"] or row["question_count"] < LEAST:
            return None
        return Unanswered(row["question_count"], row["frame_first"], row["time_first_ns"], row["time_last_ns"])
