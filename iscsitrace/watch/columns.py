"""The columns of sessions and connections, the names of rows, and the short forms of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iscsitrace.measure.distribution import is_bound
from iscsitrace.watch.figures import WatchLine
from iscsitrace.wording.cells import percent, printable


@dataclass(frozen=True)
class WatchColumn:
    """One column of the table of sessions or connections."""

    heading: str
    width: int
    cell: Any = field(repr=False)
    least: int = 0
    """Smallest width of the terminal that shows it."""


def rate(amount: float) -> str:
    """Bytes per second as MB/s."""
    return f"{amount / 1e6:.1f}" if amount < 1e9 else f"{amount / 1e6:.0f}"


def milliseconds(time_ns: int | None) -> str:
    """A time in milliseconds, with at least three digits."""
    if time_ns is None:
        return "-"
    value = time_ns / 1e6
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def latency(found: Mapping[str, int | None]) -> str:
    """Median and tail in milliseconds, and their n."""
    name = tail(found)
    return f"p50 {percentile(found, 'p50')} ms, {name} {percentile(found, name)} ms (n {found['n']})"


def tail(found: Mapping[str, int | None]) -> str:
    """The p99, or the maximum where there are too few commands for one."""
    return "max" if found["p99"] is None else "p99"


def percentile(found: Mapping[str, int | None], name: str) -> str:
    """One of ``p50 p95 p99 max`` in milliseconds; ``>`` before one that a command without a status leaves open."""
    return f"{'>' if is_bound(found, name) else ''}{milliseconds(found[name])}"


def size(amount: float | None) -> str:
    """Bytes, short: ``64K``, ``1.5M``."""
    if amount is None:
        return "-"
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if amount >= factor:
            value = amount / factor
            return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"
    return f"{amount:.0f}"


def count(amount: float) -> str:
    """A rate of commands."""
    return f"{amount:.0f}" if amount >= 100 else f"{amount:.1f}"


def clock(time_ns: int) -> str:
    """The time of day in UTC."""
    seconds = time_ns // 10**9 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


COLUMNS: Final = (
    WatchColumn("MB/s R", 7, lambda line: rate(line.load.read_bytes_per_s)),
    WatchColumn("MB/s W", 7, lambda line: rate(line.load.write_bytes_per_s)),
    WatchColumn("IOPS", 7, lambda line: count(line.load.iops)),
    WatchColumn("p50 ms", 7, lambda line: percentile(line.load.latency_ns, "p50")),
    WatchColumn("p95", 7, lambda line: percentile(line.load.latency_ns, "p95"), 92),
    WatchColumn("p99", 7, lambda line: percentile(line.load.latency_ns, "p99")),
    WatchColumn("max", 7, lambda line: percentile(line.load.latency_ns, "max"), 100),
    WatchColumn("QD", 4, lambda line: "-" if line.load.queue_depth_max is None else str(line.load.queue_depth_max)),
    WatchColumn("idle%", 5, lambda line: percent(line.budget.idle_fraction if line.budget else None)),
    WatchColumn("rtx", 4, lambda line: str(line.retransmitted) if line.transports else "-"),
    WatchColumn("RTT ms", 7, lambda line: milliseconds(line.rtt_smoothed_ns), 108),
    WatchColumn("owin", 6, lambda line: size(line.owin_peak_bytes), 115),
    WatchColumn("I/O", 6, lambda line: size(line.load.block_sizes[0]["bytes"]) if line.load.block_sizes else "-", 122),
)


NOT_CAPTURED: Final = "login not captured"
_ARROW: Final = " > "
_UNKNOWN: Final = (NOT_CAPTURED, NOT_CAPTURED)


def session_names(sessions: Sequence[WatchLine], connections: Sequence[WatchLine]) -> dict[int, tuple[str, str]]:
    """Initiator and target of each session, the initiator empty where the target alone tells it apart.

    Sessions with the same two names, as several paths have, are told apart by the addresses of their connections.
    """
    of_connection = {line.number: (line.names["initiator"], line.names["target"]) for line in connections}
    addresses = {
        line.number: next((of_connection[each] for each in line.connections if each in of_connection), _UNKNOWN)
        for line in sessions
    }
    ends = {line.number: _ends(line, addresses[line.number]) for line in sessions}
    by_target = Counter(target for _, target in ends.values())
    by_both = Counter(ends.values())
    found = {}
    for line in sessions:
        initiator, target = both = ends[line.number]
        if by_both[both] > 1:
            found[line.number] = addresses[line.number]
        elif by_target[target] > 1:
            found[line.number] = both
        elif line.names["target_name"] or not line.names["initiator_name"]:
            found[line.number] = ("", str(line.names["target_name"] or NOT_CAPTURED))
        else:
            found[line.number] = ("", initiator)
    return found


def joined(ends: tuple[str, str], width: int | None = None) -> str:
    """``initiator > target``; names too long for the width are cut at their start, because the end is specific."""
    initiator, target = (printable(each) for each in ends)
    if not initiator:
        return _short(target, width)
    if width is None or len(initiator) + len(_ARROW) + len(target) <= width:
        return f"{initiator}{_ARROW}{target}"
    room = max(width - len(_ARROW), 2)
    half = room // 2
    left = max(half, room - len(target))
    return f"{_short(initiator, left)}{_ARROW}{_short(target, room - min(len(initiator), left))}"


def _short(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else "…" + text[len(text) + 1 - width :]


def _ends(line: WatchLine, addresses: tuple[str, str]) -> tuple[str, str]:
    """Their names, or addresses where a name is unknown."""
    return line.names["initiator_name"] or addresses[0], line.names["target_name"] or addresses[1]
