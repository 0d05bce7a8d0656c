"""The plugin's menu entries and statistics window, run by tshark: Lua functions replace Wireshark's windows.

They report a GUI, store the entries that the plugin registers, run one of them at a frame of the second pass, and log
the texts to show. The program that an entry runs is a script that prints its arguments.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import hand_timed as by_hand
from tests.support.hand_timed import READ, TEST_UNIT_READY, Wire, command, data_in, response
from tests.support.tshark import ISCSI_PORT
from tests.support.wireshark_plugin import PLUGIN

GUI = """
MENU_STAT_UNSORTED, MENU_TOOLS_UNSORTED = 1, 2
entries = {}
local log = io.open(os.getenv("LOG"), "w")
local function note(...)
    log:write(table.concat({ ... }, "|"), "\\n")
    log:flush()
end
function gui_enabled() return true end
function register_menu(name, action) entries[name] = action end
function register_packet_menu(name, action) note("packet menu", name) end
function report_failure(text) note("failure", text) end
function set_filter(text) note("filter", text) end
function apply_filter() note("applied") end
function browser_open_url(text) note("browser", (text:gsub("/[^ ]*/", "/"):gsub("lua_%w+", "TEMPORARY"))) end
function new_dialog(title, action, label) note("dialog", title, label) end
function retap_packets() end
TextWindow = {
    new = function(title)
        local window = {}
        function window:set(text) note("window", title, text) end
        function window:set_atclose() end
        function window:add_button(label) note("button", label) end
        return window
    end,
}
"""
RUN = """
local tap = Listener.new("frame")
function tap.packet(pinfo)
    if pinfo.number == tonumber(os.getenv("FRAME")) then
        entries[os.getenv("ENTRY")]()
    end
end
"""
OPEN = """
entries["iSCSI commands"]()
"""
PROGRAM = """#!/bin/sh
for word; do echo "<$word>"; done
exit $CODE
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A read in frames 1 and 2, and a packet without a PDU of a command in frame 3; a quote in the path."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    wire = Wire()
    wire.send(0, command(0, READ, cmd_sn=1, read=512)).receive(8, data_in(0, 0, 0, 512, stat_sn=1)).send(9)
    return by_hand.capture(folder, wire)


def run(file: Path, then: str, *options: str, entry: str = "", frame: int = 2, code: int = 0) -> list[str]:
    """The log of the replaced windows, one line each."""
    folder = file.parent
    script, program = folder / "script.lua", folder / "program"
    # a separate script would have separate globals
    script.write_text(f"{GUI}\n(function(...)\n{PLUGIN.read_text()}\nend)()\n{then}")
    program.write_text(PROGRAM)
    program.chmod(0o755)
    log = folder / "log"
    # as in Wireshark, both passes have a tree: in the first one for the read filter
    command = ["tshark", "-n", "-2", "-R", "tcp", "-V", "-X", f"lua_script:{script}", *ISCSI_PORT, *options]
    command += ["-o", f"iscsitrace.program:{program}", "-r", str(file)]
    environment = {"WIRESHARK_CONFIG_DIR": "/nonexistent", "LOG": str(log), "CODE": str(code)}
    environment |= {"ENTRY": f"iscsitrace/{entry}", "FRAME": str(frame)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    assert "Lua" not in done.stderr, done.stderr
    return [line for line in log.read_text().splitlines() if line and not line.startswith("packet menu")]


CONVERSATION = "tcp and host 192.0.2.2 and host 192.0.2.1 and port 3260 and port 40000"
ON_CONVERSATION = ["-f", f"({CONVERSATION}) or (vlan and {CONVERSATION})"]


@pytest.mark.parametrize(
    ("entry", "title", "arguments"),
    [
        ("Diagnose the capture", "iscsitrace diagnose", ["diagnose"]),
        ("Slowest commands of the capture", "iscsitrace cycles", ["cycles", "--top", "50", "--filter"]),
        ("Diagnose the selected conversation", "iscsitrace diagnose", ["diagnose", *ON_CONVERSATION]),
        ("Inspect the selected command", "iscsitrace inspect", ["inspect", "--cycle", "0"]),
    ],
)
def test_an_entry_shows_what_iscsitrace_prints(entry: str, title: str, arguments: list[str], file: Path) -> None:
    first, *printed = run(file, RUN, entry=entry)
    assert first.startswith(f"window|{title}|$ '")
    assert printed == [f"<{word}>" for word in [*arguments, str(file)]]


@pytest.mark.parametrize(
    ("entry", "suffix"),
    [
        ("Report of the capture", ".html"),
        ("Report of the selected conversation", ".html"),
        ("Plot the selected command", ".png"),
    ],
)
def test_an_entry_opens_what_iscsitrace_writes(entry: str, suffix: str, file: Path) -> None:
    (line,) = run(file, RUN, entry=entry)
    assert line.startswith("browser|file:/")
    assert line.endswith(suffix)


@pytest.mark.parametrize(
    ("entry", "title", "arguments"),
    [
        ("Report of the capture", "iscsitrace report", ["report"]),
        ("Report of the selected conversation", "iscsitrace report", ["report", *ON_CONVERSATION]),
        ("Plot the selected command", "iscsitrace plot", ["plot", "sequence", "--cycle", "0"]),
    ],
)
def test_an_entry_shows_the_error_if_nothing_was_written(
    entry: str, title: str, arguments: list[str], file: Path
) -> None:
    first, *printed = run(file, RUN, entry=entry, code=2)
    assert first.startswith(f"window|{title}|$ '")
    *words, option, output, capture = printed
    assert words == [f"<{word}>" for word in arguments]
    assert (option, capture) == ("<-o>", f"<{file}>")
    assert output.startswith("</")


def test_a_packet_without_a_command_is_identified_by_frame_and_connection(file: Path) -> None:
    assert run(file, RUN, entry="Inspect the selected command", frame=3)[1:4] == ["<inspect>", "<--frame>", "<3>"]
    plotted = run(file, RUN, entry="Plot the selected command", frame=3, code=2)
    assert plotted[1:5] == ["<plot>", "<sequence>", "<--connection>", "<0>"]
    assert run(file, RUN, entry="Filter the selected command", frame=3) == [
        "failure|iscsitrace: the selected packet completes no PDU of a command with a cycle number."
    ]


def test_the_filter_of_the_selected_command(file: Path) -> None:
    assert run(file, RUN, entry="Filter the selected command") == ["filter|iscsitrace.cycle == 0", "applied"]


def test_a_capture_given_by_name(file: Path) -> None:
    shown = run(file, RUN, "-o", "iscsitrace.capture:/somewhere/else", entry="Diagnose the capture")
    assert shown[2] == "</somewhere/else>"


def test_the_statistics_window(tmp_path: Path) -> None:
    wire = Wire()
    wire.send(0, command(0, READ, cmd_sn=1, read=512)).receive(8, data_in(0, 0, 0, 512, stat_sn=1))
    wire.send(9, command(1, TEST_UNIT_READY, cmd_sn=2)).receive(10, response(1, 2))
    lines = run(by_hand.capture(tmp_path, wire), OPEN)
    assert "window|iSCSI commands|iSCSI commands by session and operation, all packets" in lines
    # 512 bytes in 8 ms; TEST UNIT READY moves none
    assert lines[-1] == "all: 2 commands, active 0.008000 s, read 0.064 MB/s, written 0.000 MB/s"
