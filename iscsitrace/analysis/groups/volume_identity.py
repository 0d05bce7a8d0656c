"""Which logical units of one initiator are one volume: by designator, serial number, target or address, the surest
first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from iscsitrace.analysis.groups.logical_units import Member

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


def groups(members: Sequence[Member]) -> Iterable[tuple[str, str, tuple[Member, ...]]]:
    """What each volume of one initiator is known by, its identity and its members."""
    if len(members) == 1:
        known_by, identity, _ = _key(members[0])
        yield known_by, identity, tuple(members)
        return
    members = _without_shared(members)
    named: dict[Key, _Group] = defaultdict(_Group)
    places: dict[Hashable, set[Key]] = defaultdict(set)
    for member in members:
        if member.designator is not None:
            key = _key(member)
            named[key].add(member)
            for place in _places(member):
                places[place].add(key)
    for member in members:
        if member.designator is None:
            named[_known_elsewhere(member, named, places) or _key(member)].add(member)
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
