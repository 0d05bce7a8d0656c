"""What is typed before and beside a command: version, mistakes, folders, completion by the shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tests.support.capture_file import read_records, write_pcapng
from tests.support.conversation import Conversation

SAMPLES = Path(__file__).parents[2] / "samples"


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


@pytest.mark.parametrize(
    "words",
    [
        *("events", "events --json", "cycles", "conformance", "mirrors", "check"),
        *("report -o OUT/x.html", "export -o OUT/tables", "plot latency -o OUT/x.png"),
        "export -o OUT/tables --format parquet --max-memory 2G",
    ],
)
def test_captures_of_a_folder_that_do_not_belong_together_are_not_read_as_one(words: str, tmp_path: Path) -> None:
    folder = tmp_path / "san"
    folder.mkdir()
    for sample, name in (("sequential-read-4ms", "a"), ("medium-error", "b")):
        (source,) = (SAMPLES / sample).glob("capture.*")
        shutil.copy(source, folder / f"{name}{''.join(source.suffixes)}")
    loss = SAMPLES / "loss-1-percent"
    for name in ("capture", "target"):
        shutil.copy(loss / f"{name}.pcap.gz", folder / f"c-{name}.pcap.gz")
    command, *options = words.replace("OUT", str(tmp_path)).split()
    result = CliRunner().invoke(main, [command, *options, str(folder)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"iscsitrace: {folder}: 3 groups of captures that do not belong together: (a.pcapng.gz), (b.pcapng.gz), "
        "(c-capture.pcap.gz, c-target.pcap.gz). Name the captures of one group; diagnose shows the headline of each\n"
    )
    assert not [*tmp_path.glob("x.*"), *tmp_path.glob("tables")]


def test_a_folder_of_unrelated_captures_has_a_summary_of_each_below_an_overview(tmp_path: Path) -> None:
    folder = tmp_path / "san"
    folder.mkdir()
    files = {}
    for sample, name in (("sequential-read-4ms", "a"), ("medium-error", "b")):
        (source,) = (SAMPLES / sample).glob("capture.*")
        files[name] = str(shutil.copy(source, folder / f"{name}{''.join(source.suffixes)}"))
    for name in ("capture", "target"):
        shutil.copy(SAMPLES / "loss-1-percent" / f"{name}.pcap.gz", folder / f"c-{name}.pcap.gz")
    (folder / "d.pcap").write_bytes(b"no capture")
    runner = CliRunner()
    result = runner.invoke(main, ["summary", str(folder)])
    # one of them cannot be read
    assert result.exit_code == 2
    head, *summaries = result.stdout.split("\nCaptures: ")
    lines = [line.split() for line in head.splitlines() if str(folder) in line]
    assert "Overview: 4 groups of captures that belong together" in head
    assert [Path(line[0]).name for line in lines] == ["a.pcapng.gz", "b.pcapng.gz", "c-capture.pcap.gz", "d.pcap"]
    assert lines[2][1:3] == ["and", "1"]
    assert len(summaries) == 4
    for name, shown in zip("ab", summaries, strict=False):
        alone = runner.invoke(main, ["summary", files[name]]).stdout
        assert alone.strip() == shown.partition("\n")[2].strip()
        document = json.loads(runner.invoke(main, ["summary", "--json", files[name]]).stdout)
        numbers = [len(document["connections"]), len(document["sessions"])]
        assert list(map(int, lines["ab".index(name)][3:5])) == numbers
    whole = json.loads(runner.invoke(main, ["summary", "--json", str(folder)]).stdout)
    assert [each["packet_count"] for each in whole["groups"][:2]] == [
        json.loads(runner.invoke(main, ["summary", "--json", files[name]]).stdout)["packet_count"] for name in "ab"
    ]
    by = runner.invoke(main, ["summary", "--by", "lun", str(folder)])
    assert by.stdout.count("\nCaptures: ") == 4


@pytest.mark.parametrize(
    ("command", "table"),
    [("cycles", "cycles"), ("events", "events"), ("mirrors", "mirrored_writes"), ("conformance", "violations")],
)
def test_commands_of_rows_print_their_table_as_csv(command: str, table: str, tmp_path: Path) -> None:
    capture = str(next((SAMPLES / "medium-error").glob("capture.*")))
    runner = CliRunner()
    printed = runner.invoke(main, [command, "--csv", capture])
    assert printed.exit_code == 0
    assert runner.invoke(main, ["export", "-o", str(tmp_path), "--tables", table, capture]).exit_code == 0
    exported = (tmp_path / f"{table}.csv").read_text().splitlines()
    assert printed.stdout.splitlines() == exported
    both = runner.invoke(main, [command, "--csv", "--json", capture])
    assert (both.exit_code, "exclude each other" in both.output) == (2, True)


def test_captures_that_are_named_are_read_as_one_and_those_of_a_folder_if_they_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "taps"
    shutil.copytree(SAMPLES / "loss-1-percent", folder)
    taps = CliRunner().invoke(main, ["summary", str(folder)])
    assert taps.exit_code == 0
    assert "same traffic at 2 taps, from the initiator to the target: capture.pcap.gz -> target.pcap.gz" in taps.stderr
    named = [next((SAMPLES / name).glob("capture.*")) for name in ("sequential-read-4ms", "medium-error")]
    both = CliRunner().invoke(main, ["summary", *map(str, named)])
    assert both.exit_code == 0
    assert "2 captures read as parts of one, in the order given" in both.stderr


def test_a_folder_without_captures_is_refused_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["summary", str(tmp_path)])
    assert result.exit_code == 2
    assert f"iscsitrace: {tmp_path} is a folder without captures (" in result.stderr
    assert result.stderr.endswith("; folders in it are not searched\n")
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
