"""Files that are written: refused before a long input is read, and never left half written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from iscsitrace.errors import InputInvalid, OutputExists


def check(path: Path, *, is_forced: bool) -> None:
    """OutputExists for a file that is there and not to be overwritten, InputInvalid for what cannot be written."""
    try:
        if path.exists() and not path.is_file():
            raise InputInvalid(f"{path} exists and is no file; nothing was written")
        if path.exists() and not is_forced:
            raise OutputExists(f"{path} exists; nothing was written (--force overwrites)")
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputInvalid(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the name when all went well: an interruption leaves no half of it."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        try:
            yield partial
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputInvalid(f"cannot write {path}: {error.strerror or error}") from error
