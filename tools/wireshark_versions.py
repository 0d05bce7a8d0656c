"""Runs the tests of Wireshark's side under Wireshark versions of other Debian suites, and `check --against tshark`.

``python -m tools.wireshark_versions [SUITE...]``: trixie and unstable by default. Prints a row for each, and exits with
1 if a test failed or a difference was unexplained.

mmdebstrap unpacks tshark and its libraries into build/wireshark/SUITE, once; nothing is installed. patchelf makes its
programs find their own loader and libraries there, so that they run beside everything else of this machine: the tests,
and the scripts that tshark starts, use this machine's Python. Wireshark 4.4 runs no scripts as root, so for root the
tests run in a user namespace, as another user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "wireshark"
SUITES = ("trixie", "unstable")
TESTS = (
    *("tests/plugins", "tests/wireshark", "tests/show/test_sidecar.py"),
    *("tests/compare/test_second_opinion.py", "tests/events/test_events_of_captures.py"),
)
"""Folders and files with tests that run tshark on captures."""
_SELECTED = "not needs_root and not needs_peers and not needs_guests"
_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
# an archive may be a copy of another day: packages are signed all the same
_OPTIONS = ("--quiet", "--variant=extract", "--include=tshark", "--aptopt=Acquire::Check-Valid-Until false")
_ELF = b"\x7fELF"
_PASSED = re.compile(r"(\d+) passed")
_FAILED = re.compile(r"(\d+) (?:failed|error)")


@dataclass(frozen=True)
class Outcome:
    """What one version showed."""

    version: str
    passed_count: int
    failed_count: int
    test_s: float
    pdu_count: int
    shown_count: int
    """PDUs of the samples that tshark shows, at most."""
    unexplained_count: int

    @property
    def is_good(self) -> bool:
        """Whether every test passed and every difference was explained."""
        return self.passed_count > 0 and not self.failed_count and not self.unexplained_count


def main() -> None:
    """Runs the suites of the command line."""
    outcomes = [_outcome(suite) for suite in sys.argv[1:] or SUITES]
    print(f"{'tshark':12}{'tests':>8}{'failed':>8}{'s':>6}{'PDUs':>8}{'shown':>8}{'unexplained':>13}")
    for each in outcomes:
        tests = f"{each.passed_count:>8}{each.failed_count:>8}{each.test_s:>6.0f}"
        print(f"{each.version:12}{tests}{each.pdu_count:>8}{each.shown_count:>8}{each.unexplained_count:>13}")
    sys.exit(not all(each.is_good for each in outcomes))


def _outcome(suite: str) -> Outcome:
    programs = unpacked(suite)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    version = _output(environment, "tshark", "--version").partition(".\n")[0].split()[-1]
    print(f"{suite}: tshark {version}", flush=True)
    begun = time.monotonic()
    workers = ("--numprocesses=2", "--dist=worksteal")
    command = [sys.executable, "-m", "pytest", "-q", "-m", _SELECTED, "-p", "no:cacheprovider", *workers, *TESTS]
    done = subprocess.run(
        [*_as_user(), *command], cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, text=True
    )
    test_s = time.monotonic() - begun
    if done.returncode:
        print(done.stdout)
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    counts = [int(found[1]) if (found := pattern.search(last)) else 0 for pattern in (_PASSED, _FAILED)]
    # a run that broke off has no line of counts
    failed_count = counts[1] or int(done.returncode != 0)
    return Outcome(version, counts[0], failed_count, test_s, *_compared(environment))


def unpacked(suite: str) -> Path:
    """The folder with the programs of a suite, made first if it is missing."""
    tree = FOLDER / suite
    programs = tree / "usr" / "bin"
    if not (programs / "tshark").exists():
        making = FOLDER / f"{suite}.part"
        shutil.rmtree(making, ignore_errors=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        # Debian's programs, found on PATH as in tools/setup
        subprocess.run(["mmdebstrap", *_OPTIONS, "--format=directory", suite, str(making)], check=True)
        making.rename(tree)
    # tshark also starts the extcaps of its package
    for program in (*programs.iterdir(), *tree.glob("usr/lib*/**/wireshark/extcap/*")):
        if not program.is_symlink() and program.read_bytes()[:4] == _ELF:
            _bind(program, tree)
    return programs


def _bind(program: Path, tree: Path) -> None:
    """Makes a program use the loader and the libraries of its tree, at the place where it is now."""
    (libraries,) = (tree / "usr" / "lib").glob("*-linux-gnu")
    (loader,) = libraries.glob("ld-linux*")
    places = ("--set-interpreter", str(loader), "--force-rpath", "--set-rpath", str(libraries))
    if _output(os.environ, "patchelf", "--print-interpreter", str(program)).strip() != str(loader):
        subprocess.run(["patchelf", *places, str(program)], check=True)


def _as_user() -> tuple[str, ...]:
    return _USER if os.getuid() == 0 else ()


def _compared(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """PDUs of all samples, those that tshark shows, and unexplained differences."""
    pdus = shown = unexplained = 0
    for sample in sorted((ROOT / "samples").glob("*/capture.pcap*")):
        command = [sys.executable, "-m", "iscsitrace", "check", "--json", "--against", "tshark", str(sample)]
        done = subprocess.run(
            [*_as_user(), *command], cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(done.stdout)["against_tshark"]
        pdus += found["our_pdu_count"]
        shown += max(found["tshark_pdu_count"], found["tshark_pdu_count_in_order_of_arrival"])
        unexplained += found["unexplained_count"]
    return pdus, shown, unexplained


def _output(environment: Mapping[str, str], *command: str) -> str:
    done = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
