"""The verdicts on claims and printed values, and the rules that lead to them.

A number with its 95 % confidence interval is within its limits, outside, or undecided where a limit is in the interval.
One run has no interval: then the number alone decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

from iscsitrace.studies import repeats
from iscsitrace.studies.definition import WORLDS, Check, Claim, Definition, Published, Spot
from iscsitrace.studies.quantities import QUANTITIES
from iscsitrace.studies.repeats import MeasuredValue, Row, row_at
from iscsitrace.studies.results import Beside, JudgedCheck, JudgedClaim, PlaceEvidence

REPRODUCED: Final = "reproduced"
UNDECIDED: Final = "undecided"
PARTLY: Final = "partly"
NOT_REPRODUCED: Final = "not reproduced"
NOT_RUN: Final = "not run"
NOT_TESTABLE: Final = "not testable here"
NOT_COMPARED: Final = "not compared"
SHOWN: Final[tuple[str, ...]] = ("throughput", "period", "idle_fraction", "retransmission_rate")
"""Quantities that are shown with the time breakdown of a place."""
TOLERANCE: Final = 0.05
"""Greatest difference from a printed value, as a share of it. The studies print no scatter; the read study's own model
has errors of up to 9 %, and repeated measurements on real hosts differ by a few percent."""
_WHOLE_PERCENT: Final = 100.0
OF_MODELS: Final = {"model_error"}
"""Quantities that are no measurement of storage: the error of our model and of a study's model differ in both."""
OTHER_MODEL: Final = "The study's is the error of its equation against its hosts."
SHARED_SETTINGS: Final = (
    "The model and the simulator take the same settings, so their difference shows how well the formula describes the "
    "simulator; it is not a test against a network."
)


def of_checks(checks: Sequence[JudgedCheck], untested: str = "") -> str:
    """The verdict on a claim: without checks not testable, with an untested part partly at best."""
    if not checks:
        return NOT_TESTABLE
    if any(check.value is None for check in checks):
        return NOT_RUN
    decided = [check.is_met for check in checks if not check.is_undecided]
    if any(decided) and not all(decided):
        return PARTLY
    if len(decided) < len(checks):
        return UNDECIDED
    if not any(decided):
        return NOT_REPRODUCED
    return PARTLY if untested else REPRODUCED


def of_printed(quantity: str, unit: str, printed: float, ours: MeasuredValue | None, scale: float = 1.0) -> str:
    """The verdict on a printed value; ``scale`` is the factor from the printed unit to the quantity's, ``unit``."""
    if ours is None:
        return NOT_RUN
    if quantity in OF_MODELS:
        return NOT_COMPARED
    room = tolerance(printed, unit)
    limits = scale * (printed - room), scale * (printed + room)
    return {True: REPRODUCED, False: NOT_REPRODUCED, None: UNDECIDED}[ours.lies(*limits)]


def tolerance(printed: float, unit: str) -> float:
    """Greatest difference from a printed value, in its unit: a share of it, but at least half of its last digit.

    A percentage is also a share of what it lacks to 100 %: 91 % of the time idle is judged like 9 % busy.
    """
    digits = str(printed).partition(".")[2]
    lacks = abs(_WHOLE_PERCENT - printed) if unit == "%" else abs(printed)
    return max(TOLERANCE * min(abs(printed), lacks), 0.5 * 10.0 ** -len(digits))


def judge(claims: Sequence[Claim], rows: Sequence[Row], world: str = WORLDS[0]) -> Iterator[JudgedClaim]:
    """Each claim with its checks and a verdict; a claim without checks in this world is not testable here."""
    for claim in claims:
        checks = tuple(_checked(claim, check, rows) for check in claim.checks) if world in claim.worlds else ()
        verdict = of_checks(checks, claim.untested)
        is_explained = verdict not in {REPRODUCED, NOT_RUN}
        note = (claim.real_note or claim.note) if world == WORLDS[1] else claim.note
        evidence = tuple(_evidence(claim, rows)) if is_explained and checks else ()
        untested = f"Not tested: {claim.untested}." if claim.untested and checks else ""
        why = " ".join(filter(None, (note, untested))) if is_explained else ""
        yield JudgedClaim(claim.name, claim.text, verdict, why, checks, evidence, is_own=claim.is_own)


