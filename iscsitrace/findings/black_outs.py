"""Black-outs: times of less than a second in which nothing passed the path, as the recoveries after them show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.history import listed
from iscsitrace.measure.intervals import ALIKE, merged, step_of
from iscsitrace.measure.losses import is_loss
from iscsitrace.measure.session import Stretches
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording

Array = NDArray[Any]


_LISTED = 6
"""More black-outs are told by the first and the last."""


@dataclass(frozen=True)
class BlackOuts:
    """Those of a session that explain most of its waits for retransmissions."""

    starts: Array
    """The last packet of the side that fell silent, before each."""
    ends: Array
    """Its first packet after."""
    least_ns: Array
    """How long each lasted at least: from the first packet that had no answer to the last one."""
    silent: str
    """The side that fell silent, at most of them."""
    lost: tuple[str, ...]
    """The sides to which packets were lost for certain."""

    @property
    def side(self) -> str:
        """What was down."""
        # packets of a side that was down are not lost
        return "the path" if set(self.lost) - {self.silent} else f"the path or the {self.silent}"

    def in_words(self, start_ns: int) -> str:
        """How often, when after ``start_ns``, how long, and what was lost."""
        least, most = wording.time(int(self.least_ns.min())), wording.time(int((self.ends - self.starts).max()))
        lasted = f"for at least {least}, at most {most}"
        if len(self.lost) > 1:
            lost = "packets in both directions were lost"
        else:
            lost = f"packets to the {self.lost[0]} were lost" if self.lost else f"the {self.silent} sent no answer"
        times = [wording.seconds(each - start_ns).removesuffix(" s") for each in self.starts.tolist()]
        if len(times) == 1:
            return f"It was down at {times[0]} s {lasted}: {lost}."
        step = step_of(np.diff(self.starts))
        every = f", about every {wording.time(step)}" if step else ""
        when = f"at {listed(times)} s" if len(times) <= _LISTED else f"first at {times[0]} s, last at {times[-1]} s"
        return f"It was down {wording.times(len(times))}{every} ({when}), each time {lasted}: {lost}."


def of(recoveries: Table, waits: Stretches) -> BlackOuts | None:
    """The black-outs that these recoveries show, if they explain most of the waits for retransmissions."""
    is_from = recoveries.raw("is_black_out_from_receiver")
    # a host that paused reports all of the retransmissions as received twice
    is_lost = is_loss(recoveries) | known(recoveries, "ack_loss") | is_from
    rows = recoveries.select(is_lost & known(recoveries, "black_out_first_ns"))
    rows = rows.select(np.argsort(rows.raw("black_out_first_ns"), kind="stable"))
    starts, ends = rows.raw("black_out_first_ns"), rows.raw("black_out_last_ns")
    firsts, lasts = merged(waits.starts, waits.ends)
    # what takes a second is an outage, and not among the waits
    place = np.searchsorted(lasts, starts, "right")
    is_waited = np.append(firsts, np.iinfo(np.int64).max)[place] < ends
    rows, starts, ends = rows.select(is_waited), starts[is_waited], ends[is_waited]
    if not len(rows):
        return None
    # what was lost in them is retransmitted later
    until = np.sort(np.maximum(ends, np.where(known(rows, "time_last_ns"), rows.raw("time_last_ns"), ends)))
    is_own = np.searchsorted(starts, lasts) > np.searchsorted(until, firsts, "right")
    if (lasts - firsts)[is_own].sum() < ALIKE * (lasts - firsts).sum():
        return None
    to_target, is_from = rows.raw("to_target"), rows.raw("is_black_out_from_receiver")
    is_to = rows.raw("is_black_out_to_receiver")
    lost = {
        side: bool((is_to & (to_target == way)).any() or (is_from & (to_target != way)).any())
        for side, way in (("initiator", False), ("target", True))
    }
    # at two taps, and where both sides retransmitted, a black-out has several rows
    begins = np.flatnonzero(np.append(True, starts[1:] >= np.maximum.accumulate(ends)[:-1]))
    if len(begins) == 1 and not is_from.any():
        # two losses in a row may look like it
        return None
    return BlackOuts(
        np.maximum.reduceat(starts, begins),
        np.minimum.reduceat(ends, begins),
        np.maximum.reduceat(rows.raw("black_out_least_ns"), begins),
        "target" if 2 * int(to_target.sum()) >= len(rows) else "initiator",
        tuple(side for side, is_one in lost.items() if is_one),
    )
