"""``iscsitrace interfaces``: network interfaces that can be captured on."""

from __future__ import annotations

import click

from iscsitrace.cli.options import as_json
from iscsitrace.show.terminal import show, show_json


@click.command(epilog="Example:  iscsitrace interfaces --json")
@as_json
def command(is_json: bool) -> None:
    """List network interfaces, whether this user may capture on them, and their iSCSI connections.

    Portals are found from this machine's own connections to and from TCP ports 3260 and 860, of any user.
    """
    from iscsitrace.recording.interfaces import interfaces_found
    from iscsitrace.show import interfaces

    found = interfaces_found()
    if is_json:
        from iscsitrace.tables.schema import SCHEMA_VERSION

        show_json({"schema": SCHEMA_VERSION, "interfaces": [interface.as_dict() for interface in found]})
    else:
        show(interfaces.sections(found))
