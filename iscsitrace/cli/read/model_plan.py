"""``iscsitrace model plan``: what a wanted throughput needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import CaptureInput, as_json, files_of
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.read import model_options
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import ByteRate, Share
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.fit.points import Fit

SECTIONS = model_options.sections(has_several=False)
_OPERATIONS: Final = ("read", "write")


@click.command(
    cls=SectionedCommand,
    sections=SECTIONS,
    epilog="Example:  iscsitrace model plan read --one-way-delay 8ms --rate 320Mbit --hide 90%",
)
@click.argument("what", metavar="[read|write] [CAPTURE]...", nargs=-1)
@model_options.takes_fit
@click.option(
    "--hide",
    "share",
    type=Share(),
    help="Reach this share of what the same load would carry without the delay (90%).",
)
@click.option("--reach", "wanted_bytes_per_s", type=ByteRate(), help="Reach this throughput: 8MB/s, 64Mbit.")
@as_json
@writes_text
def command(
    what: tuple[str, ...],
    fit_file: IO[bytes] | None,
    share: float | None,
    wanted_bytes_per_s: float | None,
    is_json: bool,
    **values: Any,
) -> None:
    """Plan what hides a delay, or what reaches a throughput: the model of predict, searched backwards.

    Each row is one change with the least value that is enough: I/O size, commands in flight, connections, window,
    negotiated parameters; and the greatest distance over which the load as it is would do. Where one change is not
    enough, the row adds the window and the parameters that it needs, or says how far it gets.

    The load is that of captures, of a fit with --fit, or of the options. With --target-delay it is a synchronous
    mirror: which rate of writes it carries, and how far it may be.
    """
    from iscsitrace.model import plan
    from iscsitrace.model.prediction import predict
    from iscsitrace.model.uncertainty import predicted_with
    from iscsitrace.model.what_if import with_values
    from iscsitrace.show import model_plan

    given = {key: found for section in SECTIONS for key, found in section.take(values).items()}
    if "rate_bps" in given and "socket_bps" in given:
        raise click.UsageError("--rate and --socket both set C: use one of them")
    if share is not None and wanted_bytes_per_s is not None:
        raise click.UsageError("--hide and --reach both set what is wanted: use one of them")
    if share == 0:
        raise click.UsageError("--hide 0% wants nothing")
    operation = what[0] if what and what[0] in _OPERATIONS else None
    captures = what[1:] if operation else what
    if captures and fit_file:
        raise click.UsageError("captures and --fit both name the load: use one of them")
    fit = _of_captures(captures, operation) if captures else model_options.read_fit(fit_file) if fit_file else None
    delays = (given["delay_ns"],) if "delay_ns" in given else given.get("target_delays_ns", ())
    setting = with_values(model_options.base(operation, fit.setting if fit else None, delays), given)
    forward = partial(predicted_with, fit=fit, given=frozenset(given)) if fit else predict
    found = plan.planned(setting, wanted_bytes_per_s, share, forward)
    asked = model_plan.Asked(captures, fit, given)
    if is_json:
        show_json(model_plan.as_dict(asked, found, None if fit_file is None else fit_file.name))
    else:
        show(model_plan.sections(asked, found))


def _of_captures(captures: Sequence[str], operation: str | None) -> Fit:
    from iscsitrace.cli.read.model_fit import survey_each
    from iscsitrace.errors import InputInvalid
    from iscsitrace.fit.points import of_operation
    from iscsitrace.fit.regression import fit

    sources = tuple(file for each in captures for file in files_of(each, has_experiments=False))
    read = survey_each(CaptureInput(sources, None, None, None, None, is_quiet=False), written=())
    points = [point for found in read.points for point in found]
    chosen = of_operation(points, operation)
    if not chosen:
        what = f"no steady {operation}" if operation and points else "; ".join(read.missing)
        raise InputInvalid(f"nothing to plan from: {what}")
    return fit(chosen)
