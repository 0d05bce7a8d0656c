"""The definition of an experiment: a TOML file, decoded and checked. docs/lab.md describes its keys."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments.definition_claims import ALL_WORLDS, GUESTS, WORLDS, Claim, LeftOut, Paper, Published
from iscsitrace.experiments.definition_figures import ARM, AnyFigure, Text
from iscsitrace.experiments.definition_settings import GriddedTable, Mistake, Place, SettingTable, require_among

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
    about: str = ""
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
    left_out: tuple[LeftOut, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("tables", self.tables, TABLES)
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


def load(path: Path) -> Definition:
    """Reads a definition. InputInvalid, in one line that names the key, when it is wrong."""
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
