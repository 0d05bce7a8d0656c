"""The definition of an experiment: a TOML file, decoded and checked. docs/lab.md describes its keys.

It comes with the package, or lies elsewhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings.table import SETTINGS
from iscsitrace.studies.definition_settings import (
    Circumstance,
    Exhibit,
    GriddedTable,
    Mistake,
    Omission,
    Paper,
    Place,
    SettingTable,
    Text,
    Written,
    require_among,
    written,
)
from iscsitrace.studies.quantities import QUANTITIES

_FOLDER: Final = Path(__file__).parent / "definitions"
ENDING: Final = ".toml"
DELAYS: Final = ("link.one-way-delay", "link.target-delays")
"""Settings that are one-way delays."""
ARM: Final = "arm"
"""The value of ``lines`` that draws a line for each arm, instead of one for each value of a setting."""


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

    def shows(self, arm: str, values: Mapping[str, Any]) -> bool:
        """Whether it has a place of an arm with these settings, in the units of a run."""
        is_there = all(name in values and values[name] == each.value for name, each in self.where.settings.items())
        return is_there and (not self.arms or arm in self.arms)


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
    of_target: Annotated[int, Meta(ge=0)] = 0
    """x is the delay to this target alone, counted from 1; 0 for the delays to all of them."""
    printed_range: tuple[float, float] | None = None
    """Limits of y that the study prints without a place along x."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("y", self.y, QUANTITIES)
        if self.printed_range is not None and self.printed_range[0] > self.printed_range[1]:
            raise Mistake("printed-range", "expected the lower and the upper limit, like [47, 53]")
        if self.is_rtt and self.x not in DELAYS:
            raise Mistake("as-rtt", f"x has to be one of {', '.join(DELAYS)}")
        if self.of_target and not (self.is_rtt and self.x == "link.target-delays"):
            raise Mistake("of-target", "x has to be link.target-delays, as-rtt")


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
    """Names of `from_truth.Course`, all in one unit."""
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


WORLDS: Final = ("simulated", "real")
"""The worlds of our own programs, in which an arm runs unless it names others."""
GUESTS: Final = "guests"
ALL_WORLDS: Final = (*WORLDS, GUESTS)


READINGS: Final = {"MiB/s": ("MB/s", 2**20 / 1e6)}
"""Units that a printed value may be in, with the unit of our quantity and the factor to it."""


class Published(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True, rename="kebab"):
    """Values that a study published, or that follow from such."""

    quantity: str
    """One of QUANTITIES."""
    source: str = ""
    """Its place in the study: section, figure or table."""
    quotation: str = ""
    """The words of the paper that have the value, in its language."""
    printed_unit: str = ""
    """The unit as it is printed; that of the quantity when empty."""
    read_as: str = ""
    """The unit that the printed one is taken for, one of READINGS, where that is not the quantity's."""
    note: str = ""
    """Why the result differs."""
    remark: str = ""
    """What a reader has to know about the value, whatever the verdict."""
    is_computed: bool = msgspec.field(name="computed", default=False)
    """Whether the study does not print it: it is computed from what the study prints."""
    where: SettingTable = SettingTable()
    arms: tuple[str, ...] = ()
    x: str
    """A setting."""
    values: tuple[tuple[Any, int | float], ...]
    """Value of ``x`` as it is written, and the published value as it is printed; its digits count."""
    worlds: tuple[str, ...] = WORLDS
    """The worlds in which ours is compared with it: none where ours is set or computed from it."""
    is_placed: bool = msgspec.field(name="placed", default=True)
    """Whether the study prints the place along ``x``; else it is our choice, and figures draw the value as a level."""

    def __post_init__(self) -> None:
        require_among("quantity", self.quantity, QUANTITIES)
        require_among("worlds", self.worlds, ALL_WORLDS)
        if self.read_as:
            require_among("read-as", self.read_as, READINGS)
            if QUANTITIES[self.quantity].unit != READINGS[self.read_as][0]:
                raise Mistake("read-as", f"the quantity has to be one in {READINGS[self.read_as][0]}")
        _ = self.pairs

    @property
    def scale(self) -> float:
        """From the unit that the value is read in to the unit of the quantity."""
        return READINGS[self.read_as][1] if self.read_as else 1.0

    @cached_property
    def pairs(self) -> tuple[tuple[Written, float], ...]:
        """Value of the setting ``x``, and the published value as it is printed."""
        if self.x not in SETTINGS:
            raise Mistake("x", f"there is no setting {self.x!r}")
        kind = SETTINGS[self.x].kind
        return tuple((written(f"values[{number}]", kind, at), value) for number, (at, value) in enumerate(self.values))


