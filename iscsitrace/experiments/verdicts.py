"""The verdicts on claims and printed values, and the rules that lead to them.

A number with its 95 % confidence interval is within its limits, outside, or undecided where a limit is in the interval.
One run has no interval: then the number alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iscsitrace.experiments.results import JudgedCheck
from iscsitrace.experiments.scatter import Estimate

REPRODUCED: Final = "reproduced"
UNDECIDED: Final = "undecided"
PARTLY: Final = "partly"
NOT_REPRODUCED: Final = "not reproduced"
NOT_RUN: Final = "not run"
NOT_TESTABLE: Final = "not testable here"
NOT_COMPARED: Final = "not compared"
TOLERANCE: Final = 0.05
"""Greatest difference from a printed value, as a share of it. The studies print no scatter; the read study's own model
has errors of up to 9 %, and repeated measurements on real hosts differ by a few percent."""
_WHOLE_PERCENT: Final = 100.0
OF_MODELS: Final = {"model_error"}
"""Quantities that are no measurement of storage: the error of our model and of a study's model differ in both."""
OTHER_MODEL: Final = "The study's is the error of another model on another network."
SHARED_SETTINGS: Final = (
    "The model and the simulator take the same settings, so their difference shows how well the formula describes the "
    "simulator; it is no test against a network."
)


def of_checks(checks: Sequence[JudgedCheck]) -> str:
    """The verdict on a claim; without checks it is not testable."""
    if not checks:
        return NOT_TESTABLE
    if any(check.value is None for check in checks):
        return NOT_RUN
    decided = [check.is_met for check in checks if not check.is_undecided]
    if not all(decided):
        return PARTLY if any(decided) or len(decided) < len(checks) else NOT_REPRODUCED
    return REPRODUCED if len(decided) == len(checks) else UNDECIDED


def of_printed(quantity: str, unit: str, printed: float, ours: Estimate | None) -> str:
    """The verdict on a printed value."""
    if ours is None:
        return NOT_RUN
    if quantity in OF_MODELS:
        return NOT_COMPARED
    room = tolerance(printed, unit)
    return {True: REPRODUCED, False: NOT_REPRODUCED, None: UNDECIDED}[ours.lies(printed - room, printed + room)]


def tolerance(printed: float, unit: str) -> float:
    """Greatest difference from a printed value, in its unit: a share of it, but at least half of its last digit.

    A percentage is also a share of what it lacks to 100 %: 91 % of the time idle is judged like 9 % busy.
    """
    digits = str(printed).partition(".")[2]
    lacks = abs(_WHOLE_PERCENT - printed) if unit == "%" else abs(printed)
    return max(TOLERANCE * min(abs(printed), lacks), 0.5 * 10.0 ** -len(digits))
