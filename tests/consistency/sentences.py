"""The numbers in sentences of findings and headlines. Most are a finding's own; these stand elsewhere, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.wording.parts import PARTS
from tests.consistency.said import Said, printed

_NUMBER: Final = r"([\d,]*\d(?:\.\d+)?)"
_UNIT: Final = r"(ns|µs|ms|s|bytes|KiB|MiB|GiB|MB/s|%)"
_ANY: Final = re.compile(rf"(?<![\w.:-]){_NUMBER}(?: {_UNIT}(?!\w))?(?![\w.:-])")


def _pattern(words: str) -> re.Pattern[str]:
    """``#`` is a number, ``@`` one with its unit."""
    return re.compile(words.replace("#", f"{_NUMBER}()").replace("@", f"{_NUMBER} {_UNIT}"))


OF_A_PIECE: Final = frozenset(
    {
        *("ack_loss", "r2t_rounds", "r2t_late", "unsolicited_data_unused", "reordering", "slow_operation", "slow_lun"),
        "latency_outliers",
        "mirror_waits_for_farthest",
    }
)
"""Findings that explain only a piece of their part, and say which: no more than it."""
_SHARES: Final = tuple(
    (problem.name, r"[(;] ?@ of the I/O time\)", (f"share: {problem.explains.part}",))
    for problem in PROBLEMS.values()
    # with ack_loss, loss_recovery has two causes
    if problem.explains and problem.name not in OF_A_PIECE and problem.explains.part != "loss_recovery"
)
_LARGEST: Final = tuple(
    ("", f"largest part of the I/O time is {re.escape(part.spent)} \\(@\\)", (f"share: {part.name}",)) for part in PARTS
)

# name of the finding, or empty for the headline; the sentence; the definitions of its numbers
SHARED: Final = tuple(
    (finding, _pattern(words), names)
    for finding, words, names in (
        ("receive_window_small", r"window \(@\) was full for @", ("largest receive window", "time: receive_window")),
        ("receive_window_small", "window was full for @", ("time: receive_window",)),
        ("receive_window_small", "stopped at @ again", ("largest receive window",)),
        ("queue_depth_low", "issues one @ ", ("I/O size",)),
        ("queue_depth_low", "keeps # \\w+ of @ in flight", ("queue depth", "I/O size")),
        ("queue_depth_low", "A round trip takes at least @", ("RTT of the path",)),
        ("block_size_small", "The I/O size of @", ("I/O size",)),
        ("block_size_small", "a round trip of @", ("RTT of the path",)),
        ("loss", "I/O waited @ for retransmissions", ("time: loss_recovery",)),
        ("loss", "were lost # times", ("losses",)),
        ("congestion_window_small", "were lost # times", ("losses",)),
        ("slow_target", "waited @ for the target in total", ("time: target_service",)),
        ("line_saturated", r"has been full(?: both ways)? since [\d.]+ s, at @", ("rate of the line",)),
        ("line_shared", r"have filled it(?: both ways)? since [\d.]+ s, at @", ("rate of the line",)),
        ("", "a round trip takes at least @", ("RTT of the path",)),
        *_SHARES,
        *_LARGEST,
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
