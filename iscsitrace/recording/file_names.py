"""Names of capture files: a default name, and the names of a ring as dumpcap has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

NUMBERS: Final = 100_000
"""As many as dumpcap has; then they begin again."""
_NUMBER: Final = r"_(\d{5})_(\d{14})"
"""What the name of a file of a ring has behind that of the ring: its number and its time."""


def made_up(interfaces: Sequence[str]) -> Path:
    """``iscsitrace_eth0_20261121190000.pcapng`` in the current folder, with local time."""
    name = "_".join(re.sub(r"[^\w.-]", "-", interface) for interface in interfaces)
    return Path(f"iscsitrace_{name}_{_now()}.pcapng")


def numbered(path: Path, number: int) -> Path:
    """``NAME_00001_20261121190000.pcapng`` for ``NAME.pcapng``."""
    return path.with_name(f"{path.stem}_{number % NUMBERS:05}_{_now()}{path.suffix}")


def of_ring(path: Path) -> list[Path]:
    """The existing files of a ring, compressed ones too, the oldest first by their names' times and numbers."""
    pattern = re.compile(rf"{re.escape(path.stem)}{_NUMBER}{re.escape(path.suffix)}(?:\.zst)?")
    found = []
    for each in path.parent.iterdir():
        if (match := pattern.fullmatch(each.name)) and each.is_file() and not each.is_symlink():
            found.append((match[2], match[1], each))
    return [each for _, _, each in sorted(found)]


def ring_of(name: str) -> str | None:
    """The name of the ring that a file of this name is of; None for another file."""
    match = re.fullmatch(rf"(.+){_NUMBER}(\.\w+?)(?:\.(?:zst|gz|lz4))?", name)
    return f"{match[1]}{match[4]}" if match else None


def number_of(path: Path) -> int:
    """The number in a name of `of_ring`."""
    return int(path.name.removesuffix(".zst").rsplit("_", 2)[1])


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y%m%d%H%M%S")
