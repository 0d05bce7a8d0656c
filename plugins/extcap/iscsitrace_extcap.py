#!/usr/bin/env python3
"""Wireshark's external capture program for iscsitrace: a capture with a trigger, and the simulated WAN.

Wireshark starts it four times: for the interfaces, their link types and their arguments, each of which it prints in
extcap's own lines; then to capture into a FIFO, for which it starts ``iscsitrace`` and passes on what that writes. The
first three are asked whenever Wireshark starts, so nothing of the package is imported here, and little of Python. What
goes wrong is one line on standard error, which Wireshark shows; where all went well nothing stands there.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes as _ctypes
    import subprocess
    from collections.abc import Iterator, Sequence
    from types import FrameType
    from typing import IO, Any, BinaryIO

VERSION = "0.1.0"
CAPTURE = "iscsitrace"
SIMULATION = "iscsitrace-wan"

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))  # by name: in a source tree the folder between is a link
_LINK_TYPE = 1  # LINKTYPE_ETHERNET: what is told beforehand; the capture itself says what it really is
_LIBPCAPS = ("libpcap.so.0.8", "libpcap.so.1", "libpcap.so", "libpcap.dylib")
_NUMBER = "[0-9]+([.][0-9]+)?"
_TIME = f"{_NUMBER}(ns|us|ms|s)"
_CHUNK_BYTES = 1 << 20
_SAID_MAX = 1 << 16
_PORTALS_SHOWN = 2
_WAIT_MS = 50
_STOP_S = 5
_LOSS = 1  # iscsitrace's exit code

# call, type, group, what it is called, explanation, more of extcap's grammar
_CAPTURE_ARGUMENTS = (
    ("--interface", "selector", "Capture", "Interface", "Where to capture", "{required=true}{reload=true}{placeholder=Look again}"),
    ("--filter", "string", "Capture", "Capture filter", "libpcap's language; without one TCP ports 3260 and 860", ""),
    ("--learn", "boolflag", "Capture", "Learn portals", "Look at all TCP for a moment, find iSCSI on any port, and capture that", "{default=false}"),
    ("--snaplen", "unsigned", "Capture", "Snapshot length", "Bytes of a packet that are kept, 68 at least; 0: all", "{default=0}"),
    ("--trigger", "string", "Trigger", "Keep only around", "What a task must be, like latency>50ms or status!=good; without it all is kept", "{placeholder=latency>50ms}"),
    ("--before", "string", "Trigger", "Time before", "Kept before such a task, like 2s", "{placeholder=2s}{validation=^(" + _TIME + ")?$}"),
    ("--after", "string", "Trigger", "Time after", "Kept after such a task, like 1s", "{placeholder=1s}{validation=^(" + _TIME + ")?$}"),
)  # fmt: skip
_SIMULATION_ARGUMENTS = (
    ("--operation", "selector", "Workload", "Operation", "What the initiator asks for", ""),
    ("--block-size", "string", "Workload", "Block size", "Bytes of one command, like 128K", "{default=128K}"),
    ("--queue-depth", "integer", "Workload", "Queue depth", "Commands outstanding at once", "{range=1,65536}{default=1}"),
    ("--bytes", "string", "Workload", "Bytes", "How much in all, like 16M", "{default=16M}"),
    ("--seconds", "string", "Workload", "Seconds", "For how long instead", "{validation=^(" + _NUMBER + ")?$}"),
    ("--one-way-delay", "string", "Path", "One-way delay", "What every packet takes, like 8ms", "{default=8ms}{validation=^" + _TIME + "$}"),
    ("--rate", "string", "Path", "Rate", "Of the narrowest line, like 320Mbit", "{default=320Mbit}"),
    ("--loss", "string", "Path", "Loss", "Share of packets lost at random, like 0.1%", "{default=0%}"),
    ("--congestion-control", "selector", "Path", "Congestion control", "How a sender adapts", ""),
    ("--tap", "selector", "Run", "Captured at", "Which host the capture is taken beside", ""),
    ("--seed", "unsigned", "Run", "Seed", "Of all that is random: the same seed, the same packets", "{default=1}"),
)  # fmt: skip
_CHOICES = {
    "--operation": (("read", "read"), ("write", "write"), ("mixed", "mixed")),
    "--congestion-control": (("cubic", "CUBIC"), ("reno", "Reno")),
    "--tap": (("initiator", "the initiator"), ("target", "the target")),
}
_ARGUMENTS = {CAPTURE: _CAPTURE_ARGUMENTS, SIMULATION: _SIMULATION_ARGUMENTS}


class Refusal(Exception):
    """What cannot be done; one line for the person."""


def main(arguments: Sequence[str]) -> int:
    """One phase; the exit code."""
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
            show_fault_of_filter(options["--extcap-capture-filter"])
        else:
            raise Refusal("started without a phase: it is Wireshark that starts this, out of its extcap folder")
    except Refusal as refusal:
        print(f"iscsitrace: {refusal}", file=sys.stderr)
        return 2
    return 0


def parsed(arguments: Sequence[str]) -> dict[str, str]:
    """Options by name; ``--name value`` and ``--name=value`` alike, a switch being true."""
    switches = {"--extcap-interfaces", "--extcap-dlts", "--extcap-config", "--capture", "--learn"}
    options = {}
    waiting = list(reversed(arguments))
    while waiting:
        name, is_joined, value = waiting.pop().partition("=")
        if name in switches:
            # Wireshark writes a switch as such, older ones with true or false
            is_told = not is_joined and waiting and waiting[-1] in ("true", "false")
            value = waiting.pop() if is_told else value
            if value != "false":
                options[name] = "true"
        elif name.startswith("--"):
            options[name] = value if is_joined else waiting.pop() if waiting else ""
    return options


def show_interfaces() -> None:
    """The two interfaces, and what offers them."""
    readme = os.path.join(os.path.dirname(_HERE), "README.md")
    help_page = f"{{help=file://{readme}}}" if os.path.exists(readme) else ""
    print(f"extcap {{version={VERSION}}}{{display=iscsitrace}}{help_page}")
    print(f"interface {{value={CAPTURE}}}{{display=iSCSI capture with trigger}}")
    print(f"interface {{value={SIMULATION}}}{{display=iSCSI over a simulated WAN}}")


def show_arguments(interface: str, reloaded: str | None) -> None:
    """The arguments of an interface; when one is reloaded its values alone."""
    for number, (call, kind, group, display, tooltip, more) in enumerate(_ARGUMENTS[interface]):
        if reloaded is not None and reloaded.lstrip("-") != call.lstrip("-"):
            continue
        if reloaded is None:
            print(
                f"arg {{number={number}}}{{call={call}}}{{display={display}}}{{tooltip={tooltip}}}"
                f"{{type={kind}}}{{group={group}}}{more}"
            )
        if call == "--interface":
            values = [(name, text, False) for name, text in interfaces(is_thorough=reloaded is not None)]
        else:
            values = [(name, text, place == 0) for place, (name, text) in enumerate(_CHOICES.get(call, ()))]
        for name, text, is_default in values:
            default = "true" if is_default else "false"
            print(f"value {{arg={number}}}{{value={name}}}{{display={text}}}{{default={default}}}")


def interfaces(*, is_thorough: bool) -> list[tuple[str, str]]:
    """Names and descriptions: quick ones from the system, or thorough ones from ``iscsitrace interfaces``."""
    found = _told_interfaces() if is_thorough else []
    return found or sorted(_system_interfaces(), key=lambda each: ("(down)" in each[1], each[0] == "lo"))


def _told_interfaces() -> list[tuple[str, str]]:
    import json
    import subprocess

    try:
        done = subprocess.run([*program(), "interfaces", "--json"], capture_output=True, timeout=30, check=True)
        told = json.loads(done.stdout)["interfaces"]
        # where iSCSI connections are comes first
        told.sort(key=lambda each: not each.get("portals"))
        return [(each["name"], _described(each)) for each in told]
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError, Refusal):
        return []


def _described(told: dict[str, Any]) -> str:
    text = str(told["name"])
    if told.get("description"):
        text += f": {told['description']}"
    portals = [f"{portal['address']}:{portal['port']}" for portal in told.get("portals") or ()]
    if portals:
        text += f", iSCSI at {', '.join(portals[:_PORTALS_SHOWN])}"
    if told.get("can_capture") is False:
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
    """Braces are extcap's own."""
    return " ".join(text.replace("{", "(").replace("}", ")").split())


