"""A condition on the rows of a table, as people write it: ``latency > 10ms && operation == read``.

The text is checked against the columns before a capture is read. The language is that of Wireshark's display filters,
without its functions, over columns. A comparison with a missing value is false. Never evaluates Python.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from iscsitrace.errors import InputInvalid
from iscsitrace.tables.nulls import known
from iscsitrace.tables.schema import CATEGORIES, WORDS, Column
from iscsitrace.tables.table import Array, Table
from iscsitrace.wording.quantities import SIZE, TIME, parse_quantity
from iscsitrace.wording.sentences import some

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?[A-Za-z]*))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z_]+)*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||\.\.|[<>!(){},=]))""",
    re.VERBOSE | re.ASCII,
)
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SPELLINGS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&&",
    "or": "||",
    "not": "!",
}
"""Words for signs."""
_NAME: Final = re.compile(r"[A-Za-z_]")
"""The first letter of a name."""
_SIGNS: Final = (*_COMPARE, *("&&", "||", "!", "(", ")", "{", "}", ",", "=", ".."))
_BEHIND_COLUMNS: Final = (*_COMPARE, "in", "contains")
_MOST_NAMED: Final = 6
"""Columns that a message names."""
_MOST_WORDS: Final = 12
"""Words of a column that a message names."""
_MOST_CHARACTERS: Final = 10_000
_MOST_DEPTH: Final = 50
_ORDERED: Final = ("severity",)
"""Categories whose words are in order, the least first."""
_UNIT_SUFFIXES: Final = ("_ns", "_bytes")


class Values(NamedTuple):
    """A column while rows are compared."""

    values: Array
    is_known: Array
    is_least: Array | None = None
    """Where the true value is this or more."""


