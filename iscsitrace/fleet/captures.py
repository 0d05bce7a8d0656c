"""The taps of a fleet, and the captures of each: which there are, in which order they were written, and their bytes.

A source is a file, a glob, a folder or a URL that fsspec knows. Nothing here reads more of a capture than its first
packet.
"""

from __future__ import annotations

import glob
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from iscsitrace.errors import CaptureUnreadable, ExtraMissing, InputInvalid
from iscsitrace.tables.trace import read

_NAME = re.compile(r"\.(pcap|pcapng|cap|ntar|dmp)\d*(\.(gz|zst|lz4))?$", re.IGNORECASE)
"""Names of captures in a folder, which may also hold sidecars, reports and other files."""
_RING = re.compile(r"^(?P<ring>.+)_(?P<number>\d{5,})_\d{8,14}(\.[a-z0-9.]+)?$", re.IGNORECASE)
"""``NAME_00001_20261121190000.pcapng``, as dumpcap and ``iscsitrace capture`` number the files of a ring."""
_SUFFIX = re.compile(r"(\.(pcap|pcapng|cap|ntar|dmp)\d*)?(\.(gz|zst|lz4))?$", re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)")
_HEAD_BYTES = 1 << 16
_SECOND_NS = 1_000_000_000
_DISORDER_NS = _SECOND_NS
"""Packets of several capture queues are at most that much out of order."""
_TAP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""A folder's name, that no reader of partitions takes for a number or a date."""
_TAP_NAMED = re.compile(rf"({_TAP_NAME.pattern})=(.+)", re.DOTALL)
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Capture:
    """One file of a tap, as it was when it was listed."""

    name: str
    path: str
    """A path of this machine, or a URL without user and password."""
    size_bytes: int
    modified_ns: int
    first_ns: int | None = None
    """Time of its first packet; None for a file without one."""
    status: str = ""
    """Set where it is not to be read: ``late``, ``unreadable``."""
    problem: str = ""
    remote: tuple[str, str] | None = None
    """Of a URL: fsspec's filesystem as JSON, and the path there."""

    @property
    def version(self) -> tuple[str, int, int]:
        """Name, size and time: a file of the same version is not read again."""
        return self.name, self.size_bytes, self.modified_ns

    @property
    def order(self) -> tuple[int, tuple[Any, ...]]:
        """Captures of a tap are one stream in this order: by the first packet, then by the numbers in the name."""
        words = tuple((int(each), "") if each.isdigit() else (0, each) for each in _DIGITS.split(self.name))
        return self.modified_ns if self.first_ns is None else self.first_ns, words

    @contextmanager
    def opened(self) -> Iterator[str | BinaryIO]:
        """What the pass reads: the path of a file of this machine, which it maps, or an open file. OSError if gone."""
        if self.remote is None:
            Path(self.path).stat()
            yield self.path
            return
        filesystem, path = self.remote
        with _fsspec().AbstractFileSystem.from_json(filesystem).open(path, "rb") as stream:
            yield stream


