"""Whether a command is the whole process: only then it may give up rights for good. A test or a notebook is not."""

from __future__ import annotations

import click


def is_own_process() -> bool:
    """Whether the command was started as a process, not called by other Python code."""
    return bool(getattr(click.get_current_context().find_root().command, "is_process", False))
