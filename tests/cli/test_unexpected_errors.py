"""An error that nobody expected: one line, exit code 3, and the traceback only on request."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)


FAILS = """
from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
class PanicException(BaseException):
    "Like a panic of the core, which is no Exception."
def read(*_, **__):
    raise {error}
CaptureInput.read = read
main()
"""


@pytest.mark.parametrize("error", ["OverflowError('too\\nlarge')", "KeyError('x')", "PanicException('out of bounds')"])
def test_it_is_one_line_with_a_hint(error: str) -> None:
    code = FAILS.format(error=error)
    result = run("-c", code, "summary", "a.pcap")
    assert (result.returncode, result.stdout) == (3, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"iscsitrace: unexpected error: {error.partition('(')[0]}: ")
    assert "iscsitrace --debug" in line
    with_trace = run("-c", code, "--debug", "summary", "a.pcap")
    assert with_trace.returncode == 3
    assert with_trace.stderr.startswith("Traceback (most recent call last)")
    assert with_trace.stderr.splitlines()[-1] == line


WARNS = """
import warnings
from iscsitrace.cli import main
from iscsitrace.cli.options import CaptureInput
from iscsitrace.errors import CaptureUnreadable
def read(*_, **__):
    warnings.warn("a library warns", RuntimeWarning)
    raise CaptureUnreadable("no capture")
CaptureInput.read = read
main()
"""


@pytest.mark.parametrize(
    ("python_options", "options", "is_shown"),
    [([], [], False), ([], ["--debug"], True), (["-W", "default"], [], True)],
    ids=["default", "debug", "python"],
)
def test_warnings_of_libraries_are_shown_on_request(
    python_options: list[str], options: list[str], is_shown: bool
) -> None:
    result = run(*python_options, "-c", WARNS, *options, "summary", "a.pcap")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "iscsitrace: no capture"
    assert ("a library warns" in result.stderr) == is_shown
