"""``iscsitrace explain``: the page of a finding, or of a rule of RFC 7143."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.read.conformance import RuleName
from iscsitrace.cli.read.diagnose import FindingName
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show.terminal import show


class _Name(FindingName):
    """The name of a finding, or of a rule in capitals or not."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from iscsitrace.wording.rules import rules

        return value.upper() if value.upper() in rules() else super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        findings = super().shell_complete(ctx, param, incomplete)
        return [*findings, *RuleName().shell_complete(ctx, param, incomplete)]


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace explain receive_window_small")
@click.argument("name", metavar="FINDING|RULE", type=_Name())
def command(name: str) -> None:
    """Show what a finding means: its condition, evidence and advice, and how to simulate a capture that has it.

    Of a rule that conformance shows, such as D18: what it says, who can break it, what that leads to, and when it is
    judged.
    """
    from iscsitrace.wording.rules import rules

    if name in rules():
        from iscsitrace.show import conformance

        show(conformance.rule_page(rules()[name]))
        return
    from iscsitrace.diagnosis.registry import PROBLEMS
    from iscsitrace.show import explain

    show(explain.sections(PROBLEMS[name]))
