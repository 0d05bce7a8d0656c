"""What a command needs beyond the package's own requirements: nothing to read, and a line that names the extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace import extras
from iscsitrace.cli import main
from tools.docs import ROOT

SAMPLE = str(ROOT / "samples" / "sequential-read-4ms" / "capture.pcapng.gz")
OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MODULES = (
    "bcrypt",
    "dask",
    "distributed",
    "duckdb",
    "fsspec",
    "jinja2",
    "matplotlib",
    "pandas",
    "paramiko",
    "perfetto",
    "prometheus_client",
    "pyarrow",
    "pyshark",
    "rich",
    "textual",
    "tornado",
    "yaml",
)
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({MODULES!r}))
from iscsitrace.cli import main
main(prog_name="python -m iscsitrace")
"""
"""The command where none of the extras is installed."""


def bare(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *arguments], check=False, capture_output=True, text=True, cwd=folder
    )


@pytest.mark.parametrize(
    "command",
    [
        "summary", "summary --by lun", "diagnose", "diagnose --json", "cycles --top 3", "events", "conformance",
        "check", "export -o tables", "explain queue_depth_low", "mirrors", "model fit", "model plan --hide 90%",
        "anonymise -o handed-on.pcapng", "--help", "plot --help", "report --help",
    ],
)  # fmt: skip
def test_reading_needs_no_extra(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *options = command.split()
    captures = [] if name in ("explain", "--help") or "--help" in options else [SAMPLE]
    done = bare(name, *options, *captures, folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [name, *options, *captures, *(["--force"] if "-o" in options else [])]
    # the width of help outside of a terminal
    usual = CliRunner().invoke(main, words, prog_name="python -m iscsitrace", terminal_width=78)
    assert (done.returncode, done.stderr) == (usual.exit_code, usual.stderr)
    assert done.stdout == usual.stdout


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (f"plot latency -o plot.png {SAMPLE}", "matplotlib"),
        (f"report -o report.html {SAMPLE}", "matplotlib|jinja2"),
        (f"watch --prometheus 127.0.0.1:0 --no-follow {SAMPLE}", "prometheus_client|tornado"),
        (f"export --format parquet -o tables {SAMPLE}", "pyarrow"),
        (f"inspect --cycle 1 {SAMPLE}", "pyshark"),
        (f"fleet run -o dataset {SAMPLE}", "pyarrow"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(command: str, module: str, tmp_path: Path) -> None:
    done = bare(*command.split(), folder=tmp_path)
    assert done.returncode == 2
    line = re.fullmatch(rf"iscsitrace: .+ needs ({module}): pip install 'iscsitrace\[(\w+)\]'\n", done.stderr)
    assert line, done.stderr
    brought = {re.split("[>=]", each)[0].replace("-", "_") for each in OPTIONAL[line[2]]}
    assert line[1] in brought


def test_an_import_that_nobody_guards_is_one_line_too() -> None:
    """As one of a package that an extra installs, in a file that a command loads."""
    program = (
        "import sys; sys.modules['perfetto'] = None\n"
        "import iscsitrace.show.explain as page\n"
        "from iscsitrace.cli import main\n"
        "def page_without(*_): import perfetto\n"
        "page.page = page_without\n"
        "main(['explain', 'loss'])"
    )
    finished = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    line = "iscsitrace: explain needs perfetto: pip install 'iscsitrace[perfetto]'\n"
    assert (finished.returncode, finished.stderr) == (2, line)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_an_extra_that_is_offered(module: str) -> None:
    assert extras.of_module(module) in set(OPTIONAL) - {"all", "dev", "mutants", "wheel"}
    assert extras.of_module("no_such_package") is None
