"""The names of rows: short where they tell a session apart from the others, longer where they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from iscsitrace.watch.figures import WatchLine
from iscsitrace.wording.cells import printable

NOT_CAPTURED: Final = "login not captured"
_ARROW: Final = " > "
_UNKNOWN: Final = (NOT_CAPTURED, NOT_CAPTURED)


def session_names(sessions: Sequence[WatchLine], connections: Sequence[WatchLine]) -> dict[int, tuple[str, str]]:
    """Initiator and target of each session, the initiator empty where the target alone tells it apart.

    Sessions with the same two names, as several paths have, are told apart by the addresses of their connections.
    """
    of_connection = {line.number: (line.names["initiator"], line.names["target"]) for line in connections}
    addresses = {
        line.number: next((of_connection[each] for each in line.connections if each in of_connection), _UNKNOWN)
        for line in sessions
    }
    ends = {line.number: _ends(line, addresses[line.number]) for line in sessions}
    by_target = Counter(target for _, target in ends.values())
    by_both = Counter(ends.values())
    found = {}
    for line in sessions:
        initiator, target = both = ends[line.number]
        if by_both[both] > 1:
            found[line.number] = addresses[line.number]
        elif by_target[target] > 1:
            found[line.number] = both
        elif line.names["target_name"] or not line.names["initiator_name"]:
            found[line.number] = ("", str(line.names["target_name"] or NOT_CAPTURED))
        else:
            found[line.number] = ("", initiator)
    return found


def joined(ends: tuple[str, str], width: int | None = None) -> str:
    """``initiator > target``; names too long for the width are cut at their start, because the end is specific."""
    initiator, target = (printable(each) for each in ends)
    if not initiator:
        return _short(target, width)
    if width is None or len(initiator) + len(_ARROW) + len(target) <= width:
        return f"{initiator}{_ARROW}{target}"
    room = max(width - len(_ARROW), 2)
    half = room // 2
    left = max(half, room - len(target))
    return f"{_short(initiator, left)}{_ARROW}{_short(target, room - min(len(initiator), left))}"


def _short(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else "…" + text[len(text) + 1 - width :]


def _ends(line: WatchLine, addresses: tuple[str, str]) -> tuple[str, str]:
    """Their names, or addresses where a name is unknown."""
    return line.names["initiator_name"] or addresses[0], line.names["target_name"] or addresses[1]
