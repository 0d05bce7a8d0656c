"""Network namespaces joined by cables: each end is a namespace with its addresses and TCP settings.

```
    initiator            target              tap: two TAP devices, without carrier until a process opens them and moves
    eth0 10.71.0.1 ----- eth0 10.71.0.2           frames between them
    fd71::1              fd71::2             veth: a pair of the kernel, the bypass; it drops packets when more than
                                                  net.core.netdev_max_backlog are in flight
```

An end can be a switch for its cables: a bridge with static addresses that floods no frame. A guest, a virtual machine,
can be plugged into an end: a TAP device for its network card, bridged with the cables.

Nothing outside the namespaces changes. They are removed at the end of the block, for any reason; those of a killed
process are removed at the next start. Needs root. Moves no frames.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import signal
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from iscsitrace.errors import InputInvalid, IscsitraceError, ToolMissing
from iscsitrace.lab import interfaces, own_process
from iscsitrace.lab.interfaces import Interface, InterfacePlan, Pair
from iscsitrace.lab.places import HERE, NAMESPACES, Place

_CABLES_MAX = 250
_serials = itertools.count()

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000


_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""What namespaces take, by their numbers in linux/capability.h."""


class RootNeeded(IscsitraceError):
    """Only root can create network namespaces, with the capabilities of the administrator of a machine."""

    def __init__(self, missing: Sequence[str] = ()) -> None:
        what = f"this root lacks {' and '.join(missing)}; in a container, start it with --privileged" if missing else ""
        way = what or "run this with sudo"
        super().__init__(f"network namespaces need root: {way}. simulate makes the same traffic without rights")


@dataclass(frozen=True)
class EndSettings:
    """The settings of a namespace. None keeps the kernel's default."""

    mtu_bytes: int = 1500
    is_offloading: bool = False
    """Keep segmentation, receive and checksum offloads on. Captures then show packets larger than on a wire."""
    device_queue_packets: int = 10_000
    """Limit of the device's queue. The link has another queue."""
    congestion_control: str | None = None
    tcp_rmem_bytes: tuple[int, int, int] | None = None
    """Minimum, default and maximum of the receive buffer."""
    tcp_wmem_bytes: tuple[int, int, int] | None = None
    """Minimum, default and maximum of the send buffer."""
    is_slow_start_after_idle: bool | None = None
    initial_window_segments: int | None = None
    """Initial cwnd (RFC 6928)."""
    advertised_mss_bytes: int | None = None
    """The MSS that it advertises (the route's advmss). By the MTU if not set."""
    is_delaying_acks: bool = True
    """If not, the kernel acknowledges every segment at once (the route's quickack)."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Further sysctls by name, like `net.ipv4.tcp_sack`."""
    is_switching: bool = False
    """It is a switch: all its cables are one network."""
    is_guest: bool = False
    """A guest is plugged in, which has the addresses and makes the other settings itself, except the MTU."""


@dataclass(frozen=True)
class Namespace(Place):
    """A network namespace; a place whose addresses are those of its first interface."""

    interfaces: tuple[Interface, ...] = ()
    guest: TapDevice | None = None
    """The network card of the guest that is plugged in, and has the interface."""


@dataclass(frozen=True)
class TapDevice:
    """A TAP device: its name, and the file of its namespace."""

    name: str
    namespace: Path

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A non-blocking descriptor: a read returns a frame that the namespace sent, a write delivers one to it, both
        without an additional header. Only one can be open; the device has carrier while it is.
        """
        try:
            descriptor = Place(self.namespace.name).call(self._attach)
        except OSError as error:
            raise ToolMissing(f"cannot open TAP device {self.name}: {error.strerror}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _attach(self) -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", self.name.encode(), _IFF_TAP | _IFF_NO_PI))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


@dataclass(frozen=True)
class Cable:
    """A connection of two namespaces, by the names of their ends."""

    first: str
    second: str
    taps: tuple[TapDevice, TapDevice] | None
    """At the first and the second end. Frames read from one are to be written to the other. None: veth."""


@dataclass(frozen=True)
class LabNetwork:
    """Namespaces by the name of their end, and the cables between them."""

    ends: Mapping[str, Namespace]
    cables: tuple[Cable, ...]
    plan: InterfacePlan

    def __getitem__(self, end: str) -> Namespace:
        return self.ends[end]


@contextmanager
def network(
    ends: Mapping[str, EndSettings],
    *,
    cable: Literal["tap", "veth"] = "tap",
    cables: Sequence[Pair] | None = None,
) -> Iterator[LabNetwork]:
    """Namespaces that exist while the block runs, by names of lower-case letters, digits and dashes.

    ``cables`` names the pairs to join; without it the first end is joined with each other. RootNeeded unless root;
    ToolMissing when the kernel or iproute2 refuses.
    """
    names = list(ends)
    pairs = [(names[0], name) for name in names[1:]] if cables is None else list(cables)
    if len(pairs) > _CABLES_MAX or not all(re.fullmatch("[a-z0-9-]+", name) for name in names):
        raise InputInvalid(f"ends are named by lower-case letters, digits and dashes, cables are {_CABLES_MAX} at most")
    if unknown := {name for pair in pairs for name in pair} - set(names):
        raise InputInvalid(f"a cable ends at {', '.join(sorted(unknown))}, which is not an end")
    require_root()
    remove_leftovers()
    with own_process.unwinding():
        stack = ExitStack()
        try:
            yield _build(stack, ends, pairs, cable)
        finally:
            with own_process.deferred():
                stack.close()


def require_root() -> None:
    """RootNeeded unless root, with the capabilities that namespaces and their interfaces take."""
    if os.geteuid() != 0:
        raise RootNeeded
    effective = _effective_capabilities()
    if missing := [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]:
        raise RootNeeded(missing)


def _effective_capabilities() -> int:
    """See capabilities(7); all where the kernel does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return -1
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), -1)


