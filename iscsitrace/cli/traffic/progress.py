"""How far a run is: a bar on stderr, only when that is a terminal and only for runs that take a while."""

from __future__ import annotations

import sys
import time
from typing import Any

from iscsitrace.cli.traffic import results as traffic_results
from iscsitrace.wording import cells

_PATIENCE_S = 0.5


class Progress:
    """A bar that appears once the run has taken half a second."""

    def __init__(self, title: str, *, is_wanted: bool = True) -> None:
        self._title = title
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._said = 0

    def show(self, done: float, total: float | None, text: str) -> bool:
        """Draws how much is done; never asks for the end of the run."""
        if not self._is_wanted or time.monotonic() - self._started < _PATIENCE_S:
            return False
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=total, text=text)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, text=text)
        return False

    def show_workload(self, seen: dict[str, Any]) -> None:
        """The same of an initiator's workload, as it tells of its progress, once it has begun."""
        if seen["is_running"]:
            done, total = ("bytes", "total_bytes") if seen["total_bytes"] else ("elapsed_ns", "duration_ns")
            text = f"{cells.megabytes(seen['bytes'])} MB"
            tuning = seen.get("tuning")
            if tuning is not None:
                text += f", {tuning['connections']} connections"
                self._say(tuning)
            self.show(seen[done], seen[total], text)

    def _say(self, tuning: dict[str, Any]) -> None:
        """A line for each step of the tuning, above the bar."""
        if self._bar is not None and tuning["step_count"] > self._said:
            self._said = tuning["step_count"]
            self._bar.console.print(traffic_results.tuning_line(tuning["step"]), highlight=False, markup=False)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
