"""Every setting that a definition can name: how its value is written, and which field of a run's settings takes it.

``link.one-way-delay = "8ms"`` is the option ``--one-way-delay 8ms``, and ``delay_ns`` of a link in the core. `settings`
builds the settings of a run by this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iscsitrace.lab.login_keys import LIST, LOGIN_KEYS, NUMBER
from iscsitrace.wording.quantities import RATES, SIZES, TIMES, parse_quantity, parse_share

Value = int | float | bool | str | list[int] | list[str]
"""A value in the units of a run's settings: nanoseconds, bytes, bit/s, counts, words."""


@dataclass(frozen=True)
class Kind:
    """A kind of value, and how to read it from TOML."""

    needed: str
    """What to write, for the error message."""
    read: Callable[[Any], Value | None]
    """The value that was written; None for anything of another kind."""


def _quantity(units: dict[str, int]) -> Callable[[Any], int | None]:
    return lambda written: parse_quantity(written, units) if isinstance(written, str) else None


def _size(written: Any) -> int | None:
    return _count(written) if not isinstance(written, str) else parse_quantity(written, SIZES)


def _count(written: Any) -> int | None:
    return written if isinstance(written, int) and not isinstance(written, bool) and written >= 0 else None


def _share(written: Any) -> float | None:
    if isinstance(written, str):
        return parse_share(written)
    return float(written) if isinstance(written, int | float) and 0 <= written <= 1 else None


def _number(written: Any) -> float | None:
    return float(written) if isinstance(written, int | float) and not isinstance(written, bool) else None


def _delays(written: Any) -> list[int] | None:
    found = [TIME.read(each) for each in written] if isinstance(written, list) else []
    return [each for each in found if isinstance(each, int)] if found and None not in found else None


def _words(written: Any) -> list[str] | None:
    is_words = isinstance(written, list) and written and all(isinstance(each, str) for each in written)
    return list(written) if is_words else None


def one_of(*words: str) -> Kind:
    """A choice of words. The core spells them with underscores instead of dashes."""
    return Kind(
        f"one of {', '.join(words)}",
        lambda written: written.replace("-", "_") if isinstance(written, str) and written in words else None,
    )


def _service(written: Any) -> int | list[int] | None:
    """A time, or a range of times (uniformly distributed)."""
    found = [TIME.read(each) for each in written.split("-", 1)] if isinstance(written, str) else []
    times = [each for each in found if isinstance(each, int)]
    if not times or len(times) < len(found) or times != sorted(times):
        return None
    return times if len(times) > 1 else times[0]


TIME = Kind('a time like "8ms"', _quantity(TIMES))
SERVICE = Kind('a time like "8ms", or two like "30ms-40ms"', _service)
SIZE = Kind('a size like "128K"', _size)
RATE = Kind('a rate like "320Mbit"', lambda written: _quantity(RATES)(written) or None)
SHARE = Kind('a share like "0.01%"', _share)
COUNT = Kind("a whole number", _count)
AMOUNT = Kind("a number", _number)
SWITCH = Kind("true or false", lambda written: written if isinstance(written, bool) else None)
TIMES_LIST = Kind('a list of times like ["1ms", "20ms"]', _delays)
WORDS = Kind("a list of words", _words)

DIRECTIONS = ("to-target", "to-initiator")
SOCKETS = ("socket-read", "socket-write")
"""Bulk transfers over plain TCP, without iSCSI: the most that the path can carry."""
OPERATIONS = ("read", "write", "mixed", *SOCKETS)


class Part(StrEnum):
    """A struct of a run's settings, as `settings.of_run` and the core name them."""

    LINK = "world.paths[].to_target, .to_initiator"
    ACCESS = "world.access"
    TCP = "world.initiator_tcp, world.target_tcp"
    WORLD = "world"
    KEYS = "client.login.offers, portals[].keys"
    WORKLOAD = "client.workload"
    TUNING = "client.workload.tuning"
    PORTAL = "portals[]"
    PROGRAM = "lab.real.Programs"
    COMPUTED = ""
    """No field of this value alone: `settings` computes what it becomes."""


@dataclass(frozen=True)
class Setting:
    """A setting: how its value is written, and the field of a run's settings that takes the value."""

    kind: Kind
    part: Part
    field: str = ""
    """Empty for a computed one."""


