"""``iscsitrace model fit``: k, d, s and C of captures with confidence intervals, and the residuals of the points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, as_json, takes_captures
from iscsitrace.cli.read.baselines import Baseline, RateOrCapture, c_of, rates_of, takes_link_rate
from iscsitrace.cli.read.model_options import of_each, takes_named_settings
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.errors import InputInvalid
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.fit.points import Point


@click.command(
    cls=SectionedCommand, epilog="Example:  iscsitrace model fit --operation read -o sweep near.pcapng far.pcapng"
)
@takes_captures
@as_json
@click.option(
    "--operation",
    type=click.Choice(("read", "write")),
    help="Fit this operation (the one that moved more bytes).",
)
@click.option(
    "--socket",
    "baselines",
    type=RateOrCapture(),
    multiple=True,
    help="C is the throughput of a plain TCP transfer over the same path: a rate of payload, or a capture of one. With "
    "several captures, each is used for the points of the nearest delay. Without it, C is the rate of the line, or of "
    "the bursts where the line had no queue.",
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a sweep into this folder: points.csv, connections.csv, the fit as JSON, and measured throughput, model "
    "and residuals as SVG and PDF.",
)
@takes_link_rate
@takes_named_settings
@click.option("--force", "is_forced", is_flag=True, help="Overwrite files that exist.")
def command(
    capture_input: CaptureInput,
    is_json: bool,
    operation: str | None,
    baselines: tuple[Baseline, ...],
    directory: Path | None,
    link_bps: int | None,
    named: tuple[dict[str, Any], ...],
    is_forced: bool,
) -> None:
    """Fit period = k * d + s + B / C to the steady cycles of captures.

    A cycle lasts from a command to the next one: k one-way delays d, the service time s, and the I/O size B at C, the
    TCP throughput. Each capture is read separately. Each I/O size, queue depth and session is a point of one model.
    Captures at two or more delays separate k from s; two or more I/O sizes separate s from C. Parameters that the
    points cannot separate are measured from the packets, and the output tells which. Cycles in slow start, with losses,
    and other cycles that are not steady are left out and counted. Where losses leave no steady cycle, all count, with
    the measured loss rate; published models of TCP under losses are compared with this one, by cross-validation.

    With -o the captures are a sweep: points in order of their settings, each also predicted by the others.
    """
    from iscsitrace.fit.points import of_operation
    from iscsitrace.fit.regression import fit
    from iscsitrace.fit.rivalry import compare
    from iscsitrace.show import model_fit

    if named and directory is None:
        raise click.UsageError("--at names settings of a sweep: use it with -o")
    if link_bps is not None and directory is None:
        raise click.UsageError("--link-rate adds a column to a sweep: use it with -o")
    settings = of_each(capture_input.sources, named)
    # its pictures take a cache of fonts
    read = survey_each(capture_input, written=() if directory is None else None)
    chosen = read.of(operation, "nothing to fit")
    c = c_of(chosen, baselines)
    result = fit(chosen, c)
    rivalry = compare(chosen)
    written, swept = [], None
    if directory is not None:
        from iscsitrace.fit.sweep import SweptCapture, sweeps
        from iscsitrace.show import sweep_files

        captures = [
            SweptCapture(source, tuple(of_operation(found, chosen[0].setting.operation)), at)
            for source, found, at in zip(capture_input.sources, read.points, settings, strict=True)
        ]
        line = None if link_bps is None else link_bps / 8
        (swept,) = sweeps(captures, rates_of(chosen, baselines), line)
        head = read.heads[0] | {"input": read.inputs}
        written = sweep_files.write(directory, [swept], head, is_forced=is_forced)
    if is_json:
        under_losses = {"under_losses": rivalry and rivalry.as_dict()}
        show_json(read.heads[0] | {"input": read.inputs} | result.as_dict() | under_losses | {"missing": read.missing})
    else:
        show(model_fit.sections(read.inputs, result, read.missing, swept, rivalry))
    for path, content in written:
        say(f"{path}: {content}", err=is_json)


@dataclass(frozen=True)
class Surveyed:
    """What separate reads of captures show."""

    points: list[tuple[Point, ...]]
    """The steady points of each capture."""
    missing: list[str]
    heads: list[dict[str, Any]]
    """Provenance of each."""
    inputs: list[dict[str, Any]]

    def of(self, operation: str | None, refusal: str) -> Sequence[Point]:
        """The points of an operation, or of the one that moved more bytes; InputInvalid, after ``refusal``, without."""
        from iscsitrace.fit.points import of_operation

        points = [point for found in self.points for point in found]
        chosen = of_operation(points, operation)
        if not chosen:
            what = f"no steady {operation}" if operation and points else "; ".join(self.missing)
            raise InputInvalid(f"{refusal}: {what}")
        return chosen


def survey_each(capture_input: CaptureInput, written: Iterable[Path] | None) -> Surveyed:
    """Reads each capture alone, so that none is part of the time of another; ``written`` as for CaptureInput.read."""
    from iscsitrace.fit.steady import NEEDED, survey

    read = Surveyed([], [], [], [])
    for source in capture_input.sources:
        trace = replace(capture_input, sources=(source,)).read(NEEDED, written=written)
        found = survey(trace.table, source)
        read.points.append(found.points)
        read.missing.extend(str(each) for each in found.missing)
        read.heads.append(trace.provenance)
        read.inputs.extend(trace.inputs)
    return read
