"""Rules of the architecture: which files import the core, and names of files."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "iscsitrace"
FILES = sorted(PACKAGE.rglob("*.py"))
CORE = PACKAGE.parent / "core"
BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager", "types"}


def imports_of(file: Path) -> set[str]:
    """Dotted names of all imports in a file."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_core_is_imported_where_a_pass_or_traffic_starts_and_for_what_it_declares() -> None:
    importers = [file for file in FILES if any("_core" in name.split(".") for name in imports_of(file))]
    assert [str(file.relative_to(PACKAGE)) for file in importers] == [
        *("__init__.py", "lab/traffic.py", "recording/capture.py"),
        *("tables/memory.py", "tables/passes.py", "tables/schema/declaration.py", "tables/tap_join.py"),
        "tables/trace.py",
        *("wording/command_status.py", "wording/rules.py", "wording/scsi_names.py"),
    ]


def test_file_names_are_nouns() -> None:
    assert [file for file in FILES if file.stem in BANNED_NAMES] == []


def test_files_say_what_they_are_and_are_short() -> None:
    texts = {file: file.read_text() for file in FILES}
    assert [file for file, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [file for file, text in texts.items() if len(text.splitlines()) > 500] == []


def test_one_file_per_command() -> None:
    from iscsitrace.cli import GROUPS

    for folder, names in GROUPS.values():
        for name in names:
            assert (PACKAGE / "cli" / folder / f"{name}.py").is_file()
