"""``iscsitrace explain``: what a name means that iscsitrace prints."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.output import writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.terminal import show


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from iscsitrace.diagnosis.registry import PROBLEMS
    from iscsitrace.show import explain

    begin = incomplete.lower()
    return [CompletionItem(name) for name in explain.names(PROBLEMS) if name.lower().startswith(begin)]


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace explain receive_window_small")
@click.argument("name", metavar="NAME", nargs=-1, required=True, shell_complete=_complete)
@writes_text
def command(name: tuple[str, ...]) -> None:
    """Show what a name means that iscsitrace prints.

    \b
    finding     loss               its condition, evidence and advice, and how to simulate a capture that has it
    rule        D18                what RFC 7143 asks, who can break it, what that leads to, and when it is judged
    counter     capture_gap        what it counts, and what to do about it
    table       cycles             what a row is, and its columns
    column      cycles.status_ns   its meaning, type and unit; without the table: in every table that has it
    plot        sequence           what it shows
    part        target service     of the time breakdown: which time it is
    event       tcp_reset          its severity and meaning
    login key   MaxBurstLength     its section of RFC 7143, its bounds and its default
    term        queue depth        its meaning
    heading     no status          of any table, with or without its unit
    """  # noqa: D301
    from iscsitrace.diagnosis.registry import PROBLEMS
    from iscsitrace.show import explain

    show(explain.page(" ".join(name), PROBLEMS))
