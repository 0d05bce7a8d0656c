"""A snaplen costs nothing but what lies beyond it: real captures cut afterwards, against themselves in full."""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect_left
from pathlib import Path

import pytest

import iscsitrace

SAMPLES = Path(__file__).parents[1] / "samples"
INSTANTS = [
    "command_first_ns",
    "command_last_ns",
    "r2t_first_ns",
    "data_first_ns",
    "data_last_ns",
    "data_acked_ns",
    "status_ns",
]
# one connection each, reads and writes, with and without digests, losses and login
NAMES = [
    "header-and-data-digests",
    "loss-1-percent",
    "mid-session",
    "sequential-read-4ms",
    "sequential-read-16ms",
    "write-r2t-rounds",
]


def sample(name: str) -> Path:
    (capture,) = (SAMPLES / name).glob("capture.pcap*")
    return capture


@pytest.mark.parametrize("snaplen", [96, 128])
@pytest.mark.parametrize("name", NAMES)
def test_cycles_and_instants_survive(name: str, snaplen: int, tmp_path: Path) -> None:
    cut_file = tmp_path / "cut.pcapng"
    subprocess.run([shutil.which("editcap") or "editcap", "-s", str(snaplen), sample(name), cut_file], check=True)
    full = iscsitrace.read(sample(name), tables=("segments",))
    times = sorted(set(full.segments["time_ns"].tolist()))
    cut = {(row["connection"], row["command_frame"]): row for row in iscsitrace.read(cut_file).cycles.rows()}

    def is_near(ours: int | None, true: int | None) -> bool:
        if ours is None or true is None:
            return ours is true
        return abs(bisect_left(times, ours) - bisect_left(times, true)) <= 1

    true_cycles = {(row["connection"], row["command_frame"]): row for row in full.cycles.rows()}
    assert cut.keys() == true_cycles.keys()
    near = [all(is_near(cut[key][name], row[name]) for name in INSTANTS) for key, row in true_cycles.items()]
    assert sum(near) >= 0.95 * len(near)
    for key, row in true_cycles.items():
        assert cut[key]["bytes"] == row["bytes"]
        assert cut[key]["initiator_task_tag"] == row["initiator_task_tag"]