Rows = Mapping[str, tuple[Kind, str]]
_LINK: Rows = {
    "rate": (RATE, "rate_bps"),
    "one-way-delay": (TIME, "delay_ns"),
    "queue-packets": (COUNT, "queue_packets"),
    "queue-bytes": (SIZE, "queue_bytes"),
    "loss": (SHARE, "loss_probability"),
    "jitter": (TIME, "jitter_ns"),
    "overhead": (SIZE, "overhead_bytes"),
}
_TCP: Rows = {
    "congestion-control": (one_of("reno", "cubic"), "congestion_control"),
    "window": (SIZE, "receive_buffer_bytes"),
    "send-buffer": (SIZE, "send_buffer_bytes"),
    "mss": (COUNT, "mss"),
    "initial-window": (COUNT, "initial_window"),
    "delayed-ack": (SWITCH, "delayed_ack"),
    "nagle": (SWITCH, "nagle"),
    "sack": (SWITCH, "sack"),
    "timestamps": (SWITCH, "timestamps"),
    "window-scaling": (SWITCH, "window_scaling"),
    "hystart": (SWITCH, "hystart"),
    "slow-start-after-idle": (SWITCH, "slow_start_after_idle"),
}
_WORKLOAD: Rows = {
    "operation": (one_of(*OPERATIONS), "operation"),
    "block-size": (SIZE, "block_size_bytes"),
    "system-call-size": (SIZE, "system_call_bytes"),
    "max-transfer": (SIZE, "max_transfer_bytes"),
    "bytes": (SIZE, "total_bytes"),
    "access": (one_of("sequential", "random"), "access"),
    "read-share": (SHARE, "read_share"),
    "think-time": (TIME, "think_time_ns"),
    "connections": (COUNT, "connections"),
    "sessions": (COUNT, "sessions"),
    "layout": (one_of("stripe", "mirror"), "layout"),
    "deal": (one_of("turn-then-finished", "turn", "least-loaded"), "dealing"),
}
_TUNING: Rows = {
    "measure-time": (TIME, "measure_ns"),
    "measure-bytes": (SIZE, "measure_bytes"),
    "measure-at-once": (SWITCH, "is_unsettled"),
    "start-connections": (COUNT, "start_connections"),
    "most-connections": (COUNT, "most_connections"),
}
_COMPUTED: Mapping[str, Kind] = {
    "link.target-delays": TIMES_LIST,
    "link.bypass-from": RATE,
    "workload.queue-depth": COUNT,
    "workload.connection-depth": COUNT,
    "workload.calls": COUNT,
    "workload.seconds": AMOUNT,
    "workload.connections-rule": one_of("model", "golden"),
    "workload.path-rate": RATE,
    "target.count": COUNT,
    "target.service-delay": SERVICE,
    "target.is-serial": SWITCH,
    "capture.at": one_of("both", "initiator", "none"),
    "capture.is-untapped": SWITCH,
}


def _key_kind(name: str, kind: str) -> Kind:
    if name.endswith("Length"):
        return SIZE
    return COUNT if kind is NUMBER else WORDS if kind is LIST else SWITCH


_KEYS: Rows = {name: (_key_kind(name, kind), field) for name, (field, kind) in LOGIN_KEYS.items()}


def _under(section: str, part: Part, rows: Rows) -> dict[str, Setting]:
    return {f"{section}.{name}": Setting(kind, part, field) for name, (kind, field) in rows.items()}


SETTINGS: dict[str, Setting] = {
    **_under("link", Part.LINK, _LINK),
    **{name: setting for way in DIRECTIONS for name, setting in _under(f"link.{way}", Part.LINK, _LINK).items()},
    **_under(
        "link", Part.ACCESS, {"access-rate": (RATE, "rate_bps"), "access-queue-packets": (COUNT, "queue_packets")}
    ),
    **_under("tcp", Part.TCP, _TCP),
    **_under("initiator.tcp", Part.TCP, _TCP),
    **_under("target.tcp", Part.TCP, _TCP),
    **_under("initiator.keys", Part.KEYS, _KEYS),
    **_under("target.keys", Part.KEYS, _KEYS),
    **_under("initiator", Part.WORLD, {"host-delay": (TIME, "initiator_host_delay_ns")}),
    **_under(
        "initiator",
        Part.PROGRAM,
        {
            "program": (one_of("iscsitrace", "iscsi-perf", "open-iscsi"), "initiator"),
            "driver": (one_of("events", "threads"), "driver"),
            "receive": (one_of("copy", "discard"), "receive"),
        },
    ),
    **_under("target", Part.PROGRAM, {"program": (one_of("iscsitrace", "tgt", "istgt"), "target")}),
    **_under("target", Part.WORLD, {"host-delay": (TIME, "target_host_delay_ns")}),
    **_under(
        "target",
        Part.PORTAL,
        {
            "status": (one_of("in-data", "apart", "apart-held"), "status"),
            "command-window": (COUNT, "command_window_count"),
        },
    ),
    **_under("workload", Part.WORKLOAD, _WORKLOAD),
    **_under("workload", Part.TUNING, _TUNING),
    **_under("capture", Part.WORLD, {"snaplen": (SIZE, "snaplen_bytes"), "is-ipv6": (SWITCH, "is_ipv6")}),
    **{name: Setting(kind, Part.COMPUTED) for name, kind in _COMPUTED.items()},
}
"""Every setting by its dotted name. Those of ``tcp`` apply to both hosts, those of ``link`` to both directions.

Programs are used in the real world only.
"""
