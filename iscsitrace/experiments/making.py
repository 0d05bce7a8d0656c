"""How the results of an experiment were made: the command, the versions of what ran, and the seeds."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from typing import Final

import numpy as np

import iscsitrace
from iscsitrace.experiments.points import Point

SIMULATED: Final = "simulated"
_SHOWN_SEEDS: Final = 3


def command(name: str, world: str, *, is_reduced: bool = False) -> str:
    """The command that repeats all of it."""
    options = ["" if world == SIMULATED else f" --world {world}", " --reduced" if is_reduced else ""]
    return f"iscsitrace lab run {name}{''.join(options)} -o DIR"


def versions(world: str) -> dict[str, str]:
    """Versions of what a run depends on; with the kernel's TCP also its version, and how busy the machine is."""
    found = {
        "iscsitrace": iscsitrace.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
    }
    if world == SIMULATED:
        return found
    load = f"{os.getloadavg()[2]:.1f} on {os.cpu_count()} processors"
    # without the suffix, which names a build
    release = re.match(r"[\d.]*\d", platform.release())
    return found | {platform.system(): release[0] if release else "", "load average": load}


def seeds(points: Iterable[Point]) -> tuple[int, ...]:
    """The seeds of its runs, one for each repeat of a point."""
    return tuple(sorted({int(point.run_settings["world"]["seed"]) for point in points}))


def seeds_text(found: tuple[int, ...]) -> str:
    """Seeds as text: all of them, or the first and the last."""
    if len(found) <= _SHOWN_SEEDS:
        return ", ".join(map(str, found))
    return f"{found[0]}, {found[1]} ... {found[-1]}"
