"""Faults that the hosts of namespaces have from their kernels: connections that are reset, a card that is down, a
neighbour that answers nothing. Our own programs and links make the others.

Nothing here waits: `HostFaults.look` is called many times a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from iscsitrace.lab.faults.fault import NAMESPACES, Fault, address_of_nobody
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
        flaps = [(number, fault) for number, fault in enumerate(faults) if fault.kind.name == "flap"]
        times = [(fault.details["at"], number, fault) for number, fault in flaps]
        times += [(fault.details["at"] + fault.details["for"], number, fault) for number, fault in flaps]
        self._changes = sorted(times, key=lambda each: each[0])
        self._cards_down: dict[int, dict[str, Any]] = {}
        self._began_ns: int | None = None
        self.hits: list[dict[str, Any]] = []
        """When each reset was and each card was down, as the core logs its faults, with the number of connections
        or cards.
        """
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
        while self._changes and elapsed_ns >= self._changes[0][0]:
            _, number, fault = self._changes.pop(0)
            self._change_card(number, self._hosts[fault.host])

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

    def _change_card(self, number: int, place: Namespace) -> None:
        """A card that is taken down would end the capture, and one that loses its carrier may send for another second:
        the kernel looks at most once a second. A queue that drops what it gets is there at once, before the capture.
        What is sent to the card, the link drops.
        """
        down = self._cards_down.pop(number, None)
        if down is not None:
            down["ended_ns"] = down["to_ns"] = time.time_ns()
        for interface in place.interfaces:
            words = ("add", "root", "blackhole") if down is None else ("del", "root")
            place.run("tc", "qdisc", words[0], "dev", interface.name, *words[1:], package=_PACKAGE)
        if down is None:
            now_ns = time.time_ns()
            times = {"began_ns": now_ns, "ended_ns": None, "from_ns": now_ns, "to_ns": now_ns}
            down = self._cards_down[number] = {"fault": number, "count": len(place.interfaces), **times}
            self.hits.append(down)

    @staticmethod
    def _add_nobody(place: Namespace) -> None:
        """Without a neighbour entry, a SYN would wait for an answer to ARP."""
        device = place.interfaces[0].name
        for is_ipv6 in (False, True) if place.address_v6 else (False,):
            address = str(address_of_nobody(NAMESPACES, is_ipv6=is_ipv6))
            entry = (address, "lladdr", _NOBODY, "nud", "permanent", "dev", device)
            place.run("ip", "neigh", "replace", *entry, package=_PACKAGE)
