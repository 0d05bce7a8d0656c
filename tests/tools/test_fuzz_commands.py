"""Reading commands on damaged samples; and that the damage is damage, and what is wrong is noticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.measured import usage
from tools import fuzz_commands
from tools.damage import damaged, places
from tools.fuzz_commands import Ran, tried

CASES = range(7143, 7143 + 24)
GOOD = Ran(0, "{}", "", 0.1, 1 << 20)


@pytest.mark.parametrize("case", CASES)
def test_a_reading_command_survives_a_damaged_capture(case: int) -> None:
    assert tried(case)[1] == []


def test_a_command_as_a_process() -> None:
    ran, wrong = tried(1, is_process=True)
    assert wrong == []
    assert ran.processor_s > 0
    assert ran.peak_bytes > 1 << 20


def test_the_memory_of_a_command_is_its_own() -> None:
    held = bytes(300_000_000).replace(b"\0", b"\1")
    used = usage([sys.executable, "-c", "raise SystemExit(3)"])
    assert held
    assert used.code == 3
    assert used.peak_bytes < 100_000_000
    assert usage([sys.executable, "-c", "import time; time.sleep(60)"], patience_s=0.2).code < 0


def test_every_reading_command_is_among_them() -> None:
    from iscsitrace.cli import GROUPS

    named = {command.split()[0] for command in (*fuzz_commands.QUICK, *fuzz_commands.SLOW)}
    # inspect shows what tshark reads; explain and docs read no capture; fleet has datasets of whole folders
    assert named - {"watch", "capture"} == set(GROUPS["Read captures"][1]) - {"inspect", "explain", "docs", "fleet"}


def test_damage_is_reproducible_and_changes_most_captures() -> None:
    for sample in fuzz_commands.SAMPLES:
        content = sample.read_bytes()
        made = [damaged(content, seed) for seed in range(6)]
        assert made[:2] == [damaged(content, seed) for seed in range(2)]
        assert len(set(made)) >= 5


def test_records_are_found_in_every_sample() -> None:
    import gzip

    import iscsitrace

    for sample in fuzz_commands.SAMPLES:
        content = sample.read_bytes()
        plain = gzip.decompress(content) if sample.suffix == ".gz" else content
        assert len(places(plain)) == iscsitrace.read(sample).packet_count


@pytest.mark.parametrize(
    ("ran", "words", "files", "message"),
    [
        (GOOD, "summary --json", {}, None),
        (Ran(3, "", "iscsitrace: unexpected", 0.1, 1), "summary", {}, "exit code 3"),
        (Ran(1, "", "Traceback (most recent call last)\nValueError: x", 0.1, 1), "summary", {}, "ValueError: x"),
        (Ran(2, "", "", 0.1, 1), "summary", {}, "no message"),
        (Ran(0, "", "", 11.0, 1), "summary", {}, "took 11.0 s"),
        (Ran(0, "", "", 1.0, 600_000_000), "summary", {}, "took 600 MB"),
        (Ran(0, "iqn.\x1b[2J", "", 0.1, 1), "summary", {}, "printed U+001B"),
        (Ran(0, '{"a": 1', "", 0.1, 1), "summary --json", {}, "no JSON"),
        (Ran(0, '{"a": NaN}', "", 0.1, 1), "summary --json", {}, "NaN is no JSON"),
        (Ran(0, "", "", 0.1, 1), "plot", {"output.svg": b"<svg></svg>\n"}, None),
        (Ran(0, "", "", 0.1, 1), "plot", {"output.svg": b"<svg><path"}, "half written"),
        (Ran(0, "", "", 0.1, 1), "plot", {".output.svg.x.partial": b""}, "left .output.svg.x.partial"),
        (Ran(2, "", "nothing to draw", 0.1, 1), "plot", {"output.svg": b"<svg></svg>\n"}, "failed, and left"),
    ],
)
def test_what_is_wrong_is_noticed(
    ran: Ran, words: str, files: dict[str, bytes], message: str | None, tmp_path: Path
) -> None:
    capture = tmp_path / "capture.pcap"
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = fuzz_commands._wrong(ran, words.split(), capture)
    if message is None:
        assert found == []
    else:
        assert any(message in line for line in found), found
