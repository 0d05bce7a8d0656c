"""What an experiment corrects of its first version, which misread or misjudged the study: the ``[[corrections]]`` of a
definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iscsitrace.experiments.definition_claims import Number, Placed, Spot
from iscsitrace.experiments.definition_figures import Text
from iscsitrace.experiments.definition_settings import Mistake, require_among

OUTCOMES: Final = (
    "claims of the study",
    "claims of our own",
    "printed values",
    "computed values",
    "difference of the model",
)
"""What a whole run is summarised by."""


class Corrected(Number, frozen=True, kw_only=True):
    """A number of a correction, and what the first version gave for it; None where it had no such number."""

    first: float | None = None
    printed: float | None = None
    """The study's; None where the study prints no number."""


class Correction(Placed, frozen=True, kw_only=True):
    """Something that the first version of the experiment did, or judged, otherwise than the study."""

    what: Text
    first_version: Text
    """What the first version did."""
    values: tuple[Corrected, ...] = ()
    """Numbers before and after, in one unit."""
    outcome: str = ""
    """Instead of values: one of OUTCOMES, which changed."""
    was: str = ""
    """What the first version gave, in words, instead of numbers or beside them."""
    printed: str = ""
    """What the study says, where it is no number, or more than the numbers."""

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.outcome):
            raise Mistake("values", "expected either values or an outcome")
        if self.outcome:
            require_among("outcome", self.outcome, OUTCOMES)
        units = list(dict.fromkeys(each.unit for each in self.values))
        if len(units) > 1:
            raise Mistake("values", f"expected one unit, not {' and '.join(units)}")

    @property
    def spots(self) -> Mapping[str, Spot]:
        """Every place by its key below the correction."""
        return {
            f"values[{number}].{key}": spot for number, each in enumerate(self.values, 1) for key, spot in each.spots
        }