@dataclass(frozen=True)
class Columns:
    """What a condition can name: the columns of one table."""

    table: str
    columns: tuple[Column, ...]
    instants: frozenset[str] = frozenset()
    """Those that are points in time, which are compared as times since the start."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    headings: Mapping[str, str] = field(default_factory=dict)
    """The column under each heading of the table that a person reads."""
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The words of columns that hold numbers, such as SCSI statuses."""

    def find(self, name: str) -> Column:
        """The column of a name; without the unit at its end, too. InputInvalid with the nearest name otherwise."""
        self.require([name])
        return self._named[self._spelled(name) or name]

    def require(self, names: Iterable[str]) -> None:
        """InputInvalid, with the nearest name for each, unless all of these are columns."""
        unknown = [name for name in dict.fromkeys(names) if self._spelled(name) is None]
        if len(unknown) == 1:
            raise InputInvalid(f"{self.table} has no column {unknown[0]}{_asked(self._nearest(unknown[0]))}")
        if unknown:
            each = (name + (f" (did you mean {near}?)" if (near := self._nearest(name)) else "") for name in unknown)
            raise InputInvalid(f"{self.table} has no columns {', '.join(each)}")

    @cached_property
    def _named(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def _spelled(self, name: str) -> str | None:
        """The name of the column that is meant."""
        spellings = (name, self.other_names.get(name), *(name + suffix for suffix in _UNIT_SUFFIXES))
        return next((each for each in spellings if each in self._named), None)

    def _nearest(self, name: str) -> str:
        """What is meant by a name that is not that of a column; empty where nothing is like it."""
        known_names = [*self._named, *self.other_names, *(_without_unit(each) for each in self._named)]
        if found := self._under(lambda heading: heading == name.casefold()) or _near(name, known_names):
            return found
        # a field of Wireshark: frame.number, scsi.lun
        kinds = reversed(name.split(".")) if "." in name else ()
        of_kind = ([each for each in self._named if kind in each.split("_")] for kind in kinds)
        return " or ".join(next(filter(None, of_kind), [])[:_MOST_NAMED])

    def headed(self, name: str) -> str:
        """The column under a heading that is also the name of another column; nothing for others."""
        column = self.headings.get(name, name)
        return _asked(column) if column != name else ""

    def with_word(self, word: str) -> str:
        """The columns that have a word which another column lacks."""
        found = (column.name for column in self.columns if word in self.words_of(column))
        return _asked(" or ".join(f"{name} == {word}" for name in found))

    def meant(self, text: str) -> str:
        """The columns under headings of several words, or with a sign, that a text has instead of names."""
        words = text.casefold()
        return _asked(self._under(lambda heading: not heading.isidentifier() and heading in words))

    def _under(self, is_meant: Callable[[str], bool]) -> str:
        """The columns under the headings that are meant."""
        return " and ".join(
            _without_unit(column) for heading, column in self.headings.items() if is_meant(heading.casefold())
        )

    def words_of(self, column: Column) -> Mapping[str, int]:
        """The code of each word of a column; empty for a column of plain numbers."""
        category, _, words = column.dtype.partition(":")
        if category == "category":
            return {word: code for code, word in enumerate(CATEGORIES[words] or WORDS.get(words, ()))}
        return self.words.get(column.name, {})


class _Rows:
    """The rows that a condition is evaluated for."""

    def __init__(self, table: Table, start_ns: int, least: Mapping[str, Values]) -> None:
        self.table = table
        self.start_ns = start_ns
        self._least = least

    def values(self, column: Column) -> Values:
        if column.name in self._least:
            return self._least[column.name]
        return Values(self.table.raw(column.name), known(self.table, column.name))


_Test = Callable[[_Rows], Array]


class Condition:
    """A condition that was checked against the columns of a table."""

    def __init__(self, text: str, columns: Columns) -> None:
        """InputInvalid, in one line, for a text that is not a condition on these columns."""
        self.text = text
        try:
            self._test = _Parser(text, columns).read()
        except InputInvalid as error:
            raise InputInvalid(f"filter {text[:80]!r}: {error}{columns.meant(text)}") from None

    def rows(self, table: Table, start_ns: int = 0, least: Mapping[str, Values] | None = None) -> Array:
        """Which rows meet it. Instants count from ``start_ns``; ``least`` replaces columns of the table."""
        found: Array = np.broadcast_to(self._test(_Rows(table, start_ns, least or {})), len(table))
        return found


class _Parser:
    """Reads a text from left to right: ``||`` binds least, then ``&&``, then ``!``."""

    def __init__(self, text: str, columns: Columns) -> None:
        self._columns = columns
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0
        following = [*self._tokens[1:], ""]
        pairs = zip(self._tokens, following, strict=True)
        columns.require(one for one, sign in pairs if _NAME.match(one) and sign in _BEHIND_COLUMNS)

    def read(self) -> _Test:
        found = self._any_of()
        if self._next:
            self._refuse(f"unexpected {self._next}")
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        found = self._next
        self._place += 1
        return found

    def _refuse(self, why: str) -> NoReturn:
        after = " ".join(self._tokens[max(self._place - 3, 0) : self._place])
        raise InputInvalid(f"{why}{f' after {after}' if after else ''}")

    def _any_of(self) -> _Test:
        tests = [self._all_of()]
        while self._next == "||":
            self._take()
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else lambda rows: np.any([test(rows) for test in tests], axis=0)

    def _all_of(self) -> _Test:
        tests = [self._one()]
        while self._next == "&&":
            self._take()
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda rows: np.all([test(rows) for test in tests], axis=0)

    def _one(self) -> _Test:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self._refuse("too many parentheses")
        if self._next == "!":
            self._take()
            inner = self._one()
            found: _Test = lambda rows: ~inner(rows)  # noqa: E731
        elif self._next == "(":
            self._take()
            found = self._any_of()
            if self._next != ")":
                self._refuse(f"expected ) and found {self._next or 'the end'}")
            self._take()
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> _Test:
        if not _NAME.match(self._next):
            self._refuse(f"expected a column and found {self._next or 'the end'}")
        column = self._columns.find(self._take())
        sign = self._next
        if sign in _COMPARE:
            self._take()
            return self._compared(column, sign)
        if sign == "contains":
            self._take()
            return self._containing(column)
        if sign == "in":
            self._take()
            return self._among(column)
        if sign == "=":
            self._refuse("= is not a comparison: write ==")
        if sign not in ("", ")", "&&", "||"):
            self._refuse(f"expected a comparison (== != < <= > >= in contains) and found {sign}")
        if column.dtype == "bool":
            return lambda rows: _bool(rows.values(column))
        # as in Wireshark: whether there is a value
        return lambda rows: rows.values(column).is_known

    def _compared(self, column: Column, sign: str) -> _Test:
        other = self._other_column(column)
        if other is not None:
            self._take()
            return lambda rows: _of_columns(rows.values(column), sign, rows.values(other))
        value = self._value(column)
        if sign not in ("==", "!=") and not _is_ordered(column):
            raise InputInvalid(f"{column.name} has no order: compare it by ==, != or in")
        return lambda rows: _of_value(rows.values(column), sign, _at(rows, self._columns, column, value))

    def _other_column(self, column: Column) -> Column | None:
        """A second column instead of a value: both must be numbers of one unit."""
        token = self._next
        if not _NAME.match(token) or self._columns.words_of(column) or column.dtype in ("str", "bool"):
            return None
        try:
            other = self._columns.find(token)
        except InputInvalid:
            raise InputInvalid(f"{column.name} has no value {token}{self._columns.with_word(token)}") from None
        is_instant = [each.name in self._columns.instants for each in (column, other)]
        if other.unit != column.unit or len(set(is_instant)) > 1 or other.dtype in ("str", "bool"):
            raise InputInvalid(f"{column.name} and {other.name} cannot be compared: they are different quantities")
        return other

    def _containing(self, column: Column) -> _Test:
        part = _unquoted(self._take())
        if not part:
            self._refuse("expected a text")
        if column.dtype == "str":
            return lambda rows: np.array([part in text for text in rows.table.raw(column.name)], dtype=bool)
        codes = [code for word, code in self._columns.words_of(column).items() if part in word]
        if not self._columns.words_of(column):
            raise InputInvalid(f"{column.name} holds numbers: contains is for text{self._columns.headed(column.name)}")
        return lambda rows: _among_values(rows.values(column), codes)

    def _among(self, column: Column) -> _Test:
        closing = {"{": "}", "(": ")"}.get(self._take())
        if closing is None:
            self._refuse("expected {")
        tests: list[_Test] = []
        while True:
            tests.append(self._item(column))
            sign = self._take()
            if sign == closing:
                return lambda rows: np.any([test(rows) for test in tests], axis=0)
            if sign != ",":
                self._refuse(f"expected , or {closing}")

    def _item(self, column: Column) -> _Test:
        """One value of a set, or a range of values."""
        first = self._value(column)
        if self._next != "..":
            return lambda rows: _of_value(rows.values(column), "==", _at(rows, self._columns, column, first))
        self._take()
        last = self._value(column)
        if not _is_ordered(column):
            raise InputInvalid(f"{column.name} has no order: name each value")
        return lambda rows: (
            _of_value(rows.values(column), ">=", _at(rows, self._columns, column, first))
            & _of_value(rows.values(column), "<=", _at(rows, self._columns, column, last))
        )

    def _value(self, column: Column) -> int | str:
        """A value of a column: a number with its unit, a word, a text."""
        token = self._take()
        if not token or token in _SIGNS:
            self._refuse("expected a value")
        text = _unquoted(token)
        if column.dtype == "str":
            return text
        words = self._columns.words_of(column)
        if words:
            return _code(text, column, words)
        if column.dtype == "bool":
            return _code(text.lower(), column, {"true": 1, "false": 0, "1": 1, "0": 0})
        try:
            return _number(text, column)
        except InputInvalid as error:
            raise InputInvalid(f"{error}{self._columns.with_word(text)}") from None


def _tokens(text: str) -> list[str]:
    if len(text) > _MOST_CHARACTERS:
        raise InputInvalid(f"longer than {_MOST_CHARACTERS:,} characters")
    found, place, end = [], 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise InputInvalid(f"unexpected {text[place:].strip()[:20]}")
        token = match[match.lastgroup or 0]
        found.append(_SPELLINGS.get(token, token) if match.lastgroup == "name" else token)
        place = match.end()
    if not found:
        raise InputInvalid("it is empty")
    return found


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token[:1] in ("'", '"') else token


def _without_unit(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in _UNIT_SUFFIXES if name.endswith(suffix)), name)


