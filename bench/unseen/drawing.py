"""Settings drawn by a seed and a number: first what shall dominate the run, then everything else. Runs nothing.

Two runs in three have one dominating cause, and now and then a small second one; the third run has whatever chance
gives it. What really dominates follows from the logs of the run (`truth`), never from the name of the draw.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iscsitrace.lab.settings.kinds import Value

MS: Final = 1_000_000
_KIB, _MIB, _MBIT = 1 << 10, 1 << 20, 1_000_000
_MOST_PACKETS: Final = 3_600
"""Packets with data; with their ACKs about half more."""
_MOST_COMMANDS, _LEAST_COMMANDS = 400, 16
_LONGEST_S: Final = 4.0
"""How long data take on the line at most."""
_JUMBO_MSS: Final = 8_948
_DEFAULT_MSS: Final = 1_448
_SNAPLENS: Final = (96, 128, 200)
_CUT: Final = 1 / 12
"""The share of the runs with a snaplen: it forbids most verdicts."""
_LATE: Final = 1 / 10
"""The share of the other runs whose captures begin after the login."""


@dataclass
class Draw:
    """One drawn run."""

    seed: int
    number: int
    kind: str
    values: dict[str, Value] = field(default_factory=dict)
    """Settings by their dotted names, in the units of a run."""
    faults: list[str] = field(default_factory=list)
    """Faults of the path, as they are typed."""
    storage: list[dict[str, Any]] = field(default_factory=list)
    """Faults of the target's storage, as the core takes them."""
    foreign_count: int = 0
    """Sessions that share the path and are cut out of the captures."""
    snaplen: int = 0
    """Bytes that the captures keep of each packet; 0 is all."""
    late_share: float = 0.0
    """Commands that were over when the captures began: they have no handshake, and no login."""

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name, _DEFAULTS.get(name))

    @property
    def run_seed(self) -> int:
        """The seed of everything random within the run."""
        return self.seed * 1_000_003 + self.number


_DEFAULTS: Final[Mapping[str, Any]] = {"workload.queue-depth": 1, "workload.block-size": 64 * _KIB, "tcp.mss": 0}

Chance = random.Random


def _delays(draw: Draw, chance: Chance, least_ms: float, most_ms: float) -> None:
    """One-way delays, unequal in a quarter of the draws."""
    one = _between(chance, least_ms, most_ms)
    other = _between(chance, least_ms, most_ms) if chance.random() < 1 / 4 else one
    draw.values |= {
        "link.to-target.one-way-delay": round(one * MS),
        "link.to-initiator.one-way-delay": round(other * MS),
    }


def _between(chance: Chance, least: float, most: float) -> float:
    """A number between two, each factor alike."""
    return float(least * (most / least) ** chance.random())


def _rate(draw: Draw, chance: Chance, least_mbit: float, most_mbit: float, queue_ms: float | None = None) -> None:
    """Rate and queue of the line. A queue is as long as it takes to empty, at most."""
    mbit = _between(chance, least_mbit, most_mbit)
    draw.values["link.rate"] = round(mbit * _MBIT)
    if queue_ms is not None:
        draw.values["link.queue-packets"] = max(10, round(mbit * _MBIT * queue_ms / 8_000 / 1514))


def _work(draw: Draw, chance: Chance, sizes_kib: tuple[int, ...], depths: tuple[int, ...], *words: str) -> None:
    draw.values |= {
        "workload.operation": chance.choice(words or ("read", "read", "write", "write", "mixed")),
        "workload.block-size": chance.choice(sizes_kib) * _KIB,
        "workload.queue-depth": chance.choice(depths),
    }
    if chance.random() < 1 / 5:
        draw.values["workload.access"] = "random"


def _distance(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 4, 60)
    if chance.random() < 1 / 2:
        _rate(draw, chance, 200, 10_000)
    _work(draw, chance, (4, 8, 16, 64, 128), (1, 1, 1, 2, 4))


def _near(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.1, 1)
    if chance.random() < 2 / 3:
        _rate(draw, chance, 1_000, 10_000)
    _work(draw, chance, (4, 8, 16, 64, 256), (1, 1, 2, 4, 8, 32))
    if chance.random() < 2 / 3:
        _service(draw, chance, 0.2, 6)


