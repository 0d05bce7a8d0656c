"""The compiled core (core/python). Private: only iscsitrace.trace imports it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, final

from numpy.typing import NDArray

__all__ = ["OPERATIONS", "SECRET_KEYS", "CaptureError", "Pass", "read"]

OPERATIONS: tuple[str, ...]
"""Words of the category ``operation``; a code is the place in the tuple."""

SECRET_KEYS: tuple[str, ...]
"""Login keys whose values are secrets, or help to find them: never kept, never shown."""

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

    def row_count(self, table: str) -> int:
        """Rows of a table; KeyError when there is no such table."""

    def columns(self, table: str) -> dict[str, NDArray[Any] | list[str]]:
        """The columns of a table, moved out without a copy: works once per table."""

    def masks(self, table: str) -> dict[str, NDArray[Any]]:
        """Boolean masks (True = null) of the columns whose values cannot tell; call before ``columns``."""

def read(
    sources: Sequence[str | bytes | BinaryIO],
    *,
    capture_filter: str | None,
    packet_limit: int | None,
    time_from_ns: int | None,
    time_to_ns: int | None,
    time_is_relative: bool,
    tables: Iterable[str],
    progress: Callable[[int, int | None], None] | None,
) -> Pass:
    """One pass over the sources as one stream. Releases the GIL; Ctrl-C raises KeyboardInterrupt.

    A ``str`` is a path, or ``-`` for standard input; ``bytes`` are the content of a capture. Times are absolute
    nanoseconds since 1970, or relative to the first packet. ``tables``: which of schema.ON_REQUEST to fill.
    """
