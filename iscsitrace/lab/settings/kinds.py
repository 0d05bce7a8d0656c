"""The kinds of values that settings have: how each is written in a definition (TOML), and typed as an option.

Values are in the units of a run: nanoseconds, bytes, bit/s, shares, counts; words with underscores, as the core spells
them. A value that sets several fields is a dict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from iscsitrace.wording import quantities
from iscsitrace.wording.login_keys import LIST, LOGIN_KEYS, NUMBER
from iscsitrace.wording.quantities import Quantity, parse_count

Value = int | float | bool | str | list[int] | list[str] | dict[str, Any]
"""A value in the units of a run's settings."""

_SWITCH = {"yes": True, "no": False}


@dataclass(frozen=True)
class ValueKind:
    """A kind of value."""

    name: str
    """In capitals, as the help of an option shows it."""
    needed: str
    """What to write, for the error message."""
    read: Callable[[Any], Value | None]
    """The value of what a definition has; None for anything of another kind."""
    parse: Callable[[str], Value | None]
    """The value of what was typed; None for anything of another kind."""
    words: tuple[str, ...] = ()
    """The words to choose from, in a kind that has some."""
    least: int = 0
    """Of a count."""
    most: int | None = None


def _quantity(quantity: Quantity, read_number: Callable[[Any], Value | None] = lambda _: None) -> ValueKind:
    def read(written: Any) -> Value | None:
        return quantity.parse(written) if isinstance(written, str) else read_number(written)

    return ValueKind(quantity.name, quantity.needed, read, quantity.parse)


def _bytes(written: Any) -> int | None:
    return written if isinstance(written, int) and not isinstance(written, bool) and written >= 0 else None


def _fraction(written: Any) -> float | None:
    return float(written) if isinstance(written, int | float) and 0 <= written <= 1 else None


def count(least: int = 0, most: int | None = None) -> ValueKind:
    """Whole numbers within bounds."""

    def within(number: int | None) -> int | None:
        return None if number is None or number < least or (most is not None and number > most) else number

    limits = "" if not least and most is None else f" >= {least}" if most is None else f" from {least} to {most}"
    return ValueKind(
        "COUNT",
        f"a whole number{limits}",
        lambda written: within(_bytes(written)),
        lambda text: within(parse_count(text)),
        least=least,
        most=most,
    )


def one_of(*words: str) -> ValueKind:
    """A choice of words. The core spells them with underscores instead of dashes."""

    def read(written: Any) -> str | None:
        return written.replace("-", "_") if isinstance(written, str) and written in words else None

    return ValueKind("WORD", f"one of {', '.join(words)}", read, read, words)


def _above_zero(written: Any) -> float | None:
    is_number = isinstance(written, int | float) and not isinstance(written, bool)
    return float(written) if is_number and 0 < written < inf else None


def _typed_above_zero(text: str) -> float | None:
    try:
        return _above_zero(float(text))
    except ValueError:
        return None


def _switch(written: Any) -> bool | None:
    return written if isinstance(written, bool) else None


def _times(written: Any) -> list[int] | None:
    found = [TIME.read(each) for each in written] if isinstance(written, list) else []
    return [each for each in found if isinstance(each, int)] if found and None not in found else None


def _words(written: Any) -> list[str] | None:
    is_words = isinstance(written, list) and written and all(isinstance(each, str) for each in written)
    return list(written) if is_words else None


def _text(written: Any) -> str | None:
    return written if isinstance(written, str) and written else None


def _service(written: Any) -> int | list[int] | None:
    """A time, or a range of times (uniformly distributed)."""
    found = [TIME.read(each) for each in written.split("-", 1)] if isinstance(written, str) else []
    times = [each for each in found if isinstance(each, int)]
    if not times or len(times) < len(found) or times != sorted(times):
        return None
    return times if len(times) > 1 else times[0]


def _typed_service(text: str) -> Value | None:
    mean_ns = TIME.parse(text.removeprefix("exp:")) if text.startswith("exp:") else None
    # of no definition: the model predicts from bounded service times
    return _service(text) if mean_ns is None else {"distribution": "exponential", "mean_ns": mean_ns}


def _queue(written: Any) -> dict[str, Any] | None:
    if written == "none":
        return {"queue_packets": None, "queue_bytes": None}
    text = str(written) if _bytes(written) is not None else written
    if not isinstance(text, str):
        return None
    packets, size = parse_count(text), SIZE.parse(text)
    if packets is not None:
        return {"queue_packets": packets, "queue_bytes": None}
    return None if size is None else {"queue_packets": None, "queue_bytes": size}


def _burst_loss(written: Any) -> dict[str, float] | None:
    names = ("enter", "leave", "loss_in_bad", "loss_in_good")
    shares = [SHARE.parse(each) for each in written.split(",")] if isinstance(written, str) else []
    found = [each for each in shares if isinstance(each, float)]
    if not 2 <= len(found) <= len(names) or len(found) < len(shares):
        return None
    return {f"{name}_probability": share for name, share in zip(names, found, strict=False)}


def _reordering(written: Any) -> dict[str, Any] | None:
    parts = written.split(",") if isinstance(written, str) else []
    share, time_ns = (SHARE.parse(parts[0]), TIME.parse(parts[1])) if len(parts) == 2 else (None, None)
    is_read = share is not None and time_ns is not None
    return {"reorder_probability": share, "reorder_by_ns": time_ns} if is_read else None


TIME = _quantity(quantities.TIME)
SIZE = _quantity(quantities.SIZE, _bytes)
RATE = _quantity(quantities.RATE)
SHARE = _quantity(quantities.SHARE, _fraction)
COUNT = count()
SECONDS = ValueKind("SECONDS", "a number above 0", _above_zero, _typed_above_zero)
SWITCH = ValueKind("YES|NO", "yes or no (in TOML true or false)", _switch, lambda text: _SWITCH.get(text.lower()))
TEXT = ValueKind("TEXT", "a text", _text, _text)
TIMES = ValueKind("TIMES", 'a list of times like ["1ms", "20ms"]', _times, lambda text: _times(text.split(",")))
WORDS = ValueKind("WORDS", "a list of words", _words, lambda text: _words(text.split(",")) if text else None)
SERVICE = ValueKind(
    "TIMES",
    'a time like "8ms", or two like "30ms-40ms" (uniform)',
    _service,
    _typed_service,
)
QUEUE = ValueKind("LENGTH", 'a number of packets like 100, a size like "64K", or "none"', _queue, _queue)
BURST_LOSS = ValueKind("SHARES", "shares ENTER,LEAVE[,BAD[,GOOD]], like 0.01%,25%", _burst_loss, _burst_loss)
REORDERING = ValueKind("SHARE,TIME", "a share and a time, like 1%,2ms", _reordering, _reordering)


def of_key(name: str) -> ValueKind:
    """The kind of a login key."""
    if name.endswith("Length"):
        return SIZE
    written = LOGIN_KEYS[name][1]
    return COUNT if written is NUMBER else WORDS if written is LIST else SWITCH
