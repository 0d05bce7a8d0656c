"""Captures -> one without names, by the compiled core, and the key by which it replaces them."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from iscsitrace import __version__
from iscsitrace.errors import InputInvalid
from iscsitrace.recording.capture import called

KEY_BYTES: Final = 32
"""As many as an output of the hash function has, of which the replacements are made (core/anonymise)."""


def anonymise(
    sources: Sequence[str],
    path: Path,
    key: bytes,
    *,
    keeps_models: bool = False,
    drops_others: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, int]:
    """Writes the captures, which are files and read twice, without names to the file ``path``, which exists.

    Returns the counts ``packets``, ``connections``, ``other_tcp_packets`` and ``packets_without_tcp``.
    CaptureUnreadable if a file is no capture, InputInvalid if one can be read only once.
    """
    from iscsitrace import _core

    for source in sources:
        if source == "-" or (Path(source).exists() and not Path(source).is_file()):
            raise InputInvalid(f"{source} can be read only once: captures are read twice, so they have to be files")
    return called(
        lambda: _core.anonymise(
            sources,
            str(path),
            key=key,
            keeps_models=keeps_models,
            drops_others=drops_others,
            application=f"iscsitrace {__version__}",
            progress=progress,
        )
    )


def new_key() -> bytes:
    """A key that nobody knows."""
    return secrets.token_bytes(KEY_BYTES)


def key_of(file: Path) -> bytes:
    """The key in a file, in hexadecimal; a new one in a new file that only its owner can read, if there is none."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(file)
    except OSError as error:
        raise InputInvalid(f"cannot write {file}: {error.strerror or error}") from error
    key = new_key()
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{key.hex()}\n")
    return key


def _read(file: Path) -> bytes:
    try:
        with file.open(encoding="ascii") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputInvalid(f"{file}: other users have access to this key (chmod 600 {file})")
            key = bytes.fromhex(stream.read(4 * KEY_BYTES).strip())
    except OSError as error:
        raise InputInvalid(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputInvalid(f"{file} has no key: {2 * KEY_BYTES} hexadecimal digits")
    return key
