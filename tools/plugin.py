"""Assembles the plugin for Wireshark, plugins/iscsitrace.lua, from its parts in plugins/lua/.

``python -m tools.plugin`` writes it, ``python -m tools.plugin --check`` only lists outdated files (exit code 1).

Wireshark loads a single file. The parts are Lua modules. Each becomes a function that is called once, and its result
becomes a local variable with the name of the part, in place of ``require``. The local variables of a part are thus
visible only in that part, and Lua's limit of 200 local variables applies to each part separately. The last part is not
wrapped, because it reads the script's arguments. ``plugins/lua/operations.lua`` is generated here from the core's table
of SCSI commands.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from iscsitrace._core import scsi_commands

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "plugins" / "iscsitrace.lua"
FOLDER = ROOT / "plugins" / "lua"
PARTS = (
    "command_line",
    "fields",
    "operations",
    "cdb",
    "serial",
    "state",
    "sessions",
    "pdu",
    "commands",
    "pdus",
    "place",
    "connections",
    "packets",
    "capture_file",
    "sidecar",
    "show",
    "waits",
    "statistics",
    "menu",
    "register",
)
"""The parts in order: a part requires only parts before it."""

_REQUIRE = re.compile(r'^local (\w+) = require\("(\w+)"\)\n', re.MULTILINE)
_WIDTH = 120
_HEAD = """\
-- iSCSI commands in Wireshark: `iscsitrace.*` fields on Wireshark's own dissection, statistics, and menu entries that
-- run iscsitrace on the selected packet. For Wireshark 3.6 to 4.6 (Lua 5.2 to 5.4).
--
-- Assembled from plugins/lua by `python -m tools.plugin`: edit the parts, not this file.
--
-- The numbers are those of `iscsitrace cycles`, defined in docs/method.md, section 3. plugins/README.md describes each
-- field. Wireshark finds the PDUs and reassembles segments. This plugin reads the headers of those PDUs and never looks
-- for PDUs itself. It leaves out what Wireshark did not show, and does not guess. It reads each frame once, in order,
-- and keeps the results by frame, so that one pass and two passes show the same. If no field is requested, it does
-- nothing.
"""
_OPERATIONS = """\
-- The SCSI operations by operation code, device type and service action.
--
-- Generated from core/wire/src/cdb/commands.rs by `python -m tools.plugin`: do not edit. Never decides which of them a
-- CDB is: `cdb` does.
--
-- Provides `by_code` (the most common device type), `by_device_type` (where another device type, 1 tape, 5 CD drive or
-- 8 changer, gives the code another meaning), `by_service_action`, `moves_blocks` (the operations that transfer
-- blocks) and `is_io` (those that read, write or erase data).
"""


class PartInvalid(Exception):
    """A part that cannot be assembled; the message is one line."""


def operations() -> str:
    """The part with the SCSI operations, as text."""
    by_code: dict[int, str] = {}
    by_device_type: dict[int, dict[int, str]] = defaultdict(dict)
    by_service_action: dict[int, dict[int, str]] = defaultdict(dict)
    first_type: dict[int, int] = {}
    moves_blocks, is_io = set(), set()
    for row in scsi_commands():
        code, action = row["operation_code"], row["service_action"]
        device_type, operation = row["device_type"], row["operation"]
        if row["kind"] != "other":
            moves_blocks.add(operation)
        if row["purpose"] == "data":
            is_io.add(operation)
        is_first_type = device_type == first_type.setdefault(code, device_type)
        if not is_first_type and (action is not None or (code in by_service_action and operation == by_code.get(code))):
            # `operation_of` in plugins/lua/cdb.lua looks for the device type first, then for the service action
            raise PartInvalid(f"operations: the service actions of {code:#04x} depend on the device type")
        if action is not None:
            by_service_action[code][action] = operation
        elif is_first_type:
            by_code[code] = operation
            actions = by_service_action.pop(code, {})
            # only those that the code's own operation does not say already
            if others := {action: own for action, own in actions.items() if own != operation}:
                by_service_action[code] = others
        elif operation != by_code.get(code):
            by_device_type[code][device_type] = operation
    parts = [
        _OPERATIONS,
        "local by_code = {",
        *(f'    [{code:#04x}] = "{operation}",' for code, operation in by_code.items()),
        "}\n",
        *_nested("by_device_type", by_device_type, "d"),
        *_nested("by_service_action", by_service_action, "#04x"),
        *_set("moves_blocks", moves_blocks),
        *_set("is_io", is_io),
        "return {",
        "    by_code = by_code, by_device_type = by_device_type, by_service_action = by_service_action,",
        "    moves_blocks = moves_blocks, is_io = is_io,",
        "}\n",
    ]
    return "\n".join(parts)


def _set(name: str, words: set[str]) -> list[str]:
    pairs = [f"{word} = true" for word in sorted(words)]
    row = f"local {name} = {{ {', '.join(pairs)} }}\n"
    return [row] if len(row) <= _WIDTH else [f"local {name} = {{", *(f"    {pair}," for pair in pairs), "}\n"]


def _nested(name: str, table: dict[int, dict[int, str]], key: str) -> list[str]:
    rows = [f"local {name} = {{"]
    for code, meanings in table.items():
        pairs = [f'[{number:{key}}] = "{operation}"' for number, operation in meanings.items()]
        row = f"    [{code:#04x}] = {{ {', '.join(pairs)} }},"
        if len(row) <= _WIDTH:
            rows.append(row)
        else:
            rows += [f"    [{code:#04x}] = {{", *(f"        {pair}," for pair in pairs), "    },"]
    return [*rows, "}\n"]


def assembled(parts: dict[str, str]) -> str:
    """The plugin from the text of its parts, in their order."""
    chunks = [_HEAD]
    defined: set[str] = set()
    last = list(parts)[-1]
    for name, text in parts.items():
        body = _REQUIRE.sub("", text).strip("\n")
        required = _REQUIRE.findall(text)
        if "require(" in body or any(variable != part or part not in defined for variable, part in required):
            raise PartInvalid(f'plugins/lua/{name}.lua: require only parts before it, as local NAME = require("NAME")')
        heading = f" {name}".rjust(_WIDTH, "-")
        wrapped = f"{body}\n" if name == last else f"local {name} = (function()\n{body}\nend)()\n"
        chunks.append(f"{heading}\n\n{wrapped}")
        defined.add(name)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(chunks))


def files() -> dict[Path, str]:
    """The files written here: the generated part and the plugin."""
    generated = {"operations": operations()}
    written = {path.stem for path in FOLDER.glob("*.lua")} - generated.keys()
    if odd := sorted(written ^ (set(PARTS) - generated.keys())):
        raise PartInvalid(f"plugins/lua and PARTS in tools/plugin.py differ: {', '.join(odd)}")
    parts = {name: generated.get(name) or (FOLDER / f"{name}.lua").read_text() for name in PARTS}
    return {FOLDER / f"{name}.lua": text for name, text in generated.items()} | {PLUGIN: assembled(parts)}


def main(arguments: list[str]) -> int:
    """Writes the files, or only compares them; returns the exit code."""
    try:
        stale = {path: text for path, text in files().items() if not path.is_file() or path.read_text() != text}
    except PartInvalid as error:
        print(error, file=sys.stderr)
        return 1
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if stale and "--check" in arguments:
        print(f"out of date: {names}; run python -m tools.plugin")
        return 1
    for path, text in stale.items():
        path.write_text(text)
    if stale:
        print(f"written: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
