"""Writes docs/reproduction.md: each study beside what the recorded runs measured, for readers who have the paper.

``python -m tools.reproduction`` writes the page, its figures (docs/images/studies) and the printed values as a table
(docs/reproduction.csv); ``--check`` only says which of them is out of date (exit code 1). No lab runs for either: the
measurements are in the records of the package. ``--record DIR ...`` records the folders of complete runs
(``iscsitrace lab run NAME -o DIR``), then writes the files.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from iscsitrace.plots import experiment, picture, style
from iscsitrace.studies import charts, records, results, verdicts
from iscsitrace.studies.definition import ALL_WORLDS, Claim, Definition, Published, load, names
from iscsitrace.studies.definition_settings import Paper, SettingTable
from iscsitrace.studies.quantities import QUANTITIES
from iscsitrace.studies.results import Beside, JudgedClaim
from tools import printed_values
from tools.studies import NOTHING, OUTCOMES, UNTESTED, WORLD_NAMES, World, judged, outcomes, table, worlds
from tools.studies import printed as printed_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
VALUES = PAGE.with_suffix(".csv")
IMAGES = ROOT / "docs" / "images" / "studies"
_PERCENT = f"{100 * verdicts.TOLERANCE:g} %"
_UNRECORDED = {
    "real": "No run is recorded.",
    "guests": "No run is recorded. Guests run the kernel's own initiator and target. Without KVM their instructions "
    "are translated, and hosts take seconds for a call: packets and k are real then, rates are not.",
}
"""Why a world has no columns."""
_INTRODUCTION = f"""
Five studies of iSCSI are repeated here. Each is an experiment: `iscsitrace lab run NAME -o DIR` repeats it, and
`iscsitrace report DIR` makes a page with all its figures, tables and captures ([lab.md](lab.md)). This page sets the
printed values and the claims of a study beside the measurement of a recorded run, or says why not. Quotations are in
the language of the paper. [reproduction.csv](reproduction.csv) has the printed values as a table.

- **A check** holds (reproduced) when the measured number is within its limits with its whole 95 % confidence interval,
  fails when all of the interval is outside, and is undecided where a limit is in the interval. One run has no interval;
  in the simulated world a place that depends on no seed runs once. A claim is partly reproduced when some of its checks
  hold and others fail, or when all hold and a part of it is not tested. It is undecided when what is undecided may
  still change that: all other checks hold, or none does.
- **The limits of a check** are those of a printed value, or the direction that the study states (below or above 1), or
  ours: the studies rarely print a tolerance. Where they are ours, the claim says so, or has 5 or 10 % for what the
  study calls equal. No limit was registered before the runs. "Earlier" in a claim names limits,
  places and checks that a reader of the page and the papers found fitted to the numbers, met by any number, at one of
  several places that the study prints, or not about what the study says. They were changed after the numbers had been
  seen; the history of the definitions has every change.
- **A printed value** is reproduced when ours is within {_PERCENT} of it; a percentage also within
  {_PERCENT} of what it lacks to 100 %, so that 91 % of the time idle is judged like 9 % busy; in any case
  within half of its last digit. It is not compared where ours is set, or computed from it, or where our world has not
  the line that it is a share of. A computed value is not printed: it follows from what the study prints, in the way
  that the table names. Such values are counted apart. In figures a value is a star where the study prints its place
  along the axis, and else a dashed line: the table compares it at a place of our choice. Ours are in MB/s of 10^6
  bytes; where the study's MB are taken as 2^20 bytes, the table says so.
- **The model's error** is not judged: a study's is that of its equation against its hosts. In the simulated world ours
  is no test against a network: model and simulator take the same settings.
- **Over the kernel's TCP** hosts take time, the more the busier their machine is. The recorded runs shared two
  processors with other work, above whose priority they ran (`chrt -r 5` before the command).
