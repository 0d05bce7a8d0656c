"""``iscsitrace model``: the model of throughput; ``fit`` finds its parameters, ``predict`` evaluates it for every
combination of values, and ``plan`` inverts it: what a wanted throughput needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import CaptureInput, as_json, files_of
from iscsitrace.cli.output import takes_picture, writes_text
from iscsitrace.cli.read import model_fit, model_options
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.cli.units import ByteRate, Share
from iscsitrace.show import files as output_file
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.fit.points import Fit, FittedModel
    from iscsitrace.model.setting import Setting


@click.group(epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8")
def command() -> None:
    """Fit, evaluate or invert the model: period = k * d + s + B / C.

    A cycle takes k one-way delays d, the service time s, and the time of its I/O size B on a line of rate C.
    """


command.add_command(model_fit.command, "fit")


_PICTURES: Final = ("png", "svg", "pdf")
_ANSWERS_MOST, _LINES_MOST = 10_000, 8


PREDICT_SECTIONS = model_options.sections(has_several=True)


@command.command(
    "predict",
    cls=SectionedCommand,
    sections=PREDICT_SECTIONS,
    epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8",
)
@click.argument("operation", type=click.Choice(("read", "write")), required=False)
@model_options.takes_fit
@takes_picture("Write a chart: NAME.png, NAME.svg or NAME.pdf.")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@as_json
def _predict(
    operation: str | None, fit_file: IO[bytes] | None, path: Path | None, is_forced: bool, is_json: bool, **values: Any
) -> None:
    """Predict the period of a cycle and the throughput, from plain values or from a fit with other values.

    Every option takes several values separated by commas; each combination is a row. With --fit the options replace
    single values of its setting: the gain is relative to that setting, and low and high are the bounds of a 95 %
    confidence interval for the throughput of one more run. It is wider outside of the fitted delays, I/O sizes and
    queue depths, by what the fit cannot show there. The x axis of a chart is the first option with several values;
    each combination of the others is a line.
    """
    from iscsitrace.model.what_if import ask
    from iscsitrace.show import model_predict

    lists = _in_order_of_the_line(
        {key: found for section in PREDICT_SECTIONS for key, found in section.take(values).items()}
    )
    if "rate_bps" in lists and "socket_bps" in lists:
        raise click.UsageError("--rate and --socket both set C: use one of them")
    if path is not None:
        _check_output(path, is_forced)
    fit = None if fit_file is None else model_options.read_fit(fit_file)
    base = _base_of_lists(operation, fit, lists)
    _check_size(lists, has_chart=path is not None)
    answers = ask(base, lists, fit)
    if is_json:
        show_json(model_predict.as_dict(base, None if fit_file is None else fit_file.name, answers))
    else:
        show(model_predict.sections(base, fit, lists, answers))
    if path is not None:
        model_predict.write_chart(path, base, fit, lists, answers)
        say(f"{path}: chart", err=is_json)


def _in_order_of_the_line(lists: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The lists in the order of the options: the first varies slowest, and is the axis of the chart."""
    return {name: lists[name] for name in click.get_current_context().params if name in lists}


def _base_of_lists(operation: str | None, fit: FittedModel | None, lists: dict[str, tuple[Any, ...]]) -> Setting:
    delays = lists.get("delay_ns") or lists.get("target_delays_ns", ((),))[0]
    return model_options.base(operation, fit.setting if fit else None, delays)


def _check_size(lists: dict[str, tuple[Any, ...]], *, has_chart: bool) -> None:
    counts = [len(values) for values in lists.values() if len(values) > 1]
    if prod(counts) > _ANSWERS_MOST:
        raise click.UsageError(f"too many combinations: {prod(counts)}, the limit is {_ANSWERS_MOST}")
    if has_chart and not counts:
        raise click.UsageError("a chart needs an option with several values")
    if has_chart and prod(counts[1:]) > _LINES_MOST:
        raise click.UsageError(f"too many lines for a chart: {prod(counts[1:])}, the limit is {_LINES_MOST}")


def _check_output(path: Path, is_forced: bool) -> None:
    if path.suffix.removeprefix(".") not in _PICTURES:
        raise click.UsageError(f"unknown format of {path}: name it .png, .svg or .pdf")
    output_file.check(path, is_forced=is_forced)


PLAN_SECTIONS = model_options.sections(has_several=False)
_OPERATIONS: Final = ("read", "write")


@command.command(
    "plan",
    cls=SectionedCommand,
    sections=PLAN_SECTIONS,
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
def _plan(
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
    from iscsitrace.model import what_if
    from iscsitrace.model.prediction import predict
    from iscsitrace.model.uncertainty import predicted_with
    from iscsitrace.model.what_if import with_values
    from iscsitrace.show import model_predict

    given = {key: found for section in PLAN_SECTIONS for key, found in section.take(values).items()}
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
    found = what_if.planned(setting, wanted_bytes_per_s, share, forward)
    asked = model_predict.Asked(captures, fit, given)
    if is_json:
        show_json(model_predict.plan_as_dict(asked, found, None if fit_file is None else fit_file.name))
    else:
        show(model_predict.plan_sections(asked, found))


def _of_captures(captures: Sequence[str], operation: str | None) -> Fit:
    from iscsitrace.cli.read.model_fit import survey_each
    from iscsitrace.fit.regression import fit

    sources = tuple(file for each in captures for file in files_of(each, has_experiments=False))
    read = survey_each(CaptureInput(sources, None, None, None, None, is_quiet=False), written=())
    return fit(read.of(operation, "nothing to plan from"))
