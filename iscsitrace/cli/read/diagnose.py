"""``iscsitrace diagnose``: the limiter of each session, the evidence, and advice."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.options import SESSION_ATTRIBUTES, CaptureInput, as_json, by, takes_captures
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import Quantity
from iscsitrace.findings import NEEDED
from iscsitrace.show.terminal import show, show_json

EXIT_FINDING = 1
TOP = 20
"""Sessions in full by default: a few screens."""
_ANY = "any"
_LATER = ("iscsitrace.diagnosis.examination", "iscsitrace.show.diagnose")


class FindingName(Quantity):
    """The name of a finding, or one of ``others``. The registry of names needs NumPy: it is loaded only to check or
    complete one.
    """

    name = "finding"

    def __init__(self, *others: str) -> None:
        self._others = others

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a usage error for another one."""
        if value not in self._names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, self._names()))}.", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]

    def _names(self) -> tuple[str, ...]:
        from iscsitrace.diagnosis.registry import PROBLEMS

        return (*PROBLEMS, *self._others)


@click.command(
    cls=SectionedCommand, epilog="Example:  iscsitrace diagnose --fail-on loss --fail-on digest_errors capture.pcapng"
)
@takes_captures
@as_json
@click.option(
    "--fail-on",
    multiple=True,
    type=FindingName(_ANY),
    metavar="FINDING",
    help="Exit with 1 if this finding is present (any: if the verdict is problem); iscsitrace explain NAME describes "
    "it; repeatable.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=TOP,
    show_default=True,
    metavar="COUNT",
    help="Show only the COUNT worst sessions in full where there are more: what broke, then by time lost. "
    "With --by: the COUNT worst rows.",
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Show this session in full, and no other; repeatable.",
)
@by(SESSION_ATTRIBUTES, "the verdicts of all sessions by this, the worst first, instead of sessions in full")
@click.option("--short", "is_short", is_flag=True, help="One line per session: the verdict and its sentence.")
@click.option(
    "-v",
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Show every finding with its evidence and all advice, the time breakdown as a table, and every connection.",
)
@writes_text
def command(
    capture_input: CaptureInput,
    is_json: bool,
    fail_on: tuple[str, ...],
    top: int,
    sessions: tuple[int, ...],
    names: tuple[str, ...],
    is_short: bool,
    is_verbose: bool,
) -> None:
    """Show whether each session is healthy, limited or has a problem, where its time went, and what to do.

    Healthy: nothing is wrong. Limited: I/O is as fast as the path and the load let it be. Problem: something is wrong.
    Percentages are of the I/O time: reads and writes in flight, and the short pauses between them. It is split into
    parts without overlap. Findings can overlap: each share is the most that its fix can save.

    Of many sessions the worst are shown in full, and the others as a table by headline. The JSON document has them all.
    """
    trace = capture_input.read(NEEDED, loading=_LATER)
    from iscsitrace.diagnosis.examination import examine
    from iscsitrace.show import diagnose
    from iscsitrace.show.shown import Choice, Shown

    diagnosis = examine(trace.table, tap_of=trace.tap_of)
    failed = sorted({*(diagnosis.problems if _ANY in fail_on else ()), *(diagnosis.found & set(fail_on))})
    if is_json:
        document = diagnose.as_dict(trace, diagnosis, names, sessions)
        show_json(document | {"fail_on": list(fail_on), "failed": failed})
    elif names:
        show(diagnose.sections_by(trace, diagnosis, names, Choice(top, sessions)))
    elif is_short:
        show(diagnose.lines_of_sessions(diagnosis, Shown(trace, diagnosis, Choice(top, sessions))))
    else:
        show(diagnose.sections(trace, diagnosis, Choice(top, sessions, is_verbose=is_verbose)))
    if failed:
        raise click.exceptions.Exit(EXIT_FINDING)
