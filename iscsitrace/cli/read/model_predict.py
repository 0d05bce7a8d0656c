"""``iscsitrace model predict``: the period of a cycle and the throughput for every combination of values."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import as_json
from iscsitrace.cli.read import model_options
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.show import files as output_file
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.fit.fitted import FittedModel
    from iscsitrace.model.setting import Setting

_PICTURES: Final = ("png", "svg", "pdf")
_ANSWERS_MOST, _LINES_MOST = 10_000, 8


SECTIONS = model_options.sections(has_several=True)


@click.command(
    cls=SectionedCommand,
    sections=SECTIONS,
    epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8",
)
@click.argument("operation", type=click.Choice(("read", "write")), required=False)
@model_options.takes_fit
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a chart: NAME.png, NAME.svg or NAME.pdf.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@as_json
def command(
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

    lists = _in_order_of_the_line({key: found for section in SECTIONS for key, found in section.take(values).items()})
    if "rate_bps" in lists and "socket_bps" in lists:
        raise click.UsageError("--rate and --socket both set C: use one of them")
    if path is not None:
        _check_output(path, is_forced)
    fit = None if fit_file is None else model_options.read_fit(fit_file)
    base = _base(operation, fit, lists)
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


def _base(operation: str | None, fit: FittedModel | None, lists: dict[str, tuple[Any, ...]]) -> Setting:
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
