"""A line that is busy at its rate: of one session, or shared by several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from iscsitrace.findings.case import Case
from iscsitrace.findings.distance import BLOCK_SIZE_SMALL, QUEUE_DEPTH_LOW
from iscsitrace.findings.finding import Advice, Basis, Explains, Found, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.findings.thresholds import FULL, MILLISECOND_NS
from iscsitrace.findings.transport import CONGESTION_WINDOW_SMALL
from iscsitrace.fit.gain import Change
from iscsitrace.measure import line
from iscsitrace.measure.facts import Array, Facts, path_ns, rtt_ns
from iscsitrace.measure.intervals import Span
from iscsitrace.measure.line import Line, Times
from iscsitrace.measure.session import Session
from iscsitrace.wording import amounts as wording
from iscsitrace.wording.sentences import some

LEAST: Final = (
    f"Data transfer takes at least {wording.percent(FULL)} of the I/O time at the initiator (an RTT more than a tap "
    "at the target sees), and the packets show the rate of the line"
)

ENDED_NS: Final = 1_000_000_000
"""A line that was full until so long before the end of the capture is not full any more: a logout, or the last ACKs,
take less.
"""
_NAMED: Final = 8
"""Sessions that a sentence names."""


def rate(found: Line) -> str:
    """``2.4 MB/s (20 Mbit/s with headers)``."""
    if not found.wire_bytes_per_s:
        return wording.rate(found.bytes_per_s)
    bits = found.wire_bytes_per_s * 8
    wire = f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
    return f"{wording.rate(found.bytes_per_s)} ({wire} with headers)"


def _is_transferring(facts: Facts) -> Array:
    """Where data transfer takes nearly all of the initiator's I/O time: a tap far from it sees an RTT less of it."""
    io_ns = facts.jobs_ns + np.maximum(rtt_ns(facts, "initiator"), 0)
    return np.asarray((facts.jobs_ns > 0) & (facts.part_ns("transfer") >= FULL * io_ns))


def _observe(case: Case, *, is_shared: bool) -> Observation | None:
    subject = case.subject
    found, times = case.once(line.of), Times()
    transfers, ways = subject.stretches("transfer"), line.busy_ways(subject)
    if found is None or found.number is None:
        # it is shared with nobody that is known
        found = _paced(subject)
    else:
        times = case.groups.lines.get(found.number, times)
    count = times.count(case.sessions[0]) if case.sessions else 0
    if found is None or (count > 1) != is_shared or (not is_shared and line.used_share(subject, found) < FULL):
        return None
    queue = f" Packets typically wait {wording.time(found.queue_ns)} in its queue." if found.queue_ns else ""
    way = f" to the {ways[0]}" if len(ways) == 1 else ""
    both = "" if way else " both ways"
    if is_shared:
        span = times.together(case.sessions[0])
    else:
        (span,) = line.main_spans(transfers.starts, transfers.ends, np.zeros(1, dtype=np.intp))
    since, has_ended = _when(span, case)
    since += f", at {rate(found)}"
    if is_shared:
        numbers = some(times.first(case.sessions[0], _NAMED), count)
        verbs = ("shared", "filled") if has_ended else ("share", "have filled")
        text = f"{count} sessions ({numbers}) {verbs[0]} the line{way} and {verbs[1]} it{both} {since}.{queue}"
    else:
        text = f"The line{way} {'was' if has_ended else 'has been'} full{both} {since}.{queue}"
    return Observation(text, subject.evidence(transfers), subject.part_ns("transfer"))


def _when(span: Span, case: Case) -> tuple[str, bool]:
    """``since 1.00 s``, or ``from 1.00 s to 2.00 s`` where it ended before the capture did; and whether it did."""
    first, last = (wording.seconds(each - case.groups.start_ns) for each in span)
    has_ended = case.groups.end_ns - span[1] >= ENDED_NS
    return (f"from {first} to {last}" if has_ended else f"since {first}"), has_ended


def _paced(subject: Session) -> Line | None:
    """The line whose rate no queue shows apart, but at whose pace the data pass while the RTT grows; None without."""
    row = subject.fact(line.loaded)
    if row < 0 or not subject.path_ns:
        return None
    loaded = next(subject.facts.table("senders").select(slice(row, row + 1)).rows())
    queue_ns = loaded["rtt_load_median_ns"] - subject.path_ns
    if queue_ns < max(GROWN_NS, min(line.QUEUE_NS, line.QUEUE_PART * subject.path_ns)):
        return None
    rate = round(line.sent_bytes(subject) * 1e9 / subject.part_ns("transfer"))
    return Line(None, rate, None, None, None, 0, queue_ns)


TWICE_AS_FAST: Final = Change(
    "a line twice as fast",
    lambda situation: situation.with_setting(c_bytes_per_s=2 * (situation.setting.c_bytes_per_s or 0.0)),
    ("transfer",),
)


def _faster(basis: Basis) -> Iterator[Change]:
    if basis.measured.situation.setting.c_bytes_per_s:
        yield TWICE_AS_FAST


def _has_queue(case: Case) -> bool:
    found = case.once(line.of)
    return found is not None and bool(found.queue_ns)


def _has_deep_queue(case: Case) -> bool:
    workload = case.subject.workload
    return _has_queue(case) and workload is not None and workload.queue_depth > 1


