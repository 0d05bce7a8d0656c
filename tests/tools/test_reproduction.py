"""The page of printed values and claims: each stands on it, with the recorded measurement of its world."""

from __future__ import annotations

import pytest

from iscsitrace.studies import definition, records, repeats, results
from iscsitrace.studies.definition import LineFigure
from iscsitrace.studies.points import of_experiment
from tools import reproduction, studies


@pytest.fixture(scope="module")
def page() -> list[str]:
    return reproduction.page().splitlines()


@pytest.mark.parametrize("name", definition.names())
def test_every_printed_value_claim_and_figure_is_on_the_page(name: str, page: list[str]) -> None:
    first = page.index(f"## {name}")
    following = [place for place, line in enumerate(page) if line.startswith("## ") and place > first]
    part = page[first : following[0] if following else None]
    found = definition.load(name)
    rows = [line.split(" | ") for line in part if line.startswith("| ")]
    for published in found.published:
        for _, arm, at, value in repeats.places(published, [], found):
            assert any(arm in row[2] and at.text in row[2] and f"{value} " in row[3] for row in rows if len(row) > 4)
    recorded = {world.name for world in studies.worlds(found) if world.run is not None}
    for claim in found.claims:
        # a claim for guests alone is named with them when they have no record
        assert any(row[:2] == [f"| {claim.name}", claim.text] for row in rows) == bool(recorded & {*claim.worlds})
    for figure in found.figures:
        assert any(f"`{figure.name}.svg`" in row[0] and row[1] == figure.title for row in rows)
    for each in found.left_out:
        assert f"| {each.what} | {each.why} |" in part


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


def test_printed_values_are_counted_where_they_are_drawn(page: list[str]) -> None:
    """The write study prints 11 values of a socket, and 9 of iSCSI follow from its buffer, all without loss."""
    part = page[page.index("## write-study") :]
    for name, count in (("throughput", "20"), ("throughput-lossy", "-"), ("model-error", "-")):
        (row,) = [line for line in part if line.startswith(f"| `{name}.svg`")]
        assert row.endswith(f"| {count} |")


def test_rows_have_as_many_cells_as_their_heading(page: list[str]) -> None:
    for place, line in enumerate(page):
        if line.startswith("|---"):
            width = page[place - 1].count("|")
            rest = page[place + 1 :]
            rows = rest[: next((number for number, each in enumerate(rest) if not each.startswith("|")), len(rest))]
            assert all(row.replace("\\|", "").count("|") == width for row in rows)


def test_computed_values_are_not_counted_as_printed(page: list[str]) -> None:
    """What a study does not print is named in its row, and stands apart in the summary."""
    place = next(number for number, line in enumerate(page) if line.startswith("| experiment | "))
    head = page[place].split(" | ")
    summary = next(line for line in page[place:] if line.startswith("| [write-study]")).split(" | ")
    counts = {name: int(summary[head.index(name)].rpartition(" ")[2]) for name in ("printed values", "computed values")}
    study = definition.load("write-study")
    written = [(len(each.values), each.is_computed) for each in study.published]
    assert counts == {
        name: sum(count for count, is_computed in written if is_computed == wanted)
        for name, wanted in (("printed values", False), ("computed values", True))
    }
    part = page[page.index("## write-study") :]
    assert sum(" MB/s, computed | " in line for line in part) == counts["computed values"]


def test_a_paper_that_is_only_probable_is_named_so(page: list[str]) -> None:
    for name in definition.names():
        paper = definition.load(name).paper
        line = next(each for each in page[page.index(f"## {name}") :] if "ublished: " in each)
        assert line.startswith("Probably published: " if paper.is_probable else "Published: ")
        assert line.endswith(" ".join(paper.remark.split()))
        assert bool(paper.remark) >= paper.is_probable


def test_not_run_is_what_the_world_has_and_no_record(page: list[str]) -> None:
    """Over the kernel's TCP the write study has four delays of eleven: the others are no runs that are missing."""
    part = page[page.index("## write-study") :]
    rows = [line.split(" | ") for line in part if "socket, TCP tuned, loss 0%" in line]
    verdicts = {row[2].rpartition("-delay ")[2]: row[7] for row in rows}
    assert len(verdicts) == 11
    assert {delay for delay, verdict in verdicts.items() if verdict == "reproduced"} == {"0ms", "5ms", "25ms", "50ms"}
    assert set(verdicts.values()) == {"reproduced", "-"}


@pytest.mark.parametrize("name", definition.names())
def test_a_world_without_a_record_has_no_column_and_is_named(name: str, page: list[str]) -> None:
    found = definition.load(name)
    first = page.index(f"## {name}")
    rest = page[first + 1 :]
    part = [*rest[: next((place for place, line in enumerate(rest) if line.startswith("## ")), len(rest))], ""]
    heads = [part[place - 1].split(" | ") for place, line in enumerate(part) if line.startswith("|---")]
    for world in studies.worlds(found):
        label = studies.WORLD_NAMES[world.name]
        rows = [line for line in part if f"`{results.command(name, world.name)}`" in line]
        if world.run is None:
            assert not any(label in head for head in heads)
            (row,) = rows
            assert "No run is recorded" in row
            assert all(claim.name in row for claim in found.claims if claim.worlds == (world.name,))
        else:
            assert len(rows) == 1
    # no table has a column in which no row has anything
    for place, line in enumerate(part):
        if line.startswith("|---"):
            width = part[place - 1].count(" | ") + 1
            table = part[place + 1 : next(n for n in range(place, len(part)) if not part[n].startswith("|"))]
            cells = [row.strip("| ").split(" | ") for row in table]
            assert all(len(row) == width for row in cells)
            for column in range(1, width - 1):
                assert {row[column] for row in cells} != {"-"}, part[place - 1]


@pytest.mark.parametrize("name", definition.names())
def test_every_published_value_is_drawn_in_a_figure(name: str, page: list[str]) -> None:
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
                figure.y == published.quantity
                and (not figure.arms or arm in figure.arms)
                and place.is_at(figure.where.settings)
                for figure in lines
            ), (arm, at.text, value)
    # the connections that the study's search found are a range, not values over T_m
    if name == "connection-study":
        assert any("| `found.svg` |" in line and line.endswith("| 47 to 53 |") for line in page)
