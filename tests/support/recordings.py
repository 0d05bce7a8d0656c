"""Where the tests find recorded captures."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz")


def captures_folder() -> Path:
    """The folder of recorded captures: ISCSITRACE_CAPTURES, or beside the repository. It may not exist."""
    return Path(os.environ.get("ISCSITRACE_CAPTURES") or Path(__file__).parents[3] / "shared" / "captures")


def recorded_captures() -> list[Path]:
    """The captures in that folder that come with a description (NAME.json beside NAME[.SIDE].pcap...)."""
    files = sorted(captures_folder().glob("*")) if captures_folder().is_dir() else []
    return [file for file in files if file.name.endswith(SUFFIXES) and description_of(file) is not None]


def description_of(file: Path) -> Path | None:
    """The JSON file that describes how a capture was made."""
    name = file.name.removesuffix(".gz").removesuffix(".pcap").removesuffix(".pcapng")
    for side in ("", ".initiator", ".target"):
        description = file.parent / f"{name.removesuffix(side) if side else name}.json"
        if description.exists():
            return description
    return None
