"""The studies on docs/reproduction.md: their worlds with the recorded runs, and tables of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.studies import records, verdicts
from iscsitrace.studies.definition import ALL_WORLDS, Definition
from iscsitrace.studies.points import DesignPoint, of_experiment
from iscsitrace.studies.records import RecordedRun
from iscsitrace.studies.repeats import Row
from iscsitrace.studies.results import Beside, JudgedClaim

NOTHING: Final = "-"
WORLD_NAMES: Final = {"simulated": "simulated", "real": "kernel's TCP", "guests": "guests"}
OUTCOMES: Final = (
    "claims of the study",
    "claims of our own",
    "printed values",
    "computed values",
    "difference of the model",
)
"""What a whole run is summarised by."""
UNTESTED: Final = {verdicts.NOT_RUN, verdicts.NOT_TESTABLE, verdicts.NOT_COMPARED, NOTHING}


@dataclass(frozen=True)
class World:
    """A world of a study: its recorded run, if any, and the rows that the present definition still has."""

    name: str
    run: RecordedRun | None
    rows: list[Row]
    points: tuple[DesignPoint, ...]

    def has(self, arm: str, place: Mapping[str, Any]) -> bool:
        """Whether its grid has a place of an arm with these settings, in the units of a run."""
        return any(
            point.arm == arm and all(point.values.get(name) == value for name, value in place.items())
            for point in self.points
        )


def worlds(definition: Definition) -> list[World]:
    """The worlds in which an experiment has arms, the simulated one first."""
    found = []
    for name in ALL_WORLDS:
        run = records.of_world(definition.name, name)
        is_possible = {"real": definition.real.is_possible, "guests": definition.guests.is_possible}.get(name, True)
        has_arms = any(name in arm.worlds for arm in definition.arms)
        if is_possible and has_arms:
            points = tuple(of_experiment(definition, name))
            found.append(World(name, run, records.rows_of(definition, run) if run else [], points))
    return found


def judged(definition: Definition, world: World) -> list[JudgedClaim]:
    """The claims of a study, by the recorded run of a world."""
    return list(verdicts.judge(definition.claims, world.rows, world.name))


def printed(definition: Definition, world: World) -> list[Beside]:
    """The printed values of a study, by the recorded run of a world."""
    return verdicts.beside(definition, world.rows, world.name, is_whole=True)


def outcomes(definition: Definition, world: World) -> dict[str, str]:
    """What the recorded run of a world is summarised by, by OUTCOMES."""
    of_claims, values = judged(definition, world), printed(definition, world)
    texts = (
        *(counted([each.verdict for each in of_claims if each.is_own == is_own]) for is_own in (False, True)),
        *(counted([each.verdict for each in values if each.is_computed == computed]) for computed in (False, True)),
        agreement(world.run),
    )
    return dict(zip(OUTCOMES, texts, strict=True))


def counted(found: Sequence[str]) -> str:
    """How many of the tested verdicts are reproduced, and how many are undecided."""
    tested = [each for each in found if each not in UNTESTED]
    undecided = tested.count(verdicts.UNDECIDED)
    more = f", {undecided} undecided" if undecided else ""
    return f"{tested.count(verdicts.REPRODUCED)} of {len(tested)}{more}" if tested else NOTHING


def agreement(run: RecordedRun | None) -> str:
    """The difference of the model from measured throughputs: median, largest, and the number of places."""
    model = run.model if run else None
    return NOTHING if model is None else f"{100 * model.median:.1f} %, {100 * model.largest:.1f} % ({model.count})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown, and an empty line."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows), ""]


def _cell(text: str) -> str:
    """On one line, as a cell of Markdown."""
    return " ".join(text.split()).replace("|", "\\|")
