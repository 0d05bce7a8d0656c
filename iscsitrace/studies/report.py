"""The report on an experiment: its outcome, figures and tables, from its folder alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iscsitrace.plots import inline, style
from iscsitrace.report import figures as plots
from iscsitrace.show.document import Document, Fact, Opening, Section, SvgPlot
from iscsitrace.studies import figures, records, repeats, results, tables, verdicts
from iscsitrace.studies.definition import ENDING, GUESTS, WORLDS, Definition, load
from iscsitrace.studies.points import of_experiment
from iscsitrace.studies.records import ModelAgreement
from iscsitrace.studies.repeats import Row
from iscsitrace.studies.results import JudgedClaim, Results

_SHOWN_LIMITERS: Final = 3
_NAMESPACES: Final = "The kernel's TCP in network namespaces"


def describe(directory: Path, *, has_pictures: bool = True) -> Document:
    """The report as a document; InputInvalid when the folder lacks the results or their definition."""
    found = results.load(directory)
    definition = load(directory / f"{found.name}{ENDING}")
    looks = inline.Looks()
    pictures = tuple(_pictures(definition, found, directory, looks)) if has_pictures else ()
    return Document(
        title=found.title,
        subtitle=f"{found.name}, {found.world} world; source: {found.source}",
        opening=_opening(definition, found),
        sections=(
            *plots.section(pictures),
            Section("Results", tuple(tables.of(found)), "results"),
            Section("How this was made", tuple(_making(definition, found)), "making"),
        ),
        style_sheet=looks.sheet,
    )


def _pictures(definition: Definition, found: Results, directory: Path, looks: inline.Looks) -> Iterator[SvgPlot]:
    points = of_experiment(definition, found.world, is_reduced=found.is_reduced)
    for number, picture in enumerate(figures.pictures(definition, points, found.points, directory)):
        with style.applied():
            figure = style.new_figure()
            picture.draw(figure)
        drawn = inline.draw(figure, f"figure{number}-", looks)
        name = picture.name.replace("-", " ").capitalize()
        yield SvgPlot(name, picture.title, picture.how_to_read, picture.lines, drawn.svg, drawn.axes)


def _opening(definition: Definition, found: Results) -> Opening:
    rows = repeats.rows(found.points)
    model = records.agreement(rows)
    agreement = _agreement(found, rows, model)
    # a claim for other worlds alone is no result of this one
    others = {claim.name for claim in definition.claims if found.world not in claim.worlds}
    claimed = " ".join(_claimed([each for each in found.claims if each.name not in others]))
    verdict = claimed or agreement
    caveats = f"{agreement} {definition.about}" if claimed else definition.about
    return Opening("Result", verdict, caveats, tuple(_facts(found, rows, model)))


def _claimed(found: Sequence[JudgedClaim]) -> Iterator[str]:
    """How many of the tested claims are reproduced, and which are not: those of the study, then our own."""
    for whose, claims in (
        ("of the study", [each for each in found if not each.is_own]),
        ("of our own", [each for each in found if each.is_own]),
    ):
        left_out = {verdicts.NOT_RUN, verdicts.NOT_TESTABLE}
        tested = [each for each in claims if each.verdict not in left_out]
        good = sum(each.verdict == verdicts.REPRODUCED for each in tested)
        word = "is" if len(tested) == 1 else "are"
        opening = f"{good} of {len(tested)} tested claims {whose} {word} reproduced"
        parts = [opening if tested else f"No claim {whose} is tested"] if claims else []
        others = [each for each in claims if each.verdict != verdicts.REPRODUCED]
        parts += [f"{verdict}: {names}" for verdict, names in _by_verdict(others)]
        if parts:
            yield f"{'; '.join(parts)}."


def _by_verdict(claims: list[JudgedClaim]) -> Iterator[tuple[str, str]]:
    for verdict in dict.fromkeys(each.verdict for each in claims):
        names = (each.name for each in claims if each.verdict == verdict)
        yield verdict, ", ".join(f'"{name}"' if "," in name else name for name in names)


def _agreement(found: Results, rows: Sequence[Row], model: ModelAgreement | None) -> str:
    """The differences of the model: from the simulator, whose settings it has, or from a measurement."""
    if model is None:
        return "No point can be compared with the model."
    worst = max(rows, key=lambda row: abs(row.model_error or 0))
    is_simulated = found.world == WORLDS[0]
    what = "Difference of the model from the simulator" if is_simulated else "Error of the model"
    text = f"{what} {_sizes(model)} ({worst.name})."
    return f"{text} {verdicts.SHARED_SETTINGS} {_recorded_error(found.name)}".rstrip() if is_simulated else text


def _recorded_error(name: str) -> str:
    """The error of the model over the kernel's TCP in the record of this experiment; empty without one."""
    run = records.of_world(name, WORLDS[1])
    return f"Recorded over the kernel's TCP: error of the model {_sizes(run.model)}." if run and run.model else ""


