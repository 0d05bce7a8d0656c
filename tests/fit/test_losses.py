"""Commands under losses: loss rate and throughput against what was lost, and models beside each other by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid
from iscsitrace.fit import rivalry, steady
from iscsitrace.fit.points import Losses, Point
from iscsitrace.fit.rivalry import RIVALS, Candidate, Rival, Rivalry, compare
from iscsitrace.fit.steady import NEEDED, survey
from iscsitrace.fit.steady import points as steady_points
from iscsitrace.model.setting import Setting
from iscsitrace.model.uncertainty import Estimate
from iscsitrace.show import model_fit as tables
from tests.fit.test_sweep import point
from tests.support.recordings import recorded_captures
from tests.support.runs import Run, Runs

LOSSY = "read --one-way-delay 8ms --rate 320Mbit --block-size 1M --bytes 48M --set to-initiator-loss=0.2% --seed 3"
KERNEL = [each for each in recorded_captures() if each.name.startswith("04_read_loss1pct")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Runs(tmp_path_factory.mktemp("losses"))(LOSSY)


def points_of(file: Path) -> tuple[Point, ...]:
    return survey(iscsitrace.read(file, tables=NEEDED).table, file.name).points


def lossy(file: Path) -> Losses:
    (found,) = points_of(file)
    assert found.losses is not None
    return found.losses


@pytest.mark.parametrize("tap", ["initiator", "target"])
def test_the_loss_rate_and_the_throughput_are_those_of_the_run(run: Run, tap: str) -> None:
    """The link counts what it dropped. Two drops in one window are one loss; the last command has no period."""
    (path,) = json.loads((run.folder / "truth.json").read_text())["paths"]
    dropped = path["to_initiator"]["counters"]["lost"]["count"]
    assert dropped > 40
    found = lossy(run.capture(tap))
    assert 0.8 * dropped <= found.loss_count <= dropped
    assert found.setting.loss == pytest.approx(found.loss_count / found.segment_count, rel=1e-3)
    assert found.segment_count == pytest.approx(48 * (1 << 20) / 1_448, rel=0.05)
    assert found.throughput.low <= run.throughput <= found.throughput.high
    assert found.throughput.value == pytest.approx(run.throughput, rel=0.05)


@pytest.mark.skipif(not KERNEL, reason="no recorded captures")
@pytest.mark.parametrize("file", KERNEL, ids=lambda file: file.name)
def test_a_kernel_recovers_from_as_many_losses(file: Path) -> None:
    """TcpExtTCPSackRecovery is 32, and one tail loss probe; dd reads 6 MiB in 5.91 s."""
    found = lossy(file)
    assert found.loss_count in (32, 33)
    assert found.throughput.low <= 1.064e6 <= found.throughput.high
    assert found.throughput.value == pytest.approx(1.064e6, rel=0.05)
    assert found.setting.congestion_control == "cubic"


def test_a_capture_without_a_steady_command_has_a_fit_with_its_losses() -> None:
    """A loss in a hundred packets: no command of 360 comes through without one."""
    file = Path(__file__).parents[2] / "samples" / "loss-1-percent" / "capture.pcap.gz"
    assert steady_points(iscsitrace.read(file, tables=NEEDED).table, "a") == []
    result = CliRunner().invoke(main, ["model", "fit", "--json", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["setting"]["loss"] == pytest.approx(32 / 4_345, rel=0.01)
    # which delays are whose is hidden by the losses: those of the legs
    assert (found["k"]["value"], found["k"]["source"]) == (2, "assumed")
    assert any(line.startswith("k: with losses in all commands") for line in found["undetermined"])
    assert any(line.startswith("steady commands: losses leave none at 1 point") for line in found["undetermined"])
    # s is what the packets show, not what the model of losses leaves: a residual that says something
    assert found["s_ns"]["source"] == "packets"
    assert not any(line.startswith("residuals: with a single point") for line in found["undetermined"])
    (row,) = found["residuals"]
    assert "with 32 losses" in row["point"]
    assert 0 < abs(row["residual"]) < 0.2
    assert [each["name"] for each in found["under_losses"]["models"]] == [each.name for each in RIVALS]


def test_few_losses_tell_no_rate(tmp_path: Path) -> None:
    run = Runs(tmp_path)(LOSSY.replace("48M", "16M").replace("0.2%", "0.02%"))
    (found,) = points_of(run.capture())
    assert found.losses is None
    assert compare([found]) is None


# --- parts of the time


def test_each_part_is_judged_by_the_loss_rate_of_the_others() -> None:
    """Two parts of 20 losses in 8 cycles of 100 segments and 1000 bytes: 4 and 16 losses, 40 and 80 ns."""
    lost = np.array([1, 1, 1, 1, 4, 4, 4, 4])
    lengths = np.array([10] * 4 + [20] * 4)
    assert steady._folds(lost[:8], np.full(8, 100.0), np.full(8, 1_000), lengths)[0] == (
        # four parts of 5 losses each: 18 of the losses are in the other 600 segments
        18 / 600,
        100e9,
    )
    none = np.array([6, 0])
    # without the first part there is no loss rate
    assert steady._folds(none, np.full(2, 100.0), np.full(2, 1_000), np.full(2, 10)) == [(6 / 100, 100e9)]


def with_losses(folds: tuple[tuple[float, float], ...]) -> Point:
    setting = Setting("read", 65_536, 4e6, loss=0.01)
    return point(4.0, losses=Losses(setting, None, 32, 3_200, 12, Estimate(1e6, 0.9e6, 1.2e6, "packets"), folds))


def models(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    found = tuple(Rival(name, f"by {name}", function) for name, function in functions.items())  # type: ignore[arg-type]
    monkeypatch.setattr(rivalry, "RIVALS", found)


def test_a_model_does_not_see_the_losses_of_the_part_that_it_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    models(monkeypatch, one=lambda setting: 1e8 * setting.loss)
    found = compare([with_losses(((0.01, 1e6), (0.03, 2e6), (0.02, 1e6))), point(1.0)])
    assert found is not None
    assert len(found.points) == 1
    (one,) = found.candidates
    assert one.errors == pytest.approx((0, 0.5, 1))
    assert one.error == pytest.approx(0.5)
    # as a whole with the loss rate of the whole
    assert one.predicted_bytes_per_s == (1e6,)


def candidates(*errors: tuple[float, ...]) -> Rivalry:
    made = [
        Candidate(replace(RIVALS[number], name="abc"[number]), (1.1e6,), each) for number, each in enumerate(errors)
    ]
    return Rivalry((with_losses(((0.01, 1e6),)),), tuple(made))


def names(found: Rivalry) -> str:
    return "".join(each.rival.name for each in found.best)


def test_the_best_model_is_the_one_with_the_least_median_error() -> None:
    assert names(candidates((0.5, -0.51, 0.49), (0.1, -0.12, 0.11), (0.3, 0.31, -0.3))) == "b"


def test_a_model_that_is_worse_by_chance_may_be_the_best() -> None:
    scattered = candidates((0.1, 0.1, 0.1, 0.1), (0.0, 0.3, 0.05, 0.25), (0.4, 0.41, 0.42, 0.4))
    assert names(scattered) == "ab"
    assert "These parts cannot tell it apart from b." in tables.section_of_rivals(scattered).lines[0]
    # two parts tell nothing apart
    assert names(candidates((0.5, 0.5), (0.1, 0.1))) == "ba"


def test_a_model_without_a_throughput_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(setting: Setting) -> float:
        raise InputInvalid("not covered")

    models(monkeypatch, one=lambda setting: 1e6, two=fails)
    found = compare([with_losses(((0.01, 1e6), (0.02, 1.1e6), (0.01, 1e6)))])
    assert found is not None
    assert names(found) == "one"
    section = tables.section_of_rivals(found)
    assert section.grids[0].rows[0][-2:] == ("+0.0", "-")
    assert [row[1] for row in section.grids[1].rows] == ["0.0", "-"]
    assert found.as_dict()["models"][1]["median_error"] is None


def test_the_table_has_the_error_of_each_model() -> None:
    section = tables.section_of_rivals(candidates((0.5, -0.51, 0.49), (0.1, -0.12, 0.11), (0.3, 0.31, -0.3)))
    assert section.lines == ("Least error: b, median 11 % over 3 parts of the time.",)
    row = dict(zip(section.grids[0].columns, section.grids[0].rows[0], strict=True))
    assert (row["losses"], row["loss %"], row["MB/s"], row["low"], row["high"]) == (
        "32",
        "1.000",
        "1.000",
        "0.900",
        "1.200",
    )
    assert (row["a %"], row["b %"]) == ("+10.0", "+10.0")
    assert [each[0] for each in section.grids[1].rows] == ["b", "c", "a"]
