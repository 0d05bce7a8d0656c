"""``-o`` and ``-q`` of commands that print: the file has what standard output would have, complete or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.cli.test_every_option import COMMANDS

SAMPLE = Path(__file__).parents[2] / "samples" / "loss-1-percent" / "capture.pcap.gz"
PRINTING = (
    *("summary", "events", "diagnose", "conformance", "cycles", "mirrors", "diff", "check", "explain", "inspect"),
    *("model plan", "fleet sql", "fleet top"),
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.mark.parametrize("name", PRINTING)
def test_what_prints_can_write_to_a_file(name: str) -> None:
    spellings = {each for option in COMMANDS[name].params for each in option.opts if isinstance(option, click.Option)}
    assert {"-o", "--force"} <= spellings


@pytest.mark.parametrize(
    "words",
    [
        ("summary", SAMPLE), ("summary", "--json", SAMPLE), ("events", "--json", SAMPLE), ("cycles", "--csv", SAMPLE),
        ("diagnose", SAMPLE), ("diff", SAMPLE, SAMPLE), ("check", SAMPLE), ("explain", "loss"),
    ],
)  # fmt: skip
def test_the_file_has_what_is_printed(words: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / "out"
    printed, written = run(*words), run(*words, "-o", path)
    assert (written.exit_code, written.stdout) == (printed.exit_code, "")
    assert path.read_bytes() == printed.stdout_bytes != b""


def test_a_dash_is_standard_output() -> None:
    assert run("diagnose", SAMPLE, "-o", "-").stdout == run("diagnose", SAMPLE).stdout
    assert not Path("-").exists()


def test_the_name_of_a_report_decides_its_format(tmp_path: Path) -> None:
    path = tmp_path / "loss.md"
    assert run("report", SAMPLE, "-o", path).exit_code == 0
    assert path.read_text().startswith("# ")


def test_a_capture_in_place_of_a_command_is_diagnosed_by_the_advice() -> None:
    said = run(SAMPLE).output.splitlines()[-1]
    assert said == f"Error: No such command '{SAMPLE}'. Did you mean: iscsitrace diagnose {SAMPLE}"


def test_a_connection_is_not_called_healthy_where_its_session_is_not() -> None:
    outage = SAMPLE.parents[1] / "black-out-and-relogin" / "capture.pcapng.gz"
    said = run("diagnose", "-v", outage).stdout
    assert "no I/O" in said
    assert "is healthy" not in said


def test_a_finding_to_fail_on_leaves_the_file_and_the_exit_code(tmp_path: Path) -> None:
    result = run("diagnose", "--fail-on", "loss", "-o", tmp_path / "out", SAMPLE)
    assert result.exit_code == 1
    assert "has a problem" in (tmp_path / "out").read_text()


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    assert run("summary", "-o", tmp_path / "out", tmp_path / "missing.pcap").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_overwritten_only_by_force_and_an_input_never(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("kept")
    refused = run("explain", "loss", "-o", path)
    assert (refused.exit_code, path.read_text()) == (2, "kept")
    assert refused.stderr == f"iscsitrace: {path} exists; nothing was written (--force overwrites)\n"
    assert run("explain", "loss", "-o", path, "--force").exit_code == 0
    assert "loss" in path.read_text()
    copy = tmp_path / "copy.pcap.gz"
    copy.write_bytes(SAMPLE.read_bytes())
    for words in (("summary", copy), ("diff", copy, SAMPLE)):
        assert run(*words, "-o", copy, "--force").exit_code == 2
    assert copy.read_bytes() == SAMPLE.read_bytes()


def test_a_process_without_rights_to_other_folders_writes_the_file(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "iscsitrace", "summary", "-o", str(tmp_path / "out"), str(SAMPLE)]
    finished = subprocess.run(words, check=True, capture_output=True, cwd=os.sep)
    assert (finished.stdout, finished.stderr) == (b"", b"")
    # as every file with names and addresses
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600


def test_quiet_shows_no_notes(tmp_path: Path) -> None:
    """The captures of two taps are recognised, and a note says so."""
    assert run("simulate", "read", "--bytes", "1M", "--quiet", "-o", tmp_path).exit_code == 0
    captures = [tmp_path / "initiator.pcapng", tmp_path / "target.pcapng"]
    assert run("summary", *captures).stderr != ""
    for spelling in ("-q", "--quiet"):
        assert run("summary", spelling, *captures).stderr == ""


def test_an_old_name_of_an_option_is_accepted_with_a_note() -> None:
    new, old = run("summary", "--quiet", SAMPLE), run("summary", "--no-progress", SAMPLE)
    assert (old.exit_code, old.stdout) == (0, new.stdout)
    assert (new.stderr, old.stderr) == ("", "iscsitrace: --no-progress is now --quiet\n")
    assert run("summary", "--", "--no-progress").stderr.startswith(
        "iscsitrace: cannot read --no-progress: No such file"
    )
