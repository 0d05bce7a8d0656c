"""Faults of guests: of their programs, their networks and their disks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from iscsitrace.lab.faults.fault import Details, FaultImpossible
from iscsitrace.lab.guests import targets
from iscsitrace.lab.guests.faults import Hosts
from iscsitrace.lab.guests.targets import SECTOR_BYTES, change_table, disk_backing, linear_table

_CAPTURE_PROGRAM = "tcpdump"


@contextmanager
def target_restart(hosts: Hosts, details: Details) -> Iterator[None]:
    host = details["on"]
    guest, wanted = hosts.guests[host], hosts.wanted[host]
    if hosts.program == "lio":
        targets.stop_lio(guest, wanted.name)
        try:
            yield
        finally:
            targets.restart_lio(guest, wanted.name)
    else:
        targets.stop_tgt(guest)
        try:
            yield
        finally:
            hosts.until_end.enter_context(targets.tgt(guest, wanted))


@contextmanager
def paused(hosts: Hosts, details: Details) -> Iterator[None]:
    with _stopped(hosts, details["on"], details["program"]):
        yield


@contextmanager
def capture_drops(hosts: Hosts, details: Details) -> Iterator[None]:
    with _stopped(hosts, details["on"], _CAPTURE_PROGRAM):
        yield


@contextmanager
def _stopped(hosts: Hosts, host: str, program: str) -> Iterator[None]:
    guest = hosts.guests[host]
    if guest.run("pkill", "-STOP", "-x", program, is_checked=False).code != 0:
        raise FaultImpossible(f"no {program} runs at {host}")
    try:
        yield
    finally:
        guest.run("pkill", "-CONT", "-x", program, is_checked=False)


_PACKAGE = "iproute2"
_CARD = "guest0"
"""The device of a namespace that its guest's network card is plugged into, and that of its cable."""
_CABLE = "port0"
# of a bridge's port: BR_STATE_DISABLED, BR_STATE_FORWARDING
_DROPPING, _FORWARDING = "0", "3"
_SOCKETS = "'( sport = :3260 or dport = :3260 )'"


@contextmanager
def black_out(hosts: Hosts, details: Details) -> Iterator[None]:
    namespace = hosts.namespaces[details["on"]]

    def put_port(state: str) -> None:
        namespace.run("bridge", "link", "set", "dev", _CARD, "state", state, package=_PACKAGE)

    put_port(_DROPPING)
    try:
        yield
    finally:
        put_port(_FORWARDING)


@contextmanager
def mtu_hole(hosts: Hosts, details: Details) -> Iterator[None]:
    namespace = hosts.namespaces[details["on"]]
    (shown,) = json.loads(namespace.run("ip", "-json", "link", "show", _CARD, package=_PACKAGE).output)

    def limit(mtu_bytes: int) -> None:
        # a bridge drops what is too large for a port, and tells nobody
        for device in (_CARD, _CABLE):
            namespace.run("ip", "link", "set", device, "mtu", str(mtu_bytes), package=_PACKAGE)

    limit(details["bytes"])
    try:
        yield
    finally:
        limit(shown["mtu"])


@contextmanager
def flap(hosts: Hosts, details: Details) -> Iterator[None]:
    guest = hosts.guests[details["on"]]
    # a card that is taken down loses its routes and neighbours, and its addresses of IPv6
    guest.shell(
        """
        sysctl -q -w net.ipv6.conf.eth0.keep_addr_on_down=1 || true
        ip -4 route show dev eth0 >/run/routes-4
        ip -6 route show dev eth0 >/run/routes-6
        ip neigh show dev eth0 nud permanent | sed 's/ PERMANENT.*//' >/run/neighbours
        ip link set eth0 down
        """
    )
    try:
        yield
    finally:
        guest.shell(
            """
            ip link set eth0 up
            while read -r route; do ip -4 route replace $route dev eth0; done </run/routes-4
            while read -r route; do ip -6 route replace $route dev eth0; done </run/routes-6
            while read -r entry; do ip neigh replace $entry dev eth0 nud permanent; done </run/neighbours
            """
        )


@contextmanager
def connection_reset(hosts: Hosts, details: Details) -> Iterator[None]:
    guest = hosts.guests[details["on"]]
    # it lists what it has ended
    if not guest.shell(f"ss -K -H -n -t state established {_SOCKETS}").strip():
        raise FaultImpossible(f"no iSCSI connection to reset at {guest.name}")
    yield


@contextmanager
def small_buffers(hosts: Hosts, details: Details) -> Iterator[None]:
    size_bytes = details["bytes"]
    three = f"'{size_bytes} {size_bytes} {size_bytes}'"
    hosts.guests[details["on"]].shell(
        f"""
        sysctl -q -w net.ipv4.tcp_rmem={three} net.ipv4.tcp_wmem={three}
        sysctl -q -w net.core.rmem_max={size_bytes} net.core.wmem_max={size_bytes}
        """
    )
    yield


_MS = 1_000_000
_S = 1_000_000_000
_THIN_BLOCK_SECTORS = 128


@contextmanager
def _changed(hosts: Hosts, details: Details, table: str) -> Iterator[None]:
    """A disk has another table of the device mapper for a while."""
    guest, disk = hosts.guests[details["on"]], details["disk"]
    change_table(guest, disk, table)
    try:
        yield
    finally:
        change_table(guest, disk, linear_table(disk, _size_bytes(hosts, details)))


