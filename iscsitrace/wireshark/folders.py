"""Wireshark on this machine: its programs, their versions, and its folders for personal files.

``tshark -G folders`` lists them; without tshark they are the defaults of Wireshark's manual for the system. Nothing is
created or changed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

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


def find() -> Folders:
    """The folders of the current user."""
    named = _as_tshark_says()
    default = {name: Path(path) for name, path in defaults(os.environ, os.name == "nt").items()}
    if "configuration" in named and "extcap" not in named:
        # Wireshark before 4.2 does not list it
        default["extcap"] = named["configuration"] / "extcap"
    return Folders(**{name: named.get(name, path) for name, path in default.items()})


def defaults(environment: Mapping[str, str], is_windows: bool) -> dict[str, PurePath]:
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
