"""One run of the bench: what is right, what was said, and how it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.unseen import acceptance, drawing, guests, judging, logs, runs, truth
from bench.unseen.acceptance import Accepted
from bench.unseen.judging import BOTH, Said
from bench.unseen.truth import Facts

TAPS = ("initiator", "target", BOTH)


@dataclass(frozen=True)
class Outcome:
    """A run that was judged."""

    world: str
    seed: int
    number: int
    kind: str
    """What was drawn to dominate."""
    accepted: Accepted
    said: Mapping[str, Said]
    """By tap, and at both."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """The true parts."""
    summary: str = ""
    """The truth in other numbers."""

    def is_right(self, tap: str) -> bool:
        """Whether the headline is."""
        return self.said[tap].is_in(self.accepted)

    @property
    def is_equal(self) -> bool:
        """Whether both taps say the same."""
        return judging.are_equal(self.said["initiator"], self.said["target"], self.accepted)

    @property
    def is_limiter_right(self) -> bool:
        """Whether both taps' limiters are among the largest true parts."""
        largest = _largest(self.shares)
        return all(self.said[tap].limiter in largest for tap in TAPS[:2])

    @property
    def command(self) -> str:
        """What repeats it."""
        world = "" if self.world == "simulated" else f" --world {self.world}"
        return f"python -m bench.unseen{world} --seed {self.seed} --only {self.number} --keep DIR"

    def miss(self) -> str:
        """A miss, as one line."""
        said = ", ".join(f"{tap} {self.said[tap]}{'' if self.is_right(tap) else ' !'}" for tap in TAPS)
        equal = "" if self.is_equal else "; not equal"
        right = "|".join(self.accepted.names)
        parts = ", ".join(f"{part} {100 * share:.0f} %" for part, share in _ordered(self.shares)[:3])
        known = f"right: {right}; {parts}; {self.summary}"
        return f"{self.number:4} {self.accepted.label}: {said}{equal}; {known}; {self.command}"

    def story(self) -> Iterator[str]:
        """Everything about it, as lines."""
        yield f"drawn: {self.kind}; {self.summary}"
        yield "right: " + "; ".join(f"{name} ({'|'.join(sorted(own))})" for name, own in self.accepted.names.items())
        for tap in TAPS:
            yield f"{tap}: {'right' if self.is_right(tap) else 'WRONG'}: {self.said[tap]}: {self.said[tap].text}"
        yield f"equal at both taps: {'yes' if self.is_equal else 'NO'}"
        yield f"{'part':20}{'true':>8}" + "".join(f"{tap:>12}" for tap in TAPS) + "   in % of the time"
        for part in dict.fromkeys((*self.shares, *self.said[TAPS[0]].shares)):
            cells = [self.shares.get(part), *(self.said[tap].shares.get(part) for tap in TAPS)]
            if any(cells):
                widths = (8, 12, 12, 12)
                texts = ["-" if cell is None else f"{100 * cell:.1f}" for cell in cells]
                yield f"{part:20}" + "".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))


def _ordered(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda each: -each[1])


def _largest(shares: Mapping[str, float]) -> set[str]:
    """The largest parts, as a time breakdown names them: a wait in the queue of a line is transfer."""
    named: dict[str, float] = {}
    for part, share in shares.items():
        name = "transfer" if part == "foreign_queue" else part
        named[name] = named.get(name, 0.0) + share
    most = max(named.values(), default=0.0)
    return {part for part, share in named.items() if most - share < acceptance.EQUAL_POINTS / 100}


Maker = Callable[[int, int, Path], Outcome]


def of_simulated(seed: int, number: int, folder: Path) -> Outcome:
    """A run in the simulated world. RuntimeError if a command failed."""
    draw = drawing.of_number(seed, number)
    made = runs.make(draw, folder)
    return _of("simulated", draw, made, logs.of_simulation(draw, made))


def of_guests(seed: int, number: int, folder: Path) -> Outcome:
    """A run between real kernels. RuntimeError if it failed without a fault."""
    draw = drawing.of_guests(seed, number)
    made = guests.make(draw, folder)
    return _of("guests", draw, made, guests.of_run(made))


def _of(world: str, draw: drawing.Draw, made: runs.Made, known: logs.Logs) -> Outcome:
    facts = truth.facts(draw, known)
    right, said = acceptance.accepted(facts), judging.said_of(made.shown)
    return Outcome(world, draw.seed, draw.number, draw.kind, right, said, facts.shares, _told(draw, facts))


def _told(draw: drawing.Draw, facts: Facts) -> str:
    words = [
        f"{draw['workload.operation']} {draw['workload.block-size'] >> 10}K QD {facts.depth}",
        f"RTT {facts.rtt_ns / drawing.MS:.1f} ms",
        f"line busy {100 * facts.line_share:.0f} %",
        f"queue {facts.queue_ns / drawing.MS:.1f} ms" if facts.queue_ns > drawing.MS else "",
        f"service {facts.service_ns / drawing.MS:.2g} ms" if facts.service_ns else "",
        f"{facts.loss_count} lost, {facts.loss_ns / drawing.MS:.0f} ms" if facts.loss_ns else "",
        f"black-out {facts.black_out_ns / drawing.MS:.0f} ms" if facts.black_out_ns else "",
        f"{facts.storage_outlier_count} outliers" if facts.storage_outlier_count else "",
        f"idle {100 * facts.think_share:.0f} %" if facts.think_share > acceptance.EQUAL_POINTS / 100 else "",
        f"I/O {facts.io_ns / drawing.MS:.0f} ms",
    ]
    return ", ".join(word for word in words if word)
