"""Cached simulated runs: each by the options of ``iscsitrace simulate``, with its truth."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from click.testing import CliRunner

from iscsitrace.cli import main


@dataclass
class Run:
    """A run in its folder."""

    folder: Path

    def capture(self, tap: str = "initiator") -> Path:
        return self.folder / f"{tap}.pcapng"

    @cached_property
    def throughput(self) -> float:
        """Bytes per second, as counted by the initiator."""
        results = json.loads((self.folder / "truth.json").read_text())["results"]
        return float(results["bytes"] * 1e9 / results["elapsed_ns"])


class Runs:
    """Makes a run at its first request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Run] = {}

    def __call__(self, options: str) -> Run:
        if options not in self._made:
            folder = self._folder / str(len(self._made))
            arguments = ["simulate", *options.split(), "-o", str(folder)]
            made = CliRunner().invoke(main, arguments, catch_exceptions=False)
            # a run that does not end has captures, too
            assert made.exit_code < 2, made.output
            self._made[options] = Run(folder)
        return self._made[options]
