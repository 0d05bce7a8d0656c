"""The taps of a fleet: a name for each, and its sources, from the command line or from a ``fleet.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.fleet.captures import Capture, listed, ring_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""A folder's name, that no reader of partitions takes for a number or a date."""
_NAMED = re.compile(rf"({_NAME.pattern})=(.+)", re.DOTALL)
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Tap:
    """One stream of captures."""

    name: str
    sources: tuple[str, ...]


def taps_of(sources: Sequence[str]) -> list[Tap]:
    """The taps of what was named: ``NAME=SOURCE``, a ``fleet.toml``, or a source without a name.

    Without a name each ring in a source is a tap: called as its folder if that has one ring, else as the ring. Raises
    InputInvalid for a source that cannot be listed, an impossible name, and for two taps of one name.
    """
    named: dict[str, list[str]] = {}
    unnamed: list[Tap] = []
    for source in sources:
        found = _NAMED.fullmatch(source)
        if source.endswith(".toml"):
            for tap in _of_file(Path(source)):
                named.setdefault(tap.name, []).extend(tap.sources)
        elif found and not Path(source).exists():
            named.setdefault(found[1], []).append(found[2])
        else:
            unnamed += _named_by_content(source)
    taps = [Tap(name, tuple(each)) for name, each in named.items()]
    files: dict[str, list[str]] = {}
    for tap in unnamed:
        if tap.name in files and not _are_files(files[tap.name], tap.sources):
            raise InputInvalid(f"two sources are called {tap.name}: name them NAME=SOURCE")
        files.setdefault(tap.name, []).extend(tap.sources)
    for name, paths in files.items():
        if name in named:
            raise InputInvalid(f"two sources are called {name}: name them NAME=SOURCE")
        taps.append(Tap(name, tuple(paths)))
    if not taps:
        raise InputInvalid("no source has a capture")
    return taps


def _are_files(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether all are single files of one folder: parts of one ring, named one by one."""
    paths = [Path(each) for each in (*before, *after)]
    return all(path.is_file() for path in paths) and len({path.absolute().parent for path in paths}) == 1


def _of_file(path: Path) -> list[Tap]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputInvalid(f"{path}: {error}") from error
    entries = content.get("tap")
    if set(content) != {"tap"} or not isinstance(entries, list):
        raise InputInvalid(f'{path}: write a [[tap]] with name = "..." and sources = ["..."] for each tap')
    return [_entry(path, each) for each in entries]


def _entry(path: Path, entry: dict[str, Any]) -> Tap:
    name, sources = entry.get("name"), entry.get("sources")
    if set(entry) != {"name", "sources"} or not isinstance(name, str) or not isinstance(sources, list) or not sources:
        raise InputInvalid(f"{path}: a tap has name, a text, and sources, a list of texts")
    if not _NAME.fullmatch(name):
        raise InputInvalid(f"{path}: {name!r} names no tap: letters, digits, '_', '.' and '-' after a letter")
    base = path.absolute().parent
    return Tap(name, tuple(each if "://" in each else str(base / each) for each in map(str, sources)))


def _named_by_content(source: str) -> list[Tap]:
    captures = listed([source])
    rings: dict[str, list[Capture]] = {}
    for each in captures:
        rings.setdefault(ring_of(each.name), []).append(each)
    if "://" not in source and Path(source).is_dir() and len(rings) <= 1:
        return [Tap(_clean(Path(source).absolute().name), (source,))]
    if "://" in source and len(rings) > 1:
        raise InputInvalid(f"{source} has several rings: name a tap for each, NAME=SOURCE")
    if "://" in source:
        return [Tap(_clean(ring), (source,)) for ring in rings]
    if Path(source).is_dir():
        # a glob, so that files that come later are of the same tap
        return [Tap(_clean(ring), (str(Path(source) / f"{glob_escape(ring)}[._]*"),)) for ring in rings]
    return [Tap(_clean(ring), tuple(each.path for each in found)) for ring, found in rings.items()]


def glob_escape(text: str) -> str:
    """A text as a glob that matches it alone."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _clean(name: str) -> str:
    """A name of a folder or file as the name of a tap."""
    cleaned = _OTHER.sub("-", name)
    return cleaned if cleaned[:1].isalpha() else f"tap-{cleaned}"
