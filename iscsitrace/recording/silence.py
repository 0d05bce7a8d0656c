"""Why nothing was seen: no packets, packets that the filter leaves out, or packets without iSCSI. Said once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from iscsitrace.wording.amounts import count

AFTER_S: Final = 5.0
"""An idle session sends a NOP every five seconds or so: after that, silence is worth a line."""
PORTS: Final = "TCP ports 3260 and 860"
_COUNTERS: Final = Path("/proc/self/net/dev")


def listening(names: Sequence[str], capture_filter: str | None, *, is_learning: bool) -> str:
    """Which packets are captured: ``listening on eth0: TCP ports 3260 and 860, and ...``."""
    if capture_filter is not None:
        what = f"packets that match '{capture_filter}'"
    else:
        what = f"{PORTS}, and iSCSI on other ports once it is found" if is_learning else f"{PORTS} only"
    return f"listening on {', '.join(names)}: {what}"


class Silence:
    """Waits for the first packets, and then for iSCSI in them."""

    def __init__(self, names: Sequence[str], capture_filter: str | None, *, is_learning: bool) -> None:
        """``names`` are the interfaces; none for a file or a pipe."""
        self._names = names
        self._filter = capture_filter
        self._is_learning = is_learning
        self._since_s = time.monotonic()
        self._before = packets_of(names)
        self._is_over = False

    def line(self, packet_count: int, *, has_iscsi: bool | None) -> str | None:
        """What to say, once, where nothing was seen for AFTER_S; None before, later, and where iSCSI was seen.

        ``packet_count`` are the packets that passed the filter; None where nobody knows yet if they have iSCSI.
        """
        if packet_count and has_iscsi is None:
            return None
        self._is_over |= bool(has_iscsi)
        if self._is_over or time.monotonic() - self._since_s < AFTER_S:
            return None
        self._is_over = True
        where = f" on {', '.join(self._names)}" if self._names else ""
        within = f"in {AFTER_S:.0f} s"
        if packet_count:
            return f"{count(packet_count, 'packet')}{where} {within}, but no iSCSI in them"
        after = packets_of(self._names)
        if not self._names or self._before is None or after is None:
            return f"no packets{where} {within}"
        others = max(after - self._before, 0)
        if not others:
            return f"no packets{where} {within}: iscsitrace interfaces lists the others"
        return f"{count(others, 'packet')}{where} {within}, but none {self._left_out}"

    @property
    def _left_out(self) -> str:
        if self._filter is not None:
            return f"that match the capture filter '{self._filter}'"
        if self._is_learning:
            return f"of iSCSI: {PORTS} are silent, and no other port has iSCSI so far"
        return f"on {PORTS}: name another port with -f 'tcp port N'"


def packets_of(names: Sequence[str]) -> int | None:
    """Packets that these interfaces (``any``: all) received and sent since they exist; None where it is unknown."""
    try:
        lines = _COUNTERS.read_text().splitlines()[2:]
    except OSError:
        return None
    found = {}
    for each in lines:
        name, _, counters = each.partition(":")
        numbers = counters.split()
        found[name.strip()] = int(numbers[1]) + int(numbers[9])
    if "any" in names:
        return sum(found.values())
    known = [found[name] for name in names if name in found]
    return sum(known) if len(known) == len(names) else None
