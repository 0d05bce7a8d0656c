"""The cause of a slow stream: the loss after which most of its time passed, or a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.measure import budget as time_budget
from iscsitrace.measure.losses import losses
from iscsitrace.relate.jobs.runs import Run
from iscsitrace.tables.partition import ByConnection
from iscsitrace.tables.table import Table

WORTH: Final = 0.05
"""Share of its time from which on waiting for a window is the cause of a slow stream."""
SAME_PATH: Final = 1.5
"""Largest ratio of its RTT to that of the fastest stream for which a loss alone is the cause."""
TIMEOUT_NS: Final = 190_000_000
"""Silence beyond the RTT after which a timeout ended it: the usual minimum is 200 ms, and the timer of the sender
started a little before the silence at the tap."""
GROWN: Final = 2.0
"""Ratio of a window to the one that slow start ended with from which on the next loss is a new cause: a loss halves it
at most, so a smaller window is back where slow start left it."""
AGAIN: Final = 2
"""Losses of a window that small which still belong to slow start; after more of them, they keep the window small."""

WORDS: Final = {
    "slow_start_exit": "a loss in slow start left its congestion window small",
    "timeout": "its sender had a retransmission timeout",
    "low_equilibrium": "losses kept its congestion window small",
    "window": "it was receive-window-limited",
}
"""The causes in words, to follow ``because``."""


@dataclass(frozen=True)
class Cause:
    """The cause of a slow stream, and the frame that shows it."""

    name: str
    """One of WORDS."""
    time_ns: int
    frame: int | None

    @property
    def words(self) -> str:
        """The cause in words."""
        return WORDS[self.name]


@dataclass(frozen=True)
class Loss:
    """A loss that reduced the congestion window."""

    time_ns: int
    kind: str
    """slow_start_exit, timeout or low_equilibrium."""
    frame: int | None
    pipe_bytes: int
    """Pipe when the loss showed."""
    is_recovery: bool = True
    """Whether it began a recovery; else it is a timeout within one."""


class Evidence:
    """What the packets show of the sender of one stream."""

    def __init__(self, run: Run, tables: ByConnection) -> None:
        """``tables`` are budget, recoveries and senders, and retransmissions if the trace was read with them."""
        self.run = run
        self._tables = tables

    @cached_property
    def _connection(self) -> dict[str, Any]:
        own = self._tables.rows("connections", [self.run.connection])
        return next(own.rows((f"packets_{self._direction}", f"retransmitted_packets_{self._direction}")))

    @property
    def _direction(self) -> str:
        return "to_target" if self.run.to_target else "to_initiator"

    @property
    def packets(self) -> int:
        """Packets in the direction of its data."""
        return int(self._connection[f"packets_{self._direction}"])

    @property
    def retransmitted_packets(self) -> int:
        """Retransmissions among them."""
        return int(self._connection[f"retransmitted_packets_{self._direction}"])

    @property
    def retransmission_rate(self) -> float:
        """Retransmissions / packets."""
        return self.retransmitted_packets / self.packets if self.packets else 0.0

    def _own(self, name: str) -> Table:
        """The rows of a table for its connection and direction."""
        own = self._tables.rows(name, [self.run.connection])
        return own.select(own.raw("to_target") == self.run.to_target)

    @cached_property
    def _sender(self) -> dict[str, Any]:
        return next(self._own("senders").rows(("timeout_count", "ssthresh_guess_bytes")), {})

    @property
    def loss_count(self) -> int:
        """Recoveries within the run."""
        return sum(loss.is_recovery for loss in self.losses)

    @property
    def timeout_count(self) -> int:
        """Retransmission timeouts within the run, or of its connection if that has more."""
        seen = sum(loss.kind == "timeout" for loss in self.losses)
        return max(int(self._sender.get("timeout_count") or 0), seen)

    @cached_property
    def losses(self) -> list[Loss]:
        """Losses and timeouts that reduced its window, in order of time."""
        recoveries = self._own("recoveries")
        columns = ("time_first_ns", "time_last_ns", "cause", "frame_first", "pipe_before_bytes")
        lost = list(losses(recoveries).rows(columns))
        first_ns = min(recoveries.raw("time_first_ns").tolist(), default=None)
        # if a loss ended slow start, it is the first recovery of the connection
        exit_ns = first_ns if self._sender.get("ssthresh_guess_bytes") is not None else None
        found = [
            Loss(
                row["time_first_ns"],
                _kind(row["cause"], row["time_first_ns"] == exit_ns),
                row["frame_first"],
                row["pipe_before_bytes"],
            )
            for row in lost
        ]
        for time_ns, frame in self._timeouts(lost):
            found.append(Loss(time_ns, "timeout", frame, 0, is_recovery=False))
        found += self._silences([loss.time_ns for loss in found if loss.kind == "timeout"])
        inside = [loss for loss in found if self.run.first_ns <= loss.time_ns <= self.run.last_ns]
        return sorted(inside, key=lambda loss: loss.time_ns)

    @cached_property
    def _again(self) -> Table | None:
        """Retransmissions in order of time; None for a live pass, which does not keep them."""
        try:
            table = self._own("retransmissions")
        except (InputInvalid, LookupError):
            return None
        return table.select(np.argsort(table.raw("time_ns"), kind="stable"))

    def _timeouts(self, recoveries: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int | None]]:
        """Time and frame of the first timeout within each recovery that did not begin with one."""
        again = self._again
        if again is None or not len(again):
            return
        timeouts = again.select(again["cause"] == "timeout")
        times = timeouts.raw("time_ns")
        for row in recoveries:
            last_ns = row["time_last_ns"] or self.run.last_ns
            within = np.flatnonzero((times >= row["time_first_ns"]) & (times <= last_ns))
            if len(within) and row["cause"] != "timeout":
                yield int(times[within[0]]), timeouts.row(within[0])["frame"]

    def _silences(self, known_ns: Sequence[int]) -> Iterator[Loss]:
        """Timeouts inferred from silence within a recovery, where they are not known already.

        At a tap beside the receiver a retransmission looks the same whatever its cause.
        """
        _, stretches = self._waited("loss_recovery", "outage")
        again = self._again
        least_ns = TIMEOUT_NS + (self.run.path_ns or 0)
        for row in stretches.rows(("time_first_ns", "time_last_ns", "frame")):
            first_ns, last_ns = row["time_first_ns"], row["time_last_ns"]
            if last_ns - first_ns >= least_ns and not any(first_ns <= each <= last_ns for each in known_ns):
                frame = row["frame"]
                if frame is None and again is not None:
                    # the first retransmission after the silence
                    place = int(np.searchsorted(again.raw("time_ns"), last_ns))
                    frame = again.row(place)["frame"] if place < len(again) else None
                yield Loss(first_ns, "timeout", frame, 0, is_recovery=False)

    @cached_property
    def _regimes(self) -> list[str]:
        """The cause of the small window after each loss. A later loss of a window that has not outgrown the one that
        slow start ended with still counts as the end of slow start.
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
        """Time of the run in these parts, and its stretches."""
        # stretches of a session are of no connection
        rows = self._tables.rows("budget", [self.run.connection])
        codes = [time_budget.PARTS.index(part) for part in parts]
        inside = (rows.raw("time_last_ns") > self.run.first_ns) & (rows.raw("time_first_ns") < self.run.last_ns)
        rows = rows.select(np.isin(rows.raw("part"), codes) & inside)
        return int((rows.raw("time_last_ns") - rows.raw("time_first_ns")).sum()), rows

    def cause(self, fastest: Run) -> Cause | None:
        """Why it is slower than the fastest stream; None where the packets do not show it."""
        window_ns, stretches = self._waited("receive_window")
        congestion_ns, _ = self._waited("congestion_window", "loss_recovery", "outage")
        least_ns = WORTH * self.run.length_ns
        if window_ns >= max(least_ns, congestion_ns, 1):
            row = stretches.row(int((stretches.raw("time_last_ns") - stretches.raw("time_first_ns")).argmax()))
            return Cause("window", row["time_first_ns"], row["frame"])
        own_ns, other_ns = self.run.path_ns, fastest.path_ns
        is_same_path = own_ns is not None and other_ns is not None and own_ns <= SAME_PATH * other_ns
        if not self.losses or not (congestion_ns >= least_ns or is_same_path):
            return None
        return self._of_losses()

    def _of_losses(self) -> Cause:
        """The kind of loss after which most of the time passed, each counted until the next loss."""
        times = [loss.time_ns for loss in self.losses]
        lengths = np.diff([*times, self.run.last_ns])
        spent = Counter[str]()
        for kind, length in zip(self._regimes, lengths.tolist(), strict=True):
            spent[kind] += length
        name = max(spent, key=lambda kind: spent[kind])
        is_own = np.array(self._regimes) == name
        # the timeout that cost most; of other kinds the first loss
        place = (is_own * lengths).argmax() if name == "timeout" else is_own.argmax()
        loss = self.losses[int(place)]
        return Cause(name, loss.time_ns, loss.frame)


def _kind(cause: str | None, ends_slow_start: bool) -> str:
    if cause == "timeout":
        return "timeout"
    return "slow_start_exit" if ends_slow_start else "low_equilibrium"
