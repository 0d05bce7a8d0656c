"""Network namespaces joined by cables: each end a namespace with addresses and TCP settings of its own.

```
    initiator            target              tap: two TAP devices, without carrier until somebody opens them and moves
    eth0 10.71.0.1 ----- eth0 10.71.0.2           frames between them
    fd71::1              fd71::2             veth: the kernel's own pair, the bypass; it loses packets when more than
                                                  net.core.netdev_max_backlog are under way at once
```

An end can be a switch for its cables: a bridge, which knows what is behind each of its ports and copies no frame.

Nothing outside the namespaces is touched. They are removed when the block is left, whatever the reason; those of a
process that was killed are removed at the next start. Needs root. Never moves a frame itself.
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
from typing import Literal

from iscsitrace.errors import InputInvalid, IscsitraceError, ToolMissing
from iscsitrace.lab import interfaces, ownership, signals
from iscsitrace.lab.interfaces import Interface, Pair, Plan
from iscsitrace.lab.places import HERE, NAMESPACES, Place

_CABLES_MAX = 250
_serials = itertools.count()

# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000


class RootNeeded(IscsitraceError):
    """Only root makes network namespaces."""

    def __init__(self) -> None:
        super().__init__("network namespaces need root: run this with sudo")


@dataclass(frozen=True)
class EndSettings:
    """How a namespace is set up. None leaves what the kernel gives a new one."""

    mtu_bytes: int = 1500
    is_offloading: bool = False
    """Segmentation, receive and checksum offloads stay on: captures then show packets that no wire carries."""
    device_queue_packets: int = 10_000
    """Packets that wait in a device for whoever moves them on; the link has a queue of its own."""
    congestion_control: str | None = None
    tcp_rmem_bytes: tuple[int, int, int] | None = None
    """Minimum, default and maximum of the receive buffer."""
    tcp_wmem_bytes: tuple[int, int, int] | None = None
    """Minimum, default and maximum of the send buffer."""
    is_slow_start_after_idle: bool | None = None
    initial_window_segments: int | None = None
    """What may be sent before the first ACK (RFC 6928)."""
    advertised_mss_bytes: int | None = None
    """The largest payload of a segment that it asks its peers for (the route's advmss); else by the MTU."""
    is_delaying_acks: bool = True
    """Without it the kernel acknowledges every segment at once (the route's quickack)."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Others, by name, as `net.ipv4.tcp_sack`."""
    is_switching: bool = False
    """All its cables are one network, and frames pass from one to another."""


@dataclass(frozen=True)
class Namespace(Place):
    """A network namespace; a place whose addresses are those of its first interface."""

    interfaces: tuple[Interface, ...] = ()


@dataclass(frozen=True)
class Tap:
    """A TAP device: its name, inside the namespace that this file stands for."""

    name: str
    namespace: Path

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor, non-blocking, of which each read is a frame that the namespace sends and each write one that it
        receives, without a header of their own. One at a time; the device has carrier as long as it is open.
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
    """What joins two namespaces, by the names of their ends."""

    first: str
    second: str
    taps: tuple[Tap, Tap] | None
    """First and second; a frame read from one is to be written to the other. None: veth."""


@dataclass(frozen=True)
class Network:
    """Namespaces by the name of their end, and the cables between them."""

    ends: Mapping[str, Namespace]
    cables: tuple[Cable, ...]

    def __getitem__(self, end: str) -> Namespace:
        return self.ends[end]


@contextmanager
def network(
    ends: Mapping[str, EndSettings],
    *,
    cable: Literal["tap", "veth"] = "tap",
    cables: Sequence[Pair] | None = None,
) -> Iterator[Network]:
    """Namespaces that exist while the block runs, by names of lower-case letters, digits and dashes.

    ``cables`` names the pairs to join; without it the first end is joined with each other. RootNeeded unless root;
    ToolMissing when the kernel or iproute2 refuses.
    """
    names = list(ends)
    pairs = [(names[0], name) for name in names[1:]] if cables is None else list(cables)
    if len(pairs) > _CABLES_MAX or not all(re.fullmatch("[a-z0-9-]+", name) for name in names):
        raise InputInvalid(f"ends are named by lower-case letters, digits and dashes, cables are {_CABLES_MAX} at most")
    if unknown := {name for pair in pairs for name in pair} - set(names):
        raise InputInvalid(f"a cable ends at {', '.join(sorted(unknown))}, which is no end")
    require_root()
    remove_leftovers()
    with signals.unwinding():
        stack = ExitStack()
        try:
            yield _build(stack, ends, pairs, cable)
        finally:
            with signals.deferred():
                stack.close()


def require_root() -> None:
    """RootNeeded for anybody else."""
    if os.geteuid() != 0:
        raise RootNeeded


def remove_leftovers() -> list[str]:
    """Removes namespaces of processes that are gone, and what still runs in them; gives their names."""
    leftovers = [name for name in _existing() if ownership.is_left_over(name)]
    for name in leftovers:
        _remove(name)
    return leftovers


def _build(
    stack: ExitStack, ends: Mapping[str, EndSettings], pairs: Sequence[Pair], kind: Literal["tap", "veth"]
) -> Network:
    serial = next(_serials)
    switches = [name for name, settings in ends.items() if settings.is_switching]
    planned = interfaces.plan(ends, pairs, switches, has_v6=Path("/proc/sys/net/ipv6").exists())
    made = {}
    for name in ends:
        namespace = f"{ownership.prefix()}{serial}-{name}"
        # before it exists: a signal may arrive in between
        stack.callback(_remove, namespace)
        HERE.run("ip", "netns", "add", namespace, package="iproute2", limit_s=10)
        own = planned.interfaces[name]
        first = own[0] if own else Interface("lo", "127.0.0.1", "::1", "")
        made[name] = Namespace(namespace, first.address, first.address_v6, tuple(own))
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
        if settings.is_switching:
            _switch(made[name], settings, planned.ports[name])
        _set_up(made[name], settings, planned)
    return Network(made, tuple(cables))


def _switch(namespace: Namespace, settings: EndSettings, ports: Sequence[tuple[str, str]]) -> None:
    """A bridge over the ports. It learns nothing and floods nothing: a frame goes to its address, or nowhere."""
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


def _set_up(namespace: Namespace, settings: EndSettings, planned: Plan) -> None:
    # nothing but what is tested on the wire, and no run that remembers the one before
    quiet = {"net.ipv4.tcp_no_metrics_save": "1"}
    if Path("/proc/sys/net/ipv6").exists():
        quiet |= {"net.ipv6.conf.all.disable_ipv6": "0"}
    asked = {
        "net.ipv4.tcp_rmem": settings.tcp_rmem_bytes and " ".join(map(str, settings.tcp_rmem_bytes)),
        "net.ipv4.tcp_wmem": settings.tcp_wmem_bytes and " ".join(map(str, settings.tcp_wmem_bytes)),
        "net.ipv4.tcp_slow_start_after_idle": (
            None if settings.is_slow_start_after_idle is None else str(int(settings.is_slow_start_after_idle))
        ),
        **settings.sysctls,
    }
    for name, value in {**quiet, **asked}.items():
        if value is not None:
            _write_sysctl(namespace, name, value)
    route_options = _set_congestion_control(namespace, settings.congestion_control)
    if settings.initial_window_segments is not None:
        route_options += f" initcwnd {settings.initial_window_segments}"
    if settings.advertised_mss_bytes is not None:
        route_options += f" advmss {settings.advertised_mss_bytes}"
    if not settings.is_delaying_acks:
        route_options += " quickack 1"
    lines = []
    for interface in namespace.interfaces:
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
        if not settings.is_offloading:
            _turn_offloads_off(namespace, device)
    _ip(namespace, lines)


def _turn_offloads_off(namespace: Namespace, device: str) -> None:
    offloads = ("tso", "gso", "gro", "lro", "tx", "rx")
    switched = (word for offload in offloads for word in (offload, "off"))
    # exit code 1 says only that some are fixed, off already
    namespace.run("ethtool", "-K", device, *switched, package="ethtool", limit_s=10, is_checked=False)


def _set_congestion_control(namespace: Namespace, name: str | None) -> str:
    """Options for the routes: the kernel lets a namespace choose only what every user may choose as its default, but
    its routes any. A route's choice is the stronger one: it replaces what a socket chose before it connected.
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


def _make_tap(namespace: Namespace, device: str) -> Tap:
    """A TAP device that stays when nobody has it open, and goes with its namespace."""
    _ip(namespace, [f"tuntap add dev {device} mode tap"])
    return Tap(device, NAMESPACES / str(namespace.namespace))


def _ip(namespace: Namespace, lines: Iterable[str]) -> None:
    _batch("ip", namespace, lines)


def _batch(program: str, namespace: Namespace, lines: Iterable[str]) -> None:
    given = "".join(f"{line}\n" for line in lines)
    arguments = ("-n", str(namespace.namespace), "-batch", "-")
    finished = HERE.run(program, *arguments, package="iproute2", limit_s=10, given=given, is_checked=False)
    if finished.code != 0:
        raise ToolMissing(f"{program} failed in {namespace.namespace}: {' '.join(finished.errors.split())}")


def _existing() -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(path.name for path in NAMESPACES.iterdir())
    return []


def _remove(name: str) -> None:
    """Removes a namespace and kills what runs in it; nothing when there is none."""
    try:
        # while it is open, its inode number is no other's
        held = os.open(NAMESPACES / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # the name first: nobody can enter it any more
        finished = HERE.run("ip", "netns", "del", name, package="iproute2", limit_s=10, is_checked=False)
        for process_id in _processes_in(os.fstat(held)):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
    finally:
        os.close(held)
    # another process may have found the same leftover
    if finished.code != 0 and name in _existing():
        raise ToolMissing(f"ip netns del {name} failed: {finished.last_words}")


def _processes_in(namespace: os.stat_result) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.path.samestat((folder / "ns" / "net").stat(), namespace) and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found
