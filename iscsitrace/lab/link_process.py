"""The link emulator as a process with a higher priority than the hosts.

``python -m iscsitrace.lab.link_process`` reads settings from the first line of standard input, reports when it is
ready, runs until standard input ends, and prints its log. A second line says that the workload has begun. So it never
outlives the process that started it. The core emulates the link.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from iscsitrace.errors import InputInvalid, TrafficImpossible
from iscsitrace.lab import own_process, run_files, traffic
from iscsitrace.lab.namespaces import Cable, TapDevice

_READY = b"ready\n"
# above hosts with a real-time priority
_PRIORITY = 2
_END_LIMIT_S = 20


@dataclass
class RunningLink:
    """A link. Its log is known when it has ended."""

    process_id: int
    log: dict[str, Any] = field(default_factory=dict)
    """``started_ns ended_ns link lateness refused failure``, and ``has_priority``; busy times as in a truth."""
    orders: IO[bytes] | None = None
    """Its standard input; None once the workload has begun."""

    def begin_workload(self) -> None:
        """From the first call on the times of faults count."""
        if self.orders is not None:
            self.orders.write(b"begin\n")
            self.orders.flush()
            self.orders = None


@contextmanager
def linked(cable: Cable, settings: Mapping[str, Any], *, is_prioritized: bool = True) -> Iterator[RunningLink]:
    """A link between the two TAP devices of a cable, while the block runs; ``settings`` as the core's LinkSettings.

    The cable's first end is the initiator's. ``is_prioritized``: run with real-time priority (SCHED_FIFO), where that
    is allowed. TrafficImpossible if the link refuses the settings, or ends early.
    """
    if cable.taps is None:
        raise InputInvalid("a link needs a cable of TAP devices")
    with own_process.unwinding(), tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "iscsitrace.lab.link_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        running = RunningLink(process.pid)
        try:
            taps = dict(zip(("initiator", "target"), map(_tap, cable.taps), strict=True))
            with _raising_its_error(process, errors):
                _begin(process, json.dumps({"is_prioritized": is_prioritized, "run": {**taps, "link": settings}}))
            running.orders = process.stdin
            yield running
            running.orders = None
            with _raising_its_error(process, errors):
                running.log = _ended(process)
        finally:
            with own_process.deferred():
                process.kill()
                process.communicate()
    if running.log["failure"]:
        raise TrafficImpossible(f"the link ended: {running.log['failure']}")


@contextmanager
def _raising_its_error(process: subprocess.Popen[bytes], errors: IO[bytes]) -> Iterator[None]:
    """Raises TrafficImpossible with the last error message of a link that fails."""
    try:
        yield
    except (BrokenPipeError, EOFError, subprocess.TimeoutExpired) as error:
        process.kill()
        process.wait()
        errors.seek(0)
        messages = errors.read().decode("utf-8", "replace").strip().splitlines()
        raise TrafficImpossible(messages[-1] if messages else "the link ended without a message") from error


def _begin(process: subprocess.Popen[bytes], settings: str) -> None:
    settings_pipe, messages = process.stdin, process.stdout
    if settings_pipe is None or messages is None:
        raise EOFError
    settings_pipe.write(settings.encode() + b"\n")
    settings_pipe.flush()
    if messages.readline() != _READY:
        raise EOFError


def _ended(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Ends the link by closing its standard input; returns its log."""
    output, _ = process.communicate(timeout=_END_LIMIT_S)
    if process.returncode != 0:
        raise EOFError
    log: dict[str, Any] = json.loads(output)
    run_files.pack_busy_times(log["link"])
    return log


def _tap(tap: TapDevice) -> dict[str, str]:
    return {"name": tap.name, "namespace": str(tap.namespace)}


def raise_priority() -> bool:
    """Requests a real-time priority for this thread; whether it is granted. New threads do not inherit it."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
        return True
    return False


def _report_ready() -> None:
    os.write(1, _READY)


def main() -> int:
    """The process; its exit code."""
    request = json.loads(sys.stdin.buffer.readline())
    ended, begun = threading.Event(), threading.Event()

    def await_end() -> None:
        # not through sys.stdin: its lock would still be held when the interpreter ends
        while os.read(0, 4096):
            begun.set()
        ended.set()

    threading.Thread(target=await_end, daemon=True).start()
    has_priority = request["is_prioritized"] and raise_priority()
    try:
        log = traffic.run_link(request["run"], _report_ready, ended.is_set, begun.is_set)
    except TrafficImpossible as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(log | {"has_priority": has_priority}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
