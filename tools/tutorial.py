"""Updates the command output in README.md and docs/: runs each command shown and writes its output below it.

A ``console`` block has one command after ``$`` and its output. ``python -m tools.tutorial`` writes the pages; with
``--check`` it only lists outdated pages (exit code 1). tests/project/test_tutorial.py runs the ``sh`` and ``python``
blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/tutorial.md", "docs/diff.md", "docs/capture.md")
_BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n.*?```\n", re.DOTALL)


def output_of(command: str) -> str:
    """The output of a command, run in the project's folder with this environment's programs."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TZ": "UTC"}
    shell = ["bash", "-c", command]
    result = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    # `check` exits with 1 if data is missing
    if result.returncode != 0 and not (result.returncode == 1 and command.startswith("iscsitrace check ")):
        raise RuntimeError(f"{command}: exit code {result.returncode}: {result.stderr}")
    return result.stdout


def page(name: str) -> str:
    """A page with the current output of its commands."""
    text = (ROOT / name).read_text()
    return _BLOCK.sub(lambda block: _shown(block["command"]), text)


def _shown(command: str) -> str:
    return f"```console\n$ {command}\n{output_of(command).strip(chr(10))}\n```\n"


def main(arguments: list[str]) -> int:
    """Writes the pages, or only compares them; returns the exit code."""
    stale = [name for name in PAGES if page(name) != (ROOT / name).read_text()]
    for name in stale:
        if "--check" in arguments:
            print(f"{name} is out of date: python -m tools.tutorial")
        else:
            (ROOT / name).write_text(page(name))
            print(f"{name} written")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
