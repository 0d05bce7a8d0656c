"""Writes docs/reproduction.md: every printed value and claim of the studies, beside what the recorded runs measured.

``python -m tools.reproduction`` writes the page; ``--check`` only says whether it is out of date (exit code 1). No lab
runs for either: the measurements are in the records of the package. ``--record DIR ...`` records the folders of
complete runs (``iscsitrace lab run NAME -o DIR``), then writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iscsitrace.studies import records, repeats, results, tables, verdicts
from iscsitrace.studies.definition import ALL_WORLDS, Claim, Definition, LineFigure, load, names
from iscsitrace.studies.points import of_experiment
from iscsitrace.studies.quantities import QUANTITIES
from iscsitrace.studies.results import Beside, JudgedClaim
from tools.studies import NOTHING, OUTCOMES, UNTESTED, WORLD_NAMES, World, judged, outcomes, printed, table, worlds

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
_PERCENT = f"{100 * verdicts.TOLERANCE:g} %"
_UNRECORDED = {
    "real": "No run is recorded.",
    "guests": "No run is recorded. Guests run the kernel's own initiator and target. Without KVM their instructions "
    "are translated, and hosts take seconds for a call: packets and k are real then, rates are not.",
}
"""Why a world has no columns."""
_INTRODUCTION = f"""
Each study is an experiment: `iscsitrace lab run NAME -o DIR` repeats it, `iscsitrace report DIR` makes a page with all
figures, tables and captures of it ([lab.md](lab.md)). This page has every printed value and every claim that the
definitions hold, with the measurement of a recorded run and a verdict. The text of the papers is not part of this
project: bibliographic data and figures that are not recorded are named as missing. Public web pages were searched for
each study, by subject, method, authors and printed numbers. They hold abstracts, and no full text: a paper whose
subject and method agree is named as probable, since no number, figure or table could be compared.

- **A check** holds (reproduced) when the measured number is within its limits with its whole 95 % confidence interval,
  fails when all of the interval is outside, and is undecided where a limit is in the interval. One run has no interval;
  in the simulated world a place that depends on no seed runs once.
- **A printed value** is reproduced when ours is within {_PERCENT} of it; a percentage also within
  {_PERCENT} of what it lacks to 100 %, so that 91 % of the time idle is judged like 9 % busy; in any case
  within half of its last digit. A computed value is not printed: it follows from what the study prints, in the way that
  the table names. Such values are counted apart.
- **The model's error** is not compared with that of a study's model. In the simulated world it is no test against a
  network: model and simulator take the same settings.
- **Over the kernel's TCP** hosts take time, the more the busier their machine is. The recorded runs shared two
  processors with other work, above whose priority they ran (`chrt -r 5` before the command).
