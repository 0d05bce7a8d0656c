"""Problems and findings: a problem is declared once, a finding is one problem of one session, connection or story.

A problem is one object: meaning, evidence, the part of the time that it explains, scope, advice with its what-ifs, its
condition over the facts of all sessions, and its words for one of them. Settings are spelled as their programs spell
them: open-iscsi's ``node.``, LIO's through ``targetcli``, sysctl's ``net.``, those of a Linux block device
``/sys/block/DEVICE/queue``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import numpy as np

from iscsitrace.findings.thresholds import LIMIT, SHOWN_FRAMES, WARNING
from iscsitrace.findings.times import FindingSpans
from iscsitrace.fit.gain import Change, Gain
from iscsitrace.measure import all_waits
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.selection import frames_filter
from iscsitrace.measure.workload import MOST
from iscsitrace.wording import amounts
from iscsitrace.wording.sentences import sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from iscsitrace.findings.case import Case
    from iscsitrace.fit.situation import Measured
    from iscsitrace.measure.facts import Facts

Rank = Literal["failure", "slowness", "limit", "note"]
"""What broke; what is wrong and makes I/O slow; what I/O cannot be faster than on this path and with this load; or what
is worth to know."""

Scope = Literal["connection", "session", "story"]
"""Each session and each connection; only sessions, where connections or sessions are compared; or sessions that took
each other's place, with their connections."""

SEVERITIES: Final = ("info", "warning", "data_loss", "error")
"""As for counters: a note; costs much time; missing from the capture; a failure."""


LEAST_COST_NS: Final = 1_000_000_000
"""Cost from which on a failure is what a person reads first: a second is what a user notices."""

LEAST_SHARE: Final = 0.05
"""The same as a share of the busy time."""

LISTED_MAX: Final = 16
"""The most sessions, spans and logical units that each session of a story lists of a finding that they share."""


class Examined(Protocol):
    """What a problem is looked for in: a session or connection (``Case``), or a story (``History``)."""

    @property
    def is_session(self) -> bool:
        """Whether it is a whole session, or more."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The time of its I/O."""

    @property
    def sessions(self) -> tuple[int, ...]:
        """The numbers of its sessions."""

    @property
    def luns(self) -> tuple[int, ...]:
        """The logical units that it reads or writes."""

    @property
    def jobs_ns(self) -> int:
        """Busy time."""

    def part_ns(self, part: str) -> int:
        """Busy time in one part of the time breakdown."""

    def share(self, amount_ns: float) -> float:
        """Share of the busy time."""


@dataclass(frozen=True)
class Basis:
    """Input of a what-if: the finding, and its session as measured for the model."""

    case: Case
    measured: Measured
    finding: Finding


NEXT_LOGIN: Final = "takes effect at the next login"
WHOLE_HOST: Final = "affects every new connection of the host"
EVERY_VOLUME: Final = "affects every volume of the host under multipath"
EVERY_INITIATOR: Final = "affects every initiator of the LUN"
INTERFACE: Final = "affects all traffic of the interface"
DATA_AT_RISK: Final = "puts data at risk"
"""What advice touches."""


@dataclass(frozen=True)
class Advice:
    """One fix, with its what-if."""

    text: str
    what_if: Callable[[Basis], Iterator[Change]] | None = None
    """The changes to predict, the smallest first; None where the model cannot predict the fix."""
    is_tried_first: bool = False
    """Whether its gains come first in the list of gains."""
    only_if: Callable[[Case], bool] | None = None
    """Whether it applies to a case; None: to every case."""
    touches: str = ""
    """When it takes effect, and what else it changes; empty where that is plain."""


@dataclass(frozen=True)
class Explains:
    """The part of the time breakdown that a problem causes."""

    part: str
    specificity: int = 0
    """The headline prefers the most specific problem of a part."""
    least: float = field(default=0.0, compare=False)
    """Share of the busy time that the part takes at least; where it takes less, the problem is not looked for."""


