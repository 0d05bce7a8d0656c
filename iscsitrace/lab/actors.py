"""The targets and the initiator of a run in the real world, ours or other programs, each in a place.

Ours run in the core, each in a thread that has entered the place. Sets up no network.

A program that fails or exceeds its time limit raises an error with its last line.
"""

from __future__ import annotations

import re
import resource
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab import peers, places, run_files, traffic
from iscsitrace.lab.places import Place
from iscsitrace.lab.sock_diag import TcpSamples

_LIBISCSI = "libiscsi-bin"


@dataclass(frozen=True)
class Performance:
    """Results of iscsi-perf, which only reads."""

    iops: int
    read_bytes: int
    """Bytes of one read."""

    @property
    def throughput_bytes_per_s(self) -> int:
        """Average over the run."""
        return self.iops * self.read_bytes


def iscsi_perf(
    place: Place,
    url: str,
    *,
    queue_depth: int = 1,
    block_count: int = 8,
    seconds: int = 2,
    is_random: bool = False,
    is_enough: Callable[[], bool] = lambda: False,
) -> Performance:
    """Reads with ``queue_depth`` commands in flight, of ``block_count`` logical blocks each, for a number of seconds or
    until ``is_enough``.
    """
    random = ["--random"] if is_random else []
    words = ["-m", str(queue_depth), "-b", str(block_count), "-t", str(seconds), *random, url]
    output = place.run("iscsi-perf", *words, package=_LIBISCSI, limit_s=seconds + 15, is_enough=is_enough).output
    # it overwrites its line during the run: the last average is that of the whole run
    averages = re.findall(r"iops average (\d+) ", output)
    size = re.search(r"\((\d+) byte\)\s*$", output, re.MULTILINE)
    if "finished." not in output or not averages or size is None:
        raise ToolMissing("iscsi-perf ended too early, or its output has an unknown format")
    return Performance(int(averages[-1]), int(size[1]))


CpuTime = Mapping[str, int]


