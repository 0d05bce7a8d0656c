"""Volumes: the logical units that each initiator uses, over all their paths and logins.

What the target said decides: its designator (VPD page 83h), else vendor, product and serial number; only where it said
nothing, its name and the LUN, or the address and the LUN (docs/method.md, section 13). Two sessions of one volume are
paths to it, or one of them replaced the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.portals import PORTS
from iscsitrace.analysis.measures.data_commands import is_data_command, is_for, is_operation
from iscsitrace.analysis.measures.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import cells

Array = NDArray[Any]
Source = Callable[[str], Table]
"""Returns the table of a name, as ``Trace.table`` does."""

KNOWN_BY: Final = ("designator", "serial", "target", "address")
"""What a volume is known by, the surest first."""

NO_STORAGE: Final = frozenset({0x03, 0x0C, 0x0D, 0x1E, 0x1F})
"""Peripheral device types that hold no data: processor, controller, enclosure, well known logical unit, unknown."""

_UNIT_COLUMNS: Final = (
    *("session", "lun", "peripheral_qualifier", "device_type", "vendor", "product", "unit_serial_number", "designator"),
    *("target_port_group", "block_bytes", "block_count"),
)


@dataclass(frozen=True)
class Member:
    """A logical unit as one session sees it."""

    session: int
    lun: int
    host: str
    """Name of the initiator, or its address where no login was captured."""
    target: str
    """Name of the target, or its address where no login was captured, with the port if that is unusual."""
    has_target_name: bool
    path: int
    """The first of the sessions that replaced each other up to this one."""
    designator: str | None = None
    serial: tuple[str, str, str] | None = None
    """Vendor, product and serial number."""
    target_port_group: int | None = None
    capacity_bytes: int | None = None


@dataclass(frozen=True)
class Volume:
    """One logical unit of one initiator."""

    number: int
    known_by: str
    """One of KNOWN_BY."""
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


@dataclass(frozen=True)
class Volumes:
    """The volumes of a trace, and which of them each command went to."""

    all: tuple[Volume, ...]
    _sessions: Array
    _luns: Array
    _numbers: Array
    """Session, LUN and volume of each member, in order of session and LUN."""

    def of(self, session: int, lun: int) -> Volume | None:
        """The volume that a session has at a LUN."""
        number = int(self._find(np.array([session], dtype=np.int64), np.array([lun], dtype=np.uint64))[0])
        return self.all[number] if number >= 0 else None

    def of_commands(self, cycles: Table) -> Array:
        """The number of each command's volume, -1 for none."""
        found = self._find(cycles.raw("session").astype(np.int64), cycles.raw("lun"))
        return np.where(known(cycles, "session") & known(cycles, "lun"), found, -1)

    def _find(self, sessions: Array, luns: Array) -> Array:
        if not len(self._sessions):
            return np.full(len(sessions), -1, dtype=np.int64)
        every_lun, every_session = np.unique(self._luns), np.unique(self._sessions)
        keys = np.searchsorted(every_session, self._sessions) * len(every_lun) + np.searchsorted(every_lun, self._luns)
        row, column = _place(every_session, sessions), _place(every_lun, luns)
        wanted = row * len(every_lun) + column
        place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        is_there = (row >= 0) & (column >= 0) & (keys[place] == wanted)
        return np.where(is_there, self._numbers[place], -1)


def _place(every: Array, values: Array) -> Array:
    """Where each value stands among sorted ones, -1 for nowhere."""
    place = np.searchsorted(every, values).clip(max=len(every) - 1)
    return np.where(every[place] == values, place, -1)


def find(source: Source) -> Volumes:
    """The volumes of a trace; ``source`` is its method ``table``."""
    by_host: dict[str, list[Member]] = defaultdict(list)
    for member in _members(source):
        by_host[member.host].append(member)
    groups = [group for members in by_host.values() for group in _groups(members)]
    groups.sort(key=lambda each: (each[2][0].session, each[2][0].lun))
    found = tuple(Volume(number, *group) for number, group in enumerate(groups))
    rows = sorted((member.session, member.lun, volume.number) for volume in found for member in volume.members)
    sessions, luns, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    return Volumes(
        found, np.array(sessions, dtype=np.int64), np.array(luns, dtype=np.uint64), np.array(numbers, dtype=np.int64)
    )


