"""What was written without names, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from iscsitrace.show.document import Section


def as_dict(path: Path, counts: Mapping[str, int]) -> dict[str, Any]:
    """What ``anonymise --json`` prints."""
    from iscsitrace.tables.schema import SCHEMA_VERSION

    return {"schema": SCHEMA_VERSION, "output": str(path), **counts}


def sections(path: Path, counts: Mapping[str, int], *, drops_others: bool) -> Iterator[Section]:
    """What was written, and what became of packets of no iSCSI connection."""
    lines = [f"{path}: packets {counts['packets']:,}, iSCSI connections {counts['connections']:,}"]
    fate = "left out" if drops_others else "written without data"
    if counts["other_tcp_packets"]:
        lines.append(f"packets of other TCP connections, {fate}: {counts['other_tcp_packets']:,}")
    fate = "left out except for ICMP errors" if drops_others else "emptied"
    if counts["packets_without_tcp"]:
        lines.append(f"packets without TCP, {fate}: {counts['packets_without_tcp']:,}")
    yield Section("", tuple(lines))
