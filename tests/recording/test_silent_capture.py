"""`capture --trigger` on a source that falls silent in a read: a program in the place of dumpcap needs no root."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.capture_file import Record, read_records
from tests.support.hangs import cut_in_a_read

_LIMIT_S = 30.0
_DUMPCAP = """#!/bin/sh
trap 'exit 0' INT TERM
cat {file}
while :; do sleep 0.05; done
"""


@pytest.fixture
def hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The packets of a capture that stops in a read, and a dumpcap that delivers them and then nothing."""
    file = tmp_path / "source.pcapng"
    packets = cut_in_a_read(file)
    program = tmp_path / "bin" / "dumpcap"
    program.parent.mkdir()
    program.write_text(_DUMPCAP.format(file=file))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return packets


class Capture:
    """A running capture."""

    def __init__(self, out: Path, *options: str) -> None:
        words = (sys.executable, "-m", "iscsitrace", "capture", "--dumpcap", "always", "-i", "lo", "-w", str(out))
        out.unlink(missing_ok=True)
        self.out = out
        self.process = subprocess.Popen([*words, *options], stderr=subprocess.PIPE, text=True)
        self.wait(out.exists)
        self.began_s = time.monotonic()

    def wait(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < until_s, "too late"
            assert self.process.poll() is None
            time.sleep(0.02)

    def wait_for(self, records: list[Record]) -> None:
        """Until the file has got larger by that much."""
        size = self.out.stat().st_size + sum(len(record.data) for record in records)
        self.wait(lambda: self.out.stat().st_size > size)

    def frames(self) -> list[Record]:
        """What the file holds; of a running capture, whose last block may be half written, ask after the end."""
        return read_records(self.out)[0]

    def stop(self, number: int = signal.SIGINT) -> str:
        """Ends it; returns its messages."""
        self.process.send_signal(number)
        _, words = self.process.communicate(timeout=_LIMIT_S)
        return words


@pytest.fixture
def capture(tmp_path: Path, hang: list[Record]) -> Iterator[Callable[..., Capture]]:
    running: list[Capture] = []

    def start(*options: str) -> Capture:
        running.append(Capture(tmp_path / "out.pcapng", *options))
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("condition", ["no_progress>1500ms", "latency>1500ms"])
def test_a_silent_hang_is_written_within_a_second_of_its_limit(
    condition: str, hang: list[Record], capture: Callable[..., Capture]
) -> None:
    late_ms: list[float] = []
    # a busy machine may come late, but not each time
    while not late_ms or (late_ms[-1] > 1000 and len(late_ms) < 5):
        running = capture("--trigger", condition, "--before", "1000s")
        running.wait_for(hang)
        took_ms = 1000 * (time.monotonic() - running.began_s)
        words = running.stop()
        assert running.process.returncode == 0
        assert running.frames() == hang
        found = re.search(r"read of \d+ bytes at LBA \d+ has not ended after (\d+)\.\d+ ms", words)
        assert found
        # the file is created just before the packets arrive
        assert min(took_ms + 100, int(found[1])) >= 1500
        late_ms.append(max(took_ms, int(found[1])) - 1500)
    assert late_ms[-1] < 1000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_capture_that_is_stopped_in_a_hang_keeps_the_evidence(
    number: int, hang: list[Record], capture: Callable[..., Capture]
) -> None:
    running = capture("--trigger", "no_progress>1000s", "--before", "1000s")
    time.sleep(2.5)
    assert running.frames() == []
    words = running.stop(number)
    assert running.process.returncode == 0
    assert running.frames() == hang
    assert "1 command has not ended when the capture ended, the oldest after" in words


def test_a_capture_that_is_stopped_before_a_second_of_silence_was_in_no_hang(
    capture: Callable[..., Capture],
) -> None:
    running = capture("--trigger", "no_progress>1000s", "--before", "1000s")
    time.sleep(0.5)
    words = running.stop()
    assert running.frames() == []
    assert "has not ended" not in words


def test_what_a_trigger_kept_of_a_file_that_ends_in_a_hang(tmp_path: Path) -> None:
    # of a file only the packets tell the time: the read has been in flight for no time
    file, out = tmp_path / "source.pcapng", tmp_path / "out.pcapng"
    cut_in_a_read(file)
    words = (sys.executable, "-m", "iscsitrace", "capture", "-r", str(file), "-w", str(out))
    subprocess.run([*words, "--trigger", "no_progress>1s"], check=True, timeout=_LIMIT_S, capture_output=True)
    assert read_records(out)[0] == []
