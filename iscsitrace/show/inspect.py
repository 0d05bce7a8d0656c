"""PDUs as Wireshark and iscsitrace read them, side by side, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from iscsitrace.show.document import Section, table
from iscsitrace.wireshark.dissect import FIELDS, Fields, PduPair, Row


def sections(found: Iterable[PduPair], frame: int | None) -> Iterator[Section]:
    """One table per PDU; a line where the requested frame has none."""
    is_empty = True
    for pair in found:
        is_empty = False
        if pair.fields is None:
            yield _row_alone(pair.frame, pair.row or {})
        else:
            yield _side_by_side(pair.frame, pair.fields, pair.row or {})
    if is_empty and frame is not None:
        line = "neither Wireshark nor iscsitrace has an iSCSI PDU that begins or ends here"
        yield Section(f"frame {frame}", (line,))


def _side_by_side(number: int, fields: Fields, row: Row) -> Section:
    used = {FIELDS[name] for name, _ in fields if name in FIELDS}
    lines = [(name, value, FIELDS.get(name, ""), _value(row, FIELDS.get(name))) for name, value in fields if name]
    lines += [("", "", name, value) for name, value in row.items() if name not in used and value is not None]
    columns = ("Wireshark field", "Wireshark", "iscsitrace column", "iscsitrace")
    return Section(f"frame {number}", (table(columns, lines),))


def _row_alone(number: int, row: Row) -> Section:
    first, last = row["frame_first"], row["frame_last"]
    if first == last:
        line = "Wireshark shows no such PDU here"
    elif last is None:
        line = "Wireshark shows no such PDU here, where it begins; no frame completes it"
    else:
        line = f"Wireshark shows no such PDU here, nor in frame {first}, where it begins"
    rows = [(name, value) for name, value in row.items() if value is not None]
    return Section(f"frame {number}", (line, table(("iscsitrace column", "iscsitrace"), rows)))


def _value(row: dict[str, Any], name: str | None) -> object:
    value = row.get(name) if name else None
    if name in ("initiator_task_tag", "target_transfer_tag") and value is not None:
        return f"{value:#010x}"
    return "" if value is None else value
