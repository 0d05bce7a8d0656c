"""The status of a command in words: its class, its severity and its text, from status and sense data.

A column is classified by its combinations of codes, of which a capture has few, not by its rows. What a status costs,
and whether it is the cause of a failure, is decided by findings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from iscsitrace.wording import status_classes as classes
from iscsitrace.wording.scsi_names import CHECK_CONDITION, GOOD, SERVICE_RESPONSES, name, statuses
from iscsitrace.wording.status_classes import INFO, WARNING, StatusClass

if TYPE_CHECKING:
    from numpy.typing import NDArray
from functools import cache

UNKNOWN: Final = "unknown additional sense"
"""The text of a code that T10 has not assigned."""
_VENDOR_SPECIFIC: Final = 0x80
"""From here on T10 assigns neither additional sense codes nor, unless listed, qualifiers."""


@cache
def sense_keys() -> tuple[str, ...]:
    """The name of each sense key; Ch was EQUAL until SPC-3."""
    from iscsitrace import _core

    return _core.SENSE_KEYS


@cache
def codes() -> dict[tuple[int, int], str]:
    """Additional sense code and qualifier to text, without the ranges."""
    from iscsitrace import _core

    return {(asc, ascq): words for asc, ascq, words in _core.sense_codes()}


def additional_sense(asc: int, ascq: int) -> str:
    """The text of a code and qualifier: ``unrecovered read error``, ``vendor specific``."""
    if (words := codes().get((asc, ascq))) is not None:
        return words
    if asc == 0x40 and ascq >= _VENDOR_SPECIFIC:
        return f"diagnostic failure on component {ascq:02X}h"
    if asc == 0x4D:
        return f"tagged overlapped commands (task tag {ascq:02X}h)"
    if asc == 0x70:
        return f"decompression exception short algorithm ID of {ascq:02X}h"
    if asc >= _VENDOR_SPECIFIC:
        return "vendor specific"
    general = codes().get((asc, 0))
    if ascq >= _VENDOR_SPECIFIC and general is not None:
        return f"{general} (vendor specific qualifier)"
    return UNKNOWN


def sense_text(sense_key: int, asc: int, ascq: int) -> str:
    """Sense data in words and in hexadecimal: ``MEDIUM ERROR, unrecovered read error (3/11/00)``."""
    words = additional_sense(asc, ascq)
    return f"{sense_keys()[sense_key & 0xF]}, {words} ({sense_key & 0xF:X}/{asc:02X}/{ascq:02X})"


_NULL: Final = 255
"""A code that is null in a column of the core."""
_SUCCESS: Final = {GOOD, 0x04, 0x10, 0x14}
"""GOOD, CONDITION MET and the obsolete INTERMEDIATE statuses."""
_BY_STATUS: Final = {
    0x08: classes.BUSY,
    0x18: classes.RESERVATION_CONFLICT,
    0x28: classes.TASK_SET_FULL,
    0x40: classes.ABORTED,
}

_SEVERITIES_OF_UNKNOWN: Final = (WARNING, INFO)
"""Without sense data, or with a key whose codes decide: what it would say cannot be known."""
_ALL: Final = range(256)


@dataclass(frozen=True)
class _Rule:
    """Sense data of these keys, codes and qualifiers are of this class."""

    keys: Collection[int]
    asc: Collection[int]
    ascq: Collection[int]
    status_class: StatusClass
    severities: tuple[str, str] | None = None
    """Of commands that read or write the medium, and of others, where they differ from the class."""


# The first rule that fits decides: codes with one meaning under any key stand before the rules of keys.
_RULES: Final = (
    # NO SENSE, RECOVERED ERROR, UNIT ATTENTION: warnings, and failure predictions
    _Rule({0x0, 0x1, 0x6}, {0x0B, 0x5D}, _ALL, classes.HARDWARE_ERROR, (WARNING, WARNING)),
    # thin provisioning soft threshold reached: the command is retried and succeeds
    _Rule(_ALL, {0x38}, {0x07}, classes.SPACE_FULL, (WARNING, WARNING)),
    _Rule(_ALL, {0x27}, {0x07}, classes.SPACE_FULL),
    # commands cleared by another initiator, power loss notification, device server
    _Rule({0x6}, {0x2F}, _ALL, classes.ABORTED),
    # implicit asymmetric access state transition failed
    _Rule({0x6}, {0x2A}, {0x07}, classes.ALUA, (WARNING, WARNING)),
    _Rule({0x6}, _ALL, _ALL, classes.UNIT_ATTENTION),
    _Rule({0x0, 0x1, 0xF}, _ALL, _ALL, classes.RECOVERED),
    _Rule(_ALL, {0x27}, _ALL, classes.WRITE_PROTECTED),
    _Rule(_ALL, {0x25}, {0x00}, classes.NO_SUCH_LUN),
    _Rule(_ALL, {0x21}, {0x00}, classes.OUT_OF_RANGE),
    _Rule(_ALL, {0x10}, range(0x01, 0x06), classes.PROTECTION),
    # transition, standby, unavailable
    _Rule(_ALL, {0x04}, {0x0A, 0x0B, 0x0C}, classes.ALUA),
    # becoming ready, or an operation in progress: format, rebuild, self-test, space allocation ...
    _Rule(
        {0x2},
        {0x04},
        {0x01, *range(0x04, 0x0A), 0x0E, 0x13, 0x14, 0x1A, 0x1B, 0x1D, 0x24, 0x25},
        classes.NOT_READY,
        (WARNING, INFO),
    ),
    _Rule({0x2}, _ALL, _ALL, classes.NOT_READY),
    _Rule({0x3}, _ALL, _ALL, classes.MEDIUM_ERROR),
    _Rule({0x4}, _ALL, _ALL, classes.HARDWARE_ERROR),
    # operation code; saving parameters; parameter list length
    _Rule({0x5}, {0x20, 0x39, 0x1A}, {0x00}, classes.UNSUPPORTED),
    _Rule({0x5}, {0x24}, {0x00, 0x08, 0x09}, classes.UNSUPPORTED),
    # parameters and descriptors, but not: invalid release of persistent reservation, data decryption, keys
    _Rule({0x5}, {0x26}, {*range(0x04), *range(0x06, 0x0F)}, classes.UNSUPPORTED),
    # unsupported enclosure function
    _Rule({0x5}, {0x35}, {0x01}, classes.UNSUPPORTED),
    _Rule({0xB}, _ALL, _ALL, classes.ABORTED),
    _Rule({0xE}, _ALL, _ALL, classes.MISCOMPARE),
)


@dataclass(frozen=True)
class CommandStatus:
    """A status other than GOOD."""

    status_class: StatusClass
    severity: str
    text: str
    """``MEDIUM ERROR, unrecovered read error (3/11/00)``, ``BUSY``."""


@lru_cache(maxsize=4096)
def command_status(
    status: int | None,
    sense_key: int | None = None,
    asc: int | None = None,
    ascq: int | None = None,
    *,
    response: int | None = None,
    is_read_or_write: bool = True,
) -> CommandStatus | None:
    """The status of a command with these codes, None for null; None if it succeeded, or has no status.

    ``response`` is the iSCSI service response. ``is_read_or_write`` is false for commands that a target need not
    support, such as UNMAP and WRITE SAME: a refusal is how the initiator learns it. A code of FFh is null: no target
    sends it, and columns cannot tell the two apart.
    """
    if response:
        text = f"{name(SERVICE_RESPONSES, response)} (iSCSI service response)"
        return CommandStatus(classes.OTHER, _severity(classes.OTHER, None, is_read_or_write), text)
    if status is None or status in _SUCCESS:
        return None
    if status != CHECK_CONDITION:
        status_class = _BY_STATUS.get(status, classes.OTHER)
        text = statuses().get(status, f"status {status:02X}h")
        return CommandStatus(status_class, _severity(status_class, None, is_read_or_write), text)
    if sense_key is None:
        text = "CHECK CONDITION, no sense data in the capture"
        return CommandStatus(classes.OTHER, _severity(classes.OTHER, _SEVERITIES_OF_UNKNOWN, is_read_or_write), text)
    codes = (sense_key & 0xF, _NULL if asc is None else asc, _NULL if ascq is None else ascq)
    status_class, severities = _class_of_sense(*codes)
    text = sense_text(*codes)
    if codes[1] == _NULL:
        # the sense data, or its captured part, ends before the code
        text = f"{sense_keys()[codes[0]]}, no additional sense code in the capture"
        if status_class is classes.OTHER:
            severities = _SEVERITIES_OF_UNKNOWN
    return CommandStatus(status_class, _severity(status_class, severities, is_read_or_write), text)


def _class_of_sense(sense_key: int, asc: int, ascq: int) -> tuple[StatusClass, tuple[str, str] | None]:
    for rule in _RULES:
        if sense_key in rule.keys and asc in rule.asc and ascq in rule.ascq:
            return rule.status_class, rule.severities
    return classes.OTHER, None


def _severity(status_class: StatusClass, severities: tuple[str, str] | None, is_read_or_write: bool) -> str:
    of_data, of_others = severities or (status_class.severity, status_class.severity_of_others)
    return of_data if is_read_or_write else of_others


def of_columns(
    status: NDArray[Any],
    sense_key: NDArray[Any],
    asc: NDArray[Any],
    ascq: NDArray[Any],
    *,
    response: NDArray[Any],
    is_read_or_write: NDArray[Any],
) -> tuple[list[CommandStatus], NDArray[Any]]:
    """The statuses other than GOOD that occur, and for each row the place of its own in this list, -1 for none.

    The columns are those of ``cycles`` as stored (uint8, 255 for null), and ``is_read_or_write`` as for
    :func:`command_status`.
    """
    import numpy as np

    columns = (status, sense_key, asc, ascq, response)
    has_response = (response != 0) & (response != _NULL)
    rows = np.flatnonzero((status != GOOD) & (status != _NULL) | has_response)
    places = np.full(len(status), -1, dtype=np.int32)
    if not len(rows):
        return [], places
    # one number per combination, a byte per code
    packed = np.asarray(is_read_or_write[rows], dtype=np.int64)
    for column in columns:
        packed = packed << 8 | column[rows]
    combinations, numbers = np.unique(packed, return_inverse=True)
    found: list[CommandStatus] = []
    of_combination = np.full(len(combinations), -1, dtype=np.int32)
    for number, combination in enumerate(combinations.tolist()):
        of_data, *known = combination.to_bytes(6)
        *codes, of_response = (None if code == _NULL else code for code in known)
        each = command_status(*codes, response=of_response, is_read_or_write=bool(of_data))
        if each is not None:
            of_combination[number] = len(found)
            found.append(each)
    places[rows] = of_combination[numbers]
    return found, places
