"""Writes docs/cli.md and docs/tables.md from what they document: the commands, schema/ and the core's counters.

``python -m tools.docs`` writes, ``python -m tools.docs --check`` only says which file is out of date (exit code 1).
Nothing in these two files is written by hand.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from iscsitrace.cli import COMMANDS, main
from iscsitrace.schema import CATEGORIES, DERIVED_CYCLE_COLUMNS, ON_REQUEST, SCHEMA_VERSION, TABLES, Column

ROOT = Path(__file__).resolve().parents[1]
_COUNTERS_SOURCE = ROOT / "core" / "trace" / "src" / "counters.rs"
_COUNTER = re.compile(r'^\s*\w+, "(\w+)", (\w+),\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)";', re.MULTILINE)


_ARGUMENTS = {
    "CAPTURE...": "Captures to read as one, or `-` for standard input.",
    "URL...": "Logical units of targets; for `discover`, their portals.",
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
    lines = ["# Tables", "", _generated("`iscsitrace/schema/` and the core's counters"), ""]
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


PAGES = {"docs/cli.md": cli_page, "docs/tables.md": tables_page}


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
