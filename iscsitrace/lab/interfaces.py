"""Plans the interfaces and addresses of ends that are joined by cables. Creates nothing.

An end has an interface for each of its cables, beginning with eth0, and each cable is a separate network. An end that
is a switch has one interface, eth0; its cables are plugged into port0, port1 ..., and all of them are one network. So
are those of an end that a guest is plugged into; its eth0 is the guest's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from iscsitrace.errors import InputInvalid

Pair = tuple[str, str]
"""The ends that a cable joins."""


@dataclass(frozen=True)
class Interface:
    """One interface of an end; networks are /24 and /64."""

    name: str
    address: str
    address_v6: str | None
    hardware_address: str

    @property
    def subnet(self) -> str:
        """The IPv4 network, without the last dot."""
        return self.address.rpartition(".")[0]

    @property
    def subnet_v6(self) -> str | None:
        """The IPv6 network, without the last colons."""
        return self.address_v6 and self.address_v6.rpartition("::")[0]


@dataclass(frozen=True)
class InterfacePlan:
    """All interfaces, by the name of their end."""

    interfaces: Mapping[str, Sequence[Interface]]
    devices: Sequence[tuple[str, str]]
    """Of each cable: the devices at its first and at its second end."""
    ports: Mapping[str, Sequence[tuple[str, str]]]
    """Of each switch: its ports, each with the hardware address behind it."""

    def devices_of(self, end: str, pairs: Sequence[Pair]) -> list[str]:
        """The devices at an end of the cables that join these pairs."""
        return [
            dict(zip(pair, devices, strict=True))[end]
            for pair, devices in zip(pairs, self.devices, strict=True)
            if end in pair
        ]

    def neighbours(self, interface: Interface) -> Iterator[Interface]:
        """The other interfaces of its network."""
        for each in self.interfaces.values():
            yield from (other for other in each if other.subnet == interface.subnet and other is not interface)


def plan(
    ends: Collection[str],
    pairs: Sequence[Pair],
    switches: Collection[str],
    *,
    has_v6: bool,
    guests: Collection[str] = (),
) -> InterfacePlan:
    """The interfaces of ends that are joined by cables; InputInvalid if a cable joins two switches."""
    plugged = {*switches, *guests}
    interfaces: dict[str, list[Interface]] = {end: [] for end in ends}
    devices: list[list[str]] = []
    host_counts: dict[int, int] = {}
    for number, pair in enumerate(pairs):
        switching = [end for end in pair if end in switches]
        if len(switching) == len(pair):
            raise InputInvalid(f"both ends of a cable switch: {pair[0]} and {pair[1]}")
        joining = [*switching, *(end for end in pair if end in guests)]
        network = _first(pairs, joining[0]) if joining else number
        devices.append([])
        for end in pair:
            cable_count = sum(end in before for before in pairs[:number])
            devices[-1].append(f"{'port' if end in plugged else 'eth'}{cable_count}")
            if end in plugged and cable_count > 0:
                continue
            host = host_counts[network] = host_counts.get(network, 0) + 1
            interfaces[end].append(_interface(f"eth{len(interfaces[end])}", network, host, has_v6=has_v6))
    cables = [(first, second) for first, second in devices]
    return InterfacePlan(interfaces, cables, {end: _ports(end, pairs, cables, interfaces) for end in switches})


def _first(pairs: Sequence[Pair], end: str) -> int:
    return next(number for number, pair in enumerate(pairs) if end in pair)


def _interface(name: str, network: int, host: int, *, has_v6: bool) -> Interface:
    address_v6 = str(IPv6Address(f"fd71:0:0:{network:x}::{host:x}")) if has_v6 else None
    return Interface(name, f"10.71.{network}.{host}", address_v6, f"02:71:00:00:{network:02x}:{host:02x}")


def _ports(
    switch: str, pairs: Sequence[Pair], devices: Sequence[tuple[str, str]], interfaces: Mapping[str, list[Interface]]
) -> list[tuple[str, str]]:
    found = []
    for pair, names in zip(pairs, devices, strict=True):
        if switch in pair:
            here = pair.index(switch)
            own = interfaces[pair[1 - here]]
            # the only interface of a guest is behind every cable
            behind = {each.name: each for each in own}.get(names[1 - here], own[0])
            found.append((names[here], behind.hardware_address))
    return found
