"""A command with more settings than its help shows: options from the table of settings, which has their names, kinds,
defaults and help, ``--set``, a file of settings, and the list of them all.

Every option of a section is a setting of its name, which ``--set NAME=VALUE`` and a TOML file set, too. The help shows
some of them. Declares no setting: the sections do.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.sections import Option, OptionSection, SectionedCommand, option
from iscsitrace.cli.units import Quantity, Typed
from iscsitrace.errors import InputInvalid
from iscsitrace.lab.settings import kinds
from iscsitrace.lab.settings.kinds import SWITCH, Value, ValueKind
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


_WAYS = (
    option(
        "--set",
        "told",
        multiple=True,
        expose_value=False,
        metavar="NAME=VALUE",
        section="Settings",
        help="Set a setting, also one that is not shown here: --print-settings lists them. Repeatable.",
    ),
    option(
        "--settings",
        "file",
        type=click.Path(path_type=Path),
        expose_value=False,
        metavar="FILE",
        section="Settings",
        help="Read settings from a TOML file. The command line overrides the file, the file the defaults.",
    ),
    option(
        "--print-settings",
        "is_printing",
        is_flag=True,
        expose_value=False,
        section="Settings",
        help="Print every setting with its value, default and meaning, as a file for --settings.",
    ),
)
_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


def name_of(setting: click.Option) -> str:
    """The name of an option as a setting: ``one-way-delay``."""
    return setting.opts[0].removeprefix("--")


def value_name(setting: click.Option, ctx: click.Context) -> str:
    """What to write for the value of a setting, like ``TIME``."""
    return "YES|NO" if setting.is_flag else setting.make_metavar(ctx)


class SettingsCommand(SectionedCommand):
    """A command whose help has options for ``shown``, some of its settings."""

    def __init__(self, *arguments: Any, shown: tuple[str, ...], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.settings = {name_of(each): each for section in self.sections for each in section.options}
        self.unseen = {name: each for name, each in self.settings.items() if name not in shown}
        self.params += _WAYS

    def shows(self, option: Option) -> bool:
        """Whether the help has this option."""
        return name_of(option) not in self.unseen

    def spelling(self, setting: Option) -> str:
        """How the docs write it."""
        return setting.opts[0] if self.shows(setting) else f"--set {name_of(setting)}"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the settings from the command line, else from the file, else their defaults."""
        if not ctx.resilient_parsing:
            words = self.make_parser(ctx).parse_args([*args])[0]
            ctx.default_map = self._of_file(ctx, words.get("file")) | self._told(ctx, words)
            if words.get("is_printing"):
                values = ctx.default_map | words
                for setting in self.settings.values():
                    setting.type_cast_value(ctx, values.get(setting.name))
                click.echo("\n".join(self._printed(ctx, values)))
                ctx.exit()
        return super().parse_args(ctx, args)

    def _told(self, ctx: click.Context, words: Mapping[str, Any]) -> dict[str, Any]:
        """The values of ``--set``."""
        found: dict[str, Any] = {}
        for each in words.get("told", ()):
            name, equals, text = each.partition("=")
            if not equals:
                raise click.UsageError(f"--set takes NAME=VALUE, not {each!r}", ctx)
            setting = self._named(ctx, name, f"--set {name}")
            if setting.name in words:
                raise click.UsageError(f"{name} is set twice: by {setting.opts[0]} and by --set", ctx)
            value = _raw(ctx, setting, text, f"--set {name}")
            found[str(setting.name)] = [*found.get(str(setting.name), ()), *value] if setting.multiple else value
        return found

    def _of_file(self, ctx: click.Context, file: str | None) -> dict[str, Any]:
        """The values of ``--settings``."""
        if file is None:
            return {}
        try:
            found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputInvalid(f"cannot read {file}: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputInvalid(f"{file}: not TOML: {error}") from error
        places = {name: f"{file}: {name}" for name in found}
        settings = {name: self._named(ctx, name, places[name]) for name in found}
        return {str(settings[name].name): _raw(ctx, settings[name], found[name], places[name]) for name in found}

    def _named(self, ctx: click.Context, name: str, place: str) -> Option:
        if name not in self.settings:
            near = get_close_matches(name, self.settings, n=1)
            hint = f"did you mean {near[0]}?" if near else "--print-settings lists them"
            raise click.UsageError(f"{place}: there is no such setting; {hint}", ctx)
        return self.settings[name]

    def _printed(self, ctx: click.Context, values: Mapping[str, Any]) -> Iterator[str]:
        yield f"# Settings of {ctx.command_path}. A line '# NAME = VALUE' is a default: remove its # to change it."
        title = ""
        for name, setting in self.settings.items():
            if setting.section != title:
                title = setting.section
                yield from ("", f"# ---- {title}")
            yield from ("", f"# {setting.help} ({value_name(setting, ctx)})")
            default = setting.get_default(ctx)
            if setting.name in values:
                yield f"{name} = {_toml(setting, values[setting.name])}"
            elif isinstance(default, str | bool | tuple) and default != ():
                yield f"# {name} = {_toml(setting, default)}"
            else:
                yield f"# {name} ="


def _raw(ctx: click.Context, setting: Option, value: Any, place: str) -> Any:
    """The value as click takes it: a text, a list of them where it can be repeated, or what a flag stands for."""
    values = [_text(each) for each in (value if isinstance(value, list) else [value])]
    texts = [each for each in values if each is not None]
    if not texts or len(texts) < len(values) or (isinstance(value, list) and not setting.multiple):
        raise click.UsageError(
            f"{place}: {value!r} is not {'one value or more' if setting.multiple else 'a value'}", ctx
        )
    if setting.is_flag:
        is_on = SWITCH.parse(texts[0])
        if is_on is None:
            raise click.UsageError(f"{place}: {texts[0]!r} is not {SWITCH.needed}", ctx)
        return is_on if setting.is_bool_flag else setting.flag_value if is_on else setting.default
    found = texts if setting.multiple else texts[0]
    try:
        setting.type_cast_value(ctx, found)
    except click.BadParameter as error:
        raise click.UsageError(f"{place}: {error.message}", ctx) from None
    return found


def _text(value: Any) -> str | None:
    """A value of TOML as it is typed; None for a table or a date."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, str | int | float) else None


def _toml(setting: Option, value: Any) -> str:
    if setting.is_flag:
        return "true" if value == (True if setting.is_bool_flag else setting.flag_value) else "false"
    if setting.multiple:
        return f"[{', '.join(map(_written, value))}]"
    return _written(value)


def _written(text: Any) -> str:
    # JSON's strings are strings of TOML
    return str(text) if _NUMBER.fullmatch(str(text)) else json.dumps(str(text), ensure_ascii=False)
