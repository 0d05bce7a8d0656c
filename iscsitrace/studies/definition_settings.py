"""The tables of a definition that are settings, and those about the paper that it reproduces, checked when decoded.

A `Mistake` names its key below the table; msgspec adds the place of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from iscsitrace.lab.settings.kinds import Value, ValueKind
from iscsitrace.lab.settings.table import SETTINGS

Text = Annotated[str, Meta(pattern=r"\S")]
"""More than white space."""


class Mistake(ValueError):
    """A wrong value: its key below the table that is decoded, and what is expected there."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}")


def require_among(key: str, words: str | tuple[str, ...], known: Collection[str]) -> None:
    """Mistake when a word, or one of several, is unknown."""
    for word in (words,) if isinstance(words, str) else words:
        if word not in known:
            raise Mistake(key, f"{word!r} is none of {', '.join(known)}")


@dataclass(frozen=True)
class Written:
    """A value of a setting: its text in the definition, for people, and the value for a run."""

    text: str
    value: Value


Place = Mapping[str, Written]
"""Settings by dotted name."""


def written(key: str, kind: ValueKind, found: Any) -> Written:
    """A value as its kind reads it; Mistake for another kind."""
    value = kind.read(found)
    if value is None:
        raise Mistake(key, f"{found!r} is not {kind.needed}")
    return Written(_text(found), value)


def _text(found: Any) -> str:
    if isinstance(found, bool):
        return "yes" if found else "no"
    return ", ".join(map(_text, found)) if isinstance(found, list) else str(found)


# with a __dict__, for the cached properties
class SettingTable(Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True, rename="kebab"):
    """Settings by section; tables and values below a section are named by dots."""

    link: dict[str, Any] = {}
    tcp: dict[str, Any] = {}
    initiator: dict[str, Any] = {}
    target: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    capture: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _ = self.settings

    @cached_property
    def settings(self) -> Place:
        """The settings by dotted name."""
        found = ((f"{section}.", getattr(self, section)) for section in SettingTable.__struct_fields__)
        return {
            name: written(name, SETTINGS[name].kind, value)
            for prefix, table in found
            for name, value in _leaves(prefix, table)
        }


class GriddedTable(SettingTable, frozen=True, kw_only=True):
    """Settings, and a grid of further ones, each with a list of values."""

    grid: dict[str, Any] = {}
    """By section, like the settings. The order of the file is that of the points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.axes

    @cached_property
    def axes(self) -> Mapping[str, tuple[Written, ...]]:
        """The values of the grid by dotted name."""
        return {name: tuple(_axis(name, value)) for name, value in _leaves("", self.grid, "grid.")}


def _leaves(prefix: str, table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """What is written in a table, by dotted name; Mistake for a name that is no setting."""
    for name, found in table.items():
        dotted = f"{prefix}{name}"
        if isinstance(found, dict):
            yield from _leaves(f"{dotted}.", found, place)
        elif dotted in SETTINGS:
            yield dotted, found
        else:
            known = [each.removeprefix(prefix) for each in SETTINGS if each.rpartition(".")[0] == prefix.rstrip(".")]
            there_are = ", ".join(known or SettingTable.__struct_fields__)
            raise Mistake(f"{place}{dotted}", f"there is no such setting; there are {there_are}")


def _axis(setting: str, found: Any) -> Iterator[Written]:
    name = f"grid.{setting}"
    if not isinstance(found, list) or not found:
        raise Mistake(name, "expected a list of values, at least one")
    texts = set()
    for number, each in enumerate(found):
        one = written(f"{name}[{number}]", SETTINGS[setting].kind, each)
        if one.text in texts:
            raise Mistake(f"{name}[{number}]", f"the value {one.text} is there twice")
        texts.add(one.text)
        yield one


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Where the study was published; empty where that is not recorded."""

    authors: str = ""
    title: str = ""
    title_original: str = ""
    """The title in the language of the paper, where that is not English."""
    affiliation: str = ""
    venue: str = ""
    year: int | None = None
    is_probable: bool = msgspec.field(name="probable", default=False)
    """Whether it may be another one; ``remark`` has what agrees with the study, and what does not."""
    remark: str = ""


class Circumstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A setting or a circumstance of the study, beside ours."""

    what: Text
    printed: str = ""
    """As the study prints it; empty where the study does not print it, so that ours is an assumption."""
    source: str = ""
    """The place in the paper."""
    ours: Text
    differs: str = ""
    """Why ours is another one; empty where it is the same, or an assumption."""
    remark: str = ""
    """How the printed one is read, or what ours has beside it."""

    def __post_init__(self) -> None:
        if self.remark and self.differs:
            raise Mistake("remark", "say it in differs")
        if bool(self.printed) != bool(self.source):
            raise Mistake("source", "what the study prints has a place in it; an assumption has none")


class Exhibit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A figure or a table of the paper."""

    name: Text
    """Its number, like `figure 4` or `table 1`."""
    caption: str = ""
    """As the paper prints it; empty where the text has none."""
    english: Text
    """What it shows: the caption in English, or a description where there is none."""
    ours: tuple[str, ...] = ()
    """Our counterparts: figures of this definition, or of a definition that is part of the same study."""
    why: str = ""
    """Why there is none, or how ours is different."""

    def __post_init__(self) -> None:
        if not self.ours and not self.why:
            raise Mistake("why", "name a figure of ours, or say why there is none")


class Omission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A figure, table or discussion of the study that is not repeated."""

    what: Text
    why: Text
