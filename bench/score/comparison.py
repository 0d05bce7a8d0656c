"""Two scores compared, cell by cell; and the totals of one. Pure functions of rows."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.score.known import RECORDED, SIMULATED
from bench.score.rows import COLUMNS, KEY, QUANTITIES, TEXTS, Quantity, Row

VERDICTS: Final = ("better", "equal", "worse", "new", "gone")
"""The last two: there was no number before, there is none now."""
_FLAGS: Final = {"yes": 1.0, "no": 0.0}


@dataclass(frozen=True)
class Change:
    """A cell that is not equal to what it was."""

    name: str
    quantity: str
    before: str
    after: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.name}: {self.quantity} {self.before or '-'} -> {self.after or '-'}"


@dataclass(frozen=True)
class Comparison:
    """What became of the cells of all runs that are in both scores."""

    counts: Counter[tuple[str, str]]
    """By quantity and verdict."""
    changes: tuple[Change, ...]
    unmatched: tuple[str, ...]
    """Rows of these runs that only one of the scores has."""


def load(file: Path) -> list[Row]:
    """The rows of a score."""
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def save(rows: Iterable[Row], file: Path) -> None:
    """Writes the rows of a score."""
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def verdict(quantity: Quantity, before: str, after: str) -> str:
    """What became of a cell, one of VERDICTS; empty where it is empty in both."""
    if not before or not after:
        return "new" if after else "gone" if before else ""
    old, new = (_FLAGS[each] if each in _FLAGS else float(each) for each in (before, after))
    gain = new - old if quantity.is_more_better else abs(old) - abs(new)
    return "equal" if abs(gain) <= quantity.noise else "better" if gain > 0 else "worse"


def shared(before: Iterable[Row], after: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of both scores, of the runs that both have."""
    rows = list(before), list(after)
    old, new = ({(row["source"], row["run"]) for row in each} for each in rows)
    kept = [[row for row in each if (row["source"], row["run"]) in old & new] for each in rows]
    return kept[0], kept[1]


def compare(before: Iterable[Row], after: Iterable[Row]) -> Comparison:
    """The new score against the old one, of the same runs."""
    old, new = ({tuple(row[name] for name in KEY): row for row in rows} for rows in (before, after))
    counts: Counter[tuple[str, str]] = Counter()
    changes = []
    for key in sorted(old.keys() & new.keys()):
        for name, one, other in ((name, old[key][name], new[key][name]) for name in (*QUANTITIES, *TEXTS)):
            if name in QUANTITIES:
                found = verdict(QUANTITIES[name], one, other)
            else:
                found = "equal" if one == other else "changed"
            counts[name, found] += 1
            if found not in {"", "equal"}:
                changes.append(Change(_name(key), name, one, other, found))
    unmatched = [_name(key) for key in sorted(old.keys() ^ new.keys())]
    return Comparison(counts, tuple(changes), tuple(unmatched))


def _name(key: Sequence[str]) -> str:
    return ", ".join(part for part in key[1:] if part)


def totals(rows: Sequence[Row]) -> Iterator[str]:
    """The sums that a score is judged by, as lines."""
    for source in (RECORDED, SIMULATED):
        own = [row for row in rows if row["source"] == source]
        told = [row for row in own if row["cwnd_median"]]
        good = [row for row in told if _is_good(row, "cwnd_median") and _is_good(row, "cwnd_p95")]
        valid = [float(row["cwnd_valid"]) for row in own if row["cwnd_valid"]]
        yield (
            f"{source}: congestion window good for {len(good)} of {len(told)} senders at a tap with an estimate; "
            f"{len(valid)} had a window, valid in the median {median(valid) if valid else 0:.0f} % of the time"
        )
        yield f"{source}: good " + ", ".join(
            f"{name} {sum(_is_good(row, name) for row in known)} of {len(known)}"
            for name, quantity in QUANTITIES.items()
            if quantity.limit is not None and (known := [row for row in own if row[name]])
        )
        yield f"{source}: yes " + ", ".join(
            f"{name} {sum(row[name] == 'yes' for row in known)} of {len(known)}"
            for name in QUANTITIES
            if (known := [row for row in own if row[name] in _FLAGS])
        )


def _is_good(row: Row, name: str) -> bool:
    return abs(float(row[name])) <= (QUANTITIES[name].limit or 0)
