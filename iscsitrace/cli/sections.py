"""Options in sections: each section of a command's help is one part of its settings, made by one function.

Commands that share a section share its options and their help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import click

_Settings = TypeVar("_Settings")
Function = TypeVar("Function", bound=Callable[..., Any])
"""Of a command, which gets options."""


class Option(click.Option):
    """An option under a title of the help."""

    def __init__(self, *arguments: Any, section: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.section = section

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its lines of the help, if the command shows it."""
        is_shown = not isinstance(ctx.command, SectionedCommand) or ctx.command.shows(self)
        return super().get_help_record(ctx) if is_shown else None


class OptionSection(Generic[_Settings]):
    """Options under one title, and the function that makes settings from their values."""

    def __init__(self, title: str, gather: Callable[..., _Settings], *options: Option) -> None:
        """``gather`` takes the value of each option by its name."""
        self.title = title
        self.options = options
        self._gather = gather
        for each in options:
            each.section = title

    def take(self, values: dict[str, Any]) -> _Settings:
        """The settings; removes the values of its options from ``values``."""
        return self._gather(**{str(option.name): values.pop(str(option.name)) for option in self.options})


class SectionedCommand(click.Command):
    """A command whose help shows its own options, then each section under its title."""

    def __init__(self, *arguments: Any, sections: tuple[OptionSection[Any], ...] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.sections = sections
        self.params += [option for section in sections for option in section.options]

    def shows(self, _: Option) -> bool:
        """Whether the help has this option."""
        return True

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; arguments are in the usage line."""
        records: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                records.setdefault(section_of(parameter) or "Options", []).append(record)
        for title, found in records.items():
            with formatter.section(title):
                formatter.write_dl(found)


def section_of(parameter: click.Parameter) -> str:
    """The title over an option; empty for a command's own."""
    return parameter.section if isinstance(parameter, Option) else ""


def decorated(function: Function, decorators: Sequence[Callable[[Function], Function]]) -> Function:
    """A function with these decorators, as if they stood above it in this order."""
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def option(*spellings: str, **attributes: Any) -> Option:
    """An option, as click.option declares one."""
    return Option(list(spellings), **attributes)
