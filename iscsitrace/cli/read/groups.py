"""Several captures: what a command says of each group that belongs together, and its exit code for them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import EXIT_FINDING, EXIT_NO_ISCSI, CaptureInput
from iscsitrace.errors import CaptureUnreadable
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_heading, show_json

if TYPE_CHECKING:
    from iscsitrace.show.document import Section


@dataclass(frozen=True)
class GroupResult:
    """How a command ended for captures that belong together."""

    sources: tuple[str, ...]
    exit_code: int
    document: dict[str, Any] | None = None
    brief: Any = None
    """What the overview shows of them; None without iSCSI, or where they could not be read."""
    sections: Iterable[Section] = ()
    error: str = ""
    """Why they could not be read."""


def tell(
    parts: Sequence[CaptureInput],
    made: Callable[[CaptureInput], GroupResult],
    overview: Callable[[Sequence[tuple[Sequence[str], Any, str]]], Section],
    *,
    is_json: bool,
    many: int,
) -> None:
    """Prints what ``made`` finds in each group, from ``many`` groups on below a line on each, and exits with the code
    of them all. What cannot be read alone ends the command.
    """
    from iscsitrace.tables.schema import SCHEMA_VERSION

    ends = [_end_of(part, made, is_json=is_json, is_alone=len(parts) == 1) for part in parts]
    if is_json:
        documents = [each.document for each in ends if each.document is not None]
        show_json(documents[0] if len(parts) == 1 else {"schema": SCHEMA_VERSION, "groups": documents})
    else:
        if len(ends) >= many:
            show([overview([(each.sources, each.brief, each.error) for each in ends])])
        for each in ends:
            if len(ends) > 1:
                show_heading(f"Captures: {', '.join(each.sources)}")
            if each.error:
                say(f"iscsitrace: {each.error}", err=True)
            show(each.sections)
    # a finding to fail on comes first; captures without iSCSI count where all are
    codes = {each.exit_code for each in ends}
    code = next((each for each in (EXIT_FINDING, CaptureUnreadable.exit_code, 0) if each in codes), EXIT_NO_ISCSI)
    if code:
        raise click.exceptions.Exit(code)


def _end_of(
    part: CaptureInput, made: Callable[[CaptureInput], GroupResult], *, is_json: bool, is_alone: bool
) -> GroupResult:
    try:
        return made(part)
    except CaptureUnreadable as error:
        if is_alone:
            raise
        if is_json:
            say(f"iscsitrace: {error}", err=True)
        return GroupResult(part.sources, error.exit_code, error=str(error))