Key = tuple[str, str, str]
"""What a volume is known by, its identity, and the target within which that holds (empty: everywhere)."""


class _Group:
    """The members with one identity."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._serials: set[tuple[str, str, str]] = set()
        self._luns: dict[int, int] = {}

    def add(self, member: Member) -> None:
        self.members.append(member)
        self._luns[member.session] = member.lun
        if member.serial:
            self._serials.add(member.serial)

    def contradicts(self, member: Member) -> bool:
        """Whether the target said something else of the member, or its session has the volume at another LUN."""
        is_other = bool(member.serial and self._serials and member.serial not in self._serials)
        return is_other or self._luns.get(member.session, member.lun) != member.lun


def _groups(members: Sequence[Member]) -> Iterable[tuple[str, str, tuple[Member, ...]]]:
    """What each volume of one initiator is known by, its identity and its members."""
    members = _without_shared(members)
    named: dict[Key, _Group] = defaultdict(_Group)
    places: dict[Hashable, set[Key]] = defaultdict(set)
    for member in members:
        if member.designator is not None:
            scope = "" if is_unique_in_the_world(member.designator) else member.target
            key = ("designator", member.designator, scope)
            named[key].add(member)
            for place in _places(member):
                places[place].add(key)
    for member in members:
        if member.designator is None:
            named[_known_elsewhere(member, named, places) or _own_key(member)].add(member)
    for (known_by, identity, _), group in named.items():
        yield known_by, identity, tuple(sorted(group.members, key=lambda each: (each.session, each.lun)))


def _own_key(member: Member) -> Key:
    if member.serial:
        return "serial", " ".join(member.serial), member.target
    return "target" if member.has_target_name else "address", f"{member.target} LUN {member.lun}", ""


def _places(member: Member) -> Iterable[Hashable]:
    """Where the identity of a member without a designator is looked up, the surest place first."""
    if member.serial:
        yield "serial", member.target, member.serial
    yield "path", member.path, member.lun
    yield "target", member.target, member.lun


def _known_elsewhere(member: Member, named: Mapping[Key, _Group], places: Mapping[Hashable, set[Key]]) -> Key | None:
    """The one designator that another session of this target got for what must be the same logical unit."""
    for place in _places(member):
        keys = [key for key in places.get(place, ()) if not named[key].contradicts(member)]
        if len(keys) == 1:
            return keys[0]
    return None


def _without_shared(members: Sequence[Member]) -> list[Member]:
    """The members without designators and serial numbers that one session has at several LUNs: they name nothing."""
    luns: dict[tuple[int, object], set[int]] = defaultdict(set)
    for member in members:
        for name in (member.designator, member.serial):
            if name is not None:
                luns[member.session, name].add(member.lun)
    shared = {name for (_, name), own in luns.items() if len(own) > 1}
    return [
        replace(
            member,
            designator=None if member.designator in shared else member.designator,
            serial=None if member.serial in shared else member.serial,
        )
        for member in members
    ]


def is_unique_in_the_world(designator: str) -> bool:
    """Whether no other target has it by default: it has the IEEE company of its maker and a number, or is an IQN.

    Other targets can have the same text, the same name without a company (tgt) and the same zeros (LIO with a serial
    number without hexadecimal digits).
    """
    kind, _, name = designator.partition(".")
    if kind == "naa":
        # NAA 2, 5 and 6 begin with the company; 3 is assigned locally
        first = {"2": 4, "5": 1, "6": 1}.get(name[:1])
    elif kind == "eui":
        first = 0
    else:
        return designator.startswith("iqn.")
    return first is not None and bool(name[first : first + 6].strip("0") and name[first + 6 :].strip("0"))


# --- members


def _members(source: Source) -> list[Member]:
    """The logical units that hold data, or that were read, written or asked whether they are ready."""
    units = {(row["session"], row["lun"]): row for row in source("logical_units").rows(_UNIT_COLUMNS)}
    used, checked = _used(source("cycles"))
    places = ends(source)
    found = []
    for session, lun in sorted({*units, *used}):
        if session not in places:
            continue
        row = units.get((session, lun), {})
        if (session, lun) not in used and not _is_storage(row, is_checked=(session, lun) in checked):
            continue
        serial = (row.get("vendor"), row.get("product"), row.get("unit_serial_number"))
        blocks, size = row.get("block_count"), row.get("block_bytes")
        found.append(
            Member(
                session=session,
                lun=lun,
                **places[session],
                designator=row.get("designator"),
                serial=serial if all(serial) else None,  # type: ignore[arg-type]
                target_port_group=row.get("target_port_group"),
                capacity_bytes=blocks * size if blocks and size else None,
            )
        )
    return found


def _is_storage(row: dict[str, Any], *, is_checked: bool) -> bool:
    if row["peripheral_qualifier"] is None:
        return is_checked
    return bool(row["peripheral_qualifier"] == 0 and row["device_type"] not in NO_STORAGE)


def _used(cycles: Table) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Sessions and LUNs with commands that read, write, erase or flush; and with TEST UNIT READY, as path checkers
    send it.
    """
    if not len(cycles):
        return set(), set()
    is_placed = known(cycles, "session") & known(cycles, "lun")
    is_used = is_data_command(cycles) | is_for(cycles, "flush")
    is_checked = is_operation(cycles, "test_unit_ready")
    return _distinct(cycles, is_placed & is_used), _distinct(cycles, is_placed & is_checked)