@dataclass(frozen=True)
class Observation:
    """A problem as observed in one session, connection or story."""

    text: str
    """The facts with their numbers, in sentences."""
    frames: Iterable[int | None]
    """Frames that show it, the clearest first."""
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""
    share: float | None = None
    """Instead of the cost, where it is not a share of the busy time."""
    severity: str | None = None
    """Instead of the problem's severity."""
    rank: Rank | None = None
    """Instead of the problem's rank."""
    spans: tuple[Span, ...] = ()
    """When; the time of the I/O, where nothing is given."""
    sessions: tuple[int, ...] = ()
    """The sessions that have it; all that were looked at, where nothing is given."""
    luns: tuple[int, ...] = ()
    """The logical units that have it; all that were read or written, where nothing is given."""
    is_final: bool = False
    """Whether it ended in an I/O error or a refused login, so that it matters whatever it cost."""
    loses_data: bool = False
    """Whether data that were reported as written are lost, so that nothing comes before it."""
    advice: tuple[Advice, ...] | None = None
    """Instead of the problem's advice."""
    points_to: str | None = None
    """Instead of the problem's side."""


@dataclass(frozen=True)
class Found:
    """Which subjects have a problem, and what it costs them: a value for each row of the facts."""

    is_found: NDArray[Any]
    cost_ns: NDArray[Any] | None = None
    """The time that it costs; None where this is unknown."""
    ranks: Mapping[Rank, NDArray[Any]] = field(default_factory=dict)
    """Which have it with another rank than the problem's."""
    share: NDArray[Any] | None = None
    """Instead of the cost, where it is not a share of the busy time."""


