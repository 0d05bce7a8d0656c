"""What a command takes: exit code, CPU time and peak of memory, of a process of its own.

A new process has the memory of the one that starts it until it runs its own program, and the kernel counts that in its
peak. So another process starts the command, which is as small as Python can be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import Any, Final

_STARTER: Final = """
import json, resource, subprocess, sys
patience_s, *command = sys.argv[2:]
try:
    code = subprocess.run(command, timeout=float(patience_s)).returncode
except subprocess.TimeoutExpired:
    code = -9
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as report:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], report)
"""


@dataclass(frozen=True)
class Usage:
    """What a command took."""

    code: int
    """Its exit code; below 0 the signal that ended it."""
    processor_s: float
    peak_bytes: int


def usage(command: Sequence[str], *, patience_s: float = 600.0, **options: Any) -> Usage:
    """Runs a command, and kills it when it takes longer than that; ``options`` are those of ``subprocess.run``."""
    starter = [sys.executable, "-I", "-S", "-c", _STARTER]
    with NamedTemporaryFile() as report:
        subprocess.run([*starter, report.name, str(patience_s), *command], check=True, **options)
        return Usage(*json.load(report))
