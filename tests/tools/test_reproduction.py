"""The page of the studies, its figures and its table: each printed value, claim, figure and setting stands on it."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from iscsitrace.studies import definition, records, repeats, results
from iscsitrace.studies.definition import Definition, LineFigure
from iscsitrace.studies.points import of_experiment
from tools import printed_values, reproduction, studies

WHOLE = [name for name in definition.names() if not definition.load(name).part_of]


@pytest.fixture(scope="module")
def page() -> list[str]:
    return reproduction.page().splitlines()


def part_of(page: list[str], name: str) -> list[str]:
    """The lines of an experiment, without those of the experiments below it."""
    first = next(number for number, line in enumerate(page) if re.fullmatch(rf"###? {name}", line))
    level, heads = page[first].partition(" ")[0], {f"## {each}" for each in definition.names()}
    heads |= {f"### {each}" for each in definition.names()}
    rest = page[first + 1 :]
    return rest[: next((number for number, line in enumerate(rest) if line in heads), len(rest))] if level else []


def cells(part: list[str]) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in part if line.startswith("| ")]


@pytest.mark.parametrize("name", definition.names())
def test_every_printed_value_and_claim_is_on_the_page(name: str, page: list[str]) -> None:
    part, found = part_of(page, name), definition.load(name)
    rows = cells(part)
    for published in found.published:
        unit = published.printed_unit
        for _, arm, at, value in repeats.places(published, [], found):
            row = next(
                row for row in rows
                if row[2:] and row[2].startswith(f"{arm}, ") and row[2].endswith(f" {at.text}")
                and published.source in row[0] and row[3].startswith(f"{value} {unit}")
            )  # fmt: skip
            if published.read_as:
                assert f"read as {published.read_as}" in row[3]
        assert not published.quotation or any(f"「{published.quotation}」" in row[0] for row in rows)
    recorded = {world.name for world in studies.worlds(found) if world.run is not None}
    for claim in found.claims:
        # a claim for guests alone is named with them when they have no record
        assert (f"**{claim.name}** {reproduction.sentence(claim.text)}" in part) == bool(recorded & {*claim.worlds})
        if claim.source:
            assert any(line.startswith("> ") and line.endswith(claim.source) for line in part)
        assert not claim.quotation or any(f"「{claim.quotation}」" in line for line in part)
    for left in found.left_out:
        assert f"| {left.what} | {left.why} |" in part


@pytest.mark.parametrize("name", WHOLE)
def test_every_figure_table_and_setting_of_the_paper_is_on_the_page(name: str, page: list[str]) -> None:
    rows, found = cells(part_of(page, name)), definition.load(name)
    for exhibit in found.exhibits:
        (row,) = [row for row in rows if row[0] == exhibit.name and len(row) > 3]
        assert exhibit.english == row[2]
        assert all(f"/{figure}.svg`" in row[3] for figure in exhibit.ours)
    for condition in found.conditions:
        (row,) = [row for row in rows if row[0] == condition.what and row[3:4] == [condition.ours]]
        state = "Differs. " if condition.differs else "as printed" if condition.printed else "assumed"
        assert row[4].startswith(state)
        assert not condition.remark or row[4].endswith(f"; {condition.remark}")


@pytest.mark.parametrize("name", WHOLE)
def test_figures_of_ours_that_are_named_exist(name: str) -> None:
    whole = definition.load(name)
    parts = [each for each in map(definition.load, definition.names()) if each.part_of == name]
    drawn = {figure.name for each in (whole, *parts) for figure in each.figures}
    assert {figure for exhibit in whole.exhibits for figure in exhibit.ours} <= drawn


def test_a_part_names_a_study_that_is_whole() -> None:
    assert {definition.load(name).part_of for name in definition.names()} - {""} <= {*WHOLE}


@pytest.mark.parametrize("name", definition.names())
def test_numbers_are_those_of_the_records(name: str, page: list[str]) -> None:
    """Every recorded run has its command on the page, and without a record nothing is reproduced."""
    runs = records.load(name).runs
    for run in runs:
        assert any(f"`{run.command}`" in line for line in page)
    found = definition.load(name)
    for world in studies.worlds(found):
        if world.run is None:
            assert not world.rows
            assert {each.verdict for each in studies.printed(found, world)} <= {"not run"}
            assert {each.verdict for each in studies.judged(found, world)} <= {"not run", "not testable here"}


def test_rows_have_as_many_cells_as_their_heading(page: list[str]) -> None:
    for place, line in enumerate(page):
        if line.startswith("|---"):
            width = page[place - 1].count("|")
            rest = page[place + 1 :]
            rows = rest[: next((number for number, each in enumerate(rest) if not each.startswith("|")), len(rest))]
            assert all(row.replace("\\|", "").count("|") == width for row in rows)


def test_no_heading_is_without_text(page: list[str]) -> None:
    written = [line for line in page if line]
    for one, other in pairwise(written):
        if one.startswith("#"):
            assert not other.startswith("#") or other.count("#", 0, 5) > one.count("#", 0, 5)


def test_computed_values_are_not_counted_as_printed(page: list[str]) -> None:
    """What a study does not print is named in its row, and stands apart in the summary."""
    place = next(number for number, line in enumerate(page) if line.startswith("| experiment | "))
    head = page[place].split(" | ")
    lines = [line.split(" | ") for line in page[place:] if line.startswith("| [write-study]")]
    (summary,) = (line for line in lines if "kernel's TCP" in line)
    (study,) = definition.load("write-study").published
    assert study.is_computed
    assert summary[head.index("printed values")] == "-"
    assert summary[head.index("computed values")].endswith(" of 2")
    # in the simulated world the window is set, and the throughput follows from it
    assert all(line[head.index("computed values")] == "-" for line in lines if line is not summary)
    assert sum(" MB/s, computed | " in line for line in part_of(page, "write-study")) == len(study.values)


@pytest.mark.parametrize("name", WHOLE)
def test_a_paper_is_cited(name: str, page: list[str]) -> None:
    paper = definition.load(name).paper
    (line,) = reproduction.citation(paper)[:1]
    assert line in part_of(page, name)
    for known in (paper.authors, paper.title, paper.title_original, paper.affiliation, paper.venue):
        assert known in line
    assert line.startswith("Probably: ") == paper.is_probable
    assert line.endswith(" ".join(paper.remark.split()))
    assert bool(paper.remark) >= paper.is_probable


def test_not_run_is_what_the_world_has_and_no_record(page: list[str]) -> None:
    """Over the kernel's TCP the write study has four delays of eleven: the others are no runs that are missing."""
    rows = [row for row in cells(part_of(page, "write-study")) if row[2].startswith("standard, loss 0%")]
    verdicts = {row[2].rpartition("-delay ")[2]: row[7] for row in rows}
    assert len(verdicts) == 9
    assert {delay for delay, verdict in verdicts.items() if verdict != "-"} == {"25ms", "50ms"}


