"""The cost of a mirror: the skew between its sides, the side that writes wait for, and the cause; in words too.

From the first command of a mirrored write to the status on a side the parts of its time breakdown add up to the time
between. So the skew is the sum of the differences of the parts. The part with the largest difference is the cause.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from iscsitrace.measure import budget as time_budget
from iscsitrace.measure import path
from iscsitrace.measure.distribution import percentiles
from iscsitrace.measure.intervals import covered_until, intersection, merged, union_length
from iscsitrace.relate.mirrors import recognition, writes
from iscsitrace.relate.mirrors.recognition import Mirror
from iscsitrace.relate.mirrors.writes import MirroredWrites
from iscsitrace.relate.volumes import Volumes
from iscsitrace.tables.nulls import numbers_of
from iscsitrace.tables.numbers import grouped
from iscsitrace.tables.schema import CATEGORIES
from iscsitrace.tables.table import Array, Source, Table

CAUSES: Final = CATEGORIES["mirror_cause"]
_CAUSE_OF_PART: Final = {
    "transfer": "line",
    "propagation": "round_trip",
    "target_service": "target_service",
    "initiator_think": "sent_later",
    "initiator_service": "initiator_service",
    "ack_wait": "ack_wait",
    "receive_window": "receive_window",
    "congestion_window": "congestion_window",
    "send_buffer": "send_buffer",
    "loss_recovery": "loss",
    "outage": "outage",
    "unknown": "unknown",
}
_BEHIND_A_LINE: Final = ("target_service", "initiator_service", "congestion_window", "ack_wait", "unknown")
"""Parts in which a wait for the line appears while another side keeps it busy."""


def with_causes(found: MirroredWrites, source: Source) -> MirroredWrites:
    """The same writes with causes, where one side finished later than the other."""
    rows = np.flatnonzero(found.skews)
    if not len(rows):
        return found
    budget = _Budget(source)
    first, last = found.first_sides[rows], found.last_sides[rows]
    session = source("cycles").raw("session").astype(np.int64)
    of_first, of_last = (session[found.side_last_rows[rows, sides]] for sides in (first, last))
    begins = found.begins[rows]
    first_ends, last_ends = (found.side_ends[rows, sides] for sides in (first, last))
    by_cause = budget.by_cause(of_last, begins, last_ends) - budget.by_cause(of_first, begins, first_ends)
    budget.move_shared_line(by_cause, of_last, of_first, begins, last_ends)
    # of the propagation time, R2T rounds that the other side did not need count separately from a longer RTT
    rounds = np.maximum(found.side_rounds[rows, last] - found.side_rounds[rows, first], 0)
    way, more = CAUSES.index("round_trip"), CAUSES.index("r2t_rounds")
    connections = source("connections")
    members = numbers_of(connections, "session")
    count = max(int(each.max(initial=-1)) for each in (members, of_last)) + 1
    of_rounds = rounds * np.maximum(path.of_each(connections, source("senders"), members, count).whole_ns[of_last], 0)
    by_cause[:, more] = np.minimum(of_rounds, np.maximum(by_cause[:, way], 0))
    by_cause[:, way] -= by_cause[:, more]
    causes, cause_ns = found.causes.copy(), found.cause_ns.copy()
    causes[rows], cause_ns[rows] = by_cause.argmax(axis=1), by_cause.max(axis=1)
    return replace(found, causes=causes, cause_ns=cause_ns)


class _Budget:
    """The time breakdown of each session over many spans of time."""

    def __init__(self, source: Source) -> None:
        self._sessions = time_budget.by_session(source("budget"))

    def by_cause(self, sessions: Array, begins: Array, ends: Array) -> Array:
        """Nanoseconds of each span by the cause that they count for: (spans, causes)."""
        found = np.zeros((len(begins), len(CAUSES)), dtype=np.int64)
        for session, own in grouped(sessions).items():
            table = self._sessions.rows(session)
            parts = time_budget.of_cycles(table, begins[own], ends[own])
            for place, part in enumerate(time_budget.PARTS):
                found[own, CAUSES.index(_CAUSE_OF_PART[part])] += parts[:, place]
            # before its first command a session has no time breakdown: the initiator had not sent it anything
            found[own, CAUSES.index("sent_later")] += ends[own] - begins[own] - parts.sum(axis=1)
            self._move_lost(found, own, table, begins[own])
        return found

    def _move_lost(self, found: Array, own: Array, table: Table, begins: Array) -> None:
        """Counts waits for the congestion window after a loss as the loss."""
        is_loss = table.raw("part") == time_budget.PARTS.index("loss_recovery")
        if not is_loss.any():
            return
        rows = own[begins >= int(table.raw("time_first_ns")[is_loss].min())]
        window, loss = CAUSES.index("congestion_window"), CAUSES.index("loss")
        found[rows, loss] += found[rows, window]
        found[rows, window] = 0

    def move_shared_line(self, found: Array, of_last: Array, of_first: Array, begins: Array, ends: Array) -> None:
        """Counts waits of the last side while the first side's data is on the line as the line: both share it."""
        line = CAUSES.index("line")
        pairs, place = np.unique(np.stack([of_last, of_first]), axis=1, return_inverse=True)
        for pair, own in grouped(place.ravel()).items():
            last, first = pairs[:, pair].tolist()
            busy = self._stretches(first, "transfer")
            for part in _BEHIND_A_LINE:
                starts, stops = intersection(*self._stretches(last, part), *busy)
                shared = covered_until(starts, stops, ends[own]) - covered_until(starts, stops, begins[own])
                cause = CAUSES.index(_CAUSE_OF_PART[part])
                shared = np.minimum(shared, np.maximum(found[own, cause], 0))
                found[own, cause] -= shared
                found[own, line] += shared

    def _stretches(self, session: int, part: str) -> tuple[Array, Array]:
        table = self._sessions.rows(session)
        picked = table.raw("part") == time_budget.PARTS.index(part)
        return table.raw("time_first_ns")[picked], table.raw("time_last_ns")[picked]


