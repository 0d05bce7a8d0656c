"""README.md, the tutorial and the samples' READMEs: every command they show works.

`python -m tools.tutorial --check` runs the commands with output, and compares it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import tutorial

ROOT = tutorial.ROOT
PAGES = [ROOT / name for name in tutorial.PAGES] + sorted((ROOT / "samples").glob("*/README.md"))
COMMANDS = [
    (str(page.relative_to(ROOT)), command)
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for command in block.splitlines()
    if command.startswith("iscsitrace ")
]
FOUND_MISSING = "samples/capture-drops/", "samples/snaplen-128/", "samples/task-abort-storage-hang/"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_there_is_something_to_run() -> None:
    assert all("```console\n$ " in (ROOT / name).read_text() for name in tutorial.PAGES)
    assert {Path(page).parent.name for page, _ in COMMANDS} >= {folder.name for folder in (ROOT / "samples").iterdir()}


def test_a_command_that_fails_is_not_shown() -> None:
    with pytest.raises(RuntimeError, match="iscsitrace summary no-such-file: exit code 2: iscsitrace: cannot read"):
        tutorial.output_of("iscsitrace summary no-such-file")


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command(page: str, command: str) -> None:
    result = run(["bash", "-c", command])
    is_check_of_loss = command.startswith("iscsitrace check") and any(name in command for name in FOUND_MISSING)
    assert result.returncode == (1 if is_check_of_loss else 0), result.stderr
    assert result.stdout


def test_python_of_the_tutorial() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)
    result = run([sys.executable, "-W", "error", "-c", program])
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("16 writes;")  # dd count=16


def test_links_exist() -> None:
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
