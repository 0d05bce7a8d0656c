"""Every command, option, table, column and counter is in the docs; `make lint` compares the generated pages."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from iscsitrace.cli import COMMANDS
from iscsitrace.tables.schema import CATEGORIES, DERIVED_CYCLE_COLUMNS, TABLES
from iscsitrace.wording.rules import counters
from tools import docs

CLI = (docs.ROOT / "docs" / "cli.md").read_text()
SETTINGS = CLI.split("\n## Settings\n")[1]
TABLES_PAGE = (docs.ROOT / "docs" / "tables.md").read_text()
COUNTERS_PAGE = (docs.ROOT / "docs" / "counters.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = CLI.split(f"## iscsitrace {name}\n")[1].split("\n## ")[0]
    command = next(command for command in docs.commands() if command.name == name)
    for parameter in command.params:
        if parameter.param_type_name == "option":
            has_option = parameter.get_help_record(click.Context(command)) is not None
            page, spelled = (section, parameter.opts[0]) if has_option else (SETTINGS, parameter.opts[0][2:])
            lines = [line for line in page.splitlines() if line.startswith(f"| `{spelled}`")]
            (line,) = [line for line in lines if has_option or f"`{name}`" in line]
            assert line.rsplit("|", 2)[1].strip(), f"{parameter.opts[0]} has no help"
    assert command.help
    assert f"iscsitrace {name} " in section


@pytest.mark.parametrize("name", TABLES)
def test_every_table_and_column_is_documented(name: str) -> None:
    section = TABLES_PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]
    columns = [*TABLES[name].columns, *(DERIVED_CYCLE_COLUMNS if name == "cycles" else ())]
    for column in columns:
        assert f"| `{column.name}` |" in section
        assert column.meaning


def test_every_category_and_counter_is_documented() -> None:
    assert all(f"| {name} |" in TABLES_PAGE for name in CATEGORIES)
    assert all(f"| `{name}` |" in COUNTERS_PAGE for name in counters())


@pytest.mark.parametrize("path", sorted(docs.ROOT.glob("docs/*.md")), ids=lambda path: path.stem)
def test_a_row_has_as_many_cells_as_its_heading(path: Path) -> None:
    # a `|` that is part of a cell has a backslash, else what follows the cell is not shown
    for table in re.findall(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", line)): line for line in table.splitlines()}
        assert len(cells) == 1, cells


def test_the_unit_of_a_column_is_in_its_name() -> None:
    for table in TABLES.values():
        for column in table.columns:
            if column.unit == "ns":
                assert column.name.endswith("_ns"), f"{table.name}.{column.name}"
            if column.name.endswith("_ns"):
                assert column.unit == "ns", f"{table.name}.{column.name}"
            if column.dtype == "bool":
                assert column.name.startswith(("is_", "has_")) or column.name == "to_target", column.name
