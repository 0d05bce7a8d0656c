"""The disks of a target guest: memory below a device mapper, through which a run makes them slow, broken or full.

A disk is ``/dev/mapper/disk0``, ``disk1`` ...; its content is zeros at first. What the mapper does can change while a
target serves the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from iscsitrace.lab.guests.machine import Guest

SECTOR_BYTES = 512
_LOOPS = 64


def device(number: int) -> str:
    """The device of a disk."""
    return f"/dev/mapper/disk{number}"


def make(guest: Guest, sizes_bytes: Sequence[int]) -> None:
    """Makes the disks of a guest."""
    lines = [f"modprobe loop max_loop={_LOOPS}", "modprobe dm-mod"]
    for number, size_bytes in enumerate(sizes_bytes):
        # a file in memory: unlike a RAM disk of the kernel, it can be unmapped
        lines += [f"truncate -s {size_bytes} /run/disk{number}", f"losetup {backing(number)} /run/disk{number}"]
        lines.append(f"dmsetup create disk{number} --table '{linear(number, size_bytes)}'")
    guest.shell("\n".join(lines))


def backing(number: int) -> str:
    """The device below a disk's mapper."""
    return f"/dev/loop{number}"


def linear(number: int, size_bytes: int) -> str:
    """The table of a disk that works."""
    return f"0 {size_bytes // SECTOR_BYTES} linear {backing(number)} 0"


def change(guest: Guest, number: int, table: str) -> None:
    """Gives a disk another table; commands in flight complete first."""
    disk = f"disk{number}"
    guest.shell(f"dmsetup suspend --nolockfs {disk}; dmsetup load {disk} --table '{table}'; dmsetup resume {disk}")
