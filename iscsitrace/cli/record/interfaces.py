"""``iscsitrace interfaces``: network interfaces that can be captured on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from iscsitrace.cli.options import as_json
from iscsitrace.show.document import Section, table
from iscsitrace.show.terminal import show, show_json

if TYPE_CHECKING:
    from iscsitrace.recording.interfaces import NetworkInterface


@click.command(epilog="Example:  iscsitrace interfaces --json")
@as_json
def command(is_json: bool) -> None:
    """List network interfaces, whether this user may capture on them, and their iSCSI connections.

    Portals are found from this machine's own connections to and from TCP ports 3260 and 860, of any user.
    """
    from iscsitrace.recording.interfaces import interfaces_found

    found = interfaces_found()
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        show_json({"schema": SCHEMA_VERSION, "interfaces": [interface.as_dict() for interface in found]})
    else:
        show(_sections(found))


_ROLES: Final = {True: "target", False: "initiator"}


def _sections(found: Sequence[NetworkInterface]) -> Iterator[Section]:
    """One line per interface."""
    columns = (
        *("interface", "description", "state", "addresses", "link type", "time stamps", "capture"),
        "iSCSI connections",
    )
    yield Section("", (table(columns, map(_row, found)),))
    if any(interface.is_permission_lacking for interface in found):
        yield Section("", ("this user may not capture: see iscsitrace docs capture permission",))


def _row(interface: NetworkInterface) -> tuple[object, ...]:
    portals = [
        f"{portal.address}:{portal.port} ({portal.connection_count}, {_ROLES[portal.is_local]} here)"
        for portal in interface.portals
    ]
    from iscsitrace.recording.interfaces import LINK_TYPE_NAMES

    return (
        interface.name,
        interface.description or None,
        "running" if interface.is_running else "up" if interface.is_up else "down",
        ", ".join(interface.addresses) or None,
        ", ".join(LINK_TYPE_NAMES.get(value, str(value)) for value in interface.link_types) or None,
        ", ".join(interface.time_stamp_types),
        _permission(interface),
        ", ".join(portals) or None,
    )


def _permission(interface: NetworkInterface) -> str:
    if interface.is_permission_lacking:
        return "no permission"
    if interface.is_by_dumpcap:
        return "yes, by dumpcap"
    return "yes" if interface.refusal is None else f"no: {interface.refusal.partition(': ')[2]}"
