"""Portals: the addresses and ports at which targets are reached, as the packets name them.

A portal is where a connection carried iSCSI, what SendTargets or a redirect named, and the ports of RFC 7143 anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from iscsitrace.analysis.groups.stories import PORTS
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.table import Table

Source = Callable[[str], Table]
Portal = tuple[str, int]

DEFAULT_PORT: Final = 3260
"""Of an address without a port (RFC 7143 section 13.8)."""


def found(source: Source) -> set[Portal]:
    """The portals that carried iSCSI, and those that SendTargets or a redirect named."""
    connections = source("connections")
    own = connections.select(connections.raw("is_iscsi"))
    carried = set(zip(own.raw("target_address").tolist(), own.raw("target_port").tolist(), strict=True))
    return carried | {portal for portal in named(source) if portal is not None}


def named(source: Source) -> Iterator[Portal | None]:
    """The portals that SendTargets and redirects named; None for a host name."""
    for text in set(source("texts").raw("response_text").tolist()):
        for _, addresses in targets(text):
            yield from map(portal, addresses)
    parameters = source("parameters")
    is_address = (parameters.raw("key") == "TargetAddress") & known(parameters, "target_value")
    yield from map(portal, set(parameters.raw("target_value")[is_address].tolist()))


def is_portal(address: str, port: int, portals: set[Portal]) -> bool:
    """Whether a connection to this address and port is one to a portal."""
    return port in PORTS or (address, port) in portals


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
    """``10.0.0.2:3260,1`` or ``[fd00::2]`` as address and port; None for a host name, which no packet shows."""
    place, _, _ = text.partition(",")
    if place.startswith("["):
        address, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        address, _, port = place.partition(":")
        if not address.replace(".", "").isdecimal():
            return None
    return (address, int(port) if port.isdecimal() else DEFAULT_PORT) if not port or port.isdecimal() else None


def written(address: str, port: int) -> str:
    """``10.0.0.2:3260``, ``[fd00::2]:3260``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
