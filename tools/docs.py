"""Writes the generated pages of docs/ from their sources: commands, schema/, the core's counters, problems, samples.

``python -m tools.docs`` writes them; ``python -m tools.docs --check`` only lists outdated files (exit code 1). Nothing
in the pages of ``PAGES`` is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import click

from iscsitrace.cli import COMMANDS, main
from iscsitrace.cli.sections import section_of
from iscsitrace.cli.traffic.settings_command import value_name
from iscsitrace.diagnosis.registry import FAMILIES, PROBLEMS
from iscsitrace.events import exchanges
from iscsitrace.findings.finding import Problem
from iscsitrace.findings.thresholds import WARNING
from iscsitrace.fit import gain
from iscsitrace.lab import fault_catalogue as catalogue
from iscsitrace.lab.faults.fault import FaultKind
from iscsitrace.measure import system_calls, workload
from iscsitrace.measure.workload import MIN_TASKS
from iscsitrace.plots import kinds
from iscsitrace.relate.jobs import runs, streams
from iscsitrace.show import conformance, explain
from iscsitrace.tables.schema import (
    CATEGORIES,
    DATASET_TABLES,
    DERIVED_CYCLE_COLUMNS,
    DERIVED_TABLES,
    ON_REQUEST,
    SCHEMA_VERSION,
    TABLES,
    TAP_TABLES,
    TAPPED_TABLES,
    Column,
)
from iscsitrace.wording import amounts
from iscsitrace.wording.event_kinds import EVENT_KINDS
from iscsitrace.wording.rules import counters, rules
from tools import man_page

ROOT = Path(__file__).resolve().parents[1]
MAN_PAGE = "docs/man/data/share/man/man1/iscsitrace.1"
"""Its folders are those of a wheel's data, which pip puts beside the programs."""
_HAVE_THRESHOLDS: tuple[ModuleType, ...] = (
    *FAMILIES,
    *(workload, gain, system_calls, runs, streams, exchanges),
)


_SETTINGS = """
The commands that make traffic have more settings than their help shows. `--set NAME=VALUE` sets any of them, and
`--settings FILE` reads them from a TOML file with lines such as `one-way-delay = "8ms"`. Every setting is also an
option of its name. `--print-settings` prints such a file, with the values that the rest of the command line sets; a
default is a comment there. The command line overrides the file, the file the defaults.
"""
_ARGUMENTS = {
    "CAPTURE...": "Captures to read as one, or `-` for standard input.",
    "[read|write] [CAPTURE]...": "Captures of the load, each read alone; or `read` or `write`, with the options below.",
    "A": "The slow capture, or `-` for standard input.",
    "B": "The fast capture; the order does not matter.",
    "INPUT": "An interface, a growing file, or `-` for standard input.",
    "URL...": "Logical units of targets; for `discover`, portals.",
    "SOURCE...": "Files, globs, folders or URLs, each as `NAME=SOURCE` with the name of its tap; or a `fleet.toml`.",
    "DATASET": "The folder that `fleet run` has written.",
    "QUERY": "A query, such as `SELECT count(*) FROM cycles`.",
    "NAME": "An experiment, or `FILE.toml`; for `explain`, any of the names above.",
    "[PAGE]": "A page of the list that the command prints without it.",
    "[SECTION]": "What the title of a section begins with.",
    "KIND": f"Kind of plot: {', '.join(f'`{name}`' for name in kinds.NAMES)}.",
    "operation": "What to do.",
    "OPERATION": "`read`, `write`, `mixed`, `socket-read` or `socket-write`.",
    "INITIATOR_TAP": "The TAP device on the initiator's side.",
    "TARGET_TAP": "The TAP device on the target's side.",
}


def commands() -> Iterator[click.Command]:
    """Every command with its full name, in the order of the help; the commands of a group follow the group."""
    context = click.Context(main, info_name="iscsitrace")
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no command {name}")
        command.name = name
        yield command
        inner_names: dict[click.Command, list[str]] = {}
        for inner_name, inner in getattr(command, "commands", {}).items():
            inner_names.setdefault(inner, []).append(inner_name)
        for inner, names in inner_names.items():
            inner.name = f"{name} {'|'.join(names)}"
            yield inner


