"""Which captures belong together: cut captures, rings, taps, copies; and enemies: equal ports, times and seeds."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iscsitrace.cli import main, process
from iscsitrace.recording.file_names import ring_of
from iscsitrace.tables.trace import TraceTables
from iscsitrace.taps import inputs
from iscsitrace.taps.inputs import groups
from iscsitrace.taps.reading import read_each
from tests.support.capture_file import read_records, write_pcap

SAMPLES = Path(__file__).parents[2] / "samples"
EDITCAP = shutil.which("editcap") or "editcap"


def names_of(sources: list[Path]) -> set[tuple[str, ...]]:
    return {tuple(Path(each).name for each in group) for group in groups([str(each) for each in sources], ring_of)}


@pytest.fixture
def cut(tmp_path: Path) -> list[Path]:
    """A sample in four parts."""
    subprocess.run(
        [EDITCAP, "-c", "1500", SAMPLES / "loss-1-percent" / "capture.pcap.gz", tmp_path / "part.pcap"], check=True
    )
    found = sorted(tmp_path.glob("part*"))
    assert len(found) == 5
    return found


def test_parts_taps_and_unrelated_captures_in_one_folder(cut: list[Path]) -> None:
    tap, other = SAMPLES / "loss-1-percent" / "target.pcap.gz", SAMPLES / "medium-error" / "capture.pcapng.gz"
    names = tuple(each.name for each in cut)
    assert names_of([*cut, other]) == {names, (other.name,)}
    # cut parts and a tap of the whole
    assert names_of([*cut, tap, other]) == {(*names, tap.name), (other.name,)}


def test_a_ring_is_one_group_by_its_name(tmp_path: Path) -> None:
    """Its captures may have no connection in common: not even one is read."""
    files = [tmp_path / f"san_{number:05}_20261120111309.pcapng{end}" for number, end in ((1, ".zst"), (2, ""))]
    for each in files:
        each.touch()
    assert names_of(files) == {tuple(each.name for each in files)}
    assert [ring_of(name) for name in ("san.pcapng", "san_1_2.pcapng", "a/san_00001_20261120111309.pcapng.gz")] == [
        None, None, "a/san.pcapng",
    ]  # fmt: skip


def test_simulated_runs_with_the_same_ports_at_the_same_time_are_unrelated(tmp_path: Path) -> None:
    names = ("medium-error", "reordering", "black-out-and-relogin", "login-not-authorized")
    assert len(groups([str(SAMPLES / name / "capture.pcapng.gz") for name in names])) == len(names)
    words = ["simulate", "read", "-q", "--bytes", "1M", "-o", str(tmp_path)]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert len(groups([str(tmp_path / f"{tap}.pcapng") for tap in ("initiator", "target")])) == 1


def test_two_taps_are_read_once_and_only_when_confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [str(SAMPLES / "loss-1-percent" / name) for name in ("capture.pcap.gz", "target.pcap.gz")]
    done: list[str] = []

    def noted(*given: Any, **more: Any) -> list[TraceTables]:
        done.append("read")
        return read_each(*given, **more)

    monkeypatch.setattr(inputs, "read_each", noted)
    monkeypatch.setattr(process, "confine", lambda written: done.append("confine"))
    result = CliRunner().invoke(main, ["diagnose", *sources])
    assert result.exit_code == 0
    assert "same traffic at 2 taps" in result.stderr
    assert done.count("read") == 1
    assert done[0] == "confine"


def test_what_cannot_be_read_stands_alone(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pcap"
    junk.write_text("junk")
    sample = SAMPLES / "medium-error" / "capture.pcapng.gz"
    assert names_of([junk, sample]) == {("junk.pcap",), (sample.name,)}
    assert groups(["-", str(sample)]) == [("-", str(sample))]


def test_a_diagnosis_of_a_folder_has_each_group(cut: list[Path], tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "medium-error" / "capture.pcapng.gz", tmp_path / "error.pcapng.gz")
    result = CliRunner().invoke(main, ["diagnose", "--json", "--fail-on", "loss", str(tmp_path)])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert sorted(len(each["input"]) for each in found["groups"]) == [1, len(cut)]
    assert "command_errors" in {each["headline"]["name"] for each in found["groups"]}
    assert [each["failed"] for each in found["groups"]].count(["loss"]) == 1
    text = CliRunner().invoke(main, ["diagnose", str(tmp_path)])
    assert (text.exit_code, text.stdout.count("\nCaptures: ")) == (0, 2)
    # one group is shown as before
    alone = CliRunner().invoke(main, ["diagnose", "--json", *map(str, cut)])
    assert "groups" not in json.loads(alone.stdout)


def test_many_groups_begin_with_a_line_on_each(cut: list[Path], tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "medium-error" / "capture.pcapng.gz", tmp_path / "error.pcapng.gz")
    two = CliRunner().invoke(main, ["diagnose", str(tmp_path)])
    assert "Overview" not in two.stdout
    (tmp_path / "junk.pcap").write_text("junk")
    lines = CliRunner().invoke(main, ["diagnose", str(tmp_path)]).stdout.splitlines()
    assert lines[1] == "Overview: 3 groups of captures that belong together"
    assert lines[2].split() == ["captures", "verdict", "finding", "lost", "s", "headline"]
    rows = dict(zip(("error", "junk", "part"), lines[3:6], strict=True))
    assert " problem  command_errors " in rows["error"]
    assert "MEDIUM ERROR" in rows["error"]
    assert "junk.pcap is not a capture" in rows["junk"]
    assert rows["part"].startswith(f"{cut[0]} and 4 more  problem")
    # the details follow, in the same order
    assert [line.split("/")[-1] for line in lines if line.startswith("Captures: ")] == [
        "error.pcapng.gz",
        "junk.pcap",
        cut[-1].name,
    ]


def test_a_group_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "junk.pcap").write_text("junk")
    shutil.copy(SAMPLES / "medium-error" / "capture.pcapng.gz", tmp_path / "error.pcapng.gz")
    result = CliRunner().invoke(main, ["diagnose", str(tmp_path)])
    assert (result.exit_code, "MEDIUM ERROR" in result.stdout) == (2, True)
    assert "junk.pcap is not a capture" in result.stderr


@pytest.mark.parametrize("command", ["diagnose", "summary", "events", "cycles", "conformance"])
def test_a_capture_without_iscsi_has_its_own_exit_code(command: str, tmp_path: Path) -> None:
    """The first packets of a connection on another port: a handshake, and no payload."""
    records, link_type = read_records(SAMPLES / "loss-1-percent" / "capture.pcap.gz")
    bare = tmp_path / "bare.pcap"
    write_pcap(bare, records[:3], link_type)
    result = CliRunner().invoke(main, [command, str(bare)])
    assert (result.exit_code, result.stderr) == (4, "iscsitrace: no iSCSI in 3 packets on 1 TCP connection\n")
    assert CliRunner().invoke(main, [command, "-q", "--json", str(bare)]).stderr == ""