def remove_leftovers() -> list[str]:
    """Removes namespaces of processes that are gone, and kills what runs in them; returns their names."""
    leftovers = [name for name in _existing() if own_process.is_left_over(name)]
    for name in leftovers:
        _remove(name)
    return leftovers


def _build(
    stack: ExitStack, ends: Mapping[str, EndSettings], pairs: Sequence[Pair], kind: Literal["tap", "veth"]
) -> LabNetwork:
    serial = next(_serials)
    switches = [name for name, settings in ends.items() if settings.is_switching]
    guests = [name for name, settings in ends.items() if settings.is_guest]
    planned = interfaces.plan(ends, pairs, switches, has_v6=Path("/proc/sys/net/ipv6").exists(), guests=guests)
    made = {}
    for name in ends:
        namespace = f"{own_process.prefix()}{serial}-{name}"
        # before it is created: a signal may arrive in between
        stack.callback(_remove, namespace)
        HERE.run("ip", "netns", "add", namespace, package="iproute2", limit_s=10)
        own = planned.interfaces[name]
        first = own[0] if own else Interface("lo", "127.0.0.1", "::1", "")
        card = TapDevice("guest0", NAMESPACES / namespace) if name in guests else None
        made[name] = Namespace(namespace, first.address, first.address_v6, tuple(own), card)
        _ip(made[name], ["link set lo up"])
    cables = []
    for pair, devices in zip(pairs, planned.devices, strict=True):
        near, far = (made[end] for end in pair)
        taps = None
        if kind == "tap":
            taps = (_make_tap(near, devices[0]), _make_tap(far, devices[1]))
        else:
            _ip(near, [f"link add {devices[0]} type veth peer name {devices[1]} netns {far.namespace}"])
        cables.append(Cable(*pair, taps))
    for name, settings in ends.items():
        if settings.is_guest:
            _plug_in_guest(made[name], settings, planned.devices_of(name, pairs))
            continue
        if settings.is_switching:
            _switch(made[name], settings, planned.ports[name])
        _set_up(made[name], settings, planned)
    return LabNetwork(made, tuple(cables), planned)


def _switch(namespace: Namespace, settings: EndSettings, ports: Sequence[tuple[str, str]]) -> None:
    """A bridge over the ports. It neither learns nor floods: frames to unknown addresses are dropped."""
    _ip(namespace, ["link add eth0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"])
    for port, _ in ports:
        _ip(
            namespace,
            [
                f"link set {port} master eth0 mtu {settings.mtu_bytes} txqueuelen {settings.device_queue_packets}"
                " addrgenmode none up",
                f"link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off",
            ],
        )
        if not settings.is_offloading:
            _turn_offloads_off(namespace, port)
    _batch("bridge", namespace, (f"fdb add {behind} dev {port} master static" for port, behind in ports))


def _plug_in_guest(namespace: Namespace, settings: EndSettings, cables: Sequence[str]) -> None:
    """A bridge over the guest's network card and the cables, which learns addresses; it sends nothing itself."""
    made = f"mtu {settings.mtu_bytes} txqueuelen {settings.device_queue_packets} addrgenmode none up"
    _ip(
        namespace,
        [
            "link add bridge0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            "tuntap add dev guest0 mode tap",
            *(f"link set {device} master bridge0 {made}" for device in ("guest0", *cables)),
            "link set bridge0 addrgenmode none up",
        ],
    )


def _set_up(namespace: Namespace, settings: EndSettings, planned: InterfacePlan) -> None:
    for name, value in sysctls(settings).items():
        _write_sysctl(namespace, name, value)
    congestion_options = _set_congestion_control(namespace, settings.congestion_control)
    if not settings.is_offloading:
        for interface in namespace.interfaces:
            _turn_offloads_off(namespace, interface.name)
    _ip(namespace, ip_lines(namespace.interfaces, settings, planned, congestion_options))


