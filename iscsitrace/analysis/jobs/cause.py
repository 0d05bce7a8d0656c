"""Why one stream is slower than those beside it: the loss after which most of its time passed, or a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.analysis import budget as time_budget
from iscsitrace.analysis.jobs.runs import Run
from iscsitrace.analysis.mirrors.legs import known
from iscsitrace.table import Table

Source = Callable[[str], Table]

WORTH: Final = 0.05
"""Share of its time that a stream has to wait for a window for that to be why it is slow."""
SAME_PATH: Final = 1.5
"""How many times the fastest stream's round trip its own may be for a loss alone to tell them apart."""
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


class Evidence:
    """What the packets say of one stream's sender."""

    def __init__(self, run: Run, source: Source) -> None:
        """Of a source with the tables budget, recoveries and senders."""
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

    @cached_property
    def losses(self) -> Table:
        """Its recoveries within the run, in order of time."""
        table = self._source("recoveries")
        times = table.raw("time_first_ns")
        is_own = (table.raw("connection") == self.run.connection) & (table.raw("to_target") == self.run.to_target)
        picked = table.select(is_own & (times >= self.run.first_ns) & (times <= self.run.last_ns))
        return picked.select(np.argsort(picked.raw("time_first_ns"), kind="stable"))

    @property
    def loss_count(self) -> int:
        """Losses repaired."""
        return len(self.losses)

    @property
    def timeout_count(self) -> int:
        """Of these, those that a timeout found out."""
        return int((self.losses["cause"] == "timeout").sum()) if len(self.losses) else 0

    @cached_property
    def kinds(self) -> list[str]:
        """What each loss was: slow_start_exit, timeout or low_equilibrium."""
        table = self._source("senders")
        is_own = (table.raw("connection") == self.run.connection) & (table.raw("to_target") == self.run.to_target)
        senders = table.select(is_own)
        # the first loss of the connection, if it ended a slow start: not if that was before this run
        everything = self._source("recoveries")
        mine = (everything.raw("connection") == self.run.connection) & (
            everything.raw("to_target") == self.run.to_target
        )
        first_ns = int(everything.raw("time_first_ns")[mine].min()) if mine.any() else None
        was_slow_start = bool(len(senders)) and bool(known(senders, "ssthresh_guess_bytes")[0])
        kinds = []
        for row in self.losses.rows(("cause", "time_first_ns")):
            if row["cause"] == "timeout":
                kinds.append("timeout")
            elif was_slow_start and row["time_first_ns"] == first_ns:
                kinds.append("slow_start_exit")
            else:
                kinds.append("low_equilibrium")
        return kinds

    @cached_property
    def _regimes(self) -> list[str]:
        """What kept the window low after each loss: a later loss of a window that had not grown out of the one that
        slow start had left it with is that one's doing still.
        """
        found: list[str] = []
        exit_bytes, again = 0, 0
        for kind, pipe_bytes in zip(self.kinds, self.losses.raw("pipe_before_bytes").tolist(), strict=True):
            if kind == "slow_start_exit":
                exit_bytes = pipe_bytes
            is_small = bool(found) and found[-1] == "slow_start_exit" and pipe_bytes < GROWN * exit_bytes
            again += is_small
            is_still = kind == "low_equilibrium" and is_small and again <= AGAIN
            found.append("slow_start_exit" if is_still else kind)
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
        if not len(self.losses) or not (congestion_ns >= least_ns or is_same_path):
            return None
        return self._of_losses()

    def _of_losses(self) -> Cause:
        """The kind of loss after which most of the time passed, until the next one: so long its window was in force."""
        times = self.losses.raw("time_first_ns")
        until = np.append(times[1:], self.run.last_ns)
        spent: dict[str, int] = {}
        for kind, length in zip(self._regimes, (until - times).tolist(), strict=True):
            spent[kind] = spent.get(kind, 0) + length
        name = max(spent, key=lambda kind: spent[kind])
        is_own = np.array(self._regimes) == name
        # of timeouts the one that cost most, of others the one that began it
        place = np.where(is_own, until - times, -1).argmax() if name == "timeout" else is_own.argmax()
        row = self.losses.row(int(place))
        return Cause(name, row["time_first_ns"], row["frame_first"])
