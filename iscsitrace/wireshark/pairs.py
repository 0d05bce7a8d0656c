"""Wireshark's fields of a PDU and the row of ``pdus`` for the same PDU, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Fields = list[tuple[str, str]]


@dataclass(frozen=True)
class PduPair:
    """A PDU at the frame where Wireshark shows it; one side is missing where only the other has the PDU."""

    frame: int
    fields: Fields | None
    row: Row | None


def ends(row: Row) -> list[int]:
    """The frames in which a PDU begins and ends: Wireshark shows it at one of them."""
    return [number for number in (row["frame_first"], row["frame_last"]) if number is not None]


def pairs(rows: Sequence[Row], shown: Mapping[int, list[Fields]], frame: int | None) -> Iterator[PduPair]:
    """The PDUs of ``rows`` and, in the requested frame, all that Wireshark shows; without a frame, of that command.

    ``shown`` has Wireshark's PDUs of each frame.
    """
    remaining = list(rows)
    for number in sorted({number for row in rows for number in ends(row)} | ({frame} if frame is not None else set())):
        for fields in shown.get(number, []):
            row = _partner(number, dict(fields), remaining)
            if row is not None:
                remaining.remove(row)
                yield PduPair(number, fields, row)
            # Wireshark alone has this PDU; other PDUs of these frames were not requested
            elif number == frame or (frame is None and _has_tag(dict(fields), rows[0])):
                yield PduPair(number, fields, None)
        yield from (PduPair(number, None, row) for row in remaining if ends(row)[-1] == number)


def _partner(number: int, fields: Mapping[str, str], rows: Sequence[Row]) -> Row | None:
    """The row for Wireshark's fields in that frame, or None.

    It has the same opcode and task tag, and the same DataSN if one of them has. A PDU that ends in the frame comes
    before one that only begins there, which Wireshark shows when frames are truncated.
    """
    alike = [row for row in rows if _has_tag(fields, row) and f"{row['opcode']:#04x}" in fields.get("iscsi.opcode", "")]
    ending = [row for row in alike if row["frame_last"] == number]
    beginning = [row for row in alike if row["frame_first"] == number]
    same = [row for row in (*ending, *beginning) if _has_data_sn(fields, row)]
    return next(iter((*same, *ending)), None)


def _has_tag(fields: Mapping[str, str], row: Row) -> bool:
    return _shows(fields.get("iscsi.initiatortasktag"), row["initiator_task_tag"])


def _has_data_sn(fields: Mapping[str, str], row: Row) -> bool:
    return _shows(fields.get("iscsi.datasn", fields.get("iscsi.r2tsn")), row["data_sn"])


def _shows(shown: str | None, value: int | None) -> bool:
    """Whether Wireshark's text has our value; true where either has none."""
    return shown is None or value is None or f"{value:#010x}" in shown
