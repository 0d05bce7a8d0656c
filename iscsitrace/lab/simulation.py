"""A simulated run in a folder: a capture at each tap, and the truth of them. Nothing of it needs root or real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import traffic, truth_file

TRUTH = "truth.json"
INITIATOR = "initiator.pcapng"


def capture_names(target_count: int) -> list[str]:
    """Of the captures of a run: the initiator's, then each target's."""
    return [INITIATOR, "target.pcapng", *(f"target-{number}.pcapng" for number in range(2, target_count + 1))]


def run(
    settings: Mapping[str, Any],
    directory: Path,
    watch: Callable[[int, int], bool],
    *,
    is_forced: bool = False,
) -> dict[str, Any]:
    """Simulates, and writes ``initiator.pcapng``, ``target.pcapng`` ... and ``truth.json``; the truth.

    The folder is made. OutputExists when one of the files is there and ``is_forced`` is not set; TrafficImpossible for
    settings that make no sense, and for an end that does not come. A run that fails leaves no files.
    """
    names = capture_names(len(settings["portals"]))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrafficImpossible(f"cannot make {directory}: {error.strerror}") from error
    files = [directory / name for name in names]
    truth_file.require_new([*files, directory / TRUTH], is_forced=is_forced)
    try:
        found = traffic.simulate(settings, files, watch)
        truth = truth_file.envelope("simulation")
        truth["captures"] = {"initiator": names[0], "targets": names[1:]}
        truth |= found
        for log in filter(None, (truth["access"], *truth["paths"])):
            truth_file.pack_busy_times(log)
        truth_file.write(directory / TRUTH, truth)
    except BaseException:
        for file in files:
            with suppress(OSError):
                file.unlink()
        raise
    return truth
