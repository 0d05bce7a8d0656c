"""What the compiled core does with packets: from interfaces into pcapng files, or from captures into one without names.

Settings and results are dicts with the names of the core's structs (core/capture). It decides nothing and prints
nothing.

The position of an error in a capture filter is found with libpcap itself: it is the first word after which no
continuation of the filter compiles. No grammar is implemented here that could disagree with libpcap's.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from iscsitrace.errors import CaptureRefused, CaptureUnreadable, InputInvalid, OutputExists, PermissionLacking

try:
    from iscsitrace import _core
except ImportError as error:  # no libpcap, or a source tree that was not built
    _core_missing: ImportError | None = error
else:
    _core_missing = None

Settings = Mapping[str, Any]

_Result = TypeVar("_Result")


class Caller(Protocol):
    """The caller of a capture, which is called back during it."""

    def watch(self, progress_json: str) -> bool:
        """Receives progress and events, at least every 50 ms; returning True ends the capture."""

    def next_path(self, number: int) -> str:
        """The name of the file with this number, from 1, if there are several."""


def run(settings: Settings, caller: Caller) -> dict[str, Any]:
    """Captures until the caller ends it or a limit is reached; returns reason of the end, counts and files.

    ``settings``: ``interfaces``, ``output``, ``stop``, ``trigger``, ``learn``, ``section``, ``helper``. Raises
    CaptureRefused, PermissionLacking or OutputExists if it cannot start. Ctrl-C raises KeyboardInterrupt, after the
    file is complete.
    """
    document: dict[str, Any] = json.loads(called(lambda: _core.run_capture(json.dumps(settings), caller)))
    return document


def replay(sources: Sequence[str], settings: Settings, caller: Caller) -> dict[str, Any]:
    """The same with packets from capture files instead of interfaces. CaptureUnreadable if a file is no capture."""
    found = called(lambda: _core.replay_capture(sources, json.dumps(settings), caller))
    document: dict[str, Any] = json.loads(found)
    return document


def advise_snaplen(interface: Settings, duration_ns: int, watch: Callable[[int], bool]) -> tuple[dict[str, Any], int]:
    """Measures on an interface which snaplen keeps every header; returns the advice, and the packets dropped.

    ``watch`` receives the number of packets so far, and returns True to end.
    """
    advice, dropped = json.loads(called(lambda: _core.advise_snaplen(json.dumps(interface), duration_ns, watch)))
    return advice, dropped


def advise_snaplen_of(
    sources: Sequence[str], capture_filter: str | None, watch: Callable[[int], object]
) -> dict[str, Any]:
    """Measures on captures which snaplen keeps every header. CaptureUnreadable if a file is no capture."""
    advice, _ = json.loads(called(lambda: _core.advise_snaplen_of(sources, capture_filter, watch)))
    found: dict[str, Any] = advice
    return found


def filter_problem(expression: str) -> str | None:
    """libpcap's error message for a capture filter; None if it is valid."""
    return called(lambda: _core.check_filter(expression))


def trigger_problem(condition: str) -> tuple[int, str] | None:
    """Position (in characters from 0) and reason of a syntax error in a trigger's condition; None if it is valid."""
    return called(lambda: _core.check_trigger(condition))


def confine(written: Sequence[Path], ports: Sequence[int] = (), children: Sequence[int] = ()) -> list[str]:
    """Gives up what a reader of packets does not need, for this thread and all that it starts later, for good.

    It can still read, write beneath these paths and to /dev/null, serve at these ports (0 is any), and end these
    processes. Returns what the kernel refused.
    """
    return called(lambda: _core.confine([os.devnull, *map(str, written)], list(ports), list(children)))


def list_interfaces() -> list[dict[str, Any]]:
    """The interfaces that libpcap can capture on: ``name``, ``description``, ``addresses``, ``is_up``, ``is_running``,
    ``is_loopback``.
    """
    found: list[dict[str, Any]] = json.loads(called(lambda: str(_core.list_interfaces())))
    return found


def link_types(interface: str) -> list[int]:
    """LINKTYPE_ values of an interface, which is opened briefly; CaptureRefused if that fails."""
    return called(lambda: _core.probe_interface(interface))


def called(call: Callable[[], _Result]) -> _Result:
    """What a function of the core returns, its errors as those of this package."""
    if _core_missing is not None:
        if "libpcap" in str(_core_missing):
            raise CaptureRefused(f"libpcap is missing: install it (apt install libpcap0.8): {_core_missing}")
        raise CaptureRefused(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    try:
        return call()
    except _core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    except _core.LiveCaptureError as error:
        kind, message = error.args
        if kind == "exists":
            raise OutputExists(message) from error
        if kind == "permission":
            raise PermissionLacking(message) from error
        raise CaptureRefused(message, kind) from error


_WORDS = re.compile(r"\s*([\w.:\-/\\$]+|<=|>=|!=|==|<<|>>|&&|\|\||\S)")
_QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")
_UNKNOWN = re.compile(r"(?:unknown|invalid|illegal|bogus)[\w ]*? ['\"]?([\w.:\-/]+)['\"]?$")
_NUMBER = re.compile(r"\b\d[\w.:]*")
# possible continuations of a filter, without names that libpcap would resolve
_ENDINGS = (
    *("", "tcp", "80", "1.2.3.4", "host 1.2.3.4", "port 80", "00:00:00:00:00:00", "1-2", "= 1", "] = 1", "0] = 1"),
    *("tcp = 1", "\\tcp", "net 10.0.0.0/8", "0.0.0.0 mask 255.0.0.0", "mask 255.0.0.0", "inbound", "0 = 1"),
)
_DEPTH_MAX = 16


def place_of_problem(expression: str, message: str, ask: Callable[[str], str | None]) -> int | None:
    """Position of the error in the filter, in characters from 0; None if unknown.

    ``ask`` returns libpcap's message for a filter; ``message`` is the one for the whole filter.
    """
    named = _QUOTED.findall(message) or _UNKNOWN.findall(message)
    for word in named:
        if word != expression and (found := re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", expression)):
            return found.start()
    if "syntax error" not in message:
        places = [
            match.start() for word in _NUMBER.findall(message) for match in re.finditer(rf"\b{word}\b", expression)
        ]
        return places[0] if len(places) == 1 else None
    words = [(match.start(1), match.end(1)) for match in _WORDS.finditer(expression)]
    for start, end in words:
        if not _can_go_on(expression[:end], ask):
            return start
    # every word is valid, and the filter is incomplete
    return len(expression.rstrip())


def _can_go_on(beginning: str, ask: Callable[[str], str | None]) -> bool:
    depth = min(_DEPTH_MAX, max(0, beginning.count("(") - beginning.count(")")))
    for ending in _ENDINGS:
        message = ask(f"{beginning} {ending}{' )' * depth}")
        if message is None or "syntax error" not in message:
            return True
    return False


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
            application=f"iscsitrace {_core.VERSION}",
            progress=progress,
        )
    )


def new_key() -> bytes:
    """A key that nobody knows."""
    return os.urandom(KEY_BYTES)


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
