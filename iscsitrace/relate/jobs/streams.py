"""Streams of one job: connections that run together with the same workload; how even they are, and why one is slow: the
loss after which most of its time passed, or a window.
"""

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
from iscsitrace.relate.jobs import runs
from iscsitrace.relate.jobs.runs import Run, are_related, groups_of_streams
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.tables.numbers import ByConnection
from iscsitrace.tables.schema import CATEGORIES, DERIVED_TABLES
from iscsitrace.tables.table import NO_WORD, Source, Table, null_value

_WORTH: Final = 0.05
"""Share of its time from which on waiting for a window is the cause of a slow stream."""
_SAME_PATH: Final = 1.5
"""Largest ratio of its RTT to that of the fastest stream for which a loss alone is the cause."""
_TIMEOUT_NS: Final = 190_000_000
"""Silence beyond the RTT after which a timeout ended it: the usual minimum is 200 ms, and the timer of the sender
started a little before the silence at the tap."""
_GROWN: Final = 2.0
"""Ratio of a window to the one that slow start ended with from which on the next loss is a new cause: a loss halves it
at most, so a smaller window is back where slow start left it."""
_AGAIN: Final = 2
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
        least_ns = _TIMEOUT_NS + (self.run.path_ns or 0)
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
            is_small = bool(found) and found[-1] == "slow_start_exit" and loss.pipe_bytes < _GROWN * exit_bytes
            again += is_small
            is_still = loss.kind == "low_equilibrium" and is_small and again <= _AGAIN
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
        least_ns = _WORTH * self.run.length_ns
        if window_ns >= max(least_ns, congestion_ns, 1):
            row = stretches.row(int((stretches.raw("time_last_ns") - stretches.raw("time_first_ns")).argmax()))
            return Cause("window", row["time_first_ns"], row["frame"])
        own_ns, other_ns = self.run.path_ns, fastest.path_ns
        is_same_path = own_ns is not None and other_ns is not None and own_ns <= _SAME_PATH * other_ns
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


SLOW: Final = 0.9
"""Share of the fastest stream's throughput below which a stream is slow: equal streams that share a line differ by a
few percent over a job."""


@dataclass(frozen=True)
class Stream:
    """One stream of a job."""

    run: Run
    behind_ns: int
    """Time from the first stream's finish to its own."""
    evidence: Evidence
    faster: Run | None
    """The fastest stream, if this one is slow beside it."""

    @property
    def is_slow(self) -> bool:
        """Whether it is slow beside the fastest stream."""
        return self.faster is not None

    @cached_property
    def cause(self) -> Cause | None:
        """Why it is slow; None where it is not, or where the packets do not show it."""
        return self.evidence.cause(self.faster) if self.faster else None


@dataclass(frozen=True)
class Job:
    """The streams of one job, the first to finish first."""

    streams: tuple[Stream, ...]
    is_certain: bool
    """Whether their session or names show that they belong together; else this is inferred."""

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of the streams."""
        return [stream.run for stream in self.streams]

    @property
    def first_ns(self) -> int:
        """Time of the first command."""
        return min(run.first_ns for run in self.runs)

    @property
    def whole_ns(self) -> int:
        """From the first command to the last status."""
        return self.streams[-1].run.last_ns - self.first_ns

    @property
    def bytes(self) -> int:
        """Bytes of all streams."""
        return sum(run.bytes for run in self.runs)

    @cached_property
    def jain(self) -> float:
        """Jain's fairness index of the streams' throughputs."""
        return jain([run.bytes_per_s for run in self.runs])

    @property
    def first_to_last_ns(self) -> int:
        """From the first stream's finish to the last one's."""
        return self.streams[-1].behind_ns

    @property
    def alone_share(self) -> float:
        """Share of the whole time in which only the last stream ran."""
        return (self.streams[-1].run.last_ns - self.streams[-2].run.last_ns) / max(self.whole_ns, 1)

    @property
    def unused_share(self) -> float:
        """Share of all streams' time in which they had finished already: 1 - mean time to finish / the whole."""
        lasted = [run.last_ns - self.first_ns for run in self.runs]
        return 1 - sum(lasted) / len(lasted) / max(self.whole_ns, 1)

    @cached_property
    def slowest(self) -> Stream:
        """The stream of least throughput."""
        return min(self.streams, key=lambda stream: stream.run.bytes_per_s)

    def as_dict(self, number: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "job": number,
            "is_certain": self.is_certain,
            "connections": [run.connection for run in self.runs],
            "bytes": self.bytes,
            "whole_ns": self.whole_ns,
            "jain": self.jain,
            "first_to_last_ns": self.first_to_last_ns,
            "alone_share": self.alone_share,
            "unused_share": self.unused_share,
            "streams": [
                {
                    "connection": stream.run.connection,
                    "session": stream.run.session,
                    "operation": stream.run.operation,
                    "bytes": stream.run.bytes,
                    "bytes_per_s": stream.run.bytes_per_s,
                    "time_first_ns": stream.run.first_ns,
                    "time_last_ns": stream.run.last_ns,
                    "behind_ns": stream.behind_ns,
                    "retransmission_rate": stream.evidence.retransmission_rate,
                    "loss_count": stream.evidence.loss_count,
                    "timeout_count": stream.evidence.timeout_count,
                    "is_slow": stream.is_slow,
                    "cause": stream.cause.name if stream.cause else None,
                    "cause_frame": stream.cause.frame if stream.cause else None,
                }
                for stream in self.streams
            ],
        }


