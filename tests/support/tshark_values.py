"""tshark's names of the codes of iSCSI and SCSI, as ``tshark -G values`` prints them."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache


@cache
def _names() -> dict[str, dict[int, str]]:
    """Field to code to name. A missing tshark fails the test."""
    command = [shutil.which("tshark") or "tshark", "-G", "values"]
    found: dict[str, dict[int, str]] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith(("V\tscsi.", "V\tiscsi.")):
            _, field, code, name = line.split("\t")
            found.setdefault(field, {})[int(code, 0)] = name
    return found


def names(field: str) -> dict[int, str]:
    """Code to name of a field, such as ``scsi.status``."""
    return dict(_names()[field])
