"""The extcap: its four phases, by hand and under tshark, and its end when its reader or its child ends.

The child of the capture is a script in this file, so that no test needs an interface or privileges.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import iscsitrace
from iscsitrace.wireshark import install as installation
from iscsitrace.wireshark.install import Folders
from tests.support.programs import running
from tests.support.runs import Runs
from tools.docs import ROOT

SCRIPT = ROOT / "plugins" / "extcap" / "iscsitrace_extcap.py"
SENTENCE = re.compile(r"^(extcap|interface|dlt|arg|value) (\{[a-z]+=.*\})$")
WAN = "--operation write --block-size 64K --queue-depth 2 --bytes 1M --one-way-delay 2ms --rate 100Mbit --loss 0.1%"
PATIENCE_S = 20


@pytest.fixture(scope="module")
def wrapper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed extcap."""
    home = tmp_path_factory.mktemp("home")
    folders = Folders(home / "c", home / "p", home / "e")
    installation.install(folders)
    return folders.extcap / installation.EXTCAP


def asked(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def sentences(program: Path, *arguments: str) -> list[tuple[str, dict[str, str]]]:
    """extcap's lines, parsed as Wireshark does."""
    done = asked(program, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = []
    for line in done.stdout.splitlines():
        match = SENTENCE.match(line)
        assert match, line
        parts = dict(part.split("=", 1) for part in match[2][1:-1].split("}{"))
        found.append((match[1], parts))
    return found


def test_the_interfaces_and_the_version(wrapper: Path) -> None:
    (extcap, *interfaces) = sentences(wrapper, "--extcap-interfaces", "--extcap-version=4.0")
    assert extcap[0] == "extcap"
    assert extcap[1]["version"] == iscsitrace.__version__
    assert "Wireshark" in Path(extcap[1]["help"].removeprefix("file://")).read_text()
    assert [(kind, parts["value"]) for kind, parts in interfaces] == [
        ("interface", "iscsitrace"),
        ("interface", "iscsitrace-wan"),
    ]


@pytest.mark.parametrize("interface", ["iscsitrace", "iscsitrace-wan"])
def test_the_link_type_and_the_arguments(wrapper: Path, interface: str) -> None:
    assert sentences(wrapper, "--extcap-interface", interface, "--extcap-dlts") == [
        ("dlt", {"number": "1", "name": "EN10MB", "display": "Ethernet"})
    ]
    printed = sentences(wrapper, "--extcap-interface", interface, "--extcap-config")
    arguments = [parts for kind, parts in printed if kind == "arg"]
    assert [parts["number"] for parts in arguments] == [str(number) for number in range(len(arguments))]
    assert len({parts["call"] for parts in arguments}) == len(arguments)
    for parts in arguments:
        values = [value for kind, value in printed if kind == "value" and value["arg"] == parts["number"]]
        assert bool(values) == (parts["type"] == "selector")
        if "validation" in parts:
            # the example in the box must be valid
            example = parts.get("default") or parts.get("placeholder") or "5"
            assert re.fullmatch(parts["validation"], example), parts


def test_the_interfaces_of_the_system_are_listed(wrapper: Path) -> None:
    printed = sentences(wrapper, "--extcap-interface", "iscsitrace", "--extcap-config")
    offered = {parts["value"] for kind, parts in printed if kind == "value" and parts["arg"] == "0"}
    assert offered == {*(path.name for path in Path("/sys/class/net").iterdir()), "any"} - {"bonding_masters"}


def test_reloading_prints_only_values(wrapper: Path) -> None:
    printed = sentences(
        wrapper, "--extcap-interface", "iscsitrace", "--extcap-config", "--extcap-reload-option", "interface"
    )
    assert {kind for kind, _ in printed} == {"value"}
    assert "lo" in {parts["value"] for _, parts in printed}


def test_a_capture_filter_is_checked(wrapper: Path) -> None:
    good = asked(wrapper, "--extcap-capture-filter", "tcp port 3260", "--extcap-interface", "iscsitrace")
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    bad = asked(wrapper, "--extcap-capture-filter", "tcp prot 3260", "--extcap-interface", "iscsitrace")
    assert "syntax error" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "there is no interface None"),
        (("--extcap-interface", "eth0", "--extcap-dlts"), "there is no interface 'eth0'"),
        (("--extcap-interface", "iscsitrace"), "started without a phase"),
        (("--extcap-interface", "iscsitrace", "--capture"), "--capture needs --fifo"),
        (("--extcap-interface", "iscsitrace-wan", "--capture", "--fifo", "/nowhere/x"), "cannot write to /nowhere/x"),
    ],
)
def test_refusals_are_one_line_errors(wrapper: Path, arguments: Sequence[str], complaint: str) -> None:
    done = asked(wrapper, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("iscsitrace: ")
    assert complaint in line


def test_a_refused_capture_closes_the_pipe(wrapper: Path, fifo: Path) -> None:
    with started(wrapper, fifo, "--extcap-interface", "iscsitrace") as process:
        # otherwise the read would wait forever for the other end to open
        assert fifo.read_bytes() == b""
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert err.startswith("iscsitrace: no interface is chosen")
    assert len(err.splitlines()) == 1


def test_nothing_of_the_package_is_loaded_before_the_capture() -> None:
    code = (
        "import runpy, sys; sys.argv = ['x', '--extcap-interface', 'iscsitrace', '--extcap-config']\n"
        f"try:\n    runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('iscsitrace', 'click', 'numpy', 'subprocess')])"
    )
    command = [sys.executable, "-IS", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o600)
    return path


@contextmanager
def started(program: Path, fifo: Path, *arguments: str, path: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """The extcap in its last phase."""
    environment = os.environ | ({"PATH": path} if path else {})
    command = [str(program), *arguments, "--capture", "--fifo", str(fifo)]
    with running(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_simulated_wan_equals_the_output_of_simulate(wrapper: Path, fifo: Path, tmp_path: Path) -> None:
    with started(wrapper, fifo, "--extcap-interface", "iscsitrace-wan", *WAN.split(), "--tap", "target") as process:
        seen = fifo.read_bytes()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "", "")
    run = Runs(tmp_path)(WAN.replace("--operation ", "") + " --congestion-control cubic --seed 1")
    assert seen == run.capture("target").read_bytes()


def test_invalid_settings_are_a_one_line_error(wrapper: Path, fifo: Path) -> None:
    with started(wrapper, fifo, "--extcap-interface", "iscsitrace-wan", "--rate", "fast") as process:
        assert fifo.read_bytes() == b""
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert "'fast' is not a rate" in line


def test_a_simulation_ends_when_its_reader_closes(wrapper: Path, fifo: Path) -> None:
    with started(wrapper, fifo, "--extcap-interface", "iscsitrace-wan", "--bytes", "64G") as process:
        with fifo.open("rb") as stream:
            assert len(stream.read(1000)) == 1000
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")


STAND_IN = """#!{python}
import os, signal, sys, time
open({log!r}, "w").write("\\n".join(sys.argv[1:]))
def end(number, frame):
    os.write(1, b"end")
    open({log!r}, "a").write("\\nSIGTERM")
    print("iscsitrace: lo: {dropped} packets dropped, {dropped} in all", file=sys.stderr)
    sys.exit({code})
signal.signal(signal.SIGTERM, end)
print("iscsitrace: a warning", file=sys.stderr, flush=True)
os.write(1, b"begin")
time.sleep({seconds})
sys.exit({code})
"""


class StandIn:
    """A folder with the extcap and a script in place of iscsitrace, which logs its arguments."""

    def __init__(self, folder: Path, *, code: int = 0, dropped: int = 0, seconds: float = 60) -> None:
        self.extcap = folder / "iscsitrace_extcap.py"
        self.extcap.write_bytes(SCRIPT.read_bytes())
        self.extcap.chmod(0o755)
        self.log = folder / "log"
        program = folder / "iscsitrace"
        program.write_text(
            STAND_IN.format(python=sys.executable, log=str(self.log), code=code, dropped=dropped, seconds=seconds)
        )
        program.chmod(0o755)
        self.path = f"{folder}:{os.environ['PATH']}"

    def logged_arguments(self) -> list[str]:
        return self.log.read_text().splitlines()

    def started(self, fifo: Path, *arguments: str) -> object:
        return started(self.extcap, fifo, "--extcap-interface", "iscsitrace", *arguments, path=self.path)


def test_a_capture_gets_the_values_of_the_dialog(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path, seconds=0)
    arguments = "--interface eth1 --learn --snaplen=128 --trigger latency>50ms --before 2s --after=1s".split()
    filters = ("--filter", "host a or host b", "--extcap-capture-filter", "tcp")
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", *arguments, *filters, path=stand_in.path
    ) as process:
        assert fifo.read_bytes() == b"begin"
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    assert stand_in.logged_arguments() == [
        *("capture", "-q", "-i", "eth1", "-w", "-"),
        *("-f", "(host a or host b) and (tcp)"),
        "--learn",
        *("-s", "128"),
        *("--trigger=latency>50ms", "--before=2s", "--after=1s"),
    ]


def test_reloading_runs_iscsitrace_and_lists_iscsi_first(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path)
    printed = {
        "interfaces": [
            {"name": "lo", "description": "", "portals": [], "can_capture": True},
            {"name": "eth1", "description": "stor{age}", "portals": [{"address": "10.0.0.2", "port": 3260}]},
        ]
    }
    (tmp_path / "iscsitrace").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(printed)}\nEND\n")
    arguments = ("--extcap-interface", "iscsitrace", "--extcap-config", "--extcap-reload-option", "interface")
    done = subprocess.run(
        [str(stand_in.extcap), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env=os.environ | {"PATH": stand_in.path},
    )
    assert done.stdout.splitlines() == [
        "value {arg=0}{value=eth1}{display=eth1: stor(age), iSCSI at 10.0.0.2:3260}{default=false}",
        "value {arg=0}{value=lo}{display=lo}{default=false}",
    ]


def test_empty_fields_are_left_out(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path, seconds=0)
    empty = "--filter= --trigger= --before=2s --after= --snaplen=0 --learn=false".split()
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", "--interface", "lo", *empty, path=stand_in.path
    ):
        assert fifo.read_bytes() == b"begin"
    assert stand_in.logged_arguments() == ["capture", "-q", "-i", "lo", "-w", "-"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_capture_cleanly(tmp_path: Path, fifo: Path, number: signal.Signals) -> None:
    stand_in = StandIn(tmp_path)
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", "--interface", "lo", path=stand_in.path
    ) as process:
        with fifo.open("rb") as stream:
            assert stream.read(5) == b"begin"
            process.send_signal(number)
            assert stream.read() == b"end"
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    assert stand_in.logged_arguments()[-1] == "SIGTERM"


