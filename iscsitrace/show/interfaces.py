"""Network interfaces, capture permissions and iSCSI connections as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from iscsitrace.recording.interfaces import LINK_TYPE_NAMES
from iscsitrace.show.document import Section, table

if TYPE_CHECKING:
    from iscsitrace.recording.interfaces import NetworkInterface

_ROLES: Final = {True: "target", False: "initiator"}


def sections(found: Sequence[NetworkInterface]) -> Iterator[Section]:
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
