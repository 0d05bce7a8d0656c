"""``iscsitrace inspect``: the PDUs of one command or frame, Wireshark's fields beside iscsitrace's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from iscsitrace.cli.options import CaptureInput, takes_captures
from iscsitrace.cli.output import writes_text
from iscsitrace.cli.sections import SectionedCommand
from iscsitrace.errors import InputInvalid
from iscsitrace.show.document import Section, table
from iscsitrace.show.terminal import show

if TYPE_CHECKING:
    from iscsitrace.tables.trace import TraceTables
    from iscsitrace.wireshark.dissect import Fields, PduPair, Row


@click.command(cls=SectionedCommand, epilog="Example:  iscsitrace inspect --cycle 12 capture.pcapng")
@takes_captures
@click.option("--cycle", type=click.IntRange(min=0), metavar="N", help="Show the PDUs of this command (see cycles).")
@click.option("--frame", type=click.IntRange(min=1), metavar="N", help="Show the PDUs of this frame.")
@writes_text
def command(capture_input: CaptureInput, cycle: int | None, frame: int | None) -> None:
    """Show each PDU of one command or frame: Wireshark's fields beside iscsitrace's columns.

    A PDU over several frames is shown at the frame where Wireshark shows it: the last, or the first if frames are
    truncated.

    Needs PyShark (pip install 'iscsitrace[wireshark]') and tshark.
    """
    if (cycle is None) == (frame is None):
        raise click.UsageError("name one of --cycle and --frame")
    capture_input.require_whole_file("inspect")
    from iscsitrace.wireshark.dissect import ends, pairs, require_pyshark, show_frames

    require_pyshark()
    # tshark is another program
    trace = capture_input.read(("pdus",), written=None)
    if frame is not None and frame > trace.packet_count:
        raise InputInvalid(f"there is no frame {frame}; {trace.packet_count} were read")
    rows = _pdus(trace, cycle, frame)
    frames = {number for row in rows for number in ends(row)} | ({frame} if frame is not None else set())
    ports = [row["target_port"] for row in trace.connections.rows(("target_port", "is_iscsi")) if row["is_iscsi"]]
    shown = dict(show_frames(capture_input.sources[0], sorted(frames), ports))
    show(_sections(pairs(rows, shown, frame), frame))


def _pdus(trace: TraceTables, cycle: int | None, frame: int | None) -> list[dict[str, Any]]:
    pdus = trace.pdus
    if cycle is not None:
        if cycle >= len(trace.cycles):
            raise InputInvalid(f"there is no cycle {cycle}; the capture has {len(trace.cycles)}, counted from 0")
        return list(pdus.select(pdus.raw("cycle") == cycle).rows())
    return list(pdus.select((pdus.raw("frame_last") == frame) | (pdus.raw("frame_first") == frame)).rows())


def _sections(found: Iterable[PduPair], frame: int | None) -> Iterator[Section]:
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
    from iscsitrace.wireshark.dissect import FIELDS

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
