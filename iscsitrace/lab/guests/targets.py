"""The targets of a guest: LIO, the kernel's, set up by rtslib's targetctl; and tgt, with tgtadm.

Each serves the guest's disks as LUN 0, 1 ... (tgt from LUN 1 on: its LUN 0 is a controller).

Their disks are memory below a device mapper, through which a run makes them slow, broken or full.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from iscsitrace.lab import peers, places
from iscsitrace.lab.guests.machine import Guest

SECTOR_BYTES = 512
_LOOPS = 64


def disk_device(number: int) -> str:
    """The device of a disk."""
    return f"/dev/mapper/disk{number}"


def make_disks(guest: Guest, sizes_bytes: Sequence[int]) -> None:
    """Makes the disks of a guest."""
    lines = [f"modprobe loop max_loop={_LOOPS}", "modprobe dm-mod"]
    for number, size_bytes in enumerate(sizes_bytes):
        # a file in memory: unlike a RAM disk of the kernel, it can be unmapped
        lines += [f"truncate -s {size_bytes} /run/disk{number}", f"losetup {disk_backing(number)} /run/disk{number}"]
        lines.append(f"dmsetup create disk{number} --table '{linear_table(number, size_bytes)}'")
    guest.shell("\n".join(lines))


def disk_backing(number: int) -> str:
    """The device below a disk's mapper."""
    return f"/dev/loop{number}"


def linear_table(number: int, size_bytes: int) -> str:
    """The table of a disk that works."""
    return f"0 {size_bytes // SECTOR_BYTES} linear {disk_backing(number)} 0"


def change_table(guest: Guest, number: int, table: str) -> None:
    """Gives a disk another table; commands in flight complete first."""
    disk = f"disk{number}"
    guest.shell(f"dmsetup suspend --nolockfs {disk}; dmsetup load {disk} --table '{table}'; dmsetup resume {disk}")


PROGRAMS = ("lio", "tgt")
_LIO_LIMIT_S = 120
_CONFIGURATION = "/run/lio.json"
_TARGET = "/sys/kernel/config/target"
_FABRIC = f"{_TARGET}/iscsi"
_STORAGE = f"{_TARGET}/core"


@dataclass(frozen=True)
class Wanted:
    """What a target is to be."""

    name: str
    address: str
    disk_bytes: Sequence[int]
    keys: Mapping[str, str] = field(default_factory=dict)
    """Operational login keys in the spelling of RFC 7143."""
    accounts: Sequence[peers.ChapAccount] = ()
    """CHAP: only these may log in, each with its secret. For anybody if there are none."""
    own_account: peers.ChapAccount | None = None
    """The target's own, for mutual CHAP."""
    initiators: Sequence[str] | None = None
    """LIO: only these names may log in. None: any."""
    port: int = peers.ISCSI_PORT


@contextmanager
def running(program: str, guest: Guest, wanted: Wanted) -> Iterator[int]:
    """A target that serves until the block ends; the LUN of its first disk."""
    make_disks(guest, wanted.disk_bytes)
    if program == "lio":
        _start_lio(guest, wanted)
        yield 0
    else:
        with tgt(guest, wanted):
            yield 1


def stop_lio(guest: Guest, name: str) -> None:
    """LIO ends the sessions of a target and accepts no more."""
    guest.shell(f"echo 0 > {_group(name)}/enable")


def restart_lio(guest: Guest, name: str) -> None:
    """LIO accepts sessions of a target again."""
    guest.shell(f"echo 1 > {_group(name)}/enable")


def stop_tgt(guest: Guest) -> None:
    """Kills tgtd: it ignores SIGTERM."""
    guest.run("pkill", "-KILL", "-x", "tgtd")


def remove_disk(guest: Guest, program: str, name: str, disk: int) -> None:
    """A target no longer has a disk, while sessions go on."""
    if program == "lio":
        folder = f"{_group(name)}/lun/lun_{disk}"
        guest.shell(f"find {folder} -maxdepth 1 -type l -exec rm {{}} +; rmdir {folder}")
    else:
        _administer(guest, "logicalunit", "delete", "--tid", "1", "--lun", str(disk + 1))


def allow_unmap(guest: Guest, program: str, disk: int) -> None:
    """A disk can be unmapped, and its commands say so."""
    if program == "lio":
        guest.shell(f"for it in {_STORAGE}/iblock_*/disk{disk}/attrib/emulate_tpu; do echo 1 > $it; done")
    else:
        _administer(
            guest, "logicalunit", "update", "--tid", "1", "--lun", str(disk + 1), "--params", "thin_provisioning=1"
        )


def require_account(guest: Guest, program: str, name: str, account: peers.ChapAccount) -> None:
    """A target that serves anybody asks for CHAP from now on."""
    if program == "lio":
        guest.shell(
            f"""
            echo 1 > {_group(name)}/attrib/authentication
            printf %s {account.user} > {_group(name)}/auth/userid
            printf %s {account.secret} > {_group(name)}/auth/password
            """
        )
    else:
        _administer(guest, "account", "new", "--user", account.user, "--password", account.secret)
        _administer(guest, "account", "bind", "--tid", "1", "--user", account.user)


