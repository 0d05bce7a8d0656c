"""The clock of one tap against that of another: offset and drift, piecewise linear, with bounds.

Nothing arrives before it is sent. What passes tap A before tap B is stamped ``offset + delay`` later by B, what passes
B before A ``offset - delay``. So the least differences of the first direction limit the offset from above, and the
greatest of the second from below. Between these envelopes the line with the greatest margin is taken. It is exact where
the least delays of the two directions are equal; else it errs by half their difference, which no capture can show.

It never sees packets or commands, only samples; and it never looks for a cause of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.intervals import Span
from iscsitrace.tables.numbers import grouped
from iscsitrace.taps.envelope import Envelope, OffsetLine, Samples, step_between, widest, worst_boundary

Array = NDArray[Any]

TOLERANCE_NS: Final = 20_000
"""Stamps of one host differ by this much from the order of its packets (batches of a network card, several CPUs)."""

_STIFF: Final = 0.25
"""One line is too stiff for two halves that each have four times its margin."""


@dataclass(frozen=True)
class Piece:
    """A time in which one line holds; ``from_ns`` is the time at A at which it begins."""

    from_ns: int
    line: OffsetLine


@dataclass(frozen=True)
class Clock:
    """The clock of tap B less that of tap A."""

    pieces: tuple[Piece, ...]
    reference_ns: int
    """Time at A where the offset is known best."""
    offset_ns: int
    """Offset at that time, with its bounds."""
    low_ns: int
    high_ns: int
    unsure: tuple[Span, ...] = ()
    """Times at A around each step, in which it is unclear which piece holds."""
    is_assumed: bool = False
    """Whether the clocks were said to be synchronised."""

    @property
    def drift_ppm(self) -> float:
        """Drift at the reference time, in parts per million."""
        return self.pieces[int(self._piece_of(np.array([self.reference_ns]))[0])].line.slope * 1e6

    @property
    def steps_ns(self) -> list[tuple[int, int]]:
        """Time at A and size of each step."""
        return [
            (after.from_ns, int(after.line.at(after.from_ns) - before.line.at(after.from_ns)))
            for before, after in zip(self.pieces[:-1], self.pieces[1:], strict=True)
        ]

    def _piece_of(self, time_a_ns: Array) -> Array:
        starts = np.array([piece.from_ns for piece in self.pieces[1:]], dtype=np.int64)
        return np.searchsorted(starts, time_a_ns, side="right")

    def offset_at(self, time_a_ns: Array) -> Array:
        """Offset at times of A, int64."""
        return self._in_pieces(time_a_ns, lambda line, at: line.at(time_a_ns[at]))

    def to_a(self, time_b_ns: Array, near_a_ns: Array) -> Array:
        """Times of B on A's clock, int64.

        ``near_a_ns`` are times of A close to them, which decide on which side of a step they are.
        """
        return self._in_pieces(near_a_ns, lambda line, at: line.to_a(time_b_ns[at]))

    def _in_pieces(self, near_a_ns: Array, value: Callable[[OffsetLine, Any], Array]) -> Array:
        """What ``value`` returns for the line of each piece, and for the items whose times of A are in it, int64."""
        if len(self.pieces) == 1:
            return value(self.pieces[0].line, slice(None))
        values = np.zeros(len(near_a_ns), dtype=np.int64)
        for number, at in grouped(self._piece_of(near_a_ns)).items():
            values[at] = value(self.pieces[number].line, at)
        return values

    def on_a(self, time_b_ns: Array) -> Array:
        """Times of B on A's clock, int64, without a time of A close to them.

        Where B's clock was set back, its times occur twice: those after the step are taken.
        """
        times = self.pieces[0].line.to_a(time_b_ns)
        for piece in self.pieces[1:]:
            later = piece.line.to_a(time_b_ns)
            times = np.where(later >= piece.from_ns, later, times)
        return times


def synchronised() -> Clock:
    """Clocks that were said to be the same."""
    return Clock((Piece(-(1 << 62), OffsetLine(0, 0, 0.0)),), 0, 0, 0, 0, is_assumed=True)


def fit(samples: Samples, most_steps: int) -> Clock | None:
    """The clock that the samples show; None where no clock that is set that often at most follows them."""
    if not samples.has_both_directions:
        return None
    parts = _parts(samples, most_steps)
    if parts is None:
        return None
    envelopes = [Envelope.of(part) for part in parts]
    lines, margin_ns = widest(envelopes)
    alone = [widest([envelope]) for envelope in envelopes]
    # a clock that is set keeps its rate; one of another rate has its own line in each part
    if margin_ns < _STIFF * min(margin for _, margin in alone):
        lines = [line for (line,), _ in alone]
    bounds = [(*envelope.narrowest(line), line) for envelope, line in zip(envelopes, lines, strict=True)]
    time_ns, low_ns, high_ns, line = min(bounds, key=lambda each: each[2] - each[1])
    offset_ns = int(line.at(time_ns))
    # where A's clock is set back, its times after the step begin before those that precede it
    edges = [(int(one.time_ns[-1]), int(other.time_ns[0])) for one, other in pairwise(parts)]
    unsure = tuple((min(edge), max(edge)) for edge in edges)
    starts = [int(parts[0].time_ns[0]), *((first + last + 1) // 2 for first, last in unsure)]
    pieces = tuple(Piece(start, line) for start, line in zip(starts, lines, strict=True))
    return Clock(pieces, time_ns, offset_ns, min(low_ns, offset_ns), max(high_ns, offset_ns), unsure)


def _parts(samples: Samples, steps_left: int) -> list[Samples] | None:
    """The samples of each piece of the clock; None if no few pieces follow them."""
    envelope = Envelope.of(samples)
    (line,), margin_ns = widest([envelope])
    is_followed = margin_ns >= -TOLERANCE_NS
    boundary = step_between(samples, line.slope if is_followed else 0.0)
    if boundary is None and is_followed and not _is_stiff(samples, margin_ns):
        return [samples]
    if boundary is None and steps_left:
        boundary = worst_boundary(samples)
    if boundary is not None and steps_left:
        first, second = samples.cut(boundary)
        before = _parts(first, steps_left - 1) if second.has_both_directions else None
        after = _parts(second, steps_left - len(before)) if before is not None else None
        if before is not None and after is not None:
            return [*before, *after]
    return [samples] if is_followed else None


def _is_stiff(samples: Samples, margin_ns: float) -> bool:
    """Whether a line is too stiff for them: a clock whose rate changed leaves two halves more room than chance does."""
    halves = samples.cut(len(samples) // 2)
    if not all(half.has_both_directions for half in halves):
        return False
    envelopes = [Envelope.of(half) for half in halves]
    room_ns = [widest([envelope]) for envelope in envelopes]
    least_ns = min(
        margin - envelope.slack_ns(lines[0].slope) for (lines, margin), envelope in zip(room_ns, envelopes, strict=True)
    )
    return least_ns > TOLERANCE_NS and margin_ns < _STIFF * least_ns
