"""Why one stream is slower than those beside it: the loss after which most of its time passed, or a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.analysis.groups.jobs.runs import Run
from iscsitrace.analysis.measures import budget as time_budget
from iscsitrace.errors import InputInvalid
from iscsitrace.tables.table import Table

Source = Callable[[str], Table]

WORTH: Final = 0.05
"""Share of its time that a stream has to wait for a window for that to be why it is slow."""
SAME_PATH: Final = 1.5
"""How many times the fastest stream's round trip its own may be for a loss alone to tell them apart."""
TIMEOUT_NS: Final = 190_000_000
"""How long, beyond the round trip, a repair has to stand still for a timeout to have ended it: the usual least is
200 ms, and the sender began to count a little before the tap did."""
GROWN: Final = 2.0
"""How many times what slow start had left it with a window has to be for the next loss to count as another cause: a
loss halves it at most, so below that it is back where it was."""
AGAIN: Final = 2
"""Losses of so small a window that may follow: more of them, and it is they that keep it small."""

WORDS: Final = {
    "slow_start_exit": "a loss in slow start fixed its window low",
    "timeout": "its sender ran into a retransmission timeout",
    "low_equilibrium": "losses kept its congestion window low",
    "window": "it waited for the receive window",
}
"""The causes, as a sentence goes on after ``because``."""


@dataclass(frozen=True)
class Cause:
    """Why a stream is slow, and where to see it."""

    name: str
    """One of WORDS."""
    time_ns: int
    frame: int | None

    @property
    def words(self) -> str:
        """As a sentence has it."""
        return WORDS[self.name]


@dataclass(frozen=True)
class Loss:
    """What made a window smaller."""

    time_ns: int
    kind: str
    """slow_start_exit, timeout or low_equilibrium."""
    frame: int | None
    pipe_bytes: int
    """The pipe when it showed."""
    is_recovery: bool = True
    """Whether it began a repair; else it is a timeout within one."""


