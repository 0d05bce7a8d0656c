"""The points of an experiment: every arm at every place of its grid, as often as it is repeated."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments import settings
from iscsitrace.experiments.definition import Arm, Definition, Place, RealWorld, Written
from iscsitrace.experiments.vocabulary import Value

_DIGEST_DIGITS = 16
_FORMAT = 1
"""Of what is measured at a point; another number has all points run again."""


@dataclass(frozen=True)
class Point:
    """One run."""

    name: str
    """Of its folder."""
    arm: str
    grid: Place
    """Where in the grid it is."""
    place: Place
    """All its settings."""
    repeat: int
    """From 1 on; the seed of its run."""
    world: str
    """One of `definition.WORLDS`."""
    warm_up_calls: int

    @property
    def values(self) -> dict[str, Value]:
        """Its settings, as a run takes them."""
        return {name: each.value for name, each in self.place.items()}

    @property
    def run_settings(self) -> dict[str, Any]:
        """``client``, ``portals`` and ``world`` of its run."""
        return settings.of_run(self.values, self.repeat)

    @property
    def programs(self) -> dict[str, Any]:
        """Who takes part in the real world, and where is captured."""
        return settings.programs_of(self.values)

    @cached_property
    def digest(self) -> str:
        """Of all that decides its result: a finished point with the same one need not be run again."""
        decisive: list[Any] = [_FORMAT, self.world, self.warm_up_calls, self.run_settings]
        if self.world == "real" and self.programs:
            decisive.append(self.programs)
        text = json.dumps(decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]

    def is_at(self, where: Mapping[str, Written]) -> bool:
        """Whether it has these settings."""
        return all(name in self.place and self.place[name].value == each.value for name, each in where.items())


def of_experiment(definition: Definition, world: str) -> list[Point]:
    """All points, arm by arm; InputInvalid for a world that cannot carry them."""
    real = definition.real if world == "real" else None
    if real is not None and not real.is_possible:
        raise InputInvalid(f"{definition.name} has no real world: {real.note or 'its definition says so'}")
    repeats = real.repeats if real is not None and real.repeats else definition.repeats
    arms = [arm for arm in definition.arms if world in arm.worlds]
    points = [point for arm in arms for point in _of_arm(definition, arm, real, repeats, world)]
    for point in points:
        if not any(f"workload.{name}" in point.place for name in ("calls", "bytes", "seconds")):
            raise InputInvalid(
                f"{definition.name}: {point.arm}: nothing says how long: workload.calls, bytes or seconds"
            )
    return points


def _of_arm(definition: Definition, arm: Arm, real: RealWorld | None, repeats: int, world: str) -> Iterator[Point]:
    grid = {**definition.grid, **(real.grid if real is not None else {}), **arm.grid}
    # what an arm has of its own is what it is about
    base = {**definition.settings, **(real.settings if real is not None else {}), **arm.settings}
    base |= arm.own.get(world, {})
    for values in itertools.product(*grid.values()):
        at = dict(zip(grid, values, strict=True))
        for repeat in range(1, repeats + 1):
            yield Point(
                name=_name(arm.name, at, repeat if repeats > 1 else None),
                arm=arm.name,
                grid=at,
                place={**base, **at},
                repeat=repeat,
                world=world,
                warm_up_calls=definition.warm_up_calls,
            )


def _name(arm: str, at: Place, repeat: int | None) -> str:
    """A folder: letters, digits and a few marks only."""
    parts = [arm, *(f"{name.rpartition('.')[2]}={each.text}" for name, each in at.items())]
    parts += [f"repeat={repeat}"] if repeat is not None else []
    return ",".join("".join(mark if mark.isalnum() or mark in "=.%-" else "-" for mark in part) for part in parts)
