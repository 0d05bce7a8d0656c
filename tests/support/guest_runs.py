"""The files of a run in guests, judged by its scenario: by tshark, and by `check --truth`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

import iscsitrace
from bench.guests import first_io_s, wire
from bench.scenarios import HEALTHY, Scenario
from iscsitrace.cli import main
from iscsitrace.diagnosis.examination import examine
from iscsitrace.findings import NEEDED
from iscsitrace.lab.run_files import TRUTH, capture_name
from tests.support import tshark

ASKED_FOR = {
    *("none", "queue_depth_low", "block_size_small", "r2t_rounds", "unsolicited_data_unused"),
    "congestion_window_small",
}
"""What may lead where nothing is wrong: what the settings ask for, such as one small command at a time over an RTT of
5 ms, and the slow start of a connection that has just begun."""


def judge(scenario: Scenario, folder: Path) -> None:
    """Asserts that the files of a run are what the scenario says."""
    truth = json.loads((folder / TRUTH).read_text())
    assert bool(truth["results"]["error"]) == scenario.fails, truth["results"]["error"]
    assert [each["name"] for each in truth["faults"]] == [each.partition(",")[0] for each in scenario.faults]
    for each in truth["faults"]:
        assert truth["started_ns"] <= each["began_ns"] <= each["ended_ns"]
    for host in scenario.seen.keys() | scenario.unseen.keys():
        seen, unseen = scenario.seen.get(host, {}), scenario.unseen.get(host, ())
        frames = tshark.frames_of(folder / capture_name(host), [*seen, *unseen])
        for display_filter, least in seen.items():
            assert len(frames[display_filter]) >= least, (host, display_filter)
        for display_filter in unseen:
            assert not frames[display_filter], (host, display_filter)
    for host, least_s in scenario.gap.items():
        assert wire(folder / capture_name(host), since_s=first_io_s(folder)).silence_s >= least_s
    for host, wanted in scenario.headline.items():
        allowed = {*wanted, *(ASKED_FOR if HEALTHY in wanted else ())}
        assert leading(folder / capture_name(host)) in allowed, host
    for host in ("initiator", "target"):
        found = differences(folder / capture_name(host), folder / TRUTH)
        assert bool(found) == (host in scenario.incomplete), found


def leading(capture: Path) -> str:
    """The name of the headline of a capture."""
    headline = examine(iscsitrace.read(capture, tables=NEEDED).table).headline
    assert headline
    return headline.name


def differences(capture: Path, truth: Path) -> str:
    """What `check` prints if it finds a difference between a capture and the truth of its run."""
    checked = CliRunner().invoke(main, ["check", str(capture), "--truth", str(truth), "--fail-on", "never"])
    if checked.exception is not None and not isinstance(checked.exception, SystemExit):
        raise checked.exception
    return checked.output if checked.exit_code else ""
