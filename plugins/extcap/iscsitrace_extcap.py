#!/usr/bin/env python3
"""Wireshark's extcap program for iscsitrace: a capture with a trigger, and a simulated WAN.

Wireshark starts it four times: for the interfaces, for their link types and for their arguments, which it prints in
extcap's format; then to capture into a FIFO. For that it starts ``iscsitrace`` and passes its packets on. Wireshark runs
the first three at every start, so they import nothing of the package and little of Python. An error is one line on
standard error, which Wireshark shows; without an error nothing is printed there.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes as _ctypes
    import subprocess
    from collections.abc import Sequence
    from types import FrameType
    from typing import IO, Any

VERSION = "0.1.0"
CAPTURE = "iscsitrace"
SIMULATION = "iscsitrace-wan"

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # by name: in a source tree the folder between is a link
_LINK_TYPE = 1  # LINKTYPE_ETHERNET, a promise only: the capture contains its real link type
_LIBPCAPS = ("libpcap.so.0.8", "libpcap.so.1", "libpcap.so", "libpcap.dylib")
_NUMBER = "[0-9]+([.][0-9]+)?"
_TIME = f"{_NUMBER}(ns|us|ms|s)"
_CHUNK_BYTES = 1 << 20
_ERRORS_MAX_BYTES = 1 << 16
_PORTALS_SHOWN = 2
_WAIT_MS = 50
_STOP_S = 5
_LOSS = 1  # exit code of iscsitrace for packet loss

# The arguments as extcap's grammar has them. `values` are the choices of a selector, the first being the default.
_CAPTURE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"call": "--interface", "display": "Interface", "tooltip": "Interface to capture on", "type": "selector", "group": "Capture", "required": "true", "reload": "true", "placeholder": "Look again"},
    {"call": "--filter", "display": "Capture filter", "tooltip": "libpcap's filter language; empty: TCP ports 3260 and 860", "type": "string", "group": "Capture"},
    {"call": "--learn", "display": "Learn portals", "tooltip": "Look at all TCP traffic for a moment, find iSCSI on any port, and capture those ports", "type": "boolflag", "group": "Capture", "default": "false"},
    {"call": "--snaplen", "display": "Snapshot length", "tooltip": "Bytes captured of each packet, at least 68; 0: all", "type": "unsigned", "group": "Capture", "default": "0"},
    {"call": "--trigger", "display": "Keep only around", "tooltip": "Condition of a SCSI command, such as latency>50ms or status!=good; empty: keep all packets", "type": "string", "group": "Trigger", "placeholder": "latency>50ms"},
    {"call": "--before", "display": "Time before", "tooltip": "Time to keep before such a command, such as 2s", "type": "string", "group": "Trigger", "placeholder": "2s", "validation": f"^({_TIME})?$"},
    {"call": "--after", "display": "Time after", "tooltip": "Time to keep after such a command, such as 1s", "type": "string", "group": "Trigger", "placeholder": "1s", "validation": f"^({_TIME})?$"},
)  # fmt: skip
_SIMULATION_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"call": "--operation", "display": "Operation", "tooltip": "SCSI commands that the initiator issues", "type": "selector", "group": "Workload", "values": {"read": "read", "write": "write", "mixed": "mixed"}},
    {"call": "--block-size", "display": "I/O size", "tooltip": "Bytes of each command, such as 128K", "type": "string", "group": "Workload", "default": "128K"},
    {"call": "--queue-depth", "display": "Queue depth", "tooltip": "Commands in flight", "type": "integer", "group": "Workload", "range": "1,65536", "default": "1"},
    {"call": "--bytes", "display": "Bytes", "tooltip": "Bytes in total, such as 16M", "type": "string", "group": "Workload", "default": "16M"},
    {"call": "--seconds", "display": "Seconds", "tooltip": "Duration, instead of a number of bytes", "type": "string", "group": "Workload", "validation": f"^({_NUMBER})?$"},
    {"call": "--one-way-delay", "display": "One-way delay", "tooltip": "Delay of every packet, such as 8ms", "type": "string", "group": "Path", "default": "8ms", "validation": f"^{_TIME}$"},
    {"call": "--rate", "display": "Rate", "tooltip": "Rate of the bottleneck link, such as 320Mbit", "type": "string", "group": "Path", "default": "320Mbit"},
    {"call": "--loss", "display": "Loss", "tooltip": "Random packet loss, such as 0.1%", "type": "string", "group": "Path", "default": "0%"},
    {"call": "--congestion-control", "display": "Congestion control", "tooltip": "Congestion control algorithm of TCP", "type": "selector", "group": "Path", "values": {"cubic": "CUBIC", "reno": "Reno"}},
    {"call": "--tap", "display": "Captured at", "tooltip": "Host whose traffic is captured", "type": "selector", "group": "Run", "values": {"initiator": "the initiator", "target": "the target"}},
    {"call": "--seed", "display": "Seed", "tooltip": "Seed of the random numbers: the same seed gives the same packets", "type": "unsigned", "group": "Run", "default": "1"},
)  # fmt: skip
_ARGUMENTS = {CAPTURE: _CAPTURE_ARGUMENTS, SIMULATION: _SIMULATION_ARGUMENTS}


class Refusal(Exception):
    """An error for the person, in one line."""


def main(arguments: Sequence[str]) -> int:
    """Run one phase and return the exit code."""
    options = parsed(arguments)
    try:
        if "--extcap-interfaces" in options:
            show_interfaces()
            return 0
        interface = options.get("--extcap-interface")
        if interface not in _ARGUMENTS:
            raise Refusal(f"there is no interface {interface!r}; there are {', '.join(_ARGUMENTS)}")
        if "--extcap-dlts" in options:
            print(f"dlt {{number={_LINK_TYPE}}}{{name=EN10MB}}{{display=Ethernet}}")
        elif "--extcap-config" in options:
            show_arguments(interface, options.get("--extcap-reload-option"))
        elif "--capture" in options:
            return capture(interface, options)
        elif "--extcap-capture-filter" in options:
            show_filter_error(options["--extcap-capture-filter"])
        else:
            raise Refusal("started without a phase: Wireshark starts this program from its extcap folder")
    except Refusal as refusal:
        print(f"iscsitrace: {refusal}", file=sys.stderr)
        return 2
    return 0


def parsed(arguments: Sequence[str]) -> dict[str, str]:
    """Options by name, from ``--name value`` or ``--name=value``; a switch has the value true."""
    switches = {"--extcap-interfaces", "--extcap-dlts", "--extcap-config", "--capture", "--learn"}
    options = {}
    waiting = list(reversed(arguments))
    while waiting:
        name, is_joined, value = waiting.pop().partition("=")
        if name in switches:
            # older versions of Wireshark add true or false to a switch
            has_value = not is_joined and waiting and waiting[-1] in ("true", "false")
            value = waiting.pop() if has_value else value
            if value != "false":
                options[name] = "true"
        elif name.startswith("--"):
            options[name] = value if is_joined else waiting.pop() if waiting else ""
    return options


def show_interfaces() -> None:
    """Print the two interfaces."""
    readme = os.path.join(os.path.dirname(_HERE), "README.md")
    help_page = f"{{help=file://{readme}}}" if os.path.exists(readme) else ""
    print(f"extcap {{version={VERSION}}}{{display=iscsitrace}}{help_page}")
    print(f"interface {{value={CAPTURE}}}{{display=iSCSI capture with trigger}}")
    print(f"interface {{value={SIMULATION}}}{{display=iSCSI over a simulated WAN}}")


def show_arguments(interface: str, reloaded: str | None) -> None:
    """Print the arguments of an interface; if one is reloaded, only its values."""
    for number, argument in enumerate(_ARGUMENTS[interface]):
        call = argument["call"]
        if reloaded is not None and reloaded.lstrip("-") != call.lstrip("-"):
            continue
        if reloaded is None:
            parts = {name: text for name, text in argument.items() if name != "values"}
            print(f"arg {{number={number}}}" + "".join(f"{{{name}={text}}}" for name, text in parts.items()))
        if call == "--interface":
            values, default = interfaces(is_thorough=reloaded is not None), None
        else:
            values = list(argument.get("values", {}).items())
            default = values[0] if values else None
        for value in values:
            is_default = "true" if value is default else "false"
            print(f"value {{arg={number}}}{{value={value[0]}}}{{display={value[1]}}}{{default={is_default}}}")


def interfaces(*, is_thorough: bool) -> list[tuple[str, str]]:
    """Names and descriptions: quickly from the system, or thoroughly from ``iscsitrace interfaces``."""
    found = _described_interfaces() if is_thorough else []
    return found or sorted(_system_interfaces(), key=lambda each: ("(down)" in each[1], each[0] == "lo"))


def _described_interfaces() -> list[tuple[str, str]]:
    import json
    import subprocess

    try:
        done = subprocess.run([*program(), "interfaces", "--json"], capture_output=True, timeout=30, check=True)
        found = json.loads(done.stdout)["interfaces"]
        # interfaces with iSCSI connections come first
        found.sort(key=lambda each: not each.get("portals"))
        return [(each["name"], _description(each)) for each in found]
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError, Refusal):
        return []


def _description(found: dict[str, Any]) -> str:
    text = str(found["name"])
    if found.get("description"):
        text += f": {found['description']}"
    portals = [f"{portal['address']}:{portal['port']}" for portal in found.get("portals") or ()]
    if portals:
        text += f", iSCSI at {', '.join(portals[:_PORTALS_SHOWN])}"
    if found.get("can_capture") is False:
        text += " (no permission)"
    return _plain(text)


def _system_interfaces() -> list[tuple[str, str]]:
    folder = "/sys/class/net"
    if not os.path.isdir(folder):
        import socket

        return [(name, _plain(name)) for _, name in socket.if_nameindex()]
    found = []
    for name in sorted(os.listdir(folder)):
        try:
            with open(os.path.join(folder, name, "operstate")) as stream:
                state = stream.read().strip()
        except OSError:
            continue
        found.append((name, _plain(f"{name} (down)" if state == "down" else name)))
    return [*found, ("any", "any: all interfaces")]


def _plain(text: str) -> str:
    """Replace braces, which extcap's format uses."""
    return " ".join(text.replace("{", "(").replace("}", ")").split())