def _sizes(model: ModelAgreement) -> str:
    return (
        f"over {model.count} throughputs: median {_percent(model.median)}, 90th percentile {_percent(model.p90)}, "
        f"largest {_percent(model.largest)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _facts(found: Results, rows: Sequence[Row], model: ModelAgreement | None) -> Iterator[Fact]:
    failed = f"{len(found.failed)} failed" if found.failed else "none failed"
    run = f"{len(found.points)} of {found.point_count}"
    yield Fact("points", run if not found.is_complete else str(found.point_count), failed)
    rates = [row.means["throughput"] for row in rows if "throughput" in row.means]
    if rates:
        yield Fact("throughput", f"{min(rates):.1f} to {max(rates):.1f} MB/s", "after the warm-up")
    if model is not None:
        yield Fact(
            "model / simulator" if found.world == WORLDS[0] else "error of the model",
            _percent(model.median),
            "median difference",
        )
    idle = [row.means["idle_fraction"] for row in rows if "idle_fraction" in row.means]
    if idle:
        yield Fact("idle fraction", f"{min(idle):.0f} to {max(idle):.0f} %", "from the captures, after the warm-up")
    limiters = [row.limiter for row in rows if row.limiter]
    if limiters:
        named = sorted(set(limiters), key=lambda name: (-limiters.count(name), name))[:_SHOWN_LIMITERS]
        yield Fact(
            "limited by",
            ", ".join(f"{name.replace('_', ' ')} {limiters.count(name)}" for name in named),
            "places of the grid",
        )
    untested = {verdicts.NOT_RUN, verdicts.NOT_COMPARED}
    compared = [each for each in found.beside if each.verdict not in untested and not each.is_computed]
    if compared:
        good = sum(each.verdict == verdicts.REPRODUCED for each in compared)
        yield Fact("printed values reproduced", f"{good} of {len(compared)}", "within 5 %, see the table")


def _making(definition: Definition, found: Results) -> Iterator[str]:
    command = results.command(definition.name, found.world, is_reduced=found.is_reduced)
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    seeds = f"; seeds {results.seeds_text(found.seeds)}, one for each repeat" if found.seeds else ""
    yield (
        f"Made by `{command}` ({versions}{seeds}). The definition is in the folder: "
        f"{definition.name}{ENDING}. The numbers of each figure are in a CSV file of its name, beside SVG "
        "and PDF; a figure drawn from a capture has no CSV file."
    )
    if found.world != "simulated":
        is_guests = found.world == GUESTS
        note = (definition.guests if is_guests else definition.real).note
        where = "The initiator and target of Debian's kernel in virtual machines" if is_guests else _NAMESPACES
        yield f"{where}{': ' if note else ''}{note}."
    else:
        yield (
            "Virtual time: the same definition makes the same captures, byte for byte. A point that depends on no seed "
            "runs once."
        )
    yield (
        f"{_warm_up(definition)} Throughput is counted by the initiator. Idle fraction, k and limiter come from the "
        "capture at the initiator. `iscsitrace docs method` defines each number."
    )
    yield (
        "Numbers are means over repeats, with 95 % confidence intervals by Student's t; those of ratios and "
        "differences have Welch's degrees of freedom. A check holds when the whole interval is within its limits, "
        "fails when it is outside, and is undecided in between. A printed value is reproduced within "
        f"{100 * verdicts.TOLERANCE:g} % of it; a percentage also within {100 * verdicts.TOLERANCE:g} % of what it "
        "lacks to 100 %; in any case within half of its last digit."
    )


def _warm_up(definition: Definition) -> str:
    if definition.warm_up_seconds:
        return f"The first {definition.warm_up_seconds:g} s of a run do not count, or as many as its arm sets."
    return f"The first {definition.warm_up_calls} calls of a run do not count."
