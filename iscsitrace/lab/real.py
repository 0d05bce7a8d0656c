"""The real world: the kernel's TCP in network namespaces, links between them; captures of a run, and its truth.

```
    initiator ---- link ---- target                     one target

    initiator =+-- link ---- target                     several: the initiator's end is a switch, with one address
               +-- link ---- target-2

    initiator ---- link ---- switch =+-- link ---- target           with an access link, which all share
                                     +-- link ---- target-2
```

Takes the settings of a simulation, and writes the same files, as far as the kernel reports their content. Needs root.
Everything is removed at the end of a run, for any reason. Links and protocols are implemented by the core.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid, TrafficImpossible
from iscsitrace.lab import actors, run_files
from iscsitrace.lab.actors import RunningTarget, Watch
from iscsitrace.lab.faults import settings as fault_settings
from iscsitrace.lab.faults.fault import NAMESPACES, Fault, address_of_nobody, hits_of_link, truth_of_faults
from iscsitrace.lab.guard import guarding
from iscsitrace.lab.interfaces import InterfacePlan, Pair
from iscsitrace.lab.link_process import RunningLink, linked
from iscsitrace.lab.namespaces import EndSettings, Namespace, network, require_root
from iscsitrace.lab.recording import TcpInfoSamples, capturing_all, sampling
from iscsitrace.lab.run_files import INITIATOR

_SOCKETS = "( sport = :3260 or dport = :3260 )"
_PACKAGE = "iproute2"
# of no interface: a frame to it is for nobody
_NOBODY = "02:71:00:00:ff:fe"


class HostFaults:
    """The faults of the hosts of a run, each in its time."""

    def __init__(self, faults: Sequence[Fault], hosts: Mapping[str, Namespace]) -> None:
        self._hosts = hosts
        self._resets = {number: fault for number, fault in enumerate(faults) if fault.kind.name == "rst"}
        flaps = [(number, fault) for number, fault in enumerate(faults) if fault.kind.name == "flap"]
        times = [(fault.details["at"], number, fault) for number, fault in flaps]
        times += [(fault.details["at"] + fault.details["for"], number, fault) for number, fault in flaps]
        self._changes = sorted(times, key=lambda each: each[0])
        self._cards_down: dict[int, dict[str, Any]] = {}
        self._began_ns: int | None = None
        self.hits: list[dict[str, Any]] = []
        """When each reset was and each card was down, as the core logs its faults, with the number of connections
        or cards.
        """
        if any(fault.kind.name == "unreachable-portal" for fault in faults):
            self._add_nobody(hosts[INITIATOR])

    def look(self) -> None:
        """Does what is due; the workload has begun with the first call."""
        now_ns = time.monotonic_ns()
        self._began_ns = now_ns if self._began_ns is None else self._began_ns
        elapsed_ns = now_ns - self._began_ns
        for number, fault in list(self._resets.items()):
            if elapsed_ns >= fault.details["at"]:
                del self._resets[number]
                self._reset(number, self._hosts[fault.host])
        while self._changes and elapsed_ns >= self._changes[0][0]:
            _, number, fault = self._changes.pop(0)
            self._change_card(number, self._hosts[fault.host])

    def _reset(self, number: int, place: Namespace) -> None:
        began_ns = time.time_ns()
        # it lists what it has ended, one a line
        words = ("-K", "-H", "-n", "-t", "state", "established", _SOCKETS)
        count = len(place.run("ss", *words, package=_PACKAGE).output.splitlines())
        ended_ns = time.time_ns()
        hit = {"began_ns": began_ns, "ended_ns": ended_ns, "from_ns": began_ns, "to_ns": ended_ns}
        self.hits.append(
            {"fault": number, "count": count, **(hit if count else {**hit, "from_ns": None, "to_ns": None})}
        )

    def _change_card(self, number: int, place: Namespace) -> None:
        """A card that is taken down would end the capture, and one that loses its carrier may send for another second:
        the kernel looks at most once a second. A queue that drops what it gets is there at once, before the capture.
        What is sent to the card, the link drops.
        """
        down = self._cards_down.pop(number, None)
        if down is not None:
            down["ended_ns"] = down["to_ns"] = time.time_ns()
        for interface in place.interfaces:
            words = ("add", "root", "blackhole") if down is None else ("del", "root")
            place.run("tc", "qdisc", words[0], "dev", interface.name, *words[1:], package=_PACKAGE)
        if down is None:
            now_ns = time.time_ns()
            times = {"began_ns": now_ns, "ended_ns": None, "from_ns": now_ns, "to_ns": now_ns}
            down = self._cards_down[number] = {"fault": number, "count": len(place.interfaces), **times}
            self.hits.append(down)

    @staticmethod
    def _add_nobody(place: Namespace) -> None:
        """Without a neighbour entry, a SYN would wait for an answer to ARP."""
        device = place.interfaces[0].name
        for is_ipv6 in (False, True) if place.address_v6 else (False,):
            address = str(address_of_nobody(NAMESPACES, is_ipv6=is_ipv6))
            entry = (address, "lladdr", _NOBODY, "nud", "permanent", "dev", device)
            place.run("ip", "neigh", "replace", *entry, package=_PACKAGE)


Row = dict[str, int | str | bool]
"""One sample of a connection."""

_MICROSECOND_NS = 1_000
_NAMES = ("local_address", "local_port", "remote_address", "remote_port", "congestion_control")


def truth_of_links(access: RunningLink | None, paths: Sequence[RunningLink]) -> dict[str, Any]:
    """``access`` and ``paths`` as in a simulation; ``access_process`` and ``path_process`` of the links' processes."""
    return {
        "access": access and access.log["link"],
        "access_process": access and _process(access),
        "paths": [link.log["link"] for link in paths],
        "path_process": [_process(link) for link in paths],
    }


def _process(link: RunningLink) -> dict[str, Any]:
    return {name: value for name, value in link.log.items() if name != "link"}


def truth_of_ends(
    at_initiator: TcpInfoSamples, at_targets: Sequence[TcpInfoSamples], targets: Sequence[RunningTarget]
) -> dict[str, Any]:
    """``initiator_ends`` and ``target_ends`` of the connections, by target and initiator port."""
    initiator_ends = []
    for number, target in enumerate(targets):
        rows = [row for row in at_initiator.rows if row["remote_address"] == target.address]
        initiator_ends += [{"target": number, **end} for end in _ends(rows, "local_port", "remote_port", target.port)]
    return {
        "initiator_ends": initiator_ends,
        "target_ends": [
            _ends(samples.rows, "remote_port", "local_port", target.port)
            for samples, target in zip(at_targets, targets, strict=True)
        ],
        "tcp_info_missed_counts": [samples.missed_count for samples in (at_initiator, *at_targets)],
    }


def _ends(rows: list[Row], initiator_port: str, target_port: str, port: int) -> list[dict[str, Any]]:
    rows_of: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["time_ns"]):
        if row[target_port] == port:
            rows_of.setdefault(int(row[initiator_port]), []).append(row)
    return [_end(number, of_port) for number, of_port in sorted(rows_of.items())]


def _end(initiator_port: int, rows: list[Row]) -> dict[str, Any]:
    """One end of a connection: totals from its last sample, windows from every sample."""
    last = rows[-1]
    # some fields are missing until they have a value
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _NAMES]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return {
        "initiator_port": initiator_port,
        "snd_mss": max(int(row.get("snd_mss_bytes", 0)) for row in rows),
        # the last sample, of a socket that is about to be closed, does not have it
        "congestion_control": next(
            (row[name] for row in reversed(rows) if (name := "congestion_control") in row), None
        ),
        "retransmitted_segment_count": last.get("total_retrans_segments", 0),
        "windows": {
            "time_ns": columns["time_ns"],
            "cwnd": columns.get("snd_cwnd_segments"),
            "ssthresh": columns.get("snd_ssthresh_segments"),
            "snd_wnd_bytes": columns.get("snd_wnd_bytes"),
            "pipe": [_pipe(row) for row in rows],
            "srtt_us": [int(row.get("rtt_ns", 0)) // _MICROSECOND_NS for row in rows],
            "unacked": columns.get("unacked_segments"),
        },
        "tcp_info": columns,
    }


def _pipe(row: dict[str, int | str | bool]) -> int:
    """Segments in the network as the kernel counts them (tcp_packets_in_flight)."""
    out, again, arrived, lost = (
        int(row.get(f"{name}_segments", 0)) for name in ("unacked", "retrans", "sacked", "lost")
    )
    return out + again - arrived - lost


SIDES = (INITIATOR, "target")

_SWITCH = "switch"
_HEADERS_BYTES = {False: 40, True: 60}
"""IP and TCP headers by IPv6 or not."""
_WINDOW_SHARE = 2
"""Half of a socket's buffer is for the window, the other half for the kernel's overhead (tcp(7), on SO_RCVBUF)."""
_SETTLE_S = 0.05
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Programs:
    """The programs of a run, the hosts to capture at, and the kind of links."""

    target: str = "iscsitrace"
    initiator: str = "iscsitrace"
    capture_at: tuple[str, ...] = SIDES
    """The initiator, each target."""
    is_bypassed: bool = False
    """Veth pairs instead of the links."""
    driver: str = actors.DRIVERS[0]
    """How our initiator moves bytes."""
    receive: str = actors.RECEIVES[0]
    faults: tuple[Fault, ...] = ()
    """What happens to the run; only with our programs, and only on links without a bypass."""

    @property
    def design(self) -> actors.Design:
        """The design of our initiator."""
        return actors.Design(self.driver, self.receive)


@dataclass(frozen=True)
class World:
    """The namespaces of the hosts, and the links between them."""

    hosts: Mapping[str, Namespace]
    """``initiator``, ``target``, ``target-2`` ..."""
    access: RunningLink | None
    """The access link, which all paths share."""
    paths: tuple[RunningLink, ...]
    """The link to each target; empty with a bypass."""
    is_ipv6: bool
    plan: InterfacePlan

    def begin_workload(self) -> None:
        """Tells the links that the workload has begun, from which the times of faults count."""
        for link in filter(None, (self.access, *self.paths)):
            link.begin_workload()

    def address(self, host: str) -> str:
        """The address of a host, IPv4 or IPv6 as the run uses."""
        place = self.hosts[host]
        address = place.address_v6 if self.is_ipv6 else place.address
        if address is None:
            raise TrafficImpossible("this kernel has no IPv6")
        return address


@contextmanager
def up(settings: Mapping[str, Any], *, is_bypassed: bool = False, has_guests: bool = False) -> Iterator[World]:
    """All namespaces and links while the block runs; ``settings`` as the world of a simulation.

    With ``has_guests`` a guest is to be plugged into the namespace of each host, and to set itself up.
    RootNeeded unless root; ToolMissing if the kernel refuses; TrafficImpossible for invalid link settings.
    """
    paths, access = settings["paths"], settings.get("access")
    if not paths:
        raise InputInvalid("no path leads to a target")
    if is_bypassed and access:
        raise InputInvalid("an access link cannot be bypassed")
    is_ipv6 = bool(settings.get("is_ipv6"))
    targets = run_files.targets(len(paths))
    tcp = {INITIATOR: settings.get("initiator_tcp", {})} | dict.fromkeys(targets, settings.get("target_tcp", {}))
    ends = {host: end_settings(its, is_ipv6=is_ipv6) for host, its in tcp.items()}
    if has_guests:
        ends = {host: replace(end, is_guest=True) for host, end in ends.items()}
    cables = _cables(ends, targets, has_access=access is not None)
    with ExitStack() as stack:
        stack.enter_context(guarding())
        made = stack.enter_context(network(ends, cable="veth" if is_bypassed else "tap", cables=cables))
        wanted = [] if is_bypassed else [*([access] if access else []), *paths]
        links = [
            stack.enter_context(linked(cable, link)) for cable, link in zip(made.cables, wanted, strict=not is_bypassed)
        ]
        hosts = {host: made[host] for host in (INITIATOR, *targets)}
        yield World(hosts, links.pop(0) if access else None, tuple(links), is_ipv6, made.plan)


def _cables(ends: dict[str, EndSettings], targets: list[str], *, has_access: bool) -> list[Pair]:
    """The cables between ends, the access link first. Adds a switch where one is needed."""
    if has_access:
        mtu_bytes = max(each.mtu_bytes for each in ends.values())
        ends[_SWITCH] = EndSettings(mtu_bytes=mtu_bytes, is_switching=True)
        return [(INITIATOR, _SWITCH), *((_SWITCH, target) for target in targets)]
    if len(targets) > 1 and not ends[INITIATOR].is_guest:
        ends[INITIATOR] = replace(ends[INITIATOR], is_switching=True)
    return [(INITIATOR, target) for target in targets]


def end_settings(tcp: Mapping[str, Any], *, is_ipv6: bool = False) -> EndSettings:
    """The settings of a namespace, from those of a simulated host's TCP; others are the kernel's, except CUBIC.

    InputInvalid for a setting that is not per namespace. Nagle's algorithm is set per socket.
    """
    if tcp.get("hystart") is False:
        raise InputInvalid("the kernel's CUBIC has HyStart for the whole machine, not for one host")
    names = ("sack", "timestamps", "window_scaling")
    receive_bytes, send_bytes = tcp.get("receive_buffer_bytes"), tcp.get("send_buffer_bytes")
    return EndSettings(
        mtu_bytes=max(EndSettings.mtu_bytes, tcp.get("mss", 0) + _HEADERS_BYTES[is_ipv6]),
        advertised_mss_bytes=tcp.get("mss"),
        congestion_control=tcp.get("congestion_control", "cubic"),
        # minimum, default and maximum are equal, so the kernel does not tune the buffer
        tcp_rmem_bytes=(_WINDOW_SHARE * receive_bytes,) * 3 if receive_bytes else None,
        tcp_wmem_bytes=(send_bytes,) * 3 if send_bytes else None,
        is_slow_start_after_idle=tcp.get("slow_start_after_idle"),
        initial_window_segments=tcp.get("initial_window"),
        is_delaying_acks=tcp.get("delayed_ack", True),
        sysctls={f"net.ipv4.tcp_{name}": str(int(tcp[name])) for name in names if name in tcp},
    )


def run(
    settings: Mapping[str, Any],
    directory: Path,
    watch: Watch,
    *,
    programs: Programs = Programs(),
    is_forced: bool = False,
) -> dict[str, Any]:
    """Runs a workload, writes a capture of each host and ``truth.json``, and returns the truth.

    ``settings`` are a simulation's: ``client``, ``portals``, ``world``. ``watch`` gets our initiator's progress, and
    returns True to end the run in order. Errors as of `up`, and InputInvalid for settings that the programs do not
    support; OutputExists if a file exists and ``is_forced`` is not set. A failed run leaves no files.
    """
    if len(settings["portals"]) != len(settings["world"]["paths"]):
        raise InputInvalid(f"{len(settings['world']['paths'])} paths lead to {len(settings['portals'])} targets")
    actors.require_possible(programs.target, programs.initiator, settings)
    # before the files of an earlier run are removed
    require_root()
    targets = run_files.targets(len(settings["portals"]))
    hosts = [host for host in (INITIATOR, *targets) if SIDES[host != INITIATOR] in programs.capture_at]
    names = [run_files.capture_name(host) for host in hosts]
    with run_files.made_in(directory, names, is_forced=is_forced) as folder:
        outcome_of_run = _run_in_world(
            settings, dict(zip(hosts, [folder / name for name in names], strict=True)), watch, programs
        )
        truth = run_files.envelope("run") | outcome_of_run
        run_files.write_truth(folder / run_files.TRUTH, truth)
    return truth


def _run_in_world(
    settings: Mapping[str, Any], files: Mapping[str, Path], watch: Watch, programs: Programs
) -> dict[str, Any]:
    settings = fault_settings.with_faults(settings, programs.faults, NAMESPACES)
    world_settings = settings["world"]
    with ExitStack() as stack:
        world = stack.enter_context(up(world_settings, is_bypassed=programs.is_bypassed))
        initiator, *others = world.hosts
        places = {host: world.hosts[host] for host in files}
        wanted = [(place, place.interfaces[0].name, files[host]) for host, place in places.items()]
        snaplen_bytes = world_settings.get("snaplen_bytes") or None
        taken = stack.enter_context(capturing_all(wanted, snaplen_bytes=snaplen_bytes))
        captures = dict(zip(files, taken, strict=True))
        targets = [
            stack.enter_context(
                actors.target(programs.target, world.hosts[host], world.address(host), settings, number)
            )
            for number, host in enumerate(others)
        ]
        samples = {host: stack.enter_context(sampling(place)) for host, place in world.hosts.items()}

        def look(progress: dict[str, Any]) -> bool:
            if progress.get("is_running"):
                world.begin_workload()
                host_faults.look()
            return watch(progress)

        host_faults = HostFaults(programs.faults, world.hosts)
        started_ns = time.time_ns()
        outcome = actors.run_initiator(
            programs.initiator, world.hosts[initiator], targets, settings, look, programs.design
        )
        ended_ns = time.time_ns()
        # the last packets are still in flight
        time.sleep(_SETTLE_S + longest_round_trip_s(world_settings))
    samples[initiator].rows += outcome.pop("last_samples")
    for host, target in zip(others, targets, strict=True):
        samples[host].rows += target.last_samples
    hits = [hit for target in targets for hit in target.log.pop("fault_hits", ())]
    hits += outcome.pop("fault_hits", ())
    for link in filter(None, (world.access, *world.paths)):
        hits += hits_of_link(link.log["link"])
    # a card that is down is the fault; what the link drops meanwhile only completes it
    of_hosts = {hit["fault"] for hit in host_faults.hits}
    hits = [*(hit for hit in hits if hit["fault"] not in of_hosts), *host_faults.hits]
    design = asdict(programs.design) if programs.initiator == "iscsitrace" else {}
    described = {"programs": {"target": programs.target, "initiator": programs.initiator, **design}}
    name_of = {host: file.name for host, file in files.items()}
    return {
        "captures": {"initiator": name_of.get(initiator), "targets": [name_of.get(host) for host in others]},
        "settings": {**without_secrets(settings), **described, "is_bypassed": programs.is_bypassed},
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        "faults": truth_of_faults(programs.faults, hits, started_ns, ended_ns),
        **outcome,
        **truth_of_links(world.access, world.paths),
        **truth_of_ends(samples[initiator], [samples[host] for host in others], targets),
        "packet_counts": [captures[host].packet_count if host in captures else None for host in world.hosts],
        "capture_dropped_counts": [captures[host].dropped_count if host in captures else None for host in world.hosts],
        "target_logs": [run_files.target_log(target.log) if target.log else None for target in targets],
    }


def without_secrets(settings: Any) -> Any:
    """Settings as a truth lists them."""
    if isinstance(settings, Mapping):
        return {name: without_secrets(value) for name, value in settings.items() if name != "secret"}
    return [without_secrets(each) for each in settings] if isinstance(settings, list) else settings


def longest_round_trip_s(world: Mapping[str, Any]) -> float:
    """The longest round trip over the links of a world, without their queues."""
    return _round_trip_s(world.get("access") or {}) + max(map(_round_trip_s, world["paths"]))


def _round_trip_s(link: Mapping[str, Any]) -> float:
    directions = [link.get(name, {}) for name in ("to_target", "to_initiator")]
    names = ("delay_ns", "jitter_ns", "reorder_by_ns")
    return float(sum(direction.get(name, 0) for direction in directions for name in names) / _SECOND_NS)
