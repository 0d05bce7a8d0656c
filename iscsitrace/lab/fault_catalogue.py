"""All kinds of faults by name, the worlds that can make each, and how one is typed.

The kinds of guests are those of `lab.guests`; here are those that only our own programs and links make.
"""

from __future__ import annotations

from collections.abc import Sequence

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.faults.addresses import NAMESPACES, SIMULATED
from iscsitrace.lab.faults.fault import Detail, Fault, FaultKind
from iscsitrace.lab.faults.settings import EFFECTS, TARGET
from iscsitrace.lab.guests import faults as of_guests
from iscsitrace.lab.settings.kinds import COUNT, SHARE, TEXT, TIME, one_of

GUESTS = "guests"
WORLDS = (SIMULATED, NAMESPACES, GUESTS, TARGET)
"""The last is ``iscsitrace target``, which has neither an initiator nor a link."""

_DISK = {"disk": Detail(COUNT, "0")}
_DIRECTION = one_of("to-target", "to-initiator")
_OWN = (
    FaultKind(
        "ack-loss",
        "The path to a target drops a share of the TCP segments without data, in one direction.",
        "target",
        own={"direction": Detail(_DIRECTION, "to-target"), "share": Detail(SHARE, "100%")},
        lasts="2s",
    ),
    FaultKind(
        "reordering",
        "The path to a target holds a share of the packets back, so that later ones overtake them.",
        "target",
        own={
            "direction": Detail(_DIRECTION, "to-initiator"),
            "share": Detail(SHARE, "5%"),
            "by": Detail(TIME, "3ms"),
        },
        lasts="5s",
    ),
    FaultKind(
        "login-refused",
        "A target refuses logins with this status class and detail, the first COUNT of them; 0 for all.",
        "target",
        own={"status": Detail(TEXT, "3/1"), "count": Detail(COUNT, "0")},
    ),
    FaultKind(
        "login-redirected",
        "A target redirects the first login to its own address, where the next succeeds.",
        "target",
    ),
    FaultKind(
        "key-mismatch",
        "The target requires a digest that the initiator does not offer.",
        "target",
        own={"key": Detail(one_of("HeaderDigest", "DataDigest"), "HeaderDigest")},
    ),
    FaultKind("busy", "A disk of a target answers commands with BUSY.", "target", own=_DISK, lasts="2s"),
    FaultKind(
        "task-set-full", "A disk of a target answers commands with TASK SET FULL.", "target", own=_DISK, lasts="2s"
    ),
)
KINDS = of_guests.KINDS | {kind.name: kind for kind in _OWN}
"""All kinds by name."""


def worlds_of(name: str) -> tuple[str, ...]:
    """The worlds that can make a fault."""
    own = EFFECTS[name].worlds if name in EFFECTS else ()
    return tuple(world for world in WORLDS if world in own or (world == GUESTS and name in of_guests.KINDS))


def names_in(world: str) -> list[str]:
    """The names of the faults of a world."""
    return [name for name in KINDS if world in worlds_of(name)]


def parse(text: str) -> Fault:
    """A fault as it is typed: ``black-out,at=2s,for=12s``. InputInvalid lists what there is."""
    return of_guests.parse(text, KINDS)


def require_in(world: str, faults: Sequence[Fault], hosts: Sequence[str]) -> None:
    """InputInvalid for a fault that a world cannot make, or of a host that the run does not have."""
    for each in faults:
        name = each.kind.name
        if world not in worlds_of(name):
            raise InputInvalid(f"{name}: not in {world}; it can be made in {', '.join(worlds_of(name))}")
        if each.host not in hosts:
            raise InputInvalid(f"{name}: there is no host {each.host!r}; there are {', '.join(hosts)}")
        if world != GUESTS:
            EFFECTS[name].require(each)
