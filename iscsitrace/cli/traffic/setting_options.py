"""Options of settings: made from the table of settings, which has their names, kinds, defaults and help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from iscsitrace.cli.sections import Option, OptionSection, option
from iscsitrace.cli.units import Quantity, Typed
from iscsitrace.lab.settings import kinds
from iscsitrace.lab.settings.kinds import Value, ValueKind
from iscsitrace.lab.settings.table import SETTINGS, RunSetting

Values = dict[str, Any]
"""Values by the dotted names of settings."""


class SettingsOption(Quantity):
    """An option of a type of its own, whose value is that of one setting."""

    def __init__(self, setting: str, kind: click.ParamType[Any]) -> None:
        self._setting = setting
        self._kind = kind
        self.name = kind.name.upper()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Values:
        """The value by the name of its setting."""
        return value if isinstance(value, dict) else {self._setting: self._kind.convert(value, param, ctx)}


class Named(Quantity):
    """``NAME=VALUE``: a setting of one section, by its name on the command line or its own; to ``(setting, value)``."""

    name = "NAME=VALUE"

    def __init__(
        self, section: str, what: str, *, is_emptied: bool = False, limited: Mapping[str, ValueKind] | None = None
    ) -> None:
        """``what`` the names are, for error messages; ``is_emptied``: ``NAME=`` is None; ``limited``: kinds instead of
        those of the table, by the settings' names without their section.
        """
        limited = limited or {}
        self._settings = {
            each: (name, limited.get(name.rpartition(".")[2], setting.kind))
            for name, setting in of_section(section).items()
            for each in (option_of(name), name.rpartition(".")[2])
        }
        self._what = what
        self._is_emptied = is_emptied

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Value | None]:
        """The setting and its value; fails with a line that says which there are, or what it takes."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if name not in self._settings:
            self.fail(f"{name!r} is not {self._what}; there are {', '.join(self._settings)}", param, ctx)
        setting, kind = self._settings[name]
        if equals and not text and self._is_emptied:
            return setting, None
        found = kind.parse(text)
        if found is None:
            self.fail(f"{name}: {text!r} is not {kind.needed}", param, ctx)
        return setting, found


def of_section(section: str) -> Mapping[str, RunSetting]:
    """The settings of a section, ``workload`` or ``initiator.tcp``, in the order of the table."""
    return {name: setting for name, setting in SETTINGS.items() if name.rpartition(".")[0] == section}


def option_of(name: str) -> str:
    """The name of a setting on the command line."""
    return SETTINGS[name].option or name.rpartition(".")[2]


def settings_section(
    title: str,
    *parts: str | Option,
    own: Mapping[str, Option] | None = None,
    limited: Mapping[str, ValueKind] | None = None,
) -> OptionSection[Values]:
    """A section of options: of settings, of whole sections of settings, and others whose values are settings.

    ``own`` are options, and ``limited`` kinds of options, instead of those of the table. The section takes the values
    of settings that were typed or have a default; of several values for a setting the last counts.
    """
    own, limited = own or {}, limited or {}
    options: list[Option] = []
    settings: dict[str, str] = {}
    for part in parts:
        if not isinstance(part, str):
            options.append(part)
            continue
        for name in [part] if part in SETTINGS else of_section(part):
            if name in own:
                options.append(own[name])
            elif SETTINGS[name].help:
                options.append(_option(name, limited.get(name, SETTINGS[name].kind)))
                settings[str(options[-1].name)] = name

    def values_of(**typed: Any) -> Values:
        found: Values = {}
        for name, value in typed.items():
            if name in settings:
                found |= {} if value is None or value == () else {settings[name]: _value(settings[name], value)}
            elif value is not None:
                found |= dict(value)
        return found

    return OptionSection(title, values_of, *options)


def _value(name: str, typed: Any) -> Any:
    return list(typed) if SETTINGS[name].is_repeatable else typed


def _option(name: str, kind: ValueKind) -> Option:
    setting, spelling = SETTINGS[name], f"--{option_of(name)}"
    attributes: dict[str, Any] = {"default": setting.default, "help": setting.help}
    if setting.flag is not None:
        attributes |= {"type": click.UNPROCESSED, "flag_value": setting.flag}
    elif kind is kinds.SWITCH:
        spelling += f"/--no-{option_of(name)}"
    else:
        attributes |= {
            "type": _type(kinds.TIME if setting.is_repeatable else kind),
            "metavar": kind.name if kind.name == kinds.COUNT.name else None,
            "multiple": setting.is_repeatable,
            "show_default": setting.default is not None,
        }
    return option(spelling, name.replace(".", "_").replace("-", "_"), **attributes)


class _Word(click.Choice[str]):
    """One of the words of a kind, to the value that the core has for it."""

    def __init__(self, kind: ValueKind) -> None:
        super().__init__(kind.words)
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._kind.parse(super().convert(value, param, ctx))


def _type(kind: ValueKind) -> click.ParamType[Any]:
    if kind.words:
        return _Word(kind)
    if kind.name == kinds.COUNT.name:
        return click.IntRange(kind.least, kind.most)
    return Typed(kind)
