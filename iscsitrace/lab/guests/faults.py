"""The faults of a run in guests: the hosts that they reach, and how a run begins and ends them.

`lab.fault_catalogue` has their kinds.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from iscsitrace.errors import InputInvalid, ToolMissing
from iscsitrace.lab.faults.fault import Fault, FaultImpossible, InGuests
from iscsitrace.lab.guests.initiator import TargetPortal
from iscsitrace.lab.guests.machine import Guest
from iscsitrace.lab.guests.targets import Wanted
from iscsitrace.lab.namespaces import Namespace
from iscsitrace.lab.run_files import INITIATOR


@dataclass
class Hosts:
    """Faults before the login may change the portals; the device is known after it."""

    guests: Mapping[str, Guest]
    """By the name of their host: ``initiator``, ``target``, ``target-2`` ..."""
    namespaces: Mapping[str, Namespace]
    """By the name of the host whose network card is plugged in."""
    wanted: Mapping[str, Wanted]
    """Each target, by the name of its host."""
    program: str
    """The targets' program: lio or tgt."""
    portals: list[TargetPortal]
    until_end: ExitStack
    """Ends when the run does, before its targets."""
    is_discovering: bool = True
    """Whether the initiator finds the targets by SendTargets."""
    device: str = ""
    """The device of the initiator that the workload reads and writes."""

    @property
    def initiator(self) -> Guest:
        """The initiator's guest."""
        return self.guests[INITIATOR]

    def portal(self, target: str) -> TargetPortal:
        """The portal of a target, by the name of its host."""
        return self.portals[list(self.wanted).index(target)]


_SECOND_NS = 1_000_000_000
_POLL_S = 0.1


def node_settings(faults: Sequence[Fault]) -> dict[str, str]:
    """The settings of iscsid.conf that faults need."""
    return {name: value for each in faults for name, value in _of(each).node_settings.items()}


def capture_limits(faults: Sequence[Fault], host: str) -> dict[str, int]:
    """The arguments ``snaplen_bytes`` and ``buffer_kib`` of a host's recording that faults limit."""
    found = {}
    for each in faults:
        if each.host == host and each.kind.name == "snaplen":
            found["snaplen_bytes"] = each.details["bytes"]
        if each.host == host and each.kind.name == "capture-drops":
            found["buffer_kib"] = max(1, each.details["buffer"] // 1024)
    return found


def require_possible(faults: Sequence[Fault], names: Sequence[str], program: str) -> None:
    """InputInvalid for a fault of a host that the run does not have, or that its target cannot show."""
    for each in faults:
        if each.host not in names:
            raise InputInvalid(f"{each.kind.name}: there is no host {each.host!r}; there are {', '.join(names)}")
        if each.details.get("direction", "both") != "both":
            raise InputInvalid(f"{each.kind.name}: a guest's path is interrupted in both directions only")
        if program not in (programs := _of(each).programs):
            raise InputInvalid(f"{each.kind.name}: only with {', '.join(programs)}, not with {program}")


def _of(fault: Fault) -> InGuests:
    if fault.kind.guests is None:
        raise InputInvalid(f"{fault.kind.name}: guests cannot make it")
    return fault.kind.guests


@dataclass
class Occurrence:
    """A fault and when it was there, in ns since 1970 on this machine's clock; None if it did not begin or end.

    The times enclose it: it begins soon after the first, and has ended before the second.
    """

    fault: Fault
    began_ns: int | None = None
    ended_ns: int | None = None

    def begin(self, hosts: Hosts) -> AbstractContextManager[object]:
        """Begins it; the result ends it."""
        self.began_ns = time.time_ns()
        effect = _of(self.fault).effect(hosts, self.fault.details)
        with self._failing():
            effect.__enter__()
        return effect

    def end(self, effect: AbstractContextManager[object]) -> None:
        """Ends it."""
        with self._failing():
            effect.__exit__(None, None, None)
        self.ended_ns = time.time_ns()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except FaultImpossible:
            raise
        except ToolMissing as error:
            raise FaultImpossible(f"{self.fault.kind.name}: {error}") from error

    def as_dict(self) -> dict[str, Any]:
        """For the truth."""
        return {**self.fault.as_dict(), "began_ns": self.began_ns, "ended_ns": self.ended_ns}


@contextmanager
def lasting(hosts: Hosts, occurrences: Sequence[Occurrence]) -> Iterator[None]:
    """Faults that are there from before the login while the block runs."""
    with ExitStack() as stack:
        for each in occurrences:
            if not each.fault.kind.is_timed:
                stack.callback(each.end, each.begin(hosts))
        yield


@contextmanager
def timed(hosts: Hosts, occurrences: Sequence[Occurrence]) -> Iterator[None]:
    """Faults that begin and end while the block runs, from its first I/O on; those that are left end with it."""
    wanted = [each for each in occurrences if each.fault.kind.is_timed]
    if not wanted:
        yield
        return
    is_over, failures = threading.Event(), []
    counts = _io_counts(hosts)
    at_start = counts()

    def run() -> None:
        try:
            while counts() == at_start:
                if is_over.wait(_POLL_S):
                    return
            _run(hosts, wanted, is_over)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="faults", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        if failures:
            raise failures[0]


def _run(hosts: Hosts, occurrences: Sequence[Occurrence], is_over: threading.Event) -> None:
    """Begins each in its time, ends it so long after, and at once when the workload is over."""
    start = time.monotonic()
    steps = [(start + each.fault.details["at"] / _SECOND_NS, number) for number, each in enumerate(occurrences)]
    heapq.heapify(steps)
    begun: dict[int, AbstractContextManager[object]] = {}
    try:
        while steps:
            due, number = heapq.heappop(steps)
            if is_over.wait(max(0.0, due - time.monotonic())):
                break
            if number in begun:
                occurrences[number].end(begun.pop(number))
            else:
                begun[number] = occurrences[number].begin(hosts)
                lasts_s = occurrences[number].fault.details["for"] / _SECOND_NS
                heapq.heappush(steps, (time.monotonic() + lasts_s, number))
    finally:
        for number, effect in begun.items():
            occurrences[number].end(effect)


def _io_counts(hosts: Hosts) -> Callable[[], list[bytes]]:
    """Counts the I/Os of the workload's device that have begun or completed."""
    number = hosts.initiator.run("lsblk", "-n", "-r", "-d", "-o", "MAJ:MIN", hosts.device).output.strip()

    def counts() -> list[bytes]:
        fields = hosts.initiator.read(f"/sys/dev/block/{number}/stat").split()
        # reads, writes, and those in flight
        return [fields[0], fields[4], fields[8]]

    return counts
