"""``iscsitrace model predict``: what a cycle takes, and what that carries, of every combination of values."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import as_json
from iscsitrace.cli.output import show_heading, show_json, show_line, show_table
from iscsitrace.cli.read.sections import Section, SectionedCommand, option
from iscsitrace.cli.units import Duration, Quantity, Rate, Share, Size
from iscsitrace.errors import InputInvalid
from iscsitrace.outputs import files as output_file
from iscsitrace.wording import cells

if TYPE_CHECKING:
    from iscsitrace.analysis.fit.fitted import Fitted
    from iscsitrace.analysis.model.setting import Setting
    from iscsitrace.analysis.model.what_if import Answer

_PICTURES: Final = ("png", "svg", "pdf")
_ANSWERS_MOST, _LINES_MOST, _BLOCK_BYTES = 10_000, 8, 65_536
_TRUTHS: Final = {"yes": True, "no": False}


class Truth(Quantity):
    """``yes`` or ``no``."""

    name = "YES|NO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """The truth; fails with a line that says what to write."""
        if isinstance(value, bool):
            return value
        if value.lower() not in _TRUTHS:
            self.fail(f"{value!r} is neither yes nor no", param, ctx)
        return _TRUTHS[value.lower()]


class Several(Quantity):
    """Values with commas between them."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind
        choices = getattr(kind, "choices", None)
        self.name = f"{'|'.join(choices) if choices else kind.name.upper().removesuffix(' RANGE')}[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Each of them; fails with the line of the first that is wrong."""
        if isinstance(value, tuple):
            return value
        return tuple(self.kind.convert(each.strip(), param, ctx) for each in value.split(","))


_COUNT = click.IntRange(min=1)
_OPTIONS: Final[dict[str, tuple[tuple[str, str, Any, str], ...]]] = {
    "Path": (
        ("one-way-delay", "delay_ns", Duration(), "Delay of each direction."),
        (
            "rate",
            "rate_bps",
            Rate(),
            "Of the line, as simulate takes it: C is what it carries in full segments.",
        ),
        ("socket", "socket_bps", Rate(), "C as a socket has it: payload of a bulk TCP transfer over the same path."),
        ("loss", "loss", Share(), "Probability of a segment: 0.01%, 0.0001."),
    ),
    "Workload": (
        ("block-size", "block_bytes", Size(), "PDU block size: what a command asks for (64K)."),
        ("queue-depth", "queue_depth", _COUNT, "Commands outstanding on each connection (1)."),
        ("connections", "connections", _COUNT, "Connections that share the line (1)."),
        ("service-time", "service_ns", Duration(), "What neither path nor line explains of a cycle (0s)."),
        ("service-spread", "service_spread_ns", Duration(), "How much more or less of it a task may take (0s)."),
        ("status-held", "is_status_held", Truth(), "A read's status waits for the ACK of its data (no)."),
        ("ack-delay", "ack_delay_ns", Duration(), "What the ACK of a block's last data waits, for held statuses (0s)."),
    ),
    "Keys in force (RFC 7143; what is not given has its default)": (
        ("initial-r2t", "is_initial_r2t", Truth(), "InitialR2T (yes)."),
        ("immediate-data", "is_immediate_data", Truth(), "ImmediateData (yes)."),
        ("first-burst", "first_burst_bytes", Size(), "FirstBurstLength (64K)."),
        ("max-burst", "max_burst_bytes", Size(), "MaxBurstLength (256K)."),
        ("outstanding-r2t", "max_outstanding_r2t", _COUNT, "MaxOutstandingR2T (1)."),
        ("data-segment", "max_recv_data_segment_bytes", Size(), "MaxRecvDataSegmentLength of who receives (8K)."),
    ),
    "TCP": (
        ("window", "window_bytes", Size(), "The least of receive window and send buffer (never in the way)."),
        ("start-window", "start_window_bytes", Size(), "Congestion window at the start of each block (wide open)."),
        ("segment-size", "segment_bytes", Size(), "Payload of a full segment (1448)."),
        ("congestion-control", "congestion_control", click.Choice(("reno", "cubic")), "Decides under losses (cubic)."),
    ),
}