def _size_bytes(hosts: Hosts, details: Details) -> int:
    sizes = hosts.wanted[details["on"]].disk_bytes
    if details["disk"] >= len(sizes):
        raise FaultImpossible(f"{details['on']} has {len(sizes)} disks: there is no disk {details['disk']}")
    return sizes[details["disk"]]


def _sectors(hosts: Hosts, details: Details) -> int:
    return _size_bytes(hosts, details) // SECTOR_BYTES


@contextmanager
def errors(hosts: Hosts, details: Details) -> Iterator[None]:
    first, last = _range(details["sectors"], _sectors(hosts, details))
    backing, total = disk_backing(details["disk"]), _sectors(hosts, details)
    lines = [f"0 {first} linear {backing} 0"] if first else []
    lines.append(f"{first} {last + 1 - first} error")
    if last + 1 < total:
        lines.append(f"{last + 1} {total - last - 1} linear {backing} {last + 1}")
    with _changed(hosts, details, "\n".join(lines)):
        yield


def _range(text: str, total: int) -> tuple[int, int]:
    """The first and last sector of ``all``, or of ``100-199``."""
    if text == "all":
        return 0, total - 1
    words = text.split("-")
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[0]) <= int(words[1]) < total:
        return int(words[0]), int(words[1])
    raise FaultImpossible(f"sectors={text} is neither all nor a range like 0-2047 within {total} sectors")


@contextmanager
def flaky(hosts: Hosts, details: Details) -> Iterator[None]:
    up, down = (max(1, details[name] // _S) for name in ("up", "down"))
    hosts.guests[details["on"]].run("modprobe", "dm-flakey")
    table = f"0 {_sectors(hosts, details)} flakey {disk_backing(details['disk'])} 0 {up} {down}"
    with _changed(hosts, details, table):
        yield


@contextmanager
def slow(hosts: Hosts, details: Details) -> Iterator[None]:
    delay_ms = details["by"] // _MS
    read, write = (delay_ms if details["operation"] in {name, "all"} else 0 for name in ("read", "write"))
    with _changed(hosts, details, _delay_table(hosts, details, read, write)):
        yield


def _delay_table(hosts: Hosts, details: Details, read_ms: int, write_ms: int) -> str:
    hosts.guests[details["on"]].run("modprobe", "dm-delay")
    backing = disk_backing(details["disk"])
    return f"0 {_sectors(hosts, details)} delay {backing} 0 {read_ms} {backing} 0 {write_ms}"


@contextmanager
def full(hosts: Hosts, details: Details) -> Iterator[None]:
    """The disk becomes a thin volume in a pool without enough room: what it held is hidden."""
    guest, sectors = hosts.guests[details["on"]], _sectors(hosts, details)
    pool_sectors = -(-details["bytes"] // SECTOR_BYTES // _THIN_BLOCK_SECTORS) * _THIN_BLOCK_SECTORS
    guest.shell(
        f"""
        modprobe dm-thin-pool
        truncate -s 4M /run/pool-map
        truncate -s {pool_sectors * SECTOR_BYTES} /run/pool-data
        map=$(losetup --show -f /run/pool-map) data=$(losetup --show -f /run/pool-data)
        dmsetup create pool --table "0 {pool_sectors} thin-pool $map $data {_THIN_BLOCK_SECTORS} 0 1 error_if_no_space"
        dmsetup message pool 0 'create_thin 0'
        """
    )
    with _changed(hosts, details, f"0 {sectors} thin /dev/mapper/pool 0"):
        yield


@contextmanager
def stuck(hosts: Hosts, details: Details) -> Iterator[None]:
    guest, disk = hosts.guests[details["on"]], f"disk{details['disk']}"
    seconds = max(1, details["timeout"] // _S)
    hosts.initiator.shell(f"for limit in /sys/block/sd*/device/timeout; do echo {seconds} >$limit; done")
    guest.run("dmsetup", "suspend", "--noflush", "--nolockfs", disk)
    try:
        yield
    finally:
        guest.run("dmsetup", "resume", disk)


@contextmanager
def disk_reset(hosts: Hosts, _: Details) -> Iterator[None]:
    hosts.initiator.run("sg_reset", "--device", hosts.device)
    yield


@contextmanager
def removed(hosts: Hosts, details: Details) -> Iterator[None]:
    host = details["on"]
    _size_bytes(hosts, details)
    targets.remove_disk(hosts.guests[host], hosts.program, hosts.wanted[host].name, details["disk"])
    # for good: an initiator does not look for it again
    yield


@contextmanager
def slow_unmap(hosts: Hosts, details: Details) -> Iterator[None]:
    targets.allow_unmap(hosts.guests[details["on"]], hosts.program, details["disk"])
    initiator, device = hosts.initiator, hosts.device
    with _changed(hosts, details, _delay_table(hosts, details, 0, details["by"] // _MS)):
        for _ in range(details["count"]):
            # without --force it waits, for the user to think again
            initiator.run("sg_unmap", "--force", "--lba=0x40000", f"--num={details['blocks']}", device)
        yield
