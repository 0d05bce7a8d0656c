"""What an experiment corrects of its first version: mistakes in a definition, numbers, and what a record keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.experiments import claims, comparison, definition, making, records
from iscsitrace.experiments.definition import Definition
from iscsitrace.experiments.definition_corrections import OUTCOMES
from iscsitrace.experiments.points import of_experiment
from iscsitrace.experiments.quantities import PointResult
from iscsitrace.experiments.results import Results

STUDY = """
title = "small"
source = "a test"

[workload]
operation = "read"
block-size = "64K"
calls = 8

[grid.link]
one-way-delay = ["0ms", "5ms", "10ms"]

[[corrections]]
what = "throughput far away"
first-version = "It was not measured."
where.workload.block-size = "64K"

[[corrections.values]]
quantity = "throughput"
of = { arm = "all", link.one-way-delay = "10ms" }
over = { arm = "all", link.one-way-delay = "0ms" }
first = 0.5
printed = 0.25
"""
RATES = {"0ms": 20e6, "5ms": 10e6, "10ms": 5e6}


def written(folder: Path, text: str = STUDY) -> Definition:
    (folder / "small.toml").write_text(text)
    return definition.load(folder / "small.toml")


def ran(found: Definition) -> Results:
    points = of_experiment(found, "simulated")
    made = tuple(
        PointResult(
            point.name, point.arm, {name: each.text for name, each in point.grid.items()}, point.values, point.repeat,
            point.digest, steady_throughput_bytes_per_s=RATES[point.grid["link.one-way-delay"].text],
        )
        for point in points
    )  # fmt: skip
    return Results(
        found.name, found.title, found.source, "", "simulated", True, len(points), made,
        versions=making.versions("simulated"), seeds=making.seeds(points),
    )  # fmt: skip


def test_a_number_is_measured_as_a_check_is(tmp_path: Path) -> None:
    found = written(tmp_path)
    (correction,) = found.corrections
    rows = comparison.rows(ran(found).points)
    (value,) = correction.values
    measured = claims.number(correction, value, rows)
    assert measured is not None
    assert (measured.value, value.unit, value.first, value.printed) == (0.25, "times", 0.5, 0.25)
    # without the other place there is no ratio
    assert claims.number(correction, value, [row for row in rows if row.grid["link.one-way-delay"] != "0ms"]) is None


def test_a_record_keeps_the_places_of_corrections_alone(tmp_path: Path) -> None:
    found = written(tmp_path)
    records.keep(found, ran(found), tmp_path)
    (run,) = records.load("small", tmp_path).runs
    assert [place.name for place in run.places] == ["all, one-way-delay 0ms", "all, one-way-delay 10ms"]
    (correction,) = found.corrections
    measured = claims.number(correction, correction.values[0], records.rows_of(found, run))
    assert measured is not None
    assert measured.value == 0.25


VALUES = STUDY[STUDY.index("[[corrections.values]]") :]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (STUDY.replace(VALUES, ""), "corrections[1].values: expected either values or an outcome"),
        (
            STUDY.replace('first-version = "It', 'outcome = "printed values"\nfirst-version = "It'),
            "corrections[1].values: expected either values or an outcome",
        ),
        (
            STUDY.replace(VALUES, 'outcome = "weather"\n'),
            f"corrections[1].outcome: 'weather' is none of {', '.join(OUTCOMES)}",
        ),
        (
            STUDY + '\n[[corrections.values]]\nquantity = "throughput"\nof = { arm = "all" }\n',
            "corrections[1].values: expected one unit, not times and MB/s",
        ),
        (
            STUDY.replace('over = { arm = "all"', 'over = { arm = "none"'),
            "corrections[1].values[1].over.arm: 'none' is none of all",
        ),
        (
            STUDY.replace("where.workload.block-size", "where.target.count").replace('"64K"\n\n[[c', "2\n\n[[c"),
            "corrections[1].where.target.count: no point has this setting",
        ),
        (
            STUDY.replace("printed = 0.25", "printed = 0.25\nlast = 1"),
            "corrections[1].values[1].last: there is no such key; there are quantity, of, over, minus, first, printed",
        ),
    ],
)
def test_a_mistake_is_named_by_its_key(tmp_path: Path, text: str, line: str) -> None:
    assert text != STUDY
    with pytest.raises(InputInvalid) as caught:
        written(tmp_path, text)
    assert line in str(caught.value)
