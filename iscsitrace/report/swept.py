"""The report on a sweep: each capture is read alone, and its sessions are points of one study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import iscsitrace
from iscsitrace.fit.rivalry import compare
from iscsitrace.fit.sweep import Sweep
from iscsitrace.plots import inline, model, style
from iscsitrace.plots import sweep as sweep_curves
from iscsitrace.plots.model_curves import ModelCurves, label_of
from iscsitrace.report import figures
from iscsitrace.show import inputs as captures
from iscsitrace.show import model_fit
from iscsitrace.show.document import Document, Fact, Opening, Section, SvgPlot
from iscsitrace.wording import amounts, cells

_READ: Final = (
    "Marks: measured throughput, with 95 % confidence intervals. Lines: the model fitted to all points, with the band "
    "for one more run."
)


def describe(
    sweeps: Sequence[Sweep], missing: Sequence[str], inputs: Sequence[Mapping[str, Any]], *, has_pictures: bool = True
) -> Document:
    """The document; ``inputs`` are the captures by their provenance, ``missing`` the sessions without points."""
    looks = inline.Looks()
    pictures = tuple(_pictures(sweeps, looks)) if has_pictures else ()
    names = dict.fromkeys(name for sweep in sweeps for name in sweep.varied)
    over = f" over {' and '.join(label_of(name) for name in names)}" if names else ""
    points = amounts.count(sum(len(each.places) for each in sweeps), "point")
    return Document(
        title=f"Throughput{over}",
        subtitle=f"{amounts.count(len(inputs), 'capture')}, each read alone; {points}",
        sections=(*figures.section(pictures), *_sections(sweeps, missing, inputs)),
        opening=Opening(
            "Result",
            " ".join(map(model_fit.verdict, sweeps)) or "No session has steady reads or writes, so there is no point.",
            "A point is the steady commands of one session in one capture.",
            tuple(_facts(sweeps)),
        ),
        style_sheet=looks.sheet,
    )


def _pictures(sweeps: Sequence[Sweep], looks: inline.Looks) -> Iterator[SvgPlot]:
    plots = [(sweep, plot) for sweep in sweeps for plot in sweep_curves.plots(sweep)]
    for number, (sweep, plot) in enumerate(plots, 1):
        with style.applied():
            figure = style.new_figure()
            model.draw(figure, plot)
        drawn = inline.draw(figure, f"sweep{number}-", looks)
        name = f"{sweep.operation.capitalize()}s" + (f" {number}" if len(plots) > len(sweeps) else "")
        yield SvgPlot(name, _title(plot), _READ, tuple(model.notes(plot)), drawn.svg, drawn.axes)


def _title(plot: ModelCurves) -> str:
    return f"Throughput over {plot.axis.label.split(',')[0]}: measured and model"


def _facts(sweeps: Sequence[Sweep]) -> Iterator[Fact]:
    for sweep in sweeps:
        rates = [place.point.throughput_bytes_per_s for place in sweep.places]
        idle = [place.point.idle_fraction for place in sweep.places if place.point.idle_fraction is not None]
        yield Fact(
            f"{sweep.operation}s",
            model_fit.span(rates),
            amounts.count(len(rates), "point"),
        )
        if idle:
            ends = dict.fromkeys((cells.percent(min(idle)), cells.percent(max(idle))))
            yield Fact("idle", f"{' to '.join(ends)} %", "no data on the line")
        if sweep.error is not None:
            has_others = any(place.left_out for place in sweep.places)
            what = "median, each setting by the others" if has_others else "median of residuals"
            yield Fact("error of the model", amounts.percent(sweep.error), what)
        if not sweep.is_poor:
            yield Fact("k", f"{sweep.fit.k.value:.2f}", "one-way delays per command")


def _sections(
    sweeps: Sequence[Sweep], missing: Sequence[str], inputs: Sequence[Mapping[str, Any]]
) -> Iterator[Section]:
    grids = [grid for sweep in sweeps for grid in (model_fit.points_of(sweep), model_fit.connections_of(sweep)) if grid]
    yield Section("Points", tuple(grids), "points")
    fitted = [grid for sweep in sweeps if (grid := model_fit.parameters_of(sweep))]
    unknown = tuple(f"Not determined: {line}." for line in model_fit.undetermined(sweeps, missing))
    if fitted or unknown:
        yield Section("Model", (*unknown, *fitted), "fit")
    rivalry = compare([place.point for sweep in sweeps for place in sweep.places])
    if rivalry:
        yield model_fit.section_of_rivals(rivalry)
    yield Section("How this was made", (*captures.lines(inputs), *_making()), "making")


def _making() -> Iterator[str]:
    yield (
        f"Made by iscsitrace {iscsitrace.__version__}: iscsitrace report --sweep. iscsitrace model fit -o DIR with the "
        "same captures writes the points as CSV and the plots as SVG and PDF."
    )
    yield (
        "Steady commands only: those in slow start, after losses, with pauses and at the ends of bursts are left out; "
        "where losses leave no steady command, all count. "
        "The model is period = k * d + s + B / C + stalls. `iscsitrace docs method 6` defines each number."
    )
