"""The ``[[figures]]`` of a definition: one struct per kind, selected by the key ``kind``."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from iscsitrace.experiments.definition_settings import Mistake, SettingTable, require_among
from iscsitrace.experiments.quantities import QUANTITIES

DELAYS: Final = ("link.one-way-delay", "link.target-delays")
"""Settings that are one-way delays."""
ARM: Final = "arm"
"""The value of ``lines`` that draws a line for each arm, instead of one for each value of a setting."""
Text = Annotated[str, Meta(pattern=r"\S")]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab", tag_field="kind"):
    """What every figure has."""

    name: Text
    """The name of its file."""
    title: Text
    where: SettingTable = SettingTable()
    """Only points with these settings."""
    arms: tuple[str, ...] = ()
    """Only points of these arms; all arms when empty."""

    def __post_init__(self) -> None:
        if not self.name.replace("-", "").isalnum():
            raise Mistake("name", "it names a file: use letters, digits and dashes")


class LineFigure(Figure, frozen=True, kw_only=True, tag="lines"):
    """A quantity over a setting."""

    x: str
    """A setting."""
    y: str
    """One of QUANTITIES."""
    lines: str = ARM
    """A line for each value of this setting, or for each arm."""
    to_scale: bool = False
    """Whether numbers on the x axis are spaced by value; else values are spaced evenly."""
    is_rtt: bool = msgspec.field(name="as-rtt", default=False)
    """Whether one-way delays along x are shown as the RTT, twice as long: as the study has them."""
    printed_range: tuple[float, float] | None = None
    """Limits of y that the study prints without a place along x."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("y", self.y, QUANTITIES)
        if self.printed_range is not None and self.printed_range[0] > self.printed_range[1]:
            raise Mistake("printed-range", "expected the lower and the upper limit, like [47, 53]")
        if self.is_rtt and self.x not in DELAYS:
            raise Mistake("as-rtt", f"x has to be one of {', '.join(DELAYS)}")


class BudgetFigure(Figure, frozen=True, kw_only=True, tag="budget"):
    """The time breakdown of a system call over a setting, a panel for each arm."""

    x: str
    """A setting."""


class FinishFigure(Figure, frozen=True, kw_only=True, tag="finishes"):
    """When each stream finished, first to last."""

    lines: str = ARM


class CourseFigure(Figure, frozen=True, kw_only=True, tag="courses"):
    """Curves over the time of a run."""

    courses: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Names of `course.Course`, all in one unit."""
    lines: str = ARM


class PacketFigure(Figure, frozen=True, kw_only=True, tag="packets"):
    """The packets of a few commands, from the capture of one point."""

    cycles: Annotated[int, Meta(ge=1)] = 1
    """How many commands."""


class StreamFigure(Figure, frozen=True, kw_only=True, tag="streams"):
    """The streams of one point, from its capture."""


AnyFigure = LineFigure | PacketFigure | StreamFigure | FinishFigure | CourseFigure | BudgetFigure
CAPTURED: Final = (PacketFigure, StreamFigure)
"""Figures that are drawn from a capture."""
