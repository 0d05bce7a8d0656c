"""The story under examination: its sessions as measured, its connections, and the times without progress. Also the
tables of the whole trace, and the facts that all stories share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.budget import PARTS
from iscsitrace.measure.facts import Remembering
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.session import Session
from iscsitrace.relate.outages import Outage, progress, until_progress
from iscsitrace.relate.portals import HostQuestions
from iscsitrace.relate.stories import Story
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import ByConnection
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import joined


class TapOf(Protocol):
    """What sentences call the tap that shows how the sender of a direction behaved.

    All else is shown by the tap nearest to the initiator, which is that of the direction to the target.
    """

    def __call__(self, connection: int, *, to_target: bool) -> str:
        """``tap``, or, where there are several, ``tap target.pcapng``."""


def only_tap(connection: int, *, to_target: bool) -> str:
    """Where there is one tap, it needs no name."""
    return "tap"


class Surroundings(Remembering, ByConnection):
    """The tables of a trace, called by name, with their rows by connection.

    What every story asks of the whole trace is computed once: ten thousand stories must not cost their square.
    """

    def __init__(self, source: Source, tap_of: TapOf = only_tap, start_ns: int | None = None) -> None:
        """``source`` has the tables of the whole trace, which began at ``start_ns``: with its first connection, where
        nothing is given.
        """
        super().__init__(source)
        self.tap_of = tap_of
        self._start_ns = start_ns

    def start_ns(self) -> int:
        """The zero of the times that sentences say."""
        return self.once(_first_ns) if self._start_ns is None else self._start_ns

    def end_ns(self) -> int:
        """The last packet of any connection."""
        return self.once(_last_ns)


def host_questions(trace: Surroundings) -> HostQuestions:
    """Which hosts asked for others, and had no answer."""
    return HostQuestions(trace)


def _first_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_first_ns").min(initial=np.iinfo(np.int64).max))


def _last_ns(trace: Surroundings) -> int:
    return int(trace("connections").raw("time_last_ns").max(initial=np.iinfo(np.int64).min))


Array = NDArray[Any]


@dataclass(frozen=True)
class Blocked:
    """A segment that did not arrive while smaller packets did (docs/method.md, section 5)."""

    connection: int
    to_target: bool
    bytes: int
    """Its smallest size; where it never reached the tap, the bytes that are missing."""
    retransmissions: int
    from_ns: int
    to_ns: int
    frame: int
    is_by_size: bool
    """Whether only its size explains it; a black-out may look the same else."""
    arrived_bytes: int
    """The largest segment of its connection and direction that arrived."""

    @property
    def is_retransmitted(self) -> bool:
        """Whether the tap saw it."""
        return self.retransmissions > 0


_BLOCKED: Final = (
    *("connection", "to_target", "blocked_bytes", "blocked_retransmissions", "blocked_first_ns", "blocked_last_ns"),
    *("blocked_frame", "is_blocked_by_size", "arrived_segment_bytes"),
)


class History(Remembering):
    """One story, with the tables of the trace and the sessions as measured."""

    def __init__(self, story: Story, sessions: Mapping[int, Session], source: Source) -> None:
        """``sessions`` are those of the whole trace, ``source`` its tables (stories share their ``Surroundings``)."""
        self.story = story
        self._sessions = sessions
        self.source = source if isinstance(source, Surroundings) else Surroundings(source)

    @cached_property
    def members(self) -> Mapping[int, Session]:
        """Its sessions by number."""
        return {number: self._sessions[number] for number in self.story.numbers if number in self._sessions}

    @property
    def start_ns(self) -> int:
        """The start of the capture: the first packet of any connection."""
        return self.source.start_ns()

    def since_start(self, instant_ns: int) -> str:
        """``4.80 s``: a time since the start of the capture."""
        return wording.seconds(instant_ns - self.start_ns)

    @property
    def is_session(self) -> bool:
        """Always: a story has whole sessions."""
        return True

    @property
    def sessions(self) -> tuple[int, ...]:
        """The numbers of its sessions."""
        return self.story.numbers

    @cached_property
    def luns(self) -> tuple[int, ...]:
        """The logical units that it reads or writes."""
        return tuple(sorted({lun for member in self.members.values() for lun in member.luns}))

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """From its first packet to its last."""
        times = [(row["time_first_ns"], row["time_last_ns"]) for row in self.story.connections]
        return ((min(first for first, _ in times), max(last for _, last in times)),) if times else ()

    @cached_property
    def jobs_ns(self) -> int:
        """The busy time of its sessions."""
        return sum(member.jobs_ns for member in self.members.values())

    def part_ns(self, part: str) -> int:
        """Busy time of its sessions in one part of the time breakdown."""
        return sum(member.part_ns(part) for member in self.members.values())

    def share(self, amount_ns: float) -> float:
        """Share of the busy time, at most 1: the time in which a session is rebuilt may be longer."""
        return min(1.0, amount_ns / self.jobs_ns) if self.jobs_ns else 0.0

    @property
    def label(self) -> str:
        """``session 0``, ``sessions 0 to 3``, or the addresses where there is no session."""
        return self.label_of(self.sessions)

    def label_of(self, sessions: Iterable[int]) -> str:
        """The same of some of its sessions."""
        numbers = sorted(sessions)
        if len(numbers) > 1:
            word = "to" if numbers[-1] - numbers[0] == len(numbers) - 1 and len(numbers) > 2 else "and"
            return f"sessions {numbers[0]} {word} {numbers[-1]}" if word == "to" else f"sessions {listed(numbers)}"
        if numbers:
            return f"session {numbers[0]}"
        row = self.story.connections[0]
        return f"{row['initiator_address']} to {row['target_address']} port {row['target_port']}"

    @cached_property
    def connections_of(self) -> Mapping[int, Sequence[dict[str, Any]]]:
        """The rows of ``connections`` of each session, by its number."""
        found: dict[int, list[dict[str, Any]]] = {number: [] for number in self.sessions}
        for row in self.story.connections:
            if row["session"] is not None:
                found[row["session"]].append(row)
        return found

    def rows(self, name: str) -> Table:
        """The rows of its connections in a table that has a column ``connection``."""
        return self.source.rows(name, self.story.connection_numbers)

    @cached_property
    def blocked(self) -> tuple[Blocked, ...]:
        """Segments that did not arrive while smaller packets did, in order."""
        senders = self.rows("senders")
        is_blocked = known(senders, "blocked_bytes")
        if not is_blocked.any():
            return ()
        rows = senders.select(is_blocked).rows(_BLOCKED)
        found = (Blocked(*(row[name] for name in _BLOCKED)) for row in rows)
        return tuple(sorted(found, key=lambda each: each.from_ns))

    @cached_property
    def cycles(self) -> Table:
        """All of its commands."""
        found = self.rows("cycles")
        # most stories are of one session, which has them already
        own = next(iter(self.members.values())).cycles if len(self.members) == 1 else found
        return own if len(own) == len(found) else found

    @cached_property
    def is_data(self) -> Array:
        """Which of them read, write or erase data."""
        for member in self.members.values():
            if member.cycles is self.cycles:
                return member.is_data
        parts = [member.cycles.raw("cycle")[member.is_data] for member in self.members.values()]
        return np.isin(self.cycles.raw("cycle"), np.concatenate(parts) if parts else [])

    @cached_property
    def may_lack_answers(self) -> Array:
        """Which of its commands are on connections of whose target some PDUs are missing from the capture."""
        lacking = [row["connection"] for row in self.story.connections if row["missing_pdu_count_to_initiator"]]
        return np.isin(self.cycles.raw("connection"), lacking)

    @cached_property
    def outages(self) -> tuple[Outage, ...]:
        """Times of a second or more without progress, over all of its sessions, in order."""
        found: list[tuple[int, int, int]] = []
        code = PARTS.index("outage")
        for number, member in self.members.items():
            if member.budget is None or not member.budget.whole_ns["outage"]:
                continue
            rows = member.tables["budget"]
            which = rows.raw("part") == code
            firsts, lasts = rows.raw("time_first_ns")[which].tolist(), rows.raw("time_last_ns")[which].tolist()
            found += [(first, last, number) for first, last in zip(firsts, lasts, strict=True)]
        # most stories have none, and do without the instants of progress
        return until_progress(found, *self._progress) if found else ()

    @cached_property
    def _progress_ns(self) -> Array:
        """The instants of data and statuses of reads and writes, in order."""
        return self._progress[0]

    @cached_property
    def _progress(self) -> tuple[Array, Array]:
        """These instants, and the session of each."""
        data = self.cycles.select(self.is_data)
        instants, rows = progress(data)
        order = np.argsort(instants, kind="stable")
        return instants[order], data.raw("session")[rows[order]]

    def progress_after(self, instant_ns: int) -> int | None:
        """The first data or status of a read or write from then on; None if there is none in the capture."""
        later = self._progress_ns[np.searchsorted(self._progress_ns, instant_ns) :]
        return int(later[0]) if len(later) else None

    def progress_beside(self, session: int, instant_ns: int) -> int | None:
        """The first such progress of other sessions: data of a lost one may still be on its way."""
        instants, sessions = self._progress
        place, length = int(np.searchsorted(instants, instant_ns)), 64
        while place < len(instants):
            others = np.flatnonzero(sessions[place : place + length] != session)
            if len(others):
                return int(instants[place + others[0]])
            place, length = place + length, 2 * length
        return None

    def progress_before(self, instant_ns: int) -> int | None:
        """The last data or status of a read or write before then; None if there is none in the capture."""
        earlier = self._progress_ns[: np.searchsorted(self._progress_ns, instant_ns)]
        return int(earlier[-1]) if len(earlier) else None

    def in_flight(self, from_ns: int, to_ns: int) -> Table:
        """The reads and writes in flight at the start of a time, or issued within it, that it held up.

        Those of a session that was rebuilt within it did not wait, unless they had no status either.
        """
        cycles = self.cycles.select(self.is_data)
        has_status = known(cycles, "status_ns")
        rebuilt = [row["session"] for row in self.story.sessions if from_ns < row["time_first_ns"] < to_ns]
        is_open = ~has_status | ((cycles.raw("status_ns") >= to_ns) & ~np.isin(cycles.raw("session"), rebuilt))
        return cycles.select(is_open & (cycles.raw("command_first_ns") < to_ns) & ~_ended(cycles, from_ns, self))


def _ended(cycles: Table, before_ns: int, history: History) -> Array:
    """Which commands without a status were over before: those of connections that had ended."""
    over = [row["connection"] for row in history.story.connections if row["time_last_ns"] < before_ns]
    return np.asarray(~known(cycles, "status_ns") & np.isin(cycles.raw("connection"), over))


def carries_io(session: Mapping[str, Any]) -> bool:
    """Whether a session is one for I/O: by its login, or by its commands where the login is not in the capture."""
    if session["session_type"] == "unknown":
        return bool(session["cycle_count"])
    return bool(session["session_type"] == "normal")


_NAMED: Final = 8
"""Numbers that a sentence names."""


def listed(numbers: Iterable[int | str]) -> str:
    """``0``, ``0 and 1``, ``0, 1 and 2``; of more than a sentence can name the first, and how many others."""
    words = [str(number) for number in numbers]
    if len(words) > _NAMED:
        words = [*words[:_NAMED], f"{len(words) - _NAMED} more"]
    return joined(words)
