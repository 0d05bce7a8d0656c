"""The compiled core (core/python). Private: tests/project/test_architecture.py lists who imports it."""

from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, BinaryIO, Literal, TypedDict, final

from numpy.typing import NDArray

__all__ = [
    "OPERATIONS",
    "PDU_TYPES",
    "SECRET_KEYS",
    "SENSE_KEYS",
    "STATUSES",
    "VERSION",
    "CaptureError",
    "LabError",
    "Live",
    "LiveCaptureError",
    "Pass",
    "Ring",
    "advise_snaplen",
    "advise_snaplen_of",
    "anonymise",
    "check_filter",
    "check_trigger",
    "confine",
    "conformance_rules",
    "connections_seen",
    "counters",
    "give_back",
    "join_taps",
    "keep_freed",
    "list_interfaces",
    "login_keys",
    "parse_url",
    "probe_interface",
    "read",
    "replay_capture",
    "run_capture",
    "run_initiator",
    "run_link",
    "run_target",
    "scsi_commands",
    "sense_codes",
    "share_heap",
    "simulate",
    "table_declarations",
    "tap_table_declarations",
]

OPERATIONS: tuple[str, ...]
"""Words of the category ``operation``; a code is the place in the tuple."""

PDU_TYPES: dict[int, str]
"""The title of each type of PDU (RFC 7143), by its opcode."""

SENSE_KEYS: tuple[str, ...]
"""The name of each sense key (SPC-5)."""

STATUSES: dict[int, str]
"""The name of each SCSI status, by its code (SAM-5)."""

SECRET_KEYS: tuple[str, ...]
"""Login keys whose values are secrets, or help to find them: never kept, never shown."""

VERSION: str
"""Version of the package."""

class _ScsiCommand(TypedDict):
    """A row of the table of SCSI commands (core/wire/src/cdb/commands.rs)."""

    operation_code: int
    """First byte of the CDB."""
    service_action: int | None
    """None: for every service action that has no row."""
    device_type: int
    """Peripheral device type: 0 disk, 1 tape, 5 CD, 8 medium changer."""
    operation: str
    """One of OPERATIONS."""
    name: str
    """T10's name with the length of the CDB, as ``READ(10)``."""
    kind: Literal["read", "write", "other"]
    """Whether it moves blocks to the initiator, or to the target, or does something else."""
    purpose: Literal["data", "flush", "other"]
    """What it does for the user's data: reads, writes or erases it; makes it permanent; or inspects or sets up the
    device."""
    lba: tuple[int, int] | None
    """First byte and length in bytes of the LBA."""
    block_count: tuple[int, int] | None
    """First byte and length in bytes of the number of blocks."""

def scsi_commands() -> list[_ScsiCommand]:
    """Every SCSI command, in order of operation code.

    Of rows with the same code, the first one's device type is assumed when that of the volume is unknown; rows with a
    service action precede the one without.
    """

def sense_codes() -> list[tuple[int, int, str]]:
    """Additional sense code, qualifier and words of every row of T10's list, without the ranges."""

class _LoginKey(TypedDict):
    """A row of the table of login and text keys (core/wire/src/key.rs)."""

    name: str
    """In the spelling of RFC 7143."""
    section: str
    """Of RFC 7143."""
    setting: str | None
    """Name in settings and results; None for all but the operational keys of section 13."""
    kind: Literal["number", "boolean", "list", "text"]
    """What a value is."""
    bounds: tuple[int, int] | None
    """Smallest and largest number."""
    default: str | None
    """The value when neither side names the key."""
    is_leading_only: bool
    """Whether only the leading connection of a session negotiates it."""
    is_of_connection: bool
    """Whether its value holds for one connection, not for the session."""
    is_irrelevant_in_discovery: bool
    """Whether it is irrelevant in a discovery session."""
    is_secret: bool
    """Whether it is one of SECRET_KEYS."""

def login_keys() -> list[_LoginKey]:
    """Every key of RFC 7143 sections 12 and 13, the operational keys first."""

