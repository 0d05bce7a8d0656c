"""The real world: the kernel's TCP in two network namespaces, a link between them; captures of a run, and its truth.

Takes the settings of a simulation, and writes what a simulation writes, as far as a kernel lets one know it. Needs
root. Everything is torn down when a run ends, whatever the reason. Never emulates a link or speaks a protocol itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iscsitrace.errors import InputInvalid, TrafficImpossible
from iscsitrace.lab import actors, real_truth, truth_file
from iscsitrace.lab.actors import Watch
from iscsitrace.lab.link_process import RunningLink, linked
from iscsitrace.lab.namespaces import EndSettings, Namespace, network
from iscsitrace.lab.recording import capturing, sampling
from iscsitrace.lab.simulation import TRUTH

ENDS = ("initiator", "target")

_HEADERS_BYTES = {False: 40, True: 60}
"""Of IP and TCP, over IPv4 and IPv6."""
_WINDOW_SHARE = 2
"""Half of a socket's buffer is the window, the other half the kernel's own (tcp(7), on SO_RCVBUF)."""
_SETTLE_S = 0.05
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Programs:
    """Who takes part, where is captured, and over what."""

    target: str = "iscsitrace"
    initiator: str = "iscsitrace"
    capture_at: tuple[str, ...] = ENDS
    is_bypassed: bool = False
    """A veth pair in place of the link."""


@dataclass(frozen=True)
class World:
    """Two namespaces, and the link between them unless it is bypassed."""

    initiator: Namespace
    target: Namespace
    link: RunningLink | None
    is_ipv6: bool

    def place(self, end: str) -> Namespace:
        """A namespace by the name of its end."""
        return self.initiator if end == "initiator" else self.target

    def address(self, end: str) -> str:
        """Of the kind that the run uses."""
        place = self.place(end)
        address = place.address_v6 if self.is_ipv6 else place.address
        if address is None:
            raise TrafficImpossible("this kernel has no IPv6")
        return address


@contextmanager
def up(settings: Mapping[str, Any], *, is_bypassed: bool = False) -> Iterator[World]:
    """Both namespaces and the link while the block runs; ``settings`` as the world of a simulation with one path.

    RootNeeded unless root; ToolMissing when the kernel refuses; TrafficImpossible for a link that makes no sense.
    """
    if len(settings["paths"]) != 1:
        raise InputInvalid("the real world has one target")
    is_ipv6 = bool(settings.get("is_ipv6"))
    ends = {end: end_settings(settings.get(f"{end}_tcp", {}), is_ipv6=is_ipv6) for end in ENDS}
    with ExitStack() as stack:
        made = stack.enter_context(network(ends, cable="veth" if is_bypassed else "tap"))
        link = None if is_bypassed else stack.enter_context(linked(made.cables[0], settings["paths"][0]))
        yield World(made["initiator"], made["target"], link, is_ipv6)


def end_settings(tcp: Mapping[str, Any], *, is_ipv6: bool = False) -> EndSettings:
    """A namespace whose TCP is set as that of a simulated host; what is not set is the kernel's own, but for CUBIC.

    InputInvalid for what a namespace cannot have of its own. Nagle's algorithm is each socket's own affair.
    """
    if tcp.get("hystart") is False:
        raise InputInvalid("the kernel's CUBIC has HyStart for the whole machine, not for one host")
    names = ("sack", "timestamps", "window_scaling")
    receive_bytes, send_bytes = tcp.get("receive_buffer_bytes"), tcp.get("send_buffer_bytes")
    return EndSettings(
        mtu_bytes=max(EndSettings.mtu_bytes, tcp.get("mss", 0) + _HEADERS_BYTES[is_ipv6]),
        advertised_mss_bytes=tcp.get("mss"),
        congestion_control=tcp.get("congestion_control", "cubic"),
        # least, first and most alike: the kernel leaves a buffer as it is
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
    """Runs a workload; writes a capture for each end and ``truth.json``; the truth.

    ``settings`` are a simulation's: ``client``, one of ``portals``, ``world``. ``watch`` is told of our initiator's
    progress, and gives True to end it in order. Errors as of `up`; OutputExists when a file is there and ``is_forced``
    is not set. A run that fails leaves no files.
    """
    files = {end: directory / f"{end}.pcapng" for end in ENDS if end in programs.capture_at}
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrafficImpossible(f"cannot make {directory}: {error.strerror}") from error
    truth_file.require_new([*files.values(), directory / TRUTH], is_forced=is_forced)
    try:
        truth = truth_file.envelope("run") | _played(settings, files, watch, programs)
        truth_file.write(directory / TRUTH, truth)
    except BaseException:
        for file in files.values():
            with suppress(OSError):
                file.unlink()
        raise
    return truth


def _played(settings: Mapping[str, Any], files: Mapping[str, Path], watch: Watch, programs: Programs) -> dict[str, Any]:
    world_settings = settings["world"]
    with ExitStack() as stack:
        world = stack.enter_context(up(world_settings, is_bypassed=programs.is_bypassed))
        captures = {}
        for end, file in files.items():
            place = world.place(end)
            snaplen_bytes = world_settings.get("snaplen_bytes") or None
            capture = capturing(place, place.interfaces[0].name, file, snaplen_bytes=snaplen_bytes)
            captures[end] = stack.enter_context(capture)
        target = stack.enter_context(actors.target(programs.target, world.target, world.address("target"), settings))
        samples = {end: stack.enter_context(sampling(world.place(end))) for end in ENDS}
        started_ns = time.time_ns()
        outcome = actors.run_initiator(programs.initiator, world.initiator, target, settings, watch)
        ended_ns = time.time_ns()
        # the last packets are still on their way
        time.sleep(_SETTLE_S + _round_trip_s(world_settings["paths"][0]))
    samples["initiator"].rows += outcome.pop("last_samples")
    samples["target"].rows += target.last_samples
    described = {"programs": {"target": programs.target, "initiator": programs.initiator}}
    return {
        "captures": {
            "initiator": files["initiator"].name if "initiator" in files else None,
            "targets": [files["target"].name] if "target" in files else [None],
        },
        "settings": {**_without_secrets(settings), **described, "is_bypassed": programs.is_bypassed},
        "started_ns": started_ns,
        "ended_ns": ended_ns,
        **outcome,
        **real_truth.of_link(world.link),
        **real_truth.of_ends(samples["initiator"], samples["target"], target.port),
        "packet_counts": [captures[end].packet_count if end in captures else None for end in ENDS],
        "capture_dropped_counts": [captures[end].dropped_count if end in captures else None for end in ENDS],
        "target_log": target.log or None,
    }


def _without_secrets(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {name: _without_secrets(value) for name, value in settings.items() if name != "secret"}
    return [_without_secrets(each) for each in settings] if isinstance(settings, list) else settings


def _round_trip_s(path: Mapping[str, Any]) -> float:
    directions = [path.get(name, {}) for name in ("to_target", "to_initiator")]
    names = ("delay_ns", "jitter_ns", "reorder_by_ns")
    return float(sum(direction.get(name, 0) for direction in directions for name in names) / _SECOND_NS)
