"""The files of a run, the same in either world: a capture of each host, and the truth. Reads none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab import signals, truth_file

TRUTH = "truth.json"
INITIATOR = "initiator"


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
def made_in(directory: Path, names: Sequence[str], *, is_forced: bool) -> Iterator[list[Path]]:
    """The paths of the captures that the block writes in a folder. They are removed when the block fails.

    The folder is created if missing. OutputExists if a capture or the truth exists and ``is_forced`` is not set;
    TrafficImpossible if the folder cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrafficImpossible(f"cannot make {directory}: {error.strerror}") from error
    files = [directory / name for name in names]
    truth_file.require_new([*files, directory / TRUTH], is_forced=is_forced)
    with signals.unwinding():
        try:
            yield files
        except BaseException:
            with signals.deferred():
                for file in files:
                    with suppress(OSError):
                        file.unlink()
            raise
