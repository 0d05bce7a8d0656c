"""The initiator of a guest: open-iscsi with the kernel's iscsi_tcp, the volumes over its disks, and fio on them."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import peers
from iscsitrace.lab.guests.machine import Guest
from iscsitrace.lab.places import last_line
from iscsitrace.wording.login_keys import LOGIN_KEYS

NAME = "iqn.2025-01.org.iscsitrace:guest"
_OF_CONNECTION = ("MaxRecvDataSegmentLength", "HeaderDigest", "DataDigest")
_LOGIN_LIMIT_S = 180
_DISK_LIMIT_S = 30
_OTHER_INTERFACE = "other"
_POLL_S = 0.2
_SLACK_S = 120
_SYSFS = "/sys/class/iscsi_session/*/* /sys/class/iscsi_connection/*/*"
_DIRECTIONS = ("read", "write", "trim")
_OF_COMMANDS = ("completed_ms", "operation", "offset", "bytes", "latency_ns")
_FIO_LOG = "/run/fio_lat.1.log"
_FIO_RESULT = "/run/fio.json"


@dataclass(frozen=True)
class TargetPortal:
    """Where a target is, and its name."""

    text: str
    """``host:port``."""
    name: str
    is_further: bool = False
    """One more portal of a target, which SendTargets at another lists: the I/O does not wait for its session."""


@dataclass(frozen=True)
class Login:
    """How open-iscsi logs in."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """Operational keys in the spelling of RFC 7143."""
    account: peers.ChapAccount | None = None
    own_account: peers.ChapAccount | None = None
    """The target's, for mutual CHAP."""
    sessions: int = 1
    """Sessions with each target."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of iscsid.conf by name, like node.session.timeo.replacement_timeout."""

    def lines(self) -> str:
        """As iscsid.conf."""
        found = {"node.startup": "manual", "node.session.nr_sessions": str(self.sessions)}
        for key, value in self.keys.items():
            level = "conn[0]" if key in _OF_CONNECTION else "session"
            found[f"node.{level}.iscsi.{key}"] = value
        found |= self.account_settings() | dict(self.settings)
        return "".join(f"{name} = {value}\n" for name, value in found.items())

    def account_settings(self) -> dict[str, str]:
        """The settings of CHAP."""
        found = {}
        for suffix, account in (("", self.account), ("_in", self.own_account)):
            if account is not None:
                found["node.session.auth.authmethod"] = "CHAP"
                found[f"node.session.auth.username{suffix}"] = account.user
                found[f"node.session.auth.password{suffix}"] = account.secret
        return found


@contextmanager
def running(guest: Guest, login: Login, name: str = NAME) -> Iterator[None]:
    """iscsid, with settings for the logins that follow."""
    guest.write("/etc/iscsi/initiatorname.iscsi", f"InitiatorName={name}\n")
    guest.write("/etc/iscsi/iscsid.conf", login.lines(), mode=0o600)
    guest.shell("modprobe -a iscsi_tcp sd_mod; mkdir -p /run/lock/iscsi /etc/iscsi/nodes /etc/iscsi/send_targets")
    with guest.started("iscsid", "-f") as iscsid:
        iscsid.wait_until(
            lambda: guest.run("iscsiadm", "-m", "session", is_checked=False).code in {0, _NO_SESSIONS},
            "no answer of iscsiadm",
        )
        yield


_NO_SESSIONS = 21


@contextmanager
def logged_in(guest: Guest, portals: Sequence[TargetPortal], *, is_discovering: bool = True) -> Iterator[None]:
    """Sessions with targets, which end with the block: found by SendTargets, or known."""
    for portal in portals:
        if portal.is_further:
            continue
        at = ("-p", portal.text)
        if is_discovering:
            guest.run("iscsiadm", "-m", "discovery", "-t", "sendtargets", *at, limit_s=_LOGIN_LIMIT_S)
        else:
            guest.run("iscsiadm", "-m", "node", "-T", portal.name, *at, "-o", "new", limit_s=_LOGIN_LIMIT_S)
    try:
        for portal in portals:
            guest.run(*_node(portal), "--login", limit_s=_LOGIN_LIMIT_S, is_checked=not portal.is_further)
        yield
    finally:
        with suppress(ToolMissing):
            guest.run("iscsiadm", "-m", "node", "-U", "all", limit_s=_LOGIN_LIMIT_S, is_checked=False)


