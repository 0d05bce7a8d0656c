"""The command ``iscsitrace``: one file per command, loaded when the command is used.

Every error becomes one line and an exit code: 0 done, 1 data loss or a finding to fail on, 2 usage error or unreadable
input, 3 an error of iscsitrace itself, 4 a capture without iSCSI, 130 interrupted. Computes nothing. Importing this
imports click, but neither NumPy nor the core, so that ``--help`` and shell completion are quick.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TextIO

import click

from iscsitrace.errors import ExtraMissing, InputInvalid, IscsitraceError, MemoryShort

READ, RECORD, TRAFFIC = "read", "record", "traffic"
GROUPS = {
    "Read captures": (
        READ,
        {
            "diagnose": "Show what limits each session, with evidence and advice.",
            "report": "Write one HTML file: limiter, cause and advice.",
            "events": "Show what happened, as a log: logins, errors, outages ...",
            "cycles": "Show one line per SCSI command.",
            "plot": "Draw a plot: sequence, window, cycles, latency ...",
            "summary": "Show sessions, negotiated parameters, throughput, latencies and health.",
            "diff": "Compare two captures, and find the cause of the gap.",
            "model": "Fit the model of throughput, or predict what a change gains.",
            "mirrors": "Show sessions that carry the same writes, and the delay they add.",
            "conformance": "Show who breaks RFC 7143, by rule.",
            "check": "Show coverage and capture health; compare with tshark.",
            "inspect": "Show Wireshark's fields beside iscsitrace's.",
            "explain": "Show what a word of the output means: a finding, a column ...",
            "docs": "Show a page of the docs, or list the pages.",
            "export": "Write tables to CSV or Parquet files; a sidecar for Wireshark.",
            "anonymise": "Write a capture without names, addresses and data.",
            "fleet": "Collect captures from many hosts into one dataset and query it.",
        },
    ),
    "Watch a network": (
        RECORD,
        {
            "capture": "Capture iSCSI into pcapng files, all or around slow commands.",
            "interfaces": "List interfaces to capture on, and their iSCSI connections.",
            "watch": "Show an interface, a growing file or a pipe live.",
        },
    ),
    "In Wireshark": (
        READ,
        {
            "wireshark": "Install plugin, extcap and profile into Wireshark.",
        },
    ),
    "Make traffic": (
        TRAFFIC,
        {
            "initiator": "Read, write, discover or ping with the reference initiator.",
            "target": "Serve an in-memory target.",
            "link": "Emulate a link between two TAP devices.",
            "simulate": "Simulate traffic in virtual time, and write its truth.",
            "lab": "Make traffic over the kernel's TCP and an emulated link.",
        },
    ),
}
"""The groups of the help: the folder of their commands, and what each does: so that the help loads no command."""
_FOLDERS = {name: folder for folder, names in GROUPS.values() for name in names}
COMMANDS = tuple(_FOLDERS)
"""Every command, in the order of the help; ``NAME`` is function ``command`` in ``NAME.py`` of its group's folder."""

OLD_OPTIONS = {"--no-progress": "--quiet"}
"""Options by their old names, which are accepted with a note, and their new ones."""

EXIT_INTERRUPTED = 130
EXIT_NO_OUTPUT = 2
EXIT_UNEXPECTED = 3

_NOT_UNICODE = "surrogates not allowed"
"""What Python says of a text with bytes that are not UTF-8."""

_NO_ROOM = "failed to map segment"
"""What the dynamic linker says of a library for which there is no memory."""

_OBJECTS_PER_COLLECTION = 50_000
"""New objects between searches for garbage in cycles. Of ten thousand sessions a search for each 700 takes a tenth of
the time of their diagnosis, and finds nothing."""

# NumPy's linear algebra is not used; its threads would take processor time from reading
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _say(text: str) -> None:
    """One line on stderr; what it needs is imported only then."""
    from iscsitrace.show.line import say

    say(text, err=True)


