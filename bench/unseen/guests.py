"""Runs between real kernels in virtual machines: what is drawn of them, and what their kernels and links logged.

open-iscsi and fio at the initiator, LIO at the target; the links are those of the lab. The windows are those of the
kernels' tcp_probe, at every segment that came in; packets, queue and losses those of the link's log; the times of
commands those of the captures in the guests. All times are put on this machine's clock. Needs root and `make guests`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import iscsitrace
from bench.budget.packets import Packet, packets
from bench.budget.spans import Spans, intersection, union
from bench.unseen import wire
from bench.unseen.drawing import Draw
from bench.unseen.logs import NULL, Logs, Numbers, Times, bursts, delays_of, overtaken_share, paired
from bench.unseen.runs import TAPS, Made
from iscsitrace.lab import fault_catalogue
from iscsitrace.lab.guests import world
from iscsitrace.lab.settings import structs

_LUN_BYTES: Final = 64 << 20
_SMALL_BUFFER_BYTES: Final = 1 << 20
_TARGET_PORT: Final = 3260
_WRAP: Final = 1 << 32
_MS: Final = 1_000_000
_DEVICES_NS, _DEVICES_SHARE = 2 * _MS, 0.2
"""What the guests' devices may add to a delay."""
_REACTION_NS: Final = 5 * _MS
"""Within which a guest sends what an ACK allows."""
_NOTICE_NS: Final = _MS
"""Within which a guest's TCP handles a segment that its card has."""
_CLOCK_NS: Final = 2 * _MS
"""fio logs in milliseconds, and a clock is known to less than one."""


def make(draw: Draw, folder: Path) -> Made:
    """Runs it. RuntimeError if fio failed without a fault."""
    settings = structs.of_run(draw.values, draw.run_seed)
    settings["portals"][0]["targets"][0]["logical_units"] = [{"size_bytes": _LUN_BYTES}]
    for path in settings["world"]["paths"]:
        path["is_logging_packets"] = True
    faults = tuple(fault_catalogue.parse(text) for text in draw.faults)
    programs = world.GuestPrograms(faults=faults)
    truth = world.run(settings, folder, lambda _: False, lambda _: None, programs=programs, is_forced=True)
    if any(truth["capture_dropped_counts"]):
        raise RuntimeError(f"a capture lost packets: {truth['capture_dropped_counts']}")
    captures = {tap: folder / f"{tap}.pcapng" for tap in TAPS}
    return Made(truth, captures, captures)


def of_run(made: Made) -> Logs:
    """What the kernels and the links logged."""
    truth = made.truth
    ahead_ns = {tap: round(float(np.mean(truth["guests"][tap]["clock"]["offset_ns"]))) for tap in TAPS}
    traces = {tap: iscsitrace.read(str(file)) for tap, file in made.whole.items()}
    port, commands, places = _commands(truth, traces, ahead_ns)
    _require_quiet(commands, delays_of(truth))
    found = {tap: bursts(trace) for tap, trace in traces.items()}
    rounds = {
        tap: {row: [tuple(time - ahead_ns[tap] for time in each) for each in own] for row, own in found[tap].items()}
        for tap in TAPS
    }
    seen = {
        tap: [replace(each, time_ns=each.time_ns - ahead_ns[tap]) for each in packets(file, _TARGET_PORT, port)]
        for tap, file in made.whole.items()
    }
    ways = {name: wire.of_log(truth, name) for name in wire.NEAR}
    has_lost = {name: bool((~np.isin(way.fate, ("delivered", "under_way"))).any()) for name, way in ways.items()}
    return Logs(
        commands,
        paired(rounds["initiator"], rounds["target"], places),  # type: ignore[arg-type]
        ways,
        wire.losses_of(seen, truth, has_lost, {name: {} for name in wire.NEAR}),
        {side: _full(truth, side, port, ahead_ns[side], _sent_ns(seen[side], side)) for side in TAPS},
        delays_of(truth),
        overtaken_share(truth),
        0,
        reaction_ns=_REACTION_NS,
        notice_ns=_NOTICE_NS,
    )


def _require_quiet(commands: Times, delays_ns: Mapping[str, tuple[float, float]]) -> None:
    """RuntimeError if the guests' devices took as long as a path: then the run is not the one that was wanted.

    A read's command and a write's status meet no queue.
    """
    is_read = commands["is_read"] == 1
    small = {
        "to_target": (commands["at_begin"] - commands["begin"])[is_read],
        "to_initiator": (commands["end"] - commands["at_end"])[~is_read],
    }
    for name, took_ns in small.items():
        if len(took_ns):
            devices_ns = float(np.percentile(took_ns, 25)) - delays_ns[name][1]
            if devices_ns > max(_DEVICES_NS, _DEVICES_SHARE * delays_ns[name][1]):
                raise RuntimeError(
                    f"the machine is too busy: the guests' devices took {devices_ns / _MS:.1f} ms {name}"
                )


