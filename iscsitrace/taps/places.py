"""Where the time of commands goes: the network, the target or the initiator's host; and what is wrong there.

Pure functions of the legs and of what lies between neighbouring taps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from iscsitrace.measure import data_commands
from iscsitrace.measure.intervals import Span
from iscsitrace.tables.numbers import grouped
from iscsitrace.taps.legs import Legs
from iscsitrace.taps.network import Network
from iscsitrace.taps.reading import TappedTables
from iscsitrace.wording import amounts

Place = Literal["network", "target", "initiator"]
PLACES: Final[tuple[Place, ...]] = ("network", "target", "initiator")

SLOW_SHARE: Final = 0.5
"""A host that takes more of the time of all commands is what limits them."""

ASYMMETRY: Final = 2.0
"""Packets wait in one direction if it surely takes this many times as long as the other."""

FINDINGS: Final = {
    "lost_between_taps": "Packets passed one tap and never reached the next: the network between them lost them.",
    "capture_lacks_packets": "A tap's capture lacks packets that passed it: the network did not lose them.",
    "queue_between_taps": f"One direction between two taps surely takes more than {ASYMMETRY:.0f} times as long as the "
    "other, whatever the clocks' offset: more than its least delay, so packets wait in a queue there.",
    "slow_at_target": f"The target takes more than {amounts.percent(SLOW_SHARE)} of the time of a session's commands.",
    "slow_at_initiator": f"The initiator's host takes more than {amounts.percent(SLOW_SHARE)} of the time of a "
    "session's commands.",
}
"""What captures of several taps show beside the findings of a single one."""


@dataclass(frozen=True)
class TimePlaces:
    """The places of the time of a session's reads and writes."""

    session: int
    command_count: int
    latency_ns: int
    """Median latency at the initiator's tap."""
    parts_ns: dict[Place, int]
    """The parts of this latency: of the middle fifth of the commands, scaled so that they add up to it."""
    shares: dict[Place, float]
    """Shares of the time of all commands together."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class PlaceFinding:
    """A problem, and the place that has it."""

    name: str
    severity: str
    place: str
    """``network``, ``target``, ``initiator``, or the name of a tap."""
    text: str
    sessions: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def verdicts(trace: TappedTables, within: Span | None = None) -> list[TimePlaces]:
    """Of every session with reads or writes that have legs: of those that began ``within`` a time, else of all."""
    legs, cycles = trace.command_legs, trace.cycles
    session = cycles.raw("session")[legs.rows]
    is_data = data_commands.is_transfer(cycles)[legs.rows]
    if within is not None:
        starts = cycles.raw("command_first_ns")[legs.rows]
        is_data &= (starts >= within[0]) & (starts <= within[1])
    data = np.flatnonzero(is_data)
    return [_verdict(number, legs.where(data[own])) for number, own in grouped(session[data]).items()]


def _verdict(session: int, legs: Legs) -> TimePlaces:
    latency = legs.latency_ns
    parts = {
        "network": legs.network_ns,
        "target": legs.target_ns - legs.target_held_ns,
        "initiator": legs.initiator_ns - legs.initiator_held_ns,
    }
    order = np.argsort(latency, kind="stable")
    middle = order[len(order) * 2 // 5 : max(len(order) * 3 // 5, len(order) * 2 // 5 + 1)]
    median = int(np.quantile(latency, 0.5, method="inverted_cdf"))
    sums = [int(parts[place][middle].sum()) for place in PLACES]
    scaled = [round(median * each / (sum(sums) or 1)) for each in sums[1:]]
    total = int(latency.sum()) or 1
    return TimePlaces(
        session,
        len(legs),
        median,
        dict(zip(PLACES, (median - sum(scaled), *scaled), strict=True)),
        {place: int(parts[place].sum()) / total for place in PLACES},
    )


def findings(trace: TappedTables) -> list[PlaceFinding]:
    """The problems with their places, those of the network first."""
    names = [tap.name for tap in trace.tap_list]
    found = []
    for near, far, network in zip(names[:-1], names[1:], trace.networks, strict=True):
        found += [*_lost(network, near, far), *_queue(network, near, far), *_missing(network, near, far)]
    return [*found, *_slow(verdicts(trace))]


def _lost(network: Network, near: str, far: str) -> list[PlaceFinding]:
    found = []
    for to_target, one, other in ((True, near, far), (False, far, near)):
        lost = network.count("lost", to_target=to_target)
        sent = network.count("packets_a" if to_target else "packets_b", to_target=to_target)
        if lost and sent:
            share = amounts.percentage(lost / sent)
            host = "target" if to_target else "initiator"
            text = f"the network between {one} and {other} lost {lost:,} of {sent:,} packets to the {host} ({share} %)"
            found.append(PlaceFinding("lost_between_taps", "warning", "network", text))
    return found


def _missing(network: Network, near: str, far: str) -> list[PlaceFinding]:
    found = []
    for tap, column in ((near, "missing_at_a"), (far, "missing_at_b")):
        missing = network.count(column)
        if missing:
            text = f"the capture at {tap} missed {missing:,} packets that passed it; the network did not lose them"
            found.append(PlaceFinding("capture_lacks_packets", "data_loss", tap, text))
    return found


def _queue(network: Network, near: str, far: str) -> list[PlaceFinding]:
    """Where even the bounds of the clock leave one direction slower.

    They are as wide as the least round trip between the taps, so that no difference of the least delays is beyond them.
    """
    out, back = network.to_target.quantile_ns(0.5), network.to_initiator.quantile_ns(0.5)
    if out is None or back is None:
        return []
    clock = network.clock
    for slow, fast, way, unsure in (
        (out, back, "to the target", clock.high_ns - clock.offset_ns),
        (back, out, "to the initiator", clock.offset_ns - clock.low_ns),
    ):
        if slow - unsure > ASYMMETRY * (fast + unsure):
            by_clock = f", ± {_ms(unsure)} ms as the clocks are known" if unsure else ""
            text = (
                f"packets wait in a queue between {near} and {far}: they take {_ms(slow)} ms {way} and {_ms(fast)} ms "
                f"the other way (medians{by_clock})"
            )
            return [PlaceFinding("queue_between_taps", "info", "network", text)]
    return []


def _slow(each: list[TimePlaces]) -> list[PlaceFinding]:
    found = []
    for verdict in each:
        for place, name, host in (
            ("target", "slow_at_target", "the target"),
            ("initiator", "slow_at_initiator", "the host"),
        ):
            share = verdict.shares[place]  # type: ignore[index]
            if share > SLOW_SHARE:
                text = f"{host} takes {amounts.percentage(share)} % of the time of session {verdict.session}'s commands"
                found.append(PlaceFinding(name, "warning", place, text, (verdict.session,)))
    return found


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:.1f}"
