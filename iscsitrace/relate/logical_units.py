"""Logical units as each session sees them: what the target said of them, and whose they are.

Only those that hold data, or that were read, written or asked whether they are ready.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.data_commands import is_operation, is_storage_command
from iscsitrace.relate.portals import PORTS
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct
from iscsitrace.tables.table import Source, Table
from iscsitrace.wording import cells

Array = NDArray[Any]

NO_STORAGE: Final = frozenset({0x03, 0x0C, 0x0D, 0x1E, 0x1F})
"""Peripheral device types that hold no data: processor, controller, enclosure, well known logical unit, unknown."""

_UNIT_COLUMNS: Final = (
    *("session", "lun", "peripheral_qualifier", "device_type", "vendor", "product", "unit_serial_number", "designator"),
    *("target_port_group", "block_bytes", "block_count"),
)


class Member(NamedTuple):
    """A logical unit as one session sees it."""

    session: int
    lun: int
    host: str
    """Name of the initiator, or its address where no login was captured."""
    target: str
    """Name of the target, or its address where no login was captured, with the port if that is unusual."""
    has_target_name: bool
    path: int
    """The first of the sessions that replaced each other up to this one."""
    designator: str | None = None
    serial: tuple[str, str, str] | None = None
    """Vendor, product and serial number."""
    target_port_group: int | None = None
    capacity_bytes: int | None = None


def members(source: Source) -> list[Member]:
    """The logical units of all sessions, in order of session and LUN."""
    units = {(row["session"], row["lun"]): row for row in source("logical_units").rows(_UNIT_COLUMNS)}
    used, checked = _used(source("cycles"))
    places = ends(source)
    found = []
    for session, lun in sorted({*units, *used}):
        if session not in places:
            continue
        row = units.get((session, lun), {})
        if (session, lun) not in used and not _is_storage(row, is_checked=(session, lun) in checked):
            continue
        serial = (row.get("vendor"), row.get("product"), row.get("unit_serial_number"))
        blocks, size = row.get("block_count"), row.get("block_bytes")
        found.append(
            Member(
                session=session,
                lun=lun,
                **places[session],
                designator=row.get("designator"),
                serial=serial if all(serial) else None,  # type: ignore[arg-type]
                target_port_group=row.get("target_port_group"),
                capacity_bytes=blocks * size if blocks and size else None,
            )
        )
    return found


def _is_storage(row: dict[str, Any], *, is_checked: bool) -> bool:
    if row["peripheral_qualifier"] is None:
        return is_checked
    return bool(row["peripheral_qualifier"] == 0 and row["device_type"] not in NO_STORAGE)


def _used(cycles: Table) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Sessions and LUNs with commands that read, write, erase or flush; and with TEST UNIT READY, as path checkers
    send it.
    """
    is_placed = known(cycles, "session") & known(cycles, "lun")
    is_checked = is_operation(cycles, "test_unit_ready")
    return _distinct(cycles, is_placed & cycles.each(is_storage_command)), _distinct(cycles, is_placed & is_checked)


def _distinct(cycles: Table, which: Array) -> set[tuple[int, int]]:
    rows = np.flatnonzero(which)
    sessions, session = distinct(cycles.raw("session")[rows])
    luns, lun = distinct(cycles.raw("lun")[rows])
    places, _ = distinct(session * len(luns) + lun)
    if not len(places):
        return set()
    return set(zip(sessions[places // len(luns)].tolist(), luns[places % len(luns)].tolist(), strict=True))


def ends(source: Source) -> dict[int, dict[str, Any]]:
    """Initiator, target and path of each normal session. Of sessions that replaced each other one login is enough."""
    connections = source("connections")
    own = connections.select(known(connections, "session"))
    columns = (own.raw(name).tolist() for name in ("session", "initiator_address", "target_address", "target_port"))
    addresses = {number: (host, _portal(target, port)) for number, host, target, port in zip(*columns, strict=True)}
    path: dict[int, int] = {}
    names: dict[int, list[str | None]] = {}
    discoveries = set()
    for row in source("sessions").rows(("session", "session_type", "replaces", "initiator_name", "target_name")):
        number = row["session"]
        path[number] = path.get(row["replaces"], number)
        known_names = names.setdefault(path[number], [None, None])
        for place, name in enumerate((row["initiator_name"], row["target_name"])):
            known_names[place] = known_names[place] or name
        if row["session_type"] == "discovery":
            discoveries.add(number)
    hosts = _hosts(addresses, {number: names[first][0] for number, first in path.items()})
    found = {}
    for number in sorted(addresses.keys() - discoveries):
        first = path.get(number, number)
        host, target = names.get(first, (None, None))
        address, portal = addresses[number]
        found[number] = {
            "host": host or hosts.get(address) or address,
            "target": target or portal,
            "has_target_name": target is not None,
            "path": first,
        }
    return found


def _portal(address: str, port: int) -> str:
    return (
        address if port in (0, *PORTS) else cells.endpoint({"target_address": address, "target_port": port}, "target")
    )


def _hosts(addresses: dict[int, tuple[str, str]], names: dict[int, str | None]) -> dict[str, str]:
    """The initiator behind each address from which only one logged in."""
    found: dict[str, set[str]] = defaultdict(set)
    for number, (address, _) in addresses.items():
        if name := names.get(number):
            found[address].add(name)
    return {address: own.pop() for address, own in found.items() if len(own) == 1}