def show_filter_error(expression: str) -> None:
    """Print the error of a capture filter, nothing if it is valid. Wireshark calls this while the person types."""
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))

    libpcap = _libpcap()
    if libpcap is None or not expression.strip():
        return
    libpcap.pcap_open_dead.restype = ctypes.c_void_p
    libpcap.pcap_geterr.restype = ctypes.c_char_p
    handle = ctypes.c_void_p(libpcap.pcap_open_dead(_LINK_TYPE, 65535))
    code = Program()
    if libpcap.pcap_compile(handle, ctypes.byref(code), expression.encode(), 1, ctypes.c_uint(0xFFFFFFFF)) != 0:
        print(libpcap.pcap_geterr(handle).decode(errors="replace"))
    else:
        libpcap.pcap_freecode(ctypes.byref(code))
    libpcap.pcap_close(handle)


def _libpcap() -> _ctypes.CDLL | None:
    import ctypes
    from glob import glob

    # the package's own library comes first; a wheel has it beside the package
    own = glob(os.path.join(os.path.dirname(_PACKAGE), "iscsitrace.libs", "libpcap*"))
    for name in (*own, *_LIBPCAPS):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def program() -> list[str]:
    """The command that starts iscsitrace: the package that this file belongs to, or the program on the PATH."""
    if os.path.exists(os.path.join(_PACKAGE, "__main__.py")):
        # -P: do not import from the folder in which Wireshark was started
        return [sys.executable, "-P", "-m", "iscsitrace"]
    from shutil import which

    found = which("iscsitrace")
    if found is None:
        raise Refusal("iscsitrace is not on the PATH; 'iscsitrace wireshark install' installs an extcap that finds it")
    return [found]