def test_a_signal_while_the_child_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child may run and write before its start returns to the extcap."""
    popen = subprocess.Popen

    def started_late(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return child

    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(subprocess, "Popen", started_late)
    try:
        run = runpy.run_path(str(SCRIPT))["Run"]()
        child = run._started([sys.executable, "-c", "import time; time.sleep(60)"], subprocess.DEVNULL)
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert child.wait(timeout=PATIENCE_S) == -signal.SIGTERM
    assert child.stderr is not None
    child.stderr.close()


def test_the_capture_ends_when_its_reader_closes_even_without_packets(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path)
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", "--interface", "lo", path=stand_in.path
    ) as process:
        with fifo.open("rb") as stream:
            assert stream.read(5) == b"begin"
        _, err = process.communicate(timeout=PATIENCE_S)
    # that it could not write its last bytes is no error
    assert (process.returncode, err) == (0, "")


def test_dropped_packets_are_reported(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path, code=1, dropped=7)
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", "--interface", "lo", path=stand_in.path
    ) as process:
        with fifo.open("rb") as stream:
            assert stream.read(5) == b"begin"
            process.terminate()
            stream.read()
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert err == "iscsitrace: lo: 7 packets dropped, 7 in all\n"


def test_a_signal_before_a_reader_opens_ends_it(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path)
    with started(
        stand_in.extcap, fifo, "--extcap-interface", "iscsitrace", "--interface", "lo", path=stand_in.path
    ) as process:
        # until it waits for a reader, the signal may come too early to be handled; either way it ends
        timer = threading.Timer(0.2, process.terminate)
        timer.start()
        _, err = process.communicate(timeout=PATIENCE_S)
        timer.join()
    assert err == ""
    assert not stand_in.log.exists()


def test_a_missing_iscsitrace_is_reported_with_advice(tmp_path: Path, fifo: Path) -> None:
    stand_in = StandIn(tmp_path)
    program = tmp_path / "iscsitrace"
    program.rename(tmp_path / "python3")
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    arguments = ("--extcap-interface", "iscsitrace", "--interface", "lo")
    with started(stand_in.extcap, fifo, *arguments, path=str(tmp_path)) as process:
        assert fifo.read_bytes() == b""
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "iscsitrace wireshark install" in err


def test_tshark_captures_from_the_simulated_wan(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("XDG_", "WIRESHARK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    from iscsitrace.wireshark.install import find_folders

    installation.install(find_folders())
    settings = {"onewaydelay": "2ms", "bytes": "1M", "blocksize": "64K", "operation": "write"}
    given = [part for name, value in settings.items() for part in ("-o", f"extcap.iscsitrace_wan.{name}:{value}")]
    file = tmp_path / "seen.pcapng"
    command = ["tshark", "-q", "-i", "iscsitrace-wan", *given, "-c", "100", "-w", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    run = Runs(tmp_path_factory.mktemp("runs"))(
        "write --block-size 64K --one-way-delay 2ms --rate 320Mbit --bytes 1M --congestion-control cubic --loss 0%"
    )
    seen, expected = (iscsitrace.read(each, packet_limit=100, tables=["segments"]) for each in (file, run.capture()))
    assert seen.packet_count == expected.packet_count == 100
    for name in ("time_ns", "stream_offset_bytes", "payload_bytes"):
        assert seen.segments.raw(name).tolist() == expected.segments.raw(name).tolist()
