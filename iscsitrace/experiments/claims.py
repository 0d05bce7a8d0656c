"""The claims of a study, checked against measured numbers, ratios and differences at places of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iscsitrace.experiments.comparison import Row, row_at
from iscsitrace.experiments.definition_claims import WORLDS, Check, Claim, Spot
from iscsitrace.experiments.quantities import QUANTITIES
from iscsitrace.experiments.results import Evidence, JudgedCheck, JudgedClaim

REPRODUCED: Final = "reproduced"
NOT_REPRODUCED: Final = "not reproduced"
PARTLY: Final = "partly"
NOT_RUN: Final = "not run"
NOT_TESTABLE: Final = "not testable here"
SHOWN: Final[tuple[str, ...]] = ("throughput", "period", "idle_fraction", "retransmission_rate")
"""Quantities that are shown with the time breakdown of a place."""


def judge(claims: Sequence[Claim], rows: Sequence[Row], world: str = WORLDS[0]) -> Iterator[JudgedClaim]:
    """Each claim with its checks and a verdict; a claim without checks in this world is not testable here."""
    for claim in claims:
        checks = tuple(_checked(claim, check, rows) for check in claim.checks) if world in claim.worlds else ()
        verdict = _verdict(checks)
        is_explained = verdict not in {REPRODUCED, NOT_RUN}
        note = (claim.real_note or claim.note) if world == WORLDS[1] else claim.note
        evidence = tuple(_evidence(claim, rows)) if is_explained and checks else ()
        yield JudgedClaim(claim.name, claim.text, verdict, note if is_explained else "", checks, evidence)


def _evidence(claim: Claim, rows: Sequence[Row]) -> Iterator[Evidence]:
    """What the captures of its places show, each place once, in order."""
    of_checks = (spot for check in claim.checks for spot in (check.of, check.beside) if spot is not None)
    for text, spot in {_text(claim, spot): spot for spot in claim.evidence or of_checks}.items():
        row = _row(claim, spot, rows)
        if row is not None and row.limiter is not None:
            means = {name: row.means[name] for name in SHOWN if name in row.means}
            yield Evidence(text, row.limiter, row.shares, means)


def _verdict(checks: Sequence[JudgedCheck]) -> str:
    if not checks:
        return NOT_TESTABLE
    if any(check.value is None for check in checks):
        return NOT_RUN
    met = sum(check.is_met for check in checks)
    return REPRODUCED if met == len(checks) else PARTLY if met else NOT_REPRODUCED


def _checked(claim: Claim, check: Check, rows: Sequence[Row]) -> JudgedCheck:
    value = _at(claim, check.of, check.quantity, rows)
    if check.beside is not None:
        other = _at(claim, check.beside, check.quantity, rows)
        value = None if value is None or not other else value - other if check.minus else value / other
    low, high = check.between
    return JudgedCheck(
        quantity=check.quantity,
        unit="times" if check.over else QUANTITIES[check.quantity].unit,
        of=_text(claim, check.of),
        beside=_text(claim, check.beside) if check.beside else "",
        value=value,
        low=low,
        high=high,
        is_met=value is not None and low <= value <= high,
    )


def _at(claim: Claim, spot: Spot, quantity: str, rows: Sequence[Row]) -> float | None:
    """The mean at the first row with these settings; None when there is none, or the quantity is unknown."""
    row = _row(claim, spot, rows)
    return None if row is None else row.means.get(quantity)


def _row(claim: Claim, spot: Spot, rows: Sequence[Row]) -> Row | None:
    return row_at(rows, spot.arm, {name: each.value for name, each in claim.place(spot).items()})


def _text(claim: Claim, spot: Spot) -> str:
    settings = (f"{name.rpartition('.')[2]} {each.text}" for name, each in claim.place(spot).items())
    return ", ".join((spot.arm, *settings))