def children_cpu_time() -> dict[str, int]:
    """Processor time of all ended child processes (getrusage(2), RUSAGE_CHILDREN)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"user_ns": round(usage.ru_utime * _SECOND_NS), "system_ns": round(usage.ru_stime * _SECOND_NS)}


def children_cpu_time_since(before: CpuTime) -> dict[str, int]:
    """Processor time of child processes that ended since ``before``. No other child may end meanwhile."""
    return {name: ns - before[name] for name, ns in children_cpu_time().items()}


TARGETS = ("iscsitrace", "tgt", "istgt")
INITIATORS = ("iscsitrace", "iscsi-perf")
DRIVERS = ("events", "threads")
"""How our initiator moves bytes: one thread, or two blocking threads per connection."""
RECEIVES = ("copy", "discard")
"""How our initiator receives the data of reads that it does not verify."""

Watch = Callable[[dict[str, Any]], bool]
"""Called with the progress of our initiator, and during another program; True ends the run in order."""

_POLL_S = 0.02
_SECOND_NS = 1_000_000_000
_LUN_BYTES = 1 << 30
_LOGICAL_BLOCK_BYTES = 512
_MEDIA_OF_OTHERS = ("sparse", "ram")
_INSTANTS = ("submitted_ns", "sent_ns", "first_data_ns", "completed_ns")


@dataclass
class RunningTarget:
    """A running target."""

    address: str
    port: int
    name: str
    lun: int
    log: dict[str, Any] = field(default_factory=dict)
    """For ours, at its end: ``counters connections tasks cpu``."""
    last_samples: list[dict[str, Any]] = field(default_factory=list)
    """For ours, at its end: TCP_INFO of each connection when it was closed."""

    @property
    def portal(self) -> str:
        """``host:port``, an IPv6 address in brackets."""
        return places.portal(self.address, self.port)


def require_possible(target_program: str, initiator_program: str, settings: Mapping[str, Any]) -> None:
    """InputInvalid for settings that the programs do not support."""
    if target_program not in TARGETS:
        raise InputInvalid(f"no target program {target_program!r}; there are {', '.join(TARGETS)}")
    if initiator_program not in INITIATORS:
        raise InputInvalid(f"no initiator program {initiator_program!r}; there are {', '.join(INITIATORS)}")
    if is_bulk(settings) and not target_program == initiator_program == "iscsitrace":
        raise InputInvalid("a transfer over bare sockets is between our own programs")
    if target_program != "iscsitrace":
        for portal in settings["portals"]:
            units = (portal.get("targets") or [{}])[0].get("logical_units") or [{}]
            if len(units) > 1 or units[0].get("medium", "sparse") not in _MEDIA_OF_OTHERS:
                raise InputInvalid(f"{target_program} has one logical unit here, which keeps what is written")
            if len((portal.get("chap") or {}).get("initiators") or []) > 1:
                raise InputInvalid(f"{target_program} lets one initiator log in here")
    if initiator_program != "iscsitrace":
        workload = settings["client"]["workload"]
        if len(settings["portals"]) > 1:
            raise InputInvalid(f"{initiator_program} reads from one target")
        if workload.get("operation", "read") != "read" or not workload.get("duration_ns"):
            raise InputInvalid(
                f"{initiator_program} reads, and for a time: it takes no other operation and no number of bytes"
            )
        if workload["duration_ns"] % _SECOND_NS or workload.get("block_size_bytes", 0) % _LOGICAL_BLOCK_BYTES:
            raise InputInvalid(f"{initiator_program} takes whole seconds, and blocks that are multiples of 512 bytes")


def is_bulk(settings: Mapping[str, Any]) -> bool:
    """Whether the run transfers bytes over plain sockets, without iSCSI."""
    return str(settings["client"].get("workload", {}).get("operation")).startswith("socket_")


@contextmanager
def target(
    program: str, place: Place, address: str, settings: Mapping[str, Any], number: int = 0
) -> Iterator[RunningTarget]:
    """A target at an address of a place while the block runs: ours with all settings of portal ``number``; tgt or istgt
    with the size of the logical unit, the name and one account.
    """
    portal = settings["portals"][number]
    if program == "iscsitrace":
        tcp = settings["world"].get("target_tcp", {})
        with _ours(place, address, portal, tcp, is_bulk=is_bulk(settings)) as running:
            yield running
        return
    device = (portal.get("targets") or [{}])[0]
    unit = (device.get("logical_units") or [{}])[0]
    accounts = (portal.get("chap") or {}).get("initiators") or []
    account = peers.ChapAccount(accounts[0]["name"], accounts[0]["secret"]) if accounts else None
    name = device.get("target_name", peers.TARGET_NAME)
    start = peers.tgt if program == "tgt" else peers.istgt
    size_bytes = unit.get("size_bytes", _LUN_BYTES)
    with start(place, lun_bytes=size_bytes, address=address, name=name, account=account) as peer:
        yield RunningTarget(peer.address, peer.port, peer.name, peer.lun)


@contextmanager
def _ours(
    place: Place, address: str, portal: Mapping[str, Any], tcp: Mapping[str, Any], *, is_bulk: bool
) -> Iterator[RunningTarget]:
    first, *others = portal.get("targets") or [{}]
    device = {"target_name": peers.TARGET_NAME, **first}
    running = RunningTarget(address, peers.ISCSI_PORT, device["target_name"], 0)
    run_settings = {
        "portal": {**portal, "targets": [device, *others]},
        "sockets": _sockets(tcp),
        "listen": [running.portal],
        "is_bulk": is_bulk,
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
        running.log = ending.result()
        running.last_samples = samples.last


@dataclass(frozen=True)
class Design:
    """The design of our initiator."""

    driver: str = DRIVERS[0]
    receive: str = RECEIVES[0]


def run_initiator(
    program: str,
    place: Place,
    targets: Sequence[RunningTarget],
    settings: Mapping[str, Any],
    watch: Watch,
    design: Design = Design(),
) -> dict[str, Any]:
    """Runs the workload to its end: ``results``, ``cycles`` and ``ends`` of a truth, and ``last_samples``, TCP_INFO of
    each connection when it was closed. Only our initiator has more than results.

    Ours takes all settings of the client. iscsi-perf only reads, from one target, for a duration, with a block size, a
    queue depth and an order.
    """
    client = settings["client"]
    if program == "iscsitrace":
        return _run_ours(place, targets, client, settings["world"].get("initiator_tcp", {}), watch, design)
    (at,) = targets
    before = children_cpu_time()
    results = _run_iscsi_perf(place, at, client, watch)
    return {
        "results": results | {"cpu": children_cpu_time_since(before)},
        "cycles": None,
        "ends": [],
        "last_samples": [],
    }


def _run_iscsi_perf(place: Place, at: RunningTarget, client: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
    workload = client["workload"]
    chap = client.get("login", {}).get("chap")
    login = f"{chap['name']}%{chap['secret']}@" if chap else ""
    measured = iscsi_perf(
        place,
        f"iscsi://{login}{at.portal}/{at.name}/{at.lun}",
        queue_depth=workload.get("queue_depth", 1),
        block_count=workload.get("block_size_bytes", 1 << 16) // _LOGICAL_BLOCK_BYTES,
        seconds=workload["duration_ns"] // _SECOND_NS,
        is_random=workload.get("access") == "random",
        is_enough=lambda: watch({"is_running": False}),
    )
    return {
        "iops": measured.iops,
        "read_bytes": measured.read_bytes,
        "throughput_bytes_per_s": measured.throughput_bytes_per_s,
    }


def _run_ours(
    place: Place,
    targets: Sequence[RunningTarget],
    client: Mapping[str, Any],
    tcp: Mapping[str, Any],
    watch: Watch,
    design: Design,
) -> dict[str, Any]:
    aims = [{"address": each.portal, "name": each.name, "lun": each.lun} for each in targets]
    run_settings = {"client": {**client, "targets": aims, "task_log": True}, "sockets": _sockets(tcp)} | asdict(design)
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
    cycles = run_files.initiator_cycles(found)
    # the times that our initiator knows: those of its system calls
    by_initiator = {name: cycles.pop(name) for name in _INSTANTS}
    return {
        "results": found["results"],
        "cycles": {**cycles, "by_initiator": by_initiator},
        "ends": list(samples.ends.values()),
        "last_samples": samples.last,
        "fault_hits": found["fault_hits"],
    }


def _sockets(tcp: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are per socket; others are per namespace. Hosts and links share the processors, so threads
    sleep at once instead of polling.
    """
    return {"is_nagle": tcp.get("nagle", False), "sleeps_at_once": True}
