"""Captures that stop in the middle of a read, as a source that falls silent leaves them."""

from __future__ import annotations

from pathlib import Path

import iscsitrace
from tests.support.capture_file import Record, read_records, write_pcapng

SOURCE = Path(__file__).parents[2] / "samples" / "sequential-read-4ms" / "capture.pcapng.gz"


def cut_in_a_read(file: Path, reads: int = 8) -> list[Record]:
    """Writes the sample up to a READ that nothing answers; returns its packets."""
    rows = [row for row in iscsitrace.read(SOURCE).cycles.rows() if row["operation"] == "read"]
    records, link_type = read_records(SOURCE)
    kept = records[: rows[reads]["command_frame"]]
    write_pcapng(file, kept, link_type)
    return kept
