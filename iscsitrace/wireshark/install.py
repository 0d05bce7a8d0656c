"""Installs and removes the plugin, the extcap and the profile in a user's Wireshark folders.

A list of the written files with their digests is kept in Wireshark's configuration folder. It identifies files of
another origin, which are overwritten only on request, and files that the user or Wireshark changed since, which are
kept. Prints nothing.

``tshark -G folders`` lists the folders for personal files; without tshark they are the defaults of Wireshark's manual
for the system.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import iscsitrace
from iscsitrace.errors import InputInvalid, OutputExists

PROGRAMS = ("wireshark", "tshark", "dumpcap")
_MAC_PROGRAMS = "/Applications/Wireshark.app/Contents/MacOS"
_PATIENCE_S = 30
_VERSION = re.compile(r"\b\d+\.\d+\.\d+\S*")

_PERSONAL = {
    "personal configuration": "configuration",
    "personal lua plugins": "lua_plugins",
    "personal extcap path": "extcap",
}
"""tshark's name of each folder, in lower case."""


@dataclass(frozen=True)
class Folders:
    """Wireshark's folders for personal files."""

    configuration: Path
    lua_plugins: Path
    extcap: Path

    @property
    def profiles(self) -> Path:
        """It has one folder for each profile."""
        return self.configuration / "profiles"


@dataclass(frozen=True)
class Program:
    """One of Wireshark's programs."""

    name: str
    path: str
    version: str
    """From ``--version``, like 4.0.17; empty if unknown."""


def find_folders() -> Folders:
    """The folders of the current user."""
    named = _as_tshark_says()
    default = {name: Path(path) for name, path in default_folders(os.environ, os.name == "nt").items()}
    if "configuration" in named and "extcap" not in named:
        # Wireshark before 4.2 does not list it
        default["extcap"] = named["configuration"] / "extcap"
    return Folders(**{name: named.get(name, path) for name, path in default.items()})


def default_folders(environment: Mapping[str, str], is_windows: bool) -> dict[str, PurePath]:
    """The default folders of Wireshark 4.2 and later, by its manual."""
    if is_windows:
        roaming = environment.get("APPDATA") or environment.get("USERPROFILE", "C:\\") + "\\AppData\\Roaming"
        configuration: PurePath = PureWindowsPath(roaming, "Wireshark")
        return {
            "configuration": configuration,
            "lua_plugins": configuration / "plugins",
            "extcap": configuration / "extcap",
        }
    home = environment.get("HOME") or "/"
    own = environment.get("XDG_CONFIG_HOME") or PurePosixPath(home, ".config")
    library = PurePosixPath(home, ".local", "lib", "wireshark")
    return {
        "configuration": PurePosixPath(environment.get("WIRESHARK_CONFIG_DIR") or PurePosixPath(own, "wireshark")),
        "lua_plugins": library / "plugins",
        "extcap": library / "extcap",
    }


def programs() -> Iterator[Program]:
    """The programs of Wireshark on the PATH, or in the application folder of macOS."""
    for name in PROGRAMS:
        path = _program(name)
        if path is not None:
            version = _VERSION.search(_said_by(path, "--version").partition("\n")[0])
            yield Program(name, path, version[0].rstrip(".") if version else "")


def is_loaded(script: Path) -> bool | None:
    """Whether tshark loads an installed Lua script; None without tshark.

    It does not if it was built without Lua, and Wireshark 4.4 runs no scripts as root.
    """
    tshark = _program("tshark")
    listed = _said_by(tshark, "-G", "plugins") if tshark else ""
    return str(script) in (line.rpartition("\t")[2] for line in listed.splitlines()) if listed else None


def _program(name: str) -> str | None:
    found = shutil.which(name)
    if found is None and sys.platform == "darwin":
        return shutil.which(name, path=_MAC_PROGRAMS)
    return found


def _as_tshark_says() -> dict[str, Path]:
    tshark = _program("tshark")
    if tshark is None:
        return {}
    lines = (line.partition(":") for line in _said_by(tshark, "-G", "folders").splitlines())
    named = ((_PERSONAL.get(name.strip().lower()), path.strip()) for name, _, path in lines)
    return {name: Path(path) for name, path in named if name is not None and path}