def _evidence(claim: Claim, rows: Sequence[Row]) -> Iterator[PlaceEvidence]:
    """What the captures of its places show, each place once, in order."""
    checked = (spot for check in claim.checks for _, spot in check.spots)
    for text, spot in {place_text(claim, spot): spot for spot in claim.evidence or checked}.items():
        row = row_at(rows, spot.arm, claim.place(spot))
        if row is not None and row.limiter is not None:
            means = {name: row.means[name] for name in SHOWN if name in row.means}
            yield PlaceEvidence(text, row.limiter, row.shares, means)


def _number(claim: Claim, check: Check, rows: Sequence[Row]) -> MeasuredValue | None:
    """The number of a check; None where a place did not run, or its quantity is unknown."""
    sides = [_difference(claim, side, check.quantity, rows) for side in check.sides]
    known = [each for each in sides if each is not None]
    if len(known) < len(sides) or not all(each.value for each in known[1:]):
        return None
    return reduce(repeats.ratio, [reduce(repeats.ratio, pair) for pair in (known[:2], known[2:]) if pair])


def _difference(claim: Claim, spots: Sequence[Spot], quantity: str, rows: Sequence[Row]) -> MeasuredValue | None:
    """The number at a place, less that at the other, if there is one."""
    found = [_at(claim, spot, quantity, rows) for spot in spots]
    known = [each for each in found if each is not None]
    return reduce(repeats.difference, known) if len(known) == len(found) else None


def _checked(claim: Claim, check: Check, rows: Sequence[Row]) -> JudgedCheck:
    found = _number(claim, check, rows)
    low, high = check.between
    sides = check.sides if check.over else ((check.of,), check.sides[0][1:])
    places = [" minus ".join(place_text(claim, spot) for spot in side) for side in sides]
    of, beside = (" / ".join(each) for each in (places[: len(places) // 2], places[len(places) // 2 :]))
    return JudgedCheck(
        quantity=check.quantity,
        unit=check.unit,
        of=of,
        beside=beside,
        value=None if found is None else found.value,
        low=low,
        high=high,
        is_met=found is not None and low <= found.value <= high,
        is_undecided=found is not None and found.lies(low, high) is None,
        run_count=0 if found is None else found.count,
        interval=None if found is None else found.interval,
    )


def _at(claim: Claim, spot: Spot, quantity: str, rows: Sequence[Row]) -> MeasuredValue | None:
    """The quantity at the first row with these settings; None when there is none, or the quantity is unknown."""
    row = row_at(rows, spot.arm, claim.place(spot))
    return None if row is None else row.estimates.get(quantity)


def place_text(claim: Claim, spot: Spot) -> str:
    """A place of a claim, in words."""
    return repeats.place_name(spot.arm, {name: each.text for name, each in claim.place(spot).items()})


def beside(definition: Definition, made: Sequence[Row], world: str, *, is_whole: bool = False) -> list[Beside]:
    """Every published value of the arms that ran (``is_whole``: of all arms), with the measured one; None where no row
    has it.
    """
    run = {row.arm for row in made}
    found = (each for published in definition.published for each in _beside(published, made, definition, world))
    return [each for each in found if is_whole or each.arm in run]


def _beside(published: Published, made: Sequence[Row], definition: Definition, world: str) -> Iterator[Beside]:
    unit = QUANTITIES[published.quantity].unit
    for row, arm, written, value in repeats.places(published, made, definition):
        ours = row.estimates.get(published.quantity) if row else None
        is_compared = ours is None or world in published.worlds
        verdict = of_printed(published.quantity, unit, value, ours, published.scale) if is_compared else NOT_COMPARED
        note = published.note or (OTHER_MODEL if published.quantity in OF_MODELS and ours else "")
        yield Beside(
            quantity=published.quantity,
            unit=unit,
            source=published.source or definition.source,
            arm=arm,
            where={name: each.text for name, each in published.where.settings.items()},
            x=published.x,
            at=written.text,
            published=value * published.scale,
            printed=f"{value} {published.printed_unit or unit}",
            ours=ours.value if ours else None,
            spread=ours.spread if ours else None,
            run_count=ours.count if ours else 0,
            interval=ours.interval if ours else None,
            verdict=verdict,
            why=note if verdict not in {REPRODUCED, NOT_RUN} else "",
            is_computed=published.is_computed,
        )
