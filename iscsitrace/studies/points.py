"""The points of an experiment: each arm at each place of its grid, with its repeats."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import structs as settings
from iscsitrace.lab.settings.kinds import Value
from iscsitrace.studies.definition import GUESTS, Arm, Definition, RealWorld
from iscsitrace.studies.definition_settings import Place

LENGTHS: Final = ("workload.calls", "workload.bytes", "workload.seconds")
"""Settings for the length of a run. One in an arm replaces any other."""
_DIGEST_DIGITS = 16
_SEEDS_APART = 1_000
"""Distance between the seeds of repeats. The paths of one run use consecutive seeds."""
_FORMAT = 3
"""Version of what is measured at a point; with another number all points run again."""
_BY_CHANCE: Final = ("random", "mixed", "shuffled")
"""Values for which a run depends on its seed."""
_SERVICE_TIMES: Final = ("target.service-delay", "target.read-delay", "target.write-delay")
_CHANCES: Final = (".loss", ".burst-loss", ".jitter", ".reorder")
"""Endings of settings with which a run depends on its seed, unless they are 0."""


@dataclass(frozen=True)
class WarmUp:
    """The start of a run, which does not count."""

    calls: int = 0
    seconds: float = 0.0
    """In a run of a fixed duration, in which what counts also ends with the duration."""


@dataclass(frozen=True)
class DesignPoint:
    """One run."""

    name: str
    """The name of its folder."""
    arm: str
    grid: Place
    """Its place in the grid."""
    place: Place
    """All its settings."""
    repeat: int
    """Counted from 1; it determines the seed."""
    world: str
    """One of `definition.ALL_WORLDS`."""
    warm_up: WarmUp
    is_modelled: bool = True
    """Whether the model predicts it."""

    @property
    def values(self) -> dict[str, Value]:
        """Its settings, in the units of a run."""
        return {name: each.value for name, each in self.place.items()}

    @property
    def run_settings(self) -> dict[str, Any]:
        """``client``, ``portals`` and ``world`` of its run."""
        return settings.of_run(self.values, 1 + (self.repeat - 1) * _SEEDS_APART)

    @property
    def capture_at(self) -> tuple[str, ...]:
        """Where captures are taken: ``initiator``, ``target``."""
        return settings.capture_at(self.values)

    @property
    def programs(self) -> dict[str, Any]:
        """The programs of the real world."""
        return settings.programs_of(self.values)

    @cached_property
    def digest(self) -> str:
        """A hash of all that its result depends on: a finished point with the same digest is not run again."""
        decisive: list[Any] = [
            *(_FORMAT, self.world, self.warm_up.calls, self.warm_up.seconds, self.capture_at, self.run_settings)
        ]
        if not self.is_modelled:
            decisive.append("without the model")
        if self.world != "simulated" and self.programs:
            decisive.append(self.programs)
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]

    def is_at(self, where: Place) -> bool:
        """Whether it has these settings."""
        return all(name in self.place and self.place[name].value == each.value for name, each in where.items())


def of_experiment(definition: Definition, world: str, *, is_reduced: bool = False) -> list[DesignPoint]:
    """All points, arm by arm; InputInvalid when the experiment cannot run in this world.

    ``is_reduced``: use the definition's scale for the real world in the simulated world, too.
    """
    real = definition.guests if world == GUESTS else definition.real if world == "real" or is_reduced else None
    where = "guests" if world == GUESTS else "the real world"
    if real is not None and not real.is_possible:
        raise InputInvalid(f"{definition.name} cannot run in {where}: {real.note or 'see its definition'}")
    arms = [arm for arm in definition.arms if world in arm.worlds]
    arms = [arm for arm in arms if real is None or not real.arms or arm.name in real.arms]
    if not arms:
        raise InputInvalid(f"{definition.name} has no arm for {where}")
    points = [point for arm in arms for point in _of_arm(definition, arm, real, world)]
    for point in points:
        if not any(name in point.place for name in LENGTHS):
            raise InputInvalid(
                f"{definition.name}: {point.arm}: the length is missing: set workload.calls, bytes or seconds"
            )
    return points


def _of_arm(definition: Definition, arm: Arm, real: RealWorld | None, world: str) -> Iterator[DesignPoint]:
    repeats = real.repeats if real is not None and real.repeats else arm.repeats or definition.repeats
    grid = {**definition.axes, **(real.axes if real is not None else {}), **arm.axes}
    # an arm is defined by its own settings, so they take precedence over the real world's
    base = {**definition.settings, **(real.settings if real is not None else {})}
    if any(name in arm.settings for name in LENGTHS):
        base = {name: value for name, value in base.items() if name not in LENGTHS}
    base |= {**arm.settings, **arm.own(world)}
    scales: list[Arm | RealWorld | Definition] = [arm, *([] if real is None else [real]), definition]
    warm_up = WarmUp(
        next(each.warm_up_calls for each in scales if each.warm_up_calls is not None),
        next(each.warm_up_seconds for each in scales if each.warm_up_seconds is not None),
    )
    for values in itertools.product(*grid.values()):
        at = dict(zip(grid, values, strict=True))
        place = {**base, **at}
        count = repeats if world != "simulated" or _is_random(place) else 1
        for repeat in range(1, count + 1):
            yield DesignPoint(
                name=_name(arm.name, at, repeat if count > 1 else None),
                arm=arm.name,
                grid=at,
                place=place,
                repeat=repeat,
                world=world,
                warm_up=warm_up,
                is_modelled=arm.is_modelled,
            )


def _is_random(place: Place) -> bool:
    """Whether a simulated run depends on its seed."""
    return any(
        each.value in _BY_CHANCE
        or (name.endswith(_CHANCES) and each.value != 0)
        or (name in _SERVICE_TIMES and isinstance(each.value, list))
        for name, each in place.items()
    )


def _name(arm: str, at: Place, repeat: int | None) -> str:
    """The name of its folder: letters, digits and a few other characters."""
    parts = [arm, *(f"{name.rpartition('.')[2]}={each.text}" for name, each in at.items())]
    parts += [f"repeat={repeat}"] if repeat is not None else []
    return ",".join("".join(mark if mark.isalnum() or mark in "=.%-" else "-" for mark in part) for part in parts)
