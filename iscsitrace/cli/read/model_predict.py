"""``iscsitrace model predict``: the period of a cycle and the throughput for every combination of values."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import as_json
from iscsitrace.cli.sections import Section, SectionedCommand, option
from iscsitrace.cli.units import Duration, Quantity, Rate, Share, Size
from iscsitrace.errors import InputInvalid
from iscsitrace.show import files as output_file
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.fit.fitted import Fitted
    from iscsitrace.model.setting import Setting

_PICTURES: Final = ("png", "svg", "pdf")
_ANSWERS_MOST, _LINES_MOST, _BLOCK_BYTES = 10_000, 8, 65_536
_TRUTHS: Final = {"yes": True, "no": False}


class Truth(Quantity):
    """``yes`` or ``no``."""

    name = "YES|NO"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """True or false; fails with a line that says what to write."""
        if isinstance(value, bool):
            return value
        if value.lower() not in _TRUTHS:
            self.fail(f"{value!r} is neither yes nor no", param, ctx)
        return _TRUTHS[value.lower()]


class Several(Quantity):
    """Values separated by commas."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind
        choices = getattr(kind, "choices", None)
        self.name = f"{'|'.join(choices) if choices else kind.name.upper().removesuffix(' RANGE')}[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Every value; fails with the line of the first wrong one."""
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
            "Line rate, as for simulate; C is its payload rate with full segments.",
        ),
        ("socket", "socket_bps", Rate(), "C: payload rate of a bulk TCP transfer over the same path."),
        ("loss", "loss", Share(), "Loss probability of a segment: 0.01%, 0.0001."),
    ),
    "Workload": (
        ("block-size", "block_bytes", Size(), "I/O size of a command (64K)."),
        (
            "system-call-size",
            "system_call_bytes",
            Size(),
            "Size of a system call, which is split into commands of the I/O size (a command).",
        ),
        ("queue-depth", "queue_depth", _COUNT, "Commands, or system calls, in flight on each connection (1)."),
        (
            "command-window",
            "command_window_count",
            _COUNT,
            "Commands that the target lets a session have in flight (unlimited).",
        ),
        ("connections", "connections", _COUNT, "Connections that share the line (1)."),
        ("service-time", "service_ns", Duration(), "Time of a cycle that is neither RTT nor data transfer (0s)."),
        (
            "service-spread",
            "service_spread_ns",
            Duration(),
            "Largest deviation of the service time of a command, up or down (0s).",
        ),
        ("status-held", "is_status_held", Truth(), "The status of a read waits for the ACK of its data (no)."),
        (
            "part-size",
            "part_bytes",
            Size(),
            "Bytes that the target writes to TCP at a time, with --status-held: the status of a longer read waits only "
            "for the ACK of the first part (the whole read).",
        ),
        ("ack-delay", "ack_delay_ns", Duration(), "Delay of the ACK of the last data, with --status-held (0s)."),
    ),
    "Negotiated parameters (RFC 7143, with its defaults)": (
        ("initial-r2t", "is_initial_r2t", Truth(), "InitialR2T (yes)."),
        ("immediate-data", "is_immediate_data", Truth(), "ImmediateData (yes)."),
        ("first-burst", "first_burst_bytes", Size(), "FirstBurstLength (64K)."),
        ("max-burst", "max_burst_bytes", Size(), "MaxBurstLength (256K)."),
        ("outstanding-r2t", "max_outstanding_r2t", _COUNT, "MaxOutstandingR2T (1)."),
        (
            "data-segment",
            "max_recv_data_segment_bytes",
            Size(),
            "MaxRecvDataSegmentLength of the data's receiver (8K).",
        ),
    ),
    "TCP": (
        ("window", "window_bytes", Size(), "The smaller of receive window and send buffer (unlimited)."),
        ("start-window", "start_window_bytes", Size(), "Congestion window at the start of each I/O (unlimited)."),
        ("segment-size", "segment_bytes", Size(), "Payload of a full segment (1448)."),
        (
            "congestion-control",
            "congestion_control",
            click.Choice(("reno", "cubic")),
            "Congestion control, used with --loss (cubic).",
        ),
    ),
}


def _section(title: str) -> Section[dict[str, tuple[Any, ...]]]:
    """Options that take several values; the section is the values of the given ones, by parameter."""
    made = [option(f"--{name}", key, type=Several(kind), help=text) for name, key, kind, text in _OPTIONS[title]]
    if title == "Path":
        text = "A mirror: the delay to each target; repeatable for several mirrors. The targets share the line."
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
    help="Output of model fit --json: start from its setting, and add confidence intervals.",
)
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
    fit = None if fit_file is None else _read(fit_file)
    base = _base(operation, fit, lists)
    _check_size(lists, has_chart=path is not None)
    answers = ask(base, lists, fit)
    if is_json:
        show_json(model_predict.as_dict(base, None if fit_file is None else fit_file.name, answers))
    else:
        show(model_predict.sections(base, fit, lists, answers))
    if path is not None:
        model_predict.write_chart(path, base, fit, lists, answers)
        click.echo(f"{path}: chart", err=is_json)


def _in_order_of_the_line(lists: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The lists in the order of the options: the first varies slowest, and is the axis of the chart."""
    return {name: lists[name] for name in click.get_current_context().params if name in lists}


def _read(file: IO[bytes]) -> Fitted:
    from iscsitrace.fit.fitted import from_document

    try:
        return from_document(json.load(file))
    except ValueError as error:
        raise InputInvalid(f"{file.name}: not JSON: {error}") from error
    except InputInvalid as error:
        raise InputInvalid(f"{file.name}: {error}") from error


def _base(operation: str | None, fit: Fitted | None, lists: dict[str, tuple[Any, ...]]) -> Setting:
    from dataclasses import replace

    from iscsitrace.model.setting import Setting

    if fit is not None:
        return replace(fit.setting, operation=operation or fit.setting.operation)
    if operation is None:
        raise click.UsageError("name read or write, or a fit with --fit")
    delays = lists.get("delay_ns") or lists.get("target_delays_ns", ((),))[0]
    if not delays:
        raise click.UsageError("set --one-way-delay, or name a fit with --fit")
    return Setting(operation=operation, block_bytes=_BLOCK_BYTES, delay_ns=delays[0])


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