def cli_page() -> str:
    """docs/cli.md."""
    lines = ["# Commands", "", _generated("the commands themselves"), "", *_prose(main.help)]
    for command in commands():
        lines += [f"## iscsitrace {command.name}", "", *_prose(command.help)]
        if command.epilog:
            lines += _example(command.epilog)
        for title, options in _sections(command):
            if not options:
                continue
            lines += [f"### {title}", ""] if title else []
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| {_spelling(option)} | {_cell(_meaning(option))} |" for option in options]
            lines.append("")
    return "\n".join([*lines, *_unseen_settings()])


def _sections(command: click.Command) -> Iterator[tuple[str, list[click.Parameter]]]:
    """The arguments and options of a command by section of the help; the first section has no title."""
    context = click.Context(command)
    found: dict[str, list[click.Parameter]] = {"": []}
    for each in command.params:
        if not isinstance(each, click.Option) or each.get_help_record(context):
            found.setdefault(section_of(each), []).append(each)
    yield from found.items()


def _unseen_settings() -> list[str]:
    """The settings that no help shows, by section, with the commands that take them."""
    found: dict[str, dict[str, tuple[click.Option, list[str]]]] = {}
    for command in commands():
        for name, setting in getattr(command, "unseen", {}).items():
            rows = found.setdefault(section_of(setting), {})
            rows.setdefault(name, (setting, []))[1].append(f"`{command.name}`")
    lines = ["## Settings", "", *_prose(_SETTINGS)]
    for title, rows in found.items():
        lines += [f"### {title}", "", "| setting | value | meaning | commands |", "|---|---|---|---|"]
        for name, (setting, users) in rows.items():
            value = value_name(setting, click.Context(click.Command(name))).strip("[]").replace("|", "\\|")
            lines.append(f"| `{name}` | {value} | {_cell(_meaning(setting))} | {_cell(', '.join(users))} |")
        lines.append("")
    return lines


def _prose(text: str | None) -> list[str]:
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        # click keeps line breaks in a paragraph that begins with a backspace
        kept = paragraph.removeprefix("\b\n").splitlines() if paragraph.startswith("\b") else [paragraph]
        lines += [*(" ".join(line.split()) for line in kept), ""]
    return lines


def _example(epilog: str) -> list[str]:
    return ["```sh", epilog.removeprefix("Example:").strip(), "```", ""]


def _spelling(parameter: click.Parameter) -> str:
    choices = getattr(parameter.type, "choices", None)
    if isinstance(parameter, click.Argument):
        return _cell(f"`{parameter.metavar or '|'.join(choices or ())}`")
    spelled = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return spelled
    value = parameter.metavar or ("|".join(choices) if choices else parameter.type.name.upper().removesuffix(" RANGE"))
    return f"{spelled} {_cell(value)}"


