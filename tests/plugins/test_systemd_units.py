"""The units for systemd: systemd accepts them, their exposure stays low, and the commands accept their options."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from iscsitrace.cli import main
from tools.docs import ROOT

FOLDER = ROOT / "plugins" / "systemd"
UNITS = ("iscsitrace-capture@.service", "iscsitrace-watch@.service")
EXPOSURE_MAX = 2.0
"""systemd's own scale: below 2 is its best class, 10 is a service without any restriction."""


def values(unit: str, key: str) -> list[str]:
    """All values of a key of a unit."""
    lines = (FOLDER / unit).read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def instance(unit: str, folder: Path) -> Path:
    """The unit of eth0, with a program that exists."""
    file = folder / unit.replace("@", "@eth0")
    file.write_text((FOLDER / unit).read_text().replace("/opt/iscsitrace/bin/iscsitrace", "/bin/true"))
    return file


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    done = analyzed("verify", *(instance(unit, tmp_path) for unit in UNITS))
    ours = [line for line in done.stderr.splitlines() if "iscsitrace" in line]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.parametrize("unit", UNITS)
def test_the_exposure_stays_low(unit: str, tmp_path: Path) -> None:
    file = instance(unit, tmp_path)
    arguments = ("security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}", file)
    done = analyzed(*arguments)
    assert done.returncode == 0, done.stdout
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
    assert found, done.stdout
    print(f"{unit}: exposure {found[1]}")  # noqa: T201 -- the figure of the test's log
    assert 0 < float(found[1]) < EXPOSURE_MAX
    # the bound can fail: the same service without its restrictions
    bare = "".join(f"{line}\n" for line in file.read_text().splitlines() if line.startswith(("[", "Type", "Exec")))
    file.write_text(bare)
    assert analyzed(*arguments).returncode != 0


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_accepts_its_options(unit: str) -> None:
    variables = {"LISTEN": "127.0.0.1:9432"}
    for line in values(unit, "Environment"):
        variables |= dict(word.split("=", 1) for word in shlex.split(line))
    (line,) = values(unit, "ExecStart")
    program, name, *words = line.replace("%i", "eth0").split()
    assert program == "/opt/iscsitrace/bin/iscsitrace"
    expanded: list[str] = []
    for word in words:
        if braced := re.fullmatch(r"\$\{(\w+)\}", word):
            expanded.append(variables[braced[1]])
        elif named := re.fullmatch(r"\$(\w+)", word):
            # systemd splits it at white space, and an empty one is no argument
            expanded += variables[named[1]].split()
        else:
            expanded.append(word)
    command = main.get_command(main.make_context("iscsitrace", [name], resilient_parsing=True), name)
    assert command is not None
    # fails for an option that there is not, and for an invalid value
    assert command.make_context(name, expanded).params


@pytest.mark.parametrize("unit", UNITS)
def test_it_is_restarted_watched_and_bounded(unit: str) -> None:
    single = {key: values(unit, key) for key in ("Type", "Restart", "WatchdogSec", "MemoryMax", "CPUQuota", "TasksMax")}
    assert single["Type"] == ["notify"]
    assert single["Restart"] == ["always"]
    assert all(len(found) == 1 and found[0] for found in single.values())


def test_only_a_capture_has_a_capability() -> None:
    capture, watch = UNITS
    assert values(capture, "CapabilityBoundingSet") == values(capture, "AmbientCapabilities") == ["CAP_NET_RAW"]
    assert values(watch, "CapabilityBoundingSet") == values(watch, "AmbientCapabilities") == [""]