def _line(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.2, 30)
    _rate(draw, chance, 10, 100, chance.choice((20, 50, 100, 300, 1_000)))
    _work(draw, chance, (64, 128, 256), (4, 8, 16, 32))


def _foreign(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.5, 30)
    _rate(draw, chance, 10, 80, chance.choice((50, 100, 300)))
    _work(draw, chance, (64, 128, 256), (2, 4, 8))
    draw.foreign_count = chance.choice((1, 1, 2, 3))


def _loss(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 2, 40)
    _rate(draw, chance, 100, 2_000)
    _work(draw, chance, (32, 64, 128, 256), (1, 2, 4, 8, 16))
    share = _between(chance, 0.001, 0.02)
    for way in chance.choice((("to-target", "to-initiator"), ("to-target",), ("to-initiator",))):
        if chance.random() < 1 / 3:
            draw.values[f"link.{way}.burst-loss"] = {
                "enter_probability": share / 4,
                "leave_probability": chance.choice((0.1, 0.25, 0.5)),
            }
        else:
            draw.values[f"link.{way}.loss"] = share


def _black_out(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.5, 30)
    _rate(draw, chance, 8, 20, chance.choice((50, 100)))
    _work(draw, chance, (16, 32, 64), (1, 1, 2, 4))
    way = chance.choice(("both", "both", "both", "to-target", "to-initiator"))
    if chance.random() < 1 / 2:
        draw.values["workload.seconds"] = 5.0
        draw.faults = [f"black-out,at={at}s,for={chance.randint(100, 400)}ms,direction={way}" for at in (0.5, 1.5, 3)]
    else:
        draw.values["workload.seconds"] = 4.0
        draw.faults = [f"black-out,at={chance.uniform(0.3, 1):.2f}s,for={chance.uniform(0.3, 3):.2f}s,direction={way}"]


def _receive_window(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 2, 40)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (64, 128, 256), (2, 4, 8, 16), "read", "read", "write")
    receiver = "initiator" if draw["workload.operation"] == "read" else "target"
    draw.values[f"{receiver}.tcp.window"] = chance.choice((16, 24, 32, 64)) * _KIB


def _send_buffer(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 2, 40)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (64, 128, 256), (2, 4, 8, 16), "read", "write", "write")
    sender = "target" if draw["workload.operation"] == "read" else "initiator"
    draw.values[f"{sender}.tcp.send-buffer"] = chance.choice((16, 24, 32, 64)) * _KIB
    if sender == "initiator" and chance.random() < 1 / 2:
        _rounds(draw, chance)


def _storage(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.1, 4)
    _rate(draw, chance, 1_000, 10_000)
    _work(draw, chance, (4, 16, 64, 128), (1, 1, 2, 4, 8))
    _service(draw, chance, 1, 60)


def _service(draw: Draw, chance: Chance, least_ms: float, most_ms: float) -> None:
    mean = round(_between(chance, least_ms, most_ms) * MS)
    spread: Value = {"distribution": "exponential", "mean_ns": mean}
    draw.values["target.service-delay"] = chance.choice((mean, [mean // 2, mean * 3 // 2], spread))
    if chance.random() < 1 / 6:
        draw.values["target.is-serial"] = True


def _outliers(draw: Draw, chance: Chance) -> None:
    """Every n-th command is late, or the storage stands still now and then."""
    _delays(draw, chance, 0.1, 8)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (4, 16, 64), (1, 1, 1, 4), "read", "write")
    _service(draw, chance, 0.5, 5)
    if chance.random() < 1 / 2:
        late = {"nth": chance.choice((15, 20, 25)), "is_repeated": True, "operation": draw["workload.operation"]}
        draw.storage = [{"fault": "delayed_status", "by_ns": chance.randint(150, 500) * MS, **late}]
        return
    draw.values["workload.seconds"] = 3.0
    every_s, lasts_ms = chance.choice((0.7, 1.0)), chance.randint(150, 600)
    places = range(1, 4 if every_s < 1 else 3)
    when = [{"at_ns": round(each * every_s * 1e9), "for_ns": lasts_ms * MS} for each in places]
    draw.storage = [{"fault": "stuck", "when": each} for each in when]


def _thinking(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.2, 20)
    _rate(draw, chance, 100, 2_000)
    _work(draw, chance, (4, 16, 64, 128), (1, 1, 1, 2, 4))
    draw.values["workload.think-time"] = round(_between(chance, 3, 90) * MS)


def _slow_initiator(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.2, 8)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (128, 256), (1, 1, 2), "write")
    _rounds(draw, chance)
    draw.values["initiator.host-delay"] = round(_between(chance, 2, 20) * MS)


def _rounds(draw: Draw, chance: Chance) -> None:
    """Writes need R2Ts, and several of them when they are larger than a burst."""
    burst = chance.choice((16, 64, 64, 128)) * _KIB
    draw.values |= {
        "initiator.keys.InitialR2T": True,
        "initiator.keys.ImmediateData": False,
        "initiator.keys.MaxBurstLength": burst,
        "initiator.keys.FirstBurstLength": burst,
    }


def _r2t(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 4, 40)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (64, 128, 256), (1, 1, 2), "write")
    _rounds(draw, chance)


