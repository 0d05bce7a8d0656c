"""What a diagnosis says of single frames, and of the capture, as comments for Wireshark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from iscsitrace.findings import NEEDED
from iscsitrace.findings.history import listed
from iscsitrace.wording.amounts import count
from iscsitrace.wording.cells import printable

if TYPE_CHECKING:
    from iscsitrace.diagnosis.examination import Diagnosis
    from iscsitrace.findings.finding import Finding

TABLES: Final = NEEDED
"""What a trace has to be read with."""
_SESSIONS: Final = 10
"""Sessions whose headline is in the comment of the capture."""


def of_frames(diagnosis: Diagnosis) -> dict[int, list[str]]:
    """The comments of the frames that findings name as evidence: the finding, its sessions and its sentence."""
    found: dict[int, dict[str, None]] = {}
    for finding in _findings(diagnosis):
        sessions = "session" if len(finding.sessions) == 1 else "sessions"
        where = f", {sessions} {listed(finding.sessions)}" if finding.sessions else ""
        text = printable(f"iscsitrace: {finding.name} ({finding.severity}{where}): {finding.text}")
        for frame in finding.frames:
            found.setdefault(frame, {})[text] = None
    return {frame: [*texts] for frame, texts in sorted(found.items())}


def of_capture(diagnosis: Diagnosis, frame_count: int, made_by: str) -> str:
    """The headline, what to do first, the headlines of sessions, and where the comments are."""
    lines = [diagnosis.headline.text] if diagnosis.headline else ["No session of iSCSI was found."]
    if diagnosis.headline and diagnosis.headline.first_step:
        lines.append(f"What to do: {diagnosis.headline.first_step}")
    texts = dict.fromkeys(opinion.headline.text for opinion in diagnosis.sessions.values())
    others = [text for text in texts if text not in lines]
    lines += others[:_SESSIONS]
    if more := len(others[_SESSIONS:]):
        lines.append(f"{count(more, 'more session')}: iscsitrace diagnose shows them.")
    frames = count(frame_count, "frame") if frame_count else "No frame"
    where = f"{frames} with a comment: filter frame.comment"
    return "\n".join(map(printable, (*lines, f"{where}. Made by {made_by}.")))


def _findings(diagnosis: Diagnosis) -> Iterator[Finding]:
    """Every finding, those of stories first; one of several sessions may come again."""
    opinions: Iterable[Iterable[Finding]] = (
        *(each.findings for each in diagnosis.stories),
        *(each.findings for each in diagnosis.sessions.values()),
        *(each.findings for each in diagnosis.separate.values()),
    )
    for findings in opinions:
        yield from findings