class _ConformanceRule(TypedDict):
    """A rule of RFC 7143 that is judged (core/trace/src/conformance/rules.rs)."""

    rule: str
    """Its name, as ``D18``."""
    section: str
    """The sections of RFC 7143, the one with the rule first."""
    sides: tuple[Literal["initiator", "target"], ...]
    """Who can break it."""
    severity: Literal["info", "warning", "error"]
    """What a violation leads to."""
    sentence: str
    """The rule."""
    broken: str
    """What a violation did, behind "The target ", with ``{seen}`` and ``{expected}``."""

def conformance_rules() -> list[_ConformanceRule]:
    """Every rule that is judged, in the order of the codes of the category ``rule``."""

def counters() -> list[tuple[str, int, str, str]]:
    """Name, severity (a code of the category ``severity``), meaning and advice of every counter."""

_DeclaredColumn = tuple[str, str, str, str, bool, str]
"""Name, dtype, meaning, unit, whether it is nullable, source: the fields of schema.Column."""

_DeclaredTable = tuple[str, str, bool, list[_DeclaredColumn]]
"""Name, meaning of a row, whether it is filled only on request, columns."""

def table_declarations() -> list[_DeclaredTable]:
    """Every table of a pass, in the order of the docs."""

def tap_table_declarations() -> list[_DeclaredTable]:
    """Every table about two captures of the same traffic, in the order of the docs."""

class CaptureError(Exception):
    """The input cannot be read; ``str()`` is one line."""

@final
class Pass:
    """What one pass over the input left: tables as columns, and what is known of the input."""

    @property
    def inputs(self) -> list[dict[str, object]]:
        """Per source: name, format, compression, link types, interfaces, counts, times (ns), comments."""

    @property
    def packet_count(self) -> int:
        """Packets read from all sources, after the capture filter and the time window."""

    @property
    def tcp_packet_count(self) -> int:
        """Of these, TCP packets."""

    @property
    def first_packet(self) -> tuple[int, int] | None:
        """Of the first of these: capture time in nanoseconds since 1970, and bytes on the wire."""

    def row_count(self, table: str) -> int:
        """Rows of a table, of which no column was moved out; KeyError when there is no such table."""

    def column(self, table: str, name: str) -> NDArray[Any] | list[str]:
        """A column of a table, moved out without a copy: works once per column. KeyError when there is none."""

    def masks(self, table: str) -> dict[str, NDArray[Any]]:
        """Boolean masks (True = null) of the columns whose values cannot tell; call before ``column``."""

def give_back() -> None:
    """Gives memory that was freed back to the system, where the allocator keeps it in pieces."""

def keep_freed() -> None:
    """Makes the allocator keep what is freed from now on for what is allocated next, instead of giving each large block
    back to the system: for the whole process, and for good.
    """

def share_heap() -> None:
    """Makes all threads take memory from one heap, so that no heap of another keeps what a peak left in pieces: for the
    whole process, and for good.
    """

def read(
    sources: Sequence[str | bytes | BinaryIO],
    *,
    capture_filter: str | None,
    packet_limit: int | None,
    time_from_ns: int | None,
    time_to_ns: int | None,
    time_is_relative: bool,
    tables: Iterable[str],
    tcp_info_files: Sequence[tuple[str, str]],
    progress: Callable[[int, int | None], None] | None,
) -> Pass:
    """One pass over the sources as one stream. Releases the GIL; Ctrl-C raises KeyboardInterrupt.

    A ``str`` is a path, or ``-`` for standard input; ``bytes`` are the content of a capture. Times are absolute
    nanoseconds since 1970, or relative to the first packet. ``tables``: which of schema.ON_REQUEST to fill.
    """

