"""The user's choices in the live view: sort order, session, line, pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.watch.columns import tail
from iscsitrace.watch.figures import WatchLine
from iscsitrace.watch.watcher import Report

SORTS: Final = ("number", "throughput", "IOPS", "p99", "queue depth", "idle", "retransmissions")


@dataclass
class Choice:
    """The choices, and the state of the input."""

    sort: str = "number"
    is_paused: bool = False
    session: int | None = None
    """The session whose connections are shown; None shows all sessions."""
    row: int = 0
    note: str = ""
    source: str = ""
    is_over: bool = False
    quiet_s: float = 0.0


def sorted_lines(report: Report, choice: Choice) -> list[WatchLine]:
    """The lines of the table, in the chosen order."""
    if choice.session is None:
        lines = report.sessions
    else:
        lines = [line for line in report.connections if line.names["session"] == choice.session]
    keys: dict[str, Any] = {
        "number": lambda line: line.number,
        "throughput": lambda line: -(line.load.read_bytes + line.load.write_bytes),
        "IOPS": lambda line: -line.load.task_count,
        "p99": lambda line: -(line.load.latency_ns[tail(line.load.latency_ns)] or 0),
        "queue depth": lambda line: -(line.load.queue_depth_max or 0),
        "idle": lambda line: -((line.budget.idle_fraction or 0) if line.budget else 0),
        "retransmissions": lambda line: -line.retransmitted,
    }
    return sorted(lines, key=keys[choice.sort])
