"""Connections in namespaces that the kernel resets, as a fault; our own programs and links make the others.

Nothing here waits: `Resets.look` is called many times a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from iscsitrace.lab.faults.fault import Fault
from iscsitrace.lab.namespaces import Namespace

_NAME = "rst"
_SOCKETS = "( sport = :3260 or dport = :3260 )"


class Resets:
    """The resets of a run, each in its time."""

    def __init__(self, faults: Sequence[Fault], hosts: Mapping[str, Namespace]) -> None:
        self._hosts = hosts
        self._due = {number: fault for number, fault in enumerate(faults) if fault.kind.name == _NAME}
        self._began_ns: int | None = None
        self.hits: list[dict[str, Any]] = []
        """When each was, as the core logs its faults, with the number of connections."""

    def look(self) -> None:
        """Resets what is due; the workload has begun with the first call."""
        now_ns = time.monotonic_ns()
        self._began_ns = now_ns if self._began_ns is None else self._began_ns
        for number, fault in list(self._due.items()):
            if now_ns - self._began_ns >= fault.details["at"]:
                del self._due[number]
                self._reset(number, self._hosts[fault.host])

    def _reset(self, number: int, place: Namespace) -> None:
        began_ns = time.time_ns()
        # it lists what it has ended, one a line
        words = ("-K", "-H", "-n", "-t", "state", "established", _SOCKETS)
        count = len(place.run("ss", *words, package="iproute2").output.splitlines())
        ended_ns = time.time_ns()
        hit = {"began_ns": began_ns, "ended_ns": ended_ns, "from_ns": began_ns, "to_ns": ended_ns}
        self.hits.append(
            {"fault": number, "count": count, **(hit if count else {**hit, "from_ns": None, "to_ns": None})}
        )
