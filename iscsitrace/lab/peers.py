"""Other targets as context managers in any place: tgt, istgt, and iperf3's server.

A peer is ready when its port accepts connections. Its files are in a new folder that is removed with it; several can
run at the same time. Installs nothing: for a missing program the error names the Debian package.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab import own_process, places
from iscsitrace.lab.places import Place, Process

TARGET_NAME = "iqn.2001-04.com.example:lab"
ISCSI_PORT = 3260  # RFC 7143, section 13.8: the default of a TargetAddress

_CHAP_SECRET_BYTES = range(12, 17)  # accepted by both; RFC 7143, section 9.2.1: at least 96 bits


@dataclass(frozen=True)
class ChapAccount:
    """CHAP: the initiator's name and secret."""

    user: str
    secret: str

    def __post_init__(self) -> None:
        words = (self.user, self.secret)
        if len(self.secret) not in _CHAP_SECRET_BYTES or not all(word.isascii() and word.isalnum() for word in words):
            raise InputInvalid("a CHAP user and secret are ASCII letters and digits, the secret 12 to 16 of them")


@dataclass(frozen=True)
class Target:
    """A running target: its address, and its only disk."""

    address: str
    port: int
    name: str
    lun: int
    file: Path
    """The disk's content."""
    account: ChapAccount | None
    process: Process

    @property
    def portal(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return places.portal(self.address, self.port)

    @property
    def discovery_url(self) -> str:
        """libiscsi's URL of the portal, with user and secret."""
        login = f"{self.account.user}%{self.account.secret}@" if self.account else ""
        return f"iscsi://{login}{self.portal}"

    @property
    def url(self) -> str:
        """libiscsi's URL of the disk."""
        return f"{self.discovery_url}/{self.name}/{self.lun}"


@contextmanager
def tgt(
    place: Place,
    *,
    lun_bytes: int,
    address: str | None = None,
    port: int | None = None,
    name: str = TARGET_NAME,
    account: ChapAccount | None = None,
    own_account: ChapAccount | None = None,
    keys: Mapping[str, str] | None = None,
) -> Iterator[Target]:
    """tgtd with one disk, LUN 1, of zeros.

    By default it listens at the place's address; on loopback on a free port, in a namespace on 3260. The initiator
    authenticates with ``account``, the target with ``own_account`` for mutual CHAP. ``keys`` are operational login keys
    of the target, in the spelling of RFC 7143.
    """
    listen = address or place.address
    listen_port = _port(place, listen, port)
    with _disk(lun_bytes) as file:
        # a separate control socket, so that several can run
        environment = {"TGT_IPC_SOCKET": str(file.parent / "control")}
        arguments = ("-f", "--iscsi", f"portal={places.portal(listen, listen_port)}")
        # it ignores SIGTERM
        with place.started(
            "tgtd", *arguments, package="tgt", stop_signal=signal.SIGKILL, environment=environment
        ) as process:
            _wait_for_port(place, process, listen, listen_port)

            def administer(*words: str) -> None:
                place.run("tgtadm", "--lld", "iscsi", *words, package="tgt", limit_s=10, environment=environment)

            accounts = [] if account is None else [account]
            set_up_tgt(administer, name=name, disks=[str(file)], accounts=accounts, own_account=own_account, keys=keys)
            yield Target(listen, listen_port, name, 1, file, account, process)


def set_up_tgt(
    administer: Callable[..., object],
    *,
    name: str,
    disks: Sequence[str],
    accounts: Sequence[ChapAccount],
    own_account: ChapAccount | None,
    keys: Mapping[str, str] | None,
    flags: Sequence[str] = (),
) -> None:
    """Sets up tgtd's only target, with the disks as LUN 1, 2 ...; ``administer`` runs tgtadm with words.

    ``flags`` are further options of each disk.
    """
    administer("--mode", "target", "--op", "new", "--tid", "1", "--targetname", name)
    for number, disk in enumerate(disks, 1):
        unit = ("--tid", "1", "--lun", str(number), "--backing-store", disk, *flags)
        administer("--mode", "logicalunit", "--op", "new", *unit)
    outgoing = [] if own_account is None else [own_account]
    for each, way in (*((account, ()) for account in accounts), *((account, ("--outgoing",)) for account in outgoing)):
        user = ("--user", each.user)
        administer("--mode", "account", "--op", "new", *user, "--password", each.secret)
        administer("--mode", "account", "--op", "bind", "--tid", "1", *user, *way)
    for key, value in (keys or {}).items():
        administer("--mode", "target", "--op", "update", "--tid", "1", "--name", key, "--value", value)
    administer("--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL")


@contextmanager
def istgt(
    place: Place,
    *,
    lun_bytes: int,
    address: str | None = None,
    port: int | None = None,
    name: str = TARGET_NAME,
    account: ChapAccount | None = None,
    own_account: ChapAccount | None = None,
    keys: Mapping[str, str] | None = None,
    connections_max: int = 8,
    queue_depth: int = 32,
) -> Iterator[Target]:
    """istgt with one disk, LUN 0, of zeros, and several connections per session; otherwise like tgt."""
    listen = address or place.address
    listen_port = _port(place, listen, port)
    with _disk(lun_bytes) as file:
        secrets = file.parent / "secrets"
        # it refuses a file that other users can read
        secrets.touch(mode=0o600)
        if account is not None:
            pairs = [(each.user, each.secret) for each in (account, own_account) if each is not None]
            words = " ".join(f'"{word}"' for pair in pairs for word in pair)
            secrets.write_text(f"[AuthGroup1]\n  Auth {words}\n")
        settings = file.parent / "istgt.conf"
        wanted = {**_ISTGT_KEYS, **(keys or {})}
        method = "CHAP Mutual" if own_account else "CHAP"
        settings.write_text(
            _ISTGT.format(
                node=name.partition(":")[0],
                name=name,
                folder=file.parent,
                secrets=secrets,
                connections=connections_max,
                portal=places.portal(listen, listen_port),
                authentication=f"AuthMethod {method}\n  AuthGroup AuthGroup1" if account else "AuthMethod None",
                keys="\n  ".join(f"{key} {value}" for key, value in wanted.items()),
                queue_depth=queue_depth,
                file=file,
            )
        )
        # at its end it waits for connections that no longer exist
        with place.started("istgt", "-D", "-c", str(settings), package="istgt", stop_limit_s=1) as process:
            _wait_for_port(place, process, listen, listen_port)
            yield Target(listen, listen_port, name, 0, file, account, process)


_ISTGT_KEYS = {
    "MaxOutstandingR2T": "16",
    "DefaultTime2Wait": "2",
    "DefaultTime2Retain": "60",
    "FirstBurstLength": "262144",
    "MaxBurstLength": "1048576",
    "MaxRecvDataSegmentLength": "262144",
    "InitialR2T": "Yes",
    "ImmediateData": "Yes",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
    "ErrorRecoveryLevel": "0",
}
_ISTGT = """\
[Global]
  NodeBase "{node}"
  PidFile {folder}/istgt.pid
  AuthFile {secrets}
  Timeout 30
  NopInInterval 20
  DiscoveryAuthMethod None
  MaxSessions 64
  MaxConnections {connections}
  MaxR2T 32
  {keys}
[UnitControl]
  AuthMethod None
[PortalGroup1]
  Portal P1 {portal}
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask ALL
[LogicalUnit1]
  TargetName "{name}"
  Mapping PortalGroup1 InitiatorGroup1
  {authentication}
  UseDigest Auto
  UnitType Disk
  QueueDepth {queue_depth}
  LUN0 Storage {file} Auto
"""


@contextmanager
def iperf3_server(place: Place, *, address: str | None = None, port: int = 5201) -> Iterator[Process]:
    """iperf3's server, which serves one client after the other."""
    listen = address or place.address
    _port(place, listen, port)
    with place.started("iperf3", "-s", "-B", listen, "-p", str(port), package="iperf3") as process:
        _wait_for_port(place, process, listen, port)
        yield process


def iperf3(place: Place, to: str, *options: str, port: int = 5201, seconds: int = 5) -> dict[str, Any]:
    """Runs iperf3's client against a server; returns its JSON. ``options``: ``-C cubic``, ``-R``, ``-u -b 100M``."""
    arguments = ("-c", to, "-p", str(port), "-t", str(seconds), "-J", *options)
    finished = place.run("iperf3", *arguments, package="iperf3", limit_s=seconds + 15, is_checked=False)
    try:
        result = json.loads(finished.output)
    except json.JSONDecodeError as error:
        raise ToolMissing(f"iperf3 printed no result: {finished.last_message}") from error
    if finished.code != 0 or not isinstance(result, dict) or "error" in result:
        message = result.get("error") if isinstance(result, dict) else None
        raise ToolMissing(f"iperf3 failed: {message or finished.last_message}")
    return result


def remove_leftovers() -> list[Path]:
    """Ends targets of processes that are gone and removes their folders; returns these."""
    leftovers = [
        folder
        for folder in Path(tempfile.gettempdir()).glob("iscsitrace-*")
        if own_process.is_left_over(folder.name) and _is_own(folder)
    ]
    for folder in leftovers:
        for process_id in _targets_of(folder):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    return leftovers


def _is_own(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid()
    except FileNotFoundError:  # removed by its own process, or by another run, since it was listed
        return False


def _targets_of(folder: Path) -> list[int]:
    """Processes of tgtd and istgt that use this folder, by their environment or arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words_of_process = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            is_target = (process / "comm").read_text().strip() in {"tgtd", "istgt"}
            if is_target and os.fsencode(folder) + b"/" in words_of_process:
                found.append(int(process.name))
    return found


@contextmanager
def _disk(size_bytes: int) -> Iterator[Path]:
    """A file of zeros in a new folder. Both are removed afterwards."""
    remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=own_process.prefix()) as folder:
        file = Path(folder, "disk")
        file.touch()
        os.truncate(file, size_bytes)
        yield file


def _port(place: Place, address: str, wanted: int | None) -> int:
    """The port to listen on; InputInvalid if another server listens there."""
    if wanted is None and place.namespace is None:
        return place.free_port(address)
    port = wanted or ISCSI_PORT
    if place.answers(address, port):
        raise InputInvalid(f"{places.portal(address, port)} is taken")
    return port


def _wait_for_port(place: Place, process: Process, address: str, port: int) -> None:
    process.wait_until(lambda: place.answers(address, port), f"no answer on {places.portal(address, port)}")