_SHORTER: Final = "For shorter latency at the same throughput, shorten the queue of the line (fq_codel on the router)"
_QUEUE: Final = (
    Advice(
        f"{_SHORTER}, or keep fewer commands in flight (/sys/block/DEVICE/device/queue_depth).", only_if=_has_deep_queue
    ),
    Advice(f"{_SHORTER}.", only_if=lambda case: _has_queue(case) and not _has_deep_queue(case)),
)

# --- standing_queue

GROWN_NS: Final = MILLISECOND_NS // 2
"""Least time by which the RTT grows before a line: hosts take less to answer."""


def _has_standing_queue(facts: Facts) -> Found:
    queue_ns, least_ns = facts.once(line.standing_ns), facts.once(path_ns)
    shares = np.divide(queue_ns, queue_ns + least_ns, out=np.zeros(len(facts)), where=queue_ns > 0)
    return Found(queue_ns > 0, share=shares)


def _standing_queue(case: Case) -> Observation:
    subject = case.subject
    row = subject.fact(line.loaded)
    found = next(subject.facts.table("senders").select(slice(row, row + 1)).rows())
    way = "target" if found["to_target"] else "initiator"
    text = (
        f"The path to the {way} has a standing queue: under load a round trip typically takes "
        f"{wording.time(found['rtt_load_median_ns'])} instead of {wording.time(subject.path_ns or 0)}."
    )
    return Observation(text, subject.frames_of(subject.longest_rows(subject.stretches("propagation", "transfer"))))


STANDING_QUEUE: Final = Problem(
    name="standing_queue",
    meaning="A queue on the path never empties while data are in flight: each round trip takes longer than the path "
    "needs. The session builds it itself, or other traffic does.",
    condition="The median RTT while data are in flight exceeds that of the path by the larger of "
    f"{wording.time(line.QUEUE_NS)} and half of it, and for half of the I/O time the least RTT of 250 ms shows a "
    "queue, too (iscsitrace docs method 5): that of a burst is empty before the next. Neither line_saturated nor "
    "line_shared is found.",
    evidence="The commands that waited longest for the network. The share is the queue's part of a round trip.",
    example="The path to the initiator has a standing queue: under load a round trip typically takes 122.7 ms instead "
    "of 8.0 ms.",
    # reads of 1.4 s on the line, before which the target takes half a second
    shown_by="read --block-size 8M --bytes 40M --rate 50Mbit --one-way-delay 4ms --service-delay 500ms",
    near_miss="mixed --block-size 64K --queue-depth 2 --bytes 24M --rate 1Gbit --one-way-delay 4ms",
    rank="limit",
    limited_by="a queue on the path",
    advice=(
        Advice(
            "Find what fills the queue: other traffic on the same line, or this session with more in flight than "
            "the bandwidth-delay product."
        ),
        Advice("Shorten the queue of the line, with fq_codel or a rate limit on the router."),
    ),
    accounts_for=(QUEUE_DEPTH_LOW, BLOCK_SIZE_SMALL, CONGESTION_WINDOW_SMALL),
    where=_has_standing_queue,
    tell=_standing_queue,
)


# --- line_saturated and line_shared

LINE_SATURATED: Final = Problem(
    name="line_saturated",
    meaning="The line is busy at its rate most of the time: the session cannot be faster than the line.",
    condition=f"{LEAST}; no other session reads or writes over it at the same time.",
    evidence="The frames that ended the longest transfers. The share is that of data transfer.",
    example="The line to the initiator has been full since 0.06 s, at 38.3 MB/s (320 Mbit/s with headers). Packets "
    "typically wait 11.7 ms in its queue.",
    # eight reads of 256 KiB take 52 ms on the line, one of 128 KiB takes 3.3 ms; the RTT is 8 ms
    shown_by=f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
    near_miss=f"read --block-size 128K --bytes 16M {WAN}",
    explains=Explains("transfer"),
    accounts_for=(STANDING_QUEUE,),
    rank="limit",
    limited_by="the line",
    advice=(
        Advice(
            "Use a faster line, or move fewer bytes. If the line should be faster than this, look for a rate limit on "
            "it and for traffic that is not in the capture.",
            _faster,
        ),
        *_QUEUE,
    ),
    where=_is_transferring,
    tell=lambda case: _observe(case, is_shared=False),
)

LINE_SHARED: Final = Problem(
    name="line_shared",
    meaning="Several sessions share a line, and together fill it: each gets a part of its rate, however fast its "
    "target is.",
    condition=f"{LEAST}; other sessions between the same hosts, or of one host, read or write over the same line at "
    "the same time.",
    evidence="The frames that ended the longest transfers. The share is that of data transfer.",
    example="2 sessions (0, 1) share the line to the initiator and have filled it since 0.06 s, at 38.3 MB/s (320 "
    "Mbit/s with headers). Packets typically wait 25.6 ms in its queue.",
    # two sessions with one target, or one
    shown_by=f"read --block-size 256K --bytes 32M --queue-depth 8 --sessions 2 {WAN}",
    near_miss=f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
    explains=Explains("transfer"),
    accounts_for=(STANDING_QUEUE,),
    rank="limit",
    limited_by="the line",
    advice=(
        Advice("Give the sessions lines of their own (other interfaces, other portals), or a faster one."),
        *_QUEUE,
    ),
    where=_is_transferring,
    tell=lambda case: _observe(case, is_shared=True),
)
