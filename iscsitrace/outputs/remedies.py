"""The advice of one output: each remedy is said once, and later findings refer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iscsitrace.outputs import gains as by_model

if TYPE_CHECKING:
    from iscsitrace.analysis.findings.finding import AdviceGain, Finding


class Remedies:
    """The remedies said so far, by their text: the finding, and its session or connection."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str]] = {}
        self._gains: set[tuple[str, str]] = set()

    def steps(self, finding: Finding, label: str) -> list[tuple[str, str]]:
        """The advice of a finding of ``label`` that is new, then where the rest was said; each with its gains.

        A gain that was shown for the same session or connection is not shown again.
        """
        new, again = [], dict[str, list["AdviceGain"]]()
        for advice, gains in finding.gains_by_advice():
            name, where = self._said.setdefault(advice.text, (finding.name, label))
            if (name, where) == (finding.name, label):
                new.append((advice.text, by_model.words(gains)))
            else:
                place = name if where == label else f"{name} of {where}"
                known = again.setdefault(f"See {place}.", [])
                known += [gain for gain in gains if (label, by_model.words([gain])) not in self._gains]
            self._gains.update((label, by_model.words([gain])) for gain in gains)
        return [*new, *((text, by_model.words(gains)) for text, gains in again.items())]
