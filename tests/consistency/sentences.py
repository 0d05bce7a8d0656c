"""The numbers in sentences of findings and headlines. Most are a finding's own; these stand elsewhere, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.consistency.said import Said, printed

_NUMBER: Final = r"([\d,]*\d(?:\.\d+)?)"
_UNIT: Final = r"(ns|µs|ms|s|bytes|KiB|MiB|GiB|MB/s|%)"
_ANY: Final = re.compile(rf"(?<![\w.:-]){_NUMBER}(?: {_UNIT}(?!\w))?(?![\w.:-])")


def _pattern(words: str) -> re.Pattern[str]:
    """``#`` is a number, ``@`` one with its unit."""
    return re.compile(words.replace("#", f"{_NUMBER}()").replace("@", f"{_NUMBER} {_UNIT}"))


# name of the finding, or empty for the headline; the sentence; the definitions of its numbers
SHARED: Final = tuple(
    (finding, _pattern(words), names)
    for finding, words, names in (
        ("receive_window_small", "receive window held the \\w+ for @", ("time: receive_window",)),
        ("receive_window_small", "it is at most @", ("largest receive window",)),
        ("queue_depth_low", r"\(queue depth #\); RTT @", ("queue depth", "RTT of the path")),
        ("block_size_small", "the RTT is @: @ I/O", ("RTT of the path", "I/O size")),
        ("loss", r"# loss(?:es)? to .* \(# retransmissions?", ("losses", "retransmissions in recoveries")),
        ("loss", "packets\\) cost @", ("time: loss_recovery",)),
        ("congestion_window_small", "with # loss(?:es)?", ("losses",)),
        ("slow_target", "service time @ with every command", ("time: target_service",)),
        ("line_saturated", "at its rate of @", ("rate of the line",)),
        ("line_shared", "fill its rate of @", ("rate of the line",)),
        ("", "Shares are of @ of busy time", ("busy time",)),
        ("", "no command was in flight for another @", ("excluded: idle",)),
        ("", "The device scan took @", ("excluded: scan",)),
        ("", "Other work took @", ("excluded: scan",)),
        ("", "SYNCHRONIZE CACHE took @ apart", ("excluded: flush",)),
        ("", r"is network RTT \(@\)", ("RTT of the path",)),
        ("", "receive-window-limited: @ of the time", ("share: receive_window",)),
        ("", "cwnd-limited: @ of the time", ("share: congestion_window",)),
        ("", "send-buffer-limited: @ of the time", ("share: send_buffer",)),
        ("", "latency-bound: @ of the time", ("share: propagation",)),
        ("", "target-bound: @ of the time", ("share: target_service",)),
        ("", "line-bound: @ of the time", ("share: transfer",)),
        ("", "initiator-bound: @ of the time is initiator think", ("share: initiator_think",)),
        ("", "initiator-bound: @ of the time is initiator service", ("share: initiator_service",)),
        ("", "ACK-limited: @ of the time", ("share: ack_wait",)),
    )
)


def numbers(finding: str, text: str, subject: str, place: str) -> Iterator[Said]:
    """All numbers of a sentence: those that stand elsewhere by their definition, the others as the finding's own."""
    taken: set[int] = set()
    for owner, pattern, names in SHARED:
        for match in pattern.finditer(text) if owner in ("", finding) else ():
            for place_of, name in enumerate(names):
                digits, unit = match.group(2 * place_of + 1, 2 * place_of + 2)
                taken.add(match.start(2 * place_of + 1))
                yield printed(name, subject, digits, unit or "", place)
    template = _ANY.sub("#", text)
    for number, match in enumerate(_ANY.finditer(text)):
        if match.start() not in taken:
            digits, unit = match.groups()
            name = f"{finding or 'headline'}, number {number} in '{template}'"
            yield printed(name, subject, digits, unit or "", place)