def in_unicode(name: str) -> str:
    r"""The name of a file as a dataset can keep it: ``\xff`` for a byte that is not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def ring_of(name: str) -> str:
    """The name of the ring that a file is of; of other files the name without suffixes."""
    found = _RING.match(name)
    return found["ring"] if found else _SUFFIX.sub("", name)


def listed(sources: Iterable[str]) -> list[Capture]:
    """The captures of sources as they are now; InputInvalid for a source that cannot be listed or has no file."""
    found: dict[str, Capture] = {}
    for source in sources:
        try:
            captures = _of_url(source) if "://" in source else _of_files(source)
        except OSError as error:
            raise InputInvalid(f"cannot read {source}: {error.strerror or error}") from error
        except (ImportError, ValueError) as error:
            raise InputInvalid(f"cannot read {source}: {error}") from error
        except Exception as error:
            if "://" not in source:
                raise
            # each kind of filesystem has errors of its own: SFTP those of SSH
            raise InputInvalid(f"cannot read {source}: {str(error) or type(error).__name__}") from error
        found |= {capture.path: capture for capture in captures}
    names: dict[str, str] = {}
    for path, capture in found.items():
        if capture.name in names:
            raise InputInvalid(f"one tap has two captures with the same name: {names[capture.name]} and {path}")
        names[capture.name] = path
    return list(found.values())


def in_order(captures: Sequence[Capture], known: Mapping[str, Capture]) -> list[Capture]:
    """Captures in the order in which they were written; ``known`` are those read before, by name."""
    timed = [
        replace(each, first_ns=known[each.name].first_ns)
        if each.name in known and known[each.name].version == each.version
        else replace(each, first_ns=_first_ns(each))
        for each in captures
    ]
    return _by_numbers(sorted(timed, key=lambda each: each.order))


def _by_numbers(captures: list[Capture]) -> list[Capture]:
    """Files of one ring that begin at about the same time, by their numbers: packets may be out of order in them."""
    found: list[Capture] = []
    run: list[Capture] = []
    for each in captures:
        if run and not _is_beside(run[-1], each):
            found += _numbered(run)
            run = []
        run.append(each)
    return found + _numbered(run)


def _numbered(run: list[Capture]) -> list[Capture]:
    """Files by number, but those of each row of numbers without a gap together: a ring that began again has two rows.

    If a number is there twice, two rows have it, and only times tell which of them is which.
    """
    places = {int(match["number"]): place for place, each in enumerate(run) if (match := _RING.match(each.name))}
    if len(places) < len(run):
        return run
    rows: list[list[int]] = []
    for number in sorted(places):
        if not rows or number != rows[-1][-1] + 1:
            rows.append([])
        rows[-1].append(number)
    rows.sort(key=lambda row: min(places[number] for number in row))
    return [run[places[number]] for row in rows for number in row]


def _is_beside(before: Capture, after: Capture) -> bool:
    rings = [match["ring"] if (match := _RING.match(each.name)) else None for each in (before, after)]
    return rings[0] is not None and rings[0] == rings[1] and after.order[0] - before.order[0] <= _DISORDER_NS


def _first_ns(capture: Capture) -> int | None:
    """Time of the first packet; None without one, and for what cannot be read: the pass will say why."""
    try:
        found = _first_of_head(capture)
        if found is None and capture.size_bytes > _HEAD_BYTES:
            with capture.opened() as source:
                found = _first_of(source)
    except Exception:
        # of the core, of the system, or of a filesystem: the pass meets it again
        return None
    return found


def _first_of_head(capture: Capture) -> int | None:
    """The same of the first bytes, which nearly always have it: to map a file takes five times as long."""
    with (
        capture.opened() as source,
        Path(source).open("rb") if isinstance(source, str) else nullcontext(source) as stream,
    ):
        head = stream.read(_HEAD_BYTES)
    try:
        return _first_of(head)
    except CaptureUnreadable:
        return None


def _first_of(source: str | bytes | BinaryIO) -> int | None:
    first = read(source, packet_limit=1, tables=()).first_packet
    return None if first is None else first[0]


def _of_files(source: str) -> list[Capture]:
    path = Path(source)
    if path.is_dir():
        paths = [each for each in path.iterdir() if _is_capture(each.name) and each.is_file()]
    elif glob.has_magic(source) and not path.exists():
        paths = [Path(each) for each in glob.glob(source, recursive=True) if Path(each).is_file()]  # noqa: PTH207 -- a whole path
        if not paths:
            raise InputInvalid(f"no file is called {source}")
    else:
        paths = [path]
    found = []
    for each in sorted(paths):
        entry = each.stat()
        found.append(Capture(in_unicode(each.name), str(each.absolute()), entry.st_size, entry.st_mtime_ns))
    return found


def _is_capture(name: str) -> bool:
    return not name.startswith(".") and bool(_NAME.search(name) or _RING.match(name))


def _of_url(source: str) -> list[Capture]:
    filesystem, path = _fsspec().core.url_to_fs(source)
    if glob.has_magic(path):
        entries = list(filesystem.glob(path, detail=True).values())
    elif filesystem.isdir(path):
        entries = [each for each in filesystem.ls(path, detail=True) if _is_capture(each["name"].rpartition("/")[2])]
    else:
        entries = [filesystem.info(path)]
    split = urlsplit(source)
    place = f"{split.hostname or ''}{f':{split.port}' if split.port else ''}"
    stored = filesystem.to_json()
    found = []
    for entry in entries:
        if entry["type"] != "file":
            continue
        name = entry["name"]
        # the path of an object store begins with its bucket, that of a host with a slash
        url = f"{split.scheme}://{place if name.startswith('/') else ''}{name}"
        size, base = int(entry["size"]), name.rpartition("/")[2]
        found.append(Capture(base, url, size, _modified_ns(entry), remote=(stored, name)))
    return found


def _modified_ns(entry: Mapping[str, Any]) -> int:
    """When a file was changed, by any of the names that filesystems have for it; 0 where they have none."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp()) * _SECOND_NS
        if isinstance(value, int | float):
            return int(value) * _SECOND_NS
        if isinstance(value, str) and value:
            return int(datetime.fromisoformat(value).timestamp()) * _SECOND_NS
    return 0


def _fsspec() -> Any:
    try:
        import fsspec
        import fsspec.core
    except ImportError as error:
        raise ExtraMissing("a URL as source", "fsspec", "fleet") from error
    return fsspec


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
        found = _TAP_NAMED.fullmatch(source)
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
            raise InputInvalid(f"two sources have the name {tap.name}: name them NAME=SOURCE")
        files.setdefault(tap.name, []).extend(tap.sources)
    for name, paths in files.items():
        if name in named:
            raise InputInvalid(f"two sources have the name {name}: name them NAME=SOURCE")
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
    if not _TAP_NAME.fullmatch(name):
        raise InputInvalid(
            f"{path}: {name!r} is not a name for a tap: letters, digits, '_', '.' and '-' after a letter"
        )
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
