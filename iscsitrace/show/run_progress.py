"""Progress of a run: a bar on stderr, if that is a terminal and the run takes longer than half a second."""

from __future__ import annotations

import sys
import time
from typing import Any

from iscsitrace.show.initiator_results import tuning_line
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
        self._printed = 0

    def show(self, done: float, total: float | None, text: str) -> bool:
        """Draws how much is done. Returns False: the bar never ends a run."""
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
        """Draws the progress of an initiator's workload, once it runs."""
        if seen["is_running"]:
            done, total = ("bytes", "total_bytes") if seen["total_bytes"] else ("elapsed_ns", "duration_ns")
            text = f"{cells.megabytes(seen['bytes'])} MB"
            tuning = seen.get("tuning")
            if tuning is not None:
                text += f", {tuning['connections']} connections"
                self._print_step(tuning)
            self.show(seen[done], seen[total], text)

    def _print_step(self, tuning: dict[str, Any]) -> None:
        """Prints a line for each step of the search for the number of connections, above the bar."""
        if self._bar is not None and tuning["step_count"] > self._printed:
            self._printed = tuning["step_count"]
            self._bar.console.print(tuning_line(tuning["step"]), highlight=False, markup=False)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