def capture(interface: str, options: dict[str, str]) -> int:
    """Capture until the source ends, Wireshark closes the FIFO or a signal arrives; return the exit code."""
    fifo = options.get("--fifo")
    if not fifo:
        raise Refusal("--capture needs --fifo")
    run = Run()
    # open it before anything can be refused: the reader of the FIFO waits until it was opened and closed
    with run.opened(fifo) as sink:
        if interface == CAPTURE:
            return run.run(capture_command(options), sink)
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="iscsitrace-") as folder:
            command, file = simulation_command(options, folder)
            return run.run(command, sink, file)


def capture_command(options: dict[str, str]) -> list[str]:
    """``iscsitrace capture`` with pcapng on standard output."""
    name = options.get("--interface")
    if not name:
        raise Refusal(f"no interface is chosen: open the dialog, or give tshark -o extcap.{CAPTURE}.interface:NAME")
    filters = [options[each] for each in ("--filter", "--extcap-capture-filter") if options.get(each)]
    expression = " and ".join(f"({each})" for each in filters) if len(filters) > 1 else "".join(filters)
    # quiet: standard error then has errors only
    command = [*program(), "capture", "-q", "-i", name, "-w", "-"]
    command += ["-f", expression] if expression else []
    command += ["--learn"] if "--learn" in options else []
    command += ["-s", options["--snaplen"]] if options.get("--snaplen") not in (None, "", "0") else []
    if options.get("--trigger"):
        command += [f"--trigger={options['--trigger']}"]
        command += [f"{each}={options[each]}" for each in ("--before", "--after") if options.get(each)]
    return command


