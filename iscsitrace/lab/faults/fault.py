"""A fault of a run: its kind, how each world makes it, and its details. `lab.fault_catalogue` has all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab.faults.addresses import NAMESPACES, SIMULATED
from iscsitrace.lab.settings.kinds import TEXT, TIME, Value, ValueKind

TARGET = "target"
"""The world of ``iscsitrace target``: a target alone. `addresses` has the others of our own programs."""
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
