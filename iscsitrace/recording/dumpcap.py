"""The program that captures: libpcap in this process, or dumpcap where only dumpcap has the permission."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from iscsitrace.errors import CaptureRefused, PermissionLacking, ToolMissing
from iscsitrace.recording import interfaces as network_interfaces

_LIMIT_S = 10
_ADVICE = (
    "run it as root, with the capability CAP_NET_RAW, or as a member of the group that may use dumpcap "
    "(iscsitrace docs capture permission)"
)


def capture_by(choice: str, interfaces: Sequence[str], run: Callable[[str | None], dict[str, Any]]) -> dict[str, Any]:
    """Run a capture with the path of dumpcap or, for libpcap, None; ``choice`` is auto, always or never.

    PermissionLacking with advice when neither has the permission; CaptureRefused with similar names for an unknown
    interface.
    """
    dumpcap = shutil.which("dumpcap")
    if choice == "always":
        if dumpcap is None:
            raise ToolMissing("dumpcap is not installed (apt install wireshark-common)")
        return run(dumpcap)
    try:
        return run(None)
    except PermissionLacking as error:
        if choice == "auto" and dumpcap and all(_may(dumpcap, interface) for interface in interfaces):
            return run(dumpcap)
        raise PermissionLacking(f"{str(error).partition(':')[0]}: {_ADVICE}") from error
    except CaptureRefused as error:
        if error.kind == "no_such_interface":
            raise CaptureRefused(f"{error}{_nearest(interfaces)}", error.kind) from error
        raise


def interfaces_found() -> list[network_interfaces.NetworkInterface]:
    """The network interfaces, with the permission of dumpcap where libpcap has none: `capture_by` does the same."""
    dumpcap = shutil.which("dumpcap")
    found = network_interfaces.found()
    return [
        replace(each, can_capture=True, refusal=None, is_permission_lacking=False, is_by_dumpcap=True)
        if each.is_permission_lacking and dumpcap and _may(dumpcap, each.name)
        else each
        for each in found
    ]


def _may(dumpcap: str, interface: str) -> bool:
    """Whether dumpcap can open the interface for this user; listing link types needs the same permission."""
    if not os.access(dumpcap, os.X_OK):
        return False
    try:
        asked = subprocess.run([dumpcap, "-L", "-i", interface], capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _nearest(wanted: Sequence[str]) -> str:
    names = [interface.name for interface in network_interfaces.found()]
    missing = [name for name in wanted if name not in names]
    near = list(dict.fromkeys(near for name in missing for near in get_close_matches(name, names, cutoff=0.5)))
    return f"; there is {', '.join(near or names)}" if names else ""
