"""Network interfaces of this machine, for capturing iSCSI.

libpcap's list, with what the kernel shows to every user: link types, clocks for time stamps, and connections to iSCSI
ports. Opens interfaces briefly to check the permission; captures nothing.

A capture is by libpcap in this process, or by dumpcap where only dumpcap has the permission.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import shutil
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from iscsitrace.errors import CaptureRefused, PermissionLacking, ToolMissing
from iscsitrace.recording import capture

ISCSI_PORTS = (3260, 860)

_ANY = "any"
_ESTABLISHED = "01"
# linux/if_arp.h to LINKTYPE_, for a device that this user may not open
_LINK_TYPES = {1: 1, 772: 1, 65534: 101, 512: 101, 768: 101, 769: 101, 776: 101, 778: 101}
LINK_TYPE_NAMES = {0: "NULL", 1: "Ethernet", 101: "RAW", 113: "LINUX_SLL", 228: "IPV4", 229: "IPV6", 276: "LINUX_SLL2"}

# linux/sockios.h, linux/ethtool.h, linux/net_tstamp.h
_SIOCETHTOOL = 0x8946
_ETHTOOL_GET_TS_INFO = 0x41
_TS_INFO = struct.Struct("=IIiI3II3I")
_SYSTEM_HARDWARE = 1 << 5
_RAW_HARDWARE = 1 << 6
_FILTER_ALL = 1 << 1


@dataclass
class Portal:
    """A portal with connections from or to this machine."""

    address: str
    port: int
    is_local: bool
    """Whether the target is on this machine."""
    connection_count: int


@dataclass
class NetworkInterface:
    """A network interface."""

    name: str
    description: str
    addresses: list[str]
    is_up: bool
    is_running: bool
    is_loopback: bool
    link_types: list[int]
    """LINKTYPE_ values; the likely one if this user may not open the interface."""
    time_stamp_types: list[str]
    """libpcap's names of the clocks that can stamp packets; the first is the default."""
    can_capture: bool
    """Whether this user may, by libpcap or by dumpcap."""
    refusal: str | None
    """The reason if it cannot capture, in one line."""
    is_permission_lacking: bool
    is_by_dumpcap: bool = False
    """Whether of the two only dumpcap may, and captures for this user."""
    portals: list[Portal] = field(default_factory=list)
    """Portals with established connections on iSCSI ports."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def found() -> list[NetworkInterface]:
    """The network interfaces that libpcap lists, without other devices (USB, Bluetooth, netfilter)."""
    connections = _iscsi_connections()
    return [
        _seen(listed, connections)
        for listed in capture.list_interfaces()
        if listed["name"] == _ANY or _is_network_interface(listed["name"])
    ]


def _is_network_interface(name: str) -> bool:
    return "/" not in name and Path("/sys/class/net", name).exists()


def _seen(listed: dict[str, Any], connections: list[tuple[str, int, str, int]]) -> NetworkInterface:
    name = listed["name"]
    refusal: CaptureRefused | None = None
    try:
        link_types = capture.link_types(name)
    except CaptureRefused as error:
        refusal = error
        link_types = _likely_link_types(name)
    return NetworkInterface(
        **listed,
        link_types=link_types,
        time_stamp_types=time_stamp_types(name),
        can_capture=refusal is None,
        refusal=None if refusal is None else str(refusal),
        is_permission_lacking=isinstance(refusal, PermissionLacking),
        portals=_portals(None if name == _ANY else listed["addresses"], connections),
    )


def _likely_link_types(name: str) -> list[int]:
    if name == _ANY:
        return [113]
    try:
        kind = int(Path("/sys/class/net", name, "type").read_text())
    except (OSError, ValueError):
        return []
    return [_LINK_TYPES[kind]] if kind in _LINK_TYPES else []


def time_stamp_types(name: str) -> list[str]:
    """Clocks that can stamp packets, by libpcap's rule: the adapter's only if it stamps every packet."""
    host = ["host"]
    if name == _ANY:
        return host
    answer = array.array("B", bytes(_TS_INFO.size))
    _TS_INFO.pack_into(answer, 0, _ETHTOOL_GET_TS_INFO, *[0] * 10)
    request = struct.pack("16sP", name.encode()[:15], answer.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    except OSError:
        return host
    _, flags, _, _, _, _, _, filters, *_ = _TS_INFO.unpack_from(answer)
    if not filters & _FILTER_ALL:
        return host
    clocks = ((_SYSTEM_HARDWARE, "adapter"), (_RAW_HARDWARE, "adapter_unsynced"))
    return host + [clock for flag, clock in clocks if flags & flag]


def _portals(addresses: list[str] | None, connections: list[tuple[str, int, str, int]]) -> list[Portal]:
    """Portals of an interface with these addresses; None: of all interfaces."""
    counts: Counter[tuple[str, int, bool]] = Counter()
    for local, local_port, remote, remote_port in connections:
        if addresses is not None and local not in addresses:
            continue
        if local_port in ISCSI_PORTS:
            counts[local, local_port, True] += 1
        else:
            counts[remote, remote_port, False] += 1
    return [Portal(*portal, count) for portal, count in sorted(counts.items())]


def _iscsi_connections() -> list[tuple[str, int, str, int]]:
    """Local and remote end of every established connection on an iSCSI port."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, *_ = line.split()
            ends = (*_end(local), *_end(remote))
            if state == _ESTABLISHED and (ends[1] in ISCSI_PORTS or ends[3] in ISCSI_PORTS):
                found.append(ends)
    return found


def _end(text: str) -> tuple[str, int]:
    """Address and port of ``0100007F:0CBC``: 32-bit words in the byte order of the machine, and the port."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped), int(port, 16)
    return str(address), int(port, 16)


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


def interfaces_found() -> list[NetworkInterface]:
    """The network interfaces, with the permission of dumpcap where libpcap has none: `capture_by` does the same."""
    dumpcap = shutil.which("dumpcap")
    return [
        replace(each, can_capture=True, refusal=None, is_permission_lacking=False, is_by_dumpcap=True)
        if each.is_permission_lacking and dumpcap and _may(dumpcap, each.name)
        else each
        for each in found()
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
    names = [interface.name for interface in found()]
    missing = [name for name in wanted if name not in names]
    near = list(dict.fromkeys(near for name in missing for near in get_close_matches(name, names, cutoff=0.5)))
    return f"; there is {', '.join(near or names)}" if names else ""
