"""The kernel's initiator (open-iscsi), where this host has it: iscsi_tcp in the kernel, iscsid and iscsiadm beside it.

Written after the manuals of iscsiadm and iscsid; not yet run on any host. iscsid of a place talks to the kernel
through that place's netlink, which kernels without iscsi_tcp in network namespaces refuse.
"""

from __future__ import annotations

import platform
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.places import Place

_PACKAGE = "open-iscsi"
_PROGRAMS = ("iscsid", "iscsiadm")
_MODULE = "iscsi_tcp"
_DISK_LIMIT_S = 10
_LOOK_S = 0.1


class NotInstalled(ToolMissing):
    """This host has no kernel initiator."""


def missing_parts() -> str | None:
    """What is missing on this host, in one line; None if nothing is."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None]
    if not _has_module():
        missing.append(f"the module {_MODULE} of this kernel")
    return f"this host has no {_PACKAGE} ({', '.join(missing)} missing)" if missing else None


def require_installed() -> None:
    """NotInstalled if something is missing."""
    if why := missing_parts():
        raise NotInstalled(why)


def read(
    place: Place,
    portal: str,
    target_name: str,
    lun: int,
    *,
    read_bytes: int,
    seconds: int,
    is_enough: Callable[[], bool] = lambda: False,
) -> float:
    """Logs in, reads the disk sequentially without the page cache for a number of seconds, logs out; bytes/s by dd."""
    node = ("-m", "node", "-T", target_name, "-p", portal)
    with place.started("iscsid", "-f", package=_PACKAGE):
        _administer(place, "-m", "discovery", "-t", "sendtargets", "-p", portal)
        try:
            _administer(place, *node, "--login")
            try:
                disk = _disk(portal, target_name, lun)
                words = (f"if={disk}", "of=/dev/null", f"bs={read_bytes}", "iflag=direct")
                # dd prints its totals when timeout sends it SIGINT
                finished = place.run(
                    *("timeout", "-s", "INT", str(seconds), "dd", *words),
                    package="coreutils",
                    limit_s=seconds + 15,
                    is_checked=False,
                    is_enough=is_enough,
                )
            finally:
                _administer(place, *node, "--logout")
        finally:
            with suppress(ToolMissing):
                _administer(place, *node, "-o", "delete")
    return throughput_of(finished.errors)


def throughput_of(output: str) -> float:
    """Bytes per second from dd's last line; ToolMissing without one."""
    found = re.search(r"^(\d+) bytes\b.* copied, ([0-9.e+-]+) s,", output, re.MULTILINE)
    if found is None or not float(found[2]):
        raise ToolMissing("dd ended too early, or its output has an unknown format")
    return int(found[1]) / float(found[2])


def _has_module() -> bool:
    if Path("/sys/module", _MODULE).is_dir():
        return True
    return any(Path("/lib/modules", platform.release()).rglob(f"{_MODULE}.ko*"))


def _administer(place: Place, *words: str) -> None:
    place.run("iscsiadm", *words, package=_PACKAGE, limit_s=20)


def _disk(portal: str, target_name: str, lun: int) -> Path:
    disk = Path("/dev/disk/by-path", f"ip-{portal}-iscsi-{target_name}-lun-{lun}")
    end = time.monotonic() + _DISK_LIMIT_S
    while not disk.exists():
        if time.monotonic() > end:
            raise ToolMissing(f"open-iscsi made no {disk} within {_DISK_LIMIT_S} s")
        time.sleep(_LOOK_S)
    return disk