- **In guests** (virtual machines with the kernel's own initiator and target) instructions were translated, without KVM:
  packets and k are real, rates and their differences from the model are not.
- "{NOTHING}": this world does not have that place. `{verdicts.NOT_RUN}`: no recorded run has it with the present
  definition.

`python -m tools.reproduction --record DIR` records another run. Numbers of a place whose settings have changed since
are dropped.
"""


def page() -> str:
    """docs/reproduction.md."""
    lines = [
        "# The studies, value by value",
        "",
        "Generated from the definitions and records of `iscsitrace/studies/` by",
    ]
    lines += ["`python -m tools.reproduction`; do not edit.", *_INTRODUCTION.splitlines(), ""]
    studies = [(definition, worlds(definition)) for definition in map(load, names())]
    lines += ["## Summary", "", *_summary(studies)]
    for definition, found in studies:
        lines += _study(definition, found)
    return "\n".join(lines)


def _summary(studies: Sequence[tuple[Definition, list[World]]]) -> list[str]:
    head = ("experiment", "year of the study", "world", *OUTCOMES)
    rows = [
        (
            f"[{definition.name}](#{definition.name})",
            str(definition.paper.year or "not recorded"),
            WORLD_NAMES[world.name],
            *outcomes(definition, world).values(),
        )
        for definition, found in studies
        for world in found
        if world.run is not None
    ]
    note = (
        "Reproduced of tested. Difference of the model from measured throughputs: median, largest (number of places)."
    )
    return [*table(head, rows), note, ""]


def _study(definition: Definition, every: list[World]) -> Iterator[str]:
    """A study: the worlds that have a recorded run, or all when none has one; the others are named."""
    found = [world for world in every if world.run is not None] or every
    yield from (f"## {definition.name}", "", f"{definition.title}: {definition.source}.", "", *_citation(definition))
    yield from _runs(found)
    head = ("printed in", "quantity", "at", "printed")
    yield from _side_by_side("Printed values", head, "verdict", _printed_lines(definition, found), found)
    for title, is_own in (("Claims of the study", False), ("Claims of our own", True)):
        lines = _claim_lines(definition, found, is_own=is_own)
        yield from _side_by_side(title, ("claim", "text"), "measured (limits)", lines, found)
    yield from _titled("Figures", _figure_rows(definition), ("file", "figure", "printed values drawn over it"))
    left_out = [(each.what, each.why) for each in definition.left_out]
    left_out += [_unrecorded(definition, world) for world in every if world not in found]
    yield from _titled("Not repeated", left_out, ("what", "why"))


def _unrecorded(definition: Definition, world: World) -> tuple[str, str]:
    """A world without a recorded run: its command and its claims, and why."""
    own = [claim.name for claim in definition.claims if claim.worlds == (world.name,)]
    named = f", for {'claims' if len(own) > 1 else 'claim'} {'; '.join(own)}" if own else ""
    return f"`{results.command(definition.name, world.name)}`{named}", _UNRECORDED[world.name]


def _citation(definition: Definition) -> list[str]:
    paper = definition.paper
    known = {"authors": paper.authors, "title": paper.title, "venue": paper.venue, "year": str(paper.year or "")}
    texts = [f"{name} {value}" for name, value in known.items() if value]
    missing = ", ".join(name for name, value in known.items() if not value)
    texts += [f"not recorded: {missing}"] if missing else []
    opening = "Probably published" if paper.is_probable else "Published"
    return [" ".join((f"{opening}: {'; '.join(texts)}.", *paper.remark.split())), ""]


def _runs(found: Sequence[World]) -> list[str]:
    head = ("world", "command", "versions", "seeds", "points", "failed")
    rows = [
        (
            WORLD_NAMES[world.name],
            f"`{world.run.command}`" if world.run else verdicts.NOT_RUN,
            ", ".join(f"{name} {version}" for name, version in world.run.versions.items()) if world.run else NOTHING,
            results.seeds_text(world.run.seeds) if world.run else NOTHING,
            *((str(world.run.point_count), str(world.run.failed_count)) if world.run else (NOTHING, NOTHING)),
        )
        for world in found
    ]
    return table(head, rows)


@dataclass(frozen=True)
class Line:
    """A row of a table that has two cells for each world."""

    lead: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]
    why: str


def _side_by_side(
    title: str, lead: tuple[str, ...], second: str, lines: Sequence[Line], found: Sequence[World]
) -> Iterator[str]:
    """A table without the worlds that have none of its places, and without the rows that no world has."""
    nothing = (NOTHING, NOTHING)
    rows = [line for line in lines if set(line.cells) != {nothing}]
    idle = {nothing, (verdicts.NOT_TESTABLE, NOTHING)}
    kept = [number for number in range(len(found)) if not {line.cells[number] for line in rows} <= idle] or [0]
    head = (*lead, *(cell for number in kept for cell in (WORLD_NAMES[found[number].name], second)), "why")
    cells = [(*line.lead, *(cell for number in kept for cell in line.cells[number]), line.why) for line in rows]
    yield from _titled(title, cells, head)


def _printed_lines(definition: Definition, found: Sequence[World]) -> list[Line]:
    by_world = [printed(definition, world) for world in found]
    places = [
        (arm, {name: each.value for name, each in {**published.where.settings, published.x: at}.items()})
        for published in definition.published
        for _, arm, at, _ in repeats.places(published, [], definition)
    ]
    lines = []
    for (arm, place), several in zip(places, zip(*by_world, strict=True), strict=True):
        one = several[0]
        where = ", ".join(f"{name.rpartition('.')[2]} {text}" for name, text in {**one.where, one.x: one.at}.items())
        value = f"{one.published} {one.unit}{', computed' if one.is_computed else ''}"
        lines.append(
            Line(
                (one.source, QUANTITIES[one.quantity].label, f"{one.arm}, {where}", value),
                tuple(
                    (_ours(each), each.verdict) if world.has(arm, place) else (NOTHING, NOTHING)
                    for each, world in zip(several, found, strict=True)
                ),
                _why(several),
            )
        )
    return lines


def _claim_lines(definition: Definition, found: Sequence[World], *, is_own: bool) -> list[Line]:
    by_world = [judged(definition, world) for world in found]
    return [
        Line(
            (claim.name, claim.text),
            tuple(_verdict(claim, each, world) for each, world in zip(several, found, strict=True)),
            _why(several),
        )
        for claim, several in zip(definition.claims, zip(*by_world, strict=True), strict=True)
        if claim.is_own == is_own
    ]


def _why(several: Sequence[Beside | JudgedClaim]) -> str:
    return "; ".join(dict.fromkeys(each.why for each in several if each.why)) or NOTHING


def _verdict(claim: Claim, found: JudgedClaim, world: World) -> tuple[str, str]:
    """The verdict in a world, and the checks behind it; neither where the world lacks a place of the claim."""
    spots = [spot for check in claim.checks for _, spot in check.spots]
    if not all(world.has(spot.arm, {name: each.value for name, each in claim.place(spot).items()}) for spot in spots):
        return NOTHING, NOTHING
    is_run = found.verdict not in UNTESTED
    return found.verdict, tables.checks_text(found) if is_run else NOTHING


def _figure_rows(definition: Definition) -> Iterator[tuple[str, ...]]:
    points = of_experiment(definition, ALL_WORLDS[0])
    for figure in definition.figures:
        shown = [point for point in points if point.is_at(figure.where.settings)]
        count = sum(
            any(point.arm == arm and point.is_at({**published.where.settings, published.x: at}) for point in shown)
            for published in definition.published
            if isinstance(figure, LineFigure) and published.quantity == figure.y
            for _, arm, at, _ in repeats.places(published, [], definition)
            if not figure.arms or arm in figure.arms
        )
        limits = figure.printed_range if isinstance(figure, LineFigure) else None
        texts = ([str(count)] if count else []) + (["{:g} to {:g}".format(*limits)] if limits else [])
        yield f"`{figure.name}.svg`", figure.title, ", ".join(texts) or NOTHING


def _ours(each: Beside) -> str:
    return tables.with_interval(each.ours, each.interval, each.run_count, QUANTITIES[each.quantity].digits)


def _titled(
    title: str, rows: Sequence[tuple[str, ...]] | Iterator[tuple[str, ...]], head: tuple[str, ...]
) -> list[str]:
    found = list(rows)
    return [f"### {title}", "", *table(head, found)] if found else []


def record(folders: Sequence[Path]) -> None:
    """Records the results in these folders."""
    for folder in folders:
        found = results.load(folder)
        file = records.keep(load(found.name), found)
        print(f"{file.relative_to(ROOT)} written")


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or only compares it; returns the exit code."""
    if arguments[:1] == ["--record"]:
        record([Path(each) for each in arguments[1:]])
    text = page()
    if PAGE.is_file() and PAGE.read_text() == text:
        return 0
    name = PAGE.relative_to(ROOT)
    if "--check" in arguments:
        print(f"{name} is out of date: python -m tools.reproduction")
        return 1
    PAGE.write_text(text)
    print(f"{name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
