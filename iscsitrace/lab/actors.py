"""Who acts in a run of the real world: a target and an initiator, each ours or another's, in the place it is given.

Ours are the core's, each in a thread that has entered the place; others' are programs. Sets up no network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from iscsitrace.errors import InputInvalid
from iscsitrace.lab import initiators, peers, traffic, truth_file
from iscsitrace.lab.places import Place
from iscsitrace.lab.tcp_samples import TcpSamples

TARGETS = ("iscsitrace", "tgt", "istgt")
INITIATORS = ("iscsitrace", "iscsi-perf")

Watch = Callable[[dict[str, Any]], bool]
"""Told of the progress of our initiator; True ends the run in order."""

_LIMIT_S = 5
_POLL_S = 0.02
_SECOND_NS = 1_000_000_000
_LUN_BYTES = 1 << 30
_LOGICAL_BLOCK_BYTES = 512
_CYCLE_COLUMNS = (
    *("session", "connection", "target", "initiator_task_tag", "operation", "lba", "block_count", "bytes", "status"),
)
_INSTANTS = ("submitted_ns", "sent_ns", "first_data_ns", "completed_ns")


@dataclass
class RunningTarget:
    """A target that listens."""

    address: str
    port: int
    name: str
    lun: int
    log: dict[str, Any] = field(default_factory=dict)
    """Of ours, when it has ended: ``counters connections tasks``."""
    last_samples: list[dict[str, Any]] = field(default_factory=list)
    """Of ours, when it has ended: TCP_INFO of each connection as it was closed."""

    @property
    def portal(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@contextmanager
def target(program: str, place: Place, address: str, settings: Mapping[str, Any]) -> Iterator[RunningTarget]:
    """A target at an address of a place while the block runs: ours with all settings of the first portal; tgt or istgt
    with its first logical unit's size, its name and one account.
    """
    portal = settings["portals"][0]
    if program == "iscsitrace":
        with _ours(place, address, portal, settings["world"].get("target_tcp", {})) as running:
            yield running
        return
    if program not in TARGETS:
        raise InputInvalid(f"no target program {program!r}; there are {', '.join(TARGETS)}")
    device = (portal.get("targets") or [{}])[0]
    unit = (device.get("logical_units") or [{}])[0]
    accounts = (portal.get("chap") or {}).get("initiators") or []
    account = peers.Account(accounts[0]["name"], accounts[0]["secret"]) if accounts else None
    name = device.get("target_name", peers.TARGET_NAME)
    start = peers.tgt if program == "tgt" else peers.istgt
    size_bytes = unit.get("size_bytes", _LUN_BYTES)
    with start(place, lun_bytes=size_bytes, address=address, name=name, account=account) as peer:
        yield RunningTarget(peer.address, peer.port, peer.name, peer.lun)


@contextmanager
def _ours(place: Place, address: str, portal: Mapping[str, Any], tcp: Mapping[str, Any]) -> Iterator[RunningTarget]:
    first, *others = portal.get("targets") or [{}]
    device = {"target_name": peers.TARGET_NAME, **first}
    running = RunningTarget(address, peers.ISCSI_PORT, device["target_name"], 0)
    run_settings = {
        "portal": {**portal, "targets": [device, *others]},
        "sockets": _sockets(tcp),
        "listen": [running.portal],
    }
    is_ready, is_over, samples = threading.Event(), threading.Event(), TcpSamples()

    def look(_: dict[str, Any], descriptors: traffic.Descriptors) -> bool:
        samples.take(descriptors)
        return is_over.is_set()

    def serve() -> dict[str, Any]:
        return traffic.run_target(run_settings, lambda _: is_ready.set(), look)

    with ThreadPoolExecutor(1, "target") as pool:
        ending = pool.submit(place.call, serve)
        try:
            while not is_ready.wait(_POLL_S):
                if ending.done():
                    ending.result()
            yield running
        finally:
            is_over.set()
        running.log = ending.result(_LIMIT_S)
        running.last_samples = samples.last


def run_initiator(
    program: str, place: Place, at: RunningTarget, settings: Mapping[str, Any], watch: Watch
) -> dict[str, Any]:
    """Runs the workload to its end: ``results``, ``cycles`` and ``ends`` of a truth, and ``last_samples``, TCP_INFO of
    each connection as it was closed; all but the results of ours alone.

    Ours takes all settings of the client; iscsi-perf reads alone, for a time, with block size, depth and order.
    """
    client = settings["client"]
    if program == "iscsitrace":
        return _run_ours(place, at, client, settings["world"].get("initiator_tcp", {}), watch)
    if program not in INITIATORS:
        raise InputInvalid(f"no initiator program {program!r}; there are {', '.join(INITIATORS)}")
    workload = client["workload"]
    if workload.get("operation", "read") != "read" or not workload.get("duration_ns"):
        raise InputInvalid("iscsi-perf reads, and for a time: it takes no other operation and no number of bytes")
    chap = client.get("login", {}).get("chap")
    login = f"{chap['name']}%{chap['secret']}@" if chap else ""
    measured = initiators.iscsi_perf(
        place,
        f"iscsi://{login}{at.portal}/{at.name}/{at.lun}",
        queue_depth=workload.get("queue_depth", 1),
        block_count=workload.get("block_size_bytes", 1 << 16) // _LOGICAL_BLOCK_BYTES,
        seconds=max(1, round(workload["duration_ns"] / _SECOND_NS)),
        is_random=workload.get("access") == "random",
    )
    results = {
        "iops": measured.iops,
        "read_bytes": measured.read_bytes,
        "throughput_bytes_per_s": measured.throughput_bytes_per_s,
    }
    return {"results": results, "cycles": None, "ends": [], "last_samples": []}


def _run_ours(
    place: Place, at: RunningTarget, client: Mapping[str, Any], tcp: Mapping[str, Any], watch: Watch
) -> dict[str, Any]:
    aim = {"address": at.portal, "name": at.name, "lun": at.lun}
    run_settings = {"client": {**client, "targets": [aim], "task_log": True}, "sockets": _sockets(tcp)}
    is_over, samples = threading.Event(), TcpSamples()

    def look(progress: dict[str, Any], descriptors: traffic.Descriptors) -> bool:
        samples.take(descriptors)
        return watch(progress) or is_over.is_set()

    def run() -> dict[str, Any]:
        return traffic.run_initiator(run_settings, look)

    with ThreadPoolExecutor(1, "initiator") as pool:
        running = pool.submit(place.call, run)
        try:
            found = running.result()
        finally:
            is_over.set()
    return {
        "results": found["results"],
        "cycles": _cycles(found["tasks"]),
        "ends": list(samples.ends.values()),
        "last_samples": samples.last,
    }


def _cycles(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The tasks of the workload as columns, with the instants that our initiator knows: those of its system calls."""
    for task in tasks:
        task["operation"], task["block_count"] = "read" if task["is_read"] else "write", task["blocks"]
        task["target"] = 0
    return {**truth_file.columns(tasks, _CYCLE_COLUMNS), "by_initiator": truth_file.columns(tasks, _INSTANTS)}


def _sockets(tcp: Mapping[str, Any]) -> dict[str, Any]:
    """What is each socket's own; the rest is the namespace's."""
    return {"is_nagle": tcp.get("nagle", False)}
