"""The man page ``iscsitrace(1)``: the same help that docs/cli.md has, in the macros of man(7)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click

from iscsitrace.cli import main


def lines(commands: Iterable[click.Command]) -> Iterator[str]:
    """The page: the commands with their arguments and the options that their help shows."""
    yield '.TH ISCSITRACE 1 "" iscsitrace "User Commands"'
    yield from (".SH NAME", r"iscsitrace \- analyse iSCSI traffic in packet captures")
    yield from (".SH SYNOPSIS", r".B iscsitrace", r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]")
    yield from (".SH DESCRIPTION", *_prose(main.help))
    yield ".SH COMMANDS"
    for command in commands:
        context = click.Context(command, info_name=f"iscsitrace {command.name}")
        yield from (f'.SS "iscsitrace {command.name} {_text(" ".join(command.collect_usage_pieces(context)))}"',)
        yield from _prose(command.help)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
                yield from (".TP", rf"\fB{_text(record[0])}\fR", *_prose(record[1]))
        if command.epilog:
            yield from (".PP", *_prose(command.epilog))
    yield from (".SH SEE ALSO", r"\fBiscsitrace docs\fR prints the manual, \fBiscsitrace explain\fR \fINAME\fR what a")
    yield from ("finding, rule, counter, table, column or plot means.", ".BR tshark (1),", ".BR dumpcap (1)")


def _prose(text: str | None) -> Iterator[str]:
    """Paragraphs; of one that begins with a backspace, as click has it, the lines stay."""
    for number, paragraph in enumerate(inspect.cleandoc(text or "").split("\n\n")):
        kept = paragraph.startswith("\b")
        yield from ([".PP"] if number else [])
        yield from ([".nf"] if kept else [])
        yield from map(_text, filter(None, paragraph.lstrip("\b").split("\n")))
        yield from ([".fi"] if kept else [])


def _text(line: str) -> str:
    """A line without characters that mean something to roff."""
    escaped = line.rstrip().replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
