"""The options that all reading commands share, the filter of rows, and the reading of captures.

Letters have tshark's meaning. A progress bar is shown on stderr when that is a terminal and reading takes long.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli import process
from iscsitrace.cli.output import QUIET_HELP
from iscsitrace.cli.process import INSTEAD, MemoryLimit, MemorySize
from iscsitrace.cli.sections import Function, Option
from iscsitrace.cli.units import Moment, When
from iscsitrace.errors import InputInvalid
from iscsitrace.show.line import ProgressBar, say
from iscsitrace.wording.amounts import count

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables
    from iscsitrace.taps.inputs import Inputs


EXIT_FINDING = 1
EXIT_NO_ISCSI = 4
_NAMED = 4
"""Groups, and captures of each, that a message names."""
_CAPTURE_NAME = re.compile(r"[^.].*\.(pcap|pcapng|cap)(\.(gz|zst|lz4))?", re.IGNORECASE)


Watcher = Callable[[int, int | None], None]
"""Is told how many bytes were read, and of how many, if that is known."""


def together(watchers: Sequence[Watcher]) -> Watcher | None:
    """One watcher for all of them; None for none."""

    def tell(bytes_done: int, bytes_total: int | None) -> None:
        for watcher in watchers:
            watcher(bytes_done, bytes_total)

    return tell if watchers else None


@dataclass(frozen=True)
class CaptureInput:
    """The captures to read, and the part of them."""

    sources: tuple[str, ...]
    capture_filter: str | None
    packet_limit: int | None
    time_from: Moment | None
    time_to: Moment | None
    is_quiet: bool
    tcp_info: tuple[str, ...] = ()
    tap_names: tuple[str, ...] = ()
    """The tap of each source, where taps were named."""
    are_clocks_synchronised: bool = False
    max_memory_bytes: int | None = None
    read_already: tuple[TraceTables, ...] = ()
    """Each source as a trace of its own, where it had to be read to find what belongs together."""
    folders: tuple[str, ...] = ()
    """Those that sources come from: nobody said that these belong together."""

    @property
    def size_bytes(self) -> int:
        """The size of the sources on disk; 0 if unknown."""
        return sum(Path(name).stat().st_size for name in self.sources if name != "-" and Path(name).is_file())

    def require_one_file(self, purpose: str) -> None:
        """A usage error unless it is one file: the frames of several have no numbers in common."""
        if len(self.sources) != 1 or self.sources[0] == "-":
            raise click.UsageError(
                f"{purpose} takes one capture file: run it for each tap in turn (mergecap joins files of one tap)"
            )

    def require_whole_file(self, purpose: str) -> None:
        """A usage error unless it is one file read whole or up to -c, as tshark can read it."""
        self.require_one_file(purpose)
        if self.capture_filter or self.time_from or self.time_to:
            raise click.UsageError(f"{purpose} reads the file as tshark does: without -f, --from and --to")

    def require_whole_captures(self, purpose: str) -> None:
        """A usage error unless they are captures of one tap, read whole."""
        if self.capture_filter or self.packet_limit or self.time_from or self.time_to or self.tcp_info:
            raise click.UsageError(f"{purpose} reads whole captures: without -f, -c, --from, --to and --tcp-info")
        if self.tap_names:
            raise click.UsageError(f"{purpose} reads the captures of one tap: without --tap")

    @contextmanager
    def watched(self, instead: str = INSTEAD) -> Iterator[Watcher | None]:
        """What to call while captures are read: draws the progress bar, and holds the limit of memory, above which
        ``instead`` is the advice.
        """
        bar = reading_progress(is_wanted=not self.is_quiet)
        limit = MemoryLimit(self.max_memory_bytes, instead) if self.max_memory_bytes is not None else None
        try:
            yield together([*([bar.draw] if bar.is_wanted else []), *([limit.check] if limit else [])])
            if limit:
                # a short pass reports nothing
                limit.check(0, None)
        finally:
            bar.close()

    def read(
        self, tables: Iterable[str] = (), loading: Sequence[str] = (), written: Iterable[Path] | None = ()
    ) -> TraceTables:
        """Read the captures; ``tables`` as for iscsitrace.read, ``loading`` modules to import meanwhile.

        From then on the process can write beneath ``written`` alone, start no program and use no TCP; None: as before.
        """
        from iscsitrace.tables.trace import load_meanwhile, read

        if written is not None:
            process.confine(written)
        modules = load_meanwhile(*loading)
        if self.max_memory_bytes is not None:
            # what they take counts from the first look at the memory on
            modules.join()
        if self.folders:
            return self.only_group(tables).read(tables, written=written)
        with self.watched() as watch:
            options = self._options(watch)
            if len(self.sources) == 1 and not self.tap_names:
                trace, lines = read(*self.sources, tables=tables, **options), []
            else:
                found = self._read_several(tables, options)
                trace, lines = found.trace, [*found.lines]
        if process.is_own_process():
            from iscsitrace.tables import memory

            memory.keep_freed()
        if self.max_memory_bytes is not None:
            MemoryLimit(self.max_memory_bytes).hold()
        for line in lines:
            self.note(line)
        return trace

    def groups(self, tables: Iterable[str], written: Iterable[Path] | None = ()) -> list[CaptureInput]:
        """The captures that belong together, apart from those that do not; one group where taps are named.

        ``tables`` are those that each group is read with. From then on the process is confined as by :meth:`read`.
        """
        if len(self.sources) < 2 or self.tap_names:
            return [replace(self, folders=())]
        if written is not None:
            process.confine(written)
        from iscsitrace.recording.file_names import ring_of
        from iscsitrace.taps import inputs
        from iscsitrace.taps.inputs import read_apart

        traces: dict[str, TraceTables] = {}

        def read(sources: Sequence[str]) -> Sequence[TraceTables]:
            with self.watched() as watch:
                found = read_apart(sources, tables=tables, **self._options(watch))
            traces.update(zip(sources, found, strict=True))
            return found

        found = inputs.groups(self.sources, ring_of, read)
        # one that cannot be read has no trace
        whole = {each: tuple(traces[name] for name in each) if traces.keys() >= {*each} else () for each in found}
        return [replace(self, sources=each, read_already=whole[each], folders=()) for each in found]

    def only_group(self, tables: Iterable[str]) -> CaptureInput:
        """The captures of folders, if all belong together; InputInvalid with the groups otherwise."""
        groups = self.groups(tables, written=None)
        if len(groups) > 1:
            from iscsitrace.wording.sentences import some

            def named(names: Sequence[str]) -> str:
                return some(names[:_NAMED], len(names))

            names = [f"({named([Path(each).name for each in group.sources])})" for group in groups]
            raise InputInvalid(
                f"{named(self.folders)}: {len(groups)} groups of captures that do not belong together: {named(names)}. "
                "Name the captures of one group; diagnose shows the headline of each"
            )
        return groups[0]

    def has_iscsi(self, trace: TraceTables) -> bool:
        """Whether there is iSCSI in what was read; a note where there is none."""
        if trace.connections.raw("is_iscsi").any():
            return True
        connections = f" on {count(len(trace.connections), 'TCP connection')}" if len(trace.connections) else ""
        self.note(f"iscsitrace: no iSCSI in {count(trace.packet_count, 'packet')}{connections}")
        return False

    def end(self, trace: TraceTables) -> None:
        """The last call of a command about iSCSI: its exit code says where the capture has none."""
        if not self.has_iscsi(trace):
            raise click.exceptions.Exit(EXIT_NO_ISCSI)

    def note(self, line: str) -> None:
        """A line on standard error, unless the command is quiet."""
        if not self.is_quiet:
            say(line, err=True)

    def _options(self, progress: Watcher | None) -> dict[str, Any]:
        moments = [moment for moment in (self.time_from, self.time_to) if moment]
        return {
            "capture_filter": self.capture_filter,
            "packet_limit": self.packet_limit,
            "time_from_ns": self.time_from.time_ns if self.time_from else None,
            "time_to_ns": self.time_to.time_ns if self.time_to else None,
            "time_is_relative": any(moment.is_relative for moment in moments),
            "tcp_info": self.tcp_info,
            "progress": progress,
        }

    def _read_several(self, tables: Iterable[str], options: dict[str, Any]) -> Inputs:
        from iscsitrace.taps.inputs import read_inputs

        named: dict[str, list[str]] = {}
        for name, source in zip(self.tap_names, self.sources, strict=False):
            named.setdefault(name, []).append(source)
        unnamed = self.sources[len(self.tap_names) :]
        options |= {"are_synchronised": self.are_clocks_synchronised, "read_already": self.read_already}
        return read_inputs(unnamed, named, tables=tables, **options)


def reading_progress(*, is_wanted: bool = True) -> ProgressBar:
    """The bar of reading captures."""
    return ProgressBar("reading", is_wanted=is_wanted, counts_bytes=True)


def files_of(source: str, *, has_experiments: bool) -> list[str]:
    """The captures of a folder, by name; anything else is itself. InputInvalid for a folder that is neither."""
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        return [source]
    try:
        names = sorted(each.name for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise InputInvalid(f"cannot read {source}: {error.strerror or error}") from error
    found = [str(folder / name) for name in names if _CAPTURE_NAME.fullmatch(name)]
    if not found and has_experiments:
        return [source]
    if not found:
        kinds = ".pcap, .pcapng or .cap, also .gz, .zst, .lz4"
        raise InputInvalid(f"{source} is a folder without captures ({kinds}); folders in it are not searched")
    return found


_input = functools.partial(click.option, cls=Option, section="Input")
_TAP = _input(
    "--tap",
    "tap_files",
    metavar="NAME=FILE",
    multiple=True,
    help="A capture of one of several taps, with the tap's name; repeatable, also for parts of a capture. "
    "Unnamed captures of the same traffic are recognised by content.",
)
_CLOCKS = _input(
    "--clocks",
    type=click.Choice(["measured", "synchronised"]),
    default="measured",
    help="Clocks of several taps: compared by their packets (measured), or trusted (synchronised, as with PTP).",
)


def takes_captures(function: Function, *, has_experiments: bool = False) -> Function:
    """Add the shared options to a command, which gets them as ``capture_input``; also those of several taps."""
    for option in (_CLOCKS, _TAP):
        function = option(function)
    return takes_parts(function, has_experiments=has_experiments)


def takes_captures_or_experiment(function: Function) -> Function:
    """Add the same options; a folder without captures stays, as that of an experiment."""
    return takes_captures(function, has_experiments=True)


def takes_parts(function: Function, *, has_experiments: bool = False) -> Function:
    """Add the shared options, without those of several taps."""

    @click.argument("captures", metavar="CAPTURE...", nargs=-1)
    @_input("-r", "read_files", metavar="FILE", multiple=True, help="A capture, as with tshark; repeatable.")
    @_input(
        "-f",
        "capture_filter",
        metavar="FILTER",
        help="Read only packets that match this capture filter (tcpdump syntax).",
    )
    @_input("-c", "packet_limit", type=click.IntRange(min=1), metavar="COUNT", help="Stop after COUNT packets.")
    @_input("--from", "time_from", type=When(), help="Skip packets before this time: 12.5s after the first, or a date.")
    @_input("--to", "time_to", type=When(), help="Skip packets after this time.")
    @_input(
        "--tcp-info",
        metavar="FILE",
        multiple=True,
        help="Samples of a host's TCP_INFO: a time and a line of ss -tinOH each; repeatable.",
    )
    @_input("-n", "is_numeric", is_flag=True, help="Accepted for compatibility with tshark: names are never resolved.")
    @_input(
        "--max-memory",
        "max_memory_bytes",
        type=MemorySize(),
        help="Stop with an error instead of using more memory; export --format parquet writes finished rows first.",
    )
    @_input("-q", "--quiet", "is_quiet", is_flag=True, help=QUIET_HELP)
    @functools.wraps(function)
    def wrapper(
        *arguments: Any,
        captures: tuple[str, ...],
        read_files: tuple[str, ...],
        capture_filter: str | None,
        packet_limit: int | None,
        time_from: Moment | None,
        time_to: Moment | None,
        tcp_info: tuple[str, ...],
        is_numeric: bool,
        max_memory_bytes: int | None,
        is_quiet: bool,
        tap_files: tuple[str, ...] = (),
        clocks: str = "measured",
        **options: Any,
    ) -> Any:
        taps = [text.partition("=") for text in tap_files]
        if not all(name and file for name, _, file in taps):
            raise click.UsageError("--tap needs a name and a file: --tap initiator=capture.pcapng")
        named = [(each, files_of(each, has_experiments=has_experiments)) for each in (*read_files, *captures)]
        sources = (*(file for _, _, file in taps), *(file for _, files in named for file in files))
        if not sources:
            raise click.UsageError("name a capture, or - for standard input")
        if sources.count("-") > 1:
            raise click.UsageError("standard input can be read only once")
        if time_from and time_to and time_from.is_relative != time_to.is_relative:
            raise click.UsageError("--from and --to must both be relative to the first packet, or both be dates")
        if time_from and time_to and time_from.time_ns > time_to.time_ns:
            raise click.UsageError("--from is after --to")
        capture_input = CaptureInput(
            sources,
            capture_filter,
            packet_limit,
            time_from,
            time_to,
            is_quiet,
            tcp_info,
            tuple(name for name, _, _ in taps),
            clocks == "synchronised",
            max_memory_bytes,
            folders=tuple(each for each, files in named if files != [each]) if len(sources) > 1 else (),
        )
        return function(*arguments, capture_input=capture_input, **options)

    return wrapper  # type: ignore[return-value]


SESSION_ATTRIBUTES = ("initiator", "target", "lun", "volume", "hour")
"""What sessions can be told apart by."""
COMMAND_ATTRIBUTES = (*SESSION_ATTRIBUTES, "operation", "size")
"""What commands can be told apart by."""


def by(names: Sequence[str], what: str) -> Callable[[Function], Function]:
    """``--by NAME``, repeatable, one of ``names``, as the parameter ``names``; its help is "Show" and ``what``."""
    return click.option("--by", "names", type=click.Choice(names), multiple=True, help=f"Show {what}; repeatable.")


as_json = click.option("--json", "is_json", is_flag=True, help="Print one JSON document with a schema number.")


def as_rows(table: str) -> Callable[[Function], Function]:
    """Add ``--json`` and ``--csv``, of which one can be asked for: ``table`` is what CSV has."""

    def decorate(function: Function) -> Function:
        @as_json
        @click.option("--csv", "is_csv", is_flag=True, help=f"Print all columns of the table {table} as CSV.")
        @functools.wraps(function)
        def wrapper(*arguments: Any, is_json: bool, is_csv: bool, **options: Any) -> Any:
            if is_json and is_csv:
                raise click.UsageError("--json and --csv exclude each other")
            return function(*arguments, is_json=is_json, is_csv=is_csv, **options)

        return wrapper  # type: ignore[return-value]

    return decorate


def takes_filter(example: str) -> Callable[[Function], Function]:
    """Add ``-Y``, which the command gets as ``row_filter``."""
    return click.option(
        "-Y",
        "row_filter",
        metavar="FILTER",
        help=f"Only rows that match this filter over their columns, like '{example}'.",
    )


def joined(row_filter: str | None, short_forms: Iterable[str]) -> str | None:
    """One filter for ``-Y`` and short forms; None for all rows."""
    parts = [each for each in (row_filter, *short_forms) if each is not None]
    return " && ".join(f"({each})" for each in parts) if len(parts) > 1 else parts[0] if parts else None


def equal(column: str, value: int | None) -> list[str]:
    """The condition that a column has this value; nothing without a value."""
    return [] if value is None else [f"{column} == {value}"]


def among(column: str, words: Iterable[str]) -> list[str]:
    """The condition that a column has one of these words; nothing without words."""
    quoted = ['"' + each.replace("\\", r"\\").replace('"', r"\"") + '"' for each in words]
    return [f"{column} in {{{', '.join(quoted)}}}"] if quoted else []
