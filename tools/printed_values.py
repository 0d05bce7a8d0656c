"""docs/reproduction.csv: what the studies print, with its place and unit, beside the recorded measurements."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from iscsitrace.studies import tables, verdicts
from iscsitrace.studies.definition import Definition, Published
from iscsitrace.studies.quantities import QUANTITIES
from iscsitrace.studies.results import Beside
from tools.studies import World, judged, printed

HEAD: Final = (
    *("study", "experiment", "place", "quotation", "quantity", "at", "printed", "unit as printed", "unit as read"),
    *(
        "value in our unit",
        "our unit",
        "computed",
        "lower limit",
        "upper limit",
        "world",
        "ours",
        "95 % low",
        "95 % high",
    ),
    *("runs", "verdict"),
)
_DIGITS: Final = 6
"""Significant digits of a number."""

estimate_text = tables.with_interval


def text(studies: Sequence[tuple[Definition, list[World]]]) -> str:
    """The table as CSV: a row for each printed value and world with a recorded run."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEAD)
    for definition, found in studies:
        for world in found:
            if world.run is not None:
                writer.writerows((*_values(definition, world), *_in_claims(definition, world)))
    return stream.getvalue()


def _values(definition: Definition, world: World) -> Iterator[tuple[str, ...]]:
    """The values of the tables of printed values."""
    entries = [(each, pair) for each in definition.published for _ in _arms(each, definition) for pair in each.pairs]
    for (published, (written, value)), one in zip(entries, printed(definition, world), strict=True):
        place = {name: each.value for name, each in {**published.where.settings, published.x: written}.items()}
        if not world.has(one.arm, place):
            continue
        room = verdicts.tolerance(value, one.unit)
        is_judged = one.verdict != verdicts.NOT_COMPARED
        limits = [_number(published.scale * each) for each in (value - room, value + room)] if is_judged else ["", ""]
        at = ", ".join((one.arm, *(f"{name} {each}" for name, each in {**one.where, one.x: one.at}.items())))
        yield (
            *(definition.part_of or definition.name, definition.name, one.source, published.quotation),
            *(QUANTITIES[published.quantity].label, at, str(value), _printed_unit(published, one)),
            *(published.read_as or one.unit, _number(one.published), one.unit, "yes" if one.is_computed else "no"),
            *(*limits, world.name, _number(one.ours), *_ends(one.interval), str(one.run_count), one.verdict),
        )


def _arms(published: Published, definition: Definition) -> Sequence[str]:
    return published.arms or [arm.name for arm in definition.arms]


def _printed_unit(published: Published, one: Beside) -> str:
    """Empty where the study does not print the value."""
    return "" if published.is_computed else published.printed_unit or one.unit


def _in_claims(definition: Definition, world: World) -> Iterator[tuple[str, ...]]:
    """The values that checks of claims test: as they are printed, with the limits of the check."""
    for claim, found in zip(definition.claims, judged(definition, world), strict=True):
        for check, one in zip(claim.checks, found.checks, strict=False):
            places = [{name: each.value for name, each in claim.place(spot).items()} for _, spot in check.spots]
            is_there = all(world.has(spot.arm, place) for (_, spot), place in zip(check.spots, places, strict=True))
            if not check.printed or not is_there:
                continue
            value, _, unit = check.printed.rpartition(" ")
            is_number = value.removeprefix("about ").replace(".", "", 1).isdigit()
            at = check.text(partial(verdicts.place_text, claim))
            verdict = verdicts.of_checks([one])
            yield (
                *(definition.part_of or definition.name, definition.name, claim.source, claim.quotation),
                *(QUANTITIES[check.quantity].label, at, value if is_number else check.printed),
                *(unit if is_number else "", check.read_as or check.unit, "", check.unit, "no"),
                *(_number(check.between[0]), _number(check.between[1]), world.name, _number(one.value)),
                *(*_ends(one.interval), str(one.run_count), verdict),
            )


def _ends(interval: tuple[float, float] | None) -> tuple[str, str]:
    low, high = interval or (None, None)
    return _number(low), _number(high)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.{_DIGITS}g}"