@contextmanager
def logged_in_as(guest: Guest, portal: TargetPortal, name: str) -> Iterator[str]:
    """One more session with a target while the block runs, under another initiator name; its disk."""
    before = set(_disks(guest).get(portal.name, ()))
    interface = ("iscsiadm", "-m", "iface", "-I", _OTHER_INTERFACE)
    guest.run(*interface, "-o", "new")
    guest.run(*interface, "-o", "update", "-n", "iface.transport_name", "-v", "tcp")
    guest.run(*interface, "-o", "update", "-n", "iface.initiatorname", "-v", name)
    node = (*_node(portal), "-I", _OTHER_INTERFACE)
    guest.run(*node, "-o", "new")
    guest.run(*node, "--login", limit_s=_LOGIN_LIMIT_S)
    try:
        (found,) = disks(guest, [portal], each=len(before) + 1, limit_s=_DISK_LIMIT_S)
        yield next(each for each in found if each not in before)
    finally:
        with suppress(ToolMissing):
            guest.run(*node, "--logout", limit_s=_LOGIN_LIMIT_S, is_checked=False)


def _node(portal: TargetPortal) -> tuple[str, ...]:
    return ("iscsiadm", "-m", "node", "-T", portal.name, "-p", portal.text)


def disks(guest: Guest, portals: Sequence[TargetPortal], *, each: int = 1, limit_s: float = 60) -> list[list[str]]:
    """The devices of each target's disks, as soon as there are ``each`` of them."""
    end = time.monotonic() + limit_s
    while True:
        found = _disks(guest)
        if all(len(found.get(portal.name, ())) >= each for portal in portals):
            return [found[portal.name] for portal in portals]
        if time.monotonic() > end:
            raise ToolMissing(f"open-iscsi made no {each} disks of each target within {limit_s:g} s")
        time.sleep(_POLL_S)


def _disks(guest: Guest) -> dict[str, list[str]]:
    """Devices by the name of their target, in the order of sessions and LUNs."""
    found: dict[str, list[str]] = {}
    listed = guest.shell(
        """
        for session in $(ls -d /sys/class/iscsi_session/session* 2>/dev/null | sort -V); do
            for disk in $(ls -d $session/device/target*/*/block/* 2>/dev/null | sort -V); do
                [ "$(cat $disk/size)" = 0 ] || echo "$(cat $session/targetname) /dev/${disk##*/}"
            done
        done
        """
    )
    for line in listed.splitlines():
        name, device = line.split()
        found.setdefault(name, []).append(device)
    return found


def negotiated(guest: Guest) -> dict[str, dict[str, str]]:
    """What the kernel says of each session and connection: attributes of sysfs."""
    found: dict[str, dict[str, str]] = {}
    text = guest.run("/bin/sh", "-c", f"grep -s -H . {_SYSFS}", is_checked=False).output
    for line in text.splitlines():
        if told := re.match(r"/sys/class/iscsi_\w+/([^/]+)/(\w+):(.*)", line):
            found.setdefault(told[1], {})[told[2]] = told[3]
    return found


# attribute of sysfs -> name of a truth; those of data in order are never set: the login does not have these keys
_OF_SYSFS = {
    "initial_r2t": "initial_r2t",
    "immediate_data": "immediate_data",
    "first_burst_len": "first_burst_length",
    "max_burst_len": "max_burst_length",
    "max_outstanding_r2t": "max_outstanding_r2t",
    "erl": "error_recovery_level",
    "max_recv_dlength": "initiator_max_recv_data_segment_length",
    "max_xmit_dlength": "target_max_recv_data_segment_length",
    "header_digest": "header_digest",
    "data_digest": "data_digest",
}
_SWITCHES = ("initial_r2t", "immediate_data")
_DIGESTS = ("None", "CRC32C")


