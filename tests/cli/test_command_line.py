"""What is typed before and beside a command: version, mistakes, folders, completion by the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tests.support.capture_file import read_records, write_pcapng
from tests.support.conversation import Conversation


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("diagnos", " Did you mean diagnose?"), ("sumary", " Did you mean summary?"), ("xyz", "")],
)
def test_a_mistyped_command_names_those_it_is_like(typed: str, hint: str) -> None:
    result = CliRunner().invoke(main, [typed, "a.pcap"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: No such command '{typed}'.{hint}"


def test_the_version_has_a_letter() -> None:
    long, short = (CliRunner().invoke(main, [option]) for option in ("--version", "-V"))
    assert (short.exit_code, short.output) == (0, long.output)


def test_a_folder_is_its_captures(tmp_path: Path) -> None:
    """Two parts of a capture; other files, hidden ones and folders are none of them."""
    conversation = Conversation()
    conversation.session().login().read(count=20).logout()
    capture = conversation.run()
    whole = write_pcapng(tmp_path / "whole.pcapng", capture.packets, capture.path.link_type)
    folder = tmp_path / "san"
    (folder / "old.pcapng").mkdir(parents=True)
    for name in ("notes.txt", ".hidden.pcapng", "a.pcapng.iscsitrace", "pcap"):
        (folder / name).write_bytes(b"no capture")
    records, link_type = read_records(whole)
    write_pcapng(folder / "x_00002.pcapng", records[60:], link_type)
    write_pcapng(folder / "x_00001.PCAPNG", records[:60], link_type)
    for words in ([str(folder)], ["-r", str(folder)]):
        result = CliRunner().invoke(main, ["summary", "--json", *words])
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document["packet_count"] == len(records)
        assert [Path(each["name"]).name for each in document["input"]] == ["x_00001.PCAPNG", "x_00002.pcapng"]


def test_a_folder_without_captures_is_refused_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["summary", str(tmp_path)])
    assert result.exit_code == 2
    assert f"iscsitrace: {tmp_path} is a folder without captures (" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "place", "found"), [("iscsitrace dia", 1, "diagnose"), ("iscsitrace watch --prom", 2, "--prometheus")]
)
def test_the_shell_completes_commands_and_options(words: str, place: int, found: str) -> None:
    """As the line in the README makes bash ask."""
    asked = os.environ | {"_ISCSITRACE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    code = "import sys; sys.argv[0] = 'iscsitrace'; from iscsitrace.cli import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=asked, check=False)
    assert f"plain,{found}" in said.stdout.splitlines()
