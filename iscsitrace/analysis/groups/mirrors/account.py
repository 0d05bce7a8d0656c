"""What a mirror costs: how far its legs lie apart, which of them the writes wait for, and why; with its words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.analysis.groups.mirrors import recognition, writes
from iscsitrace.analysis.groups.mirrors.causes import CAUSES, with_causes
from iscsitrace.analysis.groups.mirrors.legs import Source
from iscsitrace.analysis.groups.mirrors.recognition import Mirror
from iscsitrace.analysis.groups.mirrors.writes import MirroredWrites
from iscsitrace.analysis.measures.distribution import percentiles
from iscsitrace.analysis.measures.intervals import merged, union_length
from iscsitrace.tables.table import NO_WORD

Array = NDArray[Any]

WORDS: Final = {
    "round_trip": "its path is longer",
    "r2t_rounds": "it needs more rounds of R2Ts",
    "target_service": "its target takes longer",
    "sent_later": "the initiator sends its commands later",
    "line": "its data take longer on the line",
    "loss": "it lost packets",
    "congestion_window": "its data wait for TCP's congestion window",
    "receive_window": "its data wait for the receive window",
    "initiator_service": "the initiator sends its data late",
    "ack_wait": "it waits for ACKs",
    "unknown": "the capture does not show why",
}
"""Why a leg is last, as a sentence goes on after ``because``."""


@dataclass(frozen=True)
class LegAccount:
    """One leg of a mirror."""

    place: int
    sessions: tuple[int, ...]
    target: str
    lun: int
    last_count: int
    """Mirrored writes that it was the last to finish."""
    alone_ns: int
    """Time in which it alone had writes of the mirror outstanding, with which all others were done."""
    causes: dict[str, int]
    """Why it was last, by what that cost in all (ns), the costliest first."""

    @property
    def cause(self) -> str | None:
        """The costliest."""
        return next(iter(self.causes), None)

    @property
    def label(self) -> str:
        """``session 1``, ``sessions 1 and 3``; with the logical unit where the session has both legs."""
        numbers = [str(number) for number in self.sessions]
        return f"session {numbers[0]}" if len(numbers) == 1 else f"sessions {' and '.join(numbers)}"


class Account:
    """A mirror and its writes, summed up."""

    def __init__(self, found: MirroredWrites) -> None:
        self.found = found

    @property
    def mirror(self) -> Mirror:
        """Whose account it is."""
        return self.found.mirror

    @cached_property
    def legs(self) -> tuple[LegAccount, ...]:
        """Every leg."""
        found, is_known = self.found, self.found.is_known
        last = found.last_legs
        made = []
        for place, leg in enumerate(self.mirror.legs):
            is_last = is_known & (last == place) & (found.skews > 0)
            spent: Counter[str] = Counter()
            for code in np.unique(found.causes[is_last]).tolist():
                if code != NO_WORD:
                    spent[CAUSES[code]] = int(found.cause_ns[is_last & (found.causes == code)].sum())
            causes = dict(spent.most_common())
            alone_ns = self._alone_ns(place)
            made.append(LegAccount(place, leg.sessions, leg.target, leg.lun, int(is_last.sum()), alone_ns, causes))
        return tuple(made)

    def _alone_ns(self, place: int) -> int:
        """Time in which that leg alone had writes of the mirror outstanding that all others were done with."""
        found, is_last = self.found, self.found.is_known & (self.found.last_legs == place)
        done = np.sort(found.leg_ends[is_last], axis=1)
        others = [self._outstanding(each) for each in self._others(place)]
        starts, ends = (np.concatenate([each[end] for each in others]) for end in (0, 1))
        together = union_length(np.concatenate([done[:, -2], starts]), np.concatenate([done[:, -1], ends]))
        return together - union_length(starts, ends)

    def _others(self, place: int) -> list[int]:
        return [each for each in range(len(self.mirror.legs)) if each != place]

    def _outstanding(self, place: int) -> tuple[Array, Array]:
        is_known = self.found.is_known
        return merged(self.found.leg_begins[is_known, place], self.found.leg_ends[is_known, place])

    @cached_property
    def farthest(self) -> LegAccount:
        """The leg that the others wait for longest."""
        return max(self.legs, key=lambda leg: leg.alone_ns)

    @property
    def known_count(self) -> int:
        """Mirrored writes that were done on every leg, in the capture."""
        return int(self.found.is_known.sum())

    @cached_property
    def skews(self) -> dict[str, int | None]:
        """``p50 p95 p99 max`` of first to last completion, ns."""
        return percentiles(self.found.skews[self.found.is_known])

    @property
    def worst(self) -> Array:
        """Places of the writes with the largest skew, the largest first."""
        rows = np.flatnonzero(self.found.is_known)
        return np.asarray(rows[np.argsort(-self.found.skews[rows], kind="stable")])

    @property
    def kind(self) -> str:
        """``mirror``, or ``mirror_or_stripe`` where the capture cannot tell."""
        return "mirror" if self.mirror.is_sure else "mirror_or_stripe"

    @property
    def name(self) -> str:
        """``sessions 0 and 1 are a mirror``."""
        return name(self.mirror)

    @property
    def doubt(self) -> str:
        """What else it may be; empty where it is sure."""
        return "" if self.mirror.is_sure else doubt(self.mirror)

    def as_dict(self, number: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "mirror": number,
            "kind": self.kind,
            "sessions": list(self.mirror.sessions),
            "largest_stripe_chunk_bytes": None if self.mirror.is_sure else self.mirror.chunk_bytes,
            "mirrored_write_count": len(self.found),
            "bytes": int(self.found.lengths.sum()),
            "skew_ns": self.skews,
            "legs": [
                {
                    "leg": leg.place,
                    "sessions": list(leg.sessions),
                    "target": leg.target,
                    "lun": leg.lun,
                    "offset_bytes": offset,
                    "last_count": leg.last_count,
                    "alone_ns": leg.alone_ns,
                    "causes_ns": leg.causes,
                }
                for leg, offset in zip(self.legs, self.mirror.offsets, strict=True)
            ],
        }


def of_trace(source: Source) -> list[Account]:
    """Every mirror of a trace read with the tables that mirrors.NEEDED names."""
    return [Account(with_causes(writes.of_mirror(each, source), source)) for each in recognition.find(source)]


def name(mirror: Mirror) -> str:
    """``sessions 0 and 1 are a mirror``."""
    numbers = [str(number) for number in mirror.sessions]
    if len(numbers) == 1:
        return f"logical units of session {numbers[0]} are a mirror"
    return f"sessions {', '.join(numbers[:-1])} and {numbers[-1]} are a mirror"


def doubt(mirror: Mirror) -> str:
    """What else it may be, where the capture does not tell."""
    return (
        f"or they are stripes, with chunks of {mirror.chunk_bytes >> 10} KiB at most and rows written whole: their "
        "data were not captured, or are all alike"
    )
