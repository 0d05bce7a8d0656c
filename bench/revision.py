"""A revision of the project, unpacked and compiled in build/revisions, and run by its own command line.

The sources come from `git archive`, so nothing is registered with git, and `make clean` removes everything. The
packages that Python imports are those of the running interpreter, for every revision. Never touches the working tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "revisions"
MODULE = Path("iscsitrace") / "_core.abi3.so"


@dataclass(frozen=True)
class Revision:
    """A folder with the package and its compiled module."""

    name: str
    """The commit's abbreviated hash."""
    committed_at: str
    """Time of the commit, ISO 8601."""
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which `python -m iscsitrace` is this revision, wherever it is run."""
        # without the second one the current folder comes first
        return os.environ | {"PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"}


WORKING_TREE = Revision("working tree", "", ROOT)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout


def made(commit: str) -> Revision:
    """The revision of a commit, unpacked and compiled if it is not yet: minutes.

    Raises CalledProcessError if git does not know the commit, or if it does not compile.
    """
    name, committed_at = _git("show", "-s", "--abbrev=10", "--format=%h %cI", f"{commit}^{{commit}}").split()
    revision = Revision(name, committed_at, FOLDER / name)
    if not (revision.folder / MODULE).exists():
        print(f"compiling {name}", file=sys.stderr, flush=True)
        _unpack(revision)
        _compile(revision)
    return revision


def _unpack(revision: Revision) -> None:
    shutil.rmtree(revision.folder, ignore_errors=True)
    revision.folder.mkdir(parents=True)
    archive = revision.folder / "archive.tar"
    _git("archive", "--format=tar", f"--output={archive}", revision.name)
    with tarfile.open(archive) as file:
        file.extractall(revision.folder, filter="data")
    archive.unlink()


def _compile(revision: Revision) -> None:
    target = revision.folder / "target"
    command = ["cargo", "build", "--release", "--locked", "--package", "iscsitrace-python"]
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(target),
        "PYO3_PYTHON": sys.executable,
        # as maturin builds it: not linked with libpython
        "PYO3_BUILD_EXTENSION_MODULE": "1",
    }
    subprocess.run(
        [*command, "--manifest-path", str(revision.folder / "core" / "Cargo.toml")], check=True, env=environment
    )
    made = revision.folder / MODULE
    # renamed last: a module that is there is whole
    shutil.copyfile(target / "release" / "lib_core.so", made.with_suffix(".part"))
    made.with_suffix(".part").rename(made)
    shutil.rmtree(target)
