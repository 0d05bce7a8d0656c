"""Writes the generated pages of docs/ from what they document: commands, schema/, the core's counters, diseases.

``python -m tools.docs`` writes, ``python -m tools.docs --check`` only says which file is out of date (exit code 1).
Nothing in cli.md, tables.md and diagnosis.md is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import click

from iscsitrace.analysis.findings.diseases import DISEASES
from iscsitrace.cli import COMMANDS, main
from iscsitrace.tables.schema import (
    CATEGORIES,
    DERIVED_CYCLE_COLUMNS,
    DERIVED_TABLES,
    ON_REQUEST,
    SCHEMA_VERSION,
    TABLES,
    Column,
)

ROOT = Path(__file__).resolve().parents[1]
_COUNTERS_SOURCE = ROOT / "core" / "trace" / "src" / "counters.rs"
_THRESHOLDS_SOURCE = ROOT / "iscsitrace" / "analysis" / "findings" / "thresholds.py"
_COUNTER = re.compile(r'^\s*\w+, "(\w+)", (\w+),\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)";', re.MULTILINE)


_ARGUMENTS = {
    "CAPTURE...": "Captures to read as one, or `-` for standard input.",
    "A": "The slow capture, or `-` for standard input.",
    "B": "The fast one; which is which does not matter.",
    "INPUT": "An interface, a file that grows, or `-` for standard input.",
    "URL...": "Logical units of targets; for `discover`, their portals.",
    "NAME": "An experiment, or `FILE.toml`.",
    "kind": "What to draw.",
    "mode": "What to do.",
    "operation": "What to do.",
    "INITIATOR_TAP": "The TAP device on the initiator's side.",
    "TARGET_TAP": "The TAP device on the target's side.",
}


@dataclass(frozen=True)
class Counter:
    """One counter as the core declares it."""

    name: str
    severity: str
    meaning: str
    advice: str


def counters() -> list[Counter]:
    """Every counter in the order of the core's table, which is Rust source read as text."""
    found = _COUNTER.findall(_COUNTERS_SOURCE.read_text())
    return [
        Counter(name, re.sub(r"(?<!^)([A-Z])", r"_\1", severity).lower(), _unquoted(meaning), _unquoted(advice))
        for name, severity, meaning, advice in found
    ]


def _unquoted(text: str) -> str:
    return text.replace('\\"', '"').replace("\\\\", "\\")


def commands() -> Iterator[click.Command]:
    """Every command in the order of the help, each with its full name; those of a group after the group."""
    context = click.Context(main, info_name="iscsitrace")
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no command {name}")
        command.name = name
        yield command
        for inner_name, inner in getattr(command, "commands", {}).items():
            inner.name = f"{name} {inner_name}"
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
    return "\n".join(lines)


def _sections(command: click.Command) -> Iterator[tuple[str, list[click.Parameter]]]:
    """The options of a command by the sections of its help; the first have no title."""
    sections = getattr(command, "sections", ())
    in_sections = {id(option) for section in sections for option in section.options}
    yield "", [parameter for parameter in command.params if id(parameter) not in in_sections]
    for section in sections:
        yield section.title, list(section.options)


def _prose(text: str | None) -> list[str]:
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        # click keeps the lines of a paragraph that begins with a backspace
        kept = paragraph.removeprefix("\b\n").splitlines() if paragraph.startswith("\b") else [paragraph]
        lines += [*(" ".join(line.split()) for line in kept), ""]
    return lines


def _example(epilog: str) -> list[str]:
    return ["```sh", epilog.removeprefix("Example:").strip(), "```", ""]


def _spelling(parameter: click.Parameter) -> str:
    choices = getattr(parameter.type, "choices", None)
    if isinstance(parameter, click.Argument):
        return f"`{parameter.metavar or '|'.join(choices or ())}`".replace("|", "\\|")
    spelled = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return spelled
    value = parameter.metavar or (
        "\\|".join(choices) if choices else parameter.type.name.upper().removesuffix(" RANGE")
    )
    return f"{spelled} {value}"


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
    lines = ["# Tables", "", _generated("`iscsitrace/tables/schema/` and the core's counters"), ""]
    lines += _prose(
        f"Schema number {SCHEMA_VERSION}. Times are int64 nanoseconds since 1970 (UTC) as the capture stamped them. A "
        "nullable column is null where its value is unknown or does not exist: masked in Python, empty in CSV. "
        "A `category` is a word out of those listed at the end. Frame numbers count from 1 and are Wireshark's."
    )
    for name, table in TABLES.items():
        asked = " Filled only when asked for." if name in ON_REQUEST else ""
        lines += [f"## {name}", "", f"A row is {table.row}.{asked}", "", *_columns(table.columns)]
        if name == "cycles":
            lines += ["Computed from these when asked for, and always exported:", "", *_columns(DERIVED_CYCLE_COLUMNS)]
    for name, table in DERIVED_TABLES.items():
        lines += [f"## {name}", "", f"A row is {table.row}. Computed when asked for.", "", *_columns(table.columns)]
    lines += ["## Categories", "", "| category | words |", "|---|---|"]
    for name, words in CATEGORIES.items():
        listed = ", ".join(f"`{word}`" for word in words) or "the SCSI operation: `read`, `write`, `inquiry` ..."
        lines.append(f"| {name} | {listed} |")
    lines += ["", "## Counters", "", "Every oddity of an input is one of these; a counter of zero has no row.", ""]
    lines += ["| counter | severity | one count stands for | advice |", "|---|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.severity} | {_cell(each.meaning)} | {_cell(each.advice)} |" for each in counters()
    ]
    return "\n".join([*lines, ""])


