"""``iscsitrace inspect``: the frames of one task, Wireshark's fields side by side with ours, through PyShark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.cli.output import show_heading, show_line, show_table
from iscsitrace.errors import InputInvalid

if TYPE_CHECKING:
    from iscsitrace.trace import Trace


@click.command(
    short_help="Wireshark's fields beside ours.", epilog="Example:  iscsitrace inspect --cycle 12 capture.pcapng"
)
@takes_captures
@click.option("--cycle", type=click.IntRange(min=0), metavar="N", help="The frames of that task.")
@click.option("--frame", type=click.IntRange(min=1), metavar="N", help="That frame.")
def command(capture_input: CaptureInput, cycle: int | None, frame: int | None) -> None:
    """Each PDU of one task or frame: what Wireshark shows beside what iscsitrace read.

    Needs PyShark (pip install 'iscsitrace[wireshark]') and tshark.
    """
    if (cycle is None) == (frame is None):
        raise click.UsageError("name one of --cycle and --frame")
    capture_input.require_whole_file("inspect")
    from iscsitrace.wireshark import require_pyshark, show_frames

    require_pyshark()
    trace = capture_input.read(("pdus",))
    if frame is not None and frame > trace.packet_count:
        raise InputInvalid(f"there is no frame {frame}; {trace.packet_count} were read")
    ours = _pdus(trace, cycle, frame)
    frames = {row["frame_last"] or row["frame_first"] for row in ours} or {frame}
    ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
    shown = dict(show_frames(capture_input.sources[0], sorted(frames), ports))
    for number in sorted(frames):
        here = [row for row in ours if number in (row["frame_last"], row["frame_first"])]
        _show_frame(number, here, shown.get(number, []))


def _pdus(trace: Trace, cycle: int | None, frame: int | None) -> list[dict[str, Any]]:
    pdus = trace.pdus
    if cycle is not None:
        if cycle >= len(trace.cycles):
            raise InputInvalid(f"there is no cycle {cycle}; the capture has {len(trace.cycles)}, counted from 0")
        return list(pdus.select(pdus.raw("cycle") == cycle).rows())
    return list(pdus.select((pdus.raw("frame_last") == frame) | (pdus.raw("frame_first") == frame)).rows())


def _show_frame(number: int, ours: list[dict[str, Any]], shown: list[list[tuple[str, str]]]) -> None:
    from iscsitrace.wireshark import FIELDS

    remaining = list(ours)
    for fields in shown:
        row = _partner(dict(fields), remaining)
        if row is not None:
            remaining.remove(row)
        show_heading(f"frame {number}")
        values = row or {}
        used = {FIELDS[name] for name, _ in fields if name in FIELDS}
        lines = [(name, value, FIELDS.get(name, ""), _ours(values, FIELDS.get(name))) for name, value in fields if name]
        lines += [("", "", name, value) for name, value in values.items() if name not in used and value is not None]
        show_table(("Wireshark's field", "shows", "our column", "ours"), lines)
    for row in remaining:
        show_heading(f"frame {number}")
        show_line("Wireshark shows no such PDU here")
        show_table(("our column", "ours"), [(name, value) for name, value in row.items() if value is not None])
    if not ours and not shown:
        show_heading(f"frame {number}")
        show_line("neither Wireshark nor iscsitrace has an iSCSI PDU that begins or ends here")


def _ours(row: dict[str, Any], name: str | None) -> object:
    value = row.get(name) if name else None
    if name in ("initiator_task_tag", "target_transfer_tag") and value is not None:
        return f"{value:#010x}"
    return "" if value is None else value


def _partner(fields: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Our PDU that Wireshark's fields are about: the first left with the same opcode and task tag."""
    for row in rows:
        tag = row["initiator_task_tag"]
        is_tag = tag is None or f"{tag:#010x}" in fields.get("iscsi.initiatortasktag", f"{tag:#010x}")
        if is_tag and f"{row['opcode']:#04x}" in fields.get("iscsi.opcode", ""):
            return row
    return None
