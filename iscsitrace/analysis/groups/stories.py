"""Stories: sessions that took each other's place, and the connections by which an initiator tried to reach a target.

A session that is lost, the refused logins and unanswered SYNs after it, and the session that replaces it are one story
(docs/method.md, section 11). Every session belongs to exactly one, and so does every connection of one; so do
connections without a session that went to a known portal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iscsitrace.tables.table import Table

Source = Callable[[str], Table]

PORTS: Final = (3260, 860)
"""Ports of portals (RFC 7143 section 15): a connection to one of them is a try, even if nothing answered it."""

_COLUMNS = (
    *("connection", "session", "is_iscsi", "initiator_address", "target_address", "target_port"),
    *("syn_ns", "syn_frame", "syn_ack_ns", "is_refused", "frame_first", "frame_last", "time_first_ns", "time_last_ns"),
    *("header_digest", "data_digest", "has_syn", "mss_bytes_to_target", "mss_bytes_to_initiator"),
    *(
        f"{name}_{direction}{unit}"
        for direction in ("to_target", "to_initiator")
        for name, unit in (
            *(("fin", "_ns"), ("fin", "_frame"), ("rst", "_ns"), ("rst", "_frame"), ("time_last", "_ns")),
            *(("data_last", "_ns"), ("retransmitted_packets", ""), ("retransmitted_syns", ""), ("gap_bytes", "")),
        )
    ),
)


@dataclass(frozen=True)
class Story:
    """One story, with rows of ``sessions`` and ``connections`` as dictionaries, each in order of time."""

    sessions: tuple[dict[str, Any], ...]
    """Empty where no login was captured, and nothing else of a session."""
    connections: tuple[dict[str, Any], ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its sessions."""
        return tuple(row["session"] for row in self.sessions)

    @property
    def is_discovery(self) -> bool:
        """Whether all of it is discovery."""
        return bool(self.sessions) and all(row["session_type"] == "discovery" for row in self.sessions)


def find(source: Source) -> list[Story]:
    """The stories of a trace that was read with any tables, in order of their first session or connection."""
    connections = list(source("connections").rows(_COLUMNS))
    sessions = list(source("sessions").rows())
    of_session: dict[int, list[dict[str, Any]]] = {}
    for row in connections:
        if row["session"] is not None:
            of_session.setdefault(row["session"], []).append(row)
    portals = {(row["target_address"], row["target_port"]) for row in connections if row["is_iscsi"]}
    tries = [row for row in connections if row["session"] is None and _is_try(row, portals)]
    chains = _chains(sessions)
    places: dict[tuple[str, str, int], list[int]] = {}
    for number, chain in enumerate(chains):
        for place in {_place(row) for each in chain for row in of_session.get(each["session"], ())}:
            places.setdefault(place, []).append(number)
    added: dict[int, list[dict[str, Any]]] = {}
    alone: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in tries:
        near = _nearest(row, [(number, chains[number]) for number in places.get(_place(row), ())])
        if near is None:
            alone.setdefault(_place(row), []).append(row)
        else:
            added.setdefault(near, []).append(row)
    found = [
        Story(
            tuple(chain),
            _in_time([*added.get(number, ()), *(row for each in chain for row in of_session.get(each["session"], ()))]),
        )
        for number, chain in enumerate(chains)
    ]
    found += [Story((), _in_time(rows)) for rows in alone.values()]
    return sorted(
        found,
        key=lambda story: (
            story.numbers or (len(sessions),),
            story.connections[0]["connection"] if story.connections else -1,
        ),
    )


def _is_try(row: dict[str, Any], portals: set[tuple[str, int]]) -> bool:
    is_portal = row["target_port"] in PORTS or (row["target_address"], row["target_port"]) in portals
    return bool(row["is_iscsi"] or (is_portal and row["has_syn"]))


def _place(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["initiator_address"], row["target_address"], row["target_port"]


def _chains(sessions: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The sessions, each after the one that it replaced."""
    chain_of: dict[int, list[dict[str, Any]]] = {}
    found: list[list[dict[str, Any]]] = []
    for row in sessions:
        chain = chain_of.get(row["replaces"]) if row["replaces"] is not None else None
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(row)
        chain_of[row["session"]] = chain
    return found


def _nearest(row: dict[str, Any], chains: Iterable[tuple[int, list[dict[str, Any]]]]) -> int | None:
    """The story in which a session was lost before this try and replaced after it; else the one that ended last before."""
    best: tuple[int, int] | None = None
    for number, chain in chains:
        for before, after in zip([None, *chain], [*chain, None], strict=True):
            is_after = before is None or before["time_first_ns"] <= row["time_first_ns"]
            is_before = after is None or row["time_first_ns"] <= after["time_first_ns"]
            if is_after and is_before:
                away = abs(row["time_first_ns"] - (before or after or row)["time_last_ns"])
                best = min(best or (away, number), (away, number))
    return best[1] if best else None


def _in_time(rows: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(sorted(rows, key=lambda row: (row["time_first_ns"], row["connection"])))