- **In guests** (virtual machines with the kernel's own initiator and target) instructions were translated, without KVM:
  packets and k are real, rates and their differences from the model are not.
- "{NOTHING}": this world does not have that place. `{verdicts.NOT_RUN}`: no recorded run has it with the present
  definition.

`python -m tools.reproduction --record DIR` records another run. Numbers of a place whose settings have changed since
are dropped.
"""


Study = tuple[Definition, list[World]]
"""An experiment, and the worlds in which it has arms."""


def page() -> str:
    """docs/reproduction.md."""
    lines = [
        "# The studies",
        "",
        "Generated from the definitions and records of `iscsitrace/studies/` by",
    ]
    lines += ["`python -m tools.reproduction`; do not edit.", *_INTRODUCTION.splitlines(), ""]
    studies = _studies()
    lines += ["## Summary", "", *_summary([each for parts in studies for each in parts])]
    for whole, *parts in studies:
        lines += _study(whole, parts)
    return "\n".join(lines)


def _studies() -> list[list[Study]]:
    """Each study with the experiments that repeat a part of it, in the order of their years."""
    every = [(each, worlds(each)) for each in map(load, names())]
    wholes = sorted((each for each in every if not each[0].part_of), key=lambda each: each[0].paper.year or 0)
    return [[whole, *(part for part in every if part[0].part_of == whole[0].name)] for whole in wholes]


def _summary(studies: Sequence[Study]) -> list[str]:
    head = ("experiment", "paper", "world", *OUTCOMES)
    rows = [
        (
            f"[{definition.name}](#{definition.name})",
            definition.source,
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


def _study(whole: Study, parts: Sequence[Study]) -> Iterator[str]:
    """A study: what a reader of the paper asks, then the experiments that repeat a part of it."""
    definition, every = whole
    yield from (f"## {definition.name}", "", f"{definition.title}.", "", *citation(definition.paper))
    yield from ([" ".join(definition.summary.split()), ""] if definition.summary else ())
    for name, title, _ in _pictures(definition, every):
        yield from (f"![{title}](images/studies/{name})", "")
    yield from _titled("### Settings", ("setting", "printed", "place", "ours", "status"), _conditions(definition))
    yield from _results(definition, every, "###")
    yield from _titled("### Figures and tables of the paper", _EXHIBITS, _exhibits(definition, parts))
    left_out = [(each.what, each.why) for each in definition.left_out]
    yield from _titled("### Not repeated", ("what", "why"), left_out)
    yield from ("### Runs", "", *_runs(definition, every))
    for part, found in parts:
        yield from (f"### {part.name}", "", f"{part.title}: {part.source}.", "")
        yield from ([" ".join(part.summary.split()), ""] if part.summary else ())
        for name, title, _ in _pictures(part, found):
            yield from (f"![{title}](images/studies/{name})", "")
        yield from _results(part, found, "####")
        yield from _titled("#### Not repeated", ("what", "why"), [(each.what, each.why) for each in part.left_out])
        yield from ("#### Runs", "", *_runs(part, found))


def citation(paper: Paper) -> list[str]:
    """Authors, title, affiliation, venue and year, as far as they are known, and what they rest on."""
    title = f"*{paper.title}*{f' ({paper.title_original})' if paper.title_original else ''}"
    year = str(paper.year or "")
    parts = [paper.authors, title if paper.title else "", paper.affiliation, paper.venue]
    parts += [year] if year not in paper.venue else []
    unknown = "" if paper.title else "Authors and title are not in the text"
    known = ". ".join(filter(None, (unknown, *parts))) if any(parts) else ""
    opening = "Probably: " if paper.is_probable else ""
    return [" ".join((f"{opening}{known}.", *paper.remark.split())), ""] if known else []


def _conditions(definition: Definition) -> Iterator[tuple[str, ...]]:
    for each in definition.conditions:
        state = f"Differs. {each.differs}" if each.differs else "as printed" if each.printed else "assumed"
        more = f"; {each.remark}" if each.remark else ""
        yield each.what, each.printed or NOTHING, each.source or NOTHING, each.ours, f"{state}{more}"


_EXHIBITS: Final = ("in the paper", "caption as printed", "in English", "ours", "remarks")


def _exhibits(definition: Definition, parts: Sequence[Study]) -> Iterator[tuple[str, ...]]:
    owners = {figure.name: each.name for each in (*(part for part, _ in parts), definition) for figure in each.figures}
    for each in definition.exhibits:
        ours = ", ".join(f"`{owners[name]}/{name}.svg`" for name in each.ours)
        yield each.name, each.caption or "not in the text", each.english, ours or NOTHING, each.why


def _results(definition: Definition, every: Sequence[World], level: str) -> Iterator[str]:
    """The printed values and the claims of an experiment, with the worlds that have a recorded run, or with all."""
    found = [world for world in every if world.run is not None] or list(every)
    yield from _titled(f"{level} Printed values", *_printed(definition, found))
    for title, is_own in (("Claims of the study", False), ("Claims of our own", True)):
        lines = [line for each in _claims(definition, found, is_own=is_own) for line in each]
        yield from ([f"{level} {title}", "", *lines] if lines else ())


def _printed(definition: Definition, found: Sequence[World]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table of printed values: two columns for each world that has one of the places."""
    by_world = [printed_of(definition, world) for world in found]
    rows = []
    for (published, place, is_first), several in zip(_places(definition), zip(*by_world, strict=True), strict=True):
        cells = [
            (_ours(each), each.verdict) if world.has(each.arm, place) else (NOTHING, NOTHING)
            for each, world in zip(several, found, strict=True)
        ]
        one = several[0]
        where = ", ".join(f"{name.rpartition('.')[2]} {text}" for name, text in {**one.where, one.x: one.at}.items())
        why = [each.why for each in several if each.why]
        remark = published.remark if is_first else ""
        lead = (
            quoted(published.quotation, one.source) if is_first else one.source,
            _label(one.quantity),
            f"{one.arm}, {where}",
            _value(one, published),
        )
        rows.append((lead, cells, " ".join(dict.fromkeys((*filter(None, (remark,)), *why))) or NOTHING))
    kept = [number for number in range(len(found)) if any(cells[number][1] != NOTHING for _, cells, _ in rows)]
    head = (
        "place",
        "quantity",
        "ours at",
        "printed",
        *_two(WORLD_NAMES[found[number].name] for number in kept),
        "remarks",
    )
    return head, [(*lead, *(cell for number in kept for cell in cells[number]), why) for lead, cells, why in rows]


def _two(worlds_named: Iterable[str]) -> Iterator[str]:
    for name in worlds_named:
        yield from (name, "result")


def _places(definition: Definition) -> Iterator[tuple[Published, Mapping[str, object], bool]]:
    """Each printed value, its settings, and whether it is the first of its entry."""
    for published in definition.published:
        for arm in published.arms or [arm.name for arm in definition.arms]:
            for number, (written, _) in enumerate(published.pairs):
                place = {name: each.value for name, each in {**published.where.settings, published.x: written}.items()}
                yield published, place, number == 0 and arm == (published.arms or (arm,))[0]


def _label(quantity: str) -> str:
    """The name of a quantity, without how it is computed."""
    return QUANTITIES[quantity].label.partition(":")[0].removesuffix(" after the warm-up")


def _value(one: Beside, published: Published) -> str:
    """As printed, and in our unit where that is another one."""
    if published.read_as:
        return f"{one.printed}, read as {published.read_as}: {one.published:.2f} {one.unit}"
    return f"{one.printed}{', computed' if one.is_computed else ''}"


def _ours(each: Beside) -> str:
    return printed_values.estimate_text(each.ours, each.interval, each.run_count, QUANTITIES[each.quantity].digits)


def quoted(quotation: str, source: str) -> str:
    """The words of the paper and their place; only the place where there are none."""
    return f"「{quotation}」 {source}" if quotation else source


def _claims(definition: Definition, found: Sequence[World], *, is_own: bool) -> Iterator[list[str]]:
    """Each claim: its text, the words of the paper, the verdict of each world, and its checks."""
    by_world = [judged(definition, world) for world in found]
    for claim, several in zip(definition.claims, zip(*by_world, strict=True), strict=True):
        if claim.is_own != is_own or not set(claim.worlds) & {world.name for world in found}:
            continue
        tested = [
            (WORLD_NAMES[world.name], each)
            for each, world in zip(several, found, strict=True)
            if _has(claim, world) and world.name in claim.worlds
        ]
        lines = [f"**{claim.name}** {sentence(claim.text)}", ""]
        lines += [f"> {quoted(claim.quotation, claim.source)}", ""] if claim.source else []
        assumed = f", with {claim.assumed}" if claim.assumed else ""
        by_name = [f"{_capital(name)}: {each.verdict}{assumed}." for name, each in tested]
        if not claim.checks:
            by_name = [sentence(verdicts.NOT_TESTABLE)]
        lines += [" ".join(by_name), ""] if by_name else []
        lines += _checks(claim, tested)
        why = dict.fromkeys(each.why for _, each in tested if each.why)
        texts = [text for text in (claim.remark, *why) if text]
        yield [*lines, *([" ".join(texts), ""] if texts else [])]


def place_text(arm: str, settings: SettingTable) -> str:
    """An arm and settings, for people."""
    texts = (f"{name.rpartition('.')[2]} {each.text}" for name, each in settings.settings.items())
    return ", ".join(filter(None, (arm, *texts)))


def sentence(text: str) -> str:
    """The text with a capital and a full stop."""
    return f"{_capital(text).removesuffix('.')}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _has(claim: Claim, world: World) -> bool:
    """Whether a world has all places of a claim."""
    spots = [spot for check in claim.checks for _, spot in check.spots]
    return all(world.has(spot.arm, {name: each.value for name, each in claim.place(spot).items()}) for spot in spots)


def _checks(claim: Claim, tested: Sequence[tuple[str, JudgedClaim]]) -> list[str]:
    """A row for each check, a column for each world in which the claim was tested."""
    shown = [(name, each) for name, each in tested if each.verdict not in UNTESTED]
    if not shown:
        return []
    is_printed = any(check.printed for check in claim.checks)
    common = place_text("", claim.where)
    head = (f"number{f', at {common}' if common else ''}", "printed", "limits", *(name for name, _ in shown))
    rows = []
    for number, check in enumerate(claim.checks):
        label = f"{_label(check.quantity)}: {check.text(lambda spot: place_text(spot.arm, spot))}"
        limits = f"{check.between[0]:g} to {check.between[1]:g} {check.unit}"
        rows.append((label, check.printed or NOTHING, limits, *(_met(each.checks[number]) for _, each in shown)))
    if not is_printed:
        head, rows = (head[0], *head[2:]), [(row[0], *row[2:]) for row in rows]
    return table(head, rows)


def _met(check: results.JudgedCheck) -> str:
    digits = 2 if check.unit == "times" else QUANTITIES[check.quantity].digits
    text = printed_values.estimate_text(check.value, check.interval, check.run_count, max(digits, 2))
    return f"{text} {'?' if check.is_undecided else '✓' if check.is_met else '✗'}"


def _runs(definition: Definition, every: Sequence[World]) -> list[str]:
    head = ("world", "command", "versions", "seeds", "points", "failed")
    rows = []
    for world in every:
        run = world.run
        if run is None:
            command = f"`{results.command(definition.name, world.name)}`"
            own = [claim.name for claim in definition.claims if claim.worlds == (world.name,)]
            named = f" It has claim {', '.join(own)}." if own else ""
            rows.append((WORLD_NAMES[world.name], command, _UNRECORDED[world.name] + named, *(NOTHING,) * 3))
            continue
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        counts = str(run.point_count), str(run.failed_count)
        rows.append((WORLD_NAMES[world.name], f"`{run.command}`", versions, results.seeds_text(run.seeds), *counts))
    return table(head, rows)


def _titled(title: str, head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    return [title, "", *table(head, found)] if found else []


def _pictures(definition: Definition, every: Sequence[World]) -> Iterator[tuple[str, str, experiment.Chart]]:
    """The figures of the page: file, title and arrays, from the record of the simulated world."""
    rows = next((world.rows for world in every if world.name == ALL_WORLDS[0]), [])
    for figure in definition.drawn_on_page:
        chart = charts.of_lines(figure, definition, [row for row in rows if figure.y in row.estimates])
        if chart.has("measured"):
            yield f"{definition.name}-{figure.name}.svg", figure.title, chart


def images() -> Iterator[tuple[Path, bytes]]:
    """The figures of the page as SVG."""
    for definition in map(load, names()):
        for name, title, chart in _pictures(definition, worlds(definition)):
            stream = io.BytesIO()
            with style.applied():
                drawn = style.new_figure()
                experiment.draw(drawn, chart)
                picture.write_lines(drawn, title, (charts.caption(chart), *chart.notes))
                style.write(drawn, stream, "svg")
            yield IMAGES / name, stream.getvalue()


def files() -> Iterator[tuple[Path, bytes]]:
    """Everything that this tool writes."""
    yield PAGE, page().encode()
    yield VALUES, printed_values.text([(definition, worlds(definition)) for definition in map(load, names())]).encode()
    yield from images()


def record(folders: Sequence[Path]) -> None:
    """Records the results in these folders."""
    for folder in folders:
        found = results.load(folder)
        file = records.keep(load(found.name), found)
        print(f"{file.relative_to(ROOT)} written")


def main(arguments: Sequence[str]) -> int:
    """Writes the files, or only compares them; returns the exit code."""
    if arguments[:1] == ["--record"]:
        record([Path(each) for each in arguments[1:]])
    is_check, stale = "--check" in arguments, False
    made = dict(files())
    for path in sorted({*made, *IMAGES.glob("*.svg")}):
        content = made.get(path)
        if path.is_file() and path.read_bytes() == content:
            continue
        stale, name = True, path.relative_to(ROOT)
        if is_check:
            print(f"{name} is out of date: python -m tools.reproduction")
        elif content is None:
            path.unlink()
            print(f"{name} removed")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"{name} written")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
