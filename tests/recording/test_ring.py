"""The files of a ring: which stay, also over restarts, and their compression.

A program in the place of dumpcap captures, which needs no root.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import iscsitrace
from iscsitrace.recording.file_names import number_of, of_ring
from tests.support.capture_file import read_records, write_pcapng
from tests.support.conversation import Conversation
from tests.support.programs import running

_LIMIT_S = 30.0
_DUMPCAP = """#!/bin/sh
trap 'exit 0' INT TERM
cat {file}
while :; do sleep 0.05; done
"""
BESIDE = 4
"""Files that a run of `captured` begins."""


class Source:
    """A capture of whole files of a ring, and the options that make them."""

    def __init__(self, folder: Path) -> None:
        conversation = Conversation()
        conversation.session().login().read(count=40, block_bytes=4096).logout()
        packets = conversation.run().packets
        self.file = folder / "source.pcapng"
        self.per_file = len(packets) // BESIDE + 1
        write_pcapng(self.file, packets, 1)
        self.count = len(packets)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source(tmp_path)
    program = tmp_path / "bin" / "dumpcap"
    program.parent.mkdir()
    program.write_text(_DUMPCAP.format(file=made.file))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return made


def captured(source: Source, ring: Path, *options: str, hold_s: float = 0.0) -> str:
    """One capture from its start to SIGINT, when it has written everything; returns its messages."""
    words = ["capture", "--dumpcap", "always", "-i", "lo", "-w", str(ring), "-b", f"packets:{source.per_file}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "iscsitrace", *words, *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = ""
    while said.count("writing ") < BESIDE:
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(0.4 + hold_s)
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=_LIMIT_S)[1]
    assert process.returncode == 0, said
    assert f"{source.count} written" in said
    return said


def ring_of(tmp_path: Path) -> Path:
    ring = tmp_path / "ring" / "x.pcapng"
    ring.parent.mkdir()
    return ring


def test_a_ring_keeps_its_number_of_files_over_restarts(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    other = [ring.with_name(name) for name in ("x.pcapng", "y_00001_20261121190000.pcapng", "x_1_2.pcapng")]
    for path in other:
        path.write_bytes(b"not of this ring")
    for _ in range(3):
        captured(source, ring, "-b", "files:3")
    assert [number_of(path) for path in of_ring(ring)] == [10, 11, 12]
    assert all(path.exists() for path in other)
    # those of the last run, and none of them in part
    assert sum(len(read_records(path)[0]) for path in of_ring(ring)) == source.count - source.per_file


def test_a_ring_has_no_more_bytes_than_it_may(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    sizes = [path.stat().st_size for path in of_ring(ring)]
    assert len(sizes) == BESIDE
    limit = sum(sizes) + sizes[0]
    captured(source, ring, "-b", f"total:{limit // 1000}")
    # the five of the second run and the last of the first one
    assert limit - max(sizes) - 1000 <= sum(path.stat().st_size for path in of_ring(ring)) <= limit
    assert [number_of(path) for path in of_ring(ring)] == [4, 5, 6, 7, 8]


def test_old_files_go_while_nothing_new_comes(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    before = of_ring(ring)
    old, young = before[:2], before[2:]
    for path in old:
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    captured(source, ring, "-b", "age:30min")
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in young)
    # files of this capture that become old during it; the current one stays
    captured(source, ring, "-b", "age:1s", hold_s=3)
    assert [number_of(path) for path in of_ring(ring)] == [3 * BESIDE]


def test_a_ring_yields_to_a_disk_that_is_full_one_file_a_second(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    captured(source, ring, "-b", "free:1", hold_s=1.5)
    assert len(of_ring(ring)) == 2 * BESIDE
    # more than any disk has: one at each new file, and one a second
    captured(source, ring, "-b", "free:8000000T", hold_s=2.5)
    numbers = [number_of(path) for path in of_ring(ring)]
    assert numbers == list(range(numbers[0], 3 * BESIDE + 1))
    assert BESIDE + 3 <= numbers[0] <= 3 * BESIDE


def test_finished_files_are_compressed_and_read_as_before(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    names = [path.name for path in of_ring(ring)]
    captured(source, ring, "--compress", "-b", "files:5")
    files = of_ring(ring)
    assert [number_of(path) for path in files] == [4, 5, 6, 7, 8]
    # those of the earlier run, too
    assert files[0].name == f"{names[3]}.zst"
    assert {path.suffix for path in files} == {".zst"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert sorted(path.name for path in ring.parent.iterdir()) == [path.name for path in files]
    assert iscsitrace.read(*files[1:]).packet_count == source.count
    before, after = iscsitrace.read(source.file), iscsitrace.read(*files[1:])
    assert list(after.cycles.rows(["initiator_task_tag", "bytes", "status_ns"])) == list(
        before.cycles.rows(["initiator_task_tag", "bytes", "status_ns"])
    )


def test_a_file_that_another_capture_writes_stays(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    first = of_ring(ring)[0]
    with first.open("rb") as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        captured(source, ring, "-b", "files:2", "--compress")
    assert [number_of(path) for path in of_ring(ring)] == [1, 7, 8]


def test_a_watch_of_a_ring_goes_on_over_a_restart_of_its_capture(source: Source, tmp_path: Path) -> None:
    """From the last file of the first capture to the last of the second, which compresses what it has finished."""
    ring = ring_of(tmp_path)
    captured(source, ring)
    last = len(read_records(of_ring(ring)[-1])[0])
    command = [sys.executable, "-m", "iscsitrace", "watch", "--json", str(ring)]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        captured(source, ring, "--compress", hold_s=1.5)
        watch.send_signal(signal.SIGINT)
        totals = json.loads(watch.communicate(timeout=_LIMIT_S)[0].splitlines()[-1])
    assert totals["kind"] == "totals"
    assert totals["packet_count"] == last + source.count


@pytest.mark.parametrize("limit", ["files:3", "age:1h", "total:1G", "free:1G"])
def test_only_a_ring_removes_files(limit: str, tmp_path: Path) -> None:
    for words, message in ((["-b", limit], "add -b filesize"), (["--compress"], "add -b filesize")):
        command = [sys.executable, "-m", "iscsitrace", "capture", "-i", "lo", "-w", str(tmp_path / "x"), *words]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 2
        assert message in said.stderr


def test_captures_that_are_read_are_no_part_of_the_ring_that_is_written(source: Source, tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    captured(source, ring)
    before = {path: path.read_bytes() for path in of_ring(ring)}
    words = ["capture", "-r", str(next(iter(before))), "-w", str(ring)]
    command = [sys.executable, "-m", "iscsitrace", *words, "-b", "packets:10", "-b", "files:1", "--compress"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert len(of_ring(ring)) == len(before) + 1