@final
class Ring:
    """A pass over the captures of a ring, one by one, which its state continues elsewhere."""

    def __new__(cls, *, tables: Iterable[str], has_periods: bool = False) -> Ring:
        """Begins a pass. ``tables``: which of schema.ON_REQUEST to fill; with periods ``pdus`` alone."""

    @staticmethod
    def from_state(state: bytes) -> Ring:
        """Continues a pass. ValueError for bytes that are no state, or one of another version."""

    def state(self) -> bytes:
        """The state, to continue from."""

    def write_state(self, path: str) -> None:
        """Writes the state into a file. OSError if that fails."""

    def read(
        self, capture: str | bytes | BinaryIO, *, progress: Callable[[int, int | None], None] | None
    ) -> tuple[int, dict[str, Any]]:
        """Reads one capture: the number of its first frame, and an element of :attr:`Pass.inputs`. Releases the GIL."""

    def take(self) -> Pass:
        """The rows that can no longer change, each once."""

    def take_periods(self) -> list[tuple[int, int, Pass, NDArray[Any]]]:
        """The periods that ended, each once: its start, time of its last packet, tables, numbers of the commands."""

    def open_period(self) -> tuple[int, int, Pass, NDArray[Any]] | None:
        """The period that has not ended yet; None without packets. Releases the GIL."""

    def finish(self) -> Pass:
        """All other rows; ValueError for what is called afterwards."""

_Columns = dict[str, dict[str, NDArray[Any] | list[str]]]
"""Tables by name, as columns by name."""

