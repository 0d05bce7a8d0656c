"""Whether a capture is good enough to diagnose, by the rule of the finding capture_poor."""

from __future__ import annotations

from iscsitrace.diagnosis.headline import hides_the_rest
from iscsitrace.findings import capture
from iscsitrace.measure.grouping import Grouping
from iscsitrace.tables.table import Source
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import sentence


def verdict(source: Source) -> tuple[bool, str]:
    """Whether it is, and that as sentences with what is missing, of the worst session; ``source`` has the tables of
    `iscsitrace.measure.NEEDED`.
    """
    sessions = Grouping(source).sessions
    if not len(sessions):
        return False, "The capture has no iSCSI session: there is nothing to diagnose."
    facts = sessions.facts
    is_poor, is_hidden = facts.once(capture.is_poor), facts.once(hides_the_rest)
    poor = [number for number in sessions if is_poor[number]]
    lacking = [number for number in poor if is_hidden[number]]
    if not poor:
        return True, "The capture is good enough to diagnose."
    there = facts.once(capture.decoded_shares) * facts.once(capture.captured_shares)
    worst = sessions[min(lacking or poor, key=there.__getitem__)]
    why = f"{worst.label}: {capture.reasons(worst)}."
    if not lacking:
        return True, f"The capture is good enough to diagnose. Some is missing from {why}"
    if len(lacking) == 1:
        return False, f"The capture is not good enough to diagnose {why}"
    of = f"{len(lacking):,} of {wording.count(len(sessions), 'session')}"
    return False, f"The capture is not good enough to diagnose {of}. {sentence(why)}"
