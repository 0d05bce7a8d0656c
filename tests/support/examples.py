"""The example sentences of findings, held against what a capture shows: the words, not the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iscsitrace.diagnosis.examination import Diagnosis
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.findings.finding import Finding
from iscsitrace.wording.sentences import brief

_AMOUNT = re.compile(r"\S*\d\S*?(?: (?:ns|µs|ms|s|bytes|KiB|MiB|MB/s|KB/s|%))?(?=[,.;:)]*(?:\s|$))")


def all_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Those of stories, sessions and connections."""
    lists: list[Sequence[Finding]] = [
        each.findings for each in (*diagnosis.sessions.values(), *diagnosis.connections.values())
    ]
    lists += [each.findings for each in diagnosis.stories]
    return [finding for findings in lists for finding in findings]


def assert_is_example(diagnosis: Diagnosis, name: str) -> None:
    """Asserts that a diagnosis has a finding, in the words of its example."""
    sentences = [_words(brief(each.text)) for each in all_findings(diagnosis) if each.name == name]
    assert _words(PROBLEMS[name].example) in sentences, [
        each.text for each in all_findings(diagnosis) if each.name == name
    ]


def _words(sentence: str) -> str:
    return _AMOUNT.sub("#", sentence)
