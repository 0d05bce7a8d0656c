"""The spans of a finding, compared with those of others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from iscsitrace.measure.intervals import Span


class FindingSpans:
    """The spans of a finding. A finding of a story has a span for each session, and is compared once for each session:
    so each answer is kept, and no span is compared with all others.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._answers: dict[FindingSpans, bool] = {}

    @cached_property
    def _ordered(self) -> list[Span]:
        return sorted(self._spans)

    @cached_property
    def _ends(self) -> tuple[list[int], list[int]]:
        """The starts in order, and up to each the last end."""
        return [start for start, _ in self._ordered], list(accumulate((end for _, end in self._ordered), max))

    def meeting(self, span: Span) -> Iterator[Span]:
        """Those that meet a span, in order."""
        starts, ends = self._ends
        places = range(bisect_left(ends, span[0]), bisect_right(starts, span[1]))
        return (self._ordered[place] for place in places if self._ordered[place][1] >= span[0])

    def _meet(self, first: int, last: int) -> bool:
        """Whether one of them meets this span."""
        starts, ends = self._ends
        place = bisect_right(starts, last)
        return place > 0 and first <= ends[place - 1]

    def are_within(self, others: FindingSpans) -> bool:
        """Whether each meets one of the others; also where either has none."""
        if others not in self._answers:
            self._answers[others] = not others._spans or all(others._meet(first, last) for first, last in self._spans)
        return self._answers[others]
