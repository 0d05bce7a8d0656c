"""Captures of several taps on the command line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iscsitrace.cli import main
from tests.support.runs import Run, Runs
from tests.support.tap_captures import Fault, with_fault

MS = 1_000_000
SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("taps")
    return Runs(folder)("read --one-way-delay 4ms --block-size 64K --bytes 2M --service-delay exp:2ms --seed 5")


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open() as stream:
        return list(csv.DictReader(stream))


def test_every_session_is_shown_once(run: Run) -> None:
    for ends in ((run.capture(), run.capture("target")), (run.capture("target"), run.capture())):
        result = called("summary", "--json", *ends)
        assert result.exit_code == 0
        document = json.loads(result.stdout)
        assert len(document["sessions"]) == len(document["connections"]) == 1
        assert document["connections"][0]["rtt_to_target_min_ns"] >= 8 * MS
        assert [each["name"] for each in document["taps"]] == ["initiator.pcapng", "target.pcapng"]
        assert "same traffic at 2 taps, from the initiator to the target: initiator.pcapng -> target" in result.stderr


@pytest.mark.parametrize("command", ["diagnose", "summary"])
def test_the_captures_of_all_taps_are_named(run: Run, command: str) -> None:
    ends = run.capture(), run.capture("target")
    lines = called(command, *reversed(ends)).stdout.splitlines()
    whose = "times and frame numbers are from the first capture"
    assert [line.partition(": ")[0] for line in lines[:4]] == [*map(str, ends), whose, ""]


def test_named_taps_with_parts(run: Run, tmp_path: Path) -> None:
    parts = [
        with_fault(run.capture(), tmp_path / f"{number}.pcapng", Fault(first=first, last=last))
        for number, (first, last) in enumerate([(0.0, 0.5), (0.5001, 1.0)])
    ]
    result = called(
        "diagnose", "--json", *(f"--tap=host={part}" for part in parts), f"--tap=disk={run.capture('target')}"
    )
    assert result.exit_code == 0
    places = json.loads(result.stdout)["places"]
    assert [(row["tap_a"], row["tap_b"]) for row in places["taps"]] == [("host", "disk")]
    assert places["sessions"][0]["command_count"] == 32


def test_parts_of_each_tap_are_put_together_without_names(run: Run, tmp_path: Path) -> None:
    files = [
        with_fault(run.capture(tap), tmp_path / f"{tap}{number}.pcapng", Fault(first=first, last=last))
        for tap in ("target", "initiator")
        for number, (first, last) in enumerate([(0.0, 0.6), (0.6001, 1.0)])
    ]
    result = called("summary", "--json", *files)
    assert result.exit_code == 0, result.stderr
    taps = json.loads(result.stdout)["taps"]
    assert [[Path(each["name"]).name for each in tap["input"]] for tap in taps] == [
        ["initiator0.pcapng", "initiator1.pcapng"],
        ["target0.pcapng", "target1.pcapng"],
    ]


def test_parts_of_one_capture_stay_one(run: Run, tmp_path: Path) -> None:
    parts = [
        with_fault(run.capture(), tmp_path / f"{number}.pcapng", Fault(first=first, last=last))
        for number, (first, last) in enumerate([(0.0, 0.5), (0.5001, 1.0)])
    ]
    whole = json.loads(called("summary", "--json", run.capture()).stdout)
    result = called("summary", "--json", *parts)
    assert "2 captures read as parts of one" in result.stderr
    assert json.loads(result.stdout)["sessions"] == whole["sessions"]


def test_the_same_file_twice_is_read_once(run: Run) -> None:
    result = called("summary", "--json", run.capture(), run.capture())
    assert "read once" in result.stderr
    assert (
        json.loads(result.stdout)["sessions"]
        == json.loads(called("summary", "--json", run.capture()).stdout)["sessions"]
    )


def test_the_summary_has_the_time_by_place(run: Run) -> None:
    ends = run.capture(), run.capture("target")
    result = called("summary", "--json", *ends)
    assert json.loads(result.stdout)["places"] == json.loads(called("diagnose", "--json", *ends).stdout)["places"]
    text = called("summary", *ends).stdout
    assert re.search(
        r"Session 0, median of \d+ reads and writes: [\d.]+ ms, [\d.]+ in the network, [\d.]+ in the t", text
    )
    # its parts are not those of the time breakdown, and it says so
    assert "This is the median command, by place." in text
    (grid,) = [part for part in text.split("\n\n") if part.startswith("The taps and the network between them")]
    heading, *rows = grid.splitlines()[1:]
    # a column for each two neighbours; names of rows are words, the value is the last one
    assert heading.split() == ["from", "->", "to", ends[0].name, "->", ends[1].name]
    shown = {" ".join(row.split()[:-1]): row.split()[-1] for row in rows}
    (taps,) = json.loads(result.stdout)["places"]["taps"]
    assert shown["packets lost to the initiator"] == str(taps["lost_b_to_a_packets"])
    assert shown["delay to the target p50 ms"] == f"{taps['delay_a_to_b_p50_ns'] / 1e6:.3f}"
    assert shown["clock offset at most ms"] == f"{taps['clock_offset_high_ns'] / 1e6:.3f}"
    assert len(shown) == 11
    assert "places" not in json.loads(called("summary", "--json", ends[0]).stdout)


def test_cycles_with_legs(run: Run) -> None:
    result = called("cycles", "--legs", "--json", run.capture(), run.capture("target"))
    rows = json.loads(result.stdout)["cycles"]
    legs = ("initiator_ns", "to_target_ns", "target_ns", "to_initiator_ns")
    assert len(rows) > 32
    assert all(sum(row[name] for name in legs) == row["latency_ns"] for row in rows)
    text = called("cycles", "--legs", "--top", 1, run.capture(), run.capture("target")).stdout
    assert "to initiator" in text
    assert "service" not in text


def test_the_printed_parts_of_a_command_add_up_to_its_latency() -> None:
    """A host's time is without what its TCP held: losses kept the target's data back, which the target had read."""
    taps = [str(SAMPLES / "loss-1-percent" / name) for name in ("capture.pcap.gz", "target.pcap.gz")]
    line = called("cycles", "--legs", "--top", 1, *taps).stdout.splitlines()[2]
    latency, *parts = map(float, line.split()[6:13])
    assert sum(parts) == pytest.approx(latency, abs=0.004)
    # cycle 48: its data were read in 27 ms, and waited for 938 ms
    assert (latency, parts[2], parts[5]) == (1000.728, 26.644, 937.632)


def test_exported_legs_and_taps(run: Run, tmp_path: Path) -> None:
    assert called("export", "-o", tmp_path, run.capture(), run.capture("target")).exit_code == 0
    (row,) = rows_of(tmp_path / "taps.csv")
    assert abs(int(row["clock_offset_ns"])) <= 1_000
    assert int(row["delay_a_to_b_p50_ns"]) == pytest.approx(4 * MS, abs=1_000)
    assert float(row["drift_ppm"]) == pytest.approx(0, abs=1)
    assert len(rows_of(tmp_path / "legs.csv")) > 32


def test_synchronised_clocks_are_trusted(run: Run, tmp_path: Path) -> None:
    late = with_fault(run.capture("target"), tmp_path / "late.pcapng", Fault(shift_ns=MS))
    result = called("diagnose", "--json", "--clocks", "synchronised", run.capture(), late)
    (row,) = json.loads(result.stdout)["places"]["taps"]
    assert (row["clock_offset_ns"], row["delay_a_to_b_p50_ns"], row["delay_b_to_a_p50_ns"]) == (0, 5 * MS, 3 * MS)
    assert "clocks assumed to be synchronised" in result.stderr


def test_with_a_limit_only_commands_are_compared(run: Run) -> None:
    """A limit counts the packets of each capture apart: the rest of one is no loss."""
    result = called("diagnose", "--json", "-c", 900, run.capture(), run.capture("target"))
    places = json.loads(result.stdout)["places"]
    assert places["taps"][0]["lost_b_to_a_packets"] is None
    assert places["sessions"][0]["command_count"] > 5
    assert not [each for each in places["findings"] if each["place"] != "target" and "slow" not in each["name"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summary", "--tap", "x"], "--tap needs a name and a file"),
        (["summary", "--tap", "x=NEAR"], "1 tap: there have to be 2 to 8"),
        (["summary", "--tap", "x=NEAR", "--tap", "y=NEAR"], "have the same packets"),
        (["summary", "--tap", "x=NEAR", "FAR"], "name the tap of every capture"),
        (["cycles", "--legs", "NEAR"], "needs two or more captures of the same traffic"),
        (["cycles", "--legs", "--csv", "NEAR", "FAR"], "export writes the table legs"),
        (["export", "--tables", "legs", "-o", "OUT", "NEAR"], "needs two or more captures of the same traffic"),
    ],
)
def test_what_is_refused(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    names = {"NEAR": str(run.capture()), "FAR": str(run.capture("target")), "OUT": str(tmp_path / "out")}
    filled = [
        each.replace("NEAR", names["NEAR"]).replace("FAR", names["FAR"]).replace("OUT", names["OUT"])
        for each in arguments
    ]
    result = called(*filled)
    assert result.exit_code == 2
    assert message in result.stderr