def _said_by(*command: str) -> str:
    """Output of a program; empty if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


SOURCES = Path(__file__).parents[1] / "wireshark_files"
"""The files in the package; in a source tree a link to ``plugins/``."""

PLUGIN = "iscsitrace.lua"
PROFILE = "iscsitrace"
RECORD = "iscsitrace-installed.json"
EXTCAP = "iscsitrace_extcap"
_WIRESHARKS_OWN = "recent"
"""The file of a profile that Wireshark rewrites on exit: a difference in it is no change by the user."""


@dataclass(frozen=True)
class Item:
    """One file to install."""

    path: Path
    content: bytes
    is_executable: bool = False


@dataclass
class Installation:
    """Record of an installation: version, digest of each file, folders created."""

    version: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FileState:
    """State of one file, or the result of an action on it."""

    path: Path
    state: str


def items(folders: Folders) -> list[Item]:
    """The files of this version, with their paths in Wireshark's folders."""
    found = [Item(folders.lua_plugins / file.name, file.read_bytes()) for file in sorted(SOURCES.glob("*.lua"))]
    found.append(_extcap(folders))
    profile = folders.profiles / PROFILE
    found += [Item(profile / file.name, file.read_bytes()) for file in sorted((SOURCES / "profile").iterdir())]
    return found


def _extcap(folders: Folders) -> Item:
    """A script of two lines that Wireshark starts, and that starts the extcap with this Python."""
    # isolated and without site: it starts in a tenth of the time, and no other package can disturb it
    command = [sys.executable, "-IS", str(SOURCES / "extcap" / "iscsitrace_extcap.py")]
    if os.name == "nt":
        quoted = " ".join(f'"{part}"' for part in command)
        return Item(folders.extcap / f"{EXTCAP}.bat", f"@echo off\r\n{quoted} %*\r\n".encode())
    text = f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'
    return Item(folders.extcap / EXTCAP, text.encode(), is_executable=True)


def install(folders: Folders, *, is_forced: bool = False) -> list[FileState]:
    """Writes every file of this version: ``written``, ``updated``, ``current`` or, if it was changed, ``kept``.

    Files that only an older version had are ``removed``. OutputExists, with nothing written, if a file exists that no
    installation wrote; with ``is_forced`` this file and changed files are overwritten.
    """
    record, wanted = _read_record(folders), items(folders)
    states = {item.path: _state(item, record) for item in wanted}
    foreign = [path for path, state in states.items() if state == "foreign"]
    if foreign and not is_forced:
        raise OutputExists(
            f"{foreign[0]} exists and is not from iscsitrace; nothing was written (--force overwrites it)"
        )
    done = []
    fresh = Installation(iscsitrace.__version__, dict(record.digests), list(record.folders))
    for item in wanted:
        state = states[item.path]
        if state == "current" or (state == "changed" and not is_forced):
            done.append(FileState(item.path, "kept" if state == "changed" else "current"))
        else:
            _write(item, fresh)
            done.append(FileState(item.path, "written" if state in ("missing", "not installed") else "updated"))
        if done[-1].state in ("written", "updated") or (done[-1].state == "current" and not _is_wiresharks(item.path)):
            fresh.digests[str(item.path)] = _digest(item.content)
    for path in sorted(set(record.digests) - {str(item.path) for item in wanted}):
        done.append(_take_out(Path(path), fresh, is_forced=is_forced))
    _make_folder(folders.configuration, fresh)
    _write_record(folders, fresh)
    return done


def uninstall(folders: Folders, *, is_forced: bool = False) -> list[FileState]:
    """Removes the files of an installation: ``removed``, ``missing`` or, if changed, ``kept`` unless forced.

    Folders that it created are removed too, once they are empty.
    """
    record = _read_record(folders)
    done = [_take_out(Path(path), record, is_forced=is_forced) for path in sorted(record.digests)]
    if record.digests:
        _write_record(folders, record)
        return done
    with suppress(FileNotFoundError):
        (folders.configuration / RECORD).unlink()
    for folder in reversed(record.folders):
        with suppress(OSError):
            Path(folder).rmdir()
    return done


