"""``iscsitrace inspect``: the frames of one task, Wireshark's fields side by side with ours, through PyShark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.cli.output import show_heading, show_line, show_table
from iscsitrace.errors import InputInvalid

if TYPE_CHECKING:
    from iscsitrace.tables.trace import Trace


@click.command(epilog="Example:  iscsitrace inspect --cycle 12 capture.pcapng")
@takes_captures
@click.option("--cycle", type=click.IntRange(min=0), metavar="N", help="The frames of that task.")
@click.option("--frame", type=click.IntRange(min=1), metavar="N", help="That frame.")
def command(capture_input: CaptureInput, cycle: int | None, frame: int | None) -> None:
    """Each PDU of one task or frame: what Wireshark shows beside what iscsitrace read.

    A PDU over several frames stands at the one where Wireshark shows it: the last, or the first of frames cut short.

    Needs PyShark (pip install 'iscsitrace[wireshark]') and tshark.
    """
    if (cycle is None) == (frame is None):
        raise click.UsageError("name one of --cycle and --frame")
    capture_input.require_whole_file("inspect")
    from iscsitrace.wireshark.dissect import require_pyshark, show_frames

    require_pyshark()
    trace = capture_input.read(("pdus",))
    if frame is not None and frame > trace.packet_count:
        raise InputInvalid(f"there is no frame {frame}; {trace.packet_count} were read")
    ours = _pdus(trace, cycle, frame)
    frames = {number for row in ours for number in _ends(row)} | ({frame} if frame is not None else set())
    ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
    shown = dict(show_frames(capture_input.sources[0], sorted(frames), ports))
    remaining = list(ours)
    for number in sorted(frames):
        for fields in shown.get(number, []):
            row = _partner(number, dict(fields), remaining)
            if row is not None:
                remaining.remove(row)
                _show_pair(number, fields, row)
            # what Wireshark alone has; the other PDUs of these frames were not asked for
            elif number == frame or (cycle is not None and _has_tag(dict(fields), ours[0])):
                _show_pair(number, fields, {})
        for row in remaining:
            if _ends(row)[-1] == number:
                _show_ours(row)
    if frame is not None and not ours and not shown.get(frame):
        show_heading(f"frame {frame}")
        show_line("neither Wireshark nor iscsitrace has an iSCSI PDU that begins or ends here")


def _pdus(trace: Trace, cycle: int | None, frame: int | None) -> list[dict[str, Any]]:
    pdus = trace.pdus
    if cycle is not None:
        if cycle >= len(trace.cycles):
            raise InputInvalid(f"there is no cycle {cycle}; the capture has {len(trace.cycles)}, counted from 0")
        return list(pdus.select(pdus.raw("cycle") == cycle).rows())
    return list(pdus.select((pdus.raw("frame_last") == frame) | (pdus.raw("frame_first") == frame)).rows())


def _ends(row: dict[str, Any]) -> list[int]:
    """The frame in which a PDU of ours begins, and the one in which it ends: where Wireshark may show it."""
    return [number for number in (row["frame_first"], row["frame_last"]) if number is not None]


def _show_pair(number: int, fields: list[tuple[str, str]], ours: dict[str, Any]) -> None:
    from iscsitrace.wireshark.dissect import FIELDS

    show_heading(f"frame {number}")
    used = {FIELDS[name] for name, _ in fields if name in FIELDS}
    lines = [(name, value, FIELDS.get(name, ""), _ours(ours, FIELDS.get(name))) for name, value in fields if name]
    lines += [("", "", name, value) for name, value in ours.items() if name not in used and value is not None]
    show_table(("Wireshark's field", "shows", "our column", "ours"), lines)


def _show_ours(row: dict[str, Any]) -> None:
    first, last = row["frame_first"], row["frame_last"]
    show_heading(f"frame {_ends(row)[-1]}")
    if first == last:
        show_line("Wireshark shows no such PDU here")
    elif last is None:
        show_line("Wireshark shows no such PDU here, where it begins; no frame completes it")
    else:
        show_line(f"Wireshark shows no such PDU here, nor in frame {first}, where it begins")
    show_table(("our column", "ours"), [(name, value) for name, value in row.items() if value is not None])


def _ours(row: dict[str, Any], name: str | None) -> object:
    value = row.get(name) if name else None
    if name in ("initiator_task_tag", "target_transfer_tag") and value is not None:
        return f"{value:#010x}"
    return "" if value is None else value


def _partner(number: int, fields: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Our PDU that Wireshark's fields in that frame are about, or None.

    It has the same opcode and task tag, and the same DataSN if one of them has. A PDU that ends in the frame comes
    before one that only begins there, which Wireshark shows when frames are cut short.
    """
    alike = [row for row in rows if _has_tag(fields, row) and f"{row['opcode']:#04x}" in fields.get("iscsi.opcode", "")]
    ending = [row for row in alike if row["frame_last"] == number]
    beginning = [row for row in alike if row["frame_first"] == number]
    same = [row for row in (*ending, *beginning) if _has_data_sn(fields, row)]
    return next(iter((*same, *ending)), None)


def _has_tag(fields: dict[str, str], row: dict[str, Any]) -> bool:
    return _shows(fields.get("iscsi.initiatortasktag"), row["initiator_task_tag"])


def _has_data_sn(fields: dict[str, str], row: dict[str, Any]) -> bool:
    return _shows(fields.get("iscsi.datasn", fields.get("iscsi.r2tsn")), row["data_sn"])


def _shows(shown: str | None, value: int | None) -> bool:
    """Whether Wireshark's text has our value; true where either has none."""
    return shown is None or value is None or f"{value:#010x}" in shown
