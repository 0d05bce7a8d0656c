"""A simulated run in a folder: a capture at each tap, and the truth of them. Nothing of it needs root or real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from iscsitrace.lab import run_files, traffic, truth_file


def run(
    settings: Mapping[str, Any],
    directory: Path,
    watch: Callable[[int, int], bool],
    *,
    is_forced: bool = False,
) -> dict[str, Any]:
    """Simulates, and writes ``initiator.pcapng``, ``target.pcapng`` ... and ``truth.json``; the truth.

    The folder is made; an untapped world leaves nothing but the truth in it. OutputExists when one of the files is
    there and ``is_forced`` is not set; TrafficImpossible for settings that make no sense, and for an end that does
    not come. A run that fails leaves no files.
    """
    wanted = run_files.capture_names(len(settings["portals"]))
    names = [] if settings["world"].get("is_untapped") else wanted
    with run_files.made_in(directory, names, is_forced=is_forced) as files:
        found = traffic.simulate(settings, files or [None] * len(wanted), watch)
        truth = truth_file.envelope("simulation")
        made: list[str | None] = [*names] or [None] * len(wanted)
        truth["captures"] = {"initiator": made[0], "targets": made[1:]}
        truth |= found
        for log in filter(None, (truth["access"], *truth["paths"])):
            truth_file.pack_busy_times(log)
        truth_file.write(directory / run_files.TRUTH, truth)
    return truth
