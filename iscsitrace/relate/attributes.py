"""What commands are told apart by: LUN, operation, initiator, target, I/O size, volume, hour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from iscsitrace.measure.data_commands import is_data_command
from iscsitrace.relate import volumes
from iscsitrace.relate.volumes import Volumes, ends_of_sessions
from iscsitrace.tables.nulls import known
from iscsitrace.tables.numbers import distinct
from iscsitrace.tables.table import Source
from iscsitrace.wording import cells

Array = NDArray[Any]

HOUR_NS: Final = 3_600_000_000_000


@dataclass(frozen=True)
class Attribute:
    """The values of one attribute."""

    labels: Sequence[str]
    places: Array
    """The place of each command's value among them; -1 for none."""
    volumes: Volumes | None = None
    """Where the values are volumes."""


class Attributes:
    """The attributes of the commands of one trace; ``source`` is its method ``table``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cycles = source("cycles")

    def by(self, name: str) -> Attribute:
        """The values of one of NAMES. All but operations have only the commands that read, write or erase data."""
        return _BY[name](self)

    @cached_property
    def _is_data(self) -> Array:
        return self._cycles.each(is_data_command)

    def _by_operation(self) -> Attribute:
        words = self._cycles.words_by_code("operation")
        labels = [str(word or "unknown") for word in words.tolist()]
        return Attribute(labels, self._cycles.raw("operation").astype(np.int64))

    def _by_size(self) -> Attribute:
        is_sized = self._is_data & known(self._cycles, "bytes")
        sizes, places = np.unique(self._cycles.raw("bytes"), return_inverse=True)
        return Attribute([cells.size(size) for size in sizes.tolist()], np.where(is_sized, places, -1))

    def _by_initiator(self) -> Attribute:
        return self._by_session("host")

    def _by_target(self) -> Attribute:
        return self._by_session("target")

    def _by_session(self, name: str) -> Attribute:
        ends = ends_of_sessions(self._source)
        labels: dict[str, int] = {}
        of_session = np.full(max(ends, default=-1) + 2, -1, dtype=np.int64)
        for number, each in ends.items():
            of_session[number] = labels.setdefault(each[name], len(labels))
        sessions = self._cycles.raw("session").astype(np.int64).clip(max=len(of_session) - 1)
        places = np.where(self._is_data & known(self._cycles, "session"), of_session[sessions], -1)
        return Attribute(list(labels), places)

    def _by_lun(self) -> Attribute:
        target = self._by_target()
        luns, of_lun = np.unique(self._cycles.raw("lun"), return_inverse=True)
        is_placed = (target.places >= 0) & known(self._cycles, "lun")
        used, which = distinct((target.places * len(luns) + of_lun)[is_placed])
        places = np.full(len(is_placed), -1, dtype=np.int64)
        places[is_placed] = which
        labels = [f"LUN {luns[each % len(luns)]} of {target.labels[each // len(luns)]}" for each in used.tolist()]
        return Attribute(labels, places)

    def _by_volume(self) -> Attribute:
        found = volumes.find(self._source)
        places = np.where(self._is_data, found.of_commands(self._cycles), -1)
        return Attribute([each.label for each in found.all], places, found)

    def _by_hour(self) -> Attribute:
        hours, which = distinct(self._cycles.raw("command_first_ns")[self._is_data] // HOUR_NS)
        places = np.full(len(self._is_data), -1, dtype=np.int64)
        places[self._is_data] = which
        return Attribute([hour_label(each) for each in hours.tolist()], places)


def hour_label(hour: int) -> str:
    """``2026-11-26 14:00``: the start of an hour, counted from 1970, in UTC."""
    return cells.clock(hour * HOUR_NS)[: len("2026-11-26 14:00")]


_BY: Final[dict[str, Callable[[Attributes], Attribute]]] = {
    "lun": Attributes._by_lun,
    "operation": Attributes._by_operation,
    "initiator": Attributes._by_initiator,
    "target": Attributes._by_target,
    "size": Attributes._by_size,
    "volume": Attributes._by_volume,
    "hour": Attributes._by_hour,
}
NAMES: Final = tuple(_BY)
"""What commands can be told apart by."""
