"""A table as CSV (RFC 4180 quoting, LF line ends), column by column instead of cell by cell.

Header row; nulls empty; booleans true/false; categories as words; numbers in decimal, times as int64 nanoseconds.
The same table gives the same bytes, whatever is installed.

Each chunk of rows becomes one matrix of bytes: every column a fixed number of bytes wide, padded with NUL, commas
and line ends between; then all NULs are dropped at once. So no NUL may be part of a cell: text has its own replaced.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from iscsitrace.tables.table import Table
from iscsitrace.wording.cells import printable

Cells = NDArray[np.uint8]
"""A matrix of bytes, one row per cell, padded with NUL."""

_Quote = Callable[[str], bytes]
_FORMULA_STARTS = ("=", "+", "-", "@", "|", "%")

_CHUNK_BYTES = 16 << 20
_GROUP = 10_000  # four decimal digits at a time


def _digit_groups() -> tuple[Cells, Cells]:
    """The texts of 0 to 9999: with leading zeros, and with NULs in their place (0 being all NULs)."""
    numbers = np.arange(_GROUP)
    digits = np.stack([numbers // 1000, numbers // 100 % 10, numbers // 10 % 10, numbers % 10], axis=1)
    padded = (digits + ord("0")).astype(np.uint8)
    is_leading = np.cumsum(digits, axis=1) == 0
    return padded, np.where(is_leading, np.uint8(0), padded)


_PADDED, _STRIPPED = (texts.copy().view(np.uint32).ravel() for texts in _digit_groups())


def write_csv(
    table: Table,
    stream: BinaryIO,
    names: Sequence[str] | None = None,
    separator: str = ",",
    *,
    is_neutral: bool = False,
) -> None:
    """Writes header and rows of a table to a binary stream; ``names`` picks columns, ``is_neutral`` is of `neutral`.

    Another separator than the comma has to be a character that no text of the table holds: only commas are quoted.
    """
    names = table.keys() if names is None else list(names)
    stream.write((separator.join(names) + "\n").encode())
    if not len(table) or not names:
        return
    quote = _quote_neutral if is_neutral else _quote
    row_bytes = sum(_width(table, name, quote) + 1 for name in names)
    rows = max(1, min(len(table), _CHUNK_BYTES // row_bytes))
    for start in range(0, len(table), rows):
        chunk = table.select(slice(start, start + rows))
        stream.write(_text(chunk, names, separator, quote))


def _width(table: Table, name: str, quote: _Quote) -> int:
    dtype = table.column(name).dtype
    if dtype == "str":
        return max((len(quote(text)) for text in table.raw(name)), default=0)
    return max((len(word) for word in table.words(name)), default=8) if dtype.startswith("category:") else 21


def _text(table: Table, names: Sequence[str], separator: str, quote: _Quote) -> bytes:
    parts: list[Cells] = []
    for name in names:
        parts += (_cells(table, name, quote), np.full((len(table), 1), ord(separator), dtype=np.uint8))
    parts[-1] = np.full((len(table), 1), ord("\n"), dtype=np.uint8)
    matrix: Cells = np.concatenate(parts, axis=1).ravel()
    text: bytes = matrix[matrix != 0].tobytes()
    return text


def _cells(table: Table, name: str, quote: _Quote) -> Cells:
    dtype, mask = table.column(name).dtype, table.mask(name)
    if dtype == "str":
        return _fixed_width([quote(text) for text in table.raw(name)])
    if dtype == "bool":
        return _fixed_width([b"false", b"true"])[table.raw(name).astype(np.uint8)]
    if dtype.startswith("category:"):
        return _fixed_width([_quote(word or "") for word in table.words_by_code(name)])[table.raw(name)]
    if dtype == "float64":
        return _fixed_width([repr(value).encode() for value in table.raw(name).tolist()])
    cells = _decimal(np.asarray(table.raw(name)))
    if mask is not None:
        cells[mask] = 0
    return cells


def _decimal(values: NDArray[Any]) -> Cells:
    """Integers of any dtype as decimal text."""
    is_negative = values < 0
    # -v in uint64 arithmetic is right for the smallest int64, whose negation does not exist
    rest = values.astype(np.uint64)
    rest = np.where(is_negative, np.uint64(0) - rest, rest)
    group_count = max(1, -(-len(str(int(rest.max()))) // 4))
    groups = np.empty((len(values), group_count), dtype=np.uint32)
    has_sign = bool(is_negative.any())
    for place in range(group_count - 1, -1, -1):
        higher = rest // np.uint64(_GROUP)
        group = (rest - higher * np.uint64(_GROUP)).astype(np.intp)
        groups[:, place] = np.where(higher == 0, _STRIPPED[group], _PADDED[group])
        rest = higher
    cells = groups.view(np.uint8)
    cells[values == 0, -1] = ord("0")
    if not has_sign:
        return cells
    sign = np.where(is_negative, np.uint8(ord("-")), np.uint8(0))[:, np.newaxis]
    return np.concatenate([sign, cells], axis=1)


def _fixed_width(texts: Sequence[bytes]) -> Cells:
    width = max(1, max((len(text) for text in texts), default=1))
    return np.array(texts, dtype=f"S{width}").view(np.uint8).reshape(len(texts), width)


def neutral(text: str) -> str:
    r"""Text that neither a terminal nor a spreadsheet acts on: names in a capture are a stranger's.

    Characters that control a terminal or the direction of text become their codes, such as ``\x1b``. A text that a
    spreadsheet takes for a formula, by its first character, gets an apostrophe in front, as OWASP advises.
    """
    text = printable(text)
    return f"'{text}" if unicodedata.normalize("NFKC", text.lstrip()[:1]) in _FORMULA_STARTS else text


def _quote_neutral(text: str) -> bytes:
    return _quote(neutral(text))


def _quote(text: str) -> bytes:
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if any(mark in text for mark in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode("utf-8", "replace")
