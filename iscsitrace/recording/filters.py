"""Position of an error in a capture filter; libpcap's message rarely contains it.

The position is found with libpcap itself: it is the first word after which no continuation of the filter compiles. This
module implements no grammar, so it cannot disagree with libpcap's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
