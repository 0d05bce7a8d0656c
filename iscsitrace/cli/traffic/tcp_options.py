"""The options of TCP: of the kernel's sockets, and of the hosts of a world, both or one."""

from __future__ import annotations

from typing import Any

import click

from iscsitrace.cli.sections import OptionSection, option
from iscsitrace.cli.traffic.setting_options import Named, Values, settings_section
from iscsitrace.cli.units import Size
from iscsitrace.lab.settings.kinds import ValueKind, one_of
from iscsitrace.lab.settings.table import KERNEL_CONTROLS, SETTINGS, SIMULATED_CONTROLS


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


_MSS = SETTINGS["tcp.mss"].kind

SOCKETS = OptionSection(
    "Sockets (the kernel's defaults if not set)",
    _sockets,
    option("--congestion-control", metavar="NAME", help="TCP_CONGESTION, like reno or cubic."),
    option("--send-buffer", type=Size(), help="SO_SNDBUF. The kernel doubles it for its overhead."),
    option("--receive-buffer", type=Size(), help="SO_RCVBUF. The kernel doubles it for its overhead."),
    option("--mss", type=click.IntRange(_MSS.least, _MSS.most), metavar=_MSS.name, help="TCP_MAXSEG."),
    option("--nagle/--no-nagle", "is_nagle", default=None, help="Nagle's algorithm (off)."),
)


def _hosts(controls: ValueKind) -> OptionSection[Values]:
    return settings_section(
        "TCP of both hosts",
        "tcp",
        *(
            option(
                f"--{host}-tcp",
                type=Named(f"{host}.tcp", "a setting of TCP", limited={"congestion-control": controls}),
                multiple=True,
                help=f"One of these for {of}.",
            )
            for host, of in (("initiator", "the initiator, like nagle=no"), ("target", "the targets, like mss=536"))
        ),
        limited={"tcp.congestion-control": controls},
    )


HOSTS = _hosts(one_of(*KERNEL_CONTROLS))
SIMULATED_HOSTS = _hosts(one_of(*SIMULATED_CONTROLS))
