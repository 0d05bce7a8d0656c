"""Reports what links carried and dropped: the same text for every command that has links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iscsitrace.measure.ranks import is_meaningful
from iscsitrace.show.terminal import show_table
from iscsitrace.wording import cells

_DIRECTIONS = ("to_target", "to_initiator")
_FATES = ("queue_full", "lost", "lost_in_burst", "overtaken")


def show_links(logs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """A row per link and direction, by the name of the link."""
    rows = []
    for name, log in logs:
        for direction in _DIRECTIONS:
            counters, line = log[direction]["counters"], log[direction]["line"]
            rows.append(
                (
                    name,
                    direction.replace("_", " "),
                    counters["arrived"]["count"],
                    counters["arrived"]["bytes"],
                    *(counters[fate]["count"] for fate in _FATES),
                    cells.milliseconds(line["busy_ns"]) if line else None,
                )
            )
    headings = ("packets", "bytes", *(fate.replace("_", " ") for fate in _FATES), "line busy ms")
    show_table(("link", "direction", *headings), rows)


def show_lateness(processes: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """A row per link in real time: how late its frames were sent."""
    rows = []
    for name, log in processes:
        late = log["lateness"]
        p99_ns = late["p99_ns"] if is_meaningful("p99", late["count"]) else None
        times_ns = (late["median_ns"], p99_ns, late["max_ns"])
        rows.append((name, *(cells.milliseconds(each) for each in times_ns), log["refused"]["count"]))
    show_table(("link", "late: median ms", "p99 ms", "max ms", "refused by the kernel"), rows)
