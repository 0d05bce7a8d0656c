"""The options of TCP: the kernel's, on every socket of a command; and the simulated world's, of both hosts or one."""

from __future__ import annotations

from typing import Any

import click

from iscsitrace.cli.read.sections import Section, option
from iscsitrace.cli.units import Quantity, Size


def _sockets(
    *,
    congestion_control: str | None,
    send_buffer: int | None,
    receive_buffer: int | None,
    mss: int | None,
    is_nagle: bool | None,
) -> dict[str, Any]:
    return {
        "congestion_control": congestion_control,
        "send_buffer_bytes": send_buffer,
        "receive_buffer_bytes": receive_buffer,
        "mss_bytes": mss,
        "is_nagle": bool(is_nagle),
    }


SOCKETS = Section(
    "Sockets (what is not set is the kernel's own)",
    _sockets,
    option("--congestion-control", metavar="NAME", help="TCP_CONGESTION, like reno or cubic."),
    option("--send-buffer", type=Size(), help="SO_SNDBUF; the kernel doubles it for its own use."),
    option("--receive-buffer", type=Size(), help="SO_RCVBUF; the kernel doubles it for its own use."),
    option("--mss", type=click.IntRange(88, 65_483), help="TCP_MAXSEG."),
    option("--nagle/--no-nagle", "is_nagle", default=None, help="Nagle's algorithm (off)."),
)

_TRUTHS = {"yes": True, "no": False}
# option, setting, type (none: a switch, on by default), help
_SETTINGS: tuple[tuple[str, str, Quantity | None, str], ...] = (
    ("congestion-control", "congestion_control", click.Choice(("reno", "cubic")), "How a sender adapts (cubic)."),
    ("receive-buffer", "receive_buffer_bytes", Size(), "Largest receive window (3M)."),
    ("send-buffer", "send_buffer_bytes", Size(), "Bytes written and not yet acknowledged (4M)."),
    ("mss", "mss", click.IntRange(88, 65_483), "Largest payload of a segment, timestamps included (1460)."),
    ("initial-window", "initial_window", click.IntRange(1, 1000), "Segments before the first ACK (10)."),
    ("delayed-ack", "delayed_ack", None, "ACKs wait for a second segment, for data to go with, or 40 ms (on)."),
    ("nagle", "nagle", None, "Nagle's algorithm (off, but on for a target with --status apart-held)."),
    ("sack", "sack", None, "Selective acknowledgment (on)."),
    ("timestamps", "timestamps", None, "Timestamps (on)."),
    ("window-scaling", "window_scaling", None, "Window scaling (on); without it no window exceeds 65535 bytes."),
    ("hystart", "hystart", None, "CUBIC leaves slow start when round trips get longer (on)."),
    ("slow-start-after-idle", "slow_start_after_idle", None, "The window shrinks after a pause (on)."),
)


class TcpSetting(Quantity):
    """``NAME=VALUE``: an option of both hosts, without its dashes, for one of them."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """The name in the settings and the value; fails with a line that says which there are."""
        if isinstance(value, tuple):
            return value
        name, _, text = value.partition("=")
        for known, setting, kind, _ in _SETTINGS:
            if name == known and kind is not None:
                return setting, kind.convert(text, param, ctx)
            if name == known and text in _TRUTHS:
                return setting, _TRUTHS[text]
            if name == known:
                self.fail(f"{value!r}: {name} takes yes or no", param, ctx)
        return self.fail(f"no setting {name!r}; there are {', '.join(known for known, *_ in _SETTINGS)}", param, ctx)


def _hosts(*, initiator_tcp: tuple[Any, ...], target_tcp: tuple[Any, ...], **values: Any) -> dict[str, Any]:
    both = {setting: values[setting] for _, setting, _, _ in _SETTINGS if values[setting] is not None}
    return {
        # as ours do over sockets
        "initiator_tcp": {"nagle": False} | both | dict(initiator_tcp),
        "target_tcp": {"nagle": False} | both | dict(target_tcp),
    }


def _of_both(name: str, setting: str, kind: Quantity | None, text: str) -> click.Option:
    spellings = [f"--{name}"] if kind is not None else [f"--{name}/--no-{name}"]
    if name == "receive-buffer":
        spellings.append("--window")
    return option(*spellings, setting, type=kind, default=None, help=text)


HOSTS = Section(
    "TCP, of both hosts unless it says otherwise",
    _hosts,
    *(_of_both(*each) for each in _SETTINGS),
    option("--initiator-tcp", type=TcpSetting(), multiple=True, help="One of these for the initiator, like nagle=no."),
    option("--target-tcp", type=TcpSetting(), multiple=True, help="One of these for the targets, like mss=536."),
)
