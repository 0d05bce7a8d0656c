"""What a guest's kernel says of a run: a capture at its network card, TCP_INFO, events of its TCP, counters, log.

Everything stays in the guest's memory until the run is over.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iscsitrace.errors import ToolMissing
from iscsitrace.lab.guests.machine import Guest, GuestClock
from iscsitrace.lab.places import HERE
from iscsitrace.lab.recording import TcpInfoSamples

_CAPTURE = "/run/capture.pcap"
_SAMPLES = "/run/tcp-info.json"
_SAMPLE_PERIOD_MS = 100
"""Longer than in namespaces: a sample takes a slow processor some ms."""
_TRACING = "/sys/kernel/tracing"
_EVENTS = ("tcp_probe", "tcp_retransmit_skb", "tcp_send_reset", "tcp_receive_reset")
_TRACE_KIB = 8192
# tcpdump writes what it got in its last second only then
_SETTLE_S = 1.5
_COUNTS = re.compile(r"(\d+) packets? captured.*?(\d+) packets? dropped by kernel", re.DOTALL)
_EVENT = re.compile(r"^\s*\S+\s+\[\d+\]\s+\S+\s+(?P<time>[\d.]+): (?P<name>\w+): (?P<rest>.*)$")
_FIELD = re.compile(r"(\w+)=(\S+)")
_SECOND_NS = 1_000_000_000


@dataclass
class GuestEvidence:
    """What was recorded in one guest; complete after the block of `recording`."""

    clock_before: GuestClock
    clock_after: GuestClock | None = None
    samples: TcpInfoSamples = field(default_factory=TcpInfoSamples)
    packet_count: int | None = None
    dropped_count: int | None = None
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By the name of the kernel's event: its fields, and ``time_ns`` on the guest's clock."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """What the run added to the counters of IP and TCP, by group: Ip, Tcp, TcpExt ..."""
    queue: str = ""
    """The statistics of the network card's queue (``tc -s qdisc``)."""
    log: list[dict[str, Any]] = field(default_factory=list)
    """The kernel's log: ``time_ns`` on the guest's clock, ``text``."""

    def as_dict(self) -> dict[str, Any]:
        """For the truth, without the samples."""
        clocks = [(clock.offset_ns, clock.error_ns) for clock in (self.clock_before, self.clock_after) if clock]
        return {
            "clock": {"offset_ns": [offset for offset, _ in clocks], "error_ns": [error for _, error in clocks]},
            "events": {name: _columns(rows) for name, rows in self.events.items()},
            "counters": self.counters,
            "queue": self.queue,
            "log": self.log,
        }


@contextmanager
def recording(
    guest: Guest, file: Path | None, *, snaplen_bytes: int | None = None, buffer_kib: int = 16384
) -> Iterator[GuestEvidence]:
    """Records in a guest while the block runs; its capture becomes ``file``, a pcapng with nanoseconds, if wanted."""
    guest.shell(_start_of_events())
    found = GuestEvidence(guest.clock())
    before = _counters(guest)
    words = ("python3", "-S", "/guest/sample.py", str(_SAMPLE_PERIOD_MS), _SAMPLES)
    with guest.started("env", "PYTHONPATH=/guest", *words) as sampler:
        if file is None:
            yield found
        else:
            with _capturing(guest, snaplen_bytes, buffer_kib) as capture:
                yield found
            found.packet_count, found.dropped_count = capture
        sampler.stop(signal.SIGTERM)
    found.clock_after = guest.clock()
    _read(guest, found, before)
    if file is not None:
        _fetch(guest, file)


