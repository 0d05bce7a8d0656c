"""What a study published and what it claims: the ``[[published]]`` and ``[[claims]]`` of a definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from iscsitrace.experiments.definition_figures import Text
from iscsitrace.experiments.definition_settings import (
    Mistake,
    Place,
    SettingTable,
    Written,
    require_among,
    written,
)
from iscsitrace.experiments.quantities import QUANTITIES
from iscsitrace.lab.settings.table import SETTINGS

WORLDS: Final = ("simulated", "real")
"""The worlds of our own programs, in which an arm runs unless it names others."""
GUESTS: Final = "guests"
ALL_WORLDS: Final = (*WORLDS, GUESTS)


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Where the study was published; empty where that is not recorded."""

    authors: str = ""
    title: str = ""
    venue: str = ""
    year: int | None = None
    is_probable: bool = msgspec.field(name="probable", default=False)
    """Whether it may be another one; ``remark`` has what agrees with the study, and what does not."""
    remark: str = ""


class LeftOut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A figure, table or discussion of the study that is not repeated."""

    what: Text
    why: Text


class Published(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True, rename="kebab"):
    """Values that a study published, or that follow from such."""

    quantity: str
    """One of QUANTITIES."""
    source: str = ""
    """Its place in the study: figure, table or sentence."""
    note: str = ""
    """Why the result differs, or what the value is."""
    is_computed: bool = msgspec.field(name="computed", default=False)
    """Whether the study does not print it: it is computed from what the study prints."""
    where: SettingTable = SettingTable()
    arms: tuple[str, ...] = ()
    x: str
    """A setting."""
    values: tuple[tuple[Any, int | float], ...]
    """Value of ``x`` as it is written, and the published value in the quantity's unit; its digits count."""

    def __post_init__(self) -> None:
        require_among("quantity", self.quantity, QUANTITIES)
        _ = self.pairs

    @cached_property
    def pairs(self) -> tuple[tuple[Written, float], ...]:
        """Value of the setting ``x``, and the published value."""
        if self.x not in SETTINGS:
            raise Mistake("x", f"there is no setting {self.x!r}")
        kind = SETTINGS[self.x].kind
        return tuple((written(f"values[{number}]", kind, at), value) for number, (at, value) in enumerate(self.values))


class Spot(SettingTable, frozen=True, kw_only=True):
    """A place of the grid: an arm, and settings."""

    arm: str


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A number at a place, or at one place beside another, and the limits within which a claim holds."""

    quantity: str
    """One of QUANTITIES."""
    of: Spot
    over: Spot | None = None
    """The number is divided by the one here."""
    minus: Spot | None = None
    """The one here is subtracted from the number."""
    between: tuple[float, float]

    def __post_init__(self) -> None:
        require_among("quantity", self.quantity, QUANTITIES)
        if self.between[0] > self.between[1]:
            raise Mistake("between", "expected the lower and the upper limit, like [1.8, 2.2]")
        if self.over is not None and self.minus is not None:
            raise Mistake("minus", "use over or minus, not both")

    @property
    def unit(self) -> str:
        """The unit of the number."""
        return "times" if self.over else QUANTITIES[self.quantity].unit

    @property
    def beside(self) -> Spot | None:
        """The other place of a ratio or a difference; None for a number on its own."""
        return self.over or self.minus

    @property
    def spots(self) -> Iterator[tuple[str, Spot]]:
        """The places by their keys."""
        yield from ((key, spot) for key in ("of", "over", "minus") if (spot := getattr(self, key)) is not None)


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A claim of the study, or of this project."""

    where: SettingTable = SettingTable()
    """Settings that all of its places have."""
    name: Text
    text: Text
    is_own: bool = msgspec.field(name="own", default=False)
    """Whether the claim is this project's own; the study makes the others."""
    note: str = ""
    """Why the result may differ, or why the claim cannot be tested."""
    real_note: str = ""
    """Replaces the note in the real world."""
    checks: tuple[Check, ...] = ()
    """The claim is reproduced when all hold; none where it cannot be tested."""
    worlds: tuple[str, ...] = WORLDS
    """The worlds in which it can be tested."""
    evidence: tuple[Spot, ...] = ()
    """Places whose captures show why the result differs; those of the checks when empty."""

    def __post_init__(self) -> None:
        require_among("worlds", self.worlds, ALL_WORLDS)

    def place(self, spot: Spot) -> Place:
        """All settings of a place."""
        return {**self.where.settings, **spot.settings}

    @property
    def spots(self) -> Mapping[str, Spot]:
        """Every place by its key below the claim."""
        found = {f"evidence[{number}]": spot for number, spot in enumerate(self.evidence)}
        for number, check in enumerate(self.checks):
            found |= {f"checks[{number}].{key}": spot for key, spot in check.spots}
        return found
