"""Faults that the hosts of namespaces have from their kernels: connections that are reset, a card without carrier, a
neighbour that answers nothing. Our own programs and links make the others.

Nothing here waits: `HostFaults.look` is called many times a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from iscsitrace.lab.faults import addresses
from iscsitrace.lab.faults.fault import Fault
from iscsitrace.lab.namespaces import Namespace
from iscsitrace.lab.run_files import INITIATOR

_SOCKETS = "( sport = :3260 or dport = :3260 )"
_PACKAGE = "iproute2"
# of no interface: a frame to it is for nobody
_NOBODY = "02:71:00:00:ff:fe"


class HostFaults:
    """The faults of the hosts of a run, each in its time."""

    def __init__(self, faults: Sequence[Fault], hosts: Mapping[str, Namespace]) -> None:
        self._hosts = hosts
        self._resets = {number: fault for number, fault in enumerate(faults) if fault.kind.name == "rst"}
        flaps = [fault for fault in faults if fault.kind.name == "flap"]
        times = [(each.details["at"] + lasts, each, lasts > 0) for each in flaps for lasts in (0, each.details["for"])]
        self._carriers = sorted(times, key=lambda each: each[0])
        self._began_ns: int | None = None
        self.hits: list[dict[str, Any]] = []
        """When each reset was, as the core logs its faults, with the number of connections."""
        if any(fault.kind.name == "unreachable-portal" for fault in faults):
            self._add_nobody(hosts[INITIATOR])

    def look(self) -> None:
        """Does what is due; the workload has begun with the first call."""
        now_ns = time.monotonic_ns()
        self._began_ns = now_ns if self._began_ns is None else self._began_ns
        elapsed_ns = now_ns - self._began_ns
        for number, fault in list(self._resets.items()):
            if elapsed_ns >= fault.details["at"]:
                del self._resets[number]
                self._reset(number, self._hosts[fault.host])
        while self._carriers and elapsed_ns >= self._carriers[0][0]:
            _, fault, has_carrier = self._carriers.pop(0)
            self._set_carrier(self._hosts[fault.host], "on" if has_carrier else "off")

    def _reset(self, number: int, place: Namespace) -> None:
        began_ns = time.time_ns()
        # it lists what it has ended, one a line
        words = ("-K", "-H", "-n", "-t", "state", "established", _SOCKETS)
        count = len(place.run("ss", *words, package=_PACKAGE).output.splitlines())
        ended_ns = time.time_ns()
        hit = {"began_ns": began_ns, "ended_ns": ended_ns, "from_ns": began_ns, "to_ns": ended_ns}
        self.hits.append(
            {"fault": number, "count": count, **(hit if count else {**hit, "from_ns": None, "to_ns": None})}
        )

    @staticmethod
    def _set_carrier(place: Namespace, state: str) -> None:
        """A card that is taken down would end the capture. One without carrier sends nothing; what is sent to it, the
        link drops.
        """
        for interface in place.interfaces:
            place.run("ip", "link", "set", "dev", interface.name, "carrier", state, package=_PACKAGE)

    @staticmethod
    def _add_nobody(place: Namespace) -> None:
        """Without a neighbour entry, a SYN would wait for an answer to ARP."""
        device = place.interfaces[0].name
        for is_ipv6 in (False, True) if place.address_v6 else (False,):
            address = str(addresses.of_nobody(addresses.NAMESPACES, is_ipv6=is_ipv6))
            entry = (address, "lladdr", _NOBODY, "nud", "permanent", "dev", device)
            place.run("ip", "neigh", "replace", *entry, package=_PACKAGE)
