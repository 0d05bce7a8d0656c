"""Names of capture files: a default name, and the names of a ring as dumpcap has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


def made_up(interfaces: Sequence[str]) -> Path:
    """``iscsitrace_eth0_20261121190000.pcapng`` in the current folder, with local time."""
    name = "_".join(re.sub(r"[^\w.-]", "-", interface) for interface in interfaces)
    return Path(f"iscsitrace_{name}_{_now()}.pcapng")


def numbered(path: Path, number: int) -> Path:
    """``NAME_00001_20261121190000.pcapng`` for ``NAME.pcapng``."""
    return path.with_name(f"{path.stem}_{number:05}_{_now()}{path.suffix}")


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y%m%d%H%M%S")