WORDS: Final = {
    "round_trip": "its path is longer",
    "r2t_rounds": "it needs more R2T rounds",
    "target_service": "its target has a longer service time",
    "sent_later": "the initiator sends its commands later",
    "line": "its data needs more time on the line",
    "loss": "it lost packets",
    "congestion_window": "it is cwnd-limited",
    "send_buffer": "it is send-buffer-limited",
    "receive_window": "it is receive-window-limited",
    "initiator_service": "the initiator answers its R2Ts late",
    "ack_wait": "it waits for ACKs",
    "outage": "it had an outage",
    "unknown": "the capture does not show the cause",
}
"""Why a side is the slower one, to follow ``because``."""


@dataclass(frozen=True)
class SideAccount:
    """One side of a mirror."""

    place: int
    sessions: tuple[int, ...]
    target: str
    lun: int
    last_count: int
    """Mirrored writes that it finished last."""
    alone_ns: int
    """Time in which only this side had writes in flight, which all others had finished."""
    causes: dict[str, int]
    """Causes for being last, with their total cost in ns, the costliest first."""

    @property
    def cause(self) -> str | None:
        """The costliest cause."""
        return next(iter(self.causes), None)

    @property
    def label(self) -> str:
        """``session 1``, or ``sessions 1 and 3``."""
        numbers = [str(number) for number in self.sessions]
        return f"session {numbers[0]}" if len(numbers) == 1 else f"sessions {' and '.join(numbers)}"


