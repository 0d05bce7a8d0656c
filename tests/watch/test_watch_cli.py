"""``iscsitrace watch`` as a command: its output, its options, its exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from iscsitrace.watch import source
from tests.support.capture_file import drops
from tests.support.closed_pipe import closed_after_a_line
from tests.support.programs import running
from tests.watch.test_watch import SAMPLES, figures, unpacked

SMALL = next(path for path in SAMPLES if path.parent.name == "two-connections-one-session")


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def documents(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_ends_with_the_summary() -> None:
    result = run("watch", "--no-follow", "--json", str(SMALL))
    assert result.exit_code == 0, result.output
    *intervals, totals = documents(result)
    assert totals["kind"] == "totals"
    assert {document["kind"] for document in intervals} == {"interval"}
    assert {document["schema"] for document in (*intervals, totals)} == {1}
    summary = json.loads(run("summary", "--json", str(SMALL)).stdout)
    assert figures(totals) == {name: value for name, value in summary.items() if name in figures(totals)}
    # mirrors and numbers of connections are not looked for while traffic goes by
    not_live = {"mirrors", "connection_counts"}
    assert set(figures(totals)) == set(summary) - {"schema", "tool", "input", "options", *not_live}


def test_the_address_of_the_metrics_is_not_part_of_the_output() -> None:
    result = run("watch", "--no-follow", "--json", "--prometheus", "127.0.0.1:0", str(SMALL))
    assert documents(result)[-1]["kind"] == "totals"
    assert re.fullmatch(r"iscsitrace: serving http://127\.0\.0\.1:\d+/metrics\n", result.stderr)


def test_plain_lines_and_totals() -> None:
    result = run("watch", "--no-follow", "--interval", "500ms", str(SMALL))
    assert result.exit_code == 0
    assert "all: read" in result.stdout
    assert "session 0: read" in result.stdout
    assert "Latency in ms" in result.stdout


def test_a_packet_count_stops_it() -> None:
    for option in (("-c", "100"), ("-a", "packets:100")):
        result = run("watch", "--no-follow", "--json", *option, str(SMALL))
        assert documents(result)[-1]["packet_count"] == 100


def test_a_filter_is_in_libpcaps_syntax() -> None:
    result = run("watch", "--no-follow", "--json", "-f", "port 1", str(SMALL))
    assert documents(result)[-1]["packet_count"] == 0
    result = run("watch", "--no-follow", "--json", "-f", "port and and", str(SMALL))
    assert result.exit_code == 2
    assert "capture filter" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no such file, and no such interface"),
        (("--interval", "5ms", "-"), "at least 10ms"),
        (("-s", "100", "-"), "only an interface"),
        (("--prometheus", "host:1", "-"), "is not a port or an address and port"),
        (("-a", "files:3", "-"), "is not a limit; write one of duration:VALUE, packets:VALUE"),
        ((), "Missing argument"),
    ],
)
def test_invalid_options_are_reported(arguments: tuple[str, ...], said: str) -> None:
    result = run("watch", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_invalid_capture_is_reported(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"this is no capture at all")
    result = run("watch", "--no-follow", str(junk))
    assert result.exit_code == 2
    assert "is not a capture" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_drops_reported_by_the_capture_are_data_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(unpacked(SMALL) + drops(7))
    result = run("watch", "--no-follow", "--json", str(path))
    found = {row["name"]: row["count"] for row in documents(result)[-1]["counters"]}
    assert found["dropped_by_capture"] == 7
    assert result.exit_code == 1


def test_a_pipe() -> None:
    # a separate process, whose standard input is a pipe
    content = unpacked(SMALL)
    found = subprocess.run(
        [sys.executable, "-m", "iscsitrace", "watch", "--json", "-"],
        input=content,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    totals = json.loads(found.stdout.splitlines()[-1])
    summary = json.loads(run("summary", "--json", str(SMALL)).stdout)
    assert totals["volumes"] == summary["volumes"]


def test_a_closed_output_pipe_is_no_error() -> None:
    """Also of a process that may no longer open any file, /dev/null included."""
    command = [sys.executable, "-m", "iscsitrace", "watch", "--json", "--no-follow", "--interval", "10ms", str(SMALL)]
    assert closed_after_a_line(command) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    content = unpacked(SMALL)
    path = tmp_path / "growing.pcapng"
    path.write_bytes(content)
    with running(
        subprocess.Popen([sys.executable, "-m", "iscsitrace", "watch", "--json", str(path)], stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert json.loads(first)["kind"] == "interval"
        process.send_signal(number)
        rest = process.stdout.read().splitlines()
        assert process.wait(60) == 0
    summary = json.loads(run("summary", "--json", str(SMALL)).stdout)
    assert json.loads(rest[-1])["volumes"] == summary["volumes"]


def test_an_interface_is_captured_by_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child gets the filter, its stream is read to its end, and its refusal is the exit code."""
    asked = []

    def command(interface: str, capture_filter: str | None, options: Any) -> list[str]:
        asked.append((interface, capture_filter))
        # compressed or not, both are read
        return ["cat", str(SMALL)]

    monkeypatch.setattr(source, "capture_command", command)
    result = run("watch", "--json", "-f", "port 3260", "lo")
    assert asked == [("lo", "port 3260")]
    assert result.exit_code == 0
    summary = json.loads(run("summary", "--json", str(SMALL)).stdout)
    assert documents(result)[-1]["volumes"] == summary["volumes"]
    refusal = [sys.executable, "-c", "import sys; sys.exit('no permission')"]
    monkeypatch.setattr(source, "capture_command", lambda *_: refusal)
    result = run("watch", "--json", "lo")
    assert result.exit_code == 1
    assert result.stderr == "no permission\n"


def test_the_duration_ends_it() -> None:
    """Although the pipe stays open, without further bytes."""
    command = [sys.executable, "-m", "iscsitrace", "watch", "--json", "-a", "duration:0.2", "-"]
    with running(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # no more than a pipe takes
        process.stdin.write(unpacked(SMALL)[:50_000])
        process.stdin.flush()
        last = process.stdout.read().splitlines()[-1]
        assert process.wait(60) == 0
    assert json.loads(last)["kind"] == "totals"


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with running(
        subprocess.Popen([sys.executable, "-m", "iscsitrace", "watch", "--json", str(path)], stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        path.write_bytes(unpacked(SMALL))
        totals = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(60) == 0
    summary = json.loads(run("summary", "--json", str(SMALL)).stdout)
    assert totals["volumes"] == summary["volumes"]


def test_keys_come_from_the_terminal_if_packets_come_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "whole.pcapng"
    path.write_bytes(unpacked(SMALL))
    messages = tmp_path / "messages"
    # with messages in a file, the screen is on standard output
    watch = f"cat {path} | {sys.executable} -m iscsitrace watch - 2>{messages}"
    with running(
        subprocess.Popen(
            [shutil.which("script") or "script", "-qec", watch, "/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown = b""
        while b"q quits" not in shown:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            assert piece, shown
            shown += piece
        process.stdin.write(b"q")
        process.stdin.flush()
        rest = process.stdout.read()
        assert process.wait(60) == 0
    assert b"Latency in ms" in rest
    assert messages.read_bytes() == b""
