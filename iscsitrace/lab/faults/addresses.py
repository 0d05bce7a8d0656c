"""The addresses that a run of our own programs will have, for faults that name one before it begins."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

SIMULATED, NAMESPACES = "simulated", "namespaces"

_FIRST_TARGET = {
    (SIMULATED, False): "198.18.0.10",
    (SIMULATED, True): "2001:db8::a",
    (NAMESPACES, False): "10.71.0.2",
    (NAMESPACES, True): "fd71::2",
}
_NOBODY = {
    (SIMULATED, False): "198.18.255.254",
    (SIMULATED, True): "2001:db8::fffe",
    (NAMESPACES, False): "10.71.0.254",
    (NAMESPACES, True): "fd71::fffe",
}


def of_target(world: str, number: int, *, is_ipv6: bool) -> IPv4Address | IPv6Address:
    """The address of a target by its number."""
    return ip_address(_FIRST_TARGET[world, is_ipv6]) + number


def of_nobody(world: str, *, is_ipv6: bool) -> IPv4Address | IPv6Address:
    """An address of the same network that no host has."""
    return ip_address(_NOBODY[world, is_ipv6])
