"""tools/plugin.py: the plugin from its parts, the generated part, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools import plugin

PARTS = {
    "one": """\
-- what it does

local function double(number)
    return 2 * number
end

return { double = double }
""",
    "two": """\
-- what it does

local one = require("one")

print(one.double(21))
""",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two parts, written by hand, and the generated one; nothing assembled yet."""
    monkeypatch.setattr(plugin, "ROOT", tmp_path)
    monkeypatch.setattr(plugin, "FOLDER", tmp_path)
    monkeypatch.setattr(plugin, "PLUGIN", tmp_path / "assembled")
    monkeypatch.setattr(plugin, "PARTS", ("operations", *PARTS))
    for name, text in PARTS.items():
        (tmp_path / f"{name}.lua").write_text(text)
    return tmp_path


def test_a_part_becomes_a_local_variable_and_the_last_one_is_unchanged(folder: Path) -> None:
    text = plugin.assembled(PARTS)
    rule = "-" * 116
    assert text.endswith(
        f"""
{rule} one

local one = (function()
-- what it does

local function double(number)
    return 2 * number
end

return {{ double = double }}
end)()

{rule} two

-- what it does

print(one.double(21))
"""
    )
    assert "require" not in text


def test_outdated_files_are_listed_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: operations.lua, assembled; run python -m tools.plugin\n"
    assert not (folder / "assembled").exists()
    assert plugin.main([]) == 0
    capsys.readouterr()
    assert plugin.main(["--check"]) == 0
    (folder / "two.lua").write_text(PARTS["two"].replace("21", "22"))
    assert plugin.main(["--check"]) == 1
    assert capsys.readouterr().out == "out of date: assembled; run python -m tools.plugin\n"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("one", 'local two = require("two")\n', "one.lua: require only parts before it"),
        ("two", 'local other = require("one")\n', "two.lua: require only parts before it"),
        ("two", 'print(require("one"))\n', "two.lua: require only parts before it"),
        ("three", "return {}\n", "PARTS in tools/plugin.py differ: three"),
    ],
)
def test_a_part_that_cannot_be_assembled_is_a_one_line_error(
    name: str, text: str, complaint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / f"{name}.lua").write_text(text)
    assert plugin.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert not (folder / "assembled").exists()


def row(code: int, operation: str, *, action: int | None = None, device_type: int = 0) -> dict[str, Any]:
    kind = operation if operation in ("read", "write") else "other"
    return {
        "operation_code": code,
        "service_action": action,
        "device_type": device_type,
        "operation": operation,
        "kind": kind,
        "purpose": "other" if operation == "seek" else "data",
    }


def test_the_generated_part_has_the_rows_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row(0x04, "format_unit"),
        row(0x04, "format_unit", device_type=1),
        row(0x28, "read"),
        row(0x2B, "seek"),
        row(0x2B, "locate", device_type=1),
        row(0x2B, "position_to_element", device_type=8),
        row(0x7F, "write", action=0x0B),
        row(0x7F, "other"),
    ]
    monkeypatch.setattr(plugin, "scsi_commands", lambda: rows)
    lines = plugin.operations().splitlines()
    assert [line.strip() for line in lines[lines.index("local by_code = {") :] if line] == [
        "local by_code = {",
        *('[0x04] = "format_unit",', '[0x28] = "read",', '[0x2b] = "seek",', '[0x7f] = "other",', "}"),
        "local by_device_type = {",
        *('[0x2b] = { [1] = "locate", [8] = "position_to_element" },', "}"),
        "local by_service_action = {",
        *('[0x7f] = { [0x0b] = "write" },', "}"),
        "local moves_blocks = { read = true, write = true }",
        "local is_io = {",
        *("format_unit = true,", "locate = true,", "other = true,", "position_to_element = true,", "read = true,"),
        *("write = true,", "}"),
        "return {",
        "by_code = by_code, by_device_type = by_device_type, by_service_action = by_service_action,",
        "moves_blocks = moves_blocks, is_io = is_io,",
        "}",
    ]


def test_service_actions_of_two_device_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(0x9E, "read_capacity", action=0x10), row(0x9E, "read", action=0x10, device_type=1)]
    monkeypatch.setattr(plugin, "scsi_commands", lambda: rows)
    with pytest.raises(plugin.PartInvalid, match="0x9e"):
        plugin.operations()
