"""Of a part of a capture (--from): times, frames and sentences as of the whole, and a line that says what was read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main

SAMPLE = Path(__file__).parents[2] / "samples" / "black-out-and-relogin" / "capture.pcapng.gz"
PART = ("--from", "0.5s")


def shown(command: str, *options: str) -> str:
    result = CliRunner().invoke(main, [command, *options, str(SAMPLE)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def times(output: str) -> dict[int, str]:
    """The time of each frame in a table of commands or events."""
    lines = output.splitlines()
    place = next(number for number, line in enumerate(lines) if " frame" in line)
    frame_end, time_end = (lines[place].index(name) + len(name) for name in (" frame", "time"))
    found = [(row[:frame_end].split()[-1:], row[:time_end].split()[-1:]) for row in lines[place + 1 :]]
    return {int(frame[0]): time[0] for frame, time in found if frame and frame[0].isdigit()}


@pytest.fixture(scope="module")
def relative() -> dict[int, float]:
    """The time of each frame since the first, as tshark has it."""
    words = ["tshark", "-r", str(SAMPLE), "-T", "fields", "-e", "frame.number", "-e", "frame.time_relative"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {int(number): float(time) for number, time in (line.split() for line in out.splitlines())}


@pytest.mark.parametrize("command", ["cycles", "events"])
def test_times_count_from_the_first_packet_of_the_capture(command: str, relative: dict[int, float]) -> None:
    whole, part = times(shown(command)), times(shown(command, *PART))
    assert 0 < len(part) < len(whole)
    assert part.items() <= whole.items()
    if command == "events":
        assert all(float(time) == pytest.approx(relative[frame], abs=1e-6) for frame, time in part.items())


def test_a_filter_means_the_times_that_are_shown() -> None:
    chosen = times(shown("cycles", *PART, "-Y", "time > 14.5s && time < 14.6s"))
    assert chosen
    assert all(14.5 < float(time) < 14.6 for time in chosen.values())


def test_sentences_have_the_same_times_and_the_header_says_what_was_read(relative: dict[int, float]) -> None:
    whole, part = (shown("diagnose", *options).splitlines() for options in ((), PART))
    read = sum(time >= 0.5 for time in relative.values())
    assert part[1].startswith(f"{read:,} of these {len(relative):,} packets read; ")
    assert not any("packets read" in line for line in whole)
    assert part[3] == whole[2]
    assert " from 1.09 s to 14.10 s" in whole[2]


def test_the_display_filter_of_an_event_means_its_frames() -> None:
    document: dict[str, Any] = json.loads(shown("events", "--json", *PART))
    first_ns = document["input"][0]["time_first_ns"]
    filters = {row["time_ns"]: row["display_filter"] for row in document["events"] if row["frame"] is None}
    assert filters
    for time_ns, text in filters.items():
        (start,) = re.findall(r"frame.time_relative >= ([\d.]+)", text)
        assert float(start) == pytest.approx((time_ns - first_ns) / 1e9, abs=1e-6)
