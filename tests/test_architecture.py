"""The rules of the house that a machine can check: who imports the core, and what a file looks like."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import rust_imports

PACKAGE = Path(__file__).resolve().parents[1] / "iscsitrace"
FILES = sorted(PACKAGE.rglob("*.py"))
CORE = PACKAGE.parent / "core"
BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager", "types"}


def imports_of(file: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_core_is_imported_where_a_pass_or_traffic_begins() -> None:
    importers = [file for file in FILES if any("_core" in name.split(".") for name in imports_of(file))]
    assert [str(file.relative_to(PACKAGE)) for file in importers] == [
        *("capture.py", "lab/traffic.py", "live.py", "trace.py")
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_is_one_noun_that_says_what_it_does(file: Path) -> None:
    text = file.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert file.stem not in BANNED_NAMES
    assert len(text.splitlines()) <= 500


def test_one_file_a_command() -> None:
    from iscsitrace.cli import COMMANDS

    for name in COMMANDS:
        assert (PACKAGE / "cli" / f"{name}.py").is_file()


@pytest.mark.parametrize("crate", ["lab"])
def test_files_of_the_core_use_each_other_one_way(crate: str) -> None:
    assert rust_imports.circle(CORE / crate / "src") == []


def test_a_circle_of_files_is_found(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod disk;\n#[cfg(test)]\nmod tests;\npub use disk::Disk;\n")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "mod.rs").write_text("mod sector;\nmod track;\nuse sector::{Sector, size::{A, B}};\n")
    (tmp_path / "disk" / "sector.rs").write_text("use crate::disk::track::Track;\n// use super::Disk;\n")
    (tmp_path / "disk" / "track.rs").write_text("fn turn() -> super::track::Angle {}\n")
    assert rust_imports.circle(tmp_path) == []
    assert rust_imports.uses(tmp_path)["disk", "sector"] == {("disk", "track")}
    (tmp_path / "disk" / "track.rs").write_text("fn turn() -> super::Disk {}\n")
    assert set(rust_imports.circle(tmp_path)) == {"disk", "disk::sector", "disk::track"}
