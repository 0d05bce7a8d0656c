"""``iscsitrace explain``: the page of a finding."""

from __future__ import annotations

import click

from iscsitrace.cli.read.diagnose import FindingName
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.terminal import show


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace explain receive_window_small")
@click.argument("name", metavar="FINDING", type=FindingName())
def command(name: str) -> None:
    """Show what a finding means: its condition, evidence and advice, and how to simulate a capture that has it.

    FINDING is a name that diagnose shows, such as loss.
    """
    from iscsitrace.diagnosis.registry import PROBLEMS
    from iscsitrace.show import explain

    show(explain.sections(PROBLEMS[name]))