def show_fault_of_filter(expression: str) -> None:
    """Prints what is wrong with a capture filter, and nothing for a good one: as Wireshark asks while it is typed."""
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

    # what the package brings along comes first; it lies beside the package in a wheel
    own = glob(os.path.join(os.path.dirname(_PACKAGE), "iscsitrace.libs", "libpcap*"))
    for name in (*own, *_LIBPCAPS):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def program() -> list[str]:
    """How iscsitrace is started: by this Python, out of whose package this file is, or as it stands on the PATH."""
    if os.path.exists(os.path.join(_PACKAGE, "__main__.py")):
        # -P: what lies in the folder in which Wireshark was started is not what is meant
        return [sys.executable, "-P", "-m", "iscsitrace"]
    from shutil import which

    found = which("iscsitrace")
    if found is None:
        raise Refusal(
            "iscsitrace is not on the PATH; 'iscsitrace wireshark install' puts this in place so that it is found"
        )
    return [found]


def capture(interface: str, options: dict[str, str]) -> int:
    """Runs until the capture ends, Wireshark has had enough, or somebody ends this; the exit code."""
    fifo = options.get("--fifo")
    if not fifo:
        raise Refusal("--capture needs --fifo")
    run = Run()
    # first of all, and whatever is refused after it: what reads the FIFO waits until it was opened and closed
    with run.opened(fifo) as sink:
        if interface == CAPTURE:
            return run.passing(capture_command(options), sink)
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="iscsitrace-") as folder:
            command, file = simulation_command(options, folder)
            return run.following(command, file, sink)