class _OneLine(click.ClickException):
    """An IscsitraceError as click shows it: one line on stderr."""

    def __init__(self, error: IscsitraceError) -> None:
        super().__init__(" ".join(str(error).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        _say(f"iscsitrace: {self.message}")


class _Commands(click.Group):
    """A group whose commands are imported when they are used."""

    is_debugging = False
    is_process = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"iscsitrace.cli.{_FOLDERS[cmd_name]}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Adds the commands that a mistyped one is like."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if Path(args[0]).exists():
                raise click.UsageError(f"{error.message} Did you mean: iscsitrace diagnose {args[0]}", ctx) from None
            if near := get_close_matches(args[0], COMMANDS):
                raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, group by group."""
        for title, (_, names) in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*names.items()])

    def __call__(self, *arguments: Any, **extra: Any) -> Any:
        """Runs as a process: warnings of libraries and tracebacks are shown only with --debug, or Python's -W.

        A caller that goes on afterwards (``standalone_mode=False``) keeps its rights and its memory.
        """
        self.is_process = extra.get("standalone_mode", True)
        if self.is_process:
            # its threads would take time of the pass, and no command multiplies large matrices
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        try:
            return super().__call__(*arguments, **extra)
        except SystemExit:
            raise
        except BaseException as error:  # a panic of the core is no Exception
            if self.is_debugging:
                traceback.print_exc()
            _show_unexpected(error)
            sys.exit(EXIT_UNEXPECTED)
        finally:
            self.is_process = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Renames old options of all commands."""
        return super().parse_args(ctx, list(_renamed(args)))

    def main(self, *arguments: Any, **extra: Any) -> Any:
        if sys.stderr is None:
            sys.stderr = _silent_errors()
        if sys.stdout is None:
            _say("iscsitrace: standard output: closed")
            sys.exit(EXIT_NO_OUTPUT)
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # a character that is not in the encoding is shown by its number
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*arguments, **extra)
        except OSError as error:
            # not in `invoke`: the help is written before
            with suppress(OSError):
                _say(f"iscsitrace: {error.filename or 'standard output'}: {error.strerror or error}")
            _discard_output()
            sys.exit(EXIT_NO_OUTPUT)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            # help and version are written here
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:
            _discard_output()
            raise click.exceptions.Exit(0) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except IscsitraceError as error:
            _OneLine(error).show()
            ctx.exit(error.exit_code)
        except UnicodeEncodeError as error:
            # bytes of an argument or a file name, where text is needed
            if error.reason != _NOT_UNICODE:
                raise
            _OneLine(InputInvalid(f"not UTF-8: {error.object}")).show()
            ctx.exit(InputInvalid.exit_code)
        except (MemoryError, ImportError) as error:
            if isinstance(error, ImportError) and _NO_ROOM not in str(error):
                missing = _extra_missing(error, str(ctx.invoked_subcommand))
                if missing is None:
                    raise
                _OneLine(missing).show()
                ctx.exit(missing.exit_code)
            _OneLine(MemoryShort("not enough memory, or less than --max-memory allows")).show()
            ctx.exit(MemoryShort.exit_code)
        except KeyboardInterrupt:
            _say("iscsitrace: interrupted")
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # the reader of the output has closed it (`| head`)
            _discard_output()
            ctx.exit(0)
        return result


def _extra_missing(error: ImportError, purpose: str) -> IscsitraceError | None:
    """The error for a package of an extra that is not installed; None for any other failed import."""
    from iscsitrace import extras

    package = (error.name or "").partition(".")[0]
    extra = extras.of_module(package) if isinstance(error, ModuleNotFoundError) else None
    return ExtraMissing(purpose, package, extra) if extra else None


def _renamed(words: list[str]) -> Iterator[str]:
    """The words of a command line with old options by their new names, and a note for each."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        new = OLD_OPTIONS.get(name)
        if new is None or "--" in words[:place]:
            yield word
        else:
            _say(f"iscsitrace: {name} is now {new}")
            yield f"{new}{equals}{value}"


def _show_unexpected(error: BaseException) -> None:
    what = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".")
    _say(
        f"iscsitrace: unexpected error: {what}. This is a bug of iscsitrace: please report it with the output of "
        "'iscsitrace --debug' before the same command"
    )


def _silent_errors() -> TextIO:
    """Takes the place of a standard error that is closed, so that no file that is opened later gets its number."""
    null = os.open(os.devnull, os.O_WRONLY)
    return os.fdopen(null, "w", encoding="utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Discard all further standard output, buffered output included."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example:  iscsitrace summary capture.pcapng",
)
@click.version_option(
    None, "-V", "--version", package_name="iscsitrace", prog_name="iscsitrace", message="%(prog)s %(version)s"
)
@click.option("--debug", is_flag=True, help="Show warnings, and the traceback of an unexpected error.")
def main(debug: bool) -> None:
    """Analyze iSCSI captures: negotiated parameters, the timing of every SCSI command, the limiter of each session, and
    the quality of the capture. Also make iSCSI traffic with known properties.

    A CAPTURE is a pcap or pcapng file, plain or compressed (gzip, zstd, lz4), or - for standard input. Several are
    read as one in order of time, like the files of a ring buffer; a folder is the captures in it, and `diagnose` shows
    each group of those that do not belong together.

    \b
    Times take ns, us, ms, s; sizes take K, M, G (1024) and KB, MB, GB (1000); rates take Kbit, Mbit, Gbit.
    Exit codes: 0 done, 1 data loss or a finding to fail on, 2 usage error, unreadable input, or not possible, 3 a bug,
    4 no iSCSI in the capture, 130 interrupted.
    """  # noqa: D301 -- click reads the \b
    if debug:
        main.is_debugging = True
        warnings.simplefilter("default")