@pytest.mark.parametrize("name", definition.names())
def test_a_world_without_a_record_has_no_column_and_is_named(name: str, page: list[str]) -> None:
    found = definition.load(name)
    part = [*part_of(page, name), ""]
    heads = [part[place - 1].split(" | ") for place, line in enumerate(part) if line.startswith("|---")]
    for world in studies.worlds(found):
        label = studies.WORLD_NAMES[world.name]
        (row,) = [line for line in part if f"`{results.command(name, world.name)}`" in line]
        if world.run is None:
            assert not any(label in head for head in heads)
            assert "No run is recorded" in row
            assert all(claim.name in row for claim in found.claims if claim.worlds == (world.name,))


@pytest.mark.parametrize("name", definition.names())
def test_every_published_value_is_drawn_in_a_figure(name: str) -> None:
    found = definition.load(name)
    points = of_experiment(found, "simulated")
    lines = [figure for figure in found.figures if isinstance(figure, LineFigure)]
    for published in found.published:
        for _, arm, at, value in repeats.places(published, [], found):
            (place, *_) = [
                point
                for point in points
                if point.arm == arm and point.is_at({**published.where.settings, published.x: at})
            ]
            assert any(
                figure.y == published.quantity and figure.shows(arm, place.values) for figure in lines
            ), (arm, at.text, value)  # fmt: skip


def test_the_table_has_every_printed_value_once_for_each_world() -> None:
    for name in definition.names():
        found = definition.load(name)
        worlds = studies.worlds(found)
        rows = list(csv.DictReader(io.StringIO(printed_values.text([(found, worlds)]))))
        counted = [(row["world"], row["at"], row["quantity"], row["printed"]) for row in rows]
        assert len({*counted}) == len(counted)
        recorded = [world.name for world in worlds if world.run is not None]
        if "simulated" in recorded:
            values = sum(len([*repeats.places(each, [], found)]) for each in found.published)
            tested = [check for claim in found.claims for check in claim.checks if check.printed]
            assert len([row for row in rows if row["world"] == "simulated"]) >= values
            assert len([row for row in rows if row["world"] == "simulated"]) <= values + len(tested)
        for row in rows:
            assert row["verdict"]
            assert row["place"]
            if row["lower limit"] and row["ours"]:
                inside = float(row["lower limit"]) <= float(row["ours"]) <= float(row["upper limit"])
                assert row["verdict"] == "undecided" or inside == (row["verdict"] == "reproduced")


def test_the_table_has_both_units_of_a_value_that_is_read_in_another() -> None:
    found = definition.load("mirror-study")
    rows = csv.DictReader(io.StringIO(printed_values.text([(found, studies.worlds(found))])))
    (row,) = [row for row in rows if row["printed"] == "11.9" and row["world"] == "simulated"]
    assert (row["unit as printed"], row["unit as read"], row["our unit"]) == ("MB/s", "MiB/s", "MB/s")
    assert float(row["value in our unit"]) == pytest.approx(11.9 * 2**20 / 1e6, rel=1e-5)


def test_the_check_finds_what_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = dict(reproduction.files())
    assert {path.suffix for path in made} == {".md", ".csv", ".svg"}
    # the same bytes each time, so that a check can compare them
    assert made == dict(reproduction.files())
    monkeypatch.setattr(reproduction, "files", lambda: iter((*made.items(), (reproduction.PAGE, b"other"))))
    assert reproduction.main(["--check"]) == 1
    assert "docs/reproduction.md is out of date: python -m tools.reproduction" in capsys.readouterr().out


def test_figures_show_the_values_that_are_printed() -> None:
    """Those of the figure's quantity, at its places."""
    for name in definition.names():
        found: Definition = definition.load(name)
        points = of_experiment(found, "simulated")
        for file, title, chart in reproduction._pictures(found, studies.worlds(found)):
            assert file.startswith(f"{name}-")
            assert title
            assert not replace(chart, lines=()).has("measured")
            assert chart.has("printed") == any(
                figure.title == title and published.quantity == figure.y and not published.is_computed
                and published.is_placed and figure.shows(arm, point.values)
                for figure in found.drawn_on_page
                for published in found.published
                for _, arm, at, _ in repeats.places(published, [], found)
                for point in points
                if point.arm == arm and point.is_at({**published.where.settings, published.x: at})
            )  # fmt: skip
