"""The image that every guest boots: Debian's packages in a read-only file, made once and kept until its recipe changes.

```
CACHE/iscsitrace/guests/DIGEST/     named by what made it
    root.squashfs                   the packages; a guest writes to memory above it
    vmlinuz                         their kernel
    modules.cpio.gz                 what the kernel needs to mount root.squashfs
```

mmdebstrap downloads and installs the packages; squashfs-tools-ng reads the file again. Nothing is mounted.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import own_process
from iscsitrace.lab.places import HERE, require

SUITE = "bookworm"
"""Debian 12, whatever the host is: its kernel is part of what a capture shows."""

PACKAGES = (
    *("linux-image-amd64", "busybox-static", "kmod", "iproute2", "ethtool", "nftables", "iputils-ping", "procps"),
    *("open-iscsi", "multipath-tools", "mdadm", "dmsetup", "fio", "sg3-utils", "e2fsprogs"),
    *("python3-rtslib-fb", "tgt", "tcpdump"),
)
_EXCLUDED = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"),
    *(f"/lib/modules/*/kernel/{path}/*" for path in ("drivers/gpu", "drivers/media", "drivers/net/wireless", "sound")),
)
_OPTIONS = (
    *("--variant=minbase", "--format=squashfs", f"--include={','.join(PACKAGES)}"),
    *(f"--dpkgopt=path-exclude={path}" for path in _EXCLUDED),
    '--aptopt=Acquire::Languages "none"',
)
_ROOT_MODULES = ("virtio_pci", "virtio_blk", "squashfs", "overlay")
"""Modules without which the kernel cannot mount the image."""
_READER = "squashfs-tools-ng"
_BUILD_LIMIT_S = 3600
_READ_LIMIT_S = 60
_BUILDING = "building-"


@dataclass(frozen=True)
class Image:
    """The files that a guest boots from."""

    root: Path
    kernel: Path
    modules: Path
    """A compressed cpio archive: busybox, the modules, and ``order``, which lists them."""

    @property
    def is_complete(self) -> bool:
        """Whether every file is there."""
        return all(file.is_file() for file in (self.root, self.kernel, self.modules))

    @property
    def size_bytes(self) -> int:
        """Size on disk."""
        return sum(file.stat().st_size for file in (self.root, self.kernel, self.modules))


def cached() -> Image:
    """The files of the image, whether or not it has been made."""
    recipe = json.dumps([SUITE, _OPTIONS, _ROOT_MODULES])
    folder = _cache() / hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return Image(folder / "root.squashfs", folder / "vmlinuz", folder / "modules.cpio.gz")


def made(say: Callable[[str], None]) -> Image:
    """The image, made first if it is missing; then images of other recipes are removed. ``say`` gets a line before.

    ToolMissing if a program is missing or fails, for instance without a network.
    """
    image = cached()
    if image.is_complete:
        return image
    _cache().mkdir(parents=True, exist_ok=True)
    with _only_one():
        if not image.is_complete:
            say(f"making the image of the guests in {image.root.parent} (once; some minutes, Debian's packages)")
            _make(image)
    return image


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iscsitrace" / "guests"


@contextmanager
def _only_one() -> Iterator[None]:
    """Waits until no other process makes an image."""
    descriptor = os.open(_cache(), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(image: Image) -> None:
    for folder in _cache().iterdir():
        # of a process that was killed: no other makes one now
        if folder.name.startswith(_BUILDING):
            shutil.rmtree(folder)
    building = _cache() / f"{_BUILDING}{own_process.prefix()}"
    with own_process.unwinding():
        try:
            building.mkdir()
            new = Image(*(building / file.name for file in (image.root, image.kernel, image.modules)))
            _fill(new)
            shutil.rmtree(image.root.parent, ignore_errors=True)
            building.rename(image.root.parent)
        finally:
            with own_process.deferred():
                shutil.rmtree(building, ignore_errors=True)
    for folder in _cache().iterdir():
        if folder != image.root.parent:
            shutil.rmtree(folder)


def _fill(image: Image) -> None:
    HERE.run(
        *("mmdebstrap", *_OPTIONS, SUITE, str(image.root)),
        package="mmdebstrap",
        limit_s=_BUILD_LIMIT_S,
        # no initramfs of its own, and its files here instead of /tmp
        environment={"INITRD": "No", "TMPDIR": str(image.root.parent)},
    )
    _take_kernel(image)


def _take_kernel(image: Image) -> None:
    """Copies the kernel out of the packages, and the modules that mount them into an archive."""
    listed = HERE.run("rdsquashfs", "--list", "usr/lib/modules", str(image.root), package=_READER)
    release = listed.output.split()[-1]
    folder = f"usr/lib/modules/{release}"
    image.kernel.write_bytes(_content(image, f"boot/vmlinuz-{release}"))
    order = _in_order(_content(image, f"{folder}/modules.dep").decode())
    archive = image.root.parent / "modules"
    (archive / "bin").mkdir(parents=True)
    (archive / "bin" / "busybox").write_bytes(_content(image, "usr/bin/busybox"))
    (archive / "bin" / "busybox").chmod(0o755)
    for module in order:
        (archive / Path(module).name).write_bytes(_content(image, f"{folder}/{module}"))
    (archive / "order").write_text("".join(f"/{Path(module).name}\n" for module in order))
    image.modules.write_bytes(packed(archive))
    shutil.rmtree(archive)


def _in_order(dependencies: str) -> list[str]:
    """The paths of the modules of the root, each after those that it needs, from ``modules.dep``."""
    needs = {name: rest.split() for name, _, rest in (line.partition(":") for line in dependencies.splitlines())}
    wanted = [path for name in _ROOT_MODULES for path in needs if Path(path).name.split(".")[0] == name]
    # modules.dep lists what a module needs in the reverse order of loading
    return list(dict.fromkeys(path for module in wanted for path in (*reversed(needs[module]), module)))


def _content(image: Image, path: str) -> bytes:
    command = [require("rdsquashfs", _READER), "--cat", path, str(image.root)]
    finished = subprocess.run(command, check=False, capture_output=True, timeout=_READ_LIMIT_S)
    if finished.returncode != 0:
        raise ToolMissing(f"rdsquashfs {path}: {finished.stderr.decode(errors='replace').strip()}")
    return finished.stdout


def main() -> None:
    """Makes the image if it is missing, and prints where it is."""
    begun = time.monotonic()
    image = made(_print)
    took_s = time.monotonic() - begun
    _print(f"{image.root.parent}: {image.size_bytes >> 20} MiB, {took_s:.0f} s")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def packed(folder: Path) -> bytes:
    """A folder as a compressed archive that the kernel unpacks at boot (cpio, newc)."""
    names = "".join(f"{path.relative_to(folder)}\n" for path in sorted(folder.rglob("*")))
    archive = folder.with_suffix(".cpio")
    arguments = ("--create", "--format=newc", "--quiet", f"--directory={folder}", f"--file={archive}")
    HERE.run("cpio", *arguments, package="cpio", input_text=names)
    try:
        return gzip.compress(archive.read_bytes(), compresslevel=1, mtime=0)
    finally:
        archive.unlink()


if __name__ == "__main__":
    main()