def connections(attributes: Mapping[str, Mapping[str, str]], portals: Sequence[TargetPortal]) -> dict[str, Any]:
    """The connections as a truth lists them: ``connections`` with their parameters, and ``ends`` with their ports."""
    numbers = {portal.name: number for number, portal in enumerate(portals)}
    found: dict[str, Any] = {"connections": [], "ends": []}
    for name, own in attributes.items():
        if told := re.fullmatch(r"connection(\d+):(\d+)", name):
            session = dict(attributes[f"session{told[1]}"])
            both = session | dict(own)
            values = {its: _parameter(key, both[key]) for key, its in _OF_SYSFS.items() if key in both}
            number = len(found["connections"])
            found["connections"].append({
                "connection": number, "session": int(told[1]), "cid": int(told[2]),
                "target": numbers[session["targetname"]], "parameters": values,
            })  # fmt: skip
            end = {"connection": number, "peer_address": own["address"], "own_port": int(own["local_port"])}
            found["ends"].append(end)
    return found


def _parameter(name: str, text: str) -> Any:
    if name.endswith("digest"):
        return _DIGESTS[int(text)]
    return bool(int(text)) if name in _SWITCHES else int(text)


def volume(guest: Guest, devices: Sequence[str], layout: str, chunk_bytes: int) -> str:
    """The device to read and write: the only disk, or an array of them (md, RAID 1 or RAID 0)."""
    if len(devices) == 1:
        return devices[0]
    level = ("--level=1", "--bitmap=none") if layout == "mirror" else ("--level=0", f"--chunk={chunk_bytes // 1024}")
    guest.run(
        *("mdadm", "--create", "/dev/md0", *level, f"--raid-devices={len(devices)}", "--assume-clean", "--run"),
        *("--metadata=1.0", *devices),
        limit_s=_LOGIN_LIMIT_S,
    )
    return "/dev/md0"


def limit_commands(guest: Guest, devices: Sequence[str], workload: Mapping[str, Any]) -> None:
    """The kernel cuts a system call of these disks into commands of the workload's size (max_sectors_kb)."""
    most = workload.get("max_transfer_bytes") or (
        workload.get("system_call_bytes") and workload.get("block_size_bytes")
    )
    if most:
        for device in devices:
            path = f"/sys/block/{device.rpartition('/')[2]}/queue/max_sectors_kb"
            guest.shell(f"echo {int(most) // 1024} > {path}")


@contextmanager
def multipath(guest: Guest, paths: Sequence[Sequence[str]], settings: Mapping[str, str]) -> Iterator[list[str]]:
    """multipathd, and a device over the paths of each disk; ``settings`` are defaults of multipath.conf."""
    found = {"find_multipaths": "no", "path_grouping_policy": "multibus"} | dict(settings)
    lines = "".join(f"    {name} {value}\n" for name, value in found.items())
    guest.write("/etc/multipath.conf", f"defaults {{\n{lines}}}\n")
    # it finds paths by udev alone
    guest.shell(
        """
        modprobe -a dm-multipath dm-round-robin dm-service-time scsi_dh_alua
        /lib/systemd/systemd-udevd --daemon
        udevadm trigger --subsystem-match=block --action=add
        udevadm settle --timeout=60
        """,
        limit_s=_LOGIN_LIMIT_S,
    )
    with guest.started("env", "--unset=DM_DISABLE_UDEV", "multipathd", "-d", "-s") as daemon:
        firsts = [own[0] for own in paths]
        daemon.wait_until(lambda: len(_holders(guest, firsts)) == len(firsts), "no map of the paths")
        try:
            yield _holders(guest, firsts)
        finally:
            with suppress(ToolMissing):
                guest.run("multipath", "-F", limit_s=_LOGIN_LIMIT_S, is_checked=False)


def _holders(guest: Guest, devices: Sequence[str]) -> list[str]:
    """The devices that are made of these."""
    folders = " ".join(f"/sys/block/{device.rpartition('/')[2]}/holders" for device in devices)
    return [f"/dev/{name}" for name in guest.shell(f"ls {folders}").split() if name.startswith("dm-")]