def simulation_command(options: dict[str, str], folder: str) -> tuple[list[str], str]:
    """``iscsitrace simulate`` into a folder, and the file to pass on."""
    left_out = {"--operation", "--tap", "--bytes" if options.get("--seconds") else "--seconds"}
    command = [*program(), "simulate", options.get("--operation") or "read", "-o", folder, "--quiet"]
    for argument in _SIMULATION_ARGUMENTS:
        call = argument["call"]
        value = options.get(call) or argument.get("default")
        if call not in left_out and value:
            command.append(f"{call}={value}")
    return command, os.path.join(folder, f"{options.get('--tap') or 'initiator'}.pcapng")


class Run:
    """A child that produces packets, until the FIFO is closed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._is_over = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def opened(self, fifo: str) -> IO[bytes]:
        """The FIFO, once Wireshark reads it."""
        try:
            # without O_CREAT: a wrong name does not create a file
            return os.fdopen(os.open(fifo, os.O_WRONLY), "wb", buffering=0)
        except OSError as error:
            raise Refusal(f"cannot write to {fifo}: {error.strerror}") from error

    def run(self, command: list[str], sink: IO[bytes], file: str | None = None) -> int:
        """Run the child. It writes to the FIFO itself, or to a file whose bytes are passed on as it grows.

        The FIFO is polled: a closed reader ends the child, even while there are no packets.
        """
        import select
        import subprocess

        child = self._started(command, sink if file is None else subprocess.DEVNULL)
        assert child.stderr is not None  # noqa: S101 -- it is a pipe
        errors = b""
        source: IO[bytes] | None = None
        waiting = select.poll()
        waiting.register(sink, 0)
        waiting.register(child.stderr, select.POLLIN)
        has_ended = False
        while not has_ended:
            is_ending = self._is_over
            ready = waiting.poll(_STOP_S * 1000 if is_ending else _WAIT_MS if file is not None else None)
            if is_ending and not ready:
                # it was told to end and does not: it is killed below
                break
            for descriptor, _ in ready:
                if descriptor == sink.fileno():
                    waiting.unregister(sink)
                    self._end()
                else:
                    text = os.read(descriptor, _ERRORS_MAX_BYTES)
                    errors = (errors + text)[-_ERRORS_MAX_BYTES:]
                    has_ended = not text
            if source is None and file is not None:
                source = self._growing(file)
            if source is not None and not self._pass_on(source, sink):
                source, file = None, None
                self._end()
        return self._judged(errors)

    @staticmethod
    def _growing(file: str) -> IO[bytes] | None:
        """The file that the child writes, open until the process ends; None as long as there is none.

        The child moves its files to their names when it ends; until then they are in a folder of its own beside them.
        """
        import glob
        from contextlib import suppress

        folder, name = os.path.split(file)
        for path in (file, *glob.glob(os.path.join(glob.escape(folder), ".run.*.partial", name))):
            with suppress(OSError):
                return open(path, "rb")
        return None

    @staticmethod
    def _pass_on(source: IO[bytes], sink: IO[bytes]) -> bool:
        """Write what the file has by now to the FIFO; false if the FIFO is closed."""
        try:
            while chunk := source.read(_CHUNK_BYTES):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[sink.write(rest) :]
        except BrokenPipeError:
            return False
        return True

    def _started(self, command: list[str], output: Any) -> subprocess.Popen[bytes]:
        import subprocess

        self._is_starting = True
        try:
            # in a new session: Ctrl-C in a terminal then reaches this process only, which sends one SIGTERM
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise Refusal(f"cannot start {command[0]}: {error.strerror}") from error
        if self._is_over:
            self._end()
        return self._child

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_over = True
        if self._child is None and not self._is_starting:
            # there is no reader of the FIFO yet
            raise SystemExit(0)
        # a child that is just starting is ended once it is known
        self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def _wait(self) -> int:
        import subprocess

        assert self._child is not None  # noqa: S101 -- it was started
        try:
            return self._child.wait(timeout=_STOP_S if self._is_over else None)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _judged(self, errors: bytes) -> int:
        """0 if all went well; otherwise a refusal with the child's last line."""
        code = self._wait()
        lines = errors.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"ended with exit code {code}"
        # after a stop or a closed FIFO any exit code is fine, but dropped packets are reported
        if code == 0 or (self._is_over and not (code == _LOSS and "dropped" in last)):
            return 0
        raise Refusal(last.removeprefix("iscsitrace: ").removeprefix("Error: "))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
