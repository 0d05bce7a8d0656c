"""Faults of the network between guests: a path that drops everything or large packets, resets, small buffers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from iscsitrace.lab.faults.fault import Details, FaultImpossible
from iscsitrace.lab.guests.faults import Hosts

_PACKAGE = "iproute2"
_CARD = "guest0"
"""The device of a namespace that its guest's network card is plugged into, and that of its cable."""
_CABLE = "port0"
# of a bridge's port: BR_STATE_DISABLED, BR_STATE_FORWARDING
_DROPPING, _FORWARDING = "0", "3"
_SOCKETS = "'( sport = :3260 or dport = :3260 )'"


@contextmanager
def black_out(hosts: Hosts, details: Details) -> Iterator[None]:
    namespace = hosts.namespaces[details["on"]]

    def put_port(state: str) -> None:
        namespace.run("bridge", "link", "set", "dev", _CARD, "state", state, package=_PACKAGE)

    put_port(_DROPPING)
    try:
        yield
    finally:
        put_port(_FORWARDING)


@contextmanager
def mtu_hole(hosts: Hosts, details: Details) -> Iterator[None]:
    namespace = hosts.namespaces[details["on"]]
    (shown,) = json.loads(namespace.run("ip", "-json", "link", "show", _CARD, package=_PACKAGE).output)

    def limit(mtu_bytes: int) -> None:
        # a bridge drops what is too large for a port, and tells nobody
        for device in (_CARD, _CABLE):
            namespace.run("ip", "link", "set", device, "mtu", str(mtu_bytes), package=_PACKAGE)

    limit(details["bytes"])
    try:
        yield
    finally:
        limit(shown["mtu"])


@contextmanager
def flap(hosts: Hosts, details: Details) -> Iterator[None]:
    guest = hosts.guests[details["on"]]
    # a card that is taken down loses its routes and neighbours, and its addresses of IPv6
    guest.shell(
        """
        sysctl -q -w net.ipv6.conf.eth0.keep_addr_on_down=1 || true
        ip -4 route show dev eth0 >/run/routes-4
        ip -6 route show dev eth0 >/run/routes-6
        ip neigh show dev eth0 nud permanent | sed 's/ PERMANENT.*//' >/run/neighbours
        ip link set eth0 down
        """
    )
    try:
        yield
    finally:
        guest.shell(
            """
            ip link set eth0 up
            while read -r route; do ip -4 route replace $route dev eth0; done </run/routes-4
            while read -r route; do ip -6 route replace $route dev eth0; done </run/routes-6
            while read -r entry; do ip neigh replace $entry dev eth0 nud permanent; done </run/neighbours
            """
        )


@contextmanager
def reset(hosts: Hosts, details: Details) -> Iterator[None]:
    guest = hosts.guests[details["on"]]
    # it lists what it has ended
    if not guest.shell(f"ss -K -H -n -t state established {_SOCKETS}").strip():
        raise FaultImpossible(f"no iSCSI connection to reset at {guest.name}")
    yield


@contextmanager
def small_buffers(hosts: Hosts, details: Details) -> Iterator[None]:
    size_bytes = details["bytes"]
    three = f"'{size_bytes} {size_bytes} {size_bytes}'"
    hosts.guests[details["on"]].shell(
        f"""
        sysctl -q -w net.ipv4.tcp_rmem={three} net.ipv4.tcp_wmem={three}
        sysctl -q -w net.core.rmem_max={size_bytes} net.core.wmem_max={size_bytes}
        """
    )
    yield
