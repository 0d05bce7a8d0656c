"""Traffic by the compiled core: the reference initiator, the in-memory target, the link, and the simulated world.

Settings go in and results come out as dicts with the names of the core's structs (core/lab). This is the only module
of the lab that imports the core. It decides nothing and prints nothing.
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
"""Of truth files; it changes when a name in them changes its meaning."""

PERIOD_NS = 20_000_000
"""How often a run is looked at."""

Settings = Mapping[str, Any]
Descriptors = list[tuple[int, int, bool]]
"""Of every open connection: its number in the run, its socket, and whether that is closed after this look."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Url:
    """What an iSCSI URL names; keys and secrets stay in its text."""

    text: str
    host: str
    port: int
    target_name: str | None
    lun: int | None

    def resolved(self) -> dict[str, str]:
        """The URL with the address of its host, as the settings of a run take it. TrafficImpossible without one."""
        try:
            found: list[Any] = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no host name"
            raise TrafficImpossible(f"{self.host}: {reason}") from error
        return {"url": self.text, "address": portal(str(found[0][4][0]), found[0][4][1])}


def parse_url(text: str) -> Url:
    """Reads ``iscsi://[user[%password]@]host[:port][/target/[lun]]``; TrafficImpossible when it is none."""
    return Url(text=text, **json.loads(_asked(lambda: _core.parse_url(text))))


def run_initiator(
    settings: Settings, watch: Callable[[dict[str, Any], Descriptors], bool], *, period_ns: int = PERIOD_NS
) -> dict[str, Any]:
    """Runs the reference initiator over sockets to its end; ``results`` and ``tasks``.

    ``settings``: ``client``, ``urls``, ``sockets``, ``driver``, ``receive``. ``watch`` is told of the progress, and
    gives True to end the run in order; it is asked once every period, and before sockets are closed. What goes wrong
    with a peer is in the results; TrafficImpossible is for settings that cannot be meant.
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
    """Runs a target over sockets until ``watch`` gives True; ``counters``, ``connections`` and ``tasks``.

    ``settings``: ``portal``, ``sockets``, ``listen``. ``ready`` gets the addresses that it listens at.
    """
    return _document(
        lambda: _core.run_target(
            json.dumps(settings), period_ns, ready, lambda seen, open_: watch(json.loads(seen), open_)
        )
    )


def run_link(
    settings: Settings, ready: Callable[[], None], watch: Callable[[], bool], *, period_ns: int = PERIOD_NS
) -> dict[str, Any]:
    """Moves frames between two TAP devices until ``watch`` gives True; its log.

    ``settings``: ``initiator`` and ``target``, each with ``name`` and ``namespace``, and ``link``.
    """
    return _document(lambda: _core.run_link(json.dumps(settings), period_ns, ready, lambda *_: watch()))


def simulate(settings: Settings, captures: Sequence[Path | None], watch: Callable[[int, int], bool]) -> dict[str, Any]:
    """Runs a simulation to its end; the truth of it.

    ``settings``: ``client``, ``portals``, ``world``. ``captures`` are files to be made: the initiator's, then each
    target's. ``watch`` gets the simulated nanoseconds and the packets so far, and gives True to give up, which is an
    error like any other end that did not come.
    """
    files = [None if file is None else str(file) for file in captures]
    return _document(lambda: _core.simulate(json.dumps(settings), files, lambda seen, _: watch(*json.loads(seen))))


def _document(ask: Callable[[], str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_asked(ask))
    return document


def _asked(ask: Callable[[], _Result]) -> _Result:
    if _core_missing is not None:
        raise TrafficImpossible(f"the compiled core is missing, build it with 'maturin develop': {_core_missing}")
    try:
        return ask()
    except _core.LabError as error:
        raise TrafficImpossible(str(error)) from error
