"""What a process costs: elapsed time, CPU time, peak memory; and the machine that it ran on.

Only the standard library is imported here and by benches that measure memory: the peak memory of a child is at least
that of its parent when it starts.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

FOLDER = Path(__file__).parents[1] / "build" / "bench"
"""Generated captures and other results of benches."""


@dataclass(frozen=True)
class Cost:
    """What one process took."""

    elapsed_s: float
    cpu_s: float
    peak_bytes: int
    output: bytes = b""


class CommandFailed(Exception):
    """A command that ended with another exit code than 0, or was killed at its time limit."""


def cost(
    command: list[str],
    *,
    environment: Mapping[str, str] | None = None,
    has_output: bool = False,
    limit_s: float | None = None,
) -> Cost:
    """Runs a command. Its output is discarded, unless asked for; its errors are shown.

    Raises CommandFailed, and FileNotFoundError if there is no such program.
    """
    stdout = subprocess.PIPE if has_output else subprocess.DEVNULL
    started_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=stdout, env=environment)
    killer = Timer(limit_s, process.kill) if limit_s else None
    if killer:
        killer.start()
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    elapsed_s = time.perf_counter() - started_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if killer:
        killer.cancel()
    if process.stdout:
        process.stdout.close()
    if process.returncode:
        raise CommandFailed(f"exit code {process.returncode}: {' '.join(command)}")
    return Cost(elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output)


def machine() -> str:
    """Description of this machine: CPU, cores, memory, system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = models[0] if models else model
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{model}, {os.cpu_count()} cores, {memory_bytes / 1e9:.0f} GB, {platform.system()} {platform.release()}"


def used() -> tuple[int, float, int]:
    """Number, CPU time in s and peak memory in bytes of this process."""
    [peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return os.getpid(), time.process_time(), int(peak) * 1024