def jain(amounts: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all are equal, 1 / n where one has everything."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 1.0


def find(source: Source, mirrors: Sequence[Mirror] = ()) -> list[Job]:
    """The jobs of several streams, the earliest first; the sides of a mirror are not streams of one job."""
    tables = ByConnection(source)
    found = runs.of_trace(source)
    jobs = [
        _job([found[place] for place in own], tables, is_certain=are_related(found, own))
        for own in groups_of_streams(found, mirrors)
    ]
    return sorted(jobs, key=lambda job: (job.first_ns, job.runs[0].connection))


def _job(members: list[Run], tables: ByConnection, *, is_certain: bool) -> Job:
    members = sorted(members, key=lambda run: (run.last_ns, run.connection))
    fastest = max(members, key=lambda run: run.bytes_per_s)
    slow_bytes_per_s = SLOW * fastest.bytes_per_s
    streams = tuple(
        Stream(
            run,
            run.last_ns - members[0].last_ns,
            Evidence(run, tables),
            fastest if run.bytes_per_s < slow_bytes_per_s else None,
        )
        for run in members
    )
    return Job(streams, is_certain)


def streams(jobs: Sequence[Job]) -> Table:
    """A row per stream."""
    declaration = DERIVED_TABLES["streams"]
    rows = list(_rows(jobs))
    columns = {}
    for column in declaration.columns:
        values = [row[column.name] for row in rows]
        if column.dtype.startswith("category:"):
            words = CATEGORIES[column.dtype.partition(":")[2]]
            codes = [NO_WORD if value is None else words.index(value) for value in values]
            columns[column.name] = np.array(codes, dtype=np.uint8)
        else:
            stored = [null_value(column.dtype) if value is None else value for value in values]
            columns[column.name] = np.array(stored, dtype=column.dtype)
    return Table(declaration, columns, words=CATEGORIES)


def _rows(jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    for number, job in enumerate(jobs):
        for stream in job.streams:
            run, evidence, cause = stream.run, stream.evidence, stream.cause
            yield {
                "job": number,
                "connection": run.connection,
                "session": run.session,
                "to_target": run.to_target,
                "bytes": run.bytes,
                "time_first_ns": run.first_ns,
                "time_last_ns": run.last_ns,
                "bytes_per_s": round(run.bytes_per_s),
                "behind_ns": stream.behind_ns,
                "retransmitted_packets": evidence.retransmitted_packets,
                "packets": evidence.packets,
                "loss_count": evidence.loss_count,
                "timeout_count": evidence.timeout_count,
                "is_slow": stream.is_slow,
                "cause": cause.name if cause else None,
                "cause_time_ns": cause.time_ns if cause else None,
                "cause_frame": cause.frame if cause else None,
            }
