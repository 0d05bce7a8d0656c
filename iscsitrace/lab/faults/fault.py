"""A fault of a run: its kind, how each world makes it, its details, and what it did.

`lab.fault_catalogue` has all kinds. A fault may name an address before a run begins, so those that a run of
our own programs will have are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab.settings.kinds import TEXT, TIME, Value, ValueKind

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


def address_of_target(world: str, number: int, *, is_ipv6: bool) -> IPv4Address | IPv6Address:
    """The address of a target by its number."""
    return ip_address(_FIRST_TARGET[world, is_ipv6]) + number


def address_of_nobody(world: str, *, is_ipv6: bool) -> IPv4Address | IPv6Address:
    """An address of the same network that no host has."""
    return ip_address(_NOBODY[world, is_ipv6])


TARGET = "target"
"""The world of ``iscsitrace target``: a target alone; the others of our own programs."""
INITIATOR_ALONE = "initiator"
"""The world of ``iscsitrace initiator``: an initiator alone."""
Details = Mapping[str, Any]
"""Values by name: times in ns, sizes in bytes."""
Settings = dict[str, Any]
"""``client``, ``portals`` and ``world`` of a run of our own programs; of a target alone, its ``portals``."""


class FaultImpossible(ToolMissing):
    """A fault that cannot be set up. A run that expects failures does not expect this one."""


@dataclass(frozen=True)
class FaultDetail:
    """A detail of a kind of fault."""

    kind: ValueKind
    default: str
    """As it is typed."""


def _no_effect(_: Any, __: Details) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Ours:
    """How our own programs and links make a kind of fault: by settings of the core."""

    apply: Callable[[Settings, Placed], None]
    worlds: tuple[str, ...] = (SIMULATED, NAMESPACES)
    require: Callable[[Fault], None] = lambda _: None
    """Raises InputInvalid for details that these worlds do not have."""


@dataclass(frozen=True)
class InGuests:
    """How guests make a kind of fault."""

    effect: Callable[[Any, Details], AbstractContextManager[object]] = _no_effect
    """Begins it at the `Hosts` of a run when it is entered, and ends it when it is left; none in a fault of the capture
    alone.
    """
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of iscsid.conf that it needs, unless the run has others."""
    programs: tuple[str, ...] = ("lio", "tgt")
    """The targets that it can be made with."""


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault: a row of the catalogue."""

    name: str
    meaning: str
    """In one sentence."""
    on: str
    """The host that it acts on, unless it says otherwise: ``initiator`` or ``target``."""
    own: Mapping[str, FaultDetail] = field(default_factory=dict)
    lasts: str | None = None
    """How long it lasts, in one that is timed during the I/O, as it is typed. None: it begins before the login, and
    lasts for the whole run.
    """
    ours: Ours | None = None
    guests: InGuests | None = None

    @property
    def is_timed(self) -> bool:
        """Whether it begins during the I/O, and not before the login."""
        return self.lasts is not None

    @property
    def details(self) -> dict[str, FaultDetail]:
        """All its details: ``on`` is the host, ``at`` the time after the first I/O, ``for`` how long it lasts."""
        found = {"on": FaultDetail(TEXT, self.on)}
        if self.lasts is not None:
            found |= {"at": FaultDetail(TIME, "1s"), "for": FaultDetail(TIME, self.lasts)}
        return found | dict(self.own)


@dataclass(frozen=True)
class Fault:
    """A fault of a run."""

    kind: FaultKind
    details: Details

    @property
    def host(self) -> str:
        """The name of the host that it acts on."""
        return str(self.details["on"])

    def as_dict(self) -> dict[str, Any]:
        """For the truth, without its times."""
        details = {name: value for name, value in self.details.items() if name != "on"}
        return {"name": self.kind.name, "host": self.host, "details": details}


def fault(kind: FaultKind, typed: Mapping[str, str]) -> Fault:
    """A fault with some details as they are typed, and the defaults of the others; InputInvalid for wrong ones."""
    known = kind.details
    if unknown := [name for name in typed if name not in known]:
        raise InputInvalid(f"{kind.name} has no detail {unknown[0]}; it has {', '.join(known)}")
    return Fault(kind, {name: _value(kind, name, detail, typed) for name, detail in known.items()})


def _value(kind: FaultKind, name: str, detail: FaultDetail, typed: Mapping[str, str]) -> Value:
    value = detail.kind.parse(typed.get(name, detail.default))
    if value is None:
        raise InputInvalid(f"{kind.name}: {name}={typed[name]} is not {detail.kind.needed}")
    return value


@dataclass(frozen=True)
class Placed:
    """A fault in a run of our own programs: its number there, its details, and the target that it is about."""

    number: int
    fault: Fault
    target: int
    """0 for one of the initiator."""
    world: str

    def __getitem__(self, name: str) -> Any:
        return self.fault.details[name]

    @property
    def when(self) -> dict[str, Any]:
        """When it is there, for the core."""
        if not self.fault.kind.is_timed:
            return {"fault": self.number}
        return {"fault": self.number, "at_ns": self["at"], "for_ns": self["for"]}


Hits = dict[str, Any]
"""``fault began_ns ended_ns count from_ns to_ns``, as the core logs them."""


def hits_of_link(log: dict[str, Any] | None) -> list[Hits]:
    """Takes the hits of both directions out of the log of a link."""
    return [hit for way in ("to_target", "to_initiator") if log for hit in log[way].pop("faults", ())]


def truth_of_faults(
    faults: Sequence[Fault], hits: Iterable[Hits], started_ns: int, ended_ns: int
) -> list[dict[str, Any]]:
    """A row per fault: ``name host details``; ``began_ns`` and ``ended_ns``, between which it was there, null for one
    that did not begin; ``count`` packets, commands, logins, connections or cards that it hit, the first and last of
    them at ``from_ns`` and ``to_ns``.
    """
    by_fault: dict[int, list[Hits]] = {}
    for hit in hits:
        by_fault.setdefault(hit["fault"], []).append(hit)
    return [_row(each, by_fault.get(number, []), started_ns, ended_ns) for number, each in enumerate(faults)]


def _row(fault: Fault, hits: list[Hits], started_ns: int, ended_ns: int) -> dict[str, Any]:
    if fault.kind.is_timed:
        began_ns = _least(hit["began_ns"] for hit in hits if (hit["began_ns"] or ended_ns) < ended_ns)
        ends = [ended_ns if hit["ended_ns"] is None else hit["ended_ns"] for hit in hits]
        end_ns = None if began_ns is None else min(ended_ns, max(ends, default=ended_ns))
    else:
        began_ns, end_ns = started_ns, ended_ns
    return {
        **fault.as_dict(),
        "began_ns": began_ns,
        "ended_ns": end_ns,
        "count": sum(hit["count"] for hit in hits),
        "from_ns": _least(hit["from_ns"] for hit in hits),
        "to_ns": max((hit["to_ns"] for hit in hits if hit["to_ns"] is not None), default=None),
    }


def _least(times: Iterable[int | None]) -> int | None:
    return min((each for each in times if each is not None), default=None)