_DIAGNOSIS = """
What `iscsitrace diagnose` says is made of three things.

**The budget.** Every nanosecond of a session or connection, from its first command to its last status, has one owner
([method.md](method.md), section 4). The **limiter** is the largest part but `transfer`; the idle fraction is all but
`transfer`.

**The verdict** is one sentence: the limiter, its share of that time, and the finding that explains it. None is given
where the capture does not allow it: where what has no known owner is as much as the limiter, or where a round-trip
time is missing.

**Findings** are the known diseases below. Each has a severity (`info`: under a fifth of the time; `warning`: more;
`error`: something failed; `data_loss`: the capture lost it), its share of the jobs' time, a few frames that show it,
with a display filter, and advice in the key names of open-iscsi (`node.`), LIO (`targetcli`), sysctl (`net.`) and
Linux's block layer. Findings may claim the same time as others, for some time can be won in more than one way: a share
is what a cure could win at most.

**Gains** are what the model ([method.md](method.md), sections 6 and 8) says of an advice: how many times the throughput
there would be with one thing changed. Each has a least and a most, shown where they lie far apart: what the packets
leave open, such as whether a target serves tasks side by side or one after another. `--json` has them as `gains`, and
the first of them as `gain`. There are none where the model is more than a quarter away from what was measured, where
reads and writes are mixed, and for findings whose cure no model can know.

Where the sizes or moments of tasks tell which **system call** they were cut from, block_size_small says so, and
`--json` has it as `system_call` of the session: its size, its pieces, how often it was seen. Tasks of the largest size
and a rest, again and again, are the pieces of one call; so are tasks in order that are sent at once and wait for each
other.

The **jobs' time**, of which all shares are, is that from first command to last status without the pauses between jobs:
a quiet minute before the work does not hide what is wrong with it.
"""


def diagnosis_page() -> str:
    """docs/diagnosis.md."""
    lines = ["# Diagnosis", "", _generated("`iscsitrace/analysis/findings/`"), *_DIAGNOSIS.splitlines(), ""]
    lines += ["## Findings", ""]
    for disease in DISEASES.values():
        lines += [f"### {disease.name}", "", disease.meaning, ""]
        lines += [f"- **Found when**: {disease.threshold}", f"- **Shows**: {disease.evidence}", "- **Advice**:"]
        lines += [f"  - {step}" for step in disease.advice]
        lines.append("")
    lines += ["## Thresholds", "", "| threshold | value | what it is, and why |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {_cell(reason)} |" for name, value, reason in thresholds()]
    return "\n".join([*lines, ""])


def thresholds() -> Iterator[tuple[str, str, str]]:
    """Every threshold with its value and reason, from the source, for Python keeps no text beside a constant."""
    body = ast.parse(_THRESHOLDS_SOURCE.read_text()).body
    for constant, text in pairwise(body):
        if isinstance(constant, ast.AnnAssign) and isinstance(constant.target, ast.Name):
            name = constant.target.id
            if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
                continue
            value = getattr(import_module("iscsitrace.analysis.findings.thresholds"), name)
            yield name, _spelled(name, value), " ".join(str(text.value.value).split())


def _spelled(name: str, value: float) -> str:
    return f"{value / 1_000_000:g} ms" if name.endswith("_NS") else f"{value:g}" if value < 1 else f"{value:_}"


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


PAGES = {"docs/cli.md": cli_page, "docs/tables.md": tables_page, "docs/diagnosis.md": diagnosis_page}


def run(is_check: bool) -> int:
    """Writes the pages, or only compares them; the exit code."""
    stale = [name for name, page in PAGES.items() if not _has(ROOT / name, page())]
    for name in stale:
        if is_check:
            print(f"{name} is out of date: python -m tools.docs")
        else:
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_text(PAGES[name]())
            print(f"{name} written")
    return 1 if is_check and stale else 0


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(run(is_check="--check" in sys.argv[1:]))