def fio_arguments(device: str, workload: Mapping[str, Any], *, is_enduring: bool = False) -> list[str]:
    """The options of fio for a workload, in the names of our initiator's. An enduring one goes on after errors."""
    operation, is_random = workload.get("operation") or "read", workload.get("access") == "random"
    kind = {"read": "read", "write": "write", "mixed": "rw"}[operation]
    block_bytes = workload.get("system_call_bytes") or workload.get("block_size_bytes") or 65_536
    found = {
        "name": "run",
        "filename": device,
        "direct": 1,
        "ioengine": "libaio",
        "rw": f"rand{kind}" if is_random else kind,
        "bs": block_bytes,
        "iodepth": workload.get("queue_depth") or 1,
        "randseed": workload.get("seed") or 1,
        "buffer_pattern": '"iscsitrace "',
        "offset": (workload.get("start_lba") or 0) * 512,
        "write_lat_log": "/run/fio",
        "log_offset": 1,
        "log_unix_epoch": 1,
        "output-format": "json",
        "output": _FIO_RESULT,
        "eta": "never",
    }
    if operation == "mixed":
        found["rwmixread"] = round(100 * float(workload.get("read_share") or 0.5))
    if workload.get("total_bytes"):
        found["io_size"] = workload["total_bytes"]
    if workload.get("duration_ns"):
        found |= {"runtime": f"{workload['duration_ns'] // 1000}us", "time_based": 1}
    if workload.get("span_bytes"):
        found["size"] = workload["span_bytes"]
    if workload.get("think_time_ns"):
        found["thinktime"] = f"{workload['think_time_ns'] // 1000}us"
    if is_enduring:
        found["continue_on_error"] = "all"
    return ["--thread", *(f"--{name}={value}" for name, value in found.items())]


@dataclass(frozen=True)
class Ran:
    """What fio did."""

    code: int | None
    results: dict[str, Any]
    """``throughput_bytes_per_s iops read_bytes``, bytes by operation, ``error_count``, and ``error``: the last message
    of the program that failed, or null.
    """
    commands: dict[str, list[Any]]
    """Of each of its reads and writes, in the order of completion: ``completed_ms operation offset bytes latency_ns``;
    the time is since 1970, on the guest's clock.
    """

    @classmethod
    def without_io(cls, error: str) -> Ran:
        """What is known where a program failed before the I/O."""
        return cls(None, {"error": error, "started_ns": None}, {name: [] for name in _OF_COMMANDS})


def run_fio(guest: Guest, arguments: Sequence[str], is_enough: Callable[[], bool], limit_s: float) -> Ran:
    """Runs fio to its end; it gets SIGINT when ``is_enough`` is True."""
    end = time.monotonic() + limit_s
    with guest.started("fio", *arguments) as fio:
        while fio.is_running and time.monotonic() < end and not is_enough():
            time.sleep(_POLL_S)
        code = fio.stop(signal.SIGINT, limit_s=_SLACK_S)
        log = fio.log
    return Ran(code, _results(guest, log), _commands(guest))


def _results(guest: Guest, log: str) -> dict[str, Any]:
    text = guest.run("cat", _FIO_RESULT, is_checked=False).output
    # messages of errors come before the document
    start = text.find("{")
    if start < 0:
        raise ToolMissing(f"fio wrote no result: {log.strip()[-200:]}")
    (job,) = json.loads(text[start:])["jobs"]
    done = {name: job[name] for name in _DIRECTIONS[:2]}
    return {
        "throughput_bytes_per_s": sum(each["bw_bytes"] for each in done.values()),
        "iops": round(sum(each["iops"] for each in done.values())),
        "read_bytes": int(job["job options"]["bs"]),
        "bytes": {name: each["io_bytes"] for name, each in done.items()},
        "error": (last_line(log) or last_line(text[:start]) or f"error {job['error']}") if job["error"] else None,
        "error_count": job.get("total_err", 0),
        "elapsed_ns": max(each["runtime"] for each in done.values()) * 1_000_000,
    }


def _commands(guest: Guest) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in _OF_COMMANDS}
    for line in guest.run("cat", _FIO_LOG, is_checked=False).output.splitlines():
        time_ms, latency_ns, direction, size_bytes, offset, *_ = (int(word) for word in line.split(", "))
        for name, value in zip(
            _OF_COMMANDS, (time_ms, _DIRECTIONS[direction], offset, size_bytes, latency_ns), strict=True
        ):
            found[name].append(value)
    return found


def keys_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Login keys in the spelling of RFC 7143, from the fields of a run's settings."""
    by_field = {name: key for key, (name, _) in LOGIN_KEYS.items()}
    return {by_field[name]: _key_text(value) for name, value in fields.items() if name in by_field}


def _key_text(value: Any) -> str:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return ",".join(value) if isinstance(value, list) else str(value)
