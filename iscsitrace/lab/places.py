"""Where programs run: this machine's own network, or a network namespace.

Every program runs in a separate process group, which is ended as a whole, and with a time limit. Creates and removes no
namespaces.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from iscsitrace.errors import ToolMissing
from iscsitrace.lab import own_process

NAMESPACES = Path("/run/netns")
"""Where iproute2 keeps a file for each network namespace."""

_CLONE_NEWNET = 0x40000000
_POLL_S = 0.01
_LOOK_S = 0.1
_LOG_BYTES = 1 << 20
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Finished:
    """A program that has ended. ``code`` is None if it exceeded its time limit; its output is then incomplete."""

    code: int | None
    output: str
    errors: str

    @property
    def last_message(self) -> str:
        """The last line of its errors, or of its output."""
        return last_line(self.errors) or last_line(self.output) or "no message"


class Process:
    """A running program and its output so far."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.name = name
        self._popen = popen
        self._log = log

    @property
    def process_id(self) -> int:
        """Process id of the program, which leads its process group."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    @property
    def log(self) -> str:
        """Its standard output and error; available during the block that it was started for."""
        # the file position belongs to the program
        return os.pread(self._log.fileno(), _LOG_BYTES, 0).decode("utf-8", "replace")

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = 10) -> None:
        """Waits for a condition; ToolMissing if the program ends first, or after the time limit."""
        end = time.monotonic() + limit_s
        while not condition():
            last_message = last_line(self.log) or "no message"
            if not self.is_running:
                raise ToolMissing(f"{self.name} ended with exit code {self._popen.returncode}: {last_message}")
            if time.monotonic() > end:
                raise ToolMissing(f"{self.name}: {what} not within {limit_s:g} s: {last_message}")
            time.sleep(_POLL_S)

    def stop(self, number: signal.Signals, limit_s: float) -> None:
        """Asks the group to end, and kills it after the time limit."""
        _end_group(self._popen, number, limit_s)


@dataclass(frozen=True)
class Place:
    """This machine's network, or a namespace by name; with the addresses that servers listen on there."""

    namespace: str | None = None
    address: str = "127.0.0.1"
    address_v6: str | None = "::1"

    def command(self, program: str, *arguments: str, package: str) -> list[str]:
        """The command line that runs a program here; ToolMissing with the Debian package if it is not installed."""
        found = require(program, package)
        if self.namespace is None:
            return [found, *arguments]
        return [require("ip", "iproute2"), "netns", "exec", self.namespace, found, *arguments]

    def run(
        self,
        program: str,
        *arguments: str,
        package: str,
        limit_s: float = 60,
        is_checked: bool = True,
        input_text: str = "",
        environment: Mapping[str, str] | None = None,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Finished:
        """Runs a program to its end, with ``input_text`` as its standard input. Gets SIGINT when ``is_enough`` is True.

        Checked: ToolMissing with its last words when it fails or its time is up.
        """
        popen = subprocess.Popen(
            self.command(program, *arguments, package=package),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(environment),
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, errors = _communicated(popen, input_text, limit_s, is_enough)
            finished = Finished(popen.returncode, output, errors)
        except subprocess.TimeoutExpired:
            _end_group(popen, signal.SIGKILL, limit_s)
            finished = Finished(None, *popen.communicate())
        except BaseException:
            with popen:
                _end_group(popen, signal.SIGKILL, limit_s)
            raise
        if is_checked and finished.code != 0:
            how = f"did not finish in {limit_s:g} s" if finished.code is None else f"failed with code {finished.code}"
            raise ToolMissing(f"{program} {how}: {finished.last_message}")
        return finished

    @contextmanager
    def started(
        self,
        program: str,
        *arguments: str,
        package: str,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_limit_s: float = 5,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Process]:
        """A program that runs until the block ends, for any reason."""
        command = self.command(program, *arguments, package=package)
        # a file without a name: nothing remains of it, however this process ends
        with own_process.unwinding(), tempfile.TemporaryFile() as log:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(environment),
                start_new_session=True,
            )
            try:
                yield Process(program, popen, log)
            finally:
                with own_process.deferred():
                    _end_group(popen, stop_signal, stop_limit_s)

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Calls a function here: for a namespace in a new thread, because each thread has its own namespace.

        Sockets and devices that it opens belong to the namespace and can be used from anywhere.
        """
        if self.namespace is None:
            return function()
        results: list[_Result] = []
        failures: list[BaseException] = []

        def enter() -> None:
            try:
                _enter(NAMESPACES / str(self.namespace))
                results.append(function())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=enter, name=f"in {self.namespace}")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return results[0]

    def free_port(self, address: str) -> int:
        """A free TCP port."""

        def bind() -> int:
            with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
                probe.bind((address, 0))
                return int(probe.getsockname()[1])

        return self.call(bind)

    def answers(self, address: str, port: int) -> bool:
        """Whether a server accepts TCP connections there."""

        def connect() -> bool:
            with suppress(OSError), socket.create_connection((address, port), timeout=1):
                return True
            return False

        return self.call(connect)


HERE = Place()
"""This machine's network, at its loopback addresses."""


def portal(address: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def require(program: str, package: str) -> str:
    """The path of a program; ToolMissing naming the Debian package that has it."""
    # servers are in sbin, which is not on every user's PATH
    found = shutil.which(program) or shutil.which(program, path="/usr/local/sbin:/usr/sbin:/sbin")
    if found is None:
        raise ToolMissing(f"{program} is not installed: apt install {package}")
    return found


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", **(more or {})}


def _communicated(
    popen: subprocess.Popen[str], input_text: str, limit_s: float, is_enough: Callable[[], bool]
) -> tuple[str, str]:
    """The output of a program; TimeoutExpired after its time limit."""
    end, has_enough, rest = time.monotonic() + limit_s, False, input_text or None
    while True:
        left_s = end - time.monotonic()
        try:
            return popen.communicate(rest, timeout=min(left_s, _LOOK_S))
        except subprocess.TimeoutExpired:
            if left_s <= _LOOK_S:
                raise
        # its input is complete
        rest = None
        if not has_enough and is_enough():
            has_enough = True
            with suppress(ProcessLookupError):
                os.killpg(popen.pid, signal.SIGINT)


def _end_group(popen: subprocess.Popen[bytes] | subprocess.Popen[str], number: signal.Signals, limit_s: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(popen.pid, number)
    with suppress(subprocess.TimeoutExpired):
        popen.wait(limit_s)
    # processes that the program started may outlive it
    with suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(namespace))
    finally:
        os.close(descriptor)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def last_line(text: str) -> str:
    """The last line that is not empty; or nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