def _meaning(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return _ARGUMENTS[parameter.metavar or parameter.human_readable_name.lower()]
    text = getattr(parameter, "help", None) or ""
    if not getattr(parameter, "show_default", None):
        return text
    values = parameter.default if isinstance(parameter.default, tuple) else (parameter.default,)
    return f"{text} (default: {', '.join(str(value) for value in values)})"


def tables_page() -> str:
    """docs/tables.md."""
    lines = ["# Tables", "", _generated("`iscsitrace/tables/schema/`"), ""]
    lines += _prose(
        f"Schema number {SCHEMA_VERSION}. Times are int64 nanoseconds since 1970 (UTC), from the capture. A "
        "nullable column is null where its value is unknown or does not exist: masked in Python, empty in CSV. "
        "A `category` is one of the words listed at the end. Frame numbers start at 1 and equal Wireshark's. "
        "`method N` is a section of [method.md](method.md)."
    )
    for name, table in TABLES.items():
        filled = " Filled only on request." if name in ON_REQUEST else ""
        lines += [f"## {name}", "", f"A row is {table.row}.{filled}", "", *_columns(table.columns)]
        if name == "cycles":
            lines += ["Computed from these on use, and always exported:", "", *_columns(DERIVED_CYCLE_COLUMNS)]
    for name, table in DERIVED_TABLES.items():
        lines += [f"## {name}", "", f"A row is {table.row}. Computed on request.", "", *_columns(table.columns)]
        if name == "events":
            lines += [*_prose("The kinds, with their severity, and when it is another one:"), *_kinds_of_events()]
    for name, table in TAPPED_TABLES.items():
        lines += [f"## {name}", "", f"A row is {table.row}. Of several taps only.", "", *_columns(table.columns)]
    for name, table in DATASET_TABLES.items():
        if name not in DERIVED_TABLES:
            lines += [f"## {name}", "", f"A row is {table.row}. In a dataset only.", "", *_columns(table.columns)]
    for name, table in TAP_TABLES.items():
        lines += [f"## {name}", "", f"A row is {table.row}. Of two captures.", "", *_columns(table.columns)]
    lines += ["## Categories", "", "| category | words |", "|---|---|"]
    for name, words in CATEGORIES.items():
        listed = ", ".join(f"`{word}`" for word in words) or "the SCSI operation: `read`, `write`, `inquiry` ..."
        lines.append(f"| {name} | {listed} |")
    return "\n".join([*lines, ""])


def counters_page() -> str:
    """docs/counters.md."""
    lines = ["# Counters", "", _generated("the core's counters"), ""]
    lines += ["Every irregularity of an input has one of these counters; a counter of zero has no row.", ""]
    lines += ["| counter | severity | what is counted | advice |", "|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {CATEGORIES['severity'][each.severity]} | {_cell(each.meaning)} | {_cell(each.advice)} |"
        for each in counters().values()
    ]
    return "\n".join([*lines, ""])


def samples_page() -> str:
    """docs/samples.md: each sample with the first paragraph and the command of its README."""
    lines = ["# Sample captures", "", _generated("`samples/*/README.md`"), ""]
    lines += ["Each has one thing to see, and `truth.json`: what its maker knows. A README has the whole command.", ""]
    lines += ["| sample | what it shows | try |", "|---|---|---|"]
    for path in sorted((ROOT / "samples").glob("*/README.md")):
        title, text, *_ = path.read_text().removeprefix("# ").split("\n\n")
        command = path.read_text().split("```sh\niscsitrace ")[1].split()[0]
        name = path.parent.name
        lines.append(
            f"| [{name}](../samples/{name}/README.md) | **{title}.** {_cell(' '.join(text.split()))} | `{command}` |"
        )
    return "\n".join([*lines, ""])


_FAULTS = """
`--fault NAME[,DETAIL=VALUE...]` of `simulate`, `lab run`, `target` and `initiator` makes a fault of this list, with the
details that differ from those shown ([lab.md](lab.md#faults-on-demand)). `--list-faults` prints those of a command.
"""


def faults_page() -> str:
    """docs/faults.md."""
    lines = ["# Faults", "", _generated("`iscsitrace/lab/fault_catalogue.py`"), "", *_prose(_FAULTS)]
    parts: dict[str, list[FaultKind]] = {"What happens to a run": [], "Rules of RFC 7143 that a side breaks": []}
    for kind in catalogue.KINDS.values():
        parts[[*parts][kind.name in rules()]].append(kind)
    for title, found in parts.items():
        lines += [f"## {title}", "", "| fault | what it does | details | in |", "|---|---|---|---|"]
        for kind in found:
            details = ", ".join(f"`{name}={detail.default}`" for name, detail in kind.details.items())
            where = ", ".join(catalogue.worlds_of(kind.name))
            lines.append(f"| `{kind.name}` | {kind.meaning} | {details} | {where} |")
        lines.append("")
    return "\n".join(lines)


def _kinds_of_events() -> list[str]:
    """The kinds of the table ``events``."""
    lines = ["| kind | severity | meaning |", "|---|---|---|"]
    for each in EVENT_KINDS:
        other = f"; {each.may_differ}" if each.may_differ else ""
        lines.append(f"| `{each.name}` | {each.severity}{other} | {_cell(each.meaning)} |")
    return [*lines, ""]


_WARNING, _MODEL = amounts.percent(WARNING), amounts.percent(gain.MODEL)
_DIAGNOSIS = f"""
`iscsitrace diagnose` starts with a headline for each session, what to do about it, and where the time went. With `-v`
it shows every finding with its evidence and all advice, and the time breakdown as a table. `--short` prints one line
per session.

**Headline.** It begins with the verdict (`verdict` in JSON):

- `healthy`: nothing is wrong. The headline names the largest part of the time, and there is nothing to do.
- `limited`: I/O is as fast as the path and the load let it be. The headline names the limit, the first advice what
  would change it.
- `problem`: something is wrong. `--fail-on any` fails for this verdict alone.
- `unknown`: the capture cannot tell, because it is too poor or fewer than {MIN_TASKS} commands moved data, or because
  nothing was read or written. Where fewer moved data and a fifth of the stream bytes is not decoded, it is too poor.

Lost data come before all else, what broke before what is slow, and what is wrong before a limit. A rule of RFC 7143
that was broken without a consequence comes behind what costs time. Of several problems the one leads that explains
the limiter, else the one that costs most. Of several that explain the same part, it is the most specific one of
similar share. Losses and small congestion windows are taken as consequences of a full line, or of a queue that takes
half of each round trip, which then leads: but not losses for which a retransmission time-out passed without an answer,
as in a black-out (a timer retransmitted, or a tail loss probe was not answered for 200 ms), nor losses of commands or
statuses where the data go the other way: that direction has no queue.

**Time breakdown.** Every nanosecond from the first command to the last status is attributed to one part
([method.md](method.md), section 4). Percentages refer to the **I/O time**: the time with reads and writes in flight,
and the short pauses between them where they follow one another steadily. The device scan, and the time in which a
program issues no I/O, are not part of it. The **limiter** is `transfer` where it takes more than half of the I/O time,
else the largest other part. The idle fraction is all I/O time other than `transfer`.

**Findings.** All are listed below, by rank: what broke, problems, limits, notes. Each finding has a severity (`info`: a
limit, a note, or less than {_WARNING} of the I/O time; `warning`: more; `error`: a failure; `data_loss`: missing from
the capture), its share of the I/O time (of a failure the time lost), a few frames that show it, a display filter, and
advice. Advice names the settings of open-iscsi (`node.`), LIO (`targetcli`), sysctl (`net.`) and Linux's block layer.
In parentheses it says what else the change touches. Advice is given only where its condition holds. Shares of findings
can overlap, since some time can be saved in more than one way: each share is the most that a fix can save.

**Gains.** The throughput factor that the model ([method.md](method.md), sections 6 and 8) predicts for an advice, with
one change to the measured session. Each gain has a low and a high, shown where they differ by more than a tenth: the
packets do not show, for example, whether a target serves commands in parallel or one after another. `--json` has all of
them as `gains` and the first as `gain`. There are none where the model is more than {_MODEL} away from the measured
pace, where reads and writes are mixed, and for fixes that the model does not cover. No gain is smaller than the error
of the model, larger than the parts that the change can take away allow, or above {gain.GAIN_MAX:.0f}. For more
commands in flight there is none where one is in flight: that shows no application that has others to issue. The
report's table of gains has the same numbers.

A remedy that several findings share is printed once; the others refer to it ("See loss."). In `--json` each has all.

Where the sizes or times of the commands show which **system calls** the kernel split, block_size_small reports it, and
`--json` has it as `system_call` of the session: its size, its pieces and its count. The pieces of one call are commands
of the largest size and a rest, repeated; or sequential commands that are issued together and wait for each other.
"""


def diagnosis_page() -> str:
    """docs/diagnosis.md."""
    lines = ["# Diagnosis", "", _generated("`iscsitrace/findings/`"), *_DIAGNOSIS.splitlines(), ""]
    lines += ["## Findings", ""]
    for problem in sorted(PROBLEMS.values(), key=lambda each: ([*explain.RANKS].index(each.rank), each.name)):
        lines += _problem(problem)
    lines += ["## Thresholds", "", "| threshold | value | meaning and reason |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {_cell(reason)} |" for name, value, reason in thresholds()]
    return "\n".join([*lines, ""])


def _problem(problem: Problem) -> list[str]:
    return [
        *(f"### {problem.name}", "", problem.meaning, ""),
        *(f"- **{name}**: {text}" for name, text in explain.facts(problem)),
        "- **Advice**:",
        *(f"    - {text}" for text in explain.advice(problem)),
        "",
    ]


_CONFORMANCE = """
`iscsitrace conformance CAPTURE` shows which side breaks which rule of RFC 7143, the worst first: the section, what was
done, how often, and frames. `iscsitrace explain D18` prints a rule. The table `violations` has the rows; a finding
([protocol_violation](diagnosis.md#protocol_violation)) tells what followed.

A rule is judged only where the capture is sure. Behind a hole in a stream judging begins anew: then no number and no
task from before counts. Copies by TCP count once. What could not be judged, and why, is part of the output, and is
`not_judged` in `--json`.

**Severity.** `error`: it ends a command or a connection, stops a session, or data may be wrong. `warning`: a peer that
follows the RFC may fail. `info`: it does no harm that packets show.

**Not judged.** Whether the portals that SendTargets lists (section 13.8) can be reached: the RFC does not ask that
every initiator reaches every portal, and no PDU tells whether the target or the network is at fault. The finding
`portal_unreachable` says it, by SYNs and ARP requests without an answer. `watch` does not judge D21: a right digest
may still come.

**Names.** S: numbers of commands and statuses. T: tags and LUNs. D: data. M: messages beside commands. L: login and
text. A row of `violations` is one violation; a connection has at most 16 rows of a rule and side, and the last of them
counts the others.
"""


def conformance_page() -> str:
    """docs/conformance.md."""
    source = "`core/trace/src/conformance/rules.rs` and `iscsitrace/wording/rule_notes.py`"
    lines = ["# Conformance to RFC 7143", "", _generated(source), *_CONFORMANCE.splitlines(), ""]
    lines += ["| rule | section | broken by | severity | |", "|---|---|---|---|---|"]
    lines += [
        f"| [{rule.name}](#{rule.name.lower()}) | {rule.sections} | {', '.join(rule.sides)} | {rule.severity} | "
        f"{rule.sentence} |"
        for rule in rules().values()
    ]
    for rule in rules().values():
        lines += ["", f"## {rule.name}", "", rule.sentence, ""]
        lines += [f"- **{name}**: {text}" for name, text in conformance.rule_facts(rule)]
    return "\n".join([*lines, ""])


def thresholds() -> Iterator[tuple[str, str, str]]:
    """Every threshold with its value and reason, from the source, because Python keeps no docstrings of constants."""
    for module in _HAVE_THRESHOLDS:
        body = ast.parse(inspect.getsource(module)).body
        for constant, text in pairwise(body):
            if not (isinstance(constant, ast.AnnAssign) and isinstance(constant.target, ast.Name)):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                name, value = constant.target.id, getattr(module, constant.target.id)
                if not name.startswith("_") and all(isinstance(each, int | float) for each in _several(value)):
                    yield name, _spelled(name, value), " ".join(str(text.value.value).split())


def _several(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _spelled(name: str, value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return ", ".join(_spelled(name, each) for each in value)
    return f"{value / 1_000_000:g} ms" if name.endswith("_NS") else f"{value:g}" if value < 10 else f"{value:_}"


def _columns(columns: tuple[Column, ...]) -> list[str]:
    lines = ["| column | type | unit | null | meaning | source |", "|---|---|---|---|---|---|"]
    for column in columns:
        dtype = column.dtype.replace("category:", "category ")
        can_be_null = "yes" if column.nullable else ""
        cells = (f"`{column.name}`", dtype, column.unit, can_be_null, _cell(column.meaning), column.source)
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _generated(source: str) -> str:
    return f"Generated from {source} by `python -m tools.docs`; do not edit."


PAGES = {
    "docs/cli.md": cli_page,
    "docs/tables.md": tables_page,
    MAN_PAGE: lambda: "\n".join([*man_page.lines(commands()), ""]),
    "docs/counters.md": counters_page,
    "docs/samples.md": samples_page,
    "docs/faults.md": faults_page,
    "docs/diagnosis.md": diagnosis_page,
    "docs/conformance.md": conformance_page,
}


def run(is_check: bool) -> int:
    """Writes the pages, or only compares them; returns the exit code."""
    stale = [name for name, page in PAGES.items() if not _has(ROOT / name, page())]
    for name in stale:
        if is_check:
            print(f"{name} is out of date: python -m tools.docs")
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(PAGES[name]())
            print(f"{name} written")
    return 1 if is_check and stale else 0


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(run(is_check="--check" in sys.argv[1:]))
