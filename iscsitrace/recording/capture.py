"""Capturing by the compiled core: packets from interfaces into pcapng files, and what can be asked of interfaces.

Settings go in and outcomes come out as dicts with the names of the core's structs (core/capture). It decides
nothing and prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from iscsitrace.errors import CaptureRefused, CaptureUnreadable, OutputExists, PermissionLacking

try:
    from iscsitrace import _core
except ImportError as error:  # without libpcap the core cannot be loaded; nor in a source tree that was not built
    _core_missing: ImportError | None = error
else:
    _core_missing = None

Settings = Mapping[str, Any]

_Result = TypeVar("_Result")


class Caller(Protocol):
    """Who wants a capture, and is told of it."""

    def watch(self, progress_json: str) -> bool:
        """Gets the progress and what happened, at least every 50 ms; True ends the capture."""

    def next_path(self, number: int) -> str:
        """The name of the file of that number, from 1, when there are several."""


def run(settings: Settings, caller: Caller) -> dict[str, Any]:
    """Captures until the caller wants the end or a limit is reached; how it ended, counts, files.

    ``settings``: ``interfaces``, ``output``, ``stop``, ``trigger``, ``learn``, ``section``, ``helper``. CaptureRefused,
    PermissionLacking or OutputExists when it cannot begin. Ctrl-C raises KeyboardInterrupt, after the file is complete.
    """
    document: dict[str, Any] = json.loads(_asked(lambda: _core.run_capture(json.dumps(settings), caller)))
    return document


def replay(sources: Sequence[str], settings: Settings, caller: Caller) -> dict[str, Any]:
    """The same with the packets of capture files in place of interfaces. CaptureUnreadable when a file is none."""
    found = _asked(lambda: _core.replay_capture(sources, json.dumps(settings), caller))
    document: dict[str, Any] = json.loads(found)
    return document


def advise_snaplen(interface: Settings, duration_ns: int, watch: Callable[[int], bool]) -> tuple[dict[str, Any], int]:
    """Measures on an interface which snaplen keeps every header; the advice, and packets dropped meanwhile.

    ``watch`` gets the packets so far, and gives True to end.
    """
    advice, dropped = json.loads(_asked(lambda: _core.advise_snaplen(json.dumps(interface), duration_ns, watch)))
    return advice, dropped


def advise_snaplen_of(
    sources: Sequence[str], capture_filter: str | None, watch: Callable[[int], object]
) -> dict[str, Any]:
    """Measures on captures which snaplen keeps every header. CaptureUnreadable when a file is none."""
    advice, _ = json.loads(_asked(lambda: _core.advise_snaplen_of(sources, capture_filter, watch)))
    found: dict[str, Any] = advice
    return found


def filter_problem(expression: str) -> str | None:
    """What libpcap says against a capture filter."""
    return _asked(lambda: _core.check_filter(expression))


def trigger_problem(condition: str) -> tuple[int, str] | None:
    """Where a trigger's condition cannot be read on, in characters from 0, and why."""
    return _asked(lambda: _core.check_trigger(condition))


def list_interfaces() -> list[dict[str, Any]]:
    """What libpcap can capture on: ``name``, ``description``, ``addresses``, ``is_up``, ``is_running``,
    ``is_loopback``.
    """
    found: list[dict[str, Any]] = json.loads(_asked(lambda: str(_core.list_interfaces())))
    return found


def link_types(interface: str) -> list[int]:
    """LINKTYPE_ values that an interface offers, which is opened for a moment; CaptureRefused when it may not be."""
    return _asked(lambda: _core.probe_interface(interface))


def _asked(ask: Callable[[], _Result]) -> _Result:
    if _core_missing is not None:
        if "libpcap" in str(_core_missing):
            raise CaptureRefused(f"libpcap is missing: install it (apt install libpcap0.8): {_core_missing}")
        raise CaptureRefused(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    try:
        return ask()
    except _core.CaptureError as error:
        raise CaptureUnreadable(str(error)) from error
    except _core.LiveCaptureError as error:
        kind, message = error.args
        if kind == "exists":
            raise OutputExists(message) from error
        if kind == "permission":
            raise PermissionLacking(message) from error
        raise CaptureRefused(message, kind) from error
