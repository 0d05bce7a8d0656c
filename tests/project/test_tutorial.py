"""README.md, the tutorial and the samples' READMEs: every command they show works.

`python -m tools.tutorial --check` runs the commands with output in all pages, and compares it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from tools import tutorial

ROOT = tutorial.ROOT
# pages whose commands need nothing but the samples
SHOWN = ("README.md", "docs/tutorial.md", "docs/diff.md", "docs/capture.md")
PAGES = [ROOT / name for name in SHOWN] + sorted((ROOT / "samples").glob("*/README.md"))
COMMANDS = [
    (str(page.relative_to(ROOT)), command)
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for command in block.splitlines()
    if command.startswith("iscsitrace ")
]
FOUND_MISSING = "samples/capture-drops/", "samples/snaplen-128/", "samples/task-abort-storage-hang/"


def test_there_is_something_to_run() -> None:
    assert {*SHOWN} <= {*tutorial.pages()}
    assert {Path(page).parent.name for page, _ in COMMANDS} >= {folder.name for folder in (ROOT / "samples").iterdir()}


def test_every_block_with_a_command_and_output_is_run_or_says_why_not() -> None:
    assert {why for _, _, why, _ in tutorial.not_run()} <= {*tutorial.REASONS}
    assert len(list(tutorial.not_run())) < 6
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "samples").glob("*/README.md")):
        text = path.read_text()
        # nothing is between the blocks that are found and those that are there; a prompt is in such a block only
        assert len(list(tutorial._BLOCK.finditer(text))) == text.count("```console"), path.name
        assert not re.search(r"^\$ ", tutorial._BLOCK.sub("", text), re.MULTILINE), path.name


def test_the_commands_of_a_block_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tutorial, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "```console\n$ echo 1 > x\nold\n$ cat x\n```\n\n<!-- not run: needs root -->\n```console\n$ false\nshown\n```\n"
    )
    assert tutorial.page("a.md") == (
        "```console\n$ echo 1 > x\n$ cat x\n1\n```\n\n<!-- not run: needs root -->\n```console\n$ false\nshown\n```\n"
    )


def test_a_command_that_fails_is_not_shown() -> None:
    with pytest.raises(RuntimeError, match="iscsitrace summary no-such-file: exit code 2: iscsitrace: cannot read"):
        tutorial.output_of("iscsitrace summary no-such-file")


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a user has the samples, and no folder of a clone
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    # a line with more than one command has arguments that it does not take
    result = CliRunner().invoke(main, shlex.split(command)[1:], catch_exceptions=False)
    is_check_of_loss = command.startswith("iscsitrace check") and any(name in command for name in FOUND_MISSING)
    assert result.exit_code == (1 if is_check_of_loss else 0), result.stderr
    assert result.stdout


def test_python_of_the_tutorial() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
    words = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("16 writes;")  # dd count=16


def test_links_exist() -> None:
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
