"""File names that are not UTF-8, and links that lead nowhere: tables or one line, never a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.consistency.test_consistency import sample

SAMPLE = sample("medium-error")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A capture whose name is not UTF-8."""
    folder = tmp_path / "odd"
    folder.mkdir()
    named = Path(os.fsdecode(bytes(folder) + b"/\xff\xfe.pcapng.gz"))
    shutil.copy(SAMPLE, named)
    return named


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "words",
    [
        *("summary", "summary --json", "diagnose --json", "events", "cycles --json", "check", "conformance"),
        *("report -o OUTPUT.html", "report --format md -o -", "export -o OUTPUT", "anonymise -o OUTPUT.pcapng"),
        *("plot cycles -o OUTPUT.svg", "export --sidecar -o OUTPUT", "watch --no-follow --plain"),
    ],
)
def test_a_capture_whose_name_is_not_utf8(words: str, odd: Path, tmp_path: Path) -> None:
    result = run(*words.replace("OUTPUT", str(tmp_path / "output")).split(), odd)
    assert result.exit_code in (0, 1), result.output


def test_a_dataset_keeps_it_readable(odd: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("fleet", "run", "-o", data, odd).exit_code == 0
    assert "nothing to do" in run("fleet", "run", "-o", data, odd).stdout
    assert run("fleet", "sql", data, "SELECT capture FROM captures").stdout.split()[1] == r"\xff\xfe.pcapng.gz"
    refused = run("fleet", "run", "-o", os.fsdecode(bytes(tmp_path) + b"/\xff"), odd)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "has to be in UTF-8" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        "initiator ping iscsi://ODD:3260/iqn.x/0",
        "initiator ping iscsi://127.0.0.1:1/iqn.ODD/0",
        "target --listen ODD:0",
        "watch --no-follow --prometheus ODD:0 SAMPLE",
        "summary --from ODD SAMPLE",
        "fleet sql DATA ODD",
    ],
)
def test_a_name_that_is_not_utf8(words: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    if "DATA" in words:
        assert run("fleet", "run", "-o", data, SAMPLE).exit_code == 0
    found = words.replace("SAMPLE", str(SAMPLE)).replace("DATA", str(data)).replace("ODD", os.fsdecode(b"\xff\xfe"))
    result = run(*found.split())
    assert result.exit_code == 2
    assert result.stderr.strip()


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    dangling, loop = tmp_path / "dangling.pcap", tmp_path / "loop.pcap"
    dangling.symlink_to(tmp_path / "nothing")
    loop.symlink_to(loop)
    for link in (dangling, loop):
        for words in (
            ("summary",),
            ("fleet", "run", "-o", tmp_path / "data"),
            ("anonymise", "-o", tmp_path / "a.pcap"),
        ):
            result = run(*words, link)
            assert (result.exit_code, result.stderr.count("\n")) == (2, 1), (words, link, result.output)
    # where something is to be written, the link is there
    for command in ("anonymise", "report", "capture"):
        order = ("-q", "-r", SAMPLE, "-w", dangling) if command == "capture" else ("-o", dangling, SAMPLE)
        result = run(command, *order)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), (command, result.output)
        assert not (tmp_path / "nothing").exists()
    shutil.copy(SAMPLE, tmp_path / "whole.pcapng.gz")
    assert run("summary", tmp_path).exit_code == 0
