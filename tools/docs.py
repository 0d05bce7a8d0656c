"""Writes docs/cli.md and docs/tables.md from what they document: the commands, schema.py and the core's counters.

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
    """Every command in the order of the help."""
    context = click.Context(main, info_name="iscsitrace")
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise LookupError(f"there is no command {name}")
        command.name = name
        yield command


def cli_page() -> str:
    """docs/cli.md."""
    lines = ["# Commands", "", _generated("the commands themselves"), "", *_prose(main.help)]
    for command in commands():
        lines += [f"## iscsitrace {command.name}", "", *_prose(command.help), *_example(command.epilog)]
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| {_spelling(option)} | {_meaning(option)} |" for option in command.params]
        lines.append("")
    return "\n".join(lines)


def _prose(text: str | None) -> list[str]:
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        # click keeps the lines of a paragraph that begins with a backspace
        kept = paragraph.removeprefix("\b\n").splitlines() if paragraph.startswith("\b") else [paragraph]
        lines += [*(" ".join(line.split()) for line in kept), ""]
    return lines


def _example(epilog: str | None) -> list[str]:
    return ["```sh", (epilog or "").removeprefix("Example:").strip(), "```", ""]


def _spelling(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"`{parameter.metavar}`"
    spelled = ", ".join(f"`{name}`" for name in parameter.opts)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return spelled
    choices = getattr(parameter.type, "choices", None)
    value = parameter.metavar or ("\\|".join(choices) if choices else parameter.type.name.upper())
    return f"{spelled} {value}"


def _meaning(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return "Captures to read as one, or `-` for standard input."
    text = getattr(parameter, "help", None) or ""
    return f"{text} (default: {parameter.default})" if getattr(parameter, "show_default", None) else text


def tables_page() -> str:
    """docs/tables.md."""
    lines = ["# Tables", "", _generated("`iscsitrace/schema.py` and the core's counters"), ""]
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
