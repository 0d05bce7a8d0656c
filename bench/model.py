"""The model against the simulated world: period and throughput of steady cycles over a grid of settings.

Every setting of the model becomes one of the simulated world, in which only the effects in the model take time. Prints,
and asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from bench.process import machine
from iscsitrace.lab import traffic
from iscsitrace.model.bounds import loss_window_bytes
from iscsitrace.model.prediction import grid, predict
from iscsitrace.model.setting import Prediction, Setting, Solicitation
from iscsitrace.model.transfer import BASIC_HEADER_BYTES, first_burst_bytes, rate_of_line

MS = 1_000_000
RATE_BPS = 320_000_000
SEGMENT_BYTES, HEADERS_OF_SEGMENT_BYTES = 1_448, 12
DATA_PDU_BYTES = 262_144
_WIDE_BYTES = 64 << 20
_IDLE_NS = 5_000 * MS
_KIB, _MIB = 1 << 10, 1 << 20
_BYTES, _CYCLES_LEAST, _CYCLES_MOST = 24 << 20, 12, 48
_UNEVEN = 8
_DELAYED_ACK_NS = 40 * MS
_SEEDS, _LOSSES = (1, 2, 3, 4), 200
"""For a setting with losses: the number of runs, and the losses of a connection in all of them."""

PLAIN = Setting(
    operation="read",
    block_bytes=128 * _KIB,
    delay_ns=4 * MS,
    c_bytes_per_s=rate_of_line(RATE_BPS, SEGMENT_BYTES),
    data_pdu_bytes=DATA_PDU_BYTES,
    solicitation=Solicitation(max_recv_data_segment_bytes=DATA_PDU_BYTES),
)
UNSOLICITED = {"is_initial_r2t": False, "is_immediate_data": True}
SOLICITED = {"is_initial_r2t": True, "is_immediate_data": False}
_UNASKED = {key: (value,) for key, value in UNSOLICITED.items()}


@dataclass(frozen=True)
class Outcome:
    """One setting in the model and in the simulated world."""

    kind: str
    prediction: Prediction
    measured_bytes_per_s: float

    @property
    def error(self) -> float:
        """Model / measured, less 1."""
        return self.prediction.throughput_bytes_per_s / self.measured_bytes_per_s - 1


def bytes_moved(setting: Setting) -> int:
    """Bytes to simulate for a setting: enough cycles that one more or less matters little, or enough losses."""
    round_bytes = setting.block_bytes * setting.queue_depth * setting.connections
    if setting.loss:
        size = _LOSSES / setting.loss * setting.segment_bytes * setting.connections / len(_SEEDS)
        return round_bytes * ceil(size / round_bytes)
    # until commands that began together are out of step
    longer = _UNEVEN if setting.service_spread_ns else 1
    return round_bytes * longer * min(_CYCLES_MOST, max(_CYCLES_LEAST, _BYTES // round_bytes))


def world_settings(
    setting: Setting, seed: int = 1, rate_bps: int = RATE_BPS, queue_packets: int | None = None
) -> dict[str, Any]:
    """A world in which only the effects in the model take time, with a line of that rate where the setting has one."""
    keys = setting.solicitation
    offers = {
        "initial_r2t": keys.is_initial_r2t,
        "immediate_data": keys.is_immediate_data,
        "first_burst_length": min(keys.first_burst_bytes, keys.max_burst_bytes),
        "max_burst_length": keys.max_burst_bytes,
        "max_outstanding_r2t": keys.max_outstanding_r2t,
        "max_recv_data_segment_length": setting.data_pdu_bytes or DATA_PDU_BYTES,
        "max_connections": setting.connections,
    }
    of_target = {
        "initial_r2t": False,
        "immediate_data": True,
        "first_burst_length": offers["first_burst_length"],
        "max_burst_length": offers["max_burst_length"],
        "max_outstanding_r2t": keys.max_outstanding_r2t,
        "max_recv_data_segment_length": keys.max_recv_data_segment_bytes,
        "max_connections": setting.connections,
    }
    window_bytes, start_bytes = setting.window_bytes or _WIDE_BYTES, setting.start_window_bytes
    tcp = {
        "receive_buffer_bytes": window_bytes,
        "send_buffer_bytes": _WIDE_BYTES,
        "mss": setting.segment_bytes + HEADERS_OF_SEGMENT_BYTES,
        "nagle": False,
        "initial_window": round((start_bytes or _start_bytes(setting)) / setting.segment_bytes),
        "hystart": False,
        "congestion_control": setting.congestion_control,
    }
    direction = {
        "rate_bps": rate_bps if setting.c_bytes_per_s else None,
        "queue_packets": queue_packets,
        "loss_probability": setting.loss,
    }
    delays_ns = setting.target_delays_ns or (setting.delay_ns,)
    paths: list[dict[str, Any]] = [
        {way: direction | {"delay_ns": round(delay_ns)} for way in ("to_target", "to_initiator")}
        | {"seed": seed + number}
        for number, delay_ns in enumerate(delays_ns)
    ]
    is_mirror = len(delays_ns) > 1
    if is_mirror:
        paths = [
            path | {way: path[way] | {"rate_bps": None} for way in ("to_target", "to_initiator")} for path in paths
        ]
    outstanding = setting.queue_depth * setting.connections
    return {
        "client": {
            "workload": {
                "operation": setting.operation,
                "block_size_bytes": setting.block_bytes,
                "queue_depth": outstanding,
                "connections": setting.connections,
                "think_time_ns": _IDLE_NS if start_bytes else 0,
                "layout": "mirror" if is_mirror else "stripe",
                "seed": seed,
            },
            "login": {"offers": offers},
        },
        "portals": [_portal(setting, number, of_target, seed) for number in range(len(delays_ns))],
        "world": {
            "initiator_tcp": tcp,
            "target_tcp": tcp | {"nagle": setting.is_status_held},
            # packets are lost only on the way to a target
            "access": dict.fromkeys(("to_target", "to_initiator"), direction | {"loss_probability": 0.0})
            if is_mirror
            else None,
            "paths": paths,
            "tcp_log": "none",
            "seed": seed,
        },
    }


def _start_bytes(setting: Setting) -> float:
    """A larger window than needed; with losses the mean window under them, so that it is reached at once."""
    return loss_window_bytes(setting) if setting.loss else 1_000 * setting.segment_bytes


def _portal(setting: Setting, number: int, keys: Mapping[str, Any], seed: int) -> dict[str, Any]:
    portal: dict[str, Any] = {
        "status": "apart_held" if setting.is_status_held else "in_data",
        "keys": dict(keys),
        "seed": seed + number,
        "command_window_count": 1_024,
    }
    if number:
        portal["targets"] = [{"target_name": f"iqn.2026-01.org.example:mirror-{number + 1}"}]
    if setting.service_ns:
        least_ns, most_ns = (round(setting.service_ns + side * setting.service_spread_ns) for side in (-1, 1))
        delay = {"distribution": "uniform", "low_ns": least_ns, "high_ns": most_ns}
        portal[f"{setting.operation}_delay"] = delay
    return portal


def measured_bytes_per_s(setting: Setting, truth: Mapping[str, Any]) -> float:
    """Throughput of the cycles after the first third, from status to status; with a think time that of a cycle."""
    cycles = truth["cycles"]
    rows = [
        (command, status)
        for operation, size, command, status in zip(
            cycles["operation"],
            cycles["bytes"],
            cycles["initiator"]["command_first_ns"],
            cycles["initiator"]["status_ns"],
            strict=True,
        )
        if operation == setting.operation and size == setting.block_bytes
    ]
    copies = max(1, len(setting.target_delays_ns))
    outstanding = setting.queue_depth * setting.connections * copies
    if setting.start_window_bytes:
        return setting.block_bytes / statistics.fmean(status - command for command, status in rows[2:]) * 1e9
    done: list[int] = sorted(status for _, status in rows)
    first = len(done) // 3 // outstanding * outstanding
    last = (len(done) - 1 - first - outstanding) // outstanding * outstanding + first
    if last <= first:
        # too few for rounds of all that are in flight: the whole run
        begun: int = min(command for command, _ in rows)
        return len(done) * setting.block_bytes / copies / (done[-1] - begun) * 1e9
    return (last - first) * setting.block_bytes / copies / (done[last] - done[first]) * 1e9


def simulate(
    setting: Setting,
    seed: int = 1,
    total_bytes: int | None = None,
    rate_bps: int = RATE_BPS,
    queue_packets: int | None = None,
) -> dict[str, Any]:
    """Runs a setting and returns its truth. RuntimeError if a command failed."""
    world = world_settings(setting, seed, rate_bps, queue_packets)
    world["client"]["workload"]["total_bytes"] = total_bytes or bytes_moved(setting)
    truth = traffic.simulate(world, (), lambda *_: False)
    if truth["results"]["errors"]:
        raise RuntimeError(truth["results"]["errors"][0])
    return truth


def outcome(kind: str, setting: Setting) -> Outcome:
    """Simulates a setting, and predicts it."""
    if setting.loss:
        runs = [measured_bytes_per_s(setting, simulate(setting, seed)) for seed in _SEEDS]
        return Outcome(kind, predict(setting), statistics.harmonic_mean(runs))
    truth = simulate(setting)
    if setting.is_status_held and _has_odd_segments(setting):
        setting = replace(setting, ack_delay_ns=_DELAYED_ACK_NS)
    return Outcome(kind, predict(setting), measured_bytes_per_s(setting, truth))


def _has_odd_segments(setting: Setting) -> bool:
    """Whether the last segment of a block in one data PDU has no second segment to be acknowledged with."""
    return ceil((setting.block_bytes + BASIC_HEADER_BYTES) / setting.segment_bytes) % 2 == 1


def settings() -> Iterator[tuple[str, Setting]]:
    """The grid of settings, with the kind of each."""
    delays_ns = [each * MS for each in (1, 4, 16)]
    for setting in grid(
        PLAIN, delay_ns=delays_ns, block_bytes=(64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB), queue_depth=(1, 8)
    ):
        yield "read", setting
        # in one data PDU: otherwise Nagle sends the end of a block at the ACK of its first PDU
        pdu_bytes = max(DATA_PDU_BYTES, setting.block_bytes)
        one_pdu = grid(setting, data_pdu_bytes=(pdu_bytes,), max_burst_bytes=(pdu_bytes,), is_status_held=(True,))
        yield "read, status held", one_pdu[0]
        yield "read, window 1M", replace(setting, window_bytes=_MIB)
        write = replace(setting, operation="write")
        for name, keys in (("solicited", SOLICITED), ("unsolicited", UNSOLICITED)):
            yield f"write, {name}", next(iter(grid(write, **{key: (value,) for key, value in keys.items()})))
    for setting in grid(PLAIN, delay_ns=delays_ns, queue_depth=(1, 2, 4), is_status_held=(True,)):
        yield "read, status held, few", setting
    for setting in grid(
        PLAIN, delay_ns=delays_ns, window_bytes=(16 * _KIB, 64 * _KIB, 256 * _KIB), queue_depth=(1, 2, 4)
    ):
        yield "small window", replace(setting, block_bytes=512 * _KIB)
        yield "small window", replace(setting, block_bytes=512 * _KIB, operation="write")
    write = replace(PLAIN, operation="write", block_bytes=_MIB)
    for setting in grid(
        write,
        delay_ns=delays_ns,
        max_burst_bytes=(64 * _KIB, 256 * _KIB),
        max_outstanding_r2t=(1, 2, 4),
        **{key: (value,) for key, value in SOLICITED.items()},
    ):
        yield "write, R2Ts at once", setting
    for setting in grid(
        PLAIN,
        delay_ns=delays_ns,
        operation=("read", "write"),
        block_bytes=(256 * _KIB, _MIB),
        start_window_bytes=(14_480,),
    ):
        yield "slow start after idle", setting
    for setting in grid(PLAIN, delay_ns=delays_ns, operation=("read", "write"), connections=(2, 4), queue_depth=(1, 4)):
        yield "connections", setting
    for setting in grid(
        write,
        target_delays_ns=((1 * MS, 1 * MS), (1 * MS, 8 * MS), (8 * MS, 1 * MS)),
        queue_depth=(1, 4),
        block_bytes=(64 * _KIB, _MIB),
    ):
        yield "mirror", setting
    for setting in grid(
        PLAIN, delay_ns=delays_ns, operation=("read", "write"), service_ns=(5 * MS,), queue_depth=(1, 4)
    ):
        yield "slow target", setting
    for setting in grid(
        PLAIN,
        delay_ns=(4 * MS, 16 * MS),
        service_ns=(20 * MS,),
        service_spread_ns=(5 * MS,),
        window_bytes=(None, 64 * _KIB),
        connections=(4, 8, 12, 20),
    ):
        yield "slow target, uneven", setting
    yield from _lossy()


def _lossy() -> Iterator[tuple[str, Setting]]:
    deep = replace(PLAIN, block_bytes=256 * _KIB, queue_depth=8)
    for setting in grid(
        deep, delay_ns=(4 * MS, 16 * MS), loss=(1e-3, 1e-4), congestion_control=("reno", "cubic"), connections=(1, 4)
    ):
        yield "losses, connections", setting
        if setting.connections == 1:
            yield "losses, window 64K", replace(setting, window_bytes=64 * _KIB)
            for nearer in (1, 4):
                delays = (setting.delay_ns / nearer, setting.delay_ns)
                keys = {"max_burst_bytes": (256 * _KIB,), "first_burst_bytes": (256 * _KIB,)}
                (mirror,) = grid(setting, operation=("write",), target_delays_ns=(delays,), **keys, **_UNASKED)
                yield "losses, mirror", mirror


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(prog="bench.model", description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default="", help="run only kinds whose names contain this text")
    parser.add_argument("--over", type=float, default=0.0, help="show only errors of more than this many percent")
    arguments = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; throughput in MB/s, error in %")
    found = []
    for kind, setting in settings():
        if arguments.kind not in kind:
            continue
        one = outcome(kind, setting)
        found.append(one)
        if abs(one.error) * 100 >= arguments.over:
            _show(one)
    for kind in dict.fromkeys(one.kind for one in found):
        errors = [100 * abs(one.error) for one in found if one.kind == kind]
        over = sum(error > 3 for error in errors)
        print(
            f"{kind:26} {len(errors):3}  median {statistics.median(errors):5.2f}  worst {max(errors):5.2f}  "
            f"over 3: {over}"
        )


def _show(one: Outcome) -> None:
    setting, keys = one.prediction.setting, one.prediction.setting.solicitation
    ways = "/".join(f"{each / MS:g}" for each in setting.target_delays_ns) or f"{setting.delay_ns / MS:g}"
    about = f"{setting.operation} {setting.block_bytes >> 10}K {ways} ms QD {setting.queue_depth}x{setting.connections}"
    if setting.window_bytes:
        about += f" W {setting.window_bytes >> 10}K"
    if setting.operation == "write":
        about += f" first {first_burst_bytes(setting) >> 10}K"
        about += f" burst {keys.max_burst_bytes >> 10}K x{keys.max_outstanding_r2t}"
    cells = (one.measured_bytes_per_s / 1e6, one.prediction.throughput_bytes_per_s / 1e6, 100 * one.error)
    print(
        f"{one.kind:26} {about:60} {cells[0]:9.3f} {cells[1]:9.3f} {cells[2]:+7.2f}  {one.prediction.bound}", flush=True
    )


if __name__ == "__main__":
    main()
