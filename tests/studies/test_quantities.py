"""Quantities of experiments: each is measured, described in docs/lab.md, and a column of its table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from iscsitrace.studies import expected, repeats, results, tables
from iscsitrace.studies.from_truth import StreamTruth
from iscsitrace.studies.quantities import EFFICIENCY, QUANTITIES, SEARCH, STREAMS, PointResult, columns
from iscsitrace.studies.results import Results

ROOT = Path(__file__).parents[2]
POINT = PointResult(
    name="one",
    arm="one",
    grid={},
    values={},
    repeat=1,
    digest="",
    steady_throughput_bytes_per_s=2.5e6,
    period_ns=3_000_000,
    idle_fraction=0.25,
    parts_ns={"initiator_think": 1.0, "target_service": 2.0, "initiator_service": 0.0, "transfer": 7.0},
    connections=7,
    converged_s=1.5,
    model={"throughput_bytes_per_s": 2.0e6, "period_ns": 4_000_000, "idle_fraction": 0.5, "k": 2.0},
    jain=0.5,
    retransmission_rate=0.001,
)


def described() -> dict[str, str]:
    """Units in docs/lab.md by quantity; a row may have several quantities."""
    text = (ROOT / "docs" / "lab.md").read_text()
    (table,) = re.findall(r"\| quantity \| unit \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", text)
    found: dict[str, str] = {}
    for row in table.splitlines():
        names, units = re.findall(r"`(\w+)`", row.split("|")[1]), row.split("|")[2].strip().split(", ")
        found |= dict(zip(names, units if len(units) > 1 else units * len(names), strict=True))
    return found


def test_every_quantity_is_described_with_its_unit() -> None:
    assert described() == {name: each.unit for name, each in QUANTITIES.items()}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("throughput", 2.5, "2.500"),
        ("period", 3.0, "3.000"),
        ("idle_fraction", 25.0, "25.0"),
        # 2.0 against 2.5 MB/s: 20 % too little
        ("model_error", 20.0, "20.0"),
        # 3 of 10 ns
        ("host_share", 30.0, "30.0"),
        ("connections", 7.0, "7"),
        ("converge", 1.5, "1.5"),
        ("jain", 0.5, "0.500"),
        ("retransmission_rate", 0.1, "0.1000"),
        ("k", None, "-"),
        # of repeats, not of a point
        ("scatter", None, "-"),
    ],
)
def test_a_quantity_is_in_its_unit(name: str, value: float | None, text: str) -> None:
    found = QUANTITIES[name].measured(POINT)
    assert found == (None if value is None else pytest.approx(value))
    assert QUANTITIES[name].text(found) == text


def test_every_quantity_has_a_field_or_comes_from_repeats() -> None:
    for each in QUANTITIES.values():
        each.measured(POINT)
        assert each.has_field or not each.field
    prediction = expected.of_point({"workload.operation": "read", "link.rate": 10**9}, None)
    assert prediction is not None
    assert {each.in_model for each in QUANTITIES.values() if each.in_model} <= prediction.as_dict().keys()


@pytest.mark.parametrize(("counts", "share"), [((0, 3, 1, 0), 50.0), ((0, 0), 0.0), ((2,), 100.0), ((None,), None)])
def test_the_share_of_runs_with_a_timeout_counts_runs_and_not_timeouts(
    counts: tuple[int | None, ...], share: float | None
) -> None:
    (row,) = repeats.rows([replace(POINT, repeat=number, timeout_count=each) for number, each in enumerate(counts)])
    assert row.means.get("timed_out") == share


def test_the_columns_of_results_hold_every_measured_quantity() -> None:
    measured = {each.field or name for name, each in QUANTITIES.items() if each.has_field}
    assert measured - set(columns()) == {"absolute_model_error", "host_share", "line_bytes_per_s", "timed_out"}
    assert not {"error", "name", "streams", "model"} & set(columns())
    (header, row) = results.table(Results("n", "t", "s", "", "simulated", True, 1, (POINT,))).splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["model_throughput_bytes_per_s"], cells["model_error"]) == ("2000000.0", str(2.0e6 / 2.5e6 - 1))


@pytest.mark.parametrize(
    ("table", "caption", "first"),
    [
        (SEARCH, "The number of connections", ["arm", "MB/s"]),
        (STREAMS, "Parallel streams", ["arm", "streams"]),
        (EFFICIENCY, "Efficiency and CPU time", ["arm"]),
    ],
)
def test_a_table_has_a_column_for_each_of_its_quantities(table: str, caption: str, first: list[str]) -> None:
    streams = tuple(StreamTruth(0, number, 1, 1.0, 1.0) for number in range(2))
    point = replace(POINT, streams=streams, efficiency=0.5)
    made = Results("n", "t", "s", "", "simulated", True, 1, (point,), tables=(EFFICIENCY,))
    (grid,) = [each for each in tables.of(made) if each.caption == caption]
    assert list(grid.columns) == [*first, *(each.heading for each in QUANTITIES.values() if each.table == table)]
