"""Volumes: the logical units that each initiator uses, over all their paths and logins.

What the target said decides: its designator (VPD page 83h), else vendor, product and serial number; only where it said
nothing, its name and the LUN, or the address and the LUN (docs/method.md, section 13). Two sessions of one volume are
paths to it, or one of them replaced the other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.logical_units import Member, members
from iscsitrace.analysis.groups.volume_identity import groups
from iscsitrace.tables.numbers import distinct, places_of
from iscsitrace.tables.table import Source, Table

Array = NDArray[Any]


@dataclass(frozen=True)
class Volume:
    """One logical unit of one initiator."""

    number: int
    known_by: str
    """``designator``, ``serial``, ``target`` or ``address``."""
    identity: str
    """What it is known by, as text."""
    members: tuple[Member, ...]
    """In the order of their sessions."""

    @property
    def host(self) -> str:
        """Name of the initiator, or its address."""
        return self.members[0].host

    @property
    def luns(self) -> tuple[int, ...]:
        """Its LUNs: they may differ between paths."""
        return tuple(sorted({member.lun for member in self.members}))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that offer it."""
        return tuple(dict.fromkeys(member.target for member in self.members))

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions that see it."""
        return tuple(dict.fromkeys(member.session for member in self.members))

    @property
    def paths(self) -> tuple[tuple[Member, ...], ...]:
        """Its paths; the members of one path are of sessions that replaced each other."""
        found: dict[tuple[int, int], list[Member]] = {}
        for member in self.members:
            found.setdefault((member.path, member.lun), []).append(member)
        return tuple(map(tuple, found.values()))

    @property
    def product(self) -> str | None:
        """``LIO-ORG disk0``: vendor and product, if the target said them."""
        return next((f"{each.serial[0]} {each.serial[1]}".strip() for each in self.members if each.serial), None)

    @property
    def capacity_bytes(self) -> int | None:
        """The last that the target said."""
        known_ones = (each.capacity_bytes for each in reversed(self.members) if each.capacity_bytes is not None)
        return next(known_ones, None)

    @property
    def label(self) -> str:
        """``LUN 0 of iqn.2026-11.example:disk``, as its first path has it."""
        return f"LUN {self.members[0].lun} of {self.members[0].target}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "volume": self.number,
            "label": self.label,
            "known_by": self.known_by,
            "identity": self.identity,
            "initiator": self.host,
            "targets": list(self.targets),
            "luns": list(self.luns),
            "product": self.product,
            "capacity_bytes": self.capacity_bytes,
            "paths": [
                {"lun": path[0].lun, "target": path[0].target, "sessions": [member.session for member in path]}
                for path in self.paths
            ],
        }


@dataclass(frozen=True, eq=False)
class Volumes:
    """The volumes of a trace, and which of them each command went to."""

    all: tuple[Volume, ...]
    _sessions: Array
    _luns: Array
    _numbers: Array
    """Session, LUN and volume of each member, in order of session and LUN."""

    def of_commands(self, cycles: Table) -> Array:
        """The number of each command's volume, -1 for none."""
        return cycles.each(self._of_each)

    def _of_each(self, cycles: Table) -> Array:
        (sessions, session), (luns, lun) = distinct(self._sessions), distinct(self._luns)
        row, column = places_of(cycles.raw("session"), sessions), places_of(cycles.raw("lun"), luns)
        wanted = np.where((row >= 0) & (column >= 0), row * len(luns) + column, -1)
        place = places_of(wanted, session * len(luns) + lun)
        return np.append(self._numbers, -1)[place]


def find(source: Source) -> Volumes:
    """The volumes of a trace; ``source`` is its method ``table``."""
    by_host: dict[str, list[Member]] = defaultdict(list)
    for member in members(source):
        by_host[member.host].append(member)
    joined = [group for own in by_host.values() for group in groups(own)]
    joined.sort(key=lambda each: (each[2][0].session, each[2][0].lun))
    found = tuple(Volume(number, *group) for number, group in enumerate(joined))
    of_member = [(member.session, member.lun, volume.number) for volume in found for member in volume.members]
    sessions, luns, numbers = zip(*sorted(of_member), strict=True) if of_member else ((), (), ())
    return Volumes(
        found, np.array(sessions, dtype=np.int64), np.array(luns, dtype=np.uint64), np.array(numbers, dtype=np.int64)
    )
