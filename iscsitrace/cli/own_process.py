"""Whether a command is the whole process: only then it may give up rights for good. A test or a notebook is not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

_CONFINED: Final = "iscsitrace.is_confined"
_WRITTEN: Final = "iscsitrace.written"


def is_own_process() -> bool:
    """Whether the command was started as a process, not called by other Python code."""
    return bool(getattr(click.get_current_context().find_root().command, "is_process", False))


def may_write(folder: Path) -> None:
    """The command goes on to write beneath this folder after :func:`confine`."""
    click.get_current_context().meta.setdefault(_WRITTEN, []).append(folder)


def confine(written: Iterable[Path]) -> None:
    """Gives up what a command does not need that reads captures and writes beneath these paths: capabilities, programs,
    other folders, TCP. Only the first call counts, and only in a process of its own; an old kernel has less to refuse.
    """
    known = click.get_current_context().meta
    if is_own_process() and not known.get(_CONFINED):
        known[_CONFINED] = True
        from iscsitrace.recording import capture

        capture.confine([*written, *known.get(_WRITTEN, ())])
