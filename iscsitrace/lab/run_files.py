"""The files of a run, the same in either world: a capture of each host, and the truth. Reads none of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import own_process, truth_file

TRUTH = "truth.json"
INITIATOR = "initiator"
_PREFIX, _SUFFIX = ".run.", ".partial"


def targets(count: int) -> list[str]:
    """The names of ``count`` targets: ``target``, ``target-2`` ..."""
    return ["target", *(f"target-{number}" for number in range(2, count + 1))]


def capture_name(host: str) -> str:
    """The name of the capture of a host."""
    return f"{host}.pcapng"


def capture_names(target_count: int) -> list[str]:
    """The names of a run's captures: the initiator's, then each target's."""
    return [capture_name(host) for host in (INITIATOR, *targets(target_count))]


def hosts(target_count: int, capture_at: Sequence[str]) -> list[str]:
    """The hosts to capture at, for the sides ``initiator`` and ``target`` in ``capture_at``."""
    is_wanted = {INITIATOR: INITIATOR in capture_at} | dict.fromkeys(targets(target_count), "target" in capture_at)
    return [host for host, wanted in is_wanted.items() if wanted]


@contextmanager
def made_in(directory: Path, names: Sequence[str], *, is_forced: bool) -> Iterator[Path]:
    """A new folder for the captures with these ``names`` and the truth, all of which the block writes.

    Afterwards they move to ``directory``, the truth last: what is there is complete, however a run ends. When the block
    fails they are removed, and those of a killed run at the next.

    ``directory`` is created if missing. OutputExists if a capture or the truth exists and ``is_forced`` is not set;
    TrafficImpossible if the folder cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrafficImpossible(f"cannot make {directory}: {error.strerror}") from error
    names = [*names, TRUTH]
    truth_file.require_new([directory / name for name in names], is_forced=is_forced)
    with own_process.unwinding():
        _remove_leftovers(directory)
        aside = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=directory))
        lock = _locked(aside)
        try:
            yield aside
            with own_process.deferred():
                for name in names:
                    (aside / name).replace(directory / name)
        finally:
            with own_process.deferred():
                shutil.rmtree(aside, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that locks a folder: the kernel closes it with its process. OSError if another one has the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_leftovers(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
