"""The table of docs/reproduction.md of what first versions did otherwise than the studies: before, after, printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iscsitrace.experiments import claims, tables
from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_corrections import Correction
from iscsitrace.experiments.quantities import QUANTITIES
from tools.studies import NOTHING, WORLD_NAMES, World, outcomes, table

_SHOWN: Final = ("simulated", "real")
_RATIO_DIGITS: Final = 2
_OPENING: Final = """
A first version of each experiment misread its study in places, or misjudged it. Each row is such a place: what the
first version gave, what the recorded run gives now, and what the study prints. Numbers of the first versions were
measured in the simulated world; they are held in the definitions.
"""


def section(studies: Sequence[tuple[Definition, list[World]]]) -> list[str]:
    """The table with its opening sentences; nothing where no definition has a correction."""
    rows = [row for definition, found in studies for row in _rows(definition, found)]
    now = (f"now, {WORLD_NAMES[name]}" for name in _SHOWN)
    head = ("what", "measured", "first version", "before", *now, "printed", "command")
    return [*_OPENING.strip().splitlines(), "", *table(head, rows)] if rows else []


def _rows(definition: Definition, found: Sequence[World]) -> Iterator[tuple[str, ...]]:
    by_name = {world.name: world for world in found}
    for each in definition.corrections:
        now = {name: _now(definition, each, by_name.get(name)) for name in _SHOWN}
        yield (
            f"[{definition.name}](#{definition.name}): {each.what}",
            each.outcome or _measured(each),
            each.first_version,
            _both(_before(each), each.was),
            *now.values(),
            _both(_printed(each), each.printed),
            "; ".join(
                f"`{run.command}`" for name, text in now.items() if text != NOTHING and (run := by_name[name].run)
            )
            or NOTHING,
        )


def _measured(correction: Correction) -> str:
    """What is measured, and where."""
    labels = dict.fromkeys(QUANTITIES[value.quantity].label for value in correction.values)
    return f"{', '.join(labels)}: {_places(correction)}"


def _places(correction: Correction) -> str:
    """The places of all values, with what differs between them side by side."""
    texts = []
    for key, word in (("of", ""), ("over", "over "), ("minus", "minus ")):
        spots = [spot for value in correction.values if (spot := getattr(value, key)) is not None]
        settings: dict[str, dict[str, None]] = {}
        for spot in spots:
            for name, each in correction.place(spot).items():
                settings.setdefault(name.rpartition(".")[2], {})[each.text] = None
        parts = [" / ".join(dict.fromkeys(spot.arm for spot in spots))]
        parts += [f"{name} {' / '.join(found)}" for name, found in settings.items()]
        texts += [word + ", ".join(parts)] if spots else []
    return ", ".join(texts)


def _now(definition: Definition, correction: Correction, world: World | None) -> str:
    """What the recorded run of a world gives."""
    if world is None or world.run is None:
        return NOTHING
    if correction.outcome:
        return outcomes(definition, world)[correction.outcome]
    found = [claims.number(correction, value, world.rows) for value in correction.values]
    digits = [_RATIO_DIGITS if value.over else QUANTITIES[value.quantity].digits for value in correction.values]
    return _joined(
        correction,
        [
            None if each is None else tables.with_interval(each.value, each.interval, each.count, count)
            for each, count in zip(found, digits, strict=True)
        ],
    )


def _before(correction: Correction) -> str:
    return _joined(correction, [None if each.first is None else f"{each.first:g}" for each in correction.values])


def _printed(correction: Correction) -> str:
    return _joined(correction, [None if each.printed is None else f"{each.printed:g}" for each in correction.values])


def _joined(correction: Correction, texts: Sequence[str | None]) -> str:
    """Numbers side by side with their unit, one where all are equal; nothing without any."""
    shown = texts if len(set(texts)) > 1 else texts[:1]
    return f"{' / '.join(each or NOTHING for each in shown)} {correction.values[0].unit}" if any(texts) else NOTHING


def _both(numbers: str, words: str) -> str:
    """Numbers and words, or those of them that there are."""
    return "; ".join(each for each in (numbers, words) if each and each != NOTHING) or NOTHING