def _jitter(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 2, 30)
    _rate(draw, chance, 50, 1_000)
    _work(draw, chance, (16, 64, 128), (1, 1, 4, 8))
    least = min(draw[f"link.{way}.one-way-delay"] for way in ("to-target", "to-initiator"))
    if chance.random() < 1 / 2:
        draw.values["link.jitter"] = round(least * chance.uniform(0.1, 1))
    else:
        by_ns = round(chance.uniform(0.5, 5) * MS)
        for way in chance.choice((("to-target", "to-initiator"), ("to-initiator",))):
            draw.values[f"link.{way}.reorder"] = {
                "reorder_probability": chance.choice((0.005, 0.02, 0.05)),
                "reorder_by_ns": by_ns,
            }


def _held_status(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.5, 20)
    _rate(draw, chance, 200, 2_000)
    _work(draw, chance, (16, 64, 128), (1,), "read")
    draw.values["target.status"] = "apart_held"


def _free(draw: Draw, chance: Chance) -> None:
    _delays(draw, chance, 0.1, 60)
    if chance.random() < 4 / 5:
        _rate(draw, chance, 10, 10_000, chance.choice((5, 20, 100, 500)))
    _work(draw, chance, (4, 16, 64, 256, 1024), (1, 1, 2, 4, 8, 16, 32))
    for name in ("initiator.tcp.window", "target.tcp.window", "initiator.tcp.send-buffer", "target.tcp.send-buffer"):
        if chance.random() < 1 / 8:
            draw.values[name] = chance.choice((16, 64, 256)) * _KIB
    if chance.random() < 1 / 4:
        way = chance.choice(("link.to-target.loss", "link.to-initiator.loss", "link.loss"))
        draw.values[way] = _between(chance, 0.0001, 0.01)
    if chance.random() < 1 / 3:
        _service(draw, chance, 0.2, 40)
    if chance.random() < 1 / 6:
        draw.values["workload.think-time"] = round(_between(chance, 1, 60) * MS)
    if chance.random() < 1 / 8:
        draw.values["initiator.host-delay"] = round(_between(chance, 0.1, 8) * MS)
    if draw["workload.operation"] == "write" and chance.random() < 1 / 3:
        _rounds(draw, chance)
    if chance.random() < 1 / 10:
        draw.values["link.jitter"] = round(_between(chance, 0.1, 5) * MS)
        draw.values["link.jitter-reorders"] = chance.random() < 1 / 2


KINDS: Final[Mapping[str, tuple[float, Callable[[Draw, Chance], None]]]] = {
    "distance": (5, _distance),
    "near": (5, _near),
    "line": (6, _line),
    "foreign": (4, _foreign),
    "loss": (6, _loss),
    "black-out": (5, _black_out),
    "receive-window": (4, _receive_window),
    "send-buffer": (4, _send_buffer),
    "storage": (6, _storage),
    "outliers": (5, _outliers),
    "thinking": (4, _thinking),
    "slow-initiator": (2, _slow_initiator),
    "r2t": (2, _r2t),
    "jitter": (4, _jitter),
    "held-status": (1, _held_status),
    "free": (31, _free),
}
"""What shall dominate, with its weight."""


