"""Updates the command output in README.md, docs/ and samples/: runs each command shown and writes its output below it.

A ``console`` block has commands after ``$``, each with its output. ``python -m tools.tutorial`` writes the pages; with
``--check`` it only lists outdated pages (exit code 1). A block that cannot be run here has a comment on the line before
it, ``<!-- not run: REASON -->``, with one of ``REASONS``; ``--list`` lists these. The commands of a page run one after
another in a folder of their own, beside a link to samples/. tests/project/test_tutorial.py runs ``sh`` and ``python``
blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
REASONS = ("needs root", "needs a network", "takes minutes")
_BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>.*) -->\n)?^```console\n(?P<text>(?:(?!```).*\n)*?)```\n", re.MULTILINE)


def pages() -> Iterator[str]:
    """The pages with console blocks, as paths of the repository."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("samples/*/README.md"))):
        if "```console\n" in path.read_text():
            yield str(path.relative_to(ROOT))


def output_of(command: str, folder: Path = ROOT) -> str:
    """The output of a command, run in a folder with this environment's programs."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TZ": "UTC"}
    # the package of this tree, from any folder
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    shell = ["bash", "-c", command]
    result = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    # `check` exits with 1 if data is missing
    if result.returncode != 0 and not (result.returncode == 1 and command.startswith("iscsitrace check ")):
        raise RuntimeError(f"{command}: exit code {result.returncode}: {result.stderr}")
    return result.stdout


def page(name: str) -> str:
    """A page with the current output of its commands."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "samples").symlink_to(ROOT / "samples")
        return _BLOCK.sub(lambda block: _shown(block, Path(folder)), (ROOT / name).read_text())


def not_run() -> Iterator[tuple[str, int, str, str]]:
    """Page, line, reason and first line of each block that is not run."""
    for name in pages():
        text = (ROOT / name).read_text()
        for block in _BLOCK.finditer(text):
            if block["why"]:
                yield name, text.count("\n", 0, block.start()) + 2, block["why"], block["text"].splitlines()[0]


def _shown(block: re.Match[str], folder: Path) -> str:
    if block["why"]:
        return block[0]
    commands = [line.removeprefix("$ ") for line in block["text"].splitlines() if line.startswith("$ ")]
    lines = (line for each in commands for line in (f"$ {each}", output_of(each, folder).strip("\n")) if line)
    return "\n".join(["```console", *lines, "```", ""])


def main(arguments: list[str]) -> int:
    """Writes the pages, or only compares them; returns the exit code."""
    if "--list" in arguments:
        for name, line, why, command in not_run():
            print(f"{name}:{line}: {why}: {command}")
        return 0
    stale = [name for name in pages() if page(name) != (ROOT / name).read_text()]
    for name in stale:
        if "--check" in arguments:
            print(f"{name} is out of date: python -m tools.tutorial")
        else:
            (ROOT / name).write_text(page(name))
            print(f"{name} written")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
