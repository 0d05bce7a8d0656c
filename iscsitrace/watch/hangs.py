"""Commands in flight at the end of an interval: the age of the oldest, and the time without progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from iscsitrace.relate.outages import OUTAGE_MIN_NS
from iscsitrace.wording import amounts as wording


@dataclass(frozen=True)
class Hang:
    """What waits in a session or connection."""

    oldest_ns: int = 0
    """Age of the oldest command in flight; 0 without one."""
    no_progress_ns: int = 0
    """How long reads, writes or flushes have been in flight without progress (docs/method.md, section 4)."""
    old_ns: tuple[int, ...] = ()
    """Age of each command that has been in flight for as long as an outage takes."""

    @property
    def is_shown(self) -> bool:
        """Whether the time without progress is an outage by now."""
        return self.no_progress_ns >= OUTAGE_MIN_NS

    @property
    def is_old(self) -> bool:
        """Whether a command has been in flight for as long as an outage takes."""
        return self.oldest_ns >= OUTAGE_MIN_NS


NO_HANG: Final = Hang()


def hang_of(now: Iterable[Mapping[str, Any]], at_ns: int) -> Hang:
    """The hang of a connection, or of the connections of a session, from their rows of ``PassView.now``."""
    rows = list(now)
    if not any(len(row["begun_ns"]) for row in rows) and all(row["oldest_io_ns"] is None for row in rows):
        return NO_HANG
    ages_ns = at_ns - np.concatenate([np.zeros(0, dtype=np.int64), *(row["begun_ns"] for row in rows)])
    waits_ns = min((row["oldest_io_ns"] for row in rows if row["oldest_io_ns"] is not None), default=at_ns)
    # later progress was before the clock was set back
    known = [row["progress_ns"] for row in rows if row["progress_ns"] is not None]
    progress_ns = max((time_ns for time_ns in known if time_ns < at_ns + OUTAGE_MIN_NS), default=waits_ns)
    old_ns = tuple(ages_ns[ages_ns >= OUTAGE_MIN_NS].tolist())
    return Hang(int(ages_ns.max(initial=0)), max(at_ns - max(waits_ns, progress_ns), 0), old_ns)


def sentence(number: int, hang: Hang, open_task_count: int) -> str:
    """``session 0: no progress for 4.3 s, 3 commands in flight, the oldest for 4.4 s``."""
    lead = f"session {number}: no progress for {wording.time(hang.no_progress_ns)}, "
    if not open_task_count:
        return f"{lead}its connection was closed"
    return f"{lead}{wording.count(open_task_count, 'command')} in flight, the oldest for {wording.time(hang.oldest_ns)}"
