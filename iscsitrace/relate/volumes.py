"""Volumes: the logical units that each initiator uses, over all their paths and logins.

What the target said decides: its designator (VPD page 83h), else vendor, product and serial number; only where it said
nothing, its name and the LUN, or the address and the LUN (docs/method.md, section 13). Two sessions of one volume are
paths to it, or one of them replaced the other.

Logical units count that hold data, or that were read, written or asked whether they are ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from iscsitrace.measure.data_commands import is_operation, is_storage_command
from iscsitrace.relate.portals import PORTS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct, places_of
from iscsitrace.tables.table import Array, Source, Table
from iscsitrace.wording import cells

NO_STORAGE: Final = frozenset({0x03, 0x0C, 0x0D, 0x1E, 0x1F})
"""Peripheral device types that hold no data: processor, controller, enclosure, well known logical unit, unknown."""

_UNIT_COLUMNS: Final = (
    *("session", "lun", "peripheral_qualifier", "device_type", "vendor", "product", "unit_serial_number", "designator"),
    *("target_port_group", "block_bytes", "block_count"),
)


class Member(NamedTuple):
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


def members(source: Source) -> list[Member]:
    """The logical units of all sessions, in order of session and LUN."""
    units = {(row["session"], row["lun"]): row for row in source("logical_units").rows(_UNIT_COLUMNS)}
    used, checked = _used(source("cycles"))
    places = ends_of_sessions(source)
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
    is_placed = known(cycles, "session") & known(cycles, "lun")
    is_checked = is_operation(cycles, "test_unit_ready")
    return _distinct(cycles, is_placed & cycles.each(is_storage_command)), _distinct(cycles, is_placed & is_checked)


def _distinct(cycles: Table, which: Array) -> set[tuple[int, int]]:
    rows = np.flatnonzero(which)
    sessions, session = distinct(cycles.raw("session")[rows])
    luns, lun = distinct(cycles.raw("lun")[rows])
    places, _ = distinct(session * len(luns) + lun)
    if not len(places):
        return set()
    return set(zip(sessions[places // len(luns)].tolist(), luns[places % len(luns)].tolist(), strict=True))


def ends_of_sessions(source: Source) -> dict[int, dict[str, Any]]:
    """Initiator, target and path of each normal session. Of sessions that replaced each other one login is enough."""
    connections = source("connections")
    own = connections.select(known(connections, "session"))
    columns = (own.raw(name).tolist() for name in ("session", "initiator_address", "target_address", "target_port"))
    addresses = {number: (host, _portal(target, port)) for number, host, target, port in zip(*columns, strict=True)}
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


def _portal(address: str, port: int) -> str:
    return (
        address if port in (0, *PORTS) else cells.endpoint({"target_address": address, "target_port": port}, "target")
    )


def _hosts(addresses: dict[int, tuple[str, str]], names: dict[int, str | None]) -> dict[str, str]:
    """The initiator behind each address from which only one logged in."""
    found: dict[str, set[str]] = defaultdict(set)
    for number, (address, _) in addresses.items():
        if name := names.get(number):
            found[address].add(name)
    return {address: own.pop() for address, own in found.items() if len(own) == 1}


Key = tuple[str, str, str]
"""What a volume is known by, its identity, and the target within which that holds (empty: everywhere)."""


Serial = tuple[str, str, str]
"""Vendor, product and serial number."""


class _Group:
    """The members with one identity."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.serials: set[Serial] = set()
        self._luns: dict[int, int] = {}

    def add(self, member: Member) -> None:
        self.members.append(member)
        self._luns[member.session] = member.lun
        if member.serial:
            self.serials.add(member.serial)

    def contradicts(self, member: Member) -> bool:
        """Whether the target said something else of the member, or its session has the volume at another LUN."""
        is_other = bool(member.serial and self.serials and member.serial not in self.serials)
        return is_other or self._luns.get(member.session, member.lun) != member.lun


def groups(members: Sequence[Member]) -> Iterable[tuple[str, str, tuple[Member, ...]]]:
    """What each volume of one initiator is known by, its identity and its members."""
    if len(members) == 1:
        known_by, identity, _ = _key(members[0])
        yield known_by, identity, tuple(members)
        return
    members = _without_shared(members)
    named: dict[Key, _Group] = defaultdict(_Group)
    for member in members:
        if member.designator is not None:
            named[_key(member)].add(member)
    elsewhere = _Elsewhere(named)
    for member in members:
        if member.designator is None:
            key = elsewhere.key_of(member)
            named[key or _key(member)].add(member)
            if key and member.serial:
                elsewhere.note_serial(key, member.serial)
    for (known_by, identity, _), group in named.items():
        yield known_by, identity, tuple(sorted(group.members, key=lambda each: (each.session, each.lun)))


def _key(member: Member) -> Key:
    """By the surest that the target said of it."""
    if member.designator is not None:
        scope = "" if is_unique_in_the_world(member.designator) else member.target
        return "designator", member.designator, scope
    if member.serial:
        return "serial", " ".join(member.serial), member.target
    return "target" if member.has_target_name else "address", f"{member.target} LUN {member.lun}", ""


def _places(member: Member) -> Iterable[Hashable]:
    """Where the identity of a member without a designator is looked up, the surest place first."""
    if member.serial:
        yield "serial", member.target, member.serial
    yield "path", member.path, member.lun
    yield "target", member.target, member.lun


class _Elsewhere:
    """The volumes with a designator, by the places where members without one look for theirs.

    At each place they are apart by serial number: a member with one looks only at those that may have it.
    """

    def __init__(self, named: Mapping[Key, _Group]) -> None:
        self._named = named
        self._places: dict[Key, set[Hashable]] = {}
        self._keys: dict[Hashable, dict[Serial | None, set[Key]]] = {}
        for key, group in named.items():
            self._places[key] = {place for member in group.members for place in _places(member)}
            for serial in group.serials or (None,):
                self._add(key, serial)

    def _add(self, key: Key, serial: Serial | None) -> None:
        for place in self._places[key]:
            self._keys.setdefault(place, {}).setdefault(serial, set()).add(key)

    def note_serial(self, key: Key, serial: Serial) -> None:
        """A member with this serial number is of the volume: if it had none, that is its own from now on."""
        for place in self._places[key]:
            keys = self._keys[place]
            if key not in keys.get(None, ()):
                return
            keys[None].discard(key)
        self._add(key, serial)

    def key_of(self, member: Member) -> Key | None:
        """The one designator that another session of this target got for what must be the same logical unit."""
        for place in _places(member):
            by_serial = self._keys.get(place, {})
            candidates = (
                (by_serial.get(None, ()), by_serial.get(member.serial, ())) if member.serial else by_serial.values()
            )
            keys = (key for keys in candidates for key in keys if not self._named[key].contradicts(member))
            # two are enough to know that it is none of them for certain
            found = list(islice(keys, 2))
            if len(found) == 1:
                return found[0]
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
        member._replace(
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
