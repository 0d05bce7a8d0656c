"""The findings of one output as text: each remedy is said once, and later findings refer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from iscsitrace.show.document import Findings, FoundProblem, Step

if TYPE_CHECKING:
    from iscsitrace.findings.finding import Advice, AdviceGain, Finding
    from iscsitrace.fit.gain import Gain

_OPEN: Final = 1.1
"""Ratio of a gain's high to its low from which both are shown."""


def gains_in_words(gains: Sequence[Gain]) -> str:
    """Such as ``model: up to 8.0x with queue depth 8``; empty if the model predicts none."""
    if not gains:
        return ""
    return f"model: {', '.join(f'{_times(gain)} with {gain.change}' for gain in gains)}"


def notes_on(advice: Advice, gains: Sequence[Gain]) -> str:
    """What the advice touches, and what the model predicts of it; empty where nothing is known."""
    return "; ".join(note for note in (advice.touches, gains_in_words(gains)) if note)


def _times(gain: Gain) -> str:
    """``up to 5.1x``; ``about 5.1x (2.2x to 7.8x)`` where the packets leave much open."""
    times = f"{gain.throughput_factor:.1f}x"
    is_open = gain.high > _OPEN * gain.low
    return f"about {times} ({gain.low:.1f}x to {gain.high:.1f}x)" if is_open else f"up to {times}"


def _share_of(finding: Finding, sessions: Sequence[int]) -> str:
    if not finding.cost_in_words or finding.rank == "failure":
        return ""
    is_of_one = len(sessions) > 1 and len(finding.sessions) == 1
    return f"of the time of session {finding.sessions[0]}" if is_of_one else "of the time"


def _is_advised(finding: Finding, has_broken: bool) -> bool:
    return not has_broken or finding.rank == "failure" or finding.is_problem


REFERENCE: Final = "See "
"""What the name of another finding follows, where all its advice was given there."""


class Remedies:
    """The remedies said so far, by their text: the finding, and its session or connection."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, str]] = {}
        self._gains: set[tuple[str, str]] = set()

    def told(
        self, findings: Sequence[Finding], label: str, sessions: Sequence[int] = (), *, has_broken: bool = False
    ) -> Findings:
        """Findings of ``label``; of a story of several ``sessions``, a share may be of one.

        Where something ``has_broken``, that and other problems have advice: what limits healthy I/O is only told.
        """
        return Findings(
            tuple(
                FoundProblem(
                    name=each.name,
                    severity=each.severity.replace("_", " "),
                    cost=each.cost_in_words,
                    text=each.text,
                    steps=tuple(Step(*step) for step in self.steps(each, label))
                    if _is_advised(each, has_broken)
                    else (),
                    display_filter=each.display_filter or "",
                    of=_share_of(each, sessions),
                )
                for each in findings
            )
        )

    def steps(self, finding: Finding, label: str) -> list[tuple[str, str]]:
        """The advice of a finding of ``label`` that is new with what it touches, then where the rest was said; each
        with its gains.

        A gain that was shown for the same session or connection is not shown again.
        """
        new, again = [], dict[str, list["AdviceGain"]]()
        for advice, gains in finding.gains_by_advice():
            name, where = self._said.setdefault(advice.text, (finding.name, label))
            if (name, where) == (finding.name, label):
                new.append((advice.text, notes_on(advice, gains)))
            else:
                place = name if where == label else f"{name} of {where}"
                known = again.setdefault(f"{REFERENCE}{place}.", [])
                known += [gain for gain in gains if (label, gains_in_words([gain])) not in self._gains]
            self._gains.update((label, gains_in_words([gain])) for gain in gains)
        return [*new, *((text, gains_in_words(gains)) for text, gains in again.items())]
