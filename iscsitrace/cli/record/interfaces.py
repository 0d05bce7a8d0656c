"""``iscsitrace interfaces``: what can be captured on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iscsitrace.cli.options import as_json
from iscsitrace.cli.output import show_json, show_line, show_table

if TYPE_CHECKING:
    from iscsitrace.recording.interfaces import NetworkInterface

SCHEMA_VERSION = 1
_ROLES = {True: "target", False: "initiator"}


@click.command(epilog="Example:  iscsitrace interfaces --json")
@as_json
def command(is_json: bool) -> None:
    """Lists network interfaces, whether this user may capture on them, and where iSCSI connections are.

    Portals are told by this machine's own connections to and from TCP ports 3260 and 860, whoever runs them.
    """
    from iscsitrace.recording import interfaces as network_interfaces
    from iscsitrace.recording.interfaces import LINK_TYPE_NAMES

    found = network_interfaces.found()
    if is_json:
        show_json({"schema": SCHEMA_VERSION, "interfaces": [interface.as_dict() for interface in found]})
        return
    rows = []
    for interface in found:
        is_up = "running" if interface.is_running else "up" if interface.is_up else "down"
        portals = [
            f"{portal.address}:{portal.port} ({portal.connection_count}, {_ROLES[portal.is_local]} here)"
            for portal in interface.portals
        ]
        rows.append(
            (
                interface.name,
                interface.description or None,
                is_up,
                ", ".join(interface.addresses) or None,
                ", ".join(LINK_TYPE_NAMES.get(value, str(value)) for value in interface.link_types) or None,
                ", ".join(interface.time_stamp_types),
                _whether(interface),
                ", ".join(portals) or None,
            )
        )
    show_table(
        ("interface", "description", "state", "addresses", "link type", "time stamps", "capture", "iSCSI connections"),
        rows,
    )
    if any(interface.is_permission_lacking for interface in found):
        show_line("this user may not capture: docs/capture.md says how to get permission")


def _whether(interface: NetworkInterface) -> str:
    if interface.is_permission_lacking:
        return "no permission"
    return "yes" if interface.refusal is None else f"no: {interface.refusal.partition(': ')[2]}"
