"""The settings that a definition can name, and how each is written: as the options of `simulate` and `lab run`.

``link.one-way-delay = "8ms"`` is ``--one-way-delay 8ms``. Knows words and values; what they become is in `settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iscsitrace.lab.login_keys import LIST, LOGIN_KEYS, NUMBER
from iscsitrace.wording.quantities import RATES, SIZES, TIMES, parse_quantity, parse_share

Value = int | float | bool | str | list[int] | list[str]
"""A value as the settings of a run take it: nanoseconds, bytes, bits a second, counts, words."""


@dataclass(frozen=True)
class Kind:
    """What a setting takes."""

    needed: str
    """In words, for who wrote something else."""
    read: Callable[[Any], Value | None]
    """The value of what is written; None when it is not that."""


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
    """A choice of words; dashes become what the settings have."""
    return Kind(
        f"one of {', '.join(words)}",
        lambda written: written.replace("-", "_") if isinstance(written, str) and written in words else None,
    )


def _service(written: Any) -> int | list[int] | None:
    """A time, or two between which every time is as likely."""
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
"""A plain transfer over TCP, without iSCSI: what the path can carry."""
OPERATIONS = ("read", "write", "mixed", *SOCKETS)

_LINK = {
    "rate": RATE,
    "one-way-delay": TIME,
    "queue-packets": COUNT,
    "queue-bytes": SIZE,
    "loss": SHARE,
    "jitter": TIME,
    "overhead": SIZE,
}
_TCP = {
    "congestion-control": one_of("reno", "cubic"),
    "window": SIZE,
    "send-buffer": SIZE,
    "mss": COUNT,
    "initial-window": COUNT,
    "delayed-ack": SWITCH,
    "nagle": SWITCH,
    "sack": SWITCH,
    "timestamps": SWITCH,
    "window-scaling": SWITCH,
    "hystart": SWITCH,
    "slow-start-after-idle": SWITCH,
}
_KEYS = {name: COUNT if kind is NUMBER else WORDS if kind is LIST else SWITCH for name, (_, kind) in LOGIN_KEYS.items()}
# lengths are sizes
_KEYS |= {name: SIZE for name in LOGIN_KEYS if name.endswith("Length")}
TUNING = {
    "connections-rule": one_of("model", "golden"),
    "measure-time": TIME,
    "measure-bytes": SIZE,
    "measure-at-once": SWITCH,
    "start-connections": COUNT,
    "most-connections": COUNT,
    "path-rate": RATE,
}
"""How the number of connections is looked for, below ``workload``."""
_WORKLOAD = {
    "operation": one_of(*OPERATIONS),
    "block-size": SIZE,
    "system-call-size": SIZE,
    "max-transfer": SIZE,
    "queue-depth": COUNT,
    "connection-depth": COUNT,
    "calls": COUNT,
    "bytes": SIZE,
    "seconds": AMOUNT,
    "access": one_of("sequential", "random"),
    "read-share": SHARE,
    "think-time": TIME,
    "connections": COUNT,
    **TUNING,
    "sessions": COUNT,
    "layout": one_of("stripe", "mirror"),
    "deal": one_of("turn-then-finished", "turn", "least-loaded"),
}
_TARGET = {
    "count": COUNT,
    "program": one_of("iscsitrace", "tgt", "istgt"),
    "status": one_of("in-data", "apart", "apart-held"),
    "service-delay": SERVICE,
    "host-delay": TIME,
    "is-serial": SWITCH,
    "command-window": COUNT,
}


def _under(prefix: str, kinds: dict[str, Kind]) -> dict[str, Kind]:
    return {f"{prefix}.{name}": kind for name, kind in kinds.items()}


SETTINGS: dict[str, Kind] = {
    **_under("link", _LINK),
    **{name: kind for way in DIRECTIONS for name, kind in _under(f"link.{way}", _LINK).items()},
    "link.access-rate": RATE,
    "link.access-queue-packets": COUNT,
    "link.target-delays": TIMES_LIST,
    **_under("tcp", _TCP),
    **_under("initiator.tcp", _TCP),
    **_under("target.tcp", _TCP),
    **_under("initiator.keys", _KEYS),
    **_under("target.keys", _KEYS),
    "initiator.host-delay": TIME,
    # in the real world alone
    "initiator.program": one_of("iscsitrace", "iscsi-perf", "open-iscsi"),
    "initiator.driver": one_of("events", "threads"),
    "initiator.receive": one_of("copy", "discard"),
    "link.bypass-from": RATE,
    **_under("target", _TARGET),
    **_under("workload", _WORKLOAD),
    "capture.at": one_of("both", "initiator", "none"),
    "capture.snaplen": SIZE,
    "capture.is-ipv6": SWITCH,
    "capture.is-untapped": SWITCH,
}
"""Every setting by its dotted name. Those of ``tcp`` are both hosts', those of ``link`` both directions'."""
