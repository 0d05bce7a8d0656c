"""The hosts of a run, as its faults reach them: the guests, what they serve, and the namespaces that they plug into."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from iscsitrace.lab.guests.initiator import TargetPortal
from iscsitrace.lab.guests.machine import Guest
from iscsitrace.lab.guests.targets import Wanted
from iscsitrace.lab.namespaces import Namespace
from iscsitrace.lab.run_files import INITIATOR


@dataclass
class Hosts:
    """Faults before the login may change the portals; the device is known after it."""

    guests: Mapping[str, Guest]
    """By the name of their host: ``initiator``, ``target``, ``target-2`` ..."""
    namespaces: Mapping[str, Namespace]
    """By the name of the host whose network card is plugged in."""
    wanted: Mapping[str, Wanted]
    """Each target, by the name of its host."""
    program: str
    """The targets' program: lio or tgt."""
    portals: list[TargetPortal]
    until_end: ExitStack
    """Ends when the run does, before its targets."""
    is_discovering: bool = True
    """Whether the initiator finds the targets by SendTargets."""
    device: str = ""
    """The device of the initiator that the workload reads and writes."""

    @property
    def initiator(self) -> Guest:
        """The initiator's guest."""
        return self.guests[INITIATOR]

    def portal(self, target: str) -> TargetPortal:
        """The portal of a target, by the name of its host."""
        return self.portals[list(self.wanted).index(target)]