def leftovers(folders: Folders) -> list[str]:
    """Files in the profile's folder that are not from iscsitrace: while there are any, Wireshark lists the profile."""
    profile, record = folders.profiles / PROFILE, _read_record(folders)
    if not profile.is_dir():
        return []
    return sorted(file.name for file in profile.iterdir() if str(file) not in record.digests)


def second_copies(folders: Folders) -> list[Path]:
    """Copies of our plugin in the folder of older versions: Wireshark reads both, and refuses to load one twice."""
    older = folders.configuration / "plugins"
    copies = [older / file.name for file in sorted(SOURCES.glob("*.lua"))]
    return [copy for copy in copies if older != folders.lua_plugins and copy.exists()]


def status(folders: Folders) -> list[FileState]:
    """State of every file of this version, and of files left by an older one.

    ``current``; ``outdated``: from an older version; ``changed`` since the installation; ``missing``: installed, and
    deleted since; ``not installed``; ``foreign``: not from iscsitrace; ``obsolete``: no longer used.
    """
    record, wanted = _read_record(folders), items(folders)
    found = [FileState(item.path, _state(item, record)) for item in wanted]
    others = sorted(set(record.digests) - {str(item.path) for item in wanted})
    return found + [FileState(Path(path), "obsolete") for path in others]


def installed_version(folders: Folders) -> str | None:
    """The version that was installed last, or None."""
    return _read_record(folders).version or None


def _state(item: Item, record: Installation) -> str:
    written = record.digests.get(str(item.path))
    content = _content(item.path)
    if content is None:
        return "not installed" if written is None else "missing"
    if content == item.content or _is_wiresharks(item.path):
        return "current"
    if written is None:
        return "foreign"
    return "outdated" if _digest(content) == written else "changed"


def _is_wiresharks(path: Path) -> bool:
    return path.name == _WIRESHARKS_OWN and path.parent.name == PROFILE


def _content(path: Path) -> bytes | None:
    """Content of a file; None if it does not exist. A link counts as changed."""
    if path.is_symlink():
        return b""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror or error}") from error


def _write(item: Item, record: Installation) -> None:
    partial = item.path.with_name(f".{item.path.name}.partial")
    _make_folder(item.path.parent, record)
    try:
        try:
            partial.write_bytes(item.content)
            partial.chmod(0o755 if item.is_executable else 0o644)
            partial.replace(item.path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputInvalid(f"cannot write {item.path}: {error.strerror or error}") from error


def _make_folder(folder: Path, record: Installation) -> None:
    """Makes a folder, and records it and those of its parents that did not exist."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputInvalid(f"cannot make {folder}: {error.strerror or error}") from error
    record.folders += [str(each) for each in reversed(missing) if str(each) not in record.folders]


def _take_out(path: Path, record: Installation, *, is_forced: bool) -> FileState:
    """Removes one file if it is unchanged, and drops it from the record."""
    content = _content(path)
    if content is None:
        state = "missing"
    elif is_forced or _is_wiresharks(path) or _digest(content) == record.digests[str(path)]:
        try:
            path.unlink()
        except OSError as error:
            raise InputInvalid(f"cannot remove {path}: {error.strerror or error}") from error
        state = "removed"
    else:
        return FileState(path, "kept")
    del record.digests[str(path)]
    return FileState(path, state)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_record(folders: Folders) -> Installation:
    path = folders.configuration / RECORD
    try:
        document: Any = json.loads(path.read_text())
        digests = {str(name): str(digest) for name, digest in document["files"].items()}
        return Installation(str(document["version"]), digests, [str(folder) for folder in document["folders"]])
    except FileNotFoundError:
        return Installation()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputInvalid(f"cannot read {path}, the record of the installation: {error}") from error


def _write_record(folders: Folders, record: Installation) -> None:
    document = {"version": record.version, "files": record.digests, "folders": record.folders}
    content = f"{json.dumps(document, indent=2)}\n".encode()
    _write(Item(folders.configuration / RECORD, content), Installation())


def states_by_name(results: list[FileState]) -> Iterator[dict[str, str]]:
    """Results as JSON has them."""
    for result in results:
        yield {"path": str(result.path), "state": result.state}