def _section(title: str) -> Section[dict[str, tuple[Any, ...]]]:
    """Options that take several values; of each that is given its values, by the name of the parameter."""
    made = [option(f"--{name}", key, type=Several(kind), help=text) for name, key, kind, text in _OPTIONS[title]]
    if title == "Path":
        text = "A mirror: the delay to each target; repeat it for other mirrors. They share the line."
        made.insert(1, option("--target-delay", "target_delays_ns", type=Several(Duration()), multiple=True, help=text))
    return Section(title, lambda **values: {name: value for name, value in values.items() if value}, *made)


SECTIONS = tuple(_section(title) for title in _OPTIONS)


@click.command(
    cls=SectionedCommand,
    sections=SECTIONS,
    epilog="Example:  iscsitrace model predict read --one-way-delay 1ms,8ms --rate 320Mbit --queue-depth 1,8",
)
@click.argument("operation", type=click.Choice(("read", "write")), required=False)
@click.option(
    "--fit",
    "fit_file",
    type=click.File("rb"),
    metavar="FILE",
    help="What model fit --json printed: begin with its setting, and say how sure each answer is.",
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A chart: NAME.png, NAME.svg or NAME.pdf.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite the file if it exists.")
@as_json
def command(
    operation: str | None, fit_file: IO[bytes] | None, path: Path | None, is_forced: bool, is_json: bool, **values: Any
) -> None:
    """What a cycle takes by the model, and what throughput follows: of plain figures, or of a fit with other values.

    Every option takes several values with commas between them; each combination is a row. With --fit the options
    replace single values of its setting: the gain is over that setting, and low and high are the ends of a 95 %
    confidence interval. A chart has the first option with several values along its axis, and a line for each
    combination of the others.
    """
    from iscsitrace.analysis.model.what_if import ask

    lists = _in_order_of_the_line({key: found for section in SECTIONS for key, found in section.take(values).items()})
    if "rate_bps" in lists and "socket_bps" in lists:
        raise click.UsageError("--rate and --socket both say what C is: take one")
    if path is not None:
        _check_output(path, is_forced)
    fit = None if fit_file is None else _read(fit_file)
    base = _base(operation, fit, lists)
    _check_size(lists, has_chart=path is not None)
    answers = ask(base, lists, fit)
    if is_json:
        show_json(_describe(base, fit_file, fit, answers))
    else:
        _show(base, fit, lists, answers)
    if path is not None:
        _write(path, lists, answers)
        click.echo(f"{path}: chart", err=is_json)


def _in_order_of_the_line(lists: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The lists as the options stand on the command line: the first varies slowest, and along the chart."""
    return {name: lists[name] for name in click.get_current_context().params if name in lists}


def _read(file: IO[bytes]) -> Fitted:
    from iscsitrace.analysis.fit.fitted import from_document

    try:
        return from_document(json.load(file))
    except ValueError as error:
        raise InputInvalid(f"{file.name}: not JSON: {error}") from error
    except InputInvalid as error:
        raise InputInvalid(f"{file.name}: {error}") from error


def _base(operation: str | None, fit: Fitted | None, lists: dict[str, tuple[Any, ...]]) -> Setting:
    from dataclasses import replace

    from iscsitrace.analysis.model.setting import Setting

    if fit is not None:
        return replace(fit.setting, operation=operation or fit.setting.operation)
    if operation is None:
        raise click.UsageError("say read or write, or give a fit with --fit")
    delays = lists.get("delay_ns") or lists.get("target_delays_ns", ((),))[0]
    if not delays:
        raise click.UsageError("say --one-way-delay, or give a fit with --fit")
    return Setting(operation=operation, block_bytes=_BLOCK_BYTES, delay_ns=delays[0])


def _describe(base: Setting, fit_file: IO[bytes] | None, fit: Fitted | None, answers: list[Answer]) -> dict[str, Any]:
    """What ``--json`` prints."""
    from iscsitrace import __version__
    from iscsitrace.tables.schema import SCHEMA_VERSION

    return {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": __version__},
        "fit": None if fit_file is None or fit is None else fit_file.name,
        "setting": asdict(base),
        "predictions": [answer.as_dict() | {"setting": asdict(answer.prediction.setting)} for answer in answers],
    }


def _show(base: Setting, fit: Fitted | None, lists: dict[str, tuple[Any, ...]], answers: list[Answer]) -> None:
    from iscsitrace.analysis.curves.model import text_of
    from iscsitrace.analysis.model.what_if import PARAMETERS

    varied = [name for name, values in lists.items() if len(values) > 1]
    alone = {name: values[0] for name, values in lists.items() if len(values) == 1}
    fixed = [f"{PARAMETERS[name].label} {text_of(name, value)}" for name, value in alone.items()]
    show_heading(f"{base.operation}: period = k * d + s + B / C + stalls")
    if fixed:
        show_line(", ".join(fixed))
    of_fit = ("low", "high", "gain %") if fit else ()
    headings = (*(PARAMETERS[name].label for name in varied), "MB/s", *of_fit, "period ms", "k", "line ms", "stalls ms")
    rows = []
    for answer in answers:
        found = answer.prediction
        doubts = () if answer.gain is None else (
            cells.megabytes(answer.low_bytes_per_s),
            cells.megabytes(answer.high_bytes_per_s),
            f"{100 * answer.gain:.1f}",
        )  # fmt: skip
        rows.append(
            (
                *(text_of(name, answer.values[name]) for name in varied),
                cells.megabytes(found.throughput_bytes_per_s),
                *doubts,
                cells.milliseconds(round(found.period_ns)),
                f"{found.k:.2f}",
                cells.milliseconds(round(found.transfer_ns)),
                cells.milliseconds(round(found.stall_ns)),
                f"{100 * found.idle_fraction:.1f}",
                found.bound + ("" if found.is_in_range else " (out of range)"),
            )
        )
    show_table((*headings, "idle %", "bound"), rows)
    if fit:
        show_line("low and high: 95 % confidence; gain: over the fit's own setting")
    if not all(answer.prediction.is_in_range for answer in answers):
        show_line("out of range: so few segments between losses that timeouts decide, which the formulas leave out")


def _check_size(lists: dict[str, tuple[Any, ...]], *, has_chart: bool) -> None:
    counts = [len(values) for values in lists.values() if len(values) > 1]
    if prod(counts) > _ANSWERS_MOST:
        raise click.UsageError(f"these are {prod(counts)} combinations; {_ANSWERS_MOST} are the most")
    if has_chart and not counts:
        raise click.UsageError("a chart needs an option with several values")
    if has_chart and prod(counts[1:]) > _LINES_MOST:
        raise click.UsageError(f"these are {prod(counts[1:])} lines; a chart has {_LINES_MOST} at most")


def _check_output(path: Path, is_forced: bool) -> None:
    if path.suffix.removeprefix(".") not in _PICTURES:
        raise click.UsageError(f"{path} does not say what to write: end it with .png, .svg or .pdf")
    output_file.check(path, is_forced=is_forced)


def _write(path: Path, lists: dict[str, tuple[Any, ...]], answers: list[Answer]) -> None:
    from iscsitrace.analysis.curves.model import of_answers
    from iscsitrace.plots import model, style

    curves = of_answers(answers, lists)
    with output_file.written_aside(path) as partial, style.applied(), partial.open("wb") as stream:
        figure = style.new_figure()
        model.draw(figure, curves)
        model.write_notes(figure, curves)
        style.write(figure, stream, path.suffix.removeprefix("."))
