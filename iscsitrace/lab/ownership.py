"""Names that contain the creating process, to distinguish leftovers of a killed process from things in use."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OURS = re.compile(r"iscsitrace-(\d+)-(\d+)-")


def prefix() -> str:
    """The prefix of this process's names: process id and start time in clock ticks, since process ids are reused."""
    process_id = os.getpid()
    return f"iscsitrace-{process_id}-{start_ticks(process_id)}-"


def is_left_over(name: str) -> bool:
    """Whether the process that created this is gone. False for other names."""
    match = _OURS.match(name)
    return match is not None and start_ticks(int(match[1])) != int(match[2])


def start_ticks(process_id: int) -> int | None:
    """The start time of a process in clock ticks; None if it does not exist or has ended."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name in parentheses may contain any character
    words = status.rpartition(")")[2].split()
    is_dead = words[0] in {"Z", "X"}
    return None if is_dead else int(words[19])