def _near(name: str, names: Iterable[str]) -> str:
    return next(iter(get_close_matches(name, dict.fromkeys(names), n=1)), "")


def _asked(name: str) -> str:
    return f"; did you mean {name}?" if name else ""


def _code(text: str, column: Column, words: Mapping[str, int]) -> int:
    """The code of a word; in a column of numbers also the number."""
    spelling = text.lower().replace(" ", "_")
    by_spelling = {word.lower().replace(" ", "_"): code for word, code in words.items()}
    if spelling in by_spelling:
        return by_spelling[spelling]
    if not column.dtype.startswith("category:") and column.dtype != "bool":
        try:
            return int(text, 0)
        except ValueError:
            pass
    near = _asked(_near(spelling, by_spelling))
    near = near or f"; there are {some([*by_spelling][:_MOST_WORDS], len(by_spelling))}"
    raise InputInvalid(f"{column.name} has no value {text}{near}")


def _number(text: str, column: Column) -> int:
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", digits):
        return sign * int(digits, 16)
    kind = {"ns": TIME, "bytes": SIZE}.get(column.unit)
    found = kind.parse(digits) if kind else parse_quantity(digits, {"": 1})
    if found is None:
        raise InputInvalid(f"{column.name}: {text!r} is not {kind.needed if kind else 'a whole number'}")
    return sign * int(found)


def _is_ordered(column: Column) -> bool:
    category, _, words = column.dtype.partition(":")
    return words in _ORDERED if category == "category" else column.dtype not in ("bool", "str")


def _at(rows: _Rows, columns: Columns, column: Column, value: int | str) -> int | str:
    """A value as the table has it: an instant was written as a time since the start."""
    return value + rows.start_ns if isinstance(value, int) and column.name in columns.instants else value


def _bool(one: Values) -> Array:
    return np.asarray(one.values.astype(bool) & one.is_known)


def _of_value(one: Values, sign: str, value: int | str) -> Array:
    holds = np.asarray(_COMPARE[sign](one.values, value), dtype=bool)
    if one.is_least is not None:
        # all that is sure of a least value: it is above what is below it
        holds = np.where(one.is_least, _COMPARE[">" if sign in ("!=", ">") else ">="](one.values, value), holds)
        holds &= ~one.is_least if sign in ("==", "<", "<=") else True
    return np.asarray(holds & one.is_known)


def _of_columns(one: Values, sign: str, other: Values) -> Array:
    holds = np.asarray(_COMPARE[sign](one.values, other.values), dtype=bool) & one.is_known & other.is_known
    for each in (one, other):
        if each.is_least is not None:
            holds &= ~each.is_least
    return holds


def _among_values(one: Values, codes: list[int]) -> Array:
    return np.asarray(np.isin(one.values, codes) & one.is_known)
