"""Names that say which process made a thing, so that what a killed one left behind can be told from what is in use."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OURS = re.compile(r"iscsitrace-(\d+)-(\d+)-")


def prefix() -> str:
    """How names of this process begin: process id, and its start in clock ticks, which tells it from a later one."""
    process_id = os.getpid()
    return f"iscsitrace-{process_id}-{start_ticks(process_id)}-"


def is_left_over(name: str) -> bool:
    """The process that made this is gone; False for names that are not ours."""
    match = _OURS.match(name)
    return match is not None and start_ticks(int(match[1])) != int(match[2])


def start_ticks(process_id: int) -> int | None:
    """When a process was started, by the kernel's count; None when there is none of that number, or it has ended."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name, in parentheses, may hold anything
    words = status.rpartition(")")[2].split()
    is_dead = words[0] in {"Z", "X"}
    return None if is_dead else int(words[19])
