"""Hosts that ask whether another one is there, and get no answer: ARP, neighbor discovery, pings.

A capture filter on the TCP port hides them all: without a question nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from iscsitrace.tables.table import Source

Kind = Literal["neighbor", "echo"]

LEAST: Final = 2
"""Questions that show silence: one of them, or its answer, may be lost."""


@dataclass(frozen=True)
class Unanswered:
    """Questions of one host for another one that had no answer."""

    count: int
    frame: int
    from_ns: int
    to_ns: int
    """The last question."""


class HostQuestions:
    """The questions of a trace."""

    def __init__(self, source: Source) -> None:
        """From the tables of a trace that was read with any tables."""
        self._rows = {
            (row["kind"], row["asker_address"], row["asked_address"]): row for row in source("host_questions").rows()
        }

    def unanswered(self, kind: Kind, asker: str, asked: str) -> Unanswered | None:
        """Those of one host for another one, if none of them had an answer."""
        row = self._rows.get((kind, asker, asked))
        if row is None or row["answer_count"] or row["question_count"] < LEAST:
            return None
        return Unanswered(row["question_count"], row["frame_first"], row["time_first_ns"], row["time_last_ns"])
