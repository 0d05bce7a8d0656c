"""Traffic by the compiled core: the reference initiator, the in-memory target, the link, and the simulated world.

Settings and results are dicts with the names of the core's structs (core/lab). This is the only module of the lab that
imports the core. It prints nothing.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab.places import portal

try:
    from iscsitrace import _core
except ImportError as error:  # a source tree without the compiled core; making traffic says so, all else works
    _core_missing: ImportError | None = error
else:
    _core_missing = None

TRUTH_SCHEMA_VERSION = 1
"""Schema number of truth files. It changes when a name in them changes its meaning."""

PERIOD_NS = 20_000_000
"""Interval of the calls of ``watch``."""

Settings = Mapping[str, Any]
Descriptors = list[tuple[int, int, bool]]
"""Of every open connection: its number in the run, its socket, and whether the socket is about to be closed."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Url:
    """An iSCSI URL. Keys and secrets are in its text only."""

    text: str
    host: str
    port: int
    target_name: str | None
    lun: int | None

    def resolved(self) -> dict[str, str]:
        """The URL and the address of its host, as in the settings of a run. TrafficImpossible for an unknown host."""
        try:
            found: list[Any] = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no host name"
            raise TrafficImpossible(f"{self.host}: {reason}") from error
        return {"url": self.text, "address": portal(str(found[0][4][0]), found[0][4][1])}


def parse_url(text: str) -> Url:
    """Reads ``iscsi://[user[%password]@]host[:port][/target/[lun]]``; TrafficImpossible for any other text."""
    return Url(text=text, **json.loads(_called(lambda: _core.parse_url(text))))


def run_initiator(
    settings: Settings, watch: Callable[[dict[str, Any], Descriptors], bool], *, period_ns: int = PERIOD_NS
) -> dict[str, Any]:
    """Runs the reference initiator over sockets to its end; ``results`` and ``tasks``.

    ``settings``: ``client``, ``urls``, ``sockets``, ``driver``, ``receive``. ``watch`` gets the progress, and returns
    True to end the run in order; it is called once every period, and before sockets are closed. Problems with a peer
    are in the results; TrafficImpossible is for invalid settings.
    """
    return _document(
        lambda: _core.run_initiator(json.dumps(settings), period_ns, lambda seen, open_: watch(json.loads(seen), open_))
    )


def run_target(
    settings: Settings,
    ready: Callable[[list[str]], None],
    watch: Callable[[dict[str, Any], Descriptors], bool],
    *,
    period_ns: int = PERIOD_NS,
) -> dict[str, Any]:
    """Runs a target over sockets until ``watch`` returns True; ``counters``, ``connections`` and ``tasks``.

    ``settings``: ``portal``, ``sockets``, ``listen``. ``ready`` gets the addresses that the target listens at.
    """
    return _document(
        lambda: _core.run_target(
            json.dumps(settings), period_ns, ready, lambda seen, open_: watch(json.loads(seen), open_)
        )
    )


def run_link(
    settings: Settings,
    ready: Callable[[], None],
    watch: Callable[[], bool],
    begun: Callable[[], bool] = lambda: False,
    *,
    period_ns: int = PERIOD_NS,
) -> dict[str, Any]:
    """Moves frames between two TAP devices until ``watch`` returns True; returns the log of the link. ``begun`` returns
    whether the workload has begun, from which the times of faults count.

    ``settings``: ``initiator`` and ``target``, each with ``name`` and ``namespace``, and ``link``.
    """
    return _document(
        lambda: _core.run_link(json.dumps(settings), period_ns, ready, lambda *_: watch(), lambda *_: begun())
    )


def simulate(settings: Settings, captures: Sequence[Path | None], watch: Callable[[int, int], bool]) -> dict[str, Any]:
    """Runs a simulation to its end; returns its truth.

    ``settings``: ``client``, ``portals``, ``world``. ``captures`` are files to create: the initiator's, then each
    target's. ``watch`` gets the simulated nanoseconds and the packets so far; if it returns True the run ends with
    TrafficImpossible.
    """
    files = [None if file is None else str(file) for file in captures]
    return _document(lambda: _core.simulate(json.dumps(settings), files, lambda seen, _: watch(*json.loads(seen))))


def _document(call: Callable[[], str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_called(call))
    return document


def _called(call: Callable[[], _Result]) -> _Result:
    if _core_missing is not None:
        raise TrafficImpossible(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    try:
        return call()
    except _core.LabError as error:
        raise TrafficImpossible(str(error)) from error