def capture_command(options: dict[str, str]) -> list[str]:
    """``iscsitrace capture``, its pcapng on standard output."""
    name = options.get("--interface")
    if not name:
        raise Refusal(f"no interface is chosen: its dialog has them, tshark takes -o extcap.{CAPTURE}.interface:NAME")
    filters = [options[each] for each in ("--filter", "--extcap-capture-filter") if options.get(each)]
    expression = " and ".join(f"({each})" for each in filters) if len(filters) > 1 else "".join(filters)
    # quiet: what then stands on standard error went wrong
    command = [*program(), "capture", "-q", "-i", name, "-w", "-"]
    command += ["-f", expression] if expression else []
    command += ["--learn"] if "--learn" in options else []
    command += ["-s", options["--snaplen"]] if options.get("--snaplen") not in (None, "", "0") else []
    if options.get("--trigger"):
        command += [f"--trigger={options['--trigger']}"]
        command += [f"{each}={options[each]}" for each in ("--before", "--after") if options.get(each)]
    return command


def simulation_command(options: dict[str, str], folder: str) -> tuple[list[str], str]:
    """``iscsitrace simulate`` into a folder, and which of its files is wanted."""
    taken = ["--block-size", "--queue-depth", "--one-way-delay", "--rate", "--loss", "--congestion-control", "--seed"]
    taken.append("--seconds" if options.get("--seconds") else "--bytes")
    command = [*program(), "simulate", options.get("--operation") or "read", "-o", folder, "--no-progress"]
    command += [f"{each}={options[each]}" for each in taken if options.get(each)]
    for call, *_, more in _SIMULATION_ARGUMENTS:
        default = more.partition("{default=")[2].partition("}")[0]
        if call in taken and default and not options.get(call):
            command.append(f"{call}={default}")
    return command, os.path.join(folder, f"{options.get('--tap') or 'initiator'}.pcapng")


