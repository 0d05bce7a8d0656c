"""The options that say what an initiator asks for, and with which keys: the same in both worlds."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from iscsitrace.cli.read.sections import Section, option
from iscsitrace.cli.units import Duration, Quantity, Rate, Share, Size
from iscsitrace.lab.login_keys import LIST, LOGIN_KEYS, NUMBER, TRUTH

MODES = ("read", "write", "mixed")
_DEALING = ("turn-then-finished", "turn", "least-loaded")
_SECOND_NS = 1_000_000_000

_TRUTHS = {"yes": True, "no": False}


class Key(Quantity):
    """``NAME=VALUE`` of a login key, to its name in the settings and its value; an empty value leaves it unnamed."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """The pair; fails with a line that says what the key takes."""
        if isinstance(value, tuple):
            return value
        name, is_pair, text = value.partition("=")
        if name not in LOGIN_KEYS:
            self.fail(f"{name!r} is no key of a login; there are {', '.join(LOGIN_KEYS)}", param, ctx)
        setting, kind = LOGIN_KEYS[name]
        if not text and is_pair:
            return setting, None
        if kind is NUMBER and text.isascii() and text.isdigit():
            return setting, int(text)
        if kind is TRUTH and text.lower() in _TRUTHS:
            return setting, _TRUTHS[text.lower()]
        if kind is LIST and text:
            return setting, text.split(",")
        return self.fail(f"{value!r}: {name} takes {kind}", param, ctx)


class Digests(Quantity):
    """``none``, ``crc32c``, or both, the better first."""

    name = "DIGESTS"
    _WORDS: ClassVar = {"none": "None", "crc32c": "CRC32C"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The RFC's words; fails with a line that says which there are."""
        if isinstance(value, list):
            return value
        words = value.lower().split(",")
        if any(word not in self._WORDS for word in words):
            self.fail(f"{value!r} is no digest; write none, crc32c or crc32c,none", param, ctx)
        return [self._WORDS[word] for word in words]


class Connections(Quantity):
    """How many, or ``auto``, ``auto:model``, ``auto:golden``: their number is looked for while data flow."""

    name = "1-64|auto[:RULE]"
    _RULES: ClassVar = {"auto": "predicted", "auto:model": "predicted", "auto:golden": "golden_section"}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """A number, or the name of a search; fails with a line that says what there is."""
        if isinstance(value, int):
            return value
        if value in self._RULES:
            return str(self._RULES[value])
        if value in self._RULES.values():
            return str(value)
        if value.isascii() and value.isdigit() and 1 <= int(value) <= MOST_CONNECTIONS:
            return int(value)
        return self.fail(f"{value!r}: write 1 to {MOST_CONNECTIONS}, or {', '.join(self._RULES)}", param, ctx)


MOST_CONNECTIONS = 64
_BITS = 8
_DEFAULT_SECONDS_NS = 5_000_000_000


def lasting(workload: dict[str, Any]) -> dict[str, Any]:
    """A workload in real time: it lasts 5 s when nothing says how much or how long."""
    if workload["total_bytes"] is None and workload["duration_ns"] is None:
        return workload | {"duration_ns": _DEFAULT_SECONDS_NS}
    return workload


def _workload(
    *,
    block_size: int,
    system_call_size: int | None,
    max_transfer: int | None,
    queue_depth: int,
    total_bytes: int | None,
    seconds: float | None,
    is_random: bool,
    read_share: float,
    think_time_ns: int,
    is_verify: bool,
    pattern_seed: int,
    contents: str,
    start_lba: int,
    span_bytes: int | None,
    connections: int | str,
    measure_time_ns: int,
    measure_bytes: int | None,
    is_measured_at_once: bool,
    start_connections: int,
    most_connections: int,
    path_rate: int | None,
    sessions: int,
    layout: str,
    dealing: str,
    errors_allowed: int,
) -> dict[str, Any]:
    tuning = None
    if isinstance(connections, str):
        tuning = {
            "rule": connections,
            "measure_ns": measure_time_ns,
            "measure_bytes": measure_bytes,
            "is_unsettled": is_measured_at_once,
            "start_connections": start_connections,
            "most_connections": most_connections,
            "line_bytes_per_s": None if path_rate is None else path_rate / _BITS,
        }
    return {
        "block_size_bytes": block_size,
        "system_call_bytes": system_call_size,
        "max_transfer_bytes": max_transfer,
        "queue_depth": queue_depth,
        "total_bytes": total_bytes,
        "duration_ns": None if seconds is None else round(seconds * _SECOND_NS),
        "access": "random" if is_random else "sequential",
        "read_share": read_share,
        "think_time_ns": think_time_ns,
        "verify": is_verify,
        "pattern_seed": pattern_seed,
        "contents": contents,
        "start_lba": start_lba,
        "span_bytes": span_bytes,
        "connections": 1 if isinstance(connections, str) else connections,
        "tuning": tuning,
        "sessions": sessions,
        "layout": layout,
        "dealing": dealing.replace("-", "_"),
        "errors_allowed": errors_allowed,
    }


