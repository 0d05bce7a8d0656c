"""One line on standard output or standard error, and a progress bar: a line that is drawn again and again, on stderr,
if that is a terminal and the work takes longer than half a second. No text of a capture or of a peer in a line
controls a terminal.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from iscsitrace.wording.cells import printable


def say(text: str, *, err: bool = False) -> None:
    """Prints the line, with characters that control a terminal escaped."""
    click.echo(printable(text), err=err)


_PATIENCE_S = 0.5
_OF_BYTES = "{desc} {bar} {n_fmt}/{total_fmt}, {rate_fmt}, {remaining} left"
_OF_A_RUN = "{desc} {bar} {postfix} {elapsed}"


class ProgressBar:
    """A bar that appears once the work has taken half a second, and is gone at its end.

    With ``counts_bytes`` it shows how many there are, how many a second, and how long the rest will take; without, a
    text and the time that has passed.
    """

    def __init__(self, title: str, *, is_wanted: bool = True, counts_bytes: bool = False) -> None:
        self._title = title
        self.is_wanted = is_wanted and sys.stderr.isatty()
        self._counts_bytes = counts_bytes
        self._started = time.monotonic()
        self._bar: Any = None
        self._printed = 0

    def show(self, done: float, total: float | None, text: str = "") -> bool:
        """Draws how much is done. Returns False: the bar never ends a run."""
        self.draw(done, total, text)
        return False

    def draw(self, done: float, total: float | None, text: str = "") -> None:
        """Draws how much is done, and what ``text`` says of it."""
        if not self.is_wanted or time.monotonic() - self._started < _PATIENCE_S:
            return
        if self._bar is None:
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no thread of its own
            self._bar = tqdm(
                desc=self._title,
                total=total,
                initial=done,
                leave=False,
                file=sys.stderr,
                dynamic_ncols=True,
                bar_format=_OF_BYTES if self._counts_bytes else _OF_A_RUN,
                unit="B" if self._counts_bytes else "",
                unit_scale=self._counts_bytes,
                miniters=0,
            )
        self._bar.total = total
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(done - self._bar.n)

    def show_workload(self, seen: dict[str, Any]) -> None:
        """Draws the progress of an initiator's workload, once it runs."""
        from iscsitrace.wording import cells

        if seen["is_running"]:
            done, total = ("bytes", "total_bytes") if seen["total_bytes"] else ("elapsed_ns", "duration_ns")
            text = f"{cells.megabytes(seen['bytes'])} MB"
            tuning = seen.get("tuning")
            if tuning is not None:
                text += f", {tuning['connections']} connections"
            self.draw(seen[done], seen[total], text)
            if tuning is not None:
                self._print_step(tuning)

    def _print_step(self, tuning: dict[str, Any]) -> None:
        """Prints a line for each step of the search for the number of connections, above the bar."""
        if self._bar is not None and tuning["step_count"] > self._printed:
            self._printed = tuning["step_count"]
            step = tuning["step"]
            text = f"{step['time_s']:.1f} s: {step['why']}; next {step['next_connections']}"
            self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