class Account:
    """A mirror with the totals of its writes."""

    def __init__(self, found: MirroredWrites) -> None:
        self.found = found

    @property
    def mirror(self) -> Mirror:
        """The mirror."""
        return self.found.mirror

    @cached_property
    def sides(self) -> tuple[SideAccount, ...]:
        """Every side."""
        found, last = self.found, self.found.last_sides
        made = []
        for place, side in enumerate(self.mirror.sides):
            is_last = (last == place) & (found.skews > 0)
            spent: Counter[str] = Counter()
            for code in np.unique(found.causes[is_last]).tolist():
                spent[CAUSES[code]] = int(found.cause_ns[is_last & (found.causes == code)].sum())
            causes = dict(spent.most_common())
            alone_ns = self._alone_ns(place)
            made.append(SideAccount(place, side.sessions, side.target, side.lun, int(is_last.sum()), alone_ns, causes))
        return tuple(made)

    def _alone_ns(self, place: int) -> int:
        """Time in which only that side had writes in flight, which all others had finished."""
        found, is_last = self.found, self.found.is_known & (self.found.last_sides == place)
        done = np.sort(found.side_ends[is_last], axis=1)
        others = [self._outstanding(each) for each in self._others(place)]
        starts, ends = (np.concatenate([each[end] for each in others]) for end in (0, 1))
        together = union_length(np.concatenate([done[:, -2], starts]), np.concatenate([done[:, -1], ends]))
        return together - union_length(starts, ends)

    def _others(self, place: int) -> list[int]:
        return [each for each in range(len(self.mirror.sides)) if each != place]

    def _outstanding(self, place: int) -> tuple[Array, Array]:
        is_known = self.found.is_known
        return merged(self.found.side_begins[is_known, place], self.found.side_ends[is_known, place])

    @cached_property
    def farthest(self) -> SideAccount:
        """The side that the others wait for longest."""
        return max(self.sides, key=lambda side: side.alone_ns)

    @property
    def known_count(self) -> int:
        """Mirrored writes whose status was captured on every side."""
        return int(self.found.is_known.sum())

    @property
    def bytes(self) -> int:
        """Bytes of all mirrored writes, counted once."""
        return int(self.found.lengths.sum())

    @cached_property
    def skews(self) -> dict[str, int | None]:
        """``n p50 p95 p99 max`` of first to last completion, ns."""
        return percentiles(self.found.skews[self.found.is_known])

    @property
    def worst(self) -> Array:
        """Rows of the writes with the largest skew, the largest first."""
        rows = np.flatnonzero(self.found.is_known)
        return np.asarray(rows[np.argsort(-self.found.skews[rows], kind="stable")])

    @property
    def kind(self) -> str:
        """``mirror``, or ``mirror_or_stripe`` where the capture does not show which."""
        return "mirror" if self.mirror.is_sure else "mirror_or_stripe"

    @property
    def name(self) -> str:
        """``sessions 0 and 1 are a mirror``."""
        return name(self.mirror)

    @property
    def doubt(self) -> str:
        """The alternative; empty where the mirror is sure."""
        return "" if self.mirror.is_sure else doubt(self.mirror)

    def as_dict(self, number: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "mirror": number,
            "kind": self.kind,
            "sessions": list(self.mirror.sessions),
            "largest_stripe_chunk_bytes": None if self.mirror.is_sure else self.mirror.chunk_bytes,
            "mirrored_write_count": len(self.found),
            "bytes": self.bytes,
            "skew_ns": self.skews,
            "legs": [
                {
                    "leg": side.place,
                    "sessions": list(side.sessions),
                    "target": side.target,
                    "lun": side.lun,
                    "offset_bytes": offset,
                    "last_count": side.last_count,
                    "alone_ns": side.alone_ns,
                    "causes_ns": side.causes,
                }
                for side, offset in zip(self.sides, self.mirror.offsets, strict=True)
            ],
        }


def of_trace(source: Source, volumes: Volumes | None = None) -> list[Account]:
    """Every mirror of a trace read with the tables that mirrors.NEEDED names; ``volumes`` are found if not given."""
    return [Account(with_causes(writes.of_mirror(each, source), source)) for each in recognition.find(source, volumes)]


def name(mirror: Mirror) -> str:
    """``sessions 0 and 1 are a mirror``."""
    numbers = [str(number) for number in mirror.sessions]
    if len(numbers) == 1:
        return f"logical units of session {numbers[0]} are a mirror"
    return f"sessions {', '.join(numbers[:-1])} and {numbers[-1]} are a mirror"


def doubt(mirror: Mirror) -> str:
    """The alternative, where the capture does not show which it is."""
    return (
        f"or a stripe with chunks of {mirror.chunk_bytes >> 10} KiB or less that is written in whole rows: their data "
        "was not captured, or is all the same"
    )