def _commands(
    truth: Mapping[str, Any], traces: Mapping[str, Any], ahead_ns: Mapping[str, int]
) -> tuple[int, Times, list[tuple[int | None, int | None]]]:
    """The initiator's port, fio's commands, and the row of each in both traces."""
    rows, ports = {}, {}
    for tap, trace in traces.items():
        table = trace.cycles
        is_io = np.isin(table["operation"], ("read", "write")) & (table.raw("status_ns") != NULL)
        numbers, counts = np.unique(table.raw("connection")[is_io], return_counts=True)
        connection = int(numbers[np.argmax(counts)])
        ports[tap] = int(trace.connections.raw("initiator_port")[connection])
        rows[tap] = np.flatnonzero(is_io & (table.raw("connection") == connection))
    tags = {tap: traces[tap].cycles.raw("initiator_task_tag")[rows[tap]].tolist() for tap in TAPS}
    if tags["initiator"] != tags["target"]:
        raise RuntimeError(f"the taps have other commands: {len(tags['initiator'])} and {len(tags['target'])}")
    fio = truth["commands"]
    began_ns = min(
        round(ended * _MS) - latency for ended, latency in zip(fio["completed_ms"], fio["latency_ns"], strict=True)
    )
    begin = traces["initiator"].cycles.raw("command_first_ns")[rows["initiator"]]
    chosen = begin >= began_ns - _CLOCK_NS
    rows = {tap: each[chosen] for tap, each in rows.items()}

    def column(tap: str, name: str) -> Any:
        values = traces[tap].cycles.raw(name)[rows[tap]]
        return np.where(values == NULL, NULL, values - ahead_ns[tap])

    names = {"begin": "command_first_ns", "command_last": "command_last_ns", "last": "data_last_ns", "end": "status_ns"}
    at_target = {
        "at_begin": "command_first_ns",
        "at_command": "command_last_ns",
        "at_first": "data_first_ns",
        "at_last": "data_last_ns",
        "at_end": "status_ns",
    }
    commands = {name: column("initiator", own) for name, own in names.items()}
    commands |= {name: column("target", own) for name, own in at_target.items()}
    operations = traces["initiator"].cycles["operation"][rows["initiator"]]
    commands["is_read"] = np.asarray(operations == "read", np.int64)
    places: list[tuple[int | None, int | None]] = list(
        zip(rows["initiator"].tolist(), rows["target"].tolist(), strict=True)
    )
    return ports["initiator"], commands, places


def _sent_ns(seen: Sequence[Packet], side: str) -> Numbers:
    """When the host sent data, at its own tap."""
    is_out = side == "initiator"
    return np.array([each.time_ns for each in seen if each.payload_bytes and each.to_target == is_out], np.int64)


def _full(truth: Mapping[str, Any], side: str, port: int, ahead_ns: int, sent_ns: Numbers) -> dict[str, Spans]:
    """When the sender had no room for another segment, by what it lacked.

    tcp_probe tells of each segment that came in what the sender had in flight until then, and its windows. A sender
    stopped with its last packet before: until then it had room. One that paces waits between them, too.
    """
    probe = truth["guests"][side]["events"]["tcp_probe"]
    own = probe.get("src" if side == "initiator" else "dest", [])
    rows = [row for row, end in enumerate(own) if str(end).rpartition(":")[2] == str(port)]

    def column(name: str) -> Any:
        return np.array([probe[name][row] for row in rows], np.int64)

    times = column("time_ns") - ahead_ns
    flying = (column("snd_nxt") - column("snd_una")) % _WRAP
    ends = truth["initiator_ends"] if side == "initiator" else truth["target_ends"][0]
    (end,) = [each for each in ends if each["initiator_port"] == port]
    mss = end["snd_mss"]
    tcp = truth["settings"]["world"].get(f"{side}_tcp", {})
    is_small = (tcp.get("send_buffer_bytes") or _SMALL_BUFFER_BYTES) < _SMALL_BUFFER_BYTES
    # BBR paces: what it has and does not send waits for its turn
    is_pacing = tcp.get("congestion_control") == "bbr"
    is_closed = (flying > 0) & (column("snd_wnd") - flying < mss)
    is_full = (flying > (column("snd_cwnd") - 1) * mss) & ~is_closed
    is_waiting = (flying > 0) & ~is_closed & ~is_full
    before = np.append(times[:1], times[:-1])
    first, last = np.searchsorted(sent_ns, before, side="right"), np.searchsorted(sent_ns, times, side="right")
    bounded = np.append(sent_ns, times[-1:])
    has_sent = last > first
    stopped = np.column_stack([np.where(has_sent, bounded[np.maximum(last - 1, 0)], before), times])
    paced = np.column_stack([np.where(has_sent, bounded[first], before), times])
    is_paced = is_waiting & is_pacing & (not is_small)
    return {
        "receive_window": union(stopped[is_closed]),
        "congestion_window": union(stopped[is_full], paced[is_paced]),
        "send_buffer": intersection(union(stopped[is_waiting & is_small]), _buffer_full(end["tcp_info"])),
    }


def _buffer_full(info: Mapping[str, Any]) -> Spans:
    """Between which samples of TCP_INFO the kernel counted time in which all was sent, and the buffer had no room."""
    times, counted = np.asarray(info["time_ns"], np.int64), np.asarray(info["sndbuf_limited_ns"], np.int64)
    return union(np.column_stack([times[:-1], times[1:]])[np.diff(counted) > 0])
