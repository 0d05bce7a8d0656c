"""The table of corrections: each row has what was measured before, what a record has now, and what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.experiments import catalogue, comparison, definition, records
from iscsitrace.experiments.points import of_experiment
from tests.experiments.test_corrections import STUDY, ran
from tools import corrections, studies
from tools.studies import World

MORE = """
[[corrections.values]]
quantity = "throughput"
of = { arm = "all", link.one-way-delay = "5ms" }
over = { arm = "all", link.one-way-delay = "0ms" }
printed = 0.25

[[corrections]]
what = "verdicts"
first-version = "There were none."
outcome = "claims of the study"
was = "a ratio"
"""


def rows(folder: Path, text: str, *, has_run: bool = True) -> list[list[str]]:
    (folder / "small.toml").write_text(text)
    found = definition.load(folder / "small.toml")
    run, measured = None, []
    if has_run:
        results = ran(found)
        records.keep(found, results, folder)
        run, measured = records.of_world("small", "simulated", folder), comparison.rows(results.points)
    world = World("simulated", run, measured, tuple(of_experiment(found, "simulated")))
    lines = corrections.section([(found, [world])])
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| [small]")]


def test_numbers_stand_side_by_side_and_equal_ones_once(tmp_path: Path) -> None:
    numbers, words = rows(tmp_path, STUDY + MORE)
    command = "`iscsitrace lab run small -o DIR`"
    assert numbers == [
        "[small](#small): throughput far away",
        "throughput after the warm-up: all, block-size 64K, one-way-delay 10ms / 5ms, over all, block-size 64K, "
        "one-way-delay 0ms",
        "It was not measured.",
        "0.5 / - times",
        "0.25 / 0.50 times",
        "-",
        "0.25 times",
        command,
    ]
    assert words == [
        "[small](#small): verdicts",
        "claims of the study",
        "There were none.",
        "a ratio",
        "-",
        "-",
        "-",
        "-",
    ]


def test_without_a_run_nothing_is_measured(tmp_path: Path) -> None:
    (numbers,) = rows(tmp_path, STUDY, has_run=False)
    assert numbers[3:] == ["0.5 times", "-", "-", "0.25 times", "-"]


@pytest.mark.parametrize("name", [name for name in catalogue.names() if catalogue.load(name).corrections])
def test_every_correction_of_a_study_is_measured_in_the_simulated_world(name: str) -> None:
    """A row without a number of a recorded run, or without its command, would say nothing."""
    found = catalogue.load(name)
    lines = corrections.section([(found, studies.worlds(found))])
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| [{name}]")]
    assert [row[0].partition(": ")[2] for row in cells] == [each.what for each in found.corrections]
    for row in cells:
        assert "-" not in row[4].split(), row
        assert f"`iscsitrace lab run {name} -o DIR`" in row[7]