class Spot(SettingTable, frozen=True, kw_only=True):
    """A place of the grid: an arm, and settings."""

    arm: str


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A number at a place, or at one place beside another, and the limits within which a claim holds.

    The number is ``of``, or ``of - minus``, or ``of / over``; or it compares two slopes, ``(of - minus) / (over -
    over-minus)``, or two ratios, ``(of / over) / (beside / beside-over)``.
    """

    quantity: str
    """One of QUANTITIES."""
    of: Spot
    over: Spot | None = None
    minus: Spot | None = None
    over_minus: Spot | None = None
    beside: Spot | None = None
    beside_over: Spot | None = None
    between: tuple[float, float]
    printed: str = ""
    """What the study prints for the number, with its unit."""
    read_as: str = ""
    """The unit that the printed one is taken for, one of READINGS, where that is not the check's."""

    def __post_init__(self) -> None:
        require_among("quantity", self.quantity, QUANTITIES)
        if self.between[0] > self.between[1]:
            raise Mistake("between", "expected the lower and the upper limit, like [1.8, 2.2]")
        if self.read_as:
            require_among("read-as", self.read_as, READINGS)
        if (self.over_minus is not None) != (self.over is not None and self.minus is not None):
            raise Mistake("over-minus", "a ratio of two differences needs over, minus and over-minus")
        is_of_ratios = self.beside is not None and self.over is not None and self.minus is None
        if (self.beside_over is not None) != is_of_ratios or (self.beside is not None) != is_of_ratios:
            raise Mistake("beside", "a ratio of two ratios needs over, beside and beside-over, and no minus")

    @property
    def unit(self) -> str:
        """The unit of the number."""
        return "times" if self.over else QUANTITIES[self.quantity].unit

    @property
    def sides(self) -> tuple[tuple[Spot, ...], ...]:
        """What is divided, and by what: each a place, or two whose numbers are subtracted; of two ratios all four."""
        pairs = (self.of, self.minus), (self.over, self.over_minus), (self.beside, None), (self.beside_over, None)
        return tuple(found for pair in pairs if (found := tuple(spot for spot in pair if spot is not None)))

    @property
    def spots(self) -> Iterator[tuple[str, Spot]]:
        """The places by their keys."""
        keys = {"of": self.of, "minus": self.minus, "over": self.over, "over-minus": self.over_minus}
        keys |= {"beside": self.beside, "beside-over": self.beside_over}
        yield from ((key, spot) for key, spot in keys.items() if spot is not None)

    def text(self, name: Callable[[Spot], str]) -> str:
        """Its places as a formula, with the name of each."""
        parts = [" - ".join(map(name, side)) for side in self.sides]
        if self.beside:
            parts = [" / ".join(parts[:2]), " / ".join(parts[2:])]
        return " / ".join(f"({part})" for part in parts) if self.beside or self.over_minus else " / ".join(parts)


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A claim of the study, or of this project."""

    where: SettingTable = SettingTable()
    """Settings that all of its places have."""
    name: Text
    text: Text
    source: str = ""
    """Its place in the study: section, figure or table."""
    quotation: str = ""
    """The words of the paper that make the claim, in its language."""
    is_own: bool = msgspec.field(name="own", default=False)
    """Whether the claim is this project's own; the study makes the others."""
    note: str = ""
    """Why the result may differ, or why the claim cannot be tested."""
    remark: str = ""
    """What a reader has to know about the test, whatever the verdict."""
    real_note: str = ""
    """Replaces the note in the real world."""
    checks: tuple[Check, ...] = ()
    """The claim is reproduced when all hold and no part is untested; none where it cannot be tested."""
    worlds: tuple[str, ...] = WORLDS
    """The worlds in which it can be tested."""
    untested: str = ""
    """The part that no check tests; then the claim is partly reproduced at best."""
    assumed: str = ""
    """What the verdict depends on that the study does not print."""
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


TABLES: Final = ("efficiency", "budget")
"""Tables of results that a definition may request in addition to those of every experiment."""
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class Arm(GriddedTable, frozen=True, kw_only=True):
    """A variant of the experiment. An axis of its grid replaces the experiment's."""

    name: Text
    repeats: Count = 0
    """Replaces the experiment's in the simulated world, if not 0."""
    is_modelled: bool = msgspec.field(name="model", default=True)
    """Whether to predict its throughput: the model describes steady state only."""
    worlds: tuple[str, ...] = WORLDS
    """The worlds in which it can run."""
    simulated: SettingTable = SettingTable()
    """Settings in that world only."""
    real: SettingTable = SettingTable()
    guests: SettingTable = SettingTable()
    warm_up_calls: Count | None = None
    """Replaces the experiment's; so does the next."""
    warm_up_seconds: Seconds | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("worlds", self.worlds, ALL_WORLDS)

    def own(self, world: str) -> Place:
        """The settings that it has in one world only."""
        return {"real": self.real, GUESTS: self.guests}.get(world, self.simulated).settings


class RealWorld(GriddedTable, frozen=True, kw_only=True):
    """Whether the experiment can run in real time, and at what reduced scale."""

    is_possible: bool = True
    note: str = ""
    repeats: Count = 0
    """Replaces the experiment's, if not 0."""
    warm_up_calls: Count | None = None
    warm_up_seconds: Seconds | None = None
    arms: tuple[str, ...] = ()
    """Only these arms; all when empty."""


