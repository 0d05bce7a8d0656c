"""A number that is printed twice is one number: over all outputs of every sample and recorded capture.

Every number is said with the name of its definition; a sentence's other numbers are its own. Equal names have equal
values, but for rounding.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace import Trace
from iscsitrace.cli import main
from iscsitrace.fleet.captures import Tap
from iscsitrace.fleet.run import run
from iscsitrace.report import captures
from iscsitrace.show import summary
from tests.consistency import places
from tests.consistency.said import contradictions
from tests.support.recordings import SUFFIXES, captures_folder

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = sorted(
    file for folder in (SAMPLES, captures_folder()) for file in folder.rglob("*") if file.name.endswith(SUFFIXES)
)


def sample(name: str) -> Path:
    return next(file for file in FILES if file.parent == SAMPLES / name)


def read(file: Path) -> Trace:
    return iscsitrace.read(file, tables=captures.needed(is_large=False, has_pictures=False))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_output_contradicts_another(file: Path) -> None:
    trace = read(file)
    diagnosis, document = places.diagnosed(trace)
    assert contradictions(places.everything(trace, diagnosis, document)) == []
    for row in document["sessions"]:
        if row.get("jobs_ns"):
            assert sum(row["busy_budget"].values()) == row["jobs_ns"]
            assert sum(row["shares"].values()) == pytest.approx(1)
            assert min(row["shares"].values()) >= 0
        for finding in row.get("findings", ()):
            assert 0 <= (finding["share"] or 0) <= 1, finding["text"]
            assert (finding["cost_ns"] or 0) >= 0, finding["text"]
            assert all(start <= end for start, end in finding["spans"]), finding["text"]
            assert all(1 <= frame <= document["packet_count"] for frame in finding["frames"]), finding["text"]
            for gain in finding["gains"]:
                assert 1 < gain["throughput_factor"] <= 20, finding["text"]
                assert 0 < gain["low"] <= gain["throughput_factor"] <= gain["high"], finding["text"]
    latencies = np.ma.compressed(np.ma.asarray(trace.cycles["latency_ns"]))
    assert (latencies >= 0).all()


def test_the_outputs_that_are_compared_say_much() -> None:
    """Otherwise nothing would be compared."""
    trace = read(sample("sequential-read-4ms"))
    said = list(places.everything(trace, *places.diagnosed(trace)))
    assert {
        "diagnose --json", "diagnose", "diagnose -v", "summary --json", "report", "report, gains", "diff",
        "diff --json", "model fit", "plot time_breakdown", "headline in JSON", "finding receive_window_small in JSON",
    } <= {each.place for each in said}  # fmt: skip
    several = Counter(name for name, _ in {(each.name, each.place) for each in said})
    parts = ("receive_window", "congestion_window", "propagation", "target_service")
    assert min(several[f"time: {part}"] for part in parts) >= 5
    names = ("busy time", "throughput, read", "RTT of the path", "I/O size", "pace", "idle fraction")
    assert min(several[name] for name in names) >= 2


@pytest.mark.parametrize("name", ["sequential-read-16ms", "write-r2t-rounds", "task-abort-storage-hang"])
def test_a_live_view_ends_with_the_same_totals(name: str) -> None:
    file = sample(name)
    result = CliRunner().invoke(main, ["watch", "--no-follow", "--json", str(file)], catch_exceptions=False)
    live = list(places.of_summary(json.loads(result.stdout.splitlines()[-1]), "watch"))
    assert live
    assert contradictions([*places.of_summary(summary.as_dict(read(file))), *live]) == []


@pytest.mark.parametrize("by", ["initiator", "target", "operation"])
def test_a_dataset_says_what_a_summary_does(by: str, dataset: tuple[Path, Trace]) -> None:
    folder, trace = dataset
    summarised, kept = list(places.of_loads(trace, by)), list(places.of_fleet(folder, by))
    assert {each.subject for each in summarised} == {each.subject for each in kept} != set()
    assert contradictions([*summarised, *kept]) == []


@pytest.fixture(
    scope="module", params=["sequential-read-4ms", "task-abort-storage-hang", "two-connections-one-session"]
)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trace]:
    """A sample, as a dataset and as a trace."""
    file, folder = sample(request.param), tmp_path_factory.mktemp("fleet")
    run(folder / "data", [Tap("a", (str(file),))], worker_count=1)
    return folder / "data", read(file)