def of_number(seed: int, number: int) -> Draw:
    """The run with this number, from 0."""
    chance = Chance(f"unseen {seed} {number}")
    kind = chance.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    draw = Draw(seed, number, kind)
    KINDS[kind][1](draw, chance)
    draw.values["tcp.congestion-control"] = chance.choice(("reno", "cubic", "cubic"))
    if chance.random() < 1 / 6:
        draw.values["tcp.initial-window"] = chance.choice((2, 4, 30))
    if draw["workload.block-size"] >= _MIB or chance.random() < 1 / 10:
        draw.values["tcp.mss"] = _JUMBO_MSS
    if kind != "free" and chance.random() < 1 / 8:
        _second(draw, chance)
    if chance.random() < _CUT:
        draw.snaplen = chance.choice(_SNAPLENS)
    elif chance.random() < _LATE:
        draw.late_share = chance.uniform(0.05, 0.3)
    _bounded(draw)
    return draw


GUEST_KINDS: Final[Mapping[str, float]] = {
    "distance": 4,
    "near": 3,
    "line": 5,
    "loss": 6,
    "black-out": 4,
    "receive-window": 4,
    "send-buffer": 5,
    "storage": 4,
    "outliers": 4,
    "thinking": 2,
    "r2t": 3,
    "jitter": 3,
}
"""What shall dominate a run in guests, with its weight."""
_GUEST_PACKETS: Final = 1_800
"""Guests may be slow."""


def of_guests(seed: int, number: int) -> Draw:
    """The run with this number between real kernels, from 0."""
    chance = Chance(f"unseen guests {seed} {number}")
    kind = chance.choices(list(GUEST_KINDS), list(GUEST_KINDS.values()))[0]
    draw = Draw(seed, number, kind)
    KINDS[kind][1](draw, chance)
    draw.values["tcp.congestion-control"] = chance.choice(("reno", "cubic", "cubic", "bbr"))
    for name in ("target.service-delay", "target.is-serial"):
        draw.values.pop(name, None)
    if kind == "storage":
        draw.faults = [f"storage-slow,at=0s,for=600s,by={chance.choice((5, 15, 30, 60))}ms"]
    if kind == "outliers":
        draw.storage = []
        draw.values["workload.seconds"] = 6.0
        late_ms = chance.randint(200, 600)
        draw.faults = [f"storage-slow,at={at}s,for=100ms,by={late_ms}ms" for at in (1, 2.5, 4)]
    _bounded(draw, _GUEST_PACKETS)
    return draw


def _second(draw: Draw, chance: Chance) -> None:
    """A small second effect, where the draw leaves it open."""
    name, value = chance.choice(
        (
            ("link.to-initiator.loss", 0.0002),
            ("link.jitter", round(0.2 * MS)),
            ("target.service-delay", round(_between(chance, 0.2, 2) * MS)),
            ("initiator.host-delay", round(0.05 * MS)),
            ("workload.think-time", round(_between(chance, 0.2, 2) * MS)),
        )
    )
    draw.values.setdefault(name, value)


def _bounded(draw: Draw, most_packets: int = _MOST_PACKETS) -> None:
    """Makes the run short: few packets, few commands, and few seconds on the line."""
    block = draw["workload.block-size"]
    packets = most_packets * (draw["tcp.mss"] or _DEFAULT_MSS)
    line = _LONGEST_S * draw["link.rate"] / 8 if draw["link.rate"] else packets
    most = min(packets, line, _MOST_COMMANDS * (1 + draw.foreign_count) * block)
    if draw["workload.seconds"] is None:
        draw.values["workload.bytes"] = max(_LEAST_COMMANDS * (1 + draw.foreign_count), int(most // block)) * block
    elif not draw.faults:
        # storage that stands still: the commands between are few
        draw.values["workload.bytes"] = max(_LEAST_COMMANDS, int(packets // block)) * block