def _distinct(cycles: Table, which: Array) -> set[tuple[int, int]]:
    sessions, luns = cycles.raw("session")[which], cycles.raw("lun")[which]
    # most commands go where the one before went
    is_new = np.ones(len(sessions), dtype=bool)
    is_new[1:] = (sessions[1:] != sessions[:-1]) | (luns[1:] != luns[:-1])
    return set(zip(sessions[is_new].tolist(), luns[is_new].tolist(), strict=True))


def ends(source: Source) -> dict[int, dict[str, Any]]:
    """Initiator, target and path of each normal session. Of sessions that replaced each other one login is enough."""
    addresses = {
        row["session"]: (row["initiator_address"], _portal(row))
        for row in source("connections").rows(("session", "initiator_address", "target_address", "target_port"))
        if row["session"] is not None
    }
    path: dict[int, int] = {}
    names: dict[int, list[str | None]] = {}
    discoveries = set()
    for row in source("sessions").rows(("session", "session_type", "replaces", "initiator_name", "target_name")):
        number = row["session"]
        path[number] = path.get(row["replaces"], number)
        known_names = names.setdefault(path[number], [None, None])
        for place, name in enumerate((row["initiator_name"], row["target_name"])):
            known_names[place] = known_names[place] or name
        if row["session_type"] == "discovery":
            discoveries.add(number)
    hosts = _hosts(addresses, {number: names[first][0] for number, first in path.items()})
    found = {}
    for number in sorted(addresses.keys() - discoveries):
        first = path.get(number, number)
        host, target = names.get(first, (None, None))
        address, portal = addresses[number]
        found[number] = {
            "host": host or hosts.get(address) or address,
            "target": target or portal,
            "has_target_name": target is not None,
            "path": first,
        }
    return found


def _portal(row: dict[str, Any]) -> str:
    address, port = row["target_address"], row["target_port"] or None
    return str(address) if port in (None, *PORTS) else cells.endpoint(row, "target")


def _hosts(addresses: dict[int, tuple[str, str]], names: dict[int, str | None]) -> dict[str, str]:
    """The initiator behind each address from which only one logged in."""
    found: dict[str, set[str]] = defaultdict(set)
    for number, (address, _) in addresses.items():
        if name := names.get(number):
            found[address].add(name)
    return {address: own.pop() for address, own in found.items() if len(own) == 1}
