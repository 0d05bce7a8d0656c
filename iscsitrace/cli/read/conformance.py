"""``iscsitrace conformance``: who breaks RFC 7143, by rule."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.options import CaptureInput, as_rows, takes_captures
from iscsitrace.cli.output import print_csv, writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import Quantity
from iscsitrace.show.terminal import show, show_json
from iscsitrace.wording.rules import SEVERITIES

EXIT_VIOLATION: Final = 1
SIDES: Final = ("initiator", "target")


class RuleName(Quantity):
    """The name of a rule. The names are the core's: it is loaded only to check or complete one."""

    name = "rule"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, in capitals; a usage error for another one."""
        from iscsitrace.wording.rules import rules

        if value.upper() not in rules():
            from iscsitrace.wording.sentences import refusal

            self.fail(refusal(value, "not a rule", rules(), "iscsitrace docs conformance"), param, ctx)
        return value.upper()

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        from iscsitrace.wording.rules import rules

        return [CompletionItem(name) for name in rules() if name.startswith(incomplete.upper())]


@click.command(
    cls=SectionedCommand, epilog="Example:  iscsitrace conformance --side target --fail-on error capture.pcapng"
)
@takes_captures
@as_rows("violations")
@click.option(
    "--rule",
    "names",
    multiple=True,
    type=RuleName(),
    metavar="RULE",
    help="Only this rule (D18; `iscsitrace docs conformance` lists them); repeatable.",
)
@click.option("--side", type=click.Choice(SIDES), help="Only what this side breaks.")
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    help="Exit with 1 when a violation of this severity or a worse one is shown.",
)
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show each violation in a line of its own, too.")
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    is_csv: bool,
    names: tuple[str, ...],
    side: str | None,
    fail_on: str | None,
    is_verbose: bool,
) -> None:
    """Show which side breaks which rule of RFC 7143, the worst first, with the section, what was done, and frames.

    A rule is judged only where the capture is sure: what could not be judged, and why, is at the end. explain RULE
    tells of a rule. A violation of severity error ends a command or a connection, stops a session, or puts data at
    risk; info does no harm that packets show.
    """
    trace = capture_input.read(["violations"], loading=["iscsitrace.show.conformance"])
    from iscsitrace.show import conformance

    found = conformance.found(trace, names, side)
    failed = found.reaching(fail_on) if fail_on else []
    if is_csv:
        print_csv(found.rows)
    elif is_json:
        show_json(conformance.as_dict(trace, found) | {"fail_on": fail_on, "failed": failed})
    else:
        show(conformance.sections(trace, found, is_verbose=is_verbose))
    if failed:
        raise click.exceptions.Exit(EXIT_VIOLATION)
    capture_input.end(trace)
