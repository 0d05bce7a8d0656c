"""The settings that a user names for the captures of a sweep: ``--at delay=8ms,target=lio``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from iscsitrace.cli.read.model_options import Truth
from iscsitrace.cli.units import Duration, Quantity, Share, Size

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

_Function = TypeVar("_Function", bound=Callable[..., Any])


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


def takes_named_settings(function: _Function) -> _Function:
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
