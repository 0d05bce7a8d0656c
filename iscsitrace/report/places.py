"""Where the time goes, by the captures of several taps: the bar of a chapter, and the section with pictures."""

from __future__ import annotations

from typing import Final

from iscsitrace.plots import inline
from iscsitrace.report import figures
from iscsitrace.report.document import ByPlace, FoundProblem, Part
from iscsitrace.report.subject import Subject
from iscsitrace.show import places as words
from iscsitrace.show.document import Section
from iscsitrace.tables.trace import Trace
from iscsitrace.taps import places
from iscsitrace.taps.places import Place, Verdict
from iscsitrace.taps.reading import TappedTrace
from iscsitrace.wording import cells
from iscsitrace.wording.parts import BY_NAME
from iscsitrace.wording.sentences import sentence

_LOOKS: Final[dict[Place, tuple[str, str]]] = {
    "network": ("one-way delays, losses, and what TCP held back", "propagation"),
    "target": ("from the last byte of a request to its answer", "target_service"),
    "initiator": ("from an R2T to the last byte of its data", "initiator_service"),
}
"""What the time is, and the part of the time breakdown whose colour it has."""


def parts(trace: Trace, subject: Subject) -> tuple[Part, ...]:
    """The time of a subject's reads and writes by place; none without several taps."""
    found = _verdicts(trace, subject)
    if not found:
        return ()
    # of several sessions, that with most of the time
    return _parts(max(found, key=lambda each: each.latency_ns * each.command_count))


def _verdicts(trace: Trace, subject: Subject) -> list[Verdict]:
    if not isinstance(trace, TappedTrace):
        return []
    return [each for each in places.verdicts(trace) if each.session in subject.sessions]


def _parts(verdict: Verdict) -> tuple[Part, ...]:
    most = max(verdict.shares, key=lambda place: verdict.shares[place])
    return tuple(
        Part(
            name=words.PLACE_WORDS[place],
            meaning=_LOOKS[place][0],
            share=share,
            time=cells.milliseconds(verdict.parts_ns[place]),
            color=BY_NAME[_LOOKS[place][1]].color,
            is_limiter=place == most,
        )
        for place, share in verdict.shares.items()
        if share > 0
    )


def of_trace(trace: Trace, session: int | None, looks: inline.Looks, *, has_pictures: bool) -> ByPlace | None:
    """The section; ``session`` is that of the pictures."""
    if not isinstance(trace, TappedTrace):
        return None
    lines = tuple(words.verdict(each) for each in places.verdicts(trace))
    found = tuple(
        FoundProblem(each.name, each.severity.replace("_", " "), "", sentence(each.text), ())
        for each in places.findings(trace)
    )
    pictures, missing = figures.of_places(trace, session, looks) if has_pictures and session is not None else ((), ())
    return ByPlace(Section("By place", lines, (words.grid(trace.taps.rows()),), "places"), found, pictures, missing)
