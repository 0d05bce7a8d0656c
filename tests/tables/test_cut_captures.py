"""Real captures cut afterwards, by a snaplen or at their start, against themselves in full."""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import pytest

import iscsitrace
from tests.support.truth import INSTANTS

SAMPLES = Path(__file__).parents[2] / "samples"
# one connection each, reads and writes, with and without digests, losses and login
NAMES = [
    "header-and-data-digests",
    "loss-1-percent",
    "mid-session",
    "sequential-read-4ms",
    "sequential-read-16ms",
    "write-r2t-rounds",
]


EDITCAP = shutil.which("editcap") or "editcap"


def sample(name: str) -> Path:
    (capture,) = (SAMPLES / name).glob("capture.pcap*")
    return capture


@pytest.mark.parametrize("snaplen", [96, 128])
@pytest.mark.parametrize("name", NAMES)
def test_cycles_and_instants_survive(name: str, snaplen: int, tmp_path: Path) -> None:
    cut_file = tmp_path / "cut.pcapng"
    subprocess.run([EDITCAP, "-s", str(snaplen), sample(name), cut_file], check=True)
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


@pytest.mark.parametrize("part", [0.02, 0.25, 0.33, 0.5, 0.66])
@pytest.mark.parametrize("name", [*NAMES, "any-device", "two-connections-one-session"])
def test_a_late_start_costs_the_first_pdus_only(name: str, part: float, tmp_path: Path) -> None:
    full = iscsitrace.read(sample(name))
    start = int(full.packet_count * part)
    late_file = tmp_path / "late.pcapng"
    subprocess.run([EDITCAP, "-r", sample(name), late_file, f"{start + 1}-{full.packet_count}"], check=True)
    late = iscsitrace.read(late_file)
    true = {pdu for pdu in _pdus(full, 0) if pdu[2] > start}
    found = set(_pdus(late, start))
    assert found <= true
    # only those before the first that told where its stream is
    first_found: dict[tuple[int, bool], int] = {}
    for port, to_target, frame, *_ in sorted(found):
        first_found.setdefault((port, to_target), frame)
    lost = true - found
    assert all(frame < first_found[port, to_target] for port, to_target, frame, *_ in lost)
    assert len(lost) <= (4 if full.row_count("connections") == 1 else 20)
    for row in late.pdus.rows():
        assert 0 not in (row["header_digest_ok"], row["data_digest_ok"])


def _pdus(trace: iscsitrace.Trace, frames_before: int) -> Iterator[tuple[int, bool, int, int, int]]:
    """What identifies a PDU in both: the initiator's port, direction, frame, opcode and tag."""
    ports = trace.connections["initiator_port"].tolist()
    for row in trace.pdus.rows():
        frame = row["frame_first"] + frames_before
        yield ports[row["connection"]], row["to_target"], frame, row["opcode"], row["initiator_task_tag"]
