"""A table: named columns of equal length, filled by the core, with nulls masked and categories as words.

Columns are copied only where needed and never changed. It is not a ``Mapping``: ``len(table)`` counts rows, but
iterating yields column names (so ``dict(table)`` works). The schema has the meaning of each column.

A notebook shows a table as HTML, in which every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

from iscsitrace.errors import ExtraMissing
from iscsitrace.tables.schema import Column, Declaration
from iscsitrace.wording import cells
from iscsitrace.wording.amounts import count

if TYPE_CHECKING:
    import pandas
    import pyarrow

Array = NDArray[Any]

_TAKING = Lock()
"""A column can be taken once."""

_INDICES = (np.intp, np.int32)
"""Dtypes of row numbers that are kept as they are."""

NO_WORD = 255
"""Code of a category that is null."""


@cache
def null_value(dtype: str) -> int:
    """The null value of a nullable column of this integer dtype (the schema's null rule)."""
    limits = np.iinfo(dtype)
    return int(limits.max if limits.min == 0 else limits.min)


class Table:
    """One table of a trace.

    ``table["column"]`` is a one-dimensional NumPy array with ``len(table)`` items: a plain array; for a nullable
    column a ``numpy.ma.MaskedArray`` (True in the mask = null); for text and categories an object array of ``str``,
    with ``None`` for null. ``table[table["lun"] == 0]`` has the rows where that holds, as ``select`` makes it.
    """

    def __init__(
        self,
        declaration: Declaration,
        data: Mapping[str, Array | Sequence[str]],
        masks: Mapping[str, Array] | None = None,
        words: Mapping[str, Sequence[str]] | None = None,
        derived: Mapping[str, tuple[Column, Callable[[Table], Array]]] | None = None,
    ) -> None:
        """A table over ``data``, which must hold every declared column.

        ``masks`` are the null masks that do not follow from the values, ``words`` the words of each category,
        ``derived`` the columns computed from others on use. Raises ValueError if a column is missing, or if its length
        or dtype is wrong.
        """
        self._begin(declaration, masks, words, derived)
        for column in declaration.columns:
            if column.name not in data:
                raise ValueError(f"table {self.name} lacks column {column.name}")
            self._raw[column.name] = _as_array(self.name, column, data[column.name])
        lengths = {len(values) for values in self._raw.values()}
        if len(lengths) > 1:
            raise ValueError(f"table {self.name} has columns of lengths {sorted(lengths)}")
        self._length = lengths.pop() if lengths else 0

    @classmethod
    def of_pass(
        cls,
        declaration: Declaration,
        take: Callable[[str], Array | Sequence[str]],
        row_count: int,
        masks: Mapping[str, Array] | None = None,
        words: Mapping[str, Sequence[str]] | None = None,
        derived: Mapping[str, tuple[Column, Callable[[Table], Array]]] | None = None,
    ) -> Table:
        """A table whose columns ``take`` hands over when they are used: until then the core holds them in less memory.

        The other parameters are as of the class. ``take`` is called once for each column.
        """
        table = object.__new__(cls)
        table._begin(declaration, masks, words, derived)
        table._take = take
        table._length = row_count
        return table

    def _begin(
        self,
        declaration: Declaration,
        masks: Mapping[str, Array] | None,
        words: Mapping[str, Sequence[str]] | None,
        derived: Mapping[str, tuple[Column, Callable[[Table], Array]]] | None,
    ) -> None:
        self.name = declaration.name
        self._declaration = declaration
        self._words = words or {}
        self._derived = derived or {}
        self._raw: dict[str, Array] = {}
        self._take: Callable[[str], Array | Sequence[str]] | None = None
        self._masks: dict[str, Array | None] = dict(masks or {})
        self._shown: dict[str, Array] = {}
        self._by_code: dict[str, Array] = {}  # shared with all selections
        self._selected: tuple[Table, Any] | None = None  # whole table and index, for rows selected from another table
        self._each: dict[Callable[[Table], Array], Array] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(name == column.name for column in self.columns)

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows, {len(self.columns)} columns>"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declarations of the columns in order, derived ones last."""
        return (*self._declaration.columns, *(column for column, _ in self._derived.values()))

    def keys(self) -> list[str]:
        """The names of the columns in order."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """The declaration of a column; KeyError if there is none."""
        return self._derived[name][0] if name in self._derived else self._declaration.column(name)

    def raw(self, name: str) -> Array:
        """A column as stored: nulls as the null value, categories as uint8 codes."""
        if name not in self._raw:
            if name in self._derived:
                return np.ma.getdata(self[name])
            column = self.column(name)
            if self._selected is not None:
                whole, index = self._selected
                self._raw[name] = whole.raw(name)[index]
            elif self._take is not None:
                self._take_over(column, self._take)
        return self._raw[name]

    def _take_over(self, column: Column, take: Callable[[str], Array | Sequence[str]]) -> None:
        with _TAKING:
            if column.name not in self._raw:
                array = _as_array(self.name, column, take(column.name))
                if len(array) != len(self):
                    raise ValueError(f"column {column.name} of table {self.name} left the core before: read it again")
                self._raw[column.name] = array

    def mask(self, name: str) -> Array | None:
        """Boolean array, True where the column is null; None if the column is never null."""
        if name not in self._masks:
            if name in self._derived:
                return np.ma.getmaskarray(self[name])
            column = self.column(name)
            if self._selected is not None:
                whole, index = self._selected
                of_whole = whole.mask(name)
                self._masks[name] = None if of_whole is None else of_whole[index]
            else:
                self._masks[name] = self._null_values(column)
        return self._masks[name]

    def _null_values(self, column: Column) -> Array | None:
        """Mask of the null values of a column, by the null rule of the schema."""
        values = self.raw(column.name)
        if column.dtype.startswith("category:"):
            return np.asarray(values == NO_WORD, dtype=bool)
        if not column.nullable:
            return None
        return np.asarray(values == ("" if column.dtype == "str" else null_value(column.dtype)), dtype=bool)

    def _repr_html_(self) -> str:
        return preview(self.name, self.columns, len(self), lambda part: self.select(part).rows())

    @overload
    def __getitem__(self, name: str) -> Array: ...

    @overload
    def __getitem__(self, name: Array | Sequence[int] | slice) -> Table: ...

    def __getitem__(self, name: str | Array | Sequence[int] | slice) -> Array | Table:
        if not isinstance(name, str):
            # a condition on a null is null: such a row is not selected
            return self.select(name.filled(False) if _is_condition(name) else name)
        if name in self._shown:
            return self._shown[name]
        self._shown[name] = shown = self._derive(name) if name in self._derived else self._show(name)
        return shown

    def _derive(self, name: str) -> Array:
        """A computed column: each value depends on its own row alone."""
        if self._selected is not None:
            whole, index = self._selected
            if name in whole._shown:
                return np.asanyarray(whole[name][index])
        return self._derived[name][1](self)

    def each(self, compute: Callable[[Table], Array]) -> Array:
        """What ``compute`` makes of the table: one value per row.

        It is computed once; a selection has the values of the table that it was selected from, if they were before.
        """
        if compute not in self._each:
            whole, index = self._selected or (self, None)
            if index is not None and compute in whole._each:
                self._each[compute] = whole.each(compute)[index]
            else:
                self._each[compute] = compute(self)
        return self._each[compute]

    def _show(self, name: str) -> Array:
        values, mask = self.raw(name), self.mask(name)
        dtype = self.column(name).dtype
        if dtype.startswith("category:"):
            return self.words_by_code(name)[values]
        if mask is None:
            return values
        if dtype == "str":
            shown = values.copy()
            shown[mask] = None
            return shown
        return np.ma.MaskedArray(values, mask=mask)

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a category column in the order of their codes; KeyError if it is no category."""
        category, _, word_set = self.column(name).dtype.partition(":")
        if category != "category":
            raise KeyError(f"column {name} of table {self.name} is not a category")
        return tuple(self._words.get(word_set, ()))

    def words_by_code(self, name: str) -> Array:
        """Word of each of the 256 codes: ``code_N`` for a code without a word, None for the code of null."""
        if name not in self._by_code:
            known = self.words(name)
            words = np.empty(NO_WORD + 1, dtype=object)
            words[:] = [*known, *(f"code_{code}" for code in range(len(known), NO_WORD)), None]
            words.flags.writeable = False
            self._by_code[name] = words
        return self._by_code[name]

    def _words_held(self, name: str) -> list[str]:
        """The words of a category column, followed by ``code_N`` up to the largest code in the column."""
        codes = self.raw(name)
        greatest = int(codes[codes != NO_WORD].max(initial=0))
        held: list[str] = self.words_by_code(name)[: max(len(self.words(name)), greatest + 1)].tolist()
        return held

    def row(self, index: int) -> dict[str, Any]:
        """One row as Python values: None for null, categories as words. Negative indices count from the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"table {self.name} has {len(self)} rows, no row {index}")
        start = index % len(self)
        return next(self.select(slice(start, start + 1)).rows())

    def rows(self, names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """All rows as Python values; ``names`` selects columns."""
        names = self.keys() if names is None else list(names)
        declared = [self.column(name) for name in names]
        if not len(self) or not declared:
            return iter(())
        columns = [self._values(column) for column in declared]
        # of ten thousand rows: without a step in Python for each
        return map(dict, map(zip, repeat(names), zip(*columns, strict=True)))

    def _values(self, column: Column) -> list[Any]:
        """A column as Python values, as ``self[name].tolist()`` has them; a masked array takes ten times as long."""
        if column.name in self._derived:
            return list(self[column.name].tolist())
        values: list[Any] = self.raw(column.name).tolist()
        if column.dtype.startswith("category:"):
            words = self.words_by_code(column.name)
            return [words[code] for code in values]
        mask = self.mask(column.name)
        for place in () if mask is None else np.flatnonzero(mask).tolist():
            values[place] = None
        return values

    def select(self, which: Array | Sequence[int] | slice | None) -> Table:
        """The rows selected by a boolean mask, integer indices or a slice, in that order; all rows for None."""
        index: Any = slice(0, len(self)) if which is None else which
        if not isinstance(index, slice):
            index = np.asarray(which)
            if index.dtype == bool and len(index) == len(self):
                if index.all():
                    return self
                index = np.flatnonzero(index)
            elif not index.size:
                index = index.astype(np.intp)
            elif index.dtype in _INDICES and index.ndim == 1 and index.min() >= 0 and index.max() < len(self):
                index = index.copy()
            else:
                # as row numbers; an invalid index raises here
                index = np.arange(len(self))[index]
        whole = self
        if self._selected is not None and not isinstance(self._selected[1], slice):
            # a selection of a selection is taken from the whole table: no column of the first selection is made
            whole, of_whole = self._selected
            index = of_whole[index]
        picked = object.__new__(Table)
        picked.__dict__.update(self.__dict__, _raw={}, _masks={}, _shown={}, _each={}, _selected=(whole, index))
        # columns are selected on use: of fifty mostly five are used
        picked._length = len(range(len(whole))[index]) if isinstance(index, slice) else len(index)
        return picked

    def like(self, data: Mapping[str, Array | Sequence[str]], masks: Mapping[str, Array] | None = None) -> Table:
        """A table of the same columns and words with other rows; parameters as of the class."""
        return Table(self._declaration, data, masks, self._words, self._derived)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame: nullable integers as pandas' Int64 and so on, categories as ``Categorical``, times int64."""
        try:
            import pandas
        except ImportError as error:
            raise ExtraMissing("to_pandas", "pandas", "pandas") from error
        series: dict[str, Any] = {}
        for name in self:
            values, mask, dtype = self.raw(name), self.mask(name), self.column(name).dtype
            if dtype.startswith("category:"):
                codes = np.where(values == NO_WORD, -1, values.astype(np.int16)).tolist()
                series[name] = pandas.Categorical.from_codes(codes, categories=pandas.Index(self._words_held(name)))
            elif mask is None or dtype == "str":
                series[name] = self[name]
            else:
                series[name] = pandas.arrays.IntegerArray(values, mask)
        return pandas.DataFrame(series, copy=False)

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table with unit, meaning and source of each field as metadata; copies booleans and texts alone."""
        try:
            import pyarrow
        except ImportError as error:
            raise ExtraMissing("to_arrow", "pyarrow", "parquet") from error
        arrays, fields = [], []
        for column in self.columns:
            values, mask = self.raw(column.name), self.mask(column.name)
            if column.dtype.startswith("category:"):
                array = pyarrow.DictionaryArray.from_arrays(_arrow(values, mask), self._words_held(column.name))
            elif column.dtype == "str":
                array = pyarrow.array(values, type=pyarrow.string(), mask=mask)
            else:
                array = _arrow(values, mask)
            notes = {"meaning": column.meaning, "unit": column.unit, "source": column.source}
            metadata = {key: note for key, note in notes.items() if note}
            nullable = mask is not None
            fields.append(pyarrow.field(column.name, array.type, nullable=nullable, metadata=metadata))
            arrays.append(array)
        return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


Source = Callable[[str], Table]
"""Returns the table of a name, as ``Trace.table`` does."""


def _is_condition(which: Any) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    return isinstance(which, np.ma.MaskedArray) and which.dtype == bool


def _arrow(values: Array, mask: Array | None) -> pyarrow.Array:
    """Numbers with their nulls, in the memory that they have; booleans, which are bits there, as a copy."""
    import pyarrow

    if values.dtype == bool:
        return pyarrow.array(values, mask=mask)
    null_count = 0 if mask is None else np.count_nonzero(mask)
    is_known = pyarrow.py_buffer(np.packbits(~mask, bitorder="little")) if mask is not None and null_count else None
    buffers = [is_known, pyarrow.py_buffer(np.ascontiguousarray(values))]
    return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(values.dtype), len(values), buffers, null_count)


def _as_array(table: str, column: Column, values: Array | Sequence[str]) -> Array:
    if column.dtype == "str":
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array
    wanted = np.dtype("uint8" if column.dtype.startswith("category:") else column.dtype)
    array = np.asarray(values)
    if array.dtype != wanted:
        raise ValueError(f"column {column.name} of table {table} is {array.dtype}, not {wanted}")
    return array


Row = Mapping[str, Any]

ROWS: Final = 10
"""So many of the first and last rows together."""
_LEFT_OUT: Final = "…"


def preview(name: str, columns: Sequence[Column], row_count: int, rows: Callable[[slice], Iterable[Row]]) -> str:
    """The first and last rows of a table; the meaning of a column where the pointer rests on its name."""
    from html import escape

    shown = row_count if row_count <= ROWS else ROWS // 2
    cells_of: list[Iterable[Any]] = [row.values() for row in rows(slice(0, shown))]
    if row_count > ROWS:
        last = [row.values() for row in rows(slice(row_count - shown, row_count))]
        cells_of = [*cells_of, [_LEFT_OUT] * len(columns), *last]
    caption = f"<caption>{escape(name)}: {count(row_count, 'row')}</caption>"
    names = (f'<th title="{escape(column.meaning)}">{escape(column.name)}</th>' for column in columns)
    head = f"<thead><tr>{''.join(names)}</tr></thead>"
    body = "".join(f"<tr>{''.join(f'<td>{escape(cells.text(each))}</td>' for each in row)}</tr>" for row in cells_of)
    return f'<div style="overflow-x: auto"><table>{caption}{head}<tbody>{body}</tbody></table></div>'