def anywhere(facts: Facts) -> NDArray[Any]:
    """All may have it."""
    return np.ones(len(facts), dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A known problem, and how to find it."""

    name: str
    meaning: str
    condition: str
    """When it is reported, in words."""
    evidence: str
    """Which frames the finding shows, and what its share means."""
    example: str
    """The sentence of the headline for a capture that has it: the tests hold its words against such a capture."""
    shown_by: str = ""
    """Options of ``simulate`` that make such a capture; empty where it takes a capture of another kind."""
    near_miss: str = ""
    """Options of a run that comes close to it: it does not have the problem, or only as a note."""
    advice: tuple[Advice, ...]
    tell: Callable[[Any], Observation | None]
    """Puts it in words, with frames: called with a ``Case``, of a story with a ``History``. Where the facts decide,
    only text and frames count; elsewhere it also looks whether the problem is there, and what it costs."""
    where: Callable[[Facts], Found | NDArray[Any]] = anywhere
    """Its condition over the facts of all sessions, connections or stories: which have it, and what it costs them; or,
    where one has to be looked at to know, which may have it, as a boolean for each."""
    rank: Rank = "slowness"
    """What broke comes before what is slow; notes never lead."""
    limited_by: str = ""
    """Of a limit: what a session is limited by."""
    explains: Explains | None = None
    """None where it explains no part."""
    severity: str | None = None
    """None where the share decides."""
    scope: Scope = "connection"
    """What it is looked for in."""
    points_to: str | None = None
    """Whose side it points to, such as ``the target``; None where the packets cannot tell."""
    accounts_for: tuple[Problem, ...] = ()
    """Problems that are consequences of this one: not reported where this one has at least half of their share."""

    def sought(self, facts: Facts) -> Found | NDArray[Any]:
        """`where`, less those that have too little time to explain."""
        if not self.explains or not self.explains.least:
            return self.where(facts)
        is_worth = facts.share(facts.part_ns(self.explains.part)) >= self.explains.least
        if not is_worth.any():
            return is_worth
        found = self.where(facts)
        if isinstance(found, Found):
            return replace(found, is_found=found.is_found & is_worth)
        return np.asarray(found & is_worth)

    def findings(self, facts: Facts, found: Found) -> Iterator[tuple[int, Finding]]:
        """The number of each that has it, and the finding, not yet told."""
        places = np.flatnonzero(found.is_found)
        spans = facts.once(all_waits.spans)
        costs_ns = np.zeros(len(facts)) if found.cost_ns is None else found.cost_ns
        shares = facts.share(costs_ns) if found.share is None else found.share
        ranks = np.full(len(facts), self.rank, dtype=object)
        for other, which in found.ranks.items():
            ranks[which] = other
        amounts = (each[places].tolist() for each in (costs_ns, shares, ranks))
        for place, cost_ns, share, rank in zip(places.tolist(), *amounts, strict=True):
            cost = None if found.cost_ns is None else cost_ns
            own_share = None if cost is None and found.share is None else share
            severity = self._severity(rank, share)
            yield place, Finding(self, severity, own_share, "", (), cost, spans=spans[place], own_rank=rank)

    def _severity(self, rank: Rank, share: float | None) -> str:
        if self.severity and rank == self.rank:
            return self.severity
        return "warning" if rank in ("failure", "slowness") and (share or 0) >= WARNING else "info"

    def told(self, finding: Finding, case: Examined) -> Finding:
        """A finding that the facts decided, with its text and frames."""
        # only what has to be looked at can turn out not to be there
        seen = cast("Observation", self.tell(case))
        return replace(
            finding,
            text=sentence(seen.text),
            frames=shown(seen.frames),
            spans=case.spans,
            sessions=case.sessions,
            luns=seen.luns or case.luns,
            own_advice=self._advice_for(case),
        )

    def _advice_for(self, case: Any) -> tuple[Advice, ...] | None:
        """The advice whose condition holds; None for all of it."""
        given = tuple(each for each in self.advice if each.only_if is None or each.only_if(case))
        return None if len(given) == len(self.advice) else given

    def find(self, case: Examined) -> Finding | None:
        """The finding, where the facts do not decide; None where this one does not have the problem."""
        seen = self.tell(case)
        if seen is None:
            return None
        share, cost_ns = seen.share, seen.cost_ns
        if cost_ns is not None:
            cost_ns = max(cost_ns, 0)
            # without busy time there is nothing to be a share of
            share = case.share(cost_ns) if case.jobs_ns else None
        rank = seen.rank or self.rank
        return Finding(
            self,
            seen.severity or self._severity(rank, share),
            share,
            sentence(seen.text),
            shown(seen.frames),
            cost_ns,
            # where the clock runs backwards, an end may be dated before its beginning
            spans=tuple((first, max(first, last)) for first, last in seen.spans) or case.spans,
            sessions=seen.sessions or case.sessions,
            luns=seen.luns or case.luns,
            is_final=seen.is_final,
            loses_data=seen.loses_data,
            own_advice=self._advice_for(case) if seen.advice is None else seen.advice,
            points_to=seen.points_to or self.points_to,
            own_rank=rank,
        )


@dataclass(frozen=True)
class AdviceGain(Gain):
    """The gain of an advice."""

    advice: Advice


@dataclass(frozen=True)
class Finding:
    """One problem of one session, connection or story."""

    problem: Problem
    severity: str
    share: float | None
    """Share of the busy time; None where it has none."""
    text: str
    """The facts with their numbers, in sentences."""
    frames: tuple[int, ...]
    """A few frames that show it, ascending."""
    cost_ns: float | None = None
    """The time that it costs; None where this is unknown."""
    predict: Callable[[Finding], tuple[AdviceGain, ...]] | None = field(default=None, compare=False, repr=False)
    """Computes the gains; None where there are none."""
    spans: tuple[Span, ...] = ()
    """When, in order."""
    sessions: tuple[int, ...] = ()
    luns: tuple[int, ...] = ()
    is_final: bool = False
    """Whether it ended in an I/O error or a refused login."""
    loses_data: bool = False
    """Whether data that were reported as written are lost."""
    own_advice: tuple[Advice, ...] | None = None
    """Instead of the problem's advice."""
    points_to: str | None = None
    """Whose side it points to; None where the packets cannot tell."""
    own_rank: Rank | None = None
    """Instead of the problem's rank."""

    @property
    def rank(self) -> Rank:
        """What broke comes before what is slow; notes never lead."""
        return self.own_rank or self.problem.rank

    @property
    def cost_in_words(self) -> str:
        """What it costs: of a failure the time lost, else the share of the busy time; empty where none is known."""
        if self.rank == "failure":
            return f"{amounts.time(self.cost_ns)} lost" if self.cost_ns else ""
        return amounts.percent(self.share) if self.share else ""

    @property
    def name(self) -> str:
        """The name of the problem."""
        return self.problem.name

    @property
    def steps(self) -> tuple[Advice, ...]:
        """The advice, the first step first."""
        return self.problem.advice if self.own_advice is None else self.own_advice

    @property
    def advice(self) -> tuple[str, ...]:
        """The texts of the advice."""
        return tuple(advice.text for advice in self.steps)

    @property
    def leads(self) -> bool:
        """Whether a person has to read it first: a failure that cost a second or a twentieth of the busy time, or that
        ended in an I/O error or a refused login; slowness, or a limit, that users notice. A note never.
        """
        if self.rank == "limit":
            return (self.share or 0.0) >= LIMIT
        if self.severity == "info":
            return False
        if self.rank == "failure":
            return self.is_final or (self.cost_ns or 0) >= LEAST_COST_NS or (self.share or 0.0) >= LEAST_SHARE
        return self.rank == "slowness"

    @property
    def is_problem(self) -> bool:
        """Whether something is wrong that a person has to read first."""
        return self.leads and self.rank in ("failure", "slowness")

    @cached_property
    def gains(self) -> tuple[AdviceGain, ...]:
        """Gains of the advice; empty where the model predicts none."""
        return self.predict(self) if self.predict else ()

    def gains_by_advice(self) -> list[tuple[Advice, list[AdviceGain]]]:
        """Each advice with its gains."""
        return [(advice, [gain for gain in self.gains if gain.advice is advice]) for advice in self.steps]

    def is_explained_by(self, other: Finding) -> bool:
        """Whether it is mostly a consequence of the other, and at no other time."""
        if self.problem not in other.problem.accounts_for or not self._times.are_within(other._times):
            return False
        if self.cost_ns is not None and other.cost_ns is not None:
            return other.cost_ns >= MOST * self.cost_ns
        return (other.share or 0.0) >= MOST * (self.share or 0.0)

    @cached_property
    def _times(self) -> FindingSpans:
        return FindingSpans(self.spans)

    @property
    def display_filter(self) -> str | None:
        """A Wireshark display filter for the frames; None without frames."""
        return frames_filter(self.frames) if self.frames else None

    def in_part(self, part: Examined) -> Finding:
        """As a part of its story lists it: where there is much to list, when, which sessions and which logical units of
        that part alone. The story has all of them: a thousand sessions must not list a thousand each.
        """
        if self.problem.scope != "story" or self.sessions == part.sessions:
            return self
        spans, sessions, luns = self.spans, self.sessions, self.luns
        if max(len(spans), len(sessions), len(luns)) <= LISTED_MAX:
            return self
        return replace(
            self,
            spans=tuple(dict.fromkeys(span for each in part.spans for span in self._times.meeting(each)))[:LISTED_MAX],
            sessions=tuple(number for number in part.sessions if number in self._sessions),
            luns=luns if len(luns) <= LISTED_MAX else tuple(lun for lun in part.luns if lun in self._luns),
        )

    @cached_property
    def _sessions(self) -> frozenset[int]:
        return frozenset(self.sessions)

    @cached_property
    def _luns(self) -> frozenset[int]:
        return frozenset(self.luns)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``gain`` is the first of ``gains``, null where there is none."""
        gains = [
            {
                "change": gain.change,
                "throughput_factor": gain.throughput_factor,
                "low": gain.low,
                "high": gain.high,
                "advice": self.steps.index(gain.advice),
            }
            for gain in self.gains
        ]
        return {
            "name": self.name,
            "severity": self.severity,
            "share": self.share,
            "cost_ns": None if self.cost_ns is None else round(self.cost_ns),
            "spans": [list(span) for span in self.spans],
            "sessions": list(self.sessions),
            "luns": list(self.luns),
            "text": self.text,
            "frames": list(self.frames),
            "display_filter": self.display_filter,
            "advice": " ".join(self.advice),
            "gain": gains[0] if gains else None,
            "gains": gains,
        }


def shown(frames: Iterable[int | None]) -> tuple[int, ...]:
    """The first few frames, each once, ascending."""
    known = [int(frame) for frame in frames if frame is not None]
    return tuple(sorted(dict.fromkeys(known[:SHOWN_FRAMES])))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """As a headline looks for them: lost data, failures by time lost, then what is wrong, then limits and what is
    small, each by share, then notes. Equal ones keep their order.
    """

    def weight(finding: Finding) -> tuple[int, float, float]:
        share = -(finding.share or 0.0)
        if finding.rank == "failure":
            return (-1 if finding.loses_data else 0 if finding.leads else 1), -(finding.cost_ns or 0.0), share
        if finding.is_problem:
            return 2, 0.0, share
        return (4 if finding.problem.rank == "note" else 3), 0.0, share

    return sorted(findings, key=weight)
