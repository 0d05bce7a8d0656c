"""Files that are written: refused before a long input is read, never half written, never through a symbolic link."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iscsitrace.errors import InputInvalid, OutputExists

try:
    import fcntl
except ImportError:  # Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_PARTIAL = ".partial"
_PERMISSIONS = 0o7777


def check(path: Path, *, is_forced: bool, inputs: Iterable[str] = ()) -> None:
    """OutputExists for a file that is there and not to be overwritten, InputInvalid for what cannot be written.

    An output that is one of the ``inputs``, under any name, is never overwritten.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputInvalid(f"{path} exists and is not a file; nothing was written")
        if path.exists():
            same = next((name for name in inputs if Path(name).exists() and path.samefile(name)), None)
            if same is not None:
                raise InputInvalid(f"{path} is the input {same}; nothing was written")
        if os.path.lexists(path) and not is_forced:
            raise OutputExists(f"{path} exists; nothing was written (--force overwrites)")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputInvalid(f"cannot write {path}: {error.strerror or error}") from error


def check_folder(directory: Path, paths: Iterable[Path], *, is_forced: bool, inputs: Iterable[str] = ()) -> None:
    """Whether all of these can be written in a folder, which is made for that only; raises what ``check`` raises."""
    with folder(directory):
        for path in paths:
            check(path, is_forced=is_forced, inputs=inputs)


@contextmanager
def folder(directory: Path) -> Iterator[None]:
    """A folder to write in, made when missing; if it stays empty then, it is removed again."""
    try:
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputInvalid(f"cannot write to {directory}: {error.strerror or error}") from error
    try:
        yield
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def nearest(directory: Path) -> Path:
    """The folder, or the nearest one above it where it does not exist yet."""
    return next(each for each in (directory, *directory.parents) if each.exists())


@contextmanager
def written_aside(path: Path, *, has_hosts: bool = True) -> Iterator[Path]:
    """A new file to write to, which takes the name when all went well: an interruption leaves no half of it.

    Its name cannot be guessed, and only its owner can read it. So it stays when it ``has_hosts``, names or addresses of
    a capture; otherwise it gets the usual permissions. A file that is replaced leaves its permissions to the new one.
    What a writer of the same name left that was killed is removed.
    """
    try:
        _remove_abandoned(path)
        descriptor, partial = _begun(path)
        try:
            yield partial
            partial.chmod(_permissions(path, has_hosts=has_hosts))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
            os.close(descriptor)
    except OSError as error:
        raise InputInvalid(f"cannot write {path}: {error.strerror or error}") from error


def _begun(path: Path) -> tuple[int, Path]:
    """A new file beside the path, and the descriptor by which it is locked while its writer lives."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_PARTIAL, dir=path.parent)
        _lock(descriptor)
        # another writer may have removed it before it was locked
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Removes unfinished files of that name that nobody has locked."""
    if not _HAS_LOCKS:
        return
    for each in path.parent.iterdir():
        is_partial = each.name.startswith(f".{path.name}.") and each.name.endswith(_PARTIAL)
        if is_partial and each.is_file() and not each.is_symlink():
            with suppress(OSError), each.open("rb") as abandoned:
                _lock(abandoned.fileno(), waits=False)
                each.unlink()


def _lock(descriptor: int, *, waits: bool = True) -> None:
    """Locks a file until it is closed; without ``waits`` OSError where another process has it locked."""
    if _HAS_LOCKS:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def _permissions(path: Path, *, has_hosts: bool) -> int:
    if path.is_file() and not path.is_symlink():
        return path.stat().st_mode & _PERMISSIONS
    if has_hosts:
        return 0o600
    # the mask can only be read by setting it
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask
