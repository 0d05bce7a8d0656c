"""The world of guests: real kernels in virtual machines, with the links of the lab between their network cards.

```
    initiator [eth0] -- bridge -- link -- bridge -- [eth0] target         a guest in brackets; each bridge, and the
                            +---- link -- bridge -- [eth0] target-2       QEMU beside it, in a network namespace
```

Takes the settings of a simulation, and writes the same files: a capture of each guest, and ``truth.json``. Needs root.
Everything is removed at the end of a run, for any reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing, TrafficImpossible
from iscsitrace.lab import actors, namespaces, peers, real, run_files
from iscsitrace.lab.actors import RunningTarget, Watch
from iscsitrace.lab.faults.fault import Fault, FaultImpossible
from iscsitrace.lab.guests import faults, image, initiator, machine, targets
from iscsitrace.lab.guests.evidence import recording
from iscsitrace.lab.guests.faults import Hosts
from iscsitrace.lab.guests.machine import Guest
from iscsitrace.lab.namespaces import require_root
from iscsitrace.lab.real import truth_of_ends, truth_of_links
from iscsitrace.lab.run_files import INITIATOR

Say = Callable[[str], None]
"""Gets a line about what is going on."""

INITIATOR_PROGRAM = "open-iscsi"

_MEMORY_MIB = 512
_SETTLE_S = 0.3
_DISK_BYTES = 1 << 30
_BLOCK_BYTES = 512
_BLOCK_SIZE_BYTES = 65_536
_LIMIT_S = 600
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class GuestWorld:
    """Running guests by the name of their host, and the namespaces and links between them."""

    guests: Mapping[str, Guest]
    outside: real.World

    def address(self, host: str) -> str:
        """The address of a guest, IPv4 or IPv6 as the run uses."""
        return self.outside.address(host)


@contextmanager
def up(
    settings: Mapping[str, Any], say: Say, *, is_offloading: bool = False, sysctls: Mapping[str, str] | None = None
) -> Iterator[GuestWorld]:
    """All guests and links while the block runs; ``settings`` as the world of a simulation. Errors as of `real.up`."""
    require_root()
    made = image.made(say)
    how = machine.acceleration()
    tcp = {INITIATOR: settings.get("initiator_tcp", {})}
    with ExitStack() as stack:
        outside = stack.enter_context(real.up(settings, has_guests=True))
        say(f"starting {len(outside.hosts)} guests, {how.meaning}")
        starting = {}
        for host, place in outside.hosts.items():
            if place.guest is None or place.namespace is None:
                raise InputInvalid(f"no guest is plugged into {host}")
            card = stack.enter_context(place.guest.opened())
            own = place.interfaces[0].hardware_address
            starting[host] = stack.enter_context(
                machine.booted(host, made, card, own, namespace=place.namespace, memory_mib=_MEMORY_MIB)
            )
        guests = {host: each.guest() for host, each in starting.items()}
        for host, guest in guests.items():
            of_host = tcp.get(host, settings.get("target_tcp", {}))
            ends = real.end_settings(of_host, is_ipv6=outside.is_ipv6)
            _set_up(
                guest,
                outside,
                host,
                replace(ends, is_offloading=is_offloading, sysctls={**ends.sysctls, **(sysctls or {})}),
            )
        yield GuestWorld(guests, outside)


def _set_up(guest: Guest, outside: real.World, host: str, settings: namespaces.EndSettings) -> None:
    """Clock, addresses, routes and neighbours, TCP, and the network card of a guest."""
    guest.run("date", "--utc", "--set", f"@{time.time():.6f}")
    algorithm = settings.congestion_control or "cubic"
    values = namespaces.sysctls(settings) | {"net.ipv4.tcp_congestion_control": algorithm}
    guest.run("modprobe", "-a", f"tcp_{algorithm}", "tcp_diag", "inet_diag", is_checked=False)
    for name, value in values.items():
        guest.run("sysctl", "-q", "-w", f"{name}={value}")
    if not settings.is_offloading:
        guest.run("ethtool", "-K", "eth0", *namespaces.OFFLOADS_OFF, is_checked=False)
    lines = namespaces.ip_lines(outside.hosts[host].interfaces, settings, outside.plan)
    guest.run("ip", "-batch", "-", input_text="".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class GuestPrograms:
    """The programs of a run, and the hosts to capture at."""

    target: str = targets.PROGRAMS[0]
    capture_at: tuple[str, ...] = real.SIDES
    node_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of iscsid.conf by name."""
    multipath_settings: Mapping[str, str] = field(default_factory=dict)
    """Defaults of multipath.conf by name, where a disk has several sessions."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Of every guest."""
    is_offloading: bool = False
    faults: tuple[Fault, ...] = ()
    """What happens to the run. With one, a login or I/O that fails is part of the result, not an error."""