WORKLOAD = Section(
    "Workload",
    _workload,
    option("--block-size", type=Size(), default="64K", show_default=True, help="PDU block size, 512 to 16M."),
    option("--system-call-size", type=Size(), help="Size of a system call, which is cut into commands as by a kernel."),
    option("--max-transfer", type=Size(), help="Most that one command of a system call carries; else a block."),
    option(
        "--queue-depth",
        type=click.IntRange(1, 65_536),
        default=1,
        show_default=True,
        help="System calls under way per session; with --connections auto per connection.",
    ),
    option("--bytes", "total_bytes", type=Size(), help="How much in all."),
    option("--seconds", type=click.FloatRange(min=0, min_open=True), help="For how long."),
    option("--random", "is_random", is_flag=True, help="Anywhere in the span, at multiples of the block size."),
    option("--read-share", type=Share(), default="50%", show_default=True, help="Of a mixed workload."),
    option("--think-time", "think_time_ns", type=Duration(), default="0s", help="Pause between a call and the next."),
    option("--verify", "is_verify", is_flag=True, help="What is read has to be the pattern that writes carry."),
    option("--pattern-seed", type=click.IntRange(min=0), default=1, show_default=True, help="Which pattern."),
    option("--zeros", "contents", flag_value="zeros", default="pattern", help="Write zeros, not a pattern."),
    option("--start-lba", type=click.IntRange(min=0), default=0, help="First logical block."),
    option("--span", "span_bytes", type=Size(), help="Bytes from there on that are used; else all."),
    option(
        "--connections",
        type=Connections(),
        default=1,
        show_default=True,
        help="Connections per session (MC/S); auto looks for their number while data flow, by the model (auto:model) "
        "or by golden section (auto:golden).",
    ),
    option(
        "--measure-time",
        "measure_time_ns",
        type=Duration(),
        default="3s",
        show_default=True,
        help="Of auto: how long each number of connections is measured.",
    ),
    option("--measure-bytes", type=Size(), help="Of auto: measure until so much has come, in place of a time."),
    option(
        "--measure-at-once",
        "is_measured_at_once",
        is_flag=True,
        help="Of auto: measure from a change on, not from when each connection has ended a command since; and count "
        "commands that ended, not data as they come.",
    ),
    option(
        "--start-connections",
        type=click.IntRange(1, MOST_CONNECTIONS),
        default=4,
        show_default=True,
        help="Of auto:golden: with how many it begins.",
    ),
    option(
        "--most-connections",
        type=click.IntRange(1, MOST_CONNECTIONS),
        default=MOST_CONNECTIONS,
        show_default=True,
        help="Of auto: never more; nor more than the target takes.",
    ),
    option("--path-rate", type=Rate(), help="Of auto:model: what the path carries, where it is known."),
    option("--sessions", type=click.IntRange(1, 1024), default=1, show_default=True, help="Sessions per target."),
    option("--stripe", "layout", flag_value="stripe", default="stripe", help="Deal blocks over targets (default)."),
    option("--mirror", "layout", flag_value="mirror", help="Write to every target: done when the slowest is."),
    option(
        "--deal",
        "dealing",
        type=click.Choice(_DEALING),
        default=_DEALING[0],
        show_default=True,
        help="Which connection of a session gets the next command.",
    ),
    option(
        "--errors-allowed", type=click.IntRange(min=0), default=0, help="Commands that may fail before the run ends."
    ),
)


def _offers(*, header_digest: list[str] | None, data_digest: list[str] | None, keys: tuple[Any, ...]) -> dict[str, Any]:
    digests = {"header_digest": header_digest, "data_digest": data_digest}
    return {name: value for name, value in digests.items() if value} | dict(keys)


KEYS = Section(
    "Login keys",
    _offers,
    option("--header-digest", type=Digests(), help="none, crc32c, or crc32c,none."),
    option("--data-digest", type=Digests(), help="none, crc32c, or crc32c,none."),
    option(
        "--key",
        "keys",
        type=Key(),
        multiple=True,
        help="Any operational key, like MaxBurstLength=65536 or InitialR2T=Yes; without a value it is not named.",
    ),
)
