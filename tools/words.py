"""Finds paraphrases of terms for which the field has a word, and docs that have become too long.

``python -m tools.words`` prints each with its place and the word to use instead, and exits with 1 if there is one. It
reads every tracked text file: output strings, docs, docstrings and comments. ``--pages`` prints the words of each page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHRASES = {
    r"there and back": "RTT",
    r"path of [\d.]+ ms": "RTT",
    r"(keys|values?|parameters?) (that are )?in force": "negotiated parameters",
    r"neither reads? nor writes?|neither read nor wrote": "non-I/O commands",
    r"(what|all that) (is|was) outstanding": "commands in flight; for TCP: bytes in flight",
    r"tasks outstanding|outstanding tasks": "commands in flight, queue depth",
    r"(for )?leave to send|asks? for leave": "needs R2Ts",
    r"over .{1,20} for half of|for half of \d": "median",
    r"(packets?|bytes|data|lost|be|is|was|are|were|what is) sent again": "retransmission",
    r"may be chance": "too few commands to be sure",
    r"lets? (the )?data go": "is cwnd-limited",
    r"room in the (receiver's )?window": "is receive-window-limited",
    r"asks? for (something|nothing)": "the initiator is idle",
    r"takes no time": "zero service time",
    r"with(out)? (an|its|their) echo(es)?": "without an answer",
    r"own(s|er of)? (the|each|every) (time|nanosecond)": "time breakdown; time is attributed to",
    r"diseases?": "problem; in code: finding",
    r"explained %|explained bytes|bytes explained": "decoded % of the captured bytes",
    r"gaps? (of|in) the capture": "missing from the capture",
    r"path holds": "bandwidth-delay product",
    r"legs of (a|the) mirror|mirror's legs": "mirror sides",
    r"jobs' time|time of the jobs": "I/O time",
    r"pauses? between jobs": "idle gaps between bursts of I/O",
    r"g[ai]ves? tasks up|gave (the |its )?tasks? up": "the initiator aborted commands",
    r"why is not said": "cause unknown",
    r"so many times|as it were|whichever": "(a plain sentence)",
    r"the same is true of": "(name what is the same)",
    r"did nothing but": "(what it did)",
    r"carried no (i?scsi )?commands": "no SCSI commands",
    r"known to \+-": "+-",
    r"limited by the distance": "limited by network latency",
    r"\d connects\b|connects (were|had)": "connection attempts",
    r"fault of the path": "path fault",
    r"lets? (this|an|the) (initiator|initiatorname) in": "allows this initiator",
    r"of unsure": "uncertain",
    r"queue stands|stands on the path": "standing queue",
    r"took the next login": "accepted the next login",
    r"issued again": "reissued",
}
# The boundary stands once, before the phrases: most places in a text are none. There a phrase is tried only where its
# first letter is, but one that ignores case always: phrases and text are in lower case.
_PATTERN = re.compile(rf"\b(?:{'|'.join(PHRASES)})")
MOST_WORDS = 60_000
"""Of all pages of docs/ that are written by hand. Who adds a page looks for what it replaces."""
_GENERATED = "; do not edit."
"""Stands at the beginning of a generated page."""
_SUFFIXES = {".py", ".pyi", ".rs", ".lua", ".md", ".toml", ".css", ".html", ".js"}
_LEFT_OUT = {"tools/words.py", "tests/tools/test_words.py", "CHANGELOG.md"}


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields line, phrase and the word to use instead; a phrase may continue on the next line."""
    lines = text.splitlines()
    bare = [re.sub(r"^[\s/#\-!*>\"f]*", "", line) for line in lines]
    for number, (line, following) in enumerate(zip(lines, [*bare[1:], ""], strict=False), 1):
        end = line.rstrip().removesuffix('"').rstrip()
        both = f"{end} {following}"
        for match in _PATTERN.finditer(both.lower()):
            # a phrase that begins on the next line is found there
            if match.start() < len(end):
                found = both[slice(*match.span())]
                yield number, found, next(word for phrase, word in PHRASES.items() if re.fullmatch(phrase, match[0]))


def pages() -> dict[str, tuple[int, bool]]:
    """The words of each page of docs/, and whether it is generated."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    return {name: (len(text.split()), _GENERATED in text[:500]) for name, text in texts.items()}


def main(arguments: list[str]) -> int:
    """Prints all phrases found; returns the exit code."""
    written = sum(words for words, is_generated in pages().values() if not is_generated)
    if "--pages" in arguments:
        for name, (words, is_generated) in pages().items():
            print(f"{words:7,} {name}{' (generated)' if is_generated else ''}")
        print(f"{written:7,} written by hand, of {MOST_WORDS:,}")
        return 0
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    count = 0
    for name in names:
        if Path(name).suffix not in _SUFFIXES or name in _LEFT_OUT or not (ROOT / name).is_file():
            continue
        for number, phrase, instead in found_in((ROOT / name).read_text(encoding="utf-8")):
            count += 1
            print(f"{name}:{number}: {phrase!r}: use {instead!r}")
    if written > MOST_WORDS:
        print(f"docs/: {written:,} words written by hand, at most {MOST_WORDS:,}: python -m tools.words --pages")
    return int(count > 0 or written > MOST_WORDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