def target_program(named: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """The target's program, of those that are named; InputInvalid for programs that guests do not have, and for a
    workload that these do not run.
    """
    if (wrong := named.get("initiator", INITIATOR_PROGRAM)) != INITIATOR_PROGRAM:
        raise InputInvalid(f"the initiator of a guest is {INITIATOR_PROGRAM}, not {wrong}")
    target = named.get("target", GuestPrograms.target)
    if target not in targets.PROGRAMS:
        raise InputInvalid(f"the target of a guest is {' or '.join(targets.PROGRAMS)}, not {target}")
    if actors.is_bulk(settings):
        raise InputInvalid("a transfer over bare sockets is between our own programs, not in guests")
    return target


def run(
    settings: Mapping[str, Any],
    directory: Path,
    watch: Watch,
    say: Say,
    *,
    programs: GuestPrograms = GuestPrograms(),
    is_forced: bool = False,
) -> dict[str, Any]:
    """Runs a workload in guests, writes a capture of each and ``truth.json``, and returns the truth.

    Arguments and errors as of `real.run`; ``say`` gets lines about what is going on.
    """
    if len(settings["portals"]) != len(settings["world"]["paths"]):
        raise InputInvalid(f"{len(settings['world']['paths'])} paths lead to {len(settings['portals'])} targets")
    target_program({"target": programs.target}, settings)
    require_root()
    hosts = [INITIATOR, *run_files.targets(len(settings["portals"]))]
    faults.require_possible(programs.faults, hosts, programs.target)
    captured = [host for host in hosts if real.SIDES[host != INITIATOR] in programs.capture_at]
    names = [run_files.capture_name(host) for host in captured]
    with run_files.made_in(directory, names, is_forced=is_forced) as folder:
        found = _run(
            settings, dict(zip(captured, [folder / name for name in names], strict=True)), watch, say, programs
        )
        truth = run_files.envelope("run") | found
        run_files.write_truth(folder / run_files.TRUTH, truth)
    return truth


def _run(
    settings: Mapping[str, Any], files: Mapping[str, Path], watch: Watch, say: Say, programs: GuestPrograms
) -> dict[str, Any]:
    with ExitStack() as stack:
        world = stack.enter_context(
            up(settings["world"], say, is_offloading=programs.is_offloading, sysctls=programs.sysctls)
        )
        _require_wanted(watch)
        at_initiator, *others = world.guests
        wanted = {host: _wanted(world, host, portal) for host, portal in zip(others, settings["portals"], strict=True)}
        running = [
            stack.enter_context(_target(programs.target, world.guests[host], each)) for host, each in wanted.items()
        ]
        hosts = Hosts(
            world.guests,
            world.outside.hosts,
            wanted,
            programs.target,
            [initiator.TargetPortal(each.portal, each.name) for each in running],
            stack.enter_context(ExitStack()),
        )
        _require_wanted(watch)
        say("recording")
        limits: dict[str, Any] = {"snaplen_bytes": settings["world"].get("snaplen_bytes") or None}
        with ExitStack() as recordings:
            evidence = {
                host: recordings.enter_context(
                    recording(guest, files.get(host), **(limits | faults.capture_limits(programs.faults, host)))
                )
                for host, guest in world.guests.items()
            }
            started_ns = time.time_ns()
            outcome = _workload(hosts, running, settings, watch, say, programs)
            ended_ns = time.time_ns()
            # the last packets are still in flight
            time.sleep(_SETTLE_S + real.longest_round_trip_s(settings["world"]))
    return {
        "captures": _names(files, at_initiator, others),
        "settings": {**real.without_secrets(settings), **_described(programs)},
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        **outcome,
        **truth_of_links(world.outside.access, world.outside.paths),
        **truth_of_ends(evidence[at_initiator].samples, [evidence[host].samples for host in others], running),
        "packet_counts": [evidence[host].packet_count for host in world.guests],
        "capture_dropped_counts": [evidence[host].dropped_count for host in world.guests],
        "target_logs": [None for _ in others],
        "guests": {host: each.as_dict() for host, each in evidence.items()},
    }


def _require_wanted(watch: Watch) -> None:
    """TrafficImpossible if the run is to end before its workload begins."""
    if watch({"is_running": False}):
        raise TrafficImpossible("stopped before the workload began")


def _names(files: Mapping[str, Path], at_initiator: str, others: list[str]) -> dict[str, Any]:
    name_of = {host: file.name for host, file in files.items()}
    return {"initiator": name_of.get(at_initiator), "targets": [name_of.get(host) for host in others]}


def _described(programs: GuestPrograms) -> dict[str, Any]:
    return {
        "programs": {"target": programs.target, "initiator": INITIATOR_PROGRAM},
        "world_kind": "guests",
        "acceleration": machine.acceleration().name,
        "is_offloading": programs.is_offloading,
    }


def _wanted(world: GuestWorld, host: str, portal: Mapping[str, Any]) -> targets.Wanted:
    device = (portal.get("targets") or [{}])[0]
    units = device.get("logical_units") or [{}]
    chap = portal.get("chap") or {}
    return targets.Wanted(
        name=device.get("target_name", peers.TARGET_NAME),
        address=world.address(host),
        disk_bytes=[unit.get("size_bytes", _DISK_BYTES) for unit in units],
        keys=initiator.keys_of(portal.get("keys", {})),
        accounts=[peers.ChapAccount(each["name"], each["secret"]) for each in chap.get("initiators") or []],
    )


@contextmanager
def _target(program: str, guest: Guest, wanted: targets.Wanted) -> Iterator[RunningTarget]:
    with targets.running(program, guest, wanted) as lun:
        yield RunningTarget(wanted.address, wanted.port, wanted.name, lun)


def _workload(
    hosts: Hosts,
    running: list[RunningTarget],
    settings: Mapping[str, Any],
    watch: Watch,
    say: Say,
    programs: GuestPrograms,
) -> dict[str, Any]:
    """Logs in, runs fio, logs out, with the faults of the run: ``results``, ``commands`` and ``faults`` of the truth.

    A failure is a result of a run with faults: ``results`` then has the last words of the program in ``error``.
    """
    client = settings["client"]
    offers = client.get("login", {})
    chap = offers.get("chap")
    login = initiator.Login(
        keys=initiator.keys_of(offers.get("offers", {})),
        account=peers.ChapAccount(chap["name"], chap["secret"]) if chap else None,
        sessions=client["workload"].get("sessions") or 1,
        settings=faults.node_settings(programs.faults) | dict(programs.node_settings),
    )
    occurrences = [faults.Occurrence(each) for each in programs.faults]
    found: dict[str, Any] = {"negotiated": {}}
    with initiator.running(hosts.initiator, login), faults.lasting(hosts, occurrences):
        try:
            ran = _logged_in(hosts, client["workload"], programs, occurrences, watch, say, found)
        except FaultImpossible:
            raise
        except ToolMissing as error:
            if not occurrences:
                raise
            ran = initiator.Ran.without_io(str(error))
    if ran.results["error"] and not occurrences:
        raise ToolMissing(f"fio: {ran.results['error']}")
    seen = initiator.connections(found["negotiated"], hosts.portals[: len(running)])
    return {
        "results": {
            **ran.results,
            "targets": [{"address": each.portal} for each in running],
            "connections": seen["connections"],
        },
        "cycles": None,
        "ends": seen["ends"],
        # an array of disks places its blocks itself
        "commands": {"block_bytes": _BLOCK_BYTES if len(running) == 1 else None, **ran.commands},
        "faults": [each.as_dict() for each in occurrences],
        **found,
    }


def _logged_in(
    hosts: Hosts,
    workload: Mapping[str, Any],
    programs: GuestPrograms,
    occurrences: list[faults.Occurrence],
    watch: Watch,
    say: Say,
    found: dict[str, Any],
) -> initiator.Ran:
    """Runs fio in sessions with all portals; what the kernel says of these goes to ``found``."""
    guest, portals = hosts.initiator, hosts.portals
    sessions = workload.get("sessions") or 1
    with ExitStack() as stack:
        stack.enter_context(initiator.logged_in(guest, portals, is_discovering=hosts.is_discovering))
        needed = [portal for portal in portals if not portal.is_further]
        disks = initiator.disks(guest, needed, each=sessions)
        found["negotiated"] = initiator.negotiated(guest)
        initiator.limit_commands(guest, [device for each in disks for device in each], workload)
        devices = [each[0] for each in disks]
        if sessions > 1:
            devices = stack.enter_context(initiator.multipath(guest, disks, programs.multipath_settings))
        block_bytes = workload.get("block_size_bytes") or _BLOCK_SIZE_BYTES
        hosts.device = initiator.volume(guest, devices, workload.get("layout") or "stripe", block_bytes)
        say(f"running fio on {hosts.device}")
        limit_s = (workload.get("duration_ns") or 0) / _SECOND_NS + _LIMIT_S
        arguments = initiator.fio_arguments(hosts.device, workload, is_enduring=bool(occurrences))
        stack.enter_context(faults.timed(hosts, occurrences))
        begun, _ = guest.channel.ask("time")
        ran = initiator.run_fio(guest, arguments, lambda: watch({"is_running": False}), limit_s)
    return replace(ran, results={**ran.results, "started_ns": begun["time_ns"]})