class Study(GriddedTable, frozen=True, kw_only=True):
    """The keys of a definition."""

    title: Text
    source: Text
    """The study that is repeated, or the reason for the experiment."""
    paper: Paper = Paper()
    part_of: str = ""
    """The definition that has the paper, its settings and its figures, where this one repeats a part of the study."""
    about: str = ""
    summary: str = ""
    """For the page of the studies: what holds, what does not, and what the paper could not see."""
    page_figures: tuple[str, ...] = ()
    """Figures of this definition that the page of the studies shows; the records keep their places."""
    tables: tuple[str, ...] = ()
    """Of TABLES."""
    repeats: Annotated[int, Meta(ge=1)] = 1
    warm_up_calls: Count = 0
    """System calls at the start that do not count, because of slow start."""
    warm_up_seconds: Seconds = 0.0
    """The same as a time, for runs of a fixed duration."""
    arms: Annotated[tuple[Arm, ...], Meta(min_length=1)] = (Arm(name="all"),)
    real: RealWorld = RealWorld()
    """Over the kernel's TCP in network namespaces."""
    guests: RealWorld = RealWorld()
    """With the initiator and the target of real kernels."""
    figures: tuple[AnyFigure, ...] = ()
    published: tuple[Published, ...] = ()
    claims: tuple[Claim, ...] = ()
    conditions: tuple[Circumstance, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    left_out: tuple[Omission, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("tables", self.tables, TABLES)
        drawn = [figure.name for figure in self.figures if isinstance(figure, LineFigure)]
        for name in self.page_figures:
            require_among("page-figures", name, drawn)
        self._require_known()

    def _require_known(self) -> None:
        """Every arm and every setting that is referred to exists. Mistake when one does not."""
        names = [arm.name for arm in self.arms]
        for name in names:
            if names.count(name) > 1:
                raise Mistake("arms", f"{name!r} is there twice")
        known = self._settings_set()
        _require_arms("real.arms", self.real.arms, names)
        _require_arms("guests.arms", self.guests.arms, names)
        for key, picked in self._pickers():
            _require_arms(f"{key}.arms", picked.arms, names)
            _require_settings(f"{key}.where", picked.where.settings, known)
            for axis in ("x", "lines"):
                name = getattr(picked, axis, ARM)
                if name not in known and not (axis == "lines" and name == ARM) and hasattr(picked, axis):
                    raise Mistake(f"{key}.{axis}", f"no arm or grid sets {name!r}; they set {', '.join(sorted(known))}")
        for number, claim in enumerate(self.claims):
            _require_settings(f"claims[{number}].where", claim.where.settings, known)
            for key, spot in claim.spots.items():
                require_among(f"claims[{number}].{key}.arm", spot.arm, names)
                _require_settings(f"claims[{number}].{key}", spot.settings, known)

    @property
    def drawn_on_page(self) -> Iterator[LineFigure]:
        """The figures that the page of the studies shows."""
        wanted = (figure for name in self.page_figures for figure in self.figures if figure.name == name)
        yield from (figure for figure in wanted if isinstance(figure, LineFigure))

    def _settings_set(self) -> set[str]:
        """The settings that any point has."""
        known = {*self.settings, *self.axes}
        for arm in self.arms:
            known |= {*arm.settings, *arm.axes, *arm.simulated.settings, *arm.real.settings, *arm.guests.settings}
        return known

    def _pickers(self) -> Iterator[tuple[str, AnyFigure | Published]]:
        """What picks points by arm and settings, by key."""
        yield from ((f"figures[{number}]", figure) for number, figure in enumerate(self.figures))
        yield from ((f"published[{number}]", published) for number, published in enumerate(self.published))


def _require_arms(key: str, wanted: tuple[str, ...], names: list[str]) -> None:
    for name in wanted:
        if name not in names:
            raise Mistake(key, f"no arm is called {name!r}; there are {', '.join(names)}")


def _require_settings(key: str, wanted: Place, known: Collection[str]) -> None:
    for name in wanted:
        if name not in known:
            raise Mistake(f"{key}.{name}", "no point has this setting")


class Definition(Study, frozen=True, kw_only=True):
    """An experiment: what its file holds, and the file."""

    name: str
    """The name of the file without its ending."""
    text: str
    """The file as it was read."""


def names() -> list[str]:
    """The names of the experiments that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob(f"*{ENDING}"))


def load(name: str | Path) -> Definition:
    """A definition, by name or path. InputInvalid for an unknown name, and for a mistake with its key in one line."""
    path = Path(name)
    if not path.name.endswith(ENDING):
        if name not in names():
            raise InputInvalid(
                f"no experiment is called {name!r}; there are {', '.join(names())}; or give FILE{ENDING}"
            )
        path = _FOLDER / f"{name}{ENDING}"
    try:
        text = path.read_text(encoding="utf-8")
        study = msgspec.convert(tomllib.loads(text), Study)
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputInvalid(f"{path} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise InputInvalid(f"{path}: {error}") from error
    keys = msgspec.structs.asdict(study) | {"about": " ".join(study.about.split())}
    return Definition(name=path.stem, text=text, **keys)