class Evidence:
    """What the packets say of one stream's sender."""

    def __init__(self, run: Run, source: Source) -> None:
        """Of a source with the tables budget, recoveries and senders, and retransmissions if it has them."""
        self.run = run
        self._source = source

    @cached_property
    def _connection(self) -> dict[str, Any]:
        table = self._source("connections")
        return next(table.select(table.raw("connection") == self.run.connection).rows())

    @property
    def _direction(self) -> str:
        return "to_target" if self.run.to_target else "to_initiator"

    @property
    def packets(self) -> int:
        """Packets of its data's direction."""
        return int(self._connection[f"packets_{self._direction}"])

    @property
    def retransmitted_packets(self) -> int:
        """Of these, those that were sent again."""
        return int(self._connection[f"retransmitted_packets_{self._direction}"])

    @property
    def retransmission_rate(self) -> float:
        """Share of the packets that were sent again."""
        return self.retransmitted_packets / self.packets if self.packets else 0.0

    def _own(self, name: str) -> Table:
        """The rows of a table that are of its direction."""
        table = self._source(name)
        return table.select(
            (table.raw("connection") == self.run.connection) & (table.raw("to_target") == self.run.to_target)
        )

    @cached_property
    def _sender(self) -> dict[str, Any]:
        return next(self._own("senders").rows(), {})

    @property
    def loss_count(self) -> int:
        """Losses repaired within the run."""
        return sum(loss.is_recovery for loss in self.losses)

    @property
    def timeout_count(self) -> int:
        """Retransmission timeouts within the run; of its connection, where more of them were seen."""
        seen = sum(loss.kind == "timeout" for loss in self.losses)
        return max(int(self._sender.get("timeout_count") or 0), seen)

    @cached_property
    def losses(self) -> list[Loss]:
        """What made its window smaller, in order of time: losses, and the timeouts within their repair."""
        recoveries = list(self._own("recoveries").rows())
        first_ns = min((row["time_first_ns"] for row in recoveries), default=None)
        # the first loss of the connection ended slow start, if any did
        exit_ns = first_ns if self._sender.get("ssthresh_guess_bytes") is not None else None
        found = [
            Loss(
                row["time_first_ns"],
                _kind(row["cause"], row["time_first_ns"] == exit_ns),
                row["frame_first"],
                row["pipe_before_bytes"],
            )
            for row in recoveries
        ]
        for time_ns, frame in self._timeouts(recoveries):
            found.append(Loss(time_ns, "timeout", frame, 0, is_recovery=False))
        found += self._silences([loss.time_ns for loss in found if loss.kind == "timeout"])
        inside = [loss for loss in found if self.run.first_ns <= loss.time_ns <= self.run.last_ns]
        return sorted(inside, key=lambda loss: loss.time_ns)

    @cached_property
    def _again(self) -> Table | None:
        """Packets sent again, in order of time; None of a live pass, which does not keep them."""
        try:
            table = self._own("retransmissions")
        except (InputInvalid, LookupError):
            return None
        return table.select(np.argsort(table.raw("time_ns"), kind="stable"))

    def _timeouts(self, recoveries: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int]]:
        """The first timeout, and its frame, within each repair that did not begin with one."""
        again = self._again
        if again is None or not len(again):
            return
        is_timeout = again["cause"] == "timeout"
        times, frames = again.raw("time_ns")[is_timeout], again.raw("frame")[is_timeout]
        for row in recoveries:
            last_ns = row["time_last_ns"] or self.run.last_ns
            within = np.flatnonzero((times >= row["time_first_ns"]) & (times <= last_ns))
            if len(within) and row["cause"] != "timeout":
                yield int(times[within[0]]), int(frames[within[0]])

    def _silences(self, known_ns: Sequence[int]) -> Iterator[Loss]:
        """Pauses of a repair that only a timeout ended, where it is not known already.

        At a tap beside the receiver what is sent again looks the same whatever made the sender do so.
        """
        _, stretches = self._waited("loss_recovery")
        again = self._again
        least_ns = TIMEOUT_NS + (self.run.path_ns or 0)
        for row in stretches.rows(("time_first_ns", "time_last_ns", "frame")):
            first_ns, last_ns = row["time_first_ns"], row["time_last_ns"]
            if last_ns - first_ns >= least_ns and not any(first_ns <= each <= last_ns for each in known_ns):
                frame = row["frame"]
                if frame is None and again is not None:
                    # the first that came when it was over
                    place = int(np.searchsorted(again.raw("time_ns"), last_ns))
                    frame = int(again.raw("frame")[place]) if place < len(again) else None
                yield Loss(first_ns, "timeout", frame, 0, is_recovery=False)

    @cached_property
    def _regimes(self) -> list[str]:
        """What kept the window low after each loss: a later loss of a window that had not grown out of the one that
        slow start had left it with is that one's doing still.
        """
        found: list[str] = []
        exit_bytes, again = 0, 0
        for loss in self.losses:
            if loss.kind == "slow_start_exit":
                exit_bytes = loss.pipe_bytes
            is_small = bool(found) and found[-1] == "slow_start_exit" and loss.pipe_bytes < GROWN * exit_bytes
            again += is_small
            is_still = loss.kind == "low_equilibrium" and is_small and again <= AGAIN
            found.append("slow_start_exit" if is_still else loss.kind)
        return found

    def _waited(self, *parts: str) -> tuple[int, Table]:
        """Time of the run that these parts own, and their stretches."""
        rows = time_budget.rows_of(self._source("budget"), connection=self.run.connection)
        codes = [time_budget.PARTS.index(part) for part in parts]
        inside = (rows.raw("time_last_ns") > self.run.first_ns) & (rows.raw("time_first_ns") < self.run.last_ns)
        rows = rows.select(np.isin(rows.raw("part"), codes) & inside)
        return int((rows.raw("time_last_ns") - rows.raw("time_first_ns")).sum()), rows

    def cause(self, fastest: Run) -> Cause | None:
        """Why it is slower than the fastest; None where nothing shows it."""
        window_ns, stretches = self._waited("receive_window")
        congestion_ns, _ = self._waited("congestion_window", "loss_recovery")
        least_ns = WORTH * self.run.length_ns
        if window_ns >= max(least_ns, congestion_ns, 1):
            row = stretches.row(int((stretches.raw("time_last_ns") - stretches.raw("time_first_ns")).argmax()))
            return Cause("window", row["time_first_ns"], row["frame"])
        ways = (self.run.path_ns, fastest.path_ns)
        is_same_path = None not in ways and (ways[0] or 0) <= SAME_PATH * (ways[1] or 0)
        if not self.losses or not (congestion_ns >= least_ns or is_same_path):
            return None
        return self._of_losses()

    def _of_losses(self) -> Cause:
        """The kind of loss after which most of the time passed, until the next one: so long its window was in force."""
        times = [loss.time_ns for loss in self.losses]
        lengths = np.diff([*times, self.run.last_ns])
        spent = dict.fromkeys(self._regimes, 0)
        for kind, length in zip(self._regimes, lengths.tolist(), strict=True):
            spent[kind] += length
        name = max(spent, key=lambda kind: spent[kind])
        is_own = np.array(self._regimes) == name
        # of timeouts the one that cost most, of others the one that began it
        place = np.where(is_own, lengths, -1).argmax() if name == "timeout" else is_own.argmax()
        loss = self.losses[int(place)]
        return Cause(name, loss.time_ns, loss.frame)


def _kind(cause: str | None, ends_slow_start: bool) -> str:
    if cause == "timeout":
        return "timeout"
    return "slow_start_exit" if ends_slow_start else "low_equilibrium"
