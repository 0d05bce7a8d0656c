"""``iscsitrace diagnose``: the limiter of each session, the evidence, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from iscsitrace.cli.options import (
    EXIT_FINDING,
    EXIT_NO_ISCSI,
    SESSION_ATTRIBUTES,
    CaptureInput,
    as_json,
    by,
    takes_captures,
)
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.read import groups
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import Quantity
from iscsitrace.findings import NEEDED

if TYPE_CHECKING:
    from iscsitrace.diagnosis.headline import Headline
    from iscsitrace.show.document import Section

TOP = 20
"""Sessions in full by default: a few screens."""
_MANY = 3
"""Groups from which on there is an overview of them."""
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
            from iscsitrace.wording.sentences import refusal

            kind = f"neither {' nor '.join((*self._others, 'a finding'))}" if self._others else "not a finding"
            self.fail(refusal(value, kind, self._names(), "iscsitrace docs diagnosis"), param, ctx)
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
    help="Exit with 1 if this finding is present (any: if a session, or a connection of one, has a problem); "
    "iscsitrace explain NAME describes it; repeatable.",
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
    help="Show every finding with its evidence and advice, the time breakdown as a table, and every connection.",
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
    parts without overlap. Findings can overlap: each share is the most that its fix can save. Times are seconds after
    the first packet, whose date is in the first line; `events --absolute` shows dates.

    Several captures are grouped by content: parts of one capture and taps of the same traffic are diagnosed together,
    unrelated captures each by itself, many below a table of their headlines (in JSON: groups, a document for each).

    Of many sessions the worst are shown in full, and the others as a table by headline. The JSON document has them all.
    """
    asked = _DiagnoseOptions(fail_on, top, sessions, names, is_short=is_short, is_verbose=is_verbose)
    made = partial(_diagnosed, asked=asked, is_json=is_json)
    groups.tell(capture_input.groups(NEEDED), made, _overview, is_json=is_json, many=_MANY)


@dataclass(frozen=True)
class _DiagnoseOptions:
    """What a person asks to see."""

    fail_on: tuple[str, ...]
    top: int
    sessions: tuple[int, ...]
    names: tuple[str, ...]
    is_short: bool
    is_verbose: bool


def _overview(ends: Sequence[tuple[Sequence[str], Headline | None, str]]) -> Section:
    from iscsitrace.show import diagnose

    return diagnose.overview(ends)


def _diagnosed(part: CaptureInput, asked: _DiagnoseOptions, *, is_json: bool) -> groups.GroupResult:
    trace = part.read(NEEDED, loading=_LATER)
    from iscsitrace.diagnosis.examination import examine_trace
    from iscsitrace.show import diagnose
    from iscsitrace.show.shown import Shown, ShowOptions

    diagnosis = examine_trace(trace)
    wanted = set(asked.fail_on)
    failed = sorted({*(diagnosis.problems if _ANY in wanted else ()), *(diagnosis.found & wanted)})
    document: dict[str, Any] | None = None
    sections: Iterator[Section] = iter(())
    choice = ShowOptions(asked.top, asked.sessions, is_verbose=asked.is_verbose)
    if is_json:
        document = diagnose.as_dict(trace, diagnosis, asked.names, asked.sessions)
        document |= {"fail_on": list(asked.fail_on), "failed": failed}
    elif asked.names:
        sections = diagnose.sections_by(trace, diagnosis, asked.names, choice)
    elif asked.is_short:
        sections = diagnose.lines_of_sessions(diagnosis, Shown(trace, diagnosis, choice))
    else:
        sections = diagnose.sections(trace, diagnosis, choice)
    code = EXIT_FINDING if failed else 0 if part.has_iscsi(trace) else EXIT_NO_ISCSI
    return groups.GroupResult(part.sources, code, document, diagnosis.headline, sections)
