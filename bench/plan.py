"""Plans against the simulated world: settings drawn by seed, planned, and run as planned.

A plan is true where the wanted throughput is reached within 5 %; that a change is not enough is true where the best of
it does not exceed what was wanted by as much. A plan asks for too much where one step less would have reached it, too.
Prints, and asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import model
from bench.process import machine
from iscsitrace.model.bounds import LEAST_DELAY_NS
from iscsitrace.model.setting import Setting, Solicitation
from iscsitrace.model.transfer import rate_of_line
from iscsitrace.model.uncertainty import LOSS_ERROR
from iscsitrace.model.what_if import DELAY_MOST_NS, Plan, burst_packets, plans, without_delay

NEAR = 0.05
"""Share by which a measured throughput may be off the wanted one."""
SETTINGS, MIRRORS = 40, 20
_PATH_MOST_BYTES = 1 << 20
"""Bytes under way on a drawn path, at most: larger ones take long to simulate."""
_RUN_MOST_BYTES = 400 << 20
_COMMAND_MOST_NS = 10e9
"""Longest command: initiators abort longer ones."""
_SEEDS, _LOSSES = (1, 2, 3, 4), 200
_KIB = 1 << 10


@dataclass(frozen=True)
class Drawn:
    """A setting, and what is wanted of it."""

    setting: Setting
    rate_bps: int
    wanted_bytes_per_s: float
    share: float | None
    """Of the throughput without delay; None where a rate is wanted."""


@dataclass(frozen=True)
class Tried:
    """A plan as it ran."""

    plan: Plan
    measured: float
    """Throughput / wanted throughput."""
    less: float | None
    """The same with one step less; None where there is none."""
    drop_count: int
    """Packets that a queue dropped which holds as many as the plan says."""

    @property
    def is_true(self) -> bool:
        """Whether it is enough, or not enough, as it says; a distance is also not shorter than needed, but for the
        margin under losses.
        """
        if not self.plan.is_enough:
            return self.measured <= 1 + NEAR
        is_exact = self.plan.name == "delay_ns" and not self.plan.prediction.setting.loss
        return self.measured >= 1 - NEAR and (self.measured <= 1 + NEAR or not is_exact)

    @property
    def is_least(self) -> bool:
        """Whether one step less is not enough."""
        margin = LOSS_ERROR if self.plan.prediction.setting.loss else 0.0
        return self.less is None or self.less < (1 + NEAR) * (1 + margin)


def drawn(seed: int, count: int, *, are_mirrors: bool) -> Iterator[Drawn]:
    """Settings of a seed."""
    chance = random.Random(f"{seed} {are_mirrors}")
    while count:
        found = _drawn(chance, is_mirror=are_mirrors)
        if found is not None:
            count -= 1
            yield found


def _drawn(chance: random.Random, *, is_mirror: bool) -> Drawn | None:
    """A setting; None for one of a path that is too long to simulate."""
    rate_bps = round(10 ** chance.uniform(7.5, 9))
    delay_ns = round(10 ** chance.uniform(-0.3, 1.5) * 1e6)
    if rate_bps / 8 * 2 * delay_ns / 1e9 > _PATH_MOST_BYTES:
        return None
    operation = "write" if is_mirror else chance.choice(("read", "write"))
    burst = chance.choice((64, 128, 256)) * _KIB
    keys = Solicitation(
        is_initial_r2t=chance.random() < 0.5,
        is_immediate_data=chance.random() < 0.7,
        first_burst_bytes=min(burst, 64 * _KIB),
        max_burst_bytes=burst,
        max_outstanding_r2t=chance.choice((1, 1, 2, 4)),
        max_recv_data_segment_bytes=model.DATA_PDU_BYTES,
    )
    setting = Setting(
        operation=operation,
        block_bytes=chance.choice((16, 32, 64, 128, 256, 512)) * _KIB,
        delay_ns=float(delay_ns),
        c_bytes_per_s=rate_of_line(rate_bps, model.SEGMENT_BYTES),
        data_pdu_bytes=model.DATA_PDU_BYTES,
        service_ns=chance.choice((0.0, 0.0, round(chance.uniform(0.2, 4), 1) * 1e6)),
        queue_depth=chance.choice((1, 1, 1, 2, 4)),
        connections=1 if is_mirror else chance.choice((1, 1, 2)),
        window_bytes=chance.choice((None, None, 64 * _KIB, 128 * _KIB, 256 * _KIB)),
        solicitation=keys,
        loss=chance.choice((*[0.0] * 9, 1e-3)) if delay_ns >= LEAST_DELAY_NS else 0.0,
        congestion_control=chance.choice(("reno", "cubic")),
    )
    if is_mirror:
        nearer = round(delay_ns * chance.choice((0.1, 0.5, 1.0)))
        setting = replace(setting, target_delays_ns=(float(nearer), float(delay_ns)))
    copies = max(1, len(setting.target_delays_ns))
    if chance.random() < 0.5:
        share = chance.uniform(0.3, 0.95)
        return Drawn(setting, rate_bps, share * without_delay(setting).throughput_bytes_per_s, share)
    wanted = chance.uniform(0.1, 0.9) * (setting.c_bytes_per_s or 0) / copies
    return Drawn(setting, rate_bps, wanted, None)


def tried(one: Drawn) -> Iterator[Tried]:
    """Each plan of a setting as it ran; those that take too long to simulate are left out, those that hold at any
    distance, and those that the model calls out of its range.
    """
    for plan in plans(one.setting, one.wanted_bytes_per_s):
        if not plan.prediction.is_in_range:
            continue
        setting = plan.prediction.setting
        if _bytes(setting) > _RUN_MOST_BYTES or setting.delay_ns >= DELAY_MOST_NS:
            continue
        if plan.prediction.period_ns > _COMMAND_MOST_NS:
            continue
        less = _one_step_less(plan) if plan.is_enough else None
        wanted, queue = one.wanted_bytes_per_s, burst_packets(setting)
        measured, drop_count = _ran(setting, one, queue)
        yield Tried(plan, measured / wanted, _ran(less, one, queue)[0] / wanted if less else None, drop_count)


def _bytes(setting: Setting) -> int:
    return model.bytes_moved(setting) * max(1, len(setting.target_delays_ns))


def _ran(setting: Setting, one: Drawn, queue_packets: int) -> tuple[float, int]:
    """Throughput, and packets dropped by the queue of the line."""
    truths = [
        model.simulate(setting, seed, rate_bps=one.rate_bps, queue_packets=queue_packets)
        for seed in (_SEEDS if setting.loss else _SEEDS[:1])
    ]
    rate = statistics.harmonic_mean([model.measured_bytes_per_s(setting, truth) for truth in truths])
    links = [link for truth in truths for link in (truth["access"], *truth["paths"]) if link]
    ways = ("to_target", "to_initiator")
    return rate, sum(link[way]["counters"]["queue_full"]["count"] for link in links for way in ways)


def _one_step_less(plan: Plan) -> Setting | None:
    """The setting with the next smaller value of the change; None for parameters and distances."""
    name, setting = plan.name, plan.prediction.setting
    if name in ("keys", "delay_ns"):
        return None
    grain = {"block_bytes": 4 * _KIB, "window_bytes": 4 * _KIB}.get(name, 1)
    value = getattr(setting, name)
    if value <= grain:
        return None
    before = 1 << ((value - 1).bit_length() - 1)
    return replace(setting, **{name: value - max(grain, before // 16)})


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(prog="bench.plan", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("settings", "mirrors"), help="run only one kind")
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; seed {arguments.seed}; throughput / wanted throughput")
    for kind, count in (("settings", SETTINGS), ("mirrors", MIRRORS)):
        if arguments.kind in (None, kind):
            _run(kind, list(drawn(arguments.seed, count, are_mirrors=kind == "mirrors")))


def _run(kind: str, settings: list[Drawn]) -> None:
    true = least = rows = planned = dropping = 0
    for number, one in enumerate(settings):
        found = list(tried(one))
        for each in found:
            _show(number, one, each)
        rows += len(found)
        planned += bool(found)
        true += bool(found) and all(each.is_true for each in found)
        least += sum(each.is_least for each in found)
        dropping += sum(each.drop_count > 0 for each in found)
    print(
        f"{kind}: {planned} of {len(settings)} can be planned, {true} of these true in every change; of {rows} changes "
        f"{least} ask for no more than needed, {dropping} drop packets at a queue as long as they say",
        flush=True,
    )


def _show(number: int, one: Drawn, each: Tried) -> None:
    setting = one.setting
    ways = "/".join(f"{way / 1e6:g}" for way in setting.target_delays_ns) or f"{setting.delay_ns / 1e6:g}"
    about = f"{setting.operation} {setting.block_bytes >> 10}K {ways} ms {one.rate_bps / 1e6:.0f} Mbit"
    about += f" QD {setting.queue_depth}x{setting.connections} s {setting.service_ns / 1e6:g}"
    about += f" W {setting.window_bytes >> 10}K" if setting.window_bytes else ""
    about += f" p {setting.loss:g} {setting.congestion_control}" if setting.loss else ""
    values = "not enough, " if not each.plan.is_enough else ""
    values += ", ".join(f"{name.removesuffix('_bytes')} {value}" for name, value in each.plan.values.items())
    values += each.plan.name if not each.plan.is_enough else ""
    less = "" if each.less is None else f"{each.less:6.3f}"
    mark = "" if each.is_true else "  NOT TRUE"
    mark += "" if each.is_least else "  too much"
    mark += f"  {each.drop_count} dropped" if each.drop_count else ""
    wanted = f"{one.wanted_bytes_per_s / 1e6:7.2f} MB/s"
    print(f"{number:3} {about:62} {wanted} {each.measured:6.3f} {less:6}  {values}{mark}", flush=True)


if __name__ == "__main__":
    main()
