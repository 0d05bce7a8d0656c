"""Results of the analysis of a run at either tap, against the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import iscsitrace
from bench.budget import link
from bench.budget.cases import EQUAL_POINTS, LINE, Case, largest, limiters
from bench.budget.runs import Made
from iscsitrace.measure import budget


@dataclass(frozen=True)
class Outcome:
    """One run at one tap. Shares are of the time from first command to last status."""

    case: Case
    world: str
    tap: str
    true_idle: float
    true_idle_of_line: float
    """All frames count as busy time, ACKs too."""
    true_parts: dict[str, float]
    right: tuple[str, ...]
    """The correct limiters."""
    largest: tuple[str, ...]
    """The largest part other than the line's, and equally large ones."""
    idle: float
    parts: dict[str, float]
    named: str
    """The limiter reported."""
    wait: str
    """The largest part reported other than the line's."""

    @property
    def error_points(self) -> float:
        """Error of the idle fraction."""
        return 100 * (self.idle - self.true_idle)

    @property
    def is_right(self) -> bool:
        """Whether the limiter is a correct one."""
        return self.named in self.right

    @property
    def is_wait_right(self) -> bool:
        """Whether the largest part other than the line's is correct; below EQUAL_POINTS any is."""
        return self.wait in self.largest or 100 * (1 - self.true_idle) > 100 - EQUAL_POINTS

    @property
    def allowed_points(self) -> float:
        """Tolerated error of the idle fraction: 1 point from 1 ms on, else 3."""
        return 1.0 if self.case.delay_ms >= 1 else 3.0


def outcomes_of(made: Made) -> Iterator[Outcome]:
    """Results of the analysis of a run, at either tap."""
    run = made.parts
    for tap, file in made.files.items():
        idle = link.idle(made.truth, tap, run.taps.span(tap))
        true_ns = run.parts(tap)
        seen_ns = _as_seen(true_ns, run.hidden_ns(tap), tap)
        (busy,) = budget.of_connections(iscsitrace.read(str(file), tables=("budget",)).budget).values()
        # the truth is of the whole time, with the commands that set up the disk
        found = budget.Budget(busy.whole_ns)
        yield Outcome(
            made.case,
            made.world,
            tap,
            idle.of_payload,
            idle.of_line,
            _shares(true_ns),
            tuple(dict.fromkeys(limiters(true_ns) + limiters(seen_ns))),
            tuple(dict.fromkeys(largest(true_ns) + largest(seen_ns))),
            1.0 if found.idle_fraction is None else found.idle_fraction,
            _shares(found.parts_ns),
            str(found.limiter),
            max((part for part in found.parts_ns if part != LINE), key=found.parts_ns.__getitem__),
        )


def _as_seen(true_ns: Mapping[str, int], hidden_ns: int, tap: str) -> dict[str, int]:
    """The parts as a tap sees them: losses that it cannot see look like service time of a side."""
    wait = "target_service" if tap == "initiator" else "initiator_think"
    known_ns = dict(true_ns)
    moved_ns = min(hidden_ns, known_ns.get("loss_recovery", 0))
    known_ns["loss_recovery"] = known_ns.get("loss_recovery", 0) - moved_ns
    known_ns[wait] += moved_ns
    return known_ns


def _shares(parts_ns: Mapping[str, float]) -> dict[str, float]:
    total = sum(parts_ns.values())
    return {part: part_ns / total for part, part_ns in parts_ns.items()} if total else {}