def connections_seen(
    sources: Sequence[str | bytes | BinaryIO],
    *,
    packet_limit: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> _Columns:
    """The tables ``connections_seen`` and ``landmarks`` of a capture, by headers alone. Releases the GIL."""

def join_taps(
    sources_a: Sequence[str | bytes | BinaryIO],
    sources_b: Sequence[str | bytes | BinaryIO],
    pairs: Sequence[tuple[int, int, bool, bool]],
    offset_hint_ns: int,
    *,
    progress: Callable[[int, int | None], None] | None,
) -> _Columns:
    """The packets of two captures of the same traffic, joined; tap a is the one nearer to the initiator.

    ``pairs``: a connection of a, the same of b, whether the client of each is the target. ``offset_hint_ns``: clock of
    b less clock of a. The tables ``transits``, ``envelope``, ``path_losses``, ``paths``, and ``counters_a``,
    ``counters_b``, ``counters``. ValueError when a connection is in two pairs. Releases the GIL.
    """

@final
class Live:
    """A pass that goes on: it is told how long it may wait, and says what there is to do."""

    def __new__(
        cls,
        source: str | bytes | IO[bytes],
        *,
        name: str | None,
        interval_ns: int,
        settle_ns: int,
        keep_ns: int,
        capture_filter: str | None,
        packet_limit: int | None,
        has_dynamics: bool,
        clock_after_ns: int | None,
        buffer_bytes: int,
        lag_max_ns: int | None,
    ) -> Live:
        """Starts to read ahead, in a thread. A path is followed as it grows, until :meth:`stop`."""

    def advance(self, patience_ns: int) -> str:
        """Reads on for at most so long: ``look``, ``nothing`` or ``end``. Releases the GIL."""

    def look(self) -> dict[str, Any]:
        """The interval that is over: ``from_ns``, ``to_ns``, ``pass``, ``forgotten`` and what iscsitrace.live names."""

    def finish(self) -> dict[str, Any]:
        """The same for what is left at the end."""

    def recent(self) -> Pass:
        """The recent past: tasks with and without status, and what a diagnosis needs beside them."""

    def stop(self, is_abrupt: bool) -> None:
        """What is there now is the end; abrupt: what was read by now is, for the source may never end."""

    @property
    def pace(self) -> dict[str, Any]:
        """How well it keeps up: ``lag_ns waiting_bytes is_reduced is_leaving_out left_out_packets``."""

    @property
    def inputs(self) -> list[dict[str, object]]:
        """As :attr:`Pass.inputs`, of what was read so far."""

    @property
    def change(self) -> str | None:
        """``cut short`` or ``replaced``, when that ended a file."""

    @property
    def row_count(self) -> int:
        """Rows that it holds."""

class LabError(Exception):
    """Traffic cannot be made; ``str()`` is one line."""

_Watch = Callable[[str, list[tuple[int, int, bool]]], object]
"""Called now and then with progress as JSON and (connection, socket descriptor) pairs; True to stop."""

def run_initiator(settings_json: str, period_ns: int, watch: _Watch) -> str:
    """Runs the reference initiator over sockets; its results and tasks as JSON.

    ``settings_json``: ``client``, ``urls`` (``url`` and resolved ``address``), ``sockets``, ``driver``, ``receive``.
    Releases the GIL. What ``watch`` raises, and Ctrl-C, ends the run.
    """

def run_target(settings_json: str, period_ns: int, ready: Callable[[list[str]], object], watch: _Watch) -> str:
    """Runs a target portal over sockets until ``watch`` gives True; its log as JSON.

    ``settings_json``: ``portal``, ``sockets``, ``listen``. ``ready`` gets the addresses that it listens at.
    """

def run_link(settings_json: str, period_ns: int, ready: Callable[[], object], watch: _Watch, begun: _Watch) -> str:
    """Moves frames between two TAP devices until ``watch`` gives True; its log as JSON.

    ``settings_json``: ``initiator`` and ``target`` (``name``, ``namespace``), ``link``.
    """

def simulate(settings_json: str, captures: Sequence[str | None], watch: _Watch) -> str:
    """Runs a simulation; the truth of it as JSON.

    ``captures``: new files, the initiator's first, None for no capture.
    """

def parse_url(url: str) -> str:
    """What an iSCSI URL names, as JSON: ``host``, ``port``, ``target_name``, ``lun``."""

class LiveCaptureError(Exception):
    """A capture cannot begin; ``args`` are its kind, in one word, and one line for a person."""

def confine(written: list[str], ports: list[int], children: list[int]) -> list[str]:
    """Gives up what a reader does not need, for this thread and all that it starts later, for good.

    It keeps reading files, writing beneath the paths ``written``, and serving at TCP ``ports`` (0 is any). Returns what
    the kernel refused.
    """

def run_capture(settings_json: str, caller: object) -> str:
    """Captures into files until ``caller.watch`` gives True or a limit is reached; the outcome as JSON.

    ``caller`` has the methods ``watch(progress_json)`` and ``next_path(number)``. Releases the GIL. What they raise,
    and Ctrl-C, ends the capture in order and is raised then.
    """

def replay_capture(sources: Sequence[str | bytes | BinaryIO], settings_json: str, caller: object) -> str:
    """The same with the packets of captures in place of interfaces."""

def advise_snaplen(interface_json: str, duration_ns: int, watch: Callable[[int], object]) -> str:
    """Measures on an interface which snaplen keeps every header; the advice, and packets dropped, as JSON."""

def advise_snaplen_of(
    sources: Sequence[str | bytes | BinaryIO], capture_filter: str | None, watch: Callable[[int], object]
) -> str:
    """Measures on captures which snaplen keeps every header; as above."""

def anonymise(
    sources: Sequence[str],
    path: str,
    *,
    key: bytes,
    keeps_models: bool,
    drops_others: bool,
    application: str,
    progress: Callable[[int, int | None], None] | None,
) -> dict[str, int]:
    """Writes captures, which are read twice, without names to a file that exists; ``key`` has 32 bytes.

    Returns ``packets``, ``connections``, ``other_tcp_packets`` and ``packets_without_tcp``. Releases the GIL.
    """

def check_filter(expression: str) -> str | None:
    """What libpcap says against a capture filter."""

def check_trigger(condition: str) -> tuple[int, str] | None:
    """Where a trigger's condition cannot be read on, in characters from 0, and why."""

def list_interfaces() -> str:
    """What libpcap can capture on, as JSON."""

def probe_interface(name: str) -> list[int]:
    """LINKTYPE_ values that an interface offers; LiveCaptureError when it may not be opened."""
