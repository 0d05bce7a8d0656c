"""How QEMU is chosen to run a guest, and what a guest gets to boot from."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iscsitrace.lab.guests import image, machine
from iscsitrace.lab.places import HERE


@pytest.fixture(autouse=True)
def _forgetting() -> Iterator[None]:
    machine.acceleration.cache_clear()
    yield
    machine.acceleration.cache_clear()


@pytest.mark.parametrize(
    ("code", "expected"), [(1, machine.KVM), (0, machine.TCG), (-6, machine.TCG), (None, machine.TCG)]
)
def test_kvm_is_taken_only_where_it_runs_a_program(
    monkeypatch: pytest.MonkeyPatch, code: int | None, expected: machine.Acceleration
) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[command.index("-accel") + 1] == "kvm"
        assert len(Path(command[-1].removeprefix("file=").partition(",")[0]).read_bytes()) == 512
        if code is None:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(machine, "require", lambda program, _: program)
    assert machine.acceleration() is expected


def test_a_guest_boots_with_the_agent_and_the_modules_of_the_lab(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(gzip.decompress(machine._boot_files(tmp_path)))
    listed = HERE.run("cpio", "--list", "--quiet", f"--file={archive}", package="cpio").output.split()
    assert {"init", "guest/start", "guest/agent.py", "guest/sample.py"} <= set(listed)
    assert {f"guest/iscsitrace/{name}" for name in ("__init__.py", "errors.py", "lab/sock_diag.py")} <= set(listed)
    assert "guest/init" not in listed


def test_modules_are_loaded_after_those_that_they_need() -> None:
    listed = "\n".join(
        [
            "kernel/drivers/virtio/virtio_pci.ko: kernel/a/dev.ko kernel/a/virtio.ko kernel/a/virtio_ring.ko",
            "kernel/drivers/block/virtio_blk.ko: kernel/a/virtio.ko kernel/a/virtio_ring.ko",
            "kernel/fs/squashfs.ko.xz:",
            "kernel/fs/overlay.ko:",
            "kernel/fs/overlay_not.ko: kernel/fs/other.ko",
        ]
    )
    assert image._in_order(listed) == [
        "kernel/a/virtio_ring.ko", "kernel/a/virtio.ko", "kernel/a/dev.ko", "kernel/drivers/virtio/virtio_pci.ko",
        "kernel/drivers/block/virtio_blk.ko", "kernel/fs/squashfs.ko.xz", "kernel/fs/overlay.ko",
    ]  # fmt: skip