def admit_only(guest: Guest, program: str, name: str, initiator: str) -> None:
    """A target that serves anybody admits one initiator name from now on."""
    if program == "lio":
        group = _group(name)
        guest.shell(
            f"echo 0 > {group}/attrib/cache_dynamic_acls; echo 0 > {group}/attrib/generate_node_acls;"
            f" mkdir {group}/acls/{initiator}"
        )
    else:
        _administer(guest, "target", "unbind", "--tid", "1", "--initiator-address", "ALL")
        _administer(guest, "target", "bind", "--tid", "1", "--initiator-name", initiator)


def add_portal(guest: Guest, wanted: Wanted, port: int) -> None:
    """A target of LIO is also at another port, which SendTargets lists."""
    guest.shell(f"mkdir {_group(wanted.name)}/np/{places.portal(wanted.address, port)}")


def _group(name: str) -> str:
    return f"{_FABRIC}/{name}/tpgt_1"


def _administer(guest: Guest, mode: str, operation: str, *words: str) -> None:
    guest.run("tgtadm", "--lld", "iscsi", "--mode", mode, "--op", operation, *words)


def _start_lio(guest: Guest, wanted: Wanted) -> None:
    document = lio_configuration(wanted)
    guest.write(_CONFIGURATION, json.dumps(document))
    guest.shell(
        f"""
        modprobe -a target_core_mod target_core_iblock iscsi_target_mod
        mountpoint -q /sys/kernel/config || mount -t configfs config /sys/kernel/config
        mkdir -p /var/target/pr /var/target/alua /etc/rtslib-fb-target
        targetctl restore {_CONFIGURATION}
        # LIO writes a file for each registration of a persistent reservation
        mkdir -p $(cat {_TARGET}/dbroot)/pr
        """,
        limit_s=_LIO_LIMIT_S,
    )


def lio_configuration(wanted: Wanted) -> dict[str, Any]:
    """The target as rtslib's saved configuration."""
    count = len(wanted.disk_bytes)
    names = wanted.initiators
    luns = [{"index": number, "storage_object": f"/backstores/block/disk{number}"} for number in range(count)]
    address = f"[{wanted.address}]" if ":" in wanted.address else wanted.address
    portal = {"ip_address": address, "port": wanted.port, "iser": False, "offload": False}
    attributes = {
        "authentication": int(bool(wanted.accounts)),
        "generate_node_acls": int(names is None),
        "cache_dynamic_acls": int(names is None),
        "demo_mode_write_protect": 0,
    }
    group: dict[str, Any] = {
        "tag": 1,
        "enable": True,
        "attributes": attributes,
        "parameters": dict(wanted.keys),
        "luns": luns,
        "portals": [portal],
        "node_acls": [_acl(name, count, wanted) for name in names or ()],
    }
    if names is None and wanted.accounts:
        (account,) = wanted.accounts
        group |= _chap(account, wanted.own_account)
    disks = [
        {"plugin": "block", "name": f"disk{number}", "dev": disk_device(number), "write_back": False,
         # the same disk of another target is another disk
         "wwn": str(uuid5(NAMESPACE_URL, f"{wanted.name}/{number}"))}
        for number in range(count)
    ]  # fmt: skip
    return {
        "fabric_modules": [],
        "storage_objects": disks,
        "targets": [{"fabric": "iscsi", "wwn": wanted.name, "tpgs": [group]}],
    }


def _acl(name: str, lun_count: int, wanted: Wanted) -> dict[str, Any]:
    luns = [{"index": number, "tpg_lun": number, "write_protect": False} for number in range(lun_count)]
    found: dict[str, Any] = {"node_wwn": name, "mapped_luns": luns, "attributes": {}}
    if wanted.accounts:
        found |= _chap(wanted.accounts[0], wanted.own_account)
    return found


def _chap(account: peers.ChapAccount, own: peers.ChapAccount | None) -> dict[str, str]:
    found = {"chap_userid": account.user, "chap_password": account.secret}
    if own is not None:
        found |= {"chap_mutual_userid": own.user, "chap_mutual_password": own.secret}
    return found


@contextmanager
def tgt(guest: Guest, wanted: Wanted) -> Iterator[None]:
    """tgtd with a target while the block runs."""
    portal = places.portal(wanted.address, wanted.port)
    # it ignores SIGTERM
    with guest.started("tgtd", "-f", "--iscsi", f"portal={portal}", stop_signal=signal.SIGKILL) as process:

        def administer(*words: str, is_checked: bool = True) -> bool:
            return guest.run("tgtadm", "--lld", "iscsi", *words, limit_s=30, is_checked=is_checked).code == 0

        process.wait_until(
            lambda: administer("--mode", "target", "--op", "show", is_checked=False), "no answer of tgtadm"
        )
        peers.set_up_tgt(
            administer,
            name=wanted.name,
            disks=[disk_device(number) for number in range(len(wanted.disk_bytes))],
            accounts=wanted.accounts,
            own_account=wanted.own_account,
            keys=wanted.keys,
            # past the page cache, which would acknowledge writes that the disk refuses
            flags=("--bsoflags", "direct"),
        )
        yield
