"""The claims of a study, checked against measured numbers, ratios and differences at places of the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iscsitrace.experiments import scatter, verdicts
from iscsitrace.experiments.comparison import Row, row_at
from iscsitrace.experiments.definition_claims import WORLDS, Check, Claim, Spot
from iscsitrace.experiments.results import Evidence, JudgedCheck, JudgedClaim
from iscsitrace.experiments.scatter import Estimate

SHOWN: Final[tuple[str, ...]] = ("throughput", "period", "idle_fraction", "retransmission_rate")
"""Quantities that are shown with the time breakdown of a place."""


def judge(claims: Sequence[Claim], rows: Sequence[Row], world: str = WORLDS[0]) -> Iterator[JudgedClaim]:
    """Each claim with its checks and a verdict; a claim without checks in this world is not testable here."""
    for claim in claims:
        checks = tuple(_checked(claim, check, rows) for check in claim.checks) if world in claim.worlds else ()
        verdict = verdicts.of_checks(checks)
        is_explained = verdict not in {verdicts.REPRODUCED, verdicts.NOT_RUN}
        note = (claim.real_note or claim.note) if world == WORLDS[1] else claim.note
        evidence = tuple(_evidence(claim, rows)) if is_explained and checks else ()
        why = note if is_explained else ""
        yield JudgedClaim(claim.name, claim.text, verdict, why, checks, evidence, is_own=claim.is_own)


def _evidence(claim: Claim, rows: Sequence[Row]) -> Iterator[Evidence]:
    """What the captures of its places show, each place once, in order."""
    of_checks = (spot for check in claim.checks for spot in (check.of, check.beside) if spot is not None)
    for text, spot in {_text(claim, spot): spot for spot in claim.evidence or of_checks}.items():
        row = _row(claim, spot, rows)
        if row is not None and row.limiter is not None:
            means = {name: row.means[name] for name in SHOWN if name in row.means}
            yield Evidence(text, row.limiter, row.shares, means)


def _number(claim: Claim, check: Check, rows: Sequence[Row]) -> Estimate | None:
    """The number of a check; None where a place did not run, or its quantity is unknown."""
    found = _at(claim, check.of, check.quantity, rows)
    if check.beside is None:
        return found
    other = _at(claim, check.beside, check.quantity, rows)
    if found is None or other is None or (check.over is not None and not other.value):
        return None
    return scatter.difference(found, other) if check.minus else scatter.ratio(found, other)


def _checked(claim: Claim, check: Check, rows: Sequence[Row]) -> JudgedCheck:
    found = _number(claim, check, rows)
    low, high = check.between
    return JudgedCheck(
        quantity=check.quantity,
        unit=check.unit,
        of=_text(claim, check.of),
        beside=_text(claim, check.beside) if check.beside else "",
        value=None if found is None else found.value,
        low=low,
        high=high,
        is_met=found is not None and low <= found.value <= high,
        is_undecided=found is not None and found.lies(low, high) is None,
        run_count=0 if found is None else found.count,
        interval=None if found is None else found.interval,
    )


def _at(claim: Claim, spot: Spot, quantity: str, rows: Sequence[Row]) -> Estimate | None:
    """The quantity at the first row with these settings; None when there is none, or the quantity is unknown."""
    row = _row(claim, spot, rows)
    return None if row is None else row.estimates.get(quantity)


def _row(claim: Claim, spot: Spot, rows: Sequence[Row]) -> Row | None:
    return row_at(rows, spot.arm, {name: each.value for name, each in claim.place(spot).items()})


def _text(claim: Claim, spot: Spot) -> str:
    settings = (f"{name.rpartition('.')[2]} {each.text}" for name, each in claim.place(spot).items())
    return ", ".join((spot.arm, *settings))