def sysctls(settings: EndSettings) -> dict[str, str]:
    """The sysctls of a host by name, except that of the congestion control."""
    # no other traffic on the wire, and no TCP metrics of the previous run
    quiet = {"net.ipv4.tcp_no_metrics_save": "1"}
    if Path("/proc/sys/net/ipv6").exists():
        quiet |= {"net.ipv6.conf.all.disable_ipv6": "0"}
    requested = {
        "net.ipv4.tcp_rmem": settings.tcp_rmem_bytes and " ".join(map(str, settings.tcp_rmem_bytes)),
        "net.ipv4.tcp_wmem": settings.tcp_wmem_bytes and " ".join(map(str, settings.tcp_wmem_bytes)),
        "net.ipv4.tcp_slow_start_after_idle": (
            None if settings.is_slow_start_after_idle is None else str(int(settings.is_slow_start_after_idle))
        ),
        **settings.sysctls,
    }
    return quiet | {name: value for name, value in requested.items() if value is not None}


def ip_lines(
    own: Iterable[Interface], settings: EndSettings, planned: InterfacePlan, congestion_options: str = ""
) -> list[str]:
    """The addresses, routes and neighbours of a host, as lines for ``ip -batch``."""
    route_options = congestion_options
    if settings.initial_window_segments is not None:
        route_options += f" initcwnd {settings.initial_window_segments}"
    if settings.advertised_mss_bytes is not None:
        route_options += f" advmss {settings.advertised_mss_bytes}"
    if not settings.is_delaying_acks:
        route_options += " quickack 1"
    lines = []
    for interface in own:
        device = interface.name
        lines += [
            f"link set {device} address {interface.hardware_address} mtu {settings.mtu_bytes}"
            f" txqueuelen {settings.device_queue_packets} addrgenmode none up",
            f"addr add {interface.address}/24 dev {device} noprefixroute",
            f"route add {interface.subnet}.0/24 dev {device} src {interface.address} {route_options}",
        ]
        if interface.address_v6 is not None:
            lines += [
                f"addr add {interface.address_v6}/64 dev {device} nodad noprefixroute",
                f"route add {interface.subnet_v6}::/64 dev {device} {route_options}",
            ]
        for neighbour in planned.neighbours(interface):
            for address in filter(None, (neighbour.address, neighbour.address_v6)):
                lines.append(f"neigh replace {address} lladdr {neighbour.hardware_address} nud permanent dev {device}")
    return lines


OFFLOADS_OFF = [word for offload in ("tso", "gso", "gro", "lro", "tx", "rx") for word in (offload, "off")]
"""For ``ethtool -K``. Exit code 1: some cannot be changed, and are off."""


def _turn_offloads_off(namespace: Namespace, device: str) -> None:
    namespace.run("ethtool", "-K", device, *OFFLOADS_OFF, package="ethtool", limit_s=10, is_checked=False)


def _set_congestion_control(namespace: Namespace, name: str | None) -> str:
    """Sets the congestion control; returns options for the routes. As its default a namespace may only have an
    algorithm that every user may select, but its routes may have any. It replaces that of a socket at connect.
    """
    if name is None:
        return ""
    try:
        _write_sysctl(namespace, "net.ipv4.tcp_congestion_control", name)
    except PermissionError:
        return f"congctl {name}"
    return ""


def _write_sysctl(namespace: Namespace, name: str, value: str) -> None:
    path = Path("/proc/sys", name.replace(".", "/"))

    def write() -> None:
        path.write_text(value)

    try:
        namespace.call(write)
    except PermissionError:
        raise
    except OSError as error:
        raise ToolMissing(f"the kernel refuses {name} = {value} in a namespace: {error.strerror}") from error


def _make_tap(namespace: Namespace, device: str) -> TapDevice:
    """A persistent TAP device. It is removed with its namespace."""
    _ip(namespace, [f"tuntap add dev {device} mode tap"])
    return TapDevice(device, NAMESPACES / str(namespace.namespace))


def _ip(namespace: Namespace, lines: Iterable[str]) -> None:
    _batch("ip", namespace, lines)


def _batch(program: str, namespace: Namespace, lines: Iterable[str]) -> None:
    commands = "".join(f"{line}\n" for line in lines)
    arguments = ("-n", str(namespace.namespace), "-batch", "-")
    finished = HERE.run(program, *arguments, package="iproute2", limit_s=10, input_text=commands, is_checked=False)
    if finished.code != 0:
        raise ToolMissing(f"{program} failed in {namespace.namespace}: {' '.join(finished.errors.split())}")


def _existing() -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(path.name for path in NAMESPACES.iterdir())
    return []


def _remove(name: str) -> None:
    """Removes a namespace and kills what runs in it, if it exists."""
    try:
        # while it is open, its inode number is not reused
        held = os.open(NAMESPACES / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # the name first, so that no process can enter it any more
        finished = HERE.run("ip", "netns", "del", name, package="iproute2", limit_s=10, is_checked=False)
        for process_id in _processes_in(os.fstat(held)):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
    finally:
        os.close(held)
    # another process may be removing the same leftover
    if finished.code != 0 and name in _existing():
        raise ToolMissing(f"ip netns del {name} failed: {finished.last_message}")


def _processes_in(namespace: os.stat_result) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.samestat((folder / "ns" / "net").stat(), namespace) and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found
