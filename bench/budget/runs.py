"""Runs a case in either world, and keeps its files and its truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.budget import link, true_parts
from bench.budget.cases import Case
from bench.budget.packets import Packet, packets
from iscsitrace.lab import real, simulation

TAPS = ("initiator", "target")
WORLDS = ("simulated", "real")
PORT = 3260


@dataclass(frozen=True)
class Made:
    """A run: its files and truth."""

    case: Case
    world: str
    truth: dict[str, Any]
    files: dict[str, Path]
    packets: Mapping[str, list[Packet]] | None
    """Packets at both taps; only if packets were lost."""

    @cached_property
    def parts(self) -> true_parts.Run:
        """Its true time breakdown."""
        return true_parts.Run(self.case, self.truth, true_parts.read(self.files), self.packets)


def make(case: Case, world: str, folder: Path, seed: int = 1) -> Made:
    """Runs a case. RuntimeError if commands failed or a capture lost packets."""
    run = real.run if world == "real" else simulation.run
    truth = run(case.settings(seed), folder, lambda *_: False)
    if truth["results"]["errors"] or any(truth.get("capture_dropped_counts", ())):
        raise RuntimeError(f"{case.name}: {truth['results']['errors'][:1]} {truth.get('capture_dropped_counts')}")
    files = {tap: folder / f"{tap}.pcapng" for tap in TAPS}
    has_lost = any(link.lost_count(truth, direction) for direction in link.NEAR)
    seen = {tap: packets(file, PORT) for tap, file in files.items()} if has_lost else None
    return Made(case, world, truth, files, seen)
