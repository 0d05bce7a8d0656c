"""A table of a TOML file, taken key by key: what has the wrong form or is left over is an error that names its key."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from iscsitrace.errors import InputInvalid


def joined(prefix: str, name: str) -> str:
    """A dotted key."""
    return f"{prefix}.{name}" if prefix else name


class Entry:
    """One table, at a place of its file."""

    def __init__(self, file: str, place: str, values: dict[str, Any]) -> None:
        self.file = file
        self._place = place
        self._values = dict(values)
        self._known: list[str] = []

    @property
    def has_keys(self) -> bool:
        """Whether anything is in it that nobody took."""
        return bool(self._values)

    def key(self, name: str) -> str:
        """The key of a name in this table, from the top of the file."""
        return joined(self._place, name)

    def error(self, name: str, what: str) -> InputInvalid:
        """What is wrong with a key of this table."""
        # a setting names its whole place already
        is_whole = not self._place or name.startswith(f"{self._place}.")
        return InputInvalid(f"{self.file}: {name if is_whole else self.key(name)}: {what}")

    def text(self, name: str, default: str | None = None) -> str:
        """Text that is not empty; it has to be there without a default."""
        found = self._take(name, default)
        if found is None:
            raise self.error(name, "it is missing")
        if not isinstance(found, str) or (not found.strip() and default is None):
            raise self.error(name, f"{found!r} is no text")
        return found

    def word(self, name: str, words: Collection[str]) -> str:
        """One of a few words."""
        found = self.text(name)
        if found not in words:
            raise self.error(name, f"{found!r} is none of {', '.join(words)}")
        return found

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, empty when it is not there."""
        found = self._take(name, [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.error(name, f"{found!r} is no list of words")
        return tuple(found)

    def count(self, name: str, default: int, least: int = 1) -> int:
        """A whole number."""
        found = self._take(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise self.error(name, f"{found!r} is no whole number from {least} on")
        return found

    def amount(self, name: str, default: float | None) -> float | None:
        """A number, 0 or more."""
        found = self._take(name, default)
        if found is None:
            return None
        if not isinstance(found, int | float) or isinstance(found, bool) or found < 0:
            raise self.error(name, f"{found!r} is no number from 0 on")
        return float(found)

    def switch(self, name: str, default: bool) -> bool:
        """True or false."""
        found = self._take(name, default)
        if not isinstance(found, bool):
            raise self.error(name, f"{found!r} is neither true nor false")
        return found

    def rows(self, name: str) -> list[Any]:
        """A list that is not empty, of anything."""
        found = self._take(name, [])
        if not isinstance(found, list) or not found:
            raise self.error(name, "it has to be a list, one entry at least")
        return found

    def table(self, name: str) -> Entry:
        """A table of this one, empty when it is not there."""
        found = self._take(name, {})
        if not isinstance(found, dict):
            raise self.error(name, f"{found!r} is no table")
        return Entry(self.file, self.key(name), found)

    def tables(self, name: str) -> Iterator[Entry]:
        """The tables of a list ([[name]]), none when it is not there."""
        found = self._take(name, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.error(name, f"it has to be a list of tables: [[{name}]]")
        for number, each in enumerate(found, 1):
            yield Entry(self.file, f"{self.key(name)}[{number}]", each)

    def take_all(self) -> dict[str, Any]:
        """All that is left."""
        found, self._values = self._values, {}
        return found

    def refuse_others(self) -> None:
        """InputInvalid for a key that nobody took."""
        for name in self._values:
            raise self.error(name, f"there is no such key; there are {', '.join(self._known)}")

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._values.pop(name, default)
