"""A line that is busy at its rate: of one session, or shared by several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from iscsitrace.findings.case import Case
from iscsitrace.findings.finding import Advice, Basis, Explains, Observation, Problem
from iscsitrace.findings.recipes import WAN
from iscsitrace.fit.gain import Change
from iscsitrace.measure import line
from iscsitrace.measure.facts import Array, Facts
from iscsitrace.measure.line import Line
from iscsitrace.wording import amounts as wording

LEAST: Final = "`transfer` takes more than half of the busy time, and the packets show the rate of the line"


def rate(found: Line) -> str:
    """``2.4 MB/s (20 Mbit/s with headers)``."""
    if not found.wire_bytes_per_s:
        return wording.rate(found.bytes_per_s)
    bits = found.wire_bytes_per_s * 8
    wire = f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
    return f"{wording.rate(found.bytes_per_s)} ({wire} with headers)"


def _is_transferring(facts: Facts) -> Array:
    """Where data transfer is the limiter: it takes more than half of the busy time."""
    return 2 * facts.part_ns("transfer") > facts.jobs_ns


def _observe(case: Case, *, is_shared: bool) -> Observation | None:
    subject = case.subject
    if subject.budget is None or subject.budget.limiter != "transfer":
        return None
    found = case.once(line.of)
    if found is None or found.number is None:
        return None
    times = case.groups.lines.get(found.number, {})
    sessions = line.sharing(times, case.sessions[0]) if case.sessions else ()
    if (len(sessions) > 1) != is_shared:
        return None
    queue = f"; data waited {wording.time(found.queue_ns)} in its queue (median)" if found.queue_ns else ""
    if is_shared:
        shared = f"{len(sessions)} sessions ({', '.join(str(number) for number in sessions)})"
        text = f"the line is shared by {shared}, which together fill its rate of {rate(found)}{queue}"
    else:
        text = f"the line is busy at its rate of {rate(found)}{queue}"
    transfers = subject.stretches("transfer")
    return Observation(text, subject.evidence(transfers), subject.part_ns("transfer"))


TWICE_AS_FAST: Final = Change(
    "line twice as fast",
    lambda situation: situation.with_setting(c_bytes_per_s=2 * (situation.setting.c_bytes_per_s or 0.0)),
    ("transfer",),
)


def _faster(basis: Basis) -> Iterator[Change]:
    if basis.measured.situation.setting.c_bytes_per_s:
        yield TWICE_AS_FAST


def _has_queue(case: Case) -> bool:
    found = case.once(line.of)
    return found is not None and bool(found.queue_ns)


_QUEUE: Final = Advice(
    "Commands wait in the queue of the line: a lower queue depth (node.session.queue_depth) or a shorter queue "
    "(fq_codel) makes the latency shorter, at the same throughput.",
    only_if=_has_queue,
)

LINE_SATURATED: Final = Problem(
    name="line_saturated",
    meaning="The line is busy at its rate most of the time: the session cannot be faster than the line.",
    condition=f"{LEAST}; no other session reads or writes over it at the same time.",
    evidence="The frames that ended the longest transfers. The share is that of `transfer`.",
    example="The line is busy at its rate of 38.3 MB/s (320 Mbit/s with headers); data waited 11.7 ms in its queue "
    "(median).",
    # eight reads of 256 KiB take 52 ms on the line, one of 128 KiB takes 3.3 ms; the RTT is 8 ms
    shown_by=f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
    near_miss=f"read --block-size 128K --bytes 16M {WAN}",
    explains=Explains("transfer"),
    advice=(Advice("Use a faster line, or move fewer bytes.", _faster), _QUEUE),
    where=_is_transferring,
    tell=lambda case: _observe(case, is_shared=False),
)

LINE_SHARED: Final = Problem(
    name="line_shared",
    meaning="Several sessions share a line, and together fill it: each gets a part of its rate, however fast its "
    "target is.",
    condition=f"{LEAST}; other sessions between the same hosts, or of one host, read or write over the same line at "
    "the same time.",
    evidence="The frames that ended the longest transfers. The share is that of `transfer`.",
    example="The line is shared by 2 sessions (0, 1), which together fill its rate of 38.3 MB/s (320 Mbit/s with "
    "headers); data waited 25.6 ms in its queue (median).",
    # two sessions with one target, or one
    shown_by=f"read --block-size 256K --bytes 32M --queue-depth 8 --sessions 2 {WAN}",
    near_miss=f"read --block-size 256K --bytes 16M --queue-depth 8 {WAN}",
    explains=Explains("transfer"),
    advice=(
        Advice("Give the sessions lines of their own (other interfaces, other portals), or a faster one."),
        _QUEUE,
    ),
    where=_is_transferring,
    tell=lambda case: _observe(case, is_shared=True),
)
