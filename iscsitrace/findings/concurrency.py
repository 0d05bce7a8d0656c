"""Advice that several problems share, with its what-ifs: a higher queue depth, and more connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from iscsitrace.errors import InputInvalid
from iscsitrace.findings.case import Case, Groups
from iscsitrace.findings.finding import Basis
from iscsitrace.findings.thresholds import FULL
from iscsitrace.fit.gain import OF_A_COMMAND, OF_A_CONNECTION, Change
from iscsitrace.fit.situation import Situation
from iscsitrace.measure import connection_counts, line
from iscsitrace.model.what_if import HIDDEN, least
from iscsitrace.wording import amounts as wording

DEPTHS: Final = (8, 32, 128)
"""Queue depths to try, as programs and drivers offer them: the next one or two above the measured one."""
CONNECTIONS: Final = (2, 4, 8, 16, 32, 64)
"""Multiples of the measured connections to try, as long as each step gains ENOUGH."""
ENOUGH: Final = 1.1
"""Least throughput factor for which doubling the connections is worth it."""

SHARE_PATH: Final = (
    "Use 2 to 4 paths (node.session.nr_sessions with multipath, or several connections in a session): each has a "
    "window of its own."
)
# one text for one remedy, so that an output says it once
RAISE_QUEUE_DEPTH: Final = (
    "Keep more commands in flight: more threads or a higher I/O depth in the application, up to "
    "node.session.queue_depth; for buffered reads /sys/block/DEVICE/queue/read_ahead_kb. This helps only if the "
    "application can issue I/O in parallel."
)


def issues_in_parallel(case: Case) -> bool:
    """Whether the application has several commands in flight: only then more of anything in parallel helps."""
    return case.subject.workload is not None and case.subject.workload.queue_depth > 1


def gains_by_paths(case: Case) -> bool:
    """Whether more paths may help: the application has commands for them, the line is not full already, and the session
    does not try numbers of connections itself.
    """
    found = case.once(line.of)
    is_full = found is not None and case.jobs_ns > 0 and line.used_share(case.subject, found) >= FULL
    return issues_in_parallel(case) and not is_full and not _tries_numbers(case)


def _tries_numbers(case: Case) -> bool:
    """Whether the capture has the session with several numbers of connections, and so shows what more of them bring."""
    return not case.groups.once(_trying).isdisjoint(row["connection"] for row in case.subject.connections)


def _trying(groups: Groups) -> frozenset[int]:
    """The connections of sessions whose number of connections changes."""
    found = connection_counts.of_cycles(groups.cycles)
    return frozenset(number for each in found for stage in each.stages for number in stage.connections)


def next_queue_depth(basis: Basis) -> Iterator[Change]:
    """The next higher queue depth. A target that serves one command at a time gains less."""
    yield from islice(deeper(basis.measured.situation), 1)


def hiding_queue_depths(basis: Basis) -> Iterator[Change]:
    """The next higher queue depth, and the least one that hides the delay; without such a one the next two."""
    situation = basis.measured.situation
    depth, enough = situation.setting.queue_depth, _hiding(situation)
    if enough is None:
        yield from islice(deeper(situation), 2)
        return
    yield from deeper(situation, [each for each in DEPTHS if depth < each < enough][:1])
    change = partial(Situation.with_setting, queue_depth=enough)
    yield Change(f"queue depth {enough}, which hides {wording.percent(HIDDEN)} of the delay", change, OF_A_COMMAND)


def _hiding(situation: Situation) -> int | None:
    """Commands in flight that reach HIDDEN of the throughput without delay; None where that takes too many, where one
    in flight shows no application that has others to issue, or where nothing else is known to take time.
    """
    depth = situation.setting.queue_depth
    if depth == 1:
        return None

    def reached(count: int) -> float:
        return situation.with_setting(queue_depth=count).throughput()

    try:
        wanted = HIDDEN * situation.with_setting(delay_ns=0.0).throughput()
    except InputInvalid:
        # no rate, and no service time: without delay any throughput is possible
        return None
    found = least(reached, wanted, depth, DEPTHS[-1])
    return None if found == depth else found


def deeper(situation: Situation, depths: Iterable[int] = DEPTHS) -> Iterator[Change]:
    """More commands in flight. One in flight shows no application that has others to issue."""
    depth = situation.setting.queue_depth
    for each in depths:
        if each > depth > 1:
            change = partial(Situation.with_setting, queue_depth=each)
            yield Change(f"queue depth {each}", change, OF_A_COMMAND)


def more_connections(basis: Basis) -> Iterator[Change]:
    """Twice the connections, and the most that still gain: each with at least one command in flight."""
    situation = basis.measured.situation
    now, before = situation.setting.connections, situation.throughput()
    numbers: list[int] = []
    for times in CONNECTIONS:
        reached = situation.with_connections(times * now).throughput()
        if reached < ENOUGH * before:
            break
        numbers.append(times * now)
        before = reached
    for number in dict.fromkeys(numbers[:1] + numbers[-1:]):
        change = partial(Situation.with_connections, count=number)
        yield Change(f"{number} connections", change, OF_A_CONNECTION)
