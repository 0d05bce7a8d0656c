"""Records of runs: what is kept, and which numbers count no longer when a definition changes."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from iscsitrace.errors import InputInvalid
from iscsitrace.studies import definition, records, repeats, results, verdicts
from iscsitrace.studies.definition import Definition
from iscsitrace.studies.points import DesignPoint, of_experiment
from iscsitrace.studies.quantities import PointResult
from iscsitrace.studies.results import Results

STUDY = """
title = "small"
source = "a test"
repeats = 3

[link]
loss = "1%"

[workload]
operation = "read"
block-size = "64K"
calls = 8

[grid.link]
one-way-delay = ["0ms", "5ms", "10ms"]

[[published]]
quantity = "throughput"
source = "Table 1"
x = "link.one-way-delay"
values = [["0ms", 20], ["5ms", 30]]

[[claims]]
name = "a"
text = "it falls"
where.workload.block-size = "64K"

[[claims.checks]]
quantity = "throughput"
of = { arm = "all", link.one-way-delay = "5ms" }
over = { arm = "all", link.one-way-delay = "0ms" }
between = [0.4, 0.6]
"""
RATES = {"0ms": (19.0, 20.0, 21.0), "5ms": (9.9, 10.0, 10.1), "10ms": (1.0, 1.1, 1.2)}
"""Throughputs of the repeats by one-way delay."""


def written(folder: Path, text: str = STUDY) -> Definition:
    (folder / "small.toml").write_text(text)
    return definition.load(folder / "small.toml")


def measured(point: DesignPoint) -> PointResult:
    delay = point.grid["link.one-way-delay"].text
    rate = RATES[delay][point.repeat - 1] * 1e6
    return PointResult(
        point.name, point.arm, {name: each.text for name, each in point.grid.items()}, point.values, point.repeat,
        point.digest, steady_throughput_bytes_per_s=rate, idle_fraction=0.5,
        model={"throughput_bytes_per_s": 11e6, "idle_fraction": 0.4, "period_ns": 1.0, "k": 2.0},
    )  # fmt: skip


def ran(found: Definition, world: str = "simulated") -> Results:
    points = of_experiment(found, world)
    return Results(
        found.name, found.title, found.source, "", world, True, len(points), tuple(map(measured, points)),
        versions=results.versions(world), seeds=results.seeds(points),
    )  # fmt: skip


def test_a_record_has_the_same_verdicts_as_its_run(tmp_path: Path) -> None:
    found = written(tmp_path)
    made = ran(found)
    rows = repeats.rows(made.points)
    records.keep(found, made, tmp_path)
    run = records.of_world("small", "simulated", tmp_path)
    assert run is not None
    kept = records.rows_of(found, run)
    # no printed value and no claim refers to 10 ms
    assert [row.grid["link.one-way-delay"] for row in kept] == ["0ms", "5ms"]
    assert verdicts.beside(found, kept, "simulated") == verdicts.beside(found, rows, "simulated")
    assert [each.verdict for each in verdicts.beside(found, kept, "simulated")] == ["undecided", "not reproduced"]
    assert list(verdicts.judge(found.claims, kept)) == list(verdicts.judge(found.claims, rows))
    assert kept[0].estimates.keys() == {"throughput"}
    assert run.command == "iscsitrace lab run small -o DIR"
    # repeats are 1000 seeds apart
    assert (run.point_count, run.seeds) == (9, (1, 1001, 2001))
    assert run.versions.keys() == {"iscsitrace", "Python", "NumPy"}


def test_a_value_is_compared_in_the_worlds_that_it_names(tmp_path: Path) -> None:
    """None where ours is set or computed from it; the number stays."""
    for worlds, verdict in (("[]", "not compared"), ('["real"]', "not compared"), ('["simulated"]', "undecided")):
        found = written(tmp_path, STUDY.replace("[[published]]", f"[[published]]\nworlds = {worlds}", 1))
        rows = repeats.rows(ran(found).points)
        (first, *_) = verdicts.beside(found, rows, "simulated")
        assert (first.verdict, first.ours is not None) == (verdict, True)


def test_a_record_keeps_the_places_of_the_figures_on_the_page(tmp_path: Path) -> None:
    """10 ms, too, with what the model predicts there."""
    figure = '[[figures]]\nname = "all"\nkind = "lines"\ntitle = "t"\nx = "link.one-way-delay"\ny = "throughput"\n'
    text = STUDY.replace("repeats = 3", 'repeats = 3\npage-figures = ["all"]', 1).replace(
        "[[published]]", figure + "[[published]]", 1
    )
    found = written(tmp_path, text)
    made = ran(found)
    records.keep(found, made, tmp_path)
    run = records.of_world("small", "simulated", tmp_path)
    assert run is not None
    kept = records.rows_of(found, run)
    assert [row.grid["link.one-way-delay"] for row in kept] == ["0ms", "5ms", "10ms"]
    assert [row.model for row in kept] == [{"throughput": 11.0}] * 3


def test_arms_with_equal_settings_keep_their_own_numbers(tmp_path: Path) -> None:
    """A driver decides nothing in the simulated world: both arms make the same run."""
    arms = '[[arms]]\nname = "one"\ninitiator.driver = "events"\n[[arms]]\nname = "two"\ninitiator.driver = "threads"\n'
    text = STUDY.partition("[[claims]]")[0].replace("[[published]]", arms + "[[published]]", 1)
    found = written(tmp_path, text)
    made = ran(found)
    assert len({point.digest for point in made.points}) == len(made.points) / 2
    records.keep(found, made, tmp_path)
    (run,) = records.load("small", tmp_path).runs
    kept = records.rows_of(found, run)
    assert verdicts.beside(found, kept, "simulated") == verdicts.beside(found, repeats.rows(made.points), "simulated")
    assert [row.arm for row in kept] == ["one", "one", "two", "two"]


def test_the_model_is_judged_over_all_places(tmp_path: Path) -> None:
    """11 MB/s against 20, 10 and 1.1."""
    records.keep(written(tmp_path), ran(written(tmp_path)), tmp_path)
    (run,) = records.load("small", tmp_path).runs
    assert run.model is not None
    assert (run.model.count, run.model.median, run.model.largest) == (3, pytest.approx(0.45), pytest.approx(9.0))


def test_a_place_whose_settings_changed_is_not_run(tmp_path: Path) -> None:
    found = written(tmp_path)
    records.keep(found, ran(found), tmp_path)
    (run,) = records.load("small", tmp_path).runs
    for change, left in (
        (('title = "small"', 'title = "smaller"'), ["0ms", "5ms"]),
        (('["0ms", 20]', '["0ms", 25]'), ["0ms", "5ms"]),
        (('["0ms", "5ms", "10ms"]', '["0ms", "6ms", "10ms"]'), ["0ms"]),
        (("repeats = 3", "repeats = 4"), []),
        (("calls = 8", "calls = 9"), []),
    ):
        text = STUDY.replace(*change).replace('["5ms", 30]', '["10ms", 30]').replace('5ms" }', '10ms" }')
        kept = records.rows_of(written(tmp_path, text), run)
        assert [row.grid["link.one-way-delay"] for row in kept] == left
    assert {each.verdict for each in verdicts.beside(written(tmp_path, text), kept, "simulated", is_whole=True)} == {
        verdicts.NOT_RUN
    }


def test_a_run_replaces_that_of_its_world_alone(tmp_path: Path) -> None:
    found = written(tmp_path)
    for world in ("real", "simulated", "real"):
        records.keep(found, ran(found, world), tmp_path)
    runs = records.load("small", tmp_path).runs
    assert [run.world for run in runs] == ["simulated", "real"]
    assert runs[1].command == "iscsitrace lab run small --world real -o DIR"
    # the kernel's TCP carried the data
    assert set(runs[1].versions) - set(runs[0].versions) == {platform.system(), "load average"}
    # its digests are those of its world
    assert not {each.digest for each in runs[0].places} & {each.digest for each in runs[1].places}


def test_only_a_complete_run_of_this_definition_is_recorded(tmp_path: Path) -> None:
    found = written(tmp_path)
    with pytest.raises(InputInvalid, match="small is not complete: 9 of 9 points ran"):
        records.keep(found, replace(ran(found), is_complete=False), tmp_path)
    with pytest.raises(InputInvalid, match="the definition of small has changed since"):
        records.keep(written(tmp_path, STUDY.replace("calls = 8", "calls = 9")), ran(found), tmp_path)
    assert records.load("small", tmp_path).runs == ()


def test_another_file_is_no_record(tmp_path: Path) -> None:
    for text in ("", json.dumps({"name": "small", "runs": [], "kind": "run", "schema": 1})):
        (tmp_path / "small.json").write_text(text)
        with pytest.raises(InputInvalid, match=r"small\.json is"):
            records.load("small", tmp_path)
