"""Lost ACKs: the data arrived, but the sender did not hear of it, and a timer retransmitted it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.findings.finding import WHOLE_HOST, Advice, Explains, Observation, Problem
from iscsitrace.findings.history import History
from iscsitrace.findings.outages import IO_OUTAGE
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import LOSS_SHARE
from iscsitrace.measure.facts import Facts
from iscsitrace.measure.intervals import Span, intersection, merged
from iscsitrace.measure.losses import ack_losses
from iscsitrace.measure.session import Session, Stretches, frames_in
from iscsitrace.relate.outages import OUTAGE_MIN_NS, Outage
from iscsitrace.tables.nulls import known
from iscsitrace.tables.table import Table
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import capital

Array = NDArray[Any]


LINE_PARTS: Final = 8
"""A wait for a timer is cut where the retransmission begins to pass the line: for less than such a part of the wait."""


def other_waits(subject: Session) -> Stretches:
    """The time in recovery without what only lost ACKs caused: that, and the wait before the retransmission."""
    stretches = subject.stretches("loss_recovery")
    return stretches.where(~_meet(stretches, ack_losses(subject.tables["recoveries"])))


def _meeting(stretches: Stretches, recoveries: Table) -> Stretches:
    """The stretches that meet a recovery: see :func:`_meet`."""
    return stretches.where(_meet(stretches, recoveries))


def _meet(stretches: Stretches, recoveries: Table) -> Array:
    """Which stretches meet a recovery, or end just before it; one that never ended lasts."""
    starts = recoveries.raw("time_first_ns")
    ends = np.where(known(recoveries, "time_last_ns"), recoveries.raw("time_last_ns"), np.iinfo(np.int64).max)
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    before = np.searchsorted(starts, stretches.ends + stretches.lengths // LINE_PARTS, side="right")
    if not len(starts):
        return np.zeros(len(stretches.starts), dtype=bool)
    return np.asarray((before > 0) & (reached[np.maximum(before, 1) - 1] >= stretches.starts))


def _until_recovery(stretches: Stretches, recoveries: Table) -> Array:
    """The ends of the stretches, up to the recovery that begins just after one."""
    starts = np.sort(recoveries.raw("time_first_ns"))
    place = np.searchsorted(starts, stretches.ends)
    following = np.append(starts, np.iinfo(np.int64).max)[place]
    is_cut = following - stretches.ends <= stretches.lengths // LINE_PARTS
    return np.asarray(np.where(is_cut, following, stretches.ends))


def _in_use(history: History, recoveries: Table) -> tuple[Array, Array]:
    """The time of these recoveries in which commands were in flight on their connections."""
    budget = history.rows("budget")
    used = budget.select(budget["in_flight"] != "none")
    parts = []
    for connection in np.unique(recoveries.raw("connection")).tolist():
        spans: list[Array] = []
        for table in (recoveries, used):
            own = table.select(table.raw("connection") == connection)
            spans += merged(own.raw("time_first_ns"), own.raw("time_last_ns"))
        parts.append(intersection(*spans))
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate([first for first, _ in parts]), np.concatenate([last for _, last in parts])


def _has_ack_losses(facts: Facts) -> Array:
    return facts.count("recoveries", lambda recoveries: known(recoveries, "ack_loss")) > 0


def _lost(history: History) -> Observation | None:
    of_story = ack_losses(history.rows("recoveries"))
    if not len(of_story):
        return None
    of_story = of_story.select(~_is_late(of_story, history.outages))
    if not len(of_story):
        return None
    to_target = 2 * int(of_story.raw("to_target").sum()) > len(of_story)
    recoveries = of_story.select(of_story.raw("to_target") == to_target)
    held = [_meeting(member.stretches("loss_recovery"), recoveries) for member in history.members.values()]
    outages = [each for each in history.outages if _is_in(recoveries, each.from_ns, each.to_ns)]
    out = np.array([(each.from_ns, each.to_ns) for each in outages], dtype=np.int64).reshape(-1, 2)
    over = recoveries.select(known(recoveries, "time_last_ns"))
    used_first, used_last = _in_use(history, over)
    starts = [*(each.starts for each in held), used_first, out[:, 0]]
    ends = [*(_until_recovery(each, over) for each in held), used_last, out[:, 1]]
    firsts, lasts = merged(np.concatenate(starts), np.concatenate(ends))
    spans = tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
    cost_ns = sum(last - first for first, last in spans)
    if history.share(cost_ns) < LOSS_SHARE:
        return None
    is_long = any(last - first >= OUTAGE_MIN_NS for first, last in spans)
    receiver, sender = ("target", "initiator") if to_target else ("initiator", "target")
    count = int(recoveries.raw("retransmitted_packets").sum())
    times = wording.count(len(recoveries), "recovery", "recoveries")
    text = (
        f"{history.label}: because ACKs of the {receiver} were lost, the {sender} retransmitted "
        f"{wording.count(count, 'packet')} that had arrived ({times} after a timer) {_stalled(spans, cost_ns)}"
    )
    numbers = np.unique(recoveries.raw("connection")).tolist()
    tap = " or ".join(dict.fromkeys(history.source.tap_of(each, to_target=to_target) for each in numbers))
    facts = " ".join(_facts(recoveries, receiver, sender, tap))
    longest = np.argsort(-_lengths(recoveries), kind="stable")[:3]
    return Observation(
        f"{capital(text)}. {facts}",
        frames_in(recoveries, longest, "frame_first", "frame_last"),
        float(cost_ns),
        spans=spans,
        is_final=any(not each.is_over for each in outages),
        rank="failure" if is_long else None,
        severity="error" if is_long else None,
        points_to=_stretch(recoveries, receiver, sender, tap),
    )


def _is_late(recoveries: Table, outages: Sequence[Outage]) -> Array:
    """Which begin a second or more after the begin of an outage: a timer was due before, and what it retransmitted was
    lost. So was data, and nothing passed the path.
    """
    starts, late = recoveries.raw("time_first_ns"), np.zeros(len(recoveries), dtype=bool)
    for each in outages:
        late |= (starts - each.from_ns >= OUTAGE_MIN_NS) & (starts <= each.to_ns)
    return late


def _stalled(spans: tuple[Span, ...], cost_ns: int) -> str:
    if len(spans) == 1:
        return f"and stalled for {wording.time(cost_ns)}"
    longest = max((last - first for first, last in spans), default=0)
    return f"and stalled for {wording.time(cost_ns)} in total, at most {wording.time(longest)} at a time"


def _facts(recoveries: Table, receiver: str, sender: str, tap: str) -> Iterator[str]:
    where = _stretch(recoveries, receiver, sender, tap).removeprefix("the path ")
    places = set(recoveries["ack_loss"].tolist())
    if len(places) > 1:
        yield f"They were lost {where}."
    elif "beyond_tap" in places:
        yield f"The ACKs passed the {tap}: they were lost {where}."
    else:
        yield f"The ACKs never reached the {tap}: they were lost {where}."
    yield f"No data was lost: the {receiver} reported it as received twice (D-SACK)."


def _stretch(recoveries: Table, receiver: str, sender: str, tap: str) -> str:
    """The part of the path that lost the ACKs."""
    places = set(recoveries["ack_loss"].tolist())
    if len(places) > 1:
        return f"the path on both sides of the {tap}"
    first, last = (tap, sender) if "beyond_tap" in places else (receiver, tap)
    return f"the path between the {first} and the {last}"


def _lengths(recoveries: Table) -> Array:
    is_over = known(recoveries, "time_last_ns")
    lengths = recoveries.raw("time_last_ns") - recoveries.raw("time_first_ns")
    return np.asarray(np.where(is_over, lengths, np.iinfo(np.int64).max))


def _is_in(recoveries: Table, from_ns: int, to_ns: int) -> bool:
    starts = recoveries.raw("time_first_ns")
    return bool(((starts >= from_ns) & (starts <= to_ns)).any())


ACK_LOSS: Final = Problem(
    name="ack_loss",
    scope="story",
    meaning="The path loses ACKs, but no data. The sender does not learn that its data arrived: it waits for a timer "
    "(tail loss probe or RTO) and retransmits without need. Meanwhile its window is full, and the transfer stalls.",
    condition="Recoveries in which a timer expired because of lost ACKs, not of lost data (iscsitrace docs method 5), "
    f"take at least {wording.percent(LOSS_SHARE)} of the I/O time. A stall of a second or more is a failure.",
    evidence="First and last frames of the longest recoveries. The cost is the time in these recoveries, with the "
    "waits before them and the outages that they caused.",
    example="Session 0: because ACKs of the initiator were lost, the target retransmitted 2 packets that had arrived "
    "(1 recovery after a timer) and stalled for 719.3 ms. The ACKs passed the tap: they were lost between the tap and "
    "the target. No data was lost: the initiator reported it as received twice (D-SACK).",
    # ACKs to the target dropped for 700 ms, or data to the initiator
    shown_by=f"read --block-size 2M --queue-depth 2 --seconds 3 --fault ack-loss,for=700ms {WAN}",
    near_miss="read --block-size 2M --queue-depth 2 --seconds 3 --fault black-out,for=300ms,direction=to-initiator "
    f"{WAN}",
    explains=Explains("loss_recovery", specificity=2),
    accounts_for=(IO_OUTAGE,),
    advice=(
        Advice(
            "Find where packets to the sender of the data are dropped: one direction of a link or of a bond, a full "
            "queue in that direction (ip -s link, tc -s qdisc, drops of the switch port), a policer, a firewall that "
            "sees only one direction. Captures at both hosts show on which side of each hop ACKs are missing."
        ),
        Advice(
            "Shorten the stalls: set net.ipv4.tcp_early_retrans = 3 on a Linux sender (a tail loss probe after two "
            "RTTs, instead of an RTO), and net.ipv4.tcp_sack and tcp_dsack = 1 on both sides.",
            touches=WHOLE_HOST,
        ),
    ),
    where=_has_ack_losses,
    tell=_lost,
)
