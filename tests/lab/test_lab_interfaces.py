"""Addresses of connected ends: all different, and ends on a cable or switch are in one network."""

from __future__ import annotations

from ipaddress import ip_interface

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.lab import interfaces
from iscsitrace.lab.interfaces import InterfacePlan, Pair

TARGETS = ("target", "target-2", "target-3")
STAR = [("initiator", target) for target in TARGETS]
BEHIND_ACCESS = [("initiator", "switch"), *(("switch", target) for target in TARGETS)]


def planned(pairs: list[Pair], *switches: str, has_v6: bool = True, guests: tuple[str, ...] = ()) -> InterfacePlan:
    ends = dict.fromkeys(end for pair in pairs for end in pair)
    return interfaces.plan(ends, pairs, switches, has_v6=has_v6, guests=guests)


def reached(plan: InterfacePlan, end: str) -> set[str]:
    """The ends in the networks of an end."""
    addresses = {each.address: name for name, own in plan.interfaces.items() for each in own}
    return {addresses[other.address] for own in plan.interfaces[end] for other in plan.neighbours(own)}


@pytest.mark.parametrize(
    ("pairs", "switches"), [(STAR, ()), (STAR, ("initiator",)), (BEHIND_ACCESS, ("switch",))], ids=str
)
def test_addresses_are_unique_and_networks_match_the_kernels_routes(
    pairs: list[Pair], switches: tuple[str, ...]
) -> None:
    every = [interface for own in planned(pairs, *switches).interfaces.values() for interface in own]
    for name in ("address", "address_v6", "hardware_address"):
        assert len({getattr(each, name) for each in every}) == len(every)
    for one in every:
        for other in every:
            is_near = ip_interface(f"{one.address}/24").network == ip_interface(f"{other.address}/24").network
            assert is_near == (one.subnet == other.subnet)
            near_v6 = ip_interface(f"{one.address_v6}/64").network == ip_interface(f"{other.address_v6}/64").network
            assert near_v6 == is_near == (one.subnet_v6 == other.subnet_v6)


def test_each_cable_is_a_separate_network() -> None:
    plan = planned(STAR)
    assert [each.name for each in plan.interfaces["initiator"]] == ["eth0", "eth1", "eth2"]
    assert plan.devices == [("eth0", "eth0"), ("eth1", "eth0"), ("eth2", "eth0")]
    assert reached(plan, "target") == {"initiator"}
    assert reached(plan, "initiator") == set(TARGETS)
    assert plan.ports == {}


@pytest.mark.parametrize(("pairs", "switch"), [(STAR, "initiator"), (BEHIND_ACCESS, "switch")], ids=["star", "access"])
def test_all_ends_of_a_switch_are_one_network(pairs: list[Pair], switch: str) -> None:
    plan = planned(pairs, switch)
    ends = {end for pair in pairs for end in pair}
    for end in ends:
        (interface,) = plan.interfaces[end]
        assert interface.name == "eth0"
        assert reached(plan, end) == ends - {end}
    ports = [name for pair, names in zip(pairs, plan.devices, strict=True) for name in [names[pair.index(switch)]]]
    assert ports == [port for port, _ in plan.ports[switch]] == [f"port{number}" for number in range(len(pairs))]
    behind = [plan.interfaces[next(end for end in pair if end != switch)][0].hardware_address for pair in pairs]
    assert [address for _, address in plan.ports[switch]] == behind


def test_without_ipv6_there_are_no_such_addresses() -> None:
    (interface,) = planned(STAR, has_v6=False).interfaces["target"]
    assert (interface.address_v6, interface.subnet_v6) == (None, None)


def test_two_switches_on_a_cable_are_refused() -> None:
    with pytest.raises(InputInvalid, match="both ends of a cable switch: initiator and switch"):
        planned(BEHIND_ACCESS, "initiator", "switch")


@pytest.mark.parametrize(("pairs", "switches"), [(STAR, ()), (BEHIND_ACCESS, ("switch",))], ids=["star", "access"])
def test_a_guest_has_one_card_for_all_its_cables(pairs: list[Pair], switches: tuple[str, ...]) -> None:
    plan = planned(pairs, *switches, guests=("initiator", *TARGETS))
    for guest in ("initiator", *TARGETS):
        assert [each.name for each in plan.interfaces[guest]] == ["eth0"]
    # each cable ends at a port of the bridge beside the guest's card
    assert all(device.startswith("port") for devices in plan.devices for device in devices)
    count = len([pair for pair in pairs if "initiator" in pair])
    assert plan.devices_of("initiator", pairs) == [f"port{number}" for number in range(count)]
    assert plan.devices_of("target-2", pairs) == ["port0"]
    assert set(TARGETS) <= reached(plan, "initiator")
    if switches:
        (switch,) = switches
        behind = dict(plan.ports[switch])
        assert behind["port1"] == plan.interfaces["target"][0].hardware_address