@contextmanager
def _capturing(guest: Guest, snaplen_bytes: int | None, buffer_kib: int) -> Iterator[list[int]]:
    counts: list[int] = []
    arguments = ("-i", "eth0", "-w", _CAPTURE, "-B", str(buffer_kib), "-s", str(snaplen_bytes or 0), "-Z", "root")
    with guest.started("tcpdump", *arguments, "--time-stamp-precision=nano", stop_signal=signal.SIGINT) as tcpdump:
        tcpdump.wait_until(lambda: "listening on" in tcpdump.log, "no capture")
        yield counts
        time.sleep(_SETTLE_S)
        tcpdump.stop(signal.SIGINT)
        told = _COUNTS.search(tcpdump.log)
        if told is None:
            raise ToolMissing(f"tcpdump in guest {guest.name} ended without its counts: {tcpdump.log[-200:]}")
        counts += [int(told[1]), int(told[2])]


def _fetch(guest: Guest, file: Path) -> None:
    """Copies a capture out of the guest, as pcapng like those of the other worlds."""
    raw = file.with_suffix(".pcap")
    raw.write_bytes(guest.read(_CAPTURE))
    try:
        HERE.run("editcap", "-F", "pcapng", str(raw), str(file), package="wireshark-common", limit_s=600)
    finally:
        raw.unlink()


def _start_of_events() -> str:
    wanted = "".join(f"echo 1 > {_TRACING}/events/tcp/{name}/enable\n" for name in _EVENTS)
    return f"""
        echo {_TRACE_KIB} > {_TRACING}/buffer_size_kb
        echo mono > {_TRACING}/trace_clock
        {wanted}
    """


def _read(guest: Guest, found: GuestEvidence, before: dict[str, dict[str, int]]) -> None:
    samples = json.loads(guest.read(_SAMPLES))
    found.samples = TcpInfoSamples(samples["rows"], samples["missed_count"])
    after = _counters(guest)
    found.counters = {
        group: changed
        for group, values in after.items()
        if (changed := {name: value - before[group].get(name, 0) for name, value in values.items()
                        if value != before[group].get(name, 0)})
    }  # fmt: skip
    found.queue = guest.run("tc", "-s", "qdisc", "show", "dev", "eth0").output
    answer, _ = guest.channel.ask("time")
    boot_ns = answer["time_ns"] - answer["monotonic_ns"]
    found.log = log_of(guest.run("dmesg", "--color=never").output, boot_ns)
    trace = guest.read(f"{_TRACING}/trace").decode("utf-8", "replace")
    found.events = events_of(trace, boot_ns)


def events_of(trace: str, boot_ns: int) -> dict[str, list[dict[str, Any]]]:
    """The events in the kernel's trace by name; ``boot_ns`` is the time since 1970 at which its clock was 0."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in _EVENTS}
    for line in trace.splitlines():
        if (event := _EVENT.match(line)) and event["name"] in found:
            time_ns = boot_ns + _nanoseconds(event["time"])
            found[event["name"]].append({"time_ns": time_ns, **dict(map(_value, _FIELD.findall(event["rest"])))})
    return found


def _value(pair: tuple[str, str]) -> tuple[str, int | str]:
    name, text = pair
    try:
        return name, int(text, 0)
    except ValueError:
        return name, text


def _counters(guest: Guest) -> dict[str, dict[str, int]]:
    return counters_of(guest.shell("cat /proc/net/snmp /proc/net/netstat"))


def counters_of(text: str) -> dict[str, dict[str, int]]:
    """The counters in /proc/net/snmp and netstat by group: each has a line of names, then one of values."""
    lines = [line.split() for line in text.splitlines()]
    return {
        names[0].rstrip(":"): dict(zip(names[1:], map(int, values[1:]), strict=True))
        for names, values in zip(lines[::2], lines[1::2], strict=True)
    }


def log_of(text: str, boot_ns: int) -> list[dict[str, Any]]:
    """The lines of the kernel's log."""
    found = []
    for line in text.splitlines():
        if told := re.match(r"\[\s*(\d+\.\d+)\] (.*)", line):
            found.append({"time_ns": boot_ns + _nanoseconds(told[1]), "text": told[2]})
    return found


def _nanoseconds(seconds: str) -> int:
    """Exactly: a float would round."""
    whole, _, fraction = seconds.partition(".")
    return int(whole) * _SECOND_NS + int(fraction.ljust(9, "0"))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
