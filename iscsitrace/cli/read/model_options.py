"""The settings of the model as options, and a fit as their start, for ``model predict`` and ``model plan``; and those
that a user names for the captures of a sweep: ``--at delay=8ms,target=lio``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.sections import Function, OptionSection, option
from iscsitrace.cli.units import Duration, Quantity, Rate, Share, Size
from iscsitrace.errors import InputInvalid

if TYPE_CHECKING:
    from iscsitrace.fit.points import FittedModel
    from iscsitrace.model.setting import Setting


_BLOCK_BYTES: Final = 65_536

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


def sections(*, has_several: bool) -> tuple[OptionSection[dict[str, Any]], ...]:
    """The options, with one value or ``has_several``; a section is the values of the given ones, by parameter."""
    return tuple(_section(title, has_several=has_several) for title in _OPTIONS)


def _section(title: str, *, has_several: bool) -> OptionSection[dict[str, Any]]:
    made = [
        option(f"--{name}", key, type=Several(kind) if has_several else kind, help=text)
        for name, key, kind, text in _OPTIONS[title]
    ]
    if title == "Path":
        again = "; repeatable for several mirrors" if has_several else ""
        text = f"A mirror: the delay to each target{again}. The targets share the line."
        kind = Several(Duration())
        made.insert(1, option("--target-delay", "target_delays_ns", type=kind, multiple=has_several, help=text))
    return OptionSection(title, _given, *made)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != ()}


takes_fit = click.option(
    "--fit",
    "fit_file",
    type=click.File("rb"),
    metavar="FILE",
    help="Output of model fit --json: start from its setting, and add confidence intervals.",
)


def read_fit(file: IO[bytes]) -> FittedModel:
    """The fit; InputInvalid for a file that is none."""
    from iscsitrace.fit.points import fitted_from_document

    try:
        return fitted_from_document(json.load(file))
    except ValueError as error:
        raise InputInvalid(f"{file.name}: not JSON: {error}") from error
    except InputInvalid as error:
        raise InputInvalid(f"{file.name}: {error}") from error


def base(operation: str | None, fitted: Setting | None, delays_ns: Sequence[float]) -> Setting:
    """The setting of a fit, or the plainest one over the first of these delays; UsageError where both are missing."""
    from iscsitrace.model.setting import Setting

    if fitted is not None:
        return replace(fitted, operation=operation or fitted.operation)
    if operation is None:
        raise click.UsageError("name read or write, or a fit with --fit")
    if not delays_ns:
        raise click.UsageError("set --one-way-delay, or name a fit with --fit")
    return Setting(operation=operation, block_bytes=_BLOCK_BYTES, delay_ns=delays_ns[0])


_KINDS: Final[dict[str, tuple[str, Any]]] = {
    "delay": ("delay_ns", Duration()),
    "one-way-delay": ("delay_ns", Duration()),
    "block-size": ("block_bytes", Size()),
    "queue-depth": ("queue_depth", click.IntRange(min=1)),
    "connections": ("connections", click.IntRange(min=1)),
    "loss": ("loss", Share()),
    "InitialR2T": ("is_initial_r2t", Truth()),
    "ImmediateData": ("is_immediate_data", Truth()),
    "FirstBurstLength": ("first_burst_bytes", Size()),
    "MaxBurstLength": ("max_burst_bytes", Size()),
    "MaxOutstandingR2T": ("max_outstanding_r2t", click.IntRange(min=1)),
    "MaxRecvDataSegmentLength": ("max_recv_data_segment_bytes", Size()),
}
"""Settings with units, by option name or login key; most are read from the captures, too, and replaced by what is
named.
"""
_NAME: Final = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


class _Settings(Quantity):
    """Settings of one capture."""

    name = "NAME=VALUE[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The values by name; fails with the first that is wrong."""
        if isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for each in str(value).split(","):
            name, sign, text = (part.strip() for part in each.partition("="))
            if not sign or not text or not _NAME.fullmatch(name):
                self.fail(f"{each!r} is not a setting like delay=8ms", param, ctx)
            key, kind = _KINDS.get(name, (name, None))
            if key in found:
                self.fail(f"{name} is set twice", param, ctx)
            if kind is not None:
                found[key] = kind.convert(text, param, ctx)
            else:
                found[key] = _word(text)
        return found


def _word(text: str) -> int | float | str:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def takes_named_settings(function: Function) -> Function:
    """Adds ``--at`` to a command, which gets it as ``named``."""
    return click.option(
        "--at",
        "named",
        type=_Settings(),
        multiple=True,
        help="Settings of a capture of a sweep, one option for each capture in their order: delay (one way), "
        "block-size, queue-depth, connections, loss, a login key, or any other name, such as target=lio. Without it "
        "they are read from the captures.",
    )(function)


def of_each(sources: Sequence[str], named: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The named settings of each capture; UsageError unless there are none, or some for each."""
    if not named:
        return [{} for _ in sources]
    if len(named) != len(sources):
        raise click.UsageError(f"--at is there {len(named)} times for {len(sources)} captures: once for each, or never")
    return list(named)