class Run:
    """A child that makes packets, for as long as somebody reads them."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def opened(self, fifo: str) -> IO[bytes]:
        """The FIFO, once Wireshark reads it."""
        try:
            # a name that is none becomes no file
            return os.fdopen(os.open(fifo, os.O_WRONLY), "wb", buffering=0)
        except OSError as error:
            raise Refusal(f"cannot write to {fifo}: {error.strerror}") from error

    def passing(self, command: list[str], sink: IO[bytes]) -> int:
        """The child writes to the FIFO itself; that nobody reads it any more is seen here even when no packet comes."""
        import select
        import subprocess

        child = self._started(command, sink, subprocess.PIPE)
        assert child.stderr is not None  # noqa: S101 -- it was asked for
        said = b""
        waiting = select.poll()
        waiting.register(sink, 0)
        waiting.register(child.stderr, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor == sink.fileno():
                    waiting.unregister(sink)
                    self._end()
                    continue
                text = os.read(descriptor, _SAID_MAX)
                said = (said + text)[-_SAID_MAX:]
                if not text:
                    return self._judged(said)

    def following(self, command: list[str], file: str, sink: IO[bytes]) -> int:
        """What the child writes to a file is passed on as it grows."""
        import subprocess
        from tempfile import TemporaryFile

        with TemporaryFile() as said:
            self._started(command, subprocess.DEVNULL, said)
            try:
                for chunk in self._chunks(file, sink):
                    _write(sink, chunk)
            except BrokenPipeError:
                self._end()
            self._wait()
            said.seek(0)
            return self._judged(said.read()[-_SAID_MAX:])

    def _chunks(self, file: str, sink: IO[bytes]) -> Iterator[bytes]:
        """The bytes of a file until its writer has ended, or nobody reads what they are passed on to."""
        import select

        waiting = select.poll()
        waiting.register(sink, 0)
        source: BinaryIO | None = None
        try:
            while True:
                # before reading: what was written until then is read
                has_ended = self._is_over or self._child is None or self._child.poll() is not None
                if source is None and os.path.exists(file):
                    source = open(file, "rb")  # noqa: SIM115 -- closed below
                chunk = source.read(_CHUNK_BYTES) if source is not None else b""
                if chunk:
                    yield chunk
                elif has_ended:
                    return
                elif waiting.poll(_WAIT_MS):
                    self._end()
                    return
        finally:
            if source is not None:
                source.close()

    def _started(self, command: list[str], output: Any, errors: Any) -> subprocess.Popen[bytes]:
        import subprocess

        try:
            # a session of its own: Ctrl-C in a terminal comes here only, and goes on as one SIGTERM
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise Refusal(f"cannot start {command[0]}: {error.strerror}") from error
        if self._is_over:
            self._end()
        return self._child

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_over = True
        if self._child is None:
            # it waits for a reader of the FIFO
            raise SystemExit(0)
        self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def _wait(self) -> int:
        import subprocess

        assert self._child is not None  # noqa: S101 -- only what was started is waited for
        try:
            return self._child.wait(timeout=_STOP_S if self._is_over else None)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _judged(self, said: bytes) -> int:
        """0, or a refusal with the child's last words when something went wrong."""
        code = self._wait()
        lines = said.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"ended with exit code {code}"
        # told to end, or with nobody to write to any more, it may end as it likes; but what was lost is told
        if code == 0 or (self._is_over and not (code == _LOSS and "dropped" in last)):
            return 0
        raise Refusal(last.removeprefix("iscsitrace: ").removeprefix("Error: "))


def _write(sink: IO[bytes], chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[sink.write(rest) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
